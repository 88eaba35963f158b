from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from npumark.engines.catalogue import PROVIDERS, Provider
from npumark.engines.onnx_graph import Node, OnnxGraph
from npumark.engines.ort_evidence import (
    AssignedNode,
    Evidence,
    assigned_counts,
    prove,
    read_assignment,
)
from npumark.engines.ort_plugins import third_party
from npumark.engines.ort_profile import Inner, Kernel, Profile, Span
from npumark.engines.qnn_profile import QnnProfile
from npumark.engines.vitisai_report import Part, VitisReport
from npumark.errors import WrongDevice
from npumark.worker.protocol import Placement

CPU = "CPUExecutionProvider"
ROWS = {row.id: row for row in PROVIDERS}
ACCELERATED = QnnProfile(executions=1, accelerated=1, cycles=Counter({"mm0": 9}))


def row(name: str) -> Provider:
    return ROWS[name]


def kernel(op: str, us: int, provider: str | None) -> Kernel:
    return Kernel(op, provider, Span(0, us), (), ())


def profile(kernels: Iterable[Kernel], *, runs: int = 1, run_us: int = 0) -> Profile:
    """Return a profile of kernels one after the other from the start of a call of ``run_us``."""
    placed, at = [], 0
    for one in kernels:
        placed.append(replace(one, span=Span(at, one.microseconds)))
        at += one.microseconds
    return Profile(tuple(placed), runs, None, (Span(0, run_us),) if run_us else ())


def graph(ops: Sequence[str]) -> OnnxGraph:
    nodes = tuple(Node(op, f"n{i}", ("x",), (f"y{i}",)) for i, op in enumerate(ops))
    return OnnxGraph(nodes, ("x",), ("y0",), frozenset(), "float32")


def evidence(
    kernels: Iterable[Kernel],
    given: dict[str, Sequence[str]],
    *,
    ops: Sequence[str] | None = None,
    **more: Any,
) -> Evidence:
    """Return evidence in which providers were ``given`` operators; ``ops`` are the file's."""
    nodes = [AssignedNode(name, op, "") for name, part in given.items() for op in part]
    told = {key: more.pop(key) for key in ("runs", "run_us") if key in more}
    in_file = graph([n.op for n in nodes] if ops is None else ops)
    return Evidence(profile(kernels, **told), in_file, tuple(nodes), **more)


def on_directml(found: Evidence, *, asynchronous: bool) -> Placement:
    return prove(found, replace(row("ort-dml"), asynchronous=asynchronous), {"ordinal": 0})


DML = "DmlExecutionProvider"


def test_one_heavy_operator_elsewhere_outweighs_many_light_ones_here() -> None:
    light = ["Add"] * 98 + ["MatMul"]
    kernels = [*(kernel(op, 4, DML) for op in light), kernel("MatMul", 600, CPU)]
    found = evidence(kernels, {DML: light, CPU: ["MatMul"]})
    placement = on_directml(found, asynchronous=False)
    assert placement.verdict == "proved"
    assert placement.op_share == 0.99
    assert placement.share == pytest.approx(396 / 996)  # far below any share that counts
    assert placement.partitions == 1


def test_time_of_an_unknown_provider_counts_against_the_claim() -> None:
    kernels = [kernel("MatMul", 50, DML), kernel("Conv", 50, None)]
    found = evidence(kernels, {DML: ["MatMul"], "": ["Conv"]})
    for asynchronous in (False, True):
        timed = replace(found.profile, calls=(Span(0, 100),))
        placed = on_directml(replace(found, profile=timed), asynchronous=asynchronous)
        assert (placed.share, placed.op_share) == (0.5, 0.5)


def test_names_that_do_not_join_change_nothing() -> None:
    # The optimiser renamed, fused and inserted; a name may be empty.
    kernels = [kernel("ReorderInput", 10, DML), kernel("q_nchwc", 80, DML), kernel("If", 10, CPU)]
    found = evidence(kernels, {DML: ["Conv", "Relu"], CPU: ["If", "MatMul", "Identity"]})
    placement = on_directml(found, asynchronous=False)
    assert (placement.verdict, placement.share, placement.op_share) == ("proved", 0.9, 0.4)


