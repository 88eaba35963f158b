"""QNN's detailed profile: what Qualcomm's backend says of the graphs that it executed.

A CSV file of events. Every execution of a graph ends with a ``QNN (execute) time`` row; an
accelerator adds its own time for it, in cycles, and the cycles of every node. A backend without
an accelerator has no such rows, whatever ONNX Runtime calls the provider.
"""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from npumark.errors import EngineError

MAX_BYTES = 64 << 20

COLUMNS = ("Message", "Time", "Unit of Measurement", "Timing Source", "Event Identifier")

_ENDS = "(cycles)"
_BOUNDARY = ("Input OpId_", "Output OpId_")


@dataclass(frozen=True, slots=True)
class QnnProfile:
    """``executions`` of graphs, how many of them ``accelerated``, and the ``cycles`` of each
    node over all of them, by the node's name in the ONNX graph."""

    executions: int
    accelerated: int
    cycles: Counter[str]


def read_qnn_profile(path: Path) -> QnnProfile:
    """Return the profile in the file. Raises EngineError where there is none, or it is not one."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise EngineError("QNN's profile is too large to be read")
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            return parse_qnn_profile(list(csv.DictReader(file)))
    except FileNotFoundError:
        raise EngineError("QNN wrote no profile") from None
    except (OSError, ValueError, csv.Error) as fault:
        raise EngineError(f"QNN's profile cannot be read: {fault}"[:300]) from fault


def parse_qnn_profile(rows: list[dict[str, str]]) -> QnnProfile:
    """Return the profile that the rows make up. Raises ValueError where a column is missing or
    a time is no number."""
    executions = accelerated = 0
    cycles: Counter[str] = Counter()
    for row in rows:
        if any(row.get(column) is None for column in COLUMNS):
            raise ValueError("it lacks a column")
        name, time = row["Event Identifier"], int(row["Time"])
        if row["Message"] == "EXECUTE" and name.startswith("QNN (execute)"):
            executions += 1
        elif name.startswith("Accelerator (execute)") and name.endswith(_ENDS):
            accelerated += time > 0
        elif _is_node(row):
            cycles[name.removesuffix(_ENDS).strip().rpartition(":")[0]] += time
    return QnnProfile(executions, accelerated, cycles)


def _is_node(row: dict[str, str]) -> bool:
    """Say whether the row counts a node's cycles; passing inputs and outputs on is no node."""
    counts = row["Message"] == "NODE" and row["Unit of Measurement"] == "CYCLES"
    return counts and not row["Event Identifier"].startswith(_BOUNDARY)
