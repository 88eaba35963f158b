"""``npumark-sig/v1`` against vectors that were made without npumark, and against forgeries."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from npumark.errors import IntegrityError
from npumark.record import signing
from npumark.record.canonical import canonical_bytes, payload_sha256
from npumark.record.signing import BuildKey, InstallKey

VECTORS = Path(__file__).parents[1] / "vectors"
RFC_8032 = json.loads((VECTORS / "rfc8032.json").read_text("utf-8"))["vectors"]
OWN: dict[str, Any] = json.loads((VECTORS / "npumark_sig_v1.json").read_text("utf-8"))
INSTALL = InstallKey(bytes.fromhex(OWN["install"]["seed"]))
SERVER = InstallKey(bytes.fromhex(OWN["server"]["seed"]))
BUILD = BuildKey(bytes.fromhex(OWN["build"]["secret"]))
DIGEST = OWN["records"][1]["payload_sha256"]


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    path = VECTORS / "make_signature_vectors.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_vectors_on_disk_are_what_their_script_makes(maker: ModuleType) -> None:
    assert maker.TARGET.read_text("utf-8") == maker.document()


@pytest.mark.parametrize("vector", RFC_8032, ids=lambda vector: vector["name"])
def test_ed25519_is_that_of_rfc_8032(vector: dict[str, str]) -> None:
    raw = {name: bytes.fromhex(vector[name]) for name in ("seed", "message", "signature")}
    assert InstallKey(raw["seed"]).public.hex() == vector["public_key"]
    assert (
        Ed25519PrivateKey.from_private_bytes(raw["seed"]).sign(raw["message"]) == raw["signature"]
    )


def test_names_of_keys_are_those_of_the_vectors() -> None:
    for key, stated in ((INSTALL, OWN["install"]), (SERVER, OWN["server"])):
        assert (key.public.hex(), key.key_id) == (stated["public_key"], stated["key_id"])
    assert BUILD.key_id == OWN["build"]["key_id"]


def test_every_purpose_has_a_message_of_its_own() -> None:
    stated = {v["purpose"]: v["message"] for v in OWN["messages"]}
    assert set(stated) == set(get_args(signing.Purpose))
    assert len(set(stated.values())) == len(stated)
    for vector in OWN["messages"]:
        made = signing.message(vector["purpose"], bytes.fromhex(vector["sha256"]))
        assert made.hex() == vector["message"]


def test_a_message_is_over_a_sha256_and_nothing_else() -> None:
    with pytest.raises(ValueError, match="32 bytes, not 31"):
        signing.message("record", bytes(31))


@pytest.mark.parametrize("vector", OWN["records"], ids=lambda vector: vector["canonical"][:20])
def test_a_records_signatures_are_those_of_the_vectors(vector: dict[str, Any]) -> None:
    assert canonical_bytes(vector["payload"]) == vector["canonical"].encode()
    digest = payload_sha256(vector["payload"])
    assert digest == vector["payload_sha256"]
    made = signing.sign_record(digest, INSTALL, BUILD)
    assert made == {
        "scheme": "npumark-sig/v1",
        "build": {"key_id": OWN["build"]["key_id"], "hmac": vector["hmac"]},
        "build_why": None,
        "install": {
            "key_id": OWN["install"]["key_id"],
            "public_key": OWN["install"]["public_key"],
            "signature": vector["signature"],
        },
    }
    signing.check_install(digest, made)
    assert signing.build_holds(digest, vector["hmac"], BUILD)


@pytest.mark.parametrize("vector", OWN["statements"], ids=lambda vector: vector["purpose"])
def test_a_statements_signature_is_that_of_the_vector(vector: dict[str, Any]) -> None:
    statement, purpose = vector["statement"], vector["purpose"]
    assert canonical_bytes(statement) == vector["canonical"].encode()
    key = SERVER if purpose == "receipt" else INSTALL
    assert signing.sign_statement(statement, purpose, key) == vector["signature"]
    signed = (vector["public_key"], vector["signature"])
    assert signing.statement_holds(statement, purpose, *signed)
    assert not signing.statement_holds({**statement, "n": 2}, purpose, *signed)
    for other in set(get_args(signing.Purpose)) - {purpose}:
        assert not signing.statement_holds(statement, other, *signed)


def test_a_development_build_signs_without_a_build_key_and_says_so() -> None:
    made = signing.sign_record(DIGEST, INSTALL, None)
    assert made["build"] is None
    assert made["build_why"] == "a development build holds no build key"
    signing.check_install(DIGEST, made)


def test_a_builds_signature_holds_for_its_key_and_payload_alone() -> None:
    mac = OWN["records"][1]["hmac"]
    assert signing.build_holds(DIGEST, mac, BUILD)
    assert not signing.build_holds(DIGEST, mac, BuildKey(bytes(32)))
    assert not signing.build_holds(OWN["records"][0]["payload_sha256"], mac, BUILD)
    for malformed in ("", "00", "xyz", mac[:-2], mac + "00"):
        assert not signing.build_holds(DIGEST, malformed, BUILD)


@pytest.mark.parametrize(
    ("public_key", "signature"),
    [
        ("", ""),
        ("zz", "zz"),
        (INSTALL.public.hex()[:-2], None),
        (INSTALL.public.hex() + "00", None),
        (SERVER.public.hex(), None),
        ("02" + "00" * 31, None),
        (INSTALL.public.hex(), "00" * 64),
        (INSTALL.public.hex(), "00" * 63),
        (INSTALL.public.hex(), "ff" * 64),
    ],
)
def test_what_is_malformed_or_anothers_does_not_hold(
    public_key: str, signature: str | None
) -> None:
    digest = bytes.fromhex(DIGEST)
    good = INSTALL.sign("record", digest).hex()
    assert signing.verifies("record", digest, INSTALL.public.hex(), good)
    assert not signing.verifies("record", digest, public_key, signature or good)


@pytest.mark.parametrize(
    "public_key",
    [
        "01" + "00" * 31,
        "01" + "00" * 30 + "80",
        "ee" + "ff" * 30 + "7f",  # p + 1, the same point written otherwise
        "ec" + "ff" * 30 + "7f",
        "00" * 32,
        "00" * 31 + "80",
        "ed" + "ff" * 30 + "7f",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
    ],
)
def test_a_key_under_which_anybody_can_sign_proves_nothing(public_key: str) -> None:
    forged = "01" + "00" * 63
    digests = [bytes([n]) * 32 for n in range(40)]
    assert not any(signing.verifies("record", d, public_key, forged) for d in digests)


def test_the_library_itself_takes_such_a_forgery() -> None:
    identity = Ed25519PublicKey.from_public_bytes(bytes.fromhex("01" + "00" * 31))
    identity.verify(bytes.fromhex("01" + "00" * 63), b"any message")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"scheme": "npumark-sig/v2"}, "signed by 'npumark-sig/v2'; this npumark checks"),
        ({"scheme": None}, "signed by 'None'"),
        ({"install": None}, "hold no installation's"),
        ({"install": {"key_id": 1, "public_key": "", "signature": ""}}, "hold no installation's"),
        ({"install": {"key_id": "", "public_key": "zz", "signature": ""}}, "its key id names"),
    ],
)
def test_unreadable_signatures_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(IntegrityError, match=words):
        signing.check_install(DIGEST, {**signing.sign_record(DIGEST, INSTALL, None), **change})