def test_partitions_are_unbroken_stretches_of_one_call() -> None:
    one = [kernel("A", 1, DML), kernel("B", 1, CPU), kernel("C", 1, DML), kernel("D", 1, DML)]
    found = evidence([*one, *one], {DML: ["MatMul"]}, runs=2)
    assert on_directml(found, asynchronous=False).partitions == 2


@pytest.mark.parametrize("asynchronous", [False, True])
def test_no_kernel_proves_nothing(asynchronous: bool) -> None:
    found = evidence([], {DML: ["MatMul"]}, run_us=1000)
    placement = on_directml(found, asynchronous=asynchronous)
    assert (placement.verdict, placement.share) == ("unproved", None)
    assert placement.why == "the profile shows no kernel"


def test_no_time_proves_nothing() -> None:
    placement = on_directml(
        evidence([kernel("MatMul", 0, DML)], {DML: ["MatMul"]}), asynchronous=False
    )
    assert (placement.verdict, placement.share) == ("unproved", None)
    assert placement.why == "the profile accounts for no time"


CUDA = "CUDAExecutionProvider"


@pytest.mark.parametrize("op", ["Relu", "MemcpyFromHost"])
def test_a_provider_that_was_given_no_multiplying_operator_proves_nothing(op: str) -> None:
    found = evidence(
        [kernel(op, 1, CUDA), kernel("MatMul", 400, CPU)],
        {CUDA: ["Relu"], CPU: ["MatMul"]},
        run_us=1000,
    )
    placement = prove(found, row("ort-cuda"), {})
    assert (placement.verdict, placement.share, placement.op_share) == ("unproved", None, 0.5)
    assert placement.why == f"{CUDA} was given none of the graph's 1 operators that multiply"


@pytest.mark.parametrize("op", ["Relu", "MemcpyFromHost"])
def test_a_provider_without_a_kernel_that_can_multiply_proves_nothing(op: str) -> None:
    # The assignment claims the product, and the profile shows who ran it.
    found = evidence(
        [kernel(op, 1, CUDA), kernel("MatMul", 400, CPU)], {CUDA: ["MatMul", "Relu"]}, run_us=1000
    )
    placement = prove(found, row("ort-cuda"), {})
    assert (placement.verdict, placement.share) == ("unproved", None)
    assert placement.why is not None
    assert placement.why.startswith(f"the profile shows no kernel of {CUDA} that can have done")


def test_a_compiled_part_holds_the_operators_that_were_assigned_to_it() -> None:
    found = evidence(
        [kernel("TRTKernel_graph_1_0", 9, "TensorrtExecutionProvider")],
        {"TensorrtExecutionProvider": ["MatMul", "Relu"]},
        run_us=10,
    )
    placement = prove(found, row("ort-tensorrt"), {})
    assert (placement.verdict, placement.share) == ("proved", 1.0)
    given_light_ones = replace(
        found, assigned=(AssignedNode("TensorrtExecutionProvider", "Relu", ""),)
    )
    assert prove(given_light_ones, row("ort-tensorrt"), {}).verdict == "unproved"


def test_a_graph_without_a_multiplying_operator_is_placed_by_its_time() -> None:
    found = evidence([kernel("Relu", 9, CUDA)], {CUDA: ["Relu"]}, run_us=10)
    placement = prove(found, row("ort-cuda"), {})
    assert (placement.verdict, placement.share) == ("proved", 1.0)


@pytest.mark.parametrize("name", ["ort-dml", "ort-qnn", "ort-webgpu", "ort-openvino"])
def test_right_answers_with_nothing_on_the_device_are_of_the_wrong_device(name: str) -> None:
    target = row(name)
    found = evidence([kernel("MatMul", 9, CPU)], {CPU: ["MatMul"]}, run_us=1000)
    with pytest.raises(WrongDevice, match=f"nothing on {target.provider_name}"):
        prove(found, target, {})


