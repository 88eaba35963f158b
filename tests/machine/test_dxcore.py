"""Windows' adapters: the calling code itself, against tables of functions in this process."""

from __future__ import annotations

import ctypes
import json
import struct
from typing import Any

import pytest

from npumark.machine import dxcore, nvidia
from npumark.machine.card import Card
from npumark.machine.host import Host, Reading
from npumark.machine.inventory import inventory
from tests.machine.conftest import Fake
from tests.machine.fake_dxcore import (
    CORE_COMPUTE,
    FAILS,
    GENERIC_ML,
    HARDWARE_ID,
    IS_HARDWARE,
    IS_INTEGRATED,
    LUID,
    MEMORY,
    NAME,
    VERSION,
    Adapter,
    Dxcore,
)


def properties(luid: int, vendor: int, device: int, name: str, **more: bytes) -> dict[int, bytes]:
    told = {
        LUID: luid.to_bytes(8, "little"),
        VERSION: struct.pack("<HHHH", 6078, 101, 0, 32),
        NAME: name.encode() + b"\0",
        HARDWARE_ID: struct.pack("<IIII", vendor, device, 0x11111111, 4),
        MEMORY: (8 << 30).to_bytes(8, "little"),
        IS_HARDWARE: b"\x01",
        IS_INTEGRATED: b"\x00",
    }
    numbers = {"integrated": IS_INTEGRATED, "hardware": IS_HARDWARE, "memory": MEMORY}
    return told | {numbers[field]: value for field, value in more.items()}


def gpu() -> Adapter:
    return Adapter(properties((5 << 32) + 7, 0x10DE, 0x2820, "NVIDIA GeForce RTX 4070"))


def npu() -> Adapter:
    told = properties(9, 0x8086, 0x7D1D, "Intel(R) AI Boost", integrated=b"\x01", memory=bytes(8))
    return Adapter(told, {GENERIC_ML})


def nowhere(luid: int) -> str | None:
    return None


def test_every_adapter_is_told_by_its_own_functions() -> None:
    library = Dxcore([gpu(), npu()])
    answer = dxcore.ask(library.create, {(5 << 32) + 7: "0000:01:00.0"}.get)
    assert answer == {
        "adapters": [
            {
                "luid": (5 << 32) + 7,
                "vendor_id": 0x10DE,
                "device_id": 0x2820,
                "name": "NVIDIA GeForce RTX 4070",
                "driver": "32.0.101.6078",
                "memory_bytes": 8 << 30,
                "hardware": True,
                "integrated": False,
                "graphics": True,
                "bus": "0000:01:00.0",
            },
            {
                "luid": 9,
                "vendor_id": 0x8086,
                "device_id": 0x7D1D,
                "name": "Intel(R) AI Boost",
                "driver": "32.0.101.6078",
                "memory_bytes": None,
                "hardware": True,
                "integrated": True,
                "graphics": False,
                "bus": None,
            },
        ],
        "faults": [],
    }
    assert library.asked == [CORE_COMPUTE, GENERIC_ML]
    assert library.wrong() == []


def test_an_adapter_of_both_lists_is_one() -> None:
    both = gpu()
    both.attributes.add(GENERIC_ML)
    library = Dxcore([both, npu()])
    assert len(dxcore.ask(library.create, nowhere)["adapters"]) == 2


def test_an_older_windows_knows_no_list_of_npus() -> None:
    library = Dxcore([gpu()], unlisted=frozenset({GENERIC_ML}))
    answer = dxcore.ask(library.create, nowhere)
    assert (len(answer["adapters"]), answer["faults"]) == (1, [])


def test_without_any_list_the_reason_is_told() -> None:
    library = Dxcore([gpu()], unlisted=frozenset({GENERIC_ML, CORE_COMPUTE}))
    answer = dxcore.ask(library.create, nowhere)
    assert answer == {"adapters": [], "faults": ["DXCore makes no list of adapters"]}


