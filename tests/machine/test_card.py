from __future__ import annotations

import pytest

from npumark.machine.card import hardware_key, key_sets, number

UUID = "3c5f2c1eaaaabbbbcccc0123456789ab"


@pytest.mark.parametrize(
    ("kind", "value", "key"),
    [
        ("bus", "0000:01:00.0", ("bus", "0000:01:00.0")),
        ("bus", "00000000:C1:00.1", ("bus", "0000:c1:00.1")),
        ("bus", "01:00.0", ("bus", "0000:01:00.0")),
        ("key", "0000:01:00.0", ("bus", "0000:01:00.0")),
        ("uuid", "GPU-3C5F2C1E-aaaa-bbbb-cccc-0123456789AB", ("uuid", UUID)),
        ("key", UUID, ("uuid", UUID)),
        ("bus", "strange", ("key", "strange")),
        ("key", "CPU", ("key", "cpu")),
        ("key", "", None),
        ("uuid", None, None),
        ("uuid", "00000000000000000000000000000000", None),
        ("luid", "0000000000000000", None),
        ("luid", 54321, ("luid", "54321")),
        ("luid", "54321", ("luid", "54321")),
        ("luid", "0xd431", ("luid", "54321")),
        ("luid", "00000000-0000d431", ("luid", "54321")),
        ("luid", "31d4000000000000", ("luid", "54321")),
        ("luid", "00000001-00000002", ("luid", str(2**32 + 2))),
        ("luid", "odd", ("luid", "odd")),
    ],
)  # fmt: skip
def test_every_spelling_of_a_key_is_one(
    kind: str, value: object, key: tuple[str, str] | None
) -> None:
    assert hardware_key(kind, value) == key


def test_a_bus_address_given_as_key_meets_one_given_as_bus() -> None:
    told = {"key": "01:00.0", "bus": "0000:01:00.0", "uuid": "GPU-x", "luid": None}
    assert key_sets(told) == {"bus": {"0000:01:00.0"}, "uuid": {"gpu-x"}}


@pytest.mark.parametrize(
    ("value", "found"),
    [("0x10de", 0x10DE), ("10DE", 0x10DE), (4318, 4318), (None, None), ("x", None), (True, None)],
)
def test_ids_are_numbers_or_hexadecimal(value: object, found: int | None) -> None:
    assert number(value) == found