def test_queueing_is_not_work_and_the_wait_is_the_providers() -> None:
    # 1 ms on the host, 2 + 3 us of queueing, and 40 ms in which the device worked.
    kernels = [kernel("Q", 1000, CPU), kernel("MatMul", 2, DML), kernel("Relu", 3, DML)]
    found = evidence(kernels, {DML: ["MatMul", "Relu"], CPU: ["Q"]}, run_us=41_005)
    assert on_directml(found, asynchronous=True).share == pytest.approx(1 - 1000 / 41_005)
    # Its kernels' own durations would have said that the host did nearly all.
    assert on_directml(found, asynchronous=False).share == pytest.approx(5 / 1005)


def test_without_the_time_of_the_calls_queueing_proves_nothing() -> None:
    found = evidence([kernel("MatMul", 1, DML)], {DML: ["MatMul"]}, run_us=0)
    placement = on_directml(found, asynchronous=True)
    assert (placement.verdict, placement.share) == ("unproved", None)
    assert placement.why == "the profile does not say how long the calls lasted"


def test_an_assignment_that_leaves_out_a_multiplying_operator_proves_nothing() -> None:
    found = evidence(
        [kernel("MatMul", 9, DML)], {DML: ["MatMul", "Relu"]}, ops=["MatMul", "Relu", "Conv"]
    )
    placement = on_directml(found, asynchronous=False)
    assert (placement.verdict, placement.share) == ("unproved", None)
    assert placement.why is not None
    assert "1 of the graph's 2 operators that multiply" in placement.why


def test_operators_that_became_others_before_the_assignment_are_no_gap() -> None:
    # MatMul and Add became Gemm, HardSwish two nodes, Identity none.
    found = evidence(
        [kernel("MatMul", 9, DML)],
        {DML: ["Gemm", "HardSigmoid", "Mul"]},
        ops=["MatMul", "Add", "HardSwish", "Identity"],
    )
    assert on_directml(found, asynchronous=False).verdict == "proved"


def test_an_untold_assignment_proves_nothing_but_on_the_cpu_provider() -> None:
    found = Evidence(profile([kernel("MatMul", 9, DML)]), graph(["MatMul"]), None, "not recorded")
    placement = on_directml(found, asynchronous=False)
    assert (placement.verdict, placement.why) == ("unproved", "not recorded")
    found = replace(found, profile=profile([kernel("MatMul", 9, CPU)]))
    placement = prove(found, row("ort-cpu"), {})
    assert (placement.verdict, placement.share, placement.op_share) == ("proved", 1.0, None)


@pytest.mark.parametrize("name", ["ort-tensorrt", "ort-vitisai"])
def test_a_compiled_context_whose_operators_were_not_recorded_proves_nothing(name: str) -> None:
    own = str(row(name).provider_name)
    found = evidence([kernel("EPContext", 90, own)], {own: ["EPContext"]}, ops=["MatMul"], run_us=9)
    placement = prove(found, row(name), {})
    assert (placement.verdict, placement.share, placement.op_share) == ("unproved", None, None)
    assert placement.why is not None
    assert "was not recorded when it was compiled" in placement.why


def test_a_compiled_context_is_what_was_assigned_when_it_was_compiled() -> None:
    found = evidence(
        [kernel("EPContext", 90, "QNNExecutionProvider"), kernel("Hardmax", 10, CPU)],
        {"QNNExecutionProvider": ["MatMul"] * 9, CPU: ["Hardmax"]},
        qnn=ACCELERATED,
    )
    placement = prove(found, row("ort-qnn"), {})
    assert (placement.verdict, placement.share, placement.op_share) == ("proved", 0.9, 0.9)


