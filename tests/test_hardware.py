"""What hardware is known by: every spelling of an address or a key comes to one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npumark.hardware import (
    bus_address,
    hardware_key,
    is_software,
    key_sets,
    number,
    pci_address,
    plain_text,
)

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
        ("bus", "0000:00:00.0", None),
        ("luid", "0x" + "f" * 6000, ("luid", "0x" + "f" * 6000)),
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


@pytest.mark.parametrize("value", ["0x" + "f" * 5000, "-5", "1_0", 3.5, [], {}])
def test_what_is_no_id_is_null(value: object) -> None:
    assert number(value) is None


@pytest.mark.parametrize(
    ("told", "address"),
    [
        ("00000000:41:00.0", "0000:41:00.0"),
        ("0000:1A:00.0", "0000:1a:00.0"),
        ("65:00.0", "0000:65:00.0"),
        ("10000:E1:00.0", "10000:e1:00.0"),
        ("zz:00:00.0", None),
        ("zz:00:00:00.0", None),
        ("0000:41:20.0", None),
        ("0000:00:00.0", None),
        ("", None),
        (None, None),
        ("{domain: 0 bus: 3 device: 0x1f function: 2}", "0000:03:1f.2"),
        ("{domain: 0 bus: 08 device: 0 function: 0}", "0000:08:00.0"),
        ("{domain: 0 bus: 300 device: 0 function: 0}", None),
        (SimpleNamespace(domain=1, bus=0x65, device=0, function=0), "0001:65:00.0"),
        (SimpleNamespace(domain=1, bus="x", device=0, function=0), None),
        ("unknown", None),
        (7, None),
    ],
)
def test_bus_addresses_have_one_spelling(told: object, address: str | None) -> None:
    assert bus_address(told) == address


PARTS = st.tuples(
    st.integers(0, 0xFFFFFFFF), st.integers(0, 0xFF), st.integers(0, 0x1F), st.integers(0, 7)
).filter(any)


@given(PARTS, st.booleans())
def test_however_an_address_is_written_it_is_one(
    parts: tuple[int, int, int, int], upper: bool
) -> None:
    domain, bus, device, function = parts
    one = pci_address(*parts)
    spellings = [
        f"{domain:x}:{bus:x}:{device:x}.{function}",
        f"{domain:08x}:{bus:02x}:{device:02x}.{function}",
        f"{{domain: {domain} bus: {bus:#x} device: {device} function: {function}}}",
        SimpleNamespace(domain=domain, bus=bus, device=device, function=function),
    ]
    if domain == 0:
        spellings.append(f"{bus:02x}:{device:02x}.{function}")
    for told in spellings:
        text = told.upper().replace("0X", "0x") if upper and isinstance(told, str) else told
        assert bus_address(text) == one
        assert hardware_key("bus", text if isinstance(text, str) else one) == ("bus", one)


KINDS = st.sampled_from(["bus", "key", "uuid", "luid"])
TEXT = st.one_of(
    st.text(), st.from_regex(r"[0-9a-fx:.\-]{0,40}"), st.text("0123456789", max_size=9000)
)


@given(KINDS, st.one_of(TEXT, st.integers(), st.none(), st.floats(), st.binary()))
def test_no_key_is_too_odd_and_none_changes_twice(kind: str, value: object) -> None:
    first = hardware_key(kind, value)
    if first is None:
        return
    assert hardware_key(*first) in (first, None) or first[0] == "luid"
    assert isinstance(bus_address(value), str | None)
    assert isinstance(number(value), int | None)


@given(st.one_of(st.text(), st.binary().map(lambda b: b.decode("utf-8", "surrogateescape"))))
def test_what_a_driver_wrote_becomes_one_line_that_any_page_can_show(text: str) -> None:
    found = plain_text(text)
    if found is not None:
        assert found.isprintable()
        assert 0 < len(found) <= 200
        found.encode("utf-8")


@pytest.mark.parametrize(
    ("name", "ids", "software"),
    [
        ("SwiftShader Device (Subzero)", (None, None), True),
        ("llvmpipe (LLVM 15)", (0x10005, 0), True),
        ("Microsoft Basic Render Driver", (0x1414, 0x8C), True),
        (None, (0x1414, 0x8C), True),
        (None, (0x1AE0, 0xC0DE), True),
        ("Intel Warpaint Graphics", (0x8086, 1), False),
        # Mesa's id alone: drivers of real cards have it too.
        ("Apple M1 (G13G B0)", (0x10005, 0), False),
        (None, (None, None), False),
    ],
)
def test_a_program_is_told_by_name_or_ids(
    name: str | None, ids: tuple[int | None, int | None], software: bool
) -> None:
    assert is_software(name, *ids) is software
