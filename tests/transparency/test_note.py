"""Notes, checkpoints and cosignatures are those of C2SP, byte for byte."""

from __future__ import annotations

import base64

import pytest

from npumark.record.signing import InstallKey
from npumark.transparency.checkpoint import Checkpoint, open_checkpoint, parse_checkpoint
from npumark.transparency.merkle import EMPTY_ROOT
from npumark.transparency.note import (
    COSIGNATURE,
    MAX_NOTE,
    Note,
    VerifierKey,
    cosign,
    cosigned_at,
    open_note,
    parse_note,
    parse_verifier_key,
    sign,
    verifier_key,
)

# The example of C2SP signed-note.
VKEY = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
NOTE = (
    "This is an example message.\n"
    "\n"
    "— example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3"
    "mFXmRKuwHjG1Yu72IneyaQM=\n"
)
# The example of C2SP tlog-cosignature, whose keys it does not tell.
COSIGNED = (
    "example.com/behind-the-sofa\n"
    "20852163\n"
    "CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n"
    "\n"
    "— example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5"
    "/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=\n"
    "— witness.example.com/w1 jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJs"
    "X3b2oyin1nPZqhf5nNo0xUe+mbIUBkBIfZ+qnA==\n"
)
LOG, WITNESS, STRANGER = (InstallKey(bytes([n]) * 32) for n in (1, 2, 3))
ORIGIN = "results.example/log"
HEAD = Checkpoint(ORIGIN, 7, bytes(range(32)))
LOG_KEY = parse_verifier_key(verifier_key(ORIGIN, LOG.public))
WITNESS_KEY = parse_verifier_key(verifier_key("witness.example/w1", WITNESS.public, COSIGNATURE))
SIGNED = sign(HEAD.encode(), ORIGIN, LOG)


def test_the_example_of_the_specification_verifies() -> None:
    key = parse_verifier_key(VKEY)
    assert open_note(NOTE, [key]).text == "This is an example message.\n"
    assert str(key) == VKEY
    assert str(parse_note(NOTE)) == NOTE


def test_another_text_under_the_same_signature_does_not() -> None:
    with pytest.raises(ValueError, match="does not hold"):
        open_note(NOTE.replace("example m", "exemple m"), [parse_verifier_key(VKEY)])


def test_the_cosigned_example_is_read_to_the_second() -> None:
    note = parse_note(COSIGNED)
    assert parse_checkpoint(note.text).size == 20852163
    assert cosigned_at(note.signatures[1]) == 1679315147
    assert str(note) == COSIGNED


def test_a_key_is_one_for_its_kind_alone() -> None:
    plain = VerifierKey("example.com/foo", 1, LOG.public)
    assert plain.key_id != VerifierKey("example.com/foo", COSIGNATURE, LOG.public).key_id


