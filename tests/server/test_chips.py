"""What chips can compute at the most: the table's form, its sources, and which row a name finds."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest

from npumark.record.model import Check, Payload, Processor
from npumark.server.ceilings import CHIPS, Ceiling, ceiling, folded, load_chips
from tests import forge

FORMATS = {"FP32", "FP16", "BF16", "INT8"}
DOCUMENT: dict[str, Any] = json.loads(CHIPS.read_bytes())
ROWS: list[dict[str, Any]] = DOCUMENT["chips"]
CPU: dict[str, Any] = DOCUMENT["cpu"]
EVERY: list[dict[str, Any]] = [*ROWS, *CPU["cores"], *CPU["instructions"]]


def of(
    name: str, role: str, number_format: str | None = "INT8", cpu: str = forge.CPU
) -> Ceiling | None:
    """Return the ceiling of a processor of this name in a computer with this CPU."""
    payload = forge.forge_payload(small=True, cpu=cpu)
    processor = Processor.model_validate(
        {"id": "x", "role": role, "name": name, "number": 1, "details": {}}
    )
    return ceiling(processor, number_format, payload, load_chips())


def on_cpu(number_format: str | None = "FP32", cpu: str = forge.CPU, **over: Any) -> Ceiling | None:
    """Return a CPU's ceiling; ``over`` replaces facts of the machine, or what checks found."""
    payload = forge.forge_payload(small=True, cpu=cpu)
    checks = dict(payload.environment.checks)
    for name in {"clocks", "cpu_limits"} & over.keys():
        checks[name] = Check(value=over.pop(name), why=None, violation=False)
    environment = payload.environment.model_copy(update={"checks": checks})
    changed: Payload = payload.model_copy(
        update={"machine": {**payload.machine, **over}, "environment": environment}
    )
    return ceiling(changed.processors[0], number_format, changed, load_chips())


def test_every_row_has_a_source_that_says_what_its_maker_states() -> None:
    used = {row["source"] for row in EVERY}
    assert used == set(DOCUMENT["sources"])
    assert set(DOCUMENT["architectures"]) <= used
    for source in DOCUMENT["sources"].values():
        assert source["title"]
        assert source.get("url", "https://").startswith("https://")
        assert re.search(r"\d", source["states"])


