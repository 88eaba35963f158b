"""What OpenVINO's own accounts prove: which primitives ran, for how long, in which format.

A primitive's name ends in the type it computes in (``brgemm_avx512_amx_bf16``,
``jit_avx512_dw_I8``). It says nothing about activations quantised on the fly, so a weight-only
label also needs that quantisation to be off, by the runtime's own word. Layers that the
runtime generated from several operators (``Subgraph``) do not tell whether they multiply, and
are left out of the shares.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

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

WEIGHT_ONLY = frozenset({"W8", "W4", "INT4"})


@dataclass(frozen=True, slots=True)
class Layer:
    """One executed layer: its type, the primitive that ran, and microseconds over all calls."""

    kind: str
    primitive: str
    microseconds: int


@dataclass(frozen=True, slots=True)
class Formats:
    """Shares of the multiply-accumulate time by format family; ``ran`` is the largest."""

    ran: str | None
    why: str | None
    share: dict[str, float]
    primitives: dict[str, int]


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
    """Return which number format did the multiplying, by time.

    ``declared`` names the family of weight-only storage where that was asked for; it holds for
    layers that unpack compressed weights while ``dynamic_quantisation`` (the group size that
    the runtime reports) is 0. ``same_primitives`` says that timed and profiled model consist
    of the same ones: a profiled model that differs proves nothing about the timed.
    """
    spent: Counter[str] = Counter()
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
        spent[name] += layer.microseconds
    counts = dict(sorted(primitives.items()))
    if not same_primitives:
        return Formats(None, "the profiled model ran other primitives than the timed", {}, counts)
    total = sum(spent.values())
    if total == 0:
        return Formats(None, "the profile shows no multiply-accumulate work", {}, counts)
    shares = {name: us / total for name, us in spent.most_common()}
    ran = next(iter(shares))
    if ran == "unknown":
        why = "activations may have been quantised on the fly"
        return Formats(None, why, shares, counts)
    if ran not in _FAMILY.values() and ran not in WEIGHT_ONLY:
        return Formats(None, f"the primitive {ran} does not tell its type", shares, counts)
    return Formats(ran, None, shares, counts)


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