def test_a_factory_that_is_refused_raises_its_result() -> None:
    with pytest.raises(OSError, match=r"makes no factory .*0x80040002"):
        dxcore.ask(Dxcore(result=FAILS).create, nowhere)


def test_a_factory_that_is_null_is_not_called() -> None:
    with pytest.raises(OSError, match="gave nothing"):
        dxcore.ask(lambda *_: 0, nowhere)


def test_an_adapter_that_is_refused_costs_itself_alone() -> None:
    library = Dxcore([gpu(), npu()], refused=frozenset({0}))
    # Each list has one adapter, which is its first.
    answer = dxcore.ask(library.create, nowhere)
    assert answer["adapters"] == []
    assert (
        answer["faults"] == ["adapter 0: DXCore does not hand it out (it answers 0x80040002)"] * 2
    )


@pytest.mark.parametrize("lost", [LUID, HARDWARE_ID])
def test_an_adapter_that_does_not_say_which_it_is_is_left_out(lost: int) -> None:
    nameless = gpu()
    del nameless.properties[lost]
    answer = dxcore.ask(Dxcore([nameless, npu()]).create, nowhere)
    assert [a["luid"] for a in answer["adapters"]] == [9]
    assert answer["faults"] == [f"adapter 0: DXCore does not tell its property {lost}"]


def test_what_else_an_adapter_does_not_say_is_null() -> None:
    silent = gpu()
    for known in (VERSION, NAME, MEMORY, IS_HARDWARE, IS_INTEGRATED):
        del silent.properties[known]
    ((told,), _) = dxcore.ask(Dxcore([silent]).create, nowhere).values()
    assert [told[k] for k in ("driver", "name", "memory_bytes")] == [None, None, None]
    assert (told["hardware"], told["integrated"]) == (True, False)


@pytest.mark.parametrize("size", [0, 3, 1 << 40])
def test_a_size_that_no_property_has_is_no_answer(size: int) -> None:
    odd = gpu()
    odd.size_told = size
    answer = dxcore.ask(Dxcore([odd]).create, nowhere)
    assert answer["adapters"] == []
    assert len(answer["faults"]) == 1


def test_a_property_that_fails_when_it_is_read_is_no_answer() -> None:
    broken = gpu()
    broken.broken = True
    assert dxcore.ask(Dxcore([broken]).create, nowhere)["adapters"] == []


def test_a_name_without_an_end_or_of_odd_bytes_does_no_harm() -> None:
    odd = gpu()
    odd.properties[NAME] = b"\xff\xfe GPU"
    ((told,), _) = dxcore.ask(Dxcore([odd]).create, nowhere).values()
    assert told["name"].endswith(" GPU")


class Gdi:
    """gdi32.dll's part of the graphics kernel."""

    def __init__(self, address: tuple[int, int, int], *, opens: int = 0, answers: int = 0) -> None:
        self.address, self.opens, self.answers, self.closed = address, opens, answers, 0

    def D3DKMTOpenAdapterFromLuid(self, told: Any) -> int:
        assert (told._obj.low, told._obj.high) == (7, 5)
        told._obj.handle = 77
        return self.opens

    def D3DKMTQueryAdapterInfo(self, told: Any) -> int:
        query = told._obj
        assert (query.handle, query.kind, query.size) == (77, 6, 12)
        ctypes.memmove(query.data, struct.pack("<III", *self.address), 12)
        return self.answers

    def D3DKMTCloseAdapter(self, told: Any) -> int:
        assert told._obj.value == 77
        self.closed += 1
        return 0


@pytest.mark.parametrize(
    ("gdi", "bus"),
    [
        (Gdi((1, 0, 0)), "0000:01:00.0"),
        (Gdi((0, 0, 0)), None),
        (Gdi((0xFFFFFFFF, 0, 0)), None),
        (Gdi((1, 0, 0), answers=-1), None),
    ],
)
def test_the_graphics_kernel_gives_the_bus_address(gdi: Gdi, bus: str | None) -> None:
    assert dxcore.kernel_bus(gdi, (5 << 32) + 7) == bus
    assert gdi.closed == 1


