"""What lies beneath a provider of ONNX Runtime, where it could turn to another device unseen.

The graph assignment and the profile end at the provider. Whether the accelerator did the provider's
part is asked of the provider itself, in the words that its maker documents: QNN's detailed profile,
the names of OpenVINO's primitives, Vitis AI's report. One that offers no such word is doubted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from npumark.engines.ort_profile import Inner, Profile
from npumark.engines.qnn_profile import QnnProfile
from npumark.engines.vitisai_report import HOST, INSIDE, NPU, VitisReport
from npumark.errors import WrongDevice


@dataclass(frozen=True, slots=True)
class Beneath:
    """What is said of a provider's part: nothing against it, a ``doubt``, or that the claim is
    ``refused``. ``source`` names the witness. ``elsewhere`` is the share (0 to 1) of the provider's
    own time that was not, or not provably, its device's."""

    source: str = ""
    doubt: str | None = None
    refused: str | None = None
    elsewhere: float = 0.0


def qnn(told: QnnProfile | None, why: str | None, runs: int) -> Beneath:
    """Require QNN's own word that an accelerator executed, in each of ``runs`` calls."""
    source = "QNN's detailed profile"
    if told is None:
        return Beneath(refused=why or "QNN wrote no profile")
    if told.executions < runs:
        why = f"QNN's profile holds {told.executions} executions of {runs} calls"
        return Beneath(source, refused=why)
    if told.accelerated < told.executions or not sum(told.cycles.values()):
        why = (
            f"QNN reports an accelerator's time for {told.accelerated} of {told.executions} "
            "executions: another of its backends ran them"
        )
        return Beneath(source, refused=why)
    return Beneath(source)


def openvino(inner: Iterable[Inner], device: str) -> Beneath:
    """Judge by the primitives that OpenVINO ran, none of which it names alike on two devices.

    It may compile a part for its own CPU device, whose primitives refuse the claim. Time of a
    primitive that is not named as the device's are counts against it; where the GPU's plug-in says
    that it ran one on the host it does not say for how long.
    """
    source, ran = "OpenVINO's primitives", list(inner)
    if not ran:
        return Beneath(doubt="OpenVINO does not tell on which of its devices the graph ran")
    on_cpu = sorted({i.primitive for i in ran if i.microseconds and is_cpu_primitive(i)})
    if on_cpu:
        why = f"OpenVINO ran primitives of its CPU device: {', '.join(on_cpu)[:200]}"
        return Beneath(source, refused=why)
    if any(i.primitive.lower().startswith("cpu") for i in ran):
        return Beneath(source, doubt=f"OpenVINO ran a part of it on the host instead of {device}")
    total = sum(i.microseconds for i in ran)
    own = sum(i.microseconds for i in ran if _is_own(i, device))
    if not own:
        return Beneath(source, doubt=f"no primitive tells that it ran on {device}")
    return Beneath(source, elsewhere=1 - own / total)


def is_cpu_primitive(inner: Inner) -> bool:
    """Say whether a primitive is one of OpenVINO's CPU plug-in: named by how it was made, the
    instruction set and, after one underscore, its type (the GPU's have two before it)."""
    return inner.primitive.startswith(_CPU_MADE) and "__" not in inner.primitive


def _is_own(inner: Inner, device: str) -> bool:
    if device.startswith("NPU"):
        return inner.primitive in _NPU_UNITS
    return _GPU_KERNEL.search(inner.primitive) is not None


_CPU_MADE = ("acl_", "brgconv_", "brgemm_", "dnnl_", "gemm_", "jit_", "ref_", "simple_")

_GPU_KERNEL = re.compile(r".__(?:bf16|f16|f32|f64|i4|i8|i16|i32|i64|u1|u4|u8|u16|u32|u64|boolean)$")
"""How OpenVINO's GPU plug-in names what ran: the kernel, two underscores and the type it computes
in (``jit:gemm:any__f16``). OpenVINO 2026, src/plugins/intel_gpu, get_implementation_info."""

_NPU_UNITS = frozenset({"DMA", "DPU", "Shave"})
"""What OpenVINO's NPU plug-in gives for a layer: the unit of the NPU that it ran on, by the
driver's own profile. OpenVINO 2026, src/plugins/intel_npu, convertLayersToIeProfilingInfo."""


def vitisai(report: VitisReport | None, why: str | None, profile: Profile, own: str) -> Beneath:
    """Judge by Vitis AI's report of which operators the NPU was given.

    What it runs on the CPU itself are operators one by one, each a kernel of its own in ONNX
    Runtime's profile, under the operator's name; what goes to the NPU is fused and named otherwise.
    So the CPU's time can be told apart where the profile holds as many such kernels as the report
    counts operators, and counts against the claim. Raises WrongDevice where the NPU was given
    nothing.
    """
    source = "Vitis AI's report"
    if report is None:
        return Beneath(doubt=why or "Vitis AI wrote no report of where its operators run")
    if not report.on_npu:
        raise WrongDevice(
            f"Vitis AI gave none of the graph's {report.total} operators to the NPU "
            f"({report.counts()})"
        )
    if strange := sorted(set(report.parts) - NPU - {HOST, INSIDE}):
        names = ", ".join(strange)[:100]
        return Beneath(source, doubt=f"Vitis AI's report names devices that are unknown: {names}")
    left = report.parts.get(HOST)
    if left is not None and all(k.provider == own for k in profile.kernels):
        why = f"Vitis AI left {left.operators} operators to the CPU, and the profile shows none"
        return Beneath(source, doubt=f"{why} ({report.counts()})")
    inside = report.parts.get(INSIDE)
    if inside is None:
        return Beneath(source)
    mine = [k for k in profile.kernels if k.provider == own]
    apart = [k for k in mine if k.op in inside.kinds]
    if len(apart) != inside.operators * profile.runs or len(apart) == len(mine):
        why = (
            f"Vitis AI ran {inside.operators} of {report.total} operators on the CPU itself, "
            f"and the profile does not tell their time apart ({report.counts()})"
        )
        return Beneath(source, doubt=why)
    total = sum(k.microseconds for k in mine)
    if not total:
        return Beneath(source, doubt="the profile accounts for no time of Vitis AI's")
    return Beneath(source, elsewhere=sum(k.microseconds for k in apart) / total)