def without_origin(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows that name neither what was read (``checked``) nor what they are arithmetic
    of (``derived_from``)."""
    return [row for row in rows if not any(row.get(key) for key in ("checked", "derived_from"))]


def test_every_row_names_what_was_read_or_what_it_is_derived_from() -> None:
    assert without_origin([*EVERY, CPU["most_ghz_source"]]) == []
    bare = {key: value for key, value in ROWS[0].items() if key != "checked"}
    assert without_origin([bare, {**bare, "derived_from": ""}]) == [
        bare,
        {**bare, "derived_from": ""},
    ]


def test_every_row_gives_rates_of_known_formats() -> None:
    for row in ROWS:
        assert set(row["roles"]) <= {"iGPU", "dGPU", "NPU"}
        assert ("tops" in row) != ("units" in row and "ghz" in row)
    for chip in load_chips().chips:
        assert set(chip.tops) <= FORMATS or set(chip.tops) == {"any"}
        assert all(math.isfinite(t) and 0 < t < 20_000 for t in chip.tops.values())
    for level in load_chips().instructions:
        assert set(level.ops) == FORMATS


def test_ids_stand_once() -> None:
    ids = [chip.id for chip in load_chips().chips]
    assert len(set(ids)) == len(ids)


def test_narrower_numbers_are_no_slower_where_both_are_stated() -> None:
    rates = [c.tops for c in load_chips().chips] + [i.ops for i in load_chips().instructions]
    for tops in rates:
        known = [tops[name] for name in ("FP32", "FP16", "INT8") if name in tops]
        assert known == sorted(known)


@pytest.mark.parametrize(
    ("name", "role", "number_format", "tops"),
    [
        # As the makers state them, dense.
        ("NVIDIA GeForce RTX 5090", "dGPU", "INT8", 838),
        ("NVIDIA GeForce RTX 4090", "dGPU", "FP16", 330.3),
        ("NVIDIA GeForce RTX 4090", "dGPU", "FP32", 82.6),
        ("NVIDIA GeForce RTX 5090 Laptop GPU", "dGPU", "INT8", 456),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "dGPU", "INT8", 343),
        ("NVIDIA GeForce RTX 3090", "dGPU", "BF16", 71.2),
        ("NVIDIA GeForce RTX 2080 Ti", "dGPU", "INT8", 227.7),
        ("NVIDIA H200", "dGPU", "FP16", 989.5),
        ("NVIDIA H200 NVL", "dGPU", "INT8", 1670.5),
        ("NVIDIA H100 80GB HBM3", "dGPU", "INT8", 1979),
        ("NVIDIA H100 PCIe", "dGPU", "INT8", 1513),
        ("NVIDIA A100-SXM4-80GB", "dGPU", "INT8", 624),
        ("NVIDIA L40S", "dGPU", "FP16", 366.5),
        ("NVIDIA RTX A6000", "dGPU", "BF16", 154.8),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "dGPU", "FP16", 503.8),
        ("Tesla T4", "dGPU", "INT8", 130),
        ("NVIDIA RTX 6000 Ada Generation", "dGPU", "INT8", 728.5),
        ("AMD Radeon RX 7900 XTX", "dGPU", "FP16", 122.9),
        ("AMD Radeon RX 9070 XT", "dGPU", "INT8", 389.3),
        ("AMD Radeon RX 7900 XT (RADV NAVI31)", "dGPU", "FP16", 103.2),
        ("AMD Radeon(TM) 890M Graphics", "iGPU", "FP16", 25.4),
        ("AMD Instinct MI300X", "dGPU", "INT8", 2614.9),
        ("Intel(R) Arc(TM) B580 Graphics", "dGPU", "INT8", 233.5),
        ("Intel(R) Arc(TM) 140V GPU (16GB)", "iGPU", "INT8", 67.2),
        ("Intel(R) Data Center GPU Max 1550", "dGPU", "INT8", 1677.7),
        ("Apple M4 Pro Neural Engine", "NPU", "FP16", 38),
        ("Apple M1 Max GPU", "iGPU", "FP16", 10.62),
    ],
)
def test_a_name_finds_its_makers_figure(
    name: str, role: str, number_format: str, tops: float
) -> None:
    found = of(name, role, number_format)
    assert found is not None
    assert found.tops == pytest.approx(tops, rel=2e-3)


@pytest.mark.parametrize(
    ("name", "cpu", "tops"),
    [
        ("Intel(R) AI Boost", "Intel Core Ultra 7 155H", 11.5),
        ("Intel(R) AI Boost", "Intel Core Ultra 7 258V", 48),
        ("Intel(R) AI Boost", "Intel Core Ultra 9 285K", 13),
        ("Intel(R) AI Boost", "Intel Core Ultra X7 358H", 50),
        ("AMD NPU", "AMD Ryzen 7 7840U", 10),
        ("NPU Compute Accelerator Device", "AMD Ryzen 9 8945HS", 16),
        ("AMD NPU", "AMD Ryzen AI 9 HX 370", 55),
        ("AMD NPU", "AMD Ryzen AI Max+ 395", 55),
        ("Qualcomm Hexagon NPU", "Snapdragon X Elite - X1E80100", 45),
        ("Qualcomm Hexagon NPU", "Snapdragon X2 Elite - X2E88100", 80),
    ],
)
def test_npus_of_one_name_are_told_apart_by_the_cpu(name: str, cpu: str, tops: float) -> None:
    found = of(name, "NPU", "INT8", cpu)
    assert found is not None
    assert found.tops == tops


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("NVIDIA GeForce RTX 4090 SUPER DUPER", "dGPU"),
        ("My NVIDIA GeForce RTX 4090", "dGPU"),
        ("NVIDIA GeForce RTX 4090", "NPU"),
        ("Intel(R) AI Boost", "NPU"),  # beside a CPU of another maker
        ("", "dGPU"),
        ("NVIDIA GeForce RTX 4090 (free TOPS at example.org)", "dGPU"),
        ("NVIDIA GeForce RTX 4090\n", "dGPU"),
        ("NVIDIA GeForce\u00a0RTX 4090", "dGPU"),
        ("NVIDIA GeForce RTX 4090 \u202e", "dGPU"),
    ],
)
def test_an_unknown_chip_has_no_ceiling(name: str, role: str) -> None:
    assert of(name, role) is None


def test_a_laptops_chip_is_not_the_desktops_of_that_name() -> None:
    desktop, laptop = (
        of(f"NVIDIA GeForce RTX 4090{suffix}", "dGPU", "INT8") for suffix in ("", " Laptop GPU")
    )
    assert desktop is not None
    assert laptop is not None
    assert laptop.tops < desktop.tops / 1.8


def test_a_format_that_is_not_listed_has_the_fastest_ones_ceiling() -> None:
    fastest = of("NVIDIA GeForce RTX 4090", "dGPU", "INT8")
    assert of("NVIDIA GeForce RTX 4090", "dGPU", "W8") == fastest
    assert of("NVIDIA GeForce RTX 4090", "dGPU", None) == fastest


def test_a_cpu_has_cores_times_clock_times_instructions() -> None:
    found = on_cpu("FP32")
    assert found is not None
    assert found.tops == pytest.approx(16 * 5.7 * 64 / 1e3)
    assert found.how == "16 cores x 5.7 GHz x 64 operations per cycle (AVX-512)"


@pytest.mark.parametrize(
    ("over", "tops"),
    [
        ({"isa": ["avx", "avx2", "fma"]}, 16 * 5.7 * 32 / 1e3),
        ({"isa": ["sse4_2"]}, 16 * 5.7 * 16 / 1e3),
        ({"cpu": "Neoverse", "architecture": "aarch64", "isa": ["asimd"]}, 16 * 5.7 * 48 / 1e3),
        (
            {"cpu": "Apple M4 Max", "architecture": "arm64", "isa": [], "os": "macOS"},
            16 * 5.7 * 512 / 1e3,
        ),
        ({"clocks": None}, 16 * 6.5 * 64 / 1e3),
        ({"clocks": {"hardware_max_khz": None}}, 16 * 6.5 * 64 / 1e3),
        ({"clocks": {"hardware_max_khz": {"max": 900_000_000}}}, 16 * 6.5 * 64 / 1e3),
        ({"cpu_limits": {"physical": 8, "threads": 8}}, 8 * 5.7 * 64 / 1e3),
        ({"cpu_limits": {"physical": None, "logical": 12}}, 12 * 5.7 * 64 / 1e3),
        (
            {"virtualisation": "kvm", "cpu_limits": {"physical": 1, "logical": 2}},
            2 * 5.7 * 64 / 1e3,
        ),
    ],
)
def test_a_cpus_ceiling_follows_what_the_record_states(over: dict[str, Any], tops: float) -> None:
    found = on_cpu("FP32", **over)
    assert found is not None
    assert found.tops == pytest.approx(tops)


def test_flags_that_are_not_known_leave_every_instruction_open() -> None:
    xeon = "Intel Xeon Platinum 8592+"
    known, unknown = on_cpu("INT8", xeon), on_cpu("INT8", xeon, isa=None)
    assert known is not None
    assert unknown is not None
    assert (known.chip, unknown.chip) == ("AVX-512", "AMX")


@pytest.mark.parametrize(
    ("cpu", "cores"),
    [
        ("AMD Ryzen 9 7950X", 16),
        ("AMD Ryzen 9 7950X 16-Core Processor", 16),
        ("AMD Ryzen AI 9 HX 370", 24),
        ("AMD Ryzen Threadripper PRO 7995WX", 96),
        ("Intel Core i9-14900K", 24),
        ("Intel(R) Core(TM) Ultra 9 285K", 24),
        ("Intel Core Ultra X7 358H", 52),
        ("Apple M3 Ultra", 36),
        ("Someone's CPU", 1024),
    ],
)
def test_no_computer_has_more_cores_than_its_cpus_name_allows(cpu: str, cores: int) -> None:
    told = {"architecture": "arm64"} if cpu.startswith("Apple") else {}
    found = on_cpu("FP32", cpu, cpu_limits={"physical": 10**9}, **told)
    assert found is not None
    assert str(found.how).startswith(f"{cores} cores x 5.7 GHz")


@pytest.mark.parametrize(
    "over",
    [{"architecture": None}, {"architecture": "riscv64"}, {"cpu_limits": None}],
    ids=["no architecture", "another architecture", "no cores"],
)
def test_a_cpu_that_states_too_little_has_no_ceiling(over: dict[str, Any]) -> None:
    assert on_cpu("FP32", **over) is None


@pytest.mark.parametrize(
    "name", [" Intel(R)  Arc(TM) B580 Graphics® ", "Intel(R) Arc(tm) B580 Graphics (BMG G21)"]
)
def test_names_are_compared_without_marks_remarks_and_case(name: str) -> None:
    assert folded(name) == "intel arc b580 graphics"


def test_no_more_of_a_name_is_looked_at_than_a_name_has() -> None:
    assert folded("Intel " * 1_000_000).startswith("intel intel")
    assert len(folded("x" * 1_000_000)) == 200


@pytest.mark.parametrize("cpu", ["AMD Ryzen 9 7950X", "Intel Core i9-14900K"])
def test_a_cpu_that_states_another_architecture_than_its_makers_has_no_ceiling(cpu: str) -> None:
    assert on_cpu("INT8", cpu=cpu) is not None
    assert on_cpu("INT8", cpu=cpu, architecture="arm64", isa=["sme2"]) is None


def test_matrix_tiles_are_xeons_alone() -> None:
    flags = {"isa": ["avx512f", "amx_tile"]}
    xeon = on_cpu("INT8", cpu="Intel Xeon Platinum 8592+", **flags)
    core = on_cpu("INT8", cpu="Intel Core i9-14900K", **flags)
    assert xeon is not None
    assert core is not None
    assert (xeon.chip, core.chip) == ("AMX", "AVX-512")