def test_an_adapter_that_the_kernel_does_not_open_has_no_bus_address() -> None:
    gdi = Gdi((1, 0, 0), opens=-1)
    assert dxcore.kernel_bus(gdi, (5 << 32) + 7) is None
    assert gdi.closed == 0


def test_the_kernels_structures_are_as_long_as_its_header_says() -> None:
    sizes = [ctypes.sizeof(s) for s in (dxcore._Open, dxcore._Address, dxcore._Query)]
    assert sizes == [12, 12, 24]


@pytest.mark.parametrize("fault", [OSError("gone"), TypeError("odd"), KeyError(), RuntimeError()])
def test_whatever_fails_its_reason_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fault: Exception
) -> None:
    def fail() -> dict[str, Any]:
        raise fault

    monkeypatch.setattr(dxcore, "_windows", fail)
    assert dxcore.main() == 0
    told = json.loads(capsys.readouterr().out)
    assert told["adapters"] == []
    assert told["faults"][0].startswith("Windows' adapters cannot be listed: ")


def windows(fake: Fake, answer: str | None, more: dict[tuple[str, ...], str] | None = None) -> Host:
    answers = dict(more or {})
    if answer is not None:
        answers[dxcore.COMMAND] = answer
    return fake.other("win32", answers)


def test_what_the_process_printed_becomes_cards(fake: Fake) -> None:
    library = Dxcore([gpu(), npu()])
    host = windows(fake, json.dumps(dxcore.ask(library.create, nowhere)))
    cards, why = dxcore.windows_cards(host)
    assert why is None
    assert [(c.role, c.driver, c.details) for c in cards] == [
        ("dGPU", "32.0.101.6078", {"memory_bytes": 8 << 30}),
        ("NPU", "32.0.101.6078", {}),
    ]


def test_two_devices_that_share_an_address_are_two(fake: Fake) -> None:
    library = Dxcore([gpu(), npu()])
    host = windows(fake, json.dumps(dxcore.ask(library.create, lambda _: "0000:01:00.0")))
    assert len(dxcore.windows_cards(host)[0]) == 2


NVML = json.dumps({"driver": "570.1", "cuda": None, "cards": [
    {"name": "NVIDIA RTX A2000", "uuid": "GPU-1", "bus": "0000:01:00.0", "device_id": 0x2571},
]})  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "the process that asks Windows for its adapters ended with status 1"),
        ("", "in a form that npumark does not know"),
        ("[" * 100_000, "in a form that npumark does not know"),
        ('{"adapters": [3]}', "in a form that npumark does not know"),
        ('{"adapters": [], "faults": ["gone"]}', "gone"),
    ],
)
def test_nvml_is_asked_all_the_same_where_windows_lists_nothing(
    fake: Fake, answer: str | None, said: str
) -> None:
    found = inventory(windows(fake, answer, {nvidia.COMMAND: NVML}))
    assert [(c.role, c.name) for c in found.cards[1:]] == [("dGPU", "NVIDIA RTX A2000")]
    assert len(found.lacks) == 1
    assert said in found.lacks[0]
    assert "python" not in found.lacks[0]


def test_nvml_is_not_asked_where_windows_lists_no_such_card(fake: Fake) -> None:
    asked = []

    def output(argv: tuple[str, ...]) -> Reading:
        asked.append(argv)
        return Reading('{"adapters": [], "faults": []}')

    host = fake.other("win32", {}, output=output)
    found = inventory(host)
    assert (len(found.cards), found.lacks) == (1, ())
    assert nvidia.COMMAND not in asked


def test_nvmls_silence_is_told_where_there_is_such_a_card(fake: Fake) -> None:
    answer = json.dumps(dxcore.ask(Dxcore([gpu()]).create, nowhere))
    found = inventory(windows(fake, answer))
    assert [type(c) for c in found.cards] == [Card, Card]
    assert found.lacks == ("the process that asks NVIDIA's NVML ended with status 1",)
