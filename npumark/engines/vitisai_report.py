"""Vitis AI's own report of which operators of a graph it gave to the NPU.

The provider writes it into its cache folder when it compiles, where the variable
``XLNX_ONNX_EP_REPORT_FILE`` names a file and the cache is kept on disk. Format and switch are those
of AMD's Ryzen AI Software documentation ("Operator Assignment Report"): a list ``deviceStat`` with
an entry named ``all`` and one for each device, each with ``nodeNum`` and ``supportedOpType``. AMD
has called its NPU ``DPU``, ``IPU``, ``NPU`` and, for models compiled as BF16, ``VAIML``. ``CPU`` is
what the provider leaves to ONNX Runtime, ``VITIS_EP_CPU`` what it runs on the CPU itself.

Not yet run on hardware.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npumark.errors import EngineError

VARIABLE = "XLNX_ONNX_EP_REPORT_FILE"
NAME = "vitisai_ep_report.json"
MAX_BYTES = 64 << 20

FACT = "vitisai_report"
"""Name of the fact kept with a compiled model: what its report said, or why it has none."""

NPU = frozenset({"DPU", "IPU", "NPU", "VAIML"})
HOST = "CPU"
INSIDE = "VITIS_EP_CPU"
_ALL = "all"


@dataclass(frozen=True, slots=True)
class Part:
    """What one device was given: how many operators, and of which kinds."""

    operators: int
    kinds: frozenset[str]


@dataclass(frozen=True, slots=True)
class VitisReport:
    """The operators of the graph as the provider rewrote it, by device."""

    parts: Mapping[str, Part]

    @property
    def total(self) -> int:
        """How many operators there are."""
        return sum(part.operators for part in self.parts.values())

    @property
    def on_npu(self) -> int:
        """How many of them the NPU was given."""
        return sum(part.operators for name, part in self.parts.items() if name in NPU)

    def counts(self) -> str:
        """Return the counts in words: ``NPU 398, VITIS_EP_CPU 2``."""
        return ", ".join(f"{name} {part.operators}" for name, part in sorted(self.parts.items()))


@contextmanager
def asked() -> Iterator[None]:
    """Have sessions that are opened meanwhile write the report."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = NAME
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = before


def read_report(folder: Path) -> VitisReport:
    """Return the report that a session left anywhere in its cache ``folder``.

    Raises EngineError, with the reason, where there is none or it is not as documented.
    """
    found = sorted(folder.rglob(NAME)) if folder.is_dir() else []
    if not found:
        raise EngineError("Vitis AI wrote no report of where its operators run")
    if len(found) > 1:
        raise EngineError(f"Vitis AI wrote {len(found)} reports, and which one holds is unknown")
    try:
        if found[0].stat().st_size > MAX_BYTES:
            raise EngineError("Vitis AI's report is too large to be read")
        return parse_report(json.loads(found[0].read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as fault:
        raise EngineError(f"Vitis AI's report cannot be read: {fault!r}"[:300]) from fault


def parse_report(document: Any) -> VitisReport:
    """Return what a report says. Raises EngineError where its counts contradict each other, and
    KeyError, TypeError, ValueError or AttributeError where it is not a report."""
    parts: dict[str, Part] = {}
    for entry in document["deviceStat"]:
        name, number = entry["name"], entry["nodeNum"]
        if not isinstance(name, str) or type(number) is not int or number < 0 or name in parts:
            raise ValueError(f"the entry {name!r} with {number!r} operators")
        kinds = frozenset(_bare(str(kind)) for kind in entry.get("supportedOpType") or ())
        parts[name] = Part(number, kinds)
    everything = parts.pop(_ALL)
    report = VitisReport({name: part for name, part in parts.items() if part.operators})
    if report.total != everything.operators:
        raise EngineError(
            f"Vitis AI's report counts {everything.operators} operators but places {report.total}"
        )
    return report


def to_fact(folder: Path) -> dict[str, Any]:
    """Return, as JSON values, what the report in ``folder`` says, or why there is none."""
    try:
        report = read_report(folder)
    except EngineError as fault:
        return {"why": fault.message}
    return {name: [part.operators, sorted(part.kinds)] for name, part in report.parts.items()}


def from_fact(fact: Any) -> VitisReport:
    """Return the report that a fact holds. Raises EngineError where it holds none."""
    if not isinstance(fact, dict):
        raise EngineError("the compiled model was kept without Vitis AI's report")
    if "why" in fact:
        raise EngineError(str(fact["why"]))
    return VitisReport(
        {str(name): Part(int(number), frozenset(kinds)) for name, (number, kinds) in fact.items()}
    )


def _bare(kind: str) -> str:
    """Return an operator's name without its domain: ``Add`` of ``::Add``, ``Conv`` of ``Conv:``."""
    return next((part for part in reversed(kind.split(":")) if part), "")
