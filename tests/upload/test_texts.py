"""Paths, addresses and hardware keys leave no text of an upload."""

from __future__ import annotations

import pytest

from npumark.upload.texts import public_text, public_texts


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("cannot read /home/alice/models/x.onnx: no such file", "cannot read <path>: no such file"),
        ("cannot read '/home/Alice B/my models/x'", "cannot read <path>"),
        ("see /home/Alice B/my models/x.onnx, twice", "see <path>, twice"),
        ("~/work/My Model.onnx is damaged", "<path> is damaged"),
        (r"C:\Users\Alice B\x.dll was not found", "<path> was not found"),
        (r"\\server\share\x.dll was not found", "<path> was not found"),
        ("/sys/class/dmi/id/bios_version does not exist", "<path> does not exist"),
        ("ask alice.b@example.com", "ask <address>"),
        ("from https://alice:pw@intranet/x?y", "from <address>"),
        ("file:///home/alice/x", "<address>"),
        ("GPU-0f0e0d0c-0b0a-0908-0706-050403020100 is lost", "GPU-<private> is lost"),
        ("the card at 0000:65:00.0 fell off", "the card at <private> fell off"),
        ("mac aa:bb:cc:dd:ee:ff", "mac <private>"),
        (r"PCI\VEN_10DE&DEV_2684\4&1f", "<device>"),
        ("on carol-laptop", "on <host>"),
    ],
)
def test_what_is_private_is_replaced(text: str, public: str) -> None:
    assert public_text(text, [("carol-laptop", "<host>")]) == public


@pytest.mark.parametrize(
    "text",
    [
        "2.4 inferences/s, n/a and/or 1/2",
        "AMD Ryzen 7 7840U w/ Radeon 780M Graphics",
        "2026-11-30T12:00:00Z",
        "2026.4.1-22982-e213a147257-releases/2026/4",
        "#1 SMP PREEMPT_DYNAMIC @0",
        "31.0.15.3179",
        "10de:2684",
        "FP16 (computed in FP32, emulated)",
        "<cache>/packs/x",
        "com.microsoft::MatMulNBits",
        "meta=1.0;ov=2026.4.1;isa=Intel AVX2",
    ],
)
def test_what_is_public_stays(text: str) -> None:
    assert public_text(text) == text


def test_fields_of_private_names_are_left_out_wherever_they_stand() -> None:
    told = {"a": [{"UUID": "x", "size": 1}], "hostname": "y", "n": None}
    assert public_texts(told) == {"a": [{"size": 1}], "n": None}


def test_names_of_fields_are_texts_too() -> None:
    assert public_texts({"/home/alice/x": 1}) == {"<path>": 1}


def test_a_long_word_is_searched_for_an_address_once() -> None:
    """From each of its letters it would take minutes."""
    word = "x" * 300_000
    assert public_text(f"{word} a.b@example.com") == f"{word} <address>"