def test_webgpu_built_in_lists_what_others_got_and_the_rest_is_its_own() -> None:
    name = str(row("ort-webgpu").provider_name)
    found = evidence(
        [kernel("QuantizeLinear", 50, CPU), kernel("MatMul", 2, name)],
        {CPU: ["QuantizeLinear"]},
        ops=["QuantizeLinear", "DequantizeLinear", "MatMul", "Relu"],
        run_us=1000,
    )
    placement = prove(found, row("ort-webgpu"), {"route": "name"})
    assert (placement.verdict, placement.share, placement.op_share) == ("proved", 0.95, 0.75)
    # As a plug-in it lists its own nodes, and leaving them out is a gap.
    assert prove(found, row("ort-webgpu"), {"route": "devices"}).verdict == "unproved"
    elsewhere = (*(found.assigned or ()), AssignedNode(CPU, "MatMul", ""))
    placement = prove(replace(found, assigned=elsewhere), row("ort-webgpu"), {"route": "name"})
    assert (placement.verdict, placement.op_share) == ("unproved", None)


def qnn(**more: Any) -> Placement:
    name = str(row("ort-qnn").provider_name)
    found = evidence([kernel("part", 90, name), kernel("Hardmax", 10, CPU)], {name: ["MatMul"]})
    return prove(replace(found, **more), row("ort-qnn"), {})


def test_qnn_is_proved_by_its_accelerators_own_cycles() -> None:
    placement = qnn(qnn=ACCELERATED)
    assert (placement.verdict, placement.share) == ("proved", 0.9)
    assert "QNN's detailed profile" in placement.evidence


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"qnn": None, "untold": "QNN wrote no profile"}, "QNN wrote no profile"),
        ({"qnn": QnnProfile(0, 0, Counter())}, "holds 0 executions of 1 calls"),
        ({"qnn": QnnProfile(1, 0, Counter())}, "another of its backends"),
        ({"qnn": QnnProfile(1, 1, Counter())}, "another of its backends"),
        ({"qnn": QnnProfile(2, 1, Counter({"mm0": 9}))}, "another of its backends"),
    ],
)
def test_qnn_without_an_accelerators_word_is_unproved(told: dict[str, Any], why: str) -> None:
    placement = qnn(**told)
    assert (placement.verdict, placement.share) == ("unproved", None)
    assert placement.why is not None
    assert why in placement.why


def openvino(device: str, *primitives: str | tuple[str, int]) -> Placement:
    """Return the placement of primitives that took 5 us each, or as long as is said."""
    name = str(row("ort-openvino").provider_name)
    found = evidence([kernel("part", 90, name), kernel("Hardmax", 10, CPU)], {name: ["MatMul"]})
    timed = [(p, 5) if isinstance(p, str) else p for p in primitives]
    inner = tuple(Inner(name, "FullyConnected", p, us) for p, us in timed)
    told = replace(found, profile=replace(found.profile, inner=inner))
    return prove(told, row("ort-openvino"), {"ov_device": device})


@pytest.mark.parametrize("device", ["GPU", "NPU"])
def test_openvino_is_never_proved_by_the_provider_alone(device: str) -> None:
    placement = openvino(device)
    assert (placement.verdict, placement.share) == ("inferred", 0.9)
    assert placement.why is not None
    assert "on which of its devices" in placement.why


@pytest.mark.parametrize(
    ("device", "primitives"),
    [
        ("GPU.1", ("jit:gemm:any__f16", "ocl::sdpa::opt__f16", "reduce_ref__f32", ("undef", 0))),
        ("GPU", ("gemm_tiled_opt__i8", "paged_causal_conv1d::ref___f16")),
        ("NPU", ("DPU", "Shave", "DMA")),
    ],
)
def test_openvinos_own_names_of_a_devices_primitives_prove_it(
    device: str, primitives: tuple[str, ...]
) -> None:
    placement = openvino(device, *primitives)
    assert (placement.verdict, placement.share) == ("proved", 0.9)
    assert "OpenVINO's primitives" in placement.evidence