@pytest.mark.parametrize(
    "text",
    [
        "",
        "example.com/foo+530d903a",
        VKEY.replace("530d903a", "530d903b"),
        VKEY.replace("530d903a", "530D903A"),
        VKEY.replace("example.com", "example.org"),
        VKEY + "\n",
        VKEY + "+",
        VKEY[:-4],
        VKEY.replace("+Aeky", "+Auky"),
        "+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k",
    ],
)
def test_no_verifier_key(text: str) -> None:
    with pytest.raises(ValueError, match=r"key|base64"):
        parse_verifier_key(text)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ("", "no signatures"),
        ("text\n", "no signatures"),
        (NOTE.removesuffix("\n"), "end is missing"),
        (NOTE + "\n", "no signatures"),
        (NOTE + "more\n", "em dash"),
        (NOTE.replace("— ", "- "), "em dash"),
        (NOTE.replace("message", "mess\rage"), "control"),
        (NOTE.replace("message", "mess\x00age"), "control"),
        (NOTE.replace("message", "mess\ud800age"), "control"),
        (NOTE.replace("— example.com/foo", "— example com/foo"), "base64"),
        (NOTE.replace("— example.com/foo", "— example.com+foo"), "name"),
        (NOTE.replace("IneyaQM=", "IneyaQM"), "base64"),
        (NOTE.replace("IneyaQM=", "IneyaQN="), "base64"),
        ("text\n\n— name Uw2QOg==\n", "key's id and a signature"),
        ("text\n\n" + 101 * "— name Uw2QOkk=\n", "signatures"),
        (MAX_NOTE * "x" + NOTE, "characters"),
    ],
)
def test_no_note(raw: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_note(raw)


def test_sixteen_large_signatures_are_taken() -> None:
    large = "— post.quantum " + base64.b64encode(bytes(5000)).decode() + "\n"
    assert open_note(SIGNED + 15 * large, [LOG_KEY]).text == HEAD.encode()


def test_signatures_of_strangers_are_dropped_unseen() -> None:
    stranger = sign(HEAD.encode(), "stranger.example", STRANGER).rpartition("\n\n")[2]
    renamed = sign(HEAD.encode(), ORIGIN, STRANGER).rpartition("\n\n")[2]
    assert str(open_note(SIGNED + stranger + renamed, [LOG_KEY])) == SIGNED


def test_a_note_of_strangers_alone_is_refused() -> None:
    with pytest.raises(ValueError, match="no key that is trusted"):
        open_note(sign(HEAD.encode(), ORIGIN, STRANGER), [LOG_KEY])
    with pytest.raises(ValueError, match="no key that is trusted"):
        open_note(SIGNED, [])


def test_a_false_signature_in_a_known_name_spoils_the_note() -> None:
    forged = Note(HEAD.encode(), (parse_note(NOTE).signatures[0],))
    line = forged.signatures[0]
    note = SIGNED + str(type(line)(ORIGIN, LOG_KEY.key_id, line.value))
    assert open_note(note, [LOG_KEY])  # the first of a key counts, and it holds
    with pytest.raises(ValueError, match="does not hold"):
        open_note(f"{HEAD.encode()}\n{type(line)(ORIGIN, LOG_KEY.key_id, line.value)}", [LOG_KEY])


@pytest.mark.parametrize("text", ["no end", "tab\t\n"])
def test_what_is_no_text_is_not_signed(text: str) -> None:
    with pytest.raises(ValueError, match="text"):
        sign(text, ORIGIN, LOG)


def test_a_cosignature_holds_for_its_head_and_instant() -> None:
    line = cosign(HEAD.encode(), WITNESS_KEY.name, WITNESS, 1_800_000_000)
    assert cosigned_at(line) == 1_800_000_000
    both = open_note(SIGNED + str(line), [LOG_KEY, WITNESS_KEY])
    assert [s.name for s in both.signatures] == [ORIGIN, WITNESS_KEY.name]


@pytest.mark.parametrize("change", ["head", "instant", "beyond", "short", "plain"])
def test_no_other_cosignature_holds(change: str) -> None:
    text, line = HEAD.encode(), cosign(HEAD.encode(), WITNESS_KEY.name, WITNESS, 1_800_000_000)
    value = line.value
    if change == "head":
        text = Checkpoint(ORIGIN, 8, HEAD.root).encode()
    elif change == "instant":
        value = (1_800_000_001).to_bytes(8) + value[8:]
    elif change == "beyond":
        value = cosign(text, WITNESS_KEY.name, WITNESS, 2**63).value
    elif change == "short":
        value = value[:7]
    else:  # a signature of the text alone, by the right key
        value = parse_note(sign(text, WITNESS_KEY.name, WITNESS)).signatures[0].value
    assert not WITNESS_KEY.holds(text, type(line)(line.name, line.key_id, value))


def test_a_checkpoint_is_read_as_it_was_written() -> None:
    assert open_checkpoint(SIGNED, LOG_KEY) == HEAD
    empty = Checkpoint(ORIGIN, 0, EMPTY_ROOT)
    assert parse_checkpoint(empty.encode()) == empty


@pytest.mark.parametrize(
    "text",
    [
        HEAD.encode() + "extension\n",
        HEAD.encode().removesuffix("\n"),
        HEAD.encode().replace("\n7\n", "\n07\n"),
        HEAD.encode().replace("\n7\n", "\n-7\n"),
        HEAD.encode().replace("\n7\n", "\n٧\n"),
        HEAD.encode().replace("\n7\n", f"\n{2**53}\n"),
        HEAD.encode().replace("\n7\n", "\n0\n"),
        HEAD.encode().replace("\n7\n", "\n\n"),
        HEAD.encode().replace(ORIGIN, ""),
        f"{ORIGIN}\n7\nAAAA\n",
        f"{ORIGIN}\n7\nnot base64\n",
    ],
)
def test_no_checkpoint(text: str) -> None:
    with pytest.raises(ValueError, match=r"checkpoint|base64"):
        parse_checkpoint(text)


def test_the_checkpoint_of_another_log_is_refused() -> None:
    other = sign(Checkpoint("other.example", 7, HEAD.root).encode(), ORIGIN, LOG)
    with pytest.raises(ValueError, match="another log"):
        open_checkpoint(other, LOG_KEY)


def test_a_head_counts_its_leaves_in_words() -> None:
    told = [str(Checkpoint("o", n, EMPTY_ROOT)).partition(",")[0] for n in (0, 1, 2)]
    assert told == ["0 leaves", "1 leaf", "2 leaves"]
