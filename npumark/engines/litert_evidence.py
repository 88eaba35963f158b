"""What LiteRT's own accounts prove: which kernels ran, for how long, in which format.

The delegate of the CPU names each kernel with the types it computes in: ``Fully Connected (NC,
QS8, QC8W) GEMM`` multiplies 8-bit activations by 8-bit weights with a scale per channel,
``(NC, QD8, F32, QC8W)`` the same with activations quantised as they come, ``(NC, F32, QC8W)``
would unpack the weights and multiply in FP32. Operators that no delegate took are listed by
their own names, which tell no type.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from npumark.engines.formats import Formats, Work, weigh
from npumark.worker.protocol import Placement

_DELEGATED = "Delegate/"

_ROW = re.compile(
    r"^\s*(?P<kind>\S.*?)\s+[\d.]+\s+[\d.]+\s+(?P<avg>\d+\.\d+)\s+[\d.]+%\s+[\d.]+%"
    r"\s+[\d.]+\s+(?P<times>\d+)\s+\[",
    re.MULTILINE,
)
"""Kind, start, first, average milliseconds, two percentages, memory, calls, name."""

_KERNELS = (
    "Batch Matrix Multiply",
    "Convolution",
    "Deconvolution",
    "Fully Connected",
)
_OPERATORS = (
    "BATCH_MATMUL",
    "CONV_2D",
    "DEPTHWISE_CONV_2D",
    "FULLY_CONNECTED",
    "TRANSPOSE_CONV",
)

_TYPES = re.compile(r"\((?:N\w*), ([^)]+)\)")
_FLOATS = {"F32": "FP32", "PF32": "FP32", "F16": "FP16", "PF16": "FP16", "BF16": "BF16"}
_INTEGERS = re.compile(r"(?:Q(?:[SUCDP]|DU)|PQS)8\w*")
_WEIGHTS = {"QC8W": "W8", "QS8W": "W8", "QC4W": "INT4", "QB4W": "INT4", "QU4W": "INT4"}


@dataclass(frozen=True, slots=True)
class Kernel:
    """One executed kernel or operator: its name, whether a delegate ran it, microseconds over
    all profiled calls."""

    name: str
    delegated: bool
    microseconds: int


def kernels(summary: str) -> list[Kernel]:
    """Return what a profile's summary lists in order of execution; empty where it has no such
    table."""
    _, _, table = summary.partition("Run Order")
    table = table.partition("\n\n")[0]
    found = []
    for row in _ROW.finditer(table):
        micros = round(float(row["avg"]) * 1000 * int(row["times"]))
        name = row["kind"]
        found.append(Kernel(name.removeprefix(_DELEGATED), name.startswith(_DELEGATED), micros))
    return found


def family(kernel: str) -> str | None:
    """Return the format family that a kernel multiplies in, null where its name tells none."""
    told = _TYPES.search(kernel)
    if told is None:
        return None
    types = [part.strip() for part in told[1].split(",")]
    first, *others = types
    if _INTEGERS.fullmatch(first):
        return next((_WEIGHTS[t] for t in others if _WEIGHTS.get(t) == "INT4"), "INT8")
    weights = next((_WEIGHTS[t] for t in others if t in _WEIGHTS), None)
    return weights if weights and first in _FLOATS else _FLOATS.get(first)


def formats(listed: Iterable[Kernel]) -> Formats:
    """Return which number format did the multiplying, by time: kernels tell no shapes."""
    work, counts = [], Counter[str]()
    for kernel in listed:
        if not kernel.name.startswith(_KERNELS + _OPERATORS):
            continue
        counts[kernel.name] += 1
        name = family(kernel.name) if kernel.delegated else None
        work.append(Work(name or "unknown", kernel.microseconds, None))
    found = weigh(work, dict(sorted(counts.items())))
    if found.ran == "unknown":
        return found.unknown("the kernels' names do not tell their types")
    return found


def accelerated_percent(listed: list[Kernel], operators: int, *, fully: bool) -> float | None:
    """Return the share of the model's operators that delegates took, in percent.

    Null where the profile lists nothing, or more than the model has.
    """
    left = sum(not kernel.delegated for kernel in listed)
    if fully:
        return 100.0
    if not listed or not 0 < left <= operators:
        return None
    return 100 * (operators - left) / operators


def on_cpu(listed: list[Kernel]) -> Placement:
    """Return the proof for the CPU: the model was compiled with no other accelerator."""
    evidence = "only the CPU registered, and profile"
    if not listed:
        return Placement("unproved", None, None, None, evidence, "the profile lists no kernels")
    return Placement("proved", 1.0, 1.0, 1, evidence)


def on_accelerator(*, whole: bool) -> Placement:
    """Return the proof for an accelerator: the runtime's word that those took every operator."""
    evidence = "full acceleration"
    if whole:
        return Placement("proved", 1.0, 1.0, 1, evidence)
    why = (
        "the accelerator does not take every operator, and the runtime does not tell which "
        "share of the time it ran"
    )
    return Placement("unproved", None, None, None, evidence, why)