@pytest.mark.parametrize(
    ("device", "own", "stranger"),
    [("GPU", "jit:gemm:any__f16", "generic_eltwise_ref"), ("NPU", "DPU", "gemm_tiled_opt__f16")],
)
def test_time_of_an_unnamed_primitive_counts_against_openvinos_device(
    device: str, own: str, stranger: str
) -> None:
    placement = openvino(device, (own, 60), (stranger, 40))
    assert placement.verdict == "proved"
    assert placement.share == pytest.approx(0.9 * 0.6)
    alone = openvino(device, stranger)
    assert (alone.verdict, alone.why) == ("inferred", f"no primitive tells that it ran on {device}")


def test_what_the_gpus_plugin_ran_on_the_host_leaves_a_doubt() -> None:
    placement = openvino("GPU", "jit:gemm:any__f16", ("CPU", 0))
    assert placement.verdict == "inferred"
    assert placement.why == "OpenVINO ran a part of it on the host instead of GPU"


@pytest.mark.parametrize("device", ["GPU.1", "NPU"])
def test_openvino_that_ran_on_its_cpu_inside_is_refused(device: str) -> None:
    placement = openvino(device, "jit_gemm_f16__f16", "DPU", "brgemm_avx512_amx_bf16")
    assert (placement.verdict, placement.share) == ("unproved", None)
    assert placement.why is not None
    assert "its CPU device: brgemm_avx512_amx_bf16" in placement.why


VITIS = str(row("ort-vitisai").provider_name)
ON_NPU = Part(398, frozenset({"Add", "Conv", "MatMul"}))
EDGES = frozenset({"DequantizeLinear", "QuantizeLinear"})


def vitisai(
    parts: dict[str, Part] | None, *kernels: Kernel, runs: int = 1, why: str | None = None
) -> Placement:
    ran = kernels or (kernel("fused_0", 90, VITIS),)
    report = None if parts is None else VitisReport(parts)
    found = evidence(ran, {VITIS: ["MatMul"]}, runs=runs, vitisai=report, untold=why)
    return prove(found, row("ort-vitisai"), {})


def test_vitisai_that_gave_the_npu_everything_is_proved_by_its_report() -> None:
    placement = vitisai({"NPU": ON_NPU})
    assert (placement.verdict, placement.share) == ("proved", 1.0)
    assert placement.evidence == "graph assignment and profile, Vitis AI's report"


@pytest.mark.parametrize("where", ["CPU", "VITIS_EP_CPU"])
def test_vitisai_that_gave_the_npu_nothing_ran_on_the_wrong_device(where: str) -> None:
    with pytest.raises(WrongDevice, match=f"none of the graph's 400 .*{where} 400"):
        vitisai({where: Part(400, EDGES | {"Conv"})})


def test_vitisai_without_a_report_is_concluded_and_says_why() -> None:
    for why in ("Vitis AI's report is too large to be read", None):
        placement = vitisai(None, why=why)
        assert (placement.verdict, placement.share) == ("inferred", 1.0)
        assert placement.why == (why or "Vitis AI wrote no report of where its operators run")


def test_operators_that_vitisai_runs_on_the_cpu_itself_count_against_it() -> None:
    one = (
        kernel("QuantizeLinear", 6, VITIS),
        kernel("fused_0", 80, VITIS),
        kernel("DequantizeLinear", 4, VITIS),
        kernel("Hardmax", 10, CPU),
    )
    parts = {"NPU": ON_NPU, "VITIS_EP_CPU": Part(2, EDGES), "CPU": Part(1, frozenset({"Hardmax"}))}
    placement = vitisai(parts, *one, *one, runs=2)
    assert placement.verdict == "proved"
    assert placement.share == pytest.approx(0.8)


@pytest.mark.parametrize(
    "kernels",
    [
        (kernel("fused_0", 90, VITIS),),
        (kernel("QuantizeLinear", 6, VITIS), kernel("fused_0", 90, VITIS)),
        (kernel("QuantizeLinear", 6, VITIS), kernel("DequantizeLinear", 6, VITIS)),
    ],
)
def test_vitisai_whose_own_cpu_is_not_timed_apart_is_concluded(kernels: tuple[Kernel, ...]) -> None:
    placement = vitisai({"NPU": ON_NPU, "VITIS_EP_CPU": Part(2, EDGES)}, *kernels)
    assert placement.verdict == "inferred"
    assert placement.why == (
        "Vitis AI ran 2 of 400 operators on the CPU itself, and the profile does not tell their "
        "time apart (NPU 398, VITIS_EP_CPU 2)"
    )


