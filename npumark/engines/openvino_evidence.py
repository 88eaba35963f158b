"""What OpenVINO's own accounts prove: which primitives ran, for how long, in which format.

A primitive's name ends in the type it computes in (``brgemm_avx512_amx_bf16``,
``jit_avx512_dw_I8``). It says nothing about activations quantised on the fly, so a weight-only
label also needs that quantisation to be off, by the runtime's own word. Layers that the
runtime generated from several operators (``Subgraph``) do not tell whether they multiply, and
are left out of the shares.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from npumark.engines.formats import (
    WEIGHT_ONLY,
    Formats,
    Shape,
    Work,
    convolution_macs,
    product_macs,
    weigh,
)
from npumark.worker.protocol import Placement

_MAC_LAYERS = (
    "Convolution",
    "Deconvolution",
    "Einsum",
    "FullyConnected",
    "GatherMatmul",
    "GroupConvolution",
    "MHA",
    "MatMul",
    "ScaledDotProductAttention",
)
"""How the names of layers begin whose work is multiply-accumulates. Profile and runtime model
name one layer differently (FullyConnectedQuantizedLegacy, FullyConnected), hence beginnings."""

_FAMILY = {
    "f32": "FP32",
    "f16": "FP16",
    "bf16": "BF16",
    "f64": "FP64",
    "i8": "INT8",
    "u8": "INT8",
    "I8": "INT8",
}

_CONVOLUTIONS = ("Convolution", "GroupConvolution")
_PRODUCTS = ("FullyConnected", "MatMul")


@dataclass(frozen=True, slots=True)
class Layer:
    """One executed layer: its type, the primitive that ran, microseconds over all calls, and
    multiply-accumulates of one call (null: untold)."""

    kind: str
    primitive: str
    microseconds: int
    macs: int | None = None


def multiplies(kind: str) -> bool:
    """Say whether a layer of this type spends its time on multiply-accumulates."""
    return kind.startswith(_MAC_LAYERS)


def family(primitive: str) -> str | None:
    """Return the format family that a primitive's name ends in, or null where it names none."""
    return _FAMILY.get(primitive.replace(":", "_").rsplit("_", 1)[-1])


def formats(
    layers: Iterable[Layer],
    declared: str,
    *,
    dynamic_quantisation: int | None,
    same_primitives: bool = True,
) -> Formats:
    """Return which number format did the multiplying.

    ``declared`` names the family of weight-only storage where that was asked for; it holds for
    layers that unpack compressed weights while ``dynamic_quantisation`` (the group size that
    the runtime reports) is 0. ``same_primitives`` says that timed and profiled model consist
    of the same ones: a profiled model that differs proves nothing about the timed.
    """
    work: list[Work] = []
    primitives: Counter[str] = Counter()
    for layer in layers:
        if not multiplies(layer.kind):
            continue
        primitives[layer.primitive] += 1
        name = family(layer.primitive) or layer.primitive
        if "Compressed" in layer.kind and name != "INT8":
            name = declared if declared in WEIGHT_ONLY else name
            if dynamic_quantisation != 0:
                name = "unknown"
        work.append(Work(name, layer.microseconds, layer.macs))
    found = weigh(work, dict(sorted(primitives.items())))
    if not same_primitives:
        return found.unknown("the profiled model ran other primitives than the timed")
    if found.ran == "unknown":
        return found.unknown("activations may have been quantised on the fly")
    if found.ran is not None and found.ran not in {*_FAMILY.values(), *WEIGHT_ONLY}:
        return found.unknown(f"the primitive {found.ran} does not tell its type")
    return found


def macs(kind: str, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int | None:
    """Return a layer's multiply-accumulates by its shapes, null for a type without a rule."""
    if not inputs or not outputs:
        return None
    if kind.startswith(_PRODUCTS):
        return product_macs(inputs[0], outputs[0])
    if kind.startswith(_CONVOLUTIONS) and len(inputs) > 1:
        return convolution_macs(inputs[1], outputs[0])
    return None


def prove(layers: list[Layer], device: str, executed_on: list[str]) -> Placement:
    """Return the share of layer time that ran on ``device``.

    ``executed_on`` is the compiled model's own list of devices: another one in it, or a layer
    that the plug-in says it ran on the CPU, counts against the claim. Layers that were fused
    into others took no time of their own and count for neither side.
    """
    evidence = "execution-devices and profile"
    if not executed_on:
        why = "the runtime names no device that it executed on"
        return Placement("unproved", None, None, None, evidence, why)
    total = sum(layer.microseconds for layer in layers)
    if total == 0:
        why = "the profile accounts for no time"
        return Placement("unproved", None, None, None, evidence, why)
    own = [layer for layer in layers if device.startswith("CPU") or not _on_cpu(layer)]
    share = sum(layer.microseconds for layer in own) / total
    if any(name.split(".")[0] != device.split(".")[0] for name in executed_on):
        why = f"it executed on {', '.join(executed_on)}, and the profile does not tell them apart"
        return Placement("unproved", None, None, len(executed_on), evidence, why)
    return Placement("proved", share, len(own) / len(layers), 1, evidence, None)


def _on_cpu(layer: Layer) -> bool:
    # The GPU plug-in names the primitives that it runs on the host this way.
    return layer.primitive.lower().startswith("cpu")
