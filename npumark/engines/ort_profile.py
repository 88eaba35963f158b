"""What ONNX Runtime's own profile proves: where the time went, and in which number format.

The profile of a short, separate run, never of the timed one: the profiler stops at a million
events without saying so in the file, which is why the runs it holds are counted against those
that were made. Names are not joined with the graph's, because the optimiser renames, fuses and
inserts nodes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npumark.engines.formats import (
    WEIGHT_ONLY,
    Formats,
    Work,
    convolution_macs,
    product_macs,
    weigh,
)
from npumark.errors import EngineError

MAX_EVENTS = 1_000_000
"""Where the profiler stops (measured on 1.32: 1 000 001 events in the file)."""

MAX_BYTES = 256 << 20

FLOAT_MACS = frozenset(
    {
        "Attention",
        "Conv",
        "ConvTranspose",
        "Einsum",
        "FusedConv",
        "FusedGemm",
        "FusedMatMul",
        "FusedMatMulActivation",
        "Gemm",
        "GroupQueryAttention",
        "MatMul",
        "MultiHeadAttention",
        "NhwcConv",
        "NhwcFusedConv",
    }
)
"""Operators whose work is multiply-accumulates in the type of their inputs."""

INTEGER_MACS = frozenset(
    {
        "ConvInteger",
        "DynamicQuantizeLSTM",
        "DynamicQuantizeMatMul",
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "QAttention",
        "QGemm",
        "QLinearConv",
        "QLinearMatMul",
    }
)
"""Operators that multiply 8-bit integers."""

WEIGHT_ONLY_MACS = frozenset({"MatMulBnb4", "MatMulNBits"})
"""Operators that unpack stored weights and multiply in floating point (accuracy level 1)."""

MULTIPLIES = FLOAT_MACS | INTEGER_MACS | WEIGHT_ONLY_MACS
"""Operators of kernels whose work is multiply-accumulates, in whatever format."""

_PRODUCTS = frozenset(
    {
        "DynamicQuantizeMatMul",
        "FusedGemm",
        "FusedMatMul",
        "FusedMatMulActivation",
        "Gemm",
        "MatMul",
        "MatMulBnb4",
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "MatMulNBits",
        "QGemm",
        "QLinearMatMul",
    }
)

_CONVOLUTIONS = frozenset(
    {"Conv", "ConvInteger", "FusedConv", "NhwcConv", "NhwcFusedConv", "QLinearConv"}
)

_FAMILY = {"float": "FP32", "float16": "FP16", "bfloat16": "BF16", "double": "FP64"}


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A stretch of the profile's clock, in whole microseconds."""

    start: int
    microseconds: int

    @property
    def end(self) -> int:
        """Return where it ends."""
        return self.start + self.microseconds


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel call. ``inputs`` and ``outputs`` hold (element type, shape)."""

    op: str
    provider: str | None
    span: Span
    inputs: tuple[tuple[str, tuple[int, ...]], ...]
    outputs: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def microseconds(self) -> int:
        """Return how long it took."""
        return self.span.microseconds


@dataclass(frozen=True, slots=True)
class Inner:
    """A kernel that a provider reports from inside one of its compiled parts of the graph, in
    the words of the runtime beneath: kind of layer, and the primitive that ran."""

    provider: str
    kind: str
    primitive: str
    microseconds: int


@dataclass(frozen=True, slots=True)
class Profile:
    """``kernels`` in order of execution, over ``runs`` calls, whose spans are ``calls``.
    ``threads`` is how many threads the intra-op pool had, the calling one included; null where
    the profile does not say. ``inner`` are what providers add of their own."""

    kernels: tuple[Kernel, ...]
    runs: int
    threads: int | None
    calls: tuple[Span, ...] = ()
    inner: tuple[Inner, ...] = ()


def read_profile(path: Path, runs: int) -> Profile:
    """Return the profile in ``path``.

    Raises EngineError where it is too large, capped, not a profile, or holds another number
    of calls than the ``runs`` that were made.
    """
    if path.stat().st_size > MAX_BYTES:
        raise EngineError("the runtime's profile is too large to be read")
    try:
        return parse_profile(json.loads(path.read_text(encoding="utf-8")), runs)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as fault:
        raise EngineError(f"the runtime's profile cannot be read: {fault!r}"[:300]) from fault


def parse_profile(events: list[dict[str, Any]], runs: int) -> Profile:
    """Return the profile that ``events`` make up (see :func:`read_profile`)."""
    if len(events) >= MAX_EVENTS:
        raise EngineError("the runtime's profile is capped, and so incomplete")
    calls = [e for e in events if e.get("cat") == "Session" and e.get("name") == "model_run"]
    if len(calls) != runs:
        raise EngineError(f"the runtime's profile holds {len(calls)} calls, not {runs}")
    kernels, pools, inner = [], [0], []
    for event in events:
        if event.get("cat") == "Kernel" and "ov_exec_type" in event.get("args", {}):
            inner.append(_inner(event))
        if event.get("cat") != "Node" or not event["name"].endswith("_kernel_time"):
            continue
        told = event["args"]
        kernels.append(
            Kernel(
                op=str(told.get("op_name", "")),
                provider=told.get("provider") or None,
                span=_span(event),
                inputs=_types(told.get("input_type_shape")),
                outputs=_types(told.get("output_type_shape")),
            )
        )
        workers = (told.get("thread_scheduling_stats") or {}).get("sub_threads")
        if workers is not None:
            pools.append(1 + len(workers))
    spans = tuple(_span(call) for call in calls)
    return Profile(tuple(kernels), runs, max(pools) or None, spans, tuple(inner))


def formats(
    profile: Profile, declared: str, told: Mapping[tuple[str, str], str] | None = None
) -> Formats:
    """Return which number format did the multiplying.

    ``told`` gives, by provider and type of a kernel's inputs, the family in which that provider
    computes floating point where this is known better than from the type.

    ``declared`` names the family of weight-only storage (W8, INT4 …). It holds where weights
    were unpacked while the graph ran: by a kernel made for it, or by a dequantiser whose
    result is a multiplier's second operand. Weights that the runtime unpacked once, at load,
    leave a plain FP32 multiplication, and that is then what ran. The evidence counts kernels of
    one call, by operator and type of the first input.
    """
    ops: Counter[str] = Counter()
    work: list[Work] = []
    unpacked: Counter[tuple[int, ...]] = Counter()
    for kernel in profile.kernels:
        kind = kernel.inputs[0][0] if kernel.inputs else "none"
        ops[f"{kernel.op}({kind})"] += 1
        family = None
        if kernel.op == "DequantizeLinear" and kernel.outputs:
            unpacked[kernel.outputs[0][1]] += 1
        elif kernel.op in INTEGER_MACS:
            family = "INT8"
        elif kernel.op in WEIGHT_ONLY_MACS:
            # Also what becomes of 16-bit activations over 8-bit weights: no integers multiply.
            family = declared if declared in WEIGHT_ONLY else "W8"
        elif kernel.op in FLOAT_MACS:
            known = told.get((kernel.provider or "", kind)) if told else None
            family = known or _FAMILY.get(kind, kind)
            weight = kernel.inputs[1][1] if len(kernel.inputs) > 1 else None
            if declared in WEIGHT_ONLY and weight is not None and unpacked[weight] > 0:
                unpacked[weight] -= 1
                family = declared
        if family is not None:
            work.append(Work(family, kernel.microseconds, macs(kernel)))
    return weigh(work, {op: n // profile.runs for op, n in sorted(ops.items())})


def macs(kernel: Kernel) -> int | None:
    """Return a kernel's multiply-accumulates by its shapes, null for one without a rule."""
    if not kernel.inputs or not kernel.outputs:
        return None
    inputs, output = [shape for _, shape in kernel.inputs], kernel.outputs[0][1]
    if kernel.op in _PRODUCTS:
        return product_macs(inputs[0], output)
    if kernel.op in _CONVOLUTIONS:
        # A kernel that packed its weights at load no longer lists them.
        at = 3 if kernel.op == "QLinearConv" else 1
        return convolution_macs(inputs[at] if len(inputs) > at else (), output)
    return None


def _span(event: Mapping[str, Any]) -> Span:
    return Span(int(event["ts"]), int(event["dur"]))


def _inner(event: dict[str, Any]) -> Inner:
    told = event["args"]
    return Inner(
        provider=str(told.get("ep", "")),
        kind=str(told.get("ov_node_type", "")),
        primitive=str(told["ov_exec_type"]),
        microseconds=int(event["dur"]),
    )


def _types(told: Iterable[dict[str, list[int]]] | None) -> tuple[tuple[str, tuple[int, ...]], ...]:
    found = []
    for entry in told or ():
        for kind, shape in entry.items():
            found.append((kind, tuple(shape)))
    return tuple(found)
