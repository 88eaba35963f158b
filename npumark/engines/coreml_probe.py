"""What Core ML really drives on this Mac, and in which float format it multiplies.

Both ask with a tiny program of their own, written with coremltools and compiled in a scratch
folder: one node that must give the right answer, and the product of known answers.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from npumark.engines import number_probe
from npumark.engines.base import Array
from npumark.engines.buffers import aligned
from npumark.engines.catalogue import PROVIDERS
from npumark.engines.coreml_native import Bound, Device, Native, Units
from npumark.engines.coreml_plan import TITLES, Kind, PlannedOp
from npumark.engines.coreml_program import converted
from npumark.errors import EngineError
from npumark.worker.protocol import EngineInfo

_ROW = next(row for row in PROVIDERS if row.id == "coreml")

_KINDS: tuple[tuple[Kind, Units], ...] = (
    ("NPU", "CPU_AND_NE"),
    ("GPU", "CPU_AND_GPU"),
    ("CPU", "CPU_ONLY"),
)

_SHAPE = (1, 64)
_TARGET = "iOS17"

_REPEATS = 64
"""How often the small product is repeated in one call: so small alone, Core ML would leave it to
the CPU, and its answers would say nothing about another device."""


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """``family`` is what the small product shows, null with ``why``. ``planned_on`` is the one
    device that the plan of that product prefers, null where there is no such one."""

    family: str | None
    why: str | None
    planned_on: Kind | None

    def elsewhere(self, wanted: Kind) -> str:
        """Return why the answer says nothing about ``wanted``."""
        where = "nowhere in particular"
        if self.planned_on is not None:
            where = f"on the {TITLES[self.planned_on]}"
        return (
            f"Core ML does not tell it, and plans the small product that would show it {where}, "
            f"not on the {TITLES[wanted]}"
        )


def probe_devices(native: Native) -> tuple[EngineInfo, ...]:
    """Return an engine per device that Core ML lists, and one for each kind that is not here."""
    listed = native.devices()
    found: list[EngineInfo] = []
    for kind, units in _KINDS:
        devices = [device for device in listed if device.kind == kind]
        several = len(devices) > 1
        for index, device in enumerate(devices):
            gpu = index if several and kind == "GPU" else None
            number = index + 1 if several else None
            found.append(_describe(native, device, units, gpu, number))
        if not devices:
            reason = f"this Mac has no {TITLES[kind]} that Core ML can use"
            found.append(_info(native, kind, None, None, reason, {}, {}))
    return tuple(found)


def number_format(native: Native, units: Units, gpu: int | None) -> NumberFormat:
    """Return the float format of products under ``units``. Raises EngineError."""
    operands = number_probe.product("float16")

    def write(mb: Any, x: Any) -> list[Any]:
        outer = mb.linear(x=x, weight=_transposed(operands.w), name="y")
        first = mb.linear(x=x, weight=_transposed(operands.u), name="t")
        return [outer, mb.linear(x=first, weight=_transposed(operands.v), name="z")]

    x = np.tile(operands.x, (_REPEATS, 1))
    shape = (x.shape[0], number_probe.WIDTH)
    with tempfile.TemporaryDirectory(prefix="npumark-probe-") as scratch:
        compiled = _compiled(native, x.shape, write, Path(scratch))
        outputs = _run(native, compiled, units, gpu, x, {"y": shape, "z": shape})
        try:
            plan = native.plan(compiled, units, gpu)
        except EngineError:
            plan = []
    answers = [outputs[name][-number_probe.ROWS :] for name in ("y", "z")]
    verdict = number_probe.classify(answers, "float16")
    return NumberFormat(verdict.family, verdict.why, _only_device(plan))


def _describe(
    native: Native, device: Device, units: Units, gpu: int | None, number: int | None
) -> EngineInfo:
    reason = None
    try:
        _try_one_node(native, units, gpu)
    except Exception as fault:  # noqa: BLE001 - a device that fails is reported, not raised
        reason = " ".join(f"a one-node program fails: {fault}".split())[:300]
    options: dict[str, Any] = {"provider": _ROW.id, "device": device.kind, "cache": True}
    if gpu is not None:
        options["gpu"] = gpu
    return _info(native, device.kind, number, device, reason, _processor(native, device), options)


def _info(
    native: Native,
    kind: Kind,
    number: int | None,
    device: Device | None,
    reason: str | None,
    processor: dict[str, Any],
    options: dict[str, Any],
) -> EngineInfo:
    role = _role(kind, device)
    versions = native.versions()
    return EngineInfo(
        id=_ROW.engine_id(role, number),
        available=reason is None,
        reason=reason,
        runtime=_ROW.runtime,
        runtime_title=_ROW.title,
        version=versions["macos"],
        versions=versions,
        processor=processor,
        variants=_ROW.variants_by_role[role] if reason is None else (),
        extra_variants=_ROW.extra_variants_by_role[role] if reason is None else (),
        options=options,
    )


def _role(kind: Kind, device: Device | None) -> str:
    if kind != "GPU":
        return kind
    return "dGPU" if device is not None and device.unified is False else "iGPU"


def _processor(native: Native, device: Device) -> dict[str, Any]:
    chip = native.chip()
    role = _role(device.kind, device)
    if device.kind == "CPU":
        return {"key": "cpu", "role": role, "name": chip}
    if device.kind == "GPU":
        return {"role": role, "name": device.name}
    name = f"{chip} Neural Engine" if chip else "Apple Neural Engine"
    return {"role": role, "name": name, "details": {"cores": device.cores}}


def _try_one_node(native: Native, units: Units, gpu: int | None) -> None:
    def write(mb: Any, x: Any) -> list[Any]:
        return [mb.relu(x=x, name="y")]

    x = np.linspace(-1, 1, num=_SHAPE[1]).astype(np.float16).reshape(_SHAPE)
    with tempfile.TemporaryDirectory(prefix="npumark-probe-") as scratch:
        compiled = _compiled(native, _SHAPE, write, Path(scratch))
        outputs = _run(native, compiled, units, gpu, x, {"y": _SHAPE})
    if not np.array_equal(outputs["y"], np.maximum(x, 0)):
        raise EngineError("it gives a wrong answer")


def _compiled(
    native: Native,
    shape: tuple[int, ...],
    write: Callable[[Any, Any], list[Any]],
    scratch: Path,
) -> Path:
    import coremltools
    from coremltools.converters.mil import mil
    from coremltools.converters.mil.mil import types

    program = mil.Program()
    placeholders = {"x": mil.Builder.placeholder(shape, types.fp16)}
    target = getattr(coremltools.target, _TARGET)
    with mil.Function(placeholders, opset_version=target) as function:
        function.set_outputs(write(mil.Builder, function.inputs["x"]))
    program.add_function("main", function)
    model = converted(program, _TARGET)
    package = scratch / "probe.mlpackage"
    model.save(str(package))
    return native.compile(package, scratch)


def _run(
    native: Native,
    compiled: Path,
    units: Units,
    gpu: int | None,
    x: Array,
    shapes: dict[str, tuple[int, ...]],
) -> dict[str, Array]:
    source = aligned(x.shape, "float16")
    source[...] = x
    outputs = {name: aligned(shape, "float16") for name, shape in shapes.items()}
    bound: Bound = native.load(compiled, units, gpu).bind({"x": source}, outputs)
    bound.step()
    return outputs


def _only_device(plan: list[PlannedOp]) -> Kind | None:
    kinds = Counter(op.preferred for op in plan if not op.constant)
    return next(iter(kinds)) if len(kinds) == 1 else None


def _transposed(weight: Array) -> Array:
    return np.ascontiguousarray(weight.T)