def test_a_report_and_a_profile_that_disagree_prove_nothing() -> None:
    left = vitisai({"NPU": ON_NPU, "CPU": Part(2, EDGES)})
    assert left.verdict == "inferred"
    assert left.why is not None
    assert "left 2 operators to the CPU, and the profile shows none" in left.why
    strange = vitisai({"NPU": ON_NPU, "TPU": Part(2, EDGES)})
    assert strange.verdict == "inferred"
    assert strange.why == "Vitis AI's report names devices that are unknown: TPU"


def test_a_report_never_stands_for_the_runtimes_own_assignment() -> None:
    found = evidence(
        [kernel("fused_0", 90, VITIS)],
        {VITIS: ["MatMul"]},
        ops=["MatMul", "Conv"],
        vitisai=VitisReport({"NPU": ON_NPU}),
    )
    assert prove(found, row("ort-vitisai"), {}).verdict == "unproved"


def test_openvino_on_the_cpu_has_no_other_device_to_turn_to() -> None:
    assert openvino("CPU", "brgemm_avx512_f32").verdict == "proved"


@pytest.mark.parametrize(
    ("name", "device", "verdict"),
    [
        ("ort-coreml", {"compute_units": "CPUAndNeuralEngine"}, "inferred"),
        ("ort-coreml", {"compute_units": "CPUOnly"}, "proved"),
        ("ort-vitisai", {}, "inferred"),
        ("ort-cuda", {}, "proved"),
        ("ort-ggml", {}, "proved"),
    ],
)
def test_a_provider_that_chooses_unseen_is_not_proved(
    name: str, device: dict[str, Any], verdict: str
) -> None:
    own = str(row(name).provider_name)
    found = evidence([kernel("part", 90, own)], {own: ["MatMul"]}, run_us=100)
    assert prove(found, row(name), device).verdict == verdict


def test_a_stranger_is_not_known_to_stay_on_its_device() -> None:
    stranger = third_party("npu_ep", "NewNpuExecutionProvider", "npu-ep")
    own = str(stranger.provider_name)
    found = evidence([kernel("part", 9, own)], {own: ["MatMul"]}, run_us=10)
    assert prove(found, stranger, {}).verdict == "inferred"


class _Session:
    def __init__(self, parts: Any) -> None:
        self._parts = parts

    def get_provider_graph_assignment_info(self) -> Any:
        if isinstance(self._parts, Exception):
            raise self._parts
        return self._parts


def part(name: str, *ops: str) -> Any:
    nodes = [SimpleNamespace(op_type=op, domain="", name=op.lower()) for op in ops]
    return SimpleNamespace(ep_name=name, get_nodes=lambda: nodes)


def test_the_assignment_is_read_node_by_node() -> None:
    nodes, why = read_assignment(_Session([part("A", "MatMul", "Relu"), part(CPU, "Hardmax")]))
    assert why is None
    assert nodes == (
        AssignedNode("A", "MatMul", "matmul"),
        AssignedNode("A", "Relu", "relu"),
        AssignedNode(CPU, "Hardmax", "hardmax"),
    )
    assert assigned_counts(nodes) == {"A": {"MatMul": 1, "Relu": 1}, CPU: {"Hardmax": 1}}


def test_an_assignment_that_was_not_recorded_or_is_unknown_is_said() -> None:
    assert read_assignment(_Session(RuntimeError("not\nenabled"))) == (
        None,
        "what was assigned was not recorded: not enabled",
    )
    nodes, why = read_assignment(object())
    assert nodes is None
    assert why is not None
    assert "1.24 or newer" in why
    assert assigned_counts(None) is None
