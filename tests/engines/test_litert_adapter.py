"""Which adapter LiteRT's GPU takes, by its log, and which processor that is."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from npumark.engines.litert_adapter import parse_log, processor_of, taken_adapter
from npumark.engines.vulkan_adapters import Adapter
from npumark.machine.card import Card
from npumark.machine.processors import assign
from npumark.worker.protocol import EngineInfo

SWIFT = Adapter("SwiftShader Device (Subzero)", "cpu", 0x1AE0, 0xC0DE)
PIPE = Adapter("llvmpipe (LLVM 15)", "cpu", 0x10005, 0)
ARC = Adapter("Intel(R) Arc(TM) Graphics", "integrated", 0x8086, 0x7D55)
RTX = Adapter("NVIDIA GeForce RTX 4070", "discrete", 0x10DE, 0x2786)


def line(name: str, vendor: str, backend: str, kind: str) -> str:
    return (
        f"I0000 00:00:1.5 1274 environment.cc:532] Selected adapter: {name}, arch=x, "
        f"vendor={vendor}, backend={backend}, adapterType={kind}\n"
    )


ARC_LINE = line("Intel(R) Arc(TM) Graphics", "intel", "Direct3D 12", "Integrated GPU")
RTX_LINE = line("NVIDIA GeForce RTX 4070", "nvidia", "Direct3D 12", "Discrete GPU")
WARP_LINE = line("Microsoft Basic Render Driver", "microsoft", "Direct3D 12", "CPU / Software")


@pytest.mark.parametrize(
    ("log", "found"),
    [
        (ARC_LINE, Adapter("Intel(R) Arc(TM) Graphics", "integrated", 0x8086, 0)),
        (RTX_LINE, Adapter("NVIDIA GeForce RTX 4070", "discrete", 0x10DE, 0)),
        (WARP_LINE, Adapter("Microsoft Basic Render Driver", "cpu", 0, 0)),
        (line("A, B", "new", "Vulkan", "Unknown"), Adapter("A, B", "other", 0, 0)),
        (f"INFO: one\n{ARC_LINE}INFO: two\n{RTX_LINE}", parse_log(RTX_LINE)),
        ("Selected adapter: half a line, arch=x", None),
        ("", None),
    ],
)
def test_the_log_names_the_adapter(log: str, found: Adapter | None) -> None:
    assert parse_log(log) == found


def test_a_process_that_fails_hangs_or_says_nothing_names_none() -> None:
    def says(log: bytes) -> Any:
        return lambda *_, **__: SimpleNamespace(stderr=log)

    def hangs(command: Any, **options: Any) -> Any:
        raise subprocess.TimeoutExpired(command, options["timeout"])

    def fails(command: Any, **options: Any) -> Any:
        raise OSError("no such file")

    assert taken_adapter(says(RTX_LINE.encode())) == parse_log(RTX_LINE)
    assert taken_adapter(says(b"\xff\n" + RTX_LINE.encode())) == parse_log(RTX_LINE)
    assert taken_adapter(says(b"aborted")) is None
    assert taken_adapter(hangs) is None
    assert taken_adapter(fails) is None


@pytest.mark.parametrize(
    ("platform", "log", "listed", "role", "name", "emulated"),
    [
        # What the log names counts, whatever else the system lists.
        ("win32", WARP_LINE, (), "iGPU", "Microsoft Basic Render Driver", True),
        ("win32", WARP_LINE, (RTX,), "iGPU", "Microsoft Basic Render Driver", True),
        ("win32", ARC_LINE, (), "iGPU", ARC.name, False),
        ("win32", ARC_LINE, (ARC, RTX), "iGPU", ARC.name, False),
        ("win32", RTX_LINE, (ARC, RTX), "dGPU", RTX.name, False),
        (
            "linux",
            line(PIPE.name, "mesa", "Vulkan", "Unknown"),
            (ARC, PIPE),
            "iGPU",
            PIPE.name,
            True,
        ),
        ("linux", RTX_LINE, (ARC, RTX, PIPE), "dGPU", RTX.name, False),
        # Where it names none, Linux may still leave one answer.
        ("linux", "", (SWIFT,), "iGPU", SWIFT.name, True),
        ("linux", "", (SWIFT, PIPE), "iGPU", None, True),
        ("linux", "", (RTX,), "dGPU", RTX.name, False),
        ("darwin", "", (), "iGPU", None, False),
    ],
)
def test_the_processor_is_the_adapter_that_was_taken(
    platform: str,
    log: str,
    listed: tuple[Adapter, ...],
    role: str,
    name: str | None,
    emulated: bool,
) -> None:
    known = processor_of(platform, parse_log(log), listed)
    assert known is not None
    told, found = known
    assert (told["role"], told["name"], found) == (role, name, emulated)
    assert "role_from" not in told.get("details", {})


@pytest.mark.parametrize(
    ("platform", "listed"),
    [
        ("win32", ()),
        ("win32", (RTX,)),  # Vulkan's list there is not the one that LiteRT chooses from
        ("linux", ()),
        ("linux", (ARC, RTX)),
        ("linux", (RTX, PIPE)),
    ],
)
def test_a_silent_log_claims_no_card(platform: str, listed: tuple[Adapter, ...]) -> None:
    assert processor_of(platform, None, listed) is None


def test_a_role_that_nothing_states_is_a_guess() -> None:
    odd = parse_log(line("New", "intel", "Direct3D 12", "Unknown"))
    known = processor_of("win32", odd, ())
    assert known is not None
    assert known[0]["details"]["role_from"].startswith("nothing")
    assert known[0]["vendor_id"] == 0x8086
    two = (Adapter("New", "integrated", 0x8086, 1), Adapter("New", "discrete", 0x8086, 2))
    known = processor_of("linux", odd, two)
    assert known is not None
    assert "role_from" in known[0]["details"]
    assert "device_id" not in known[0]


def card(role: Any, bus: str, vendor: int, device: int) -> Card:
    return Card(role, {"bus": frozenset({bus})}, vendor, device, "a card", True)


@pytest.mark.parametrize(("log", "owner"), [(ARC_LINE, "igpu"), (RTX_LINE, "dgpu")])
def test_of_two_cards_the_one_that_was_taken_owns_the_engine(log: str, owner: str) -> None:
    cards = (
        card("iGPU", "0000:00:02.0", ARC.vendor_id, ARC.device_id),
        card("dGPU", "0000:01:00.0", RTX.vendor_id, RTX.device_id),
    )
    assert owners(log, cards) == {"litert-gpu": owner}


def test_a_card_of_another_make_is_never_credited() -> None:
    cards = (card("dGPU", "0000:01:00.0", RTX.vendor_id, RTX.device_id),)
    assert owners(WARP_LINE, cards) == {"litert-gpu": "igpu-emulated"}
    processors, owned = assign([engine(ARC_LINE)], cards)
    mine = next(p for p in processors if p.id == owned["litert-gpu"])
    assert (mine.details["maker"], mine.role) == ("Intel", "iGPU")


def engine(log: str) -> EngineInfo:
    known = processor_of("win32", parse_log(log), ())
    assert known is not None
    return EngineInfo(
        "litert-gpu", True, None, "litert", "LiteRT", None, processor=known[0], emulated=known[1]
    )


def owners(log: str, cards: tuple[Card, ...]) -> dict[str, str]:
    return assign([engine(log)], cards)[1]
