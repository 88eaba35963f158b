from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from npumark.engines.catalogue import PROVIDERS, Provider
from npumark.engines.number_probe import Verdict, product
from npumark.engines.onnx_graph import Node, OnnxGraph
from npumark.engines.ort import OnnxRuntime
from npumark.engines.ort_evidence import AssignedNode, Evidence
from npumark.engines.ort_numbers import (
    Numbers,
    ask_provider,
    ask_provider_for_integers,
    read_numbers,
    summary,
)
from npumark.engines.ort_profile import Inner, Kernel, Profile, Span
from npumark.engines.ort_session import open_session
from npumark.engines.qnn_profile import QnnProfile
from npumark.score.labels import format_label
from tests.engines.fake_ort import FakeOrt, FakeSession
from tests.engines.test_number_probe import significand
from tests.int8_sums import needs_whole_sums

CPU = "CPUExecutionProvider"
ROWS = {row.id: row for row in PROVIDERS}


def row(name: str) -> Provider:
    return ROWS[name]


def says(family: str | None, why: str | None = None) -> Callable[[str], Verdict]:
    return lambda _: Verdict(family, why)


def never(io: str) -> Verdict:
    raise AssertionError(f"nobody had to ask about {io}")


def undecided() -> bool | None:
    return None


def read(
    evidence: Evidence,
    name: str,
    declared: str,
    ask: Callable[[str], Verdict],
    integers: Callable[[], bool | None] = undecided,
) -> Numbers:
    return read_numbers(evidence, row(name), declared, ask, integers)


def layer(n: int, kind: str) -> list[Node]:
    """Return one product with what its operands come out of."""
    x, w = f"x{n}", f"w{n}"
    nodes = []
    if kind == "integer":
        nodes.append(Node("DequantizeLinear", f"{x}.dq", (f"{x}.q",), (f"{x}.dq",)))
        x = f"{x}.dq"
    if kind != "float":
        nodes.append(Node("DequantizeLinear", f"{w}.dq", (w,), (f"{w}.dq",)))
        w = f"{w}.dq"
    return [*nodes, Node("MatMul", f"mm{n}", (x, w), (f"y{n}",))]


def hidden(
    provider: str, kinds: str, *, elsewhere: tuple[str, ...] = (), io: str = "float32", **more: Any
) -> Evidence:
    """Return evidence of a graph that ``provider`` compiled into one kernel, but for the nodes
    named in ``elsewhere``, which the CPU provider got."""
    nodes = tuple(n for i, kind in enumerate(kinds.split()) for n in layer(i, kind))
    graph = OnnxGraph(nodes, ("x0",), ("y0",), frozenset(), io)
    assigned = tuple(
        AssignedNode(CPU if n.name in elsewhere else provider, n.op, n.name) for n in nodes
    )
    kernels = (Kernel("part_1", provider, Span(0, 90), (("float", (4, 4)),), ()),)
    return Evidence(Profile(kernels, 1, None), graph, assigned, **more)


QNN = str(row("ort-qnn").provider_name)
FOLDED = QnnProfile(1, 1, Counter({"x0.q": 5, "mm0": 9, "mm1": 9}))


def told(found: Numbers) -> tuple[str | None, str | None]:
    return found.formats.ran, found.formats.why


def test_floating_point_that_is_hidden_is_asked_of_the_provider() -> None:
    found = read(hidden(QNN, "float float"), "ort-qnn", "FP32", says("FP16"))
    assert told(found) == ("FP16", None)
    assert found.formats.by == "operators"
    assert found.formats.counts == {"MatMul(FP16)": 2}
    assert summary(found) == {"float32": {"family": "FP16", "why": None, "accumulator": None}}


def test_a_provider_that_gives_no_clear_answer_leaves_it_unknown() -> None:
    ask = says(None, "activations are multiplied as FP32, weights as FP16")
    found = read(hidden("ggml", "float"), "ort-ggml", "FP32", ask)
    assert told(found) == (None, "activations are multiplied as FP32, weights as FP16")
    assert found.formats.share == {"unknown": 1.0}


def test_a_type_that_no_product_asks_for_stays_unknown() -> None:
    found = read(hidden(QNN, "float", io="bfloat16"), "ort-qnn", "BF16", never)
    assert told(found) == (None, "no small product asks for bfloat16")


def test_integers_are_believed_where_no_dequantiser_ran_between_products() -> None:
    found = read(hidden(QNN, "integer integer", qnn=FOLDED), "ort-qnn", "INT8", never)
    assert told(found) == ("INT8", None)
    assert found.formats.counts == {"MatMul(INT8)": 2}


def test_a_dequantiser_that_ran_before_its_product_means_floating_point() -> None:
    ran = replace(FOLDED, cycles=FOLDED.cycles + Counter({"x0.dq": 7, "x1.dq": 7}))
    evidence = hidden(QNN, "integer integer", qnn=ran)
    assert told(read(evidence, "ort-qnn", "INT8", says("FP16"))) == (
        "FP16",
        None,
    )


@pytest.mark.parametrize("kind", ["integer", "weights"])
def test_weights_unpacked_elsewhere_are_multiplied_in_floating_point(kind: str) -> None:
    evidence = hidden(QNN, kind, elsewhere=("w0.dq",), qnn=FOLDED)
    assert told(read(evidence, "ort-qnn", "INT8", says("FP16"))) == (
        "FP16",
        None,
    )


def test_integers_without_a_witness_are_not_believed() -> None:
    for evidence in (
        hidden(QNN, "integer", qnn=None, untold="QNN wrote no profile"),
        hidden(QNN, "integer", qnn=QnnProfile(1, 0, Counter())),
    ):
        ran, why = told(read(evidence, "ort-qnn", "INT8", never))
        assert (ran, why) == (None, "the provider does not tell whether it multiplied integers")
    found = hidden("TensorrtExecutionProvider", "integer")
    assert told(read(found, "ort-tensorrt", "INT8", never))[0] is None


@pytest.mark.parametrize(("exact", "ran"), [(True, "INT8"), (False, "FP16"), (None, None)])
def test_exact_sums_are_integers_and_others_floating_point(
    exact: bool | None, ran: str | None
) -> None:
    evidence = hidden("TensorrtExecutionProvider", "integer integer")
    found = read(evidence, "ort-tensorrt", "INT8", says("FP16"), lambda: exact)
    assert found.formats.ran == ran
    assert summary(found).get("int8") is exact


def test_weights_in_few_bits_inside_a_hidden_part_are_not_claimed() -> None:
    ran, why = told(read(hidden(QNN, "weights"), "ort-qnn", "W8", never))
    assert ran is None
    assert why is not None
    assert "few bits" in why


def test_what_ran_elsewhere_votes_too() -> None:
    evidence = hidden(QNN, "integer float float", elsewhere=("mm1", "mm2"), qnn=FOLDED)
    outside = Kernel(
        "MatMul", CPU, Span(0, 5), (("float", (4, 4)), ("float", (4, 4))), (("float", (4, 4)),)
    )
    kernels = (*evidence.profile.kernels, outside, outside)
    evidence = replace(evidence, profile=replace(evidence.profile, kernels=kernels))
    found = read(evidence, "ort-qnn", "INT8", never)
    assert found.formats.ran == "FP32"
    assert found.formats.share == pytest.approx({"FP32": 2 / 3, "INT8": 1 / 3})


def test_what_was_renamed_on_its_way_elsewhere_votes_once() -> None:
    evidence = hidden(QNN, "integer integer integer", qnn=FOLDED)
    nodes = (
        *(n for n in evidence.assigned or () if n.name not in ("mm1", "mm2")),
        AssignedNode(CPU, "Gemm", "gemm_of_mm1"),
        AssignedNode(CPU, "Gemm", "gemm_of_mm2"),
    )
    outside = Kernel(
        "Gemm", CPU, Span(0, 5), (("float", (4, 4)), ("float", (4, 4))), (("float", (4, 4)),)
    )
    kernels = (*evidence.profile.kernels, outside, outside)
    evidence = replace(evidence, assigned=nodes, profile=replace(evidence.profile, kernels=kernels))
    found = read(evidence, "ort-qnn", "INT8", never)
    assert found.formats.ran == "FP32"
    assert found.formats.share == pytest.approx({"FP32": 2 / 3, "INT8": 1 / 3})


def test_an_untold_assignment_leaves_hidden_kernels_unknown() -> None:
    evidence = replace(hidden(QNN, "float"), assigned=None, unlisted="not recorded")
    assert told(read(evidence, "ort-qnn", "FP16", never)) == (
        None,
        "not recorded",
    )


def shown(op: str, kind: str) -> Evidence:
    provider = str(row("ort-cuda").provider_name)
    matrix = (kind, (4, 4))
    kernel = Kernel(op, provider, Span(0, 5), (matrix, matrix), (matrix,))
    graph = OnnxGraph(tuple(layer(0, "float")), ("x0",), ("y0",), frozenset(), "float32")
    return Evidence(Profile((kernel,), 1, None), graph, (AssignedNode(provider, op, "mm0"),))


@pytest.mark.parametrize("family", ["FP32", "TF32"])
def test_a_type_of_32_bits_may_be_multiplied_in_fewer(family: str) -> None:
    found = read(shown("MatMul", "float"), "ort-cuda", "FP32", says(family))
    assert told(found) == (family, None)
    assert found.formats.by == "macs"


def test_a_kernel_of_integers_is_believed_by_its_name() -> None:
    found = read(shown("QLinearMatMul", "uint8"), "ort-cuda", "INT8", never)
    assert told(found) == ("INT8", None)


@pytest.mark.parametrize(
    ("primitive", "ran"),
    [
        ("brgemm_avx512_amx_I8", "INT8"),
        ("brgemm_avx512_f32", "FP32"),
        ("brgemm_avx512_amx_bf16", "BF16"),
        ("something", None),
    ],
)
def test_openvino_names_its_primitives_inside(primitive: str, ran: str | None) -> None:
    own = str(row("ort-openvino").provider_name)
    evidence = hidden(own, "integer")
    inner = (Inner(own, "Subgraph", "jit_avx512_f32", 50), Inner(own, "MatMul", primitive, 9))
    evidence = replace(evidence, profile=replace(evidence.profile, inner=inner))
    assert read(evidence, "ort-openvino", "INT8", never).formats.ran == ran


class Cuda(FakeOrt):
    """CUDA's provider on a card with TF32, which it uses unless it is told not to."""

    def InferenceSession(self, *args: Any, **kwargs: Any) -> FakeSession:
        session = super().InferenceSession(*args, **kwargs)
        tf32 = self.opened[-1].options.get("use_tf32", "1") == "1"
        operand = significand(11) if tf32 else significand(24)
        told = product("float32")

        def run(names: list[str], feed: dict[str, Any]) -> list[Any]:
            def multiply(a: Any, b: Any) -> Any:
                return (operand(a) @ operand(b)).astype(np.float32)

            assert names == ["y", "z"]
            x = feed["x"]
            return [multiply(x, told.w), multiply(multiply(x, told.u), told.v)]

        session.run = run  # type: ignore[method-assign]
        return session


@pytest.mark.parametrize(
    ("handed", "ran", "label"),
    [("0", "FP32", "FP32"), ("1", "TF32", "FP32 (computed in TF32)")],
)
def test_cuda_is_named_by_what_it_multiplied_in(
    monkeypatch: pytest.MonkeyPatch, chain: Any, handed: str, ran: str, label: str
) -> None:
    cuda = row("ort-cuda")
    assert cuda.options["use_tf32"] == "0"
    target = replace(cuda, options={**cuda.options, "use_tf32": handed})
    runtime = Cuda(("CUDAExecutionProvider", CPU))
    monkeypatch.setitem(sys.modules, "onnxruntime", runtime)
    options = {"provider": "ort-cuda", "device": {"route": "name", "ordinal": 0}}
    request = replace(chain.request("ort-cuda-dgpu", "fp32"), options=options)
    found = read_numbers(
        shown("MatMul", "float"),
        target,
        "FP32",
        functools.partial(ask_provider, request, target),
        undecided,
    )
    assert told(found) == (ran, None)
    assert format_label("FP32", found.formats.ran) == label
    # The small product was asked with the options of the session that is timed.
    open_session(request, target)
    asked, timed = runtime.opened
    assert (asked.options, asked.threads) == (timed.options, timed.threads)
    assert asked.options["use_tf32"] == handed


@pytest.mark.parametrize("io", ["float32", "float16"])
def test_the_cpu_provider_answers_a_small_product(chain: Any, io: str) -> None:
    request = chain.request("ort-cpu", "fp32")
    OnnxRuntime().prepare()
    verdict = ask_provider(request, row("ort-cpu"), io)
    assert (verdict.family, verdict.accumulator) == ("FP32", "FP32")


def test_a_provider_that_cannot_be_asked_is_said(chain: Any) -> None:
    request = chain.request("ort-cpu", "fp32")
    verdict = ask_provider(request, row("ort-cuda"), "float32")
    assert verdict.family is None
    assert verdict.why is not None
    assert verdict.why.startswith("a small product could not be asked: ")


def test_the_cpu_provider_multiplies_unsigned_integers(chain: Any) -> None:
    needs_whole_sums("int8-u8s8")
    request = chain.request("ort-cpu", "int8-u8s8")
    assert ask_provider_for_integers(request, row("ort-cpu")) is True


@pytest.mark.parametrize("encoding", ["int8-s8s8", "int8-sym"])
def test_the_cpu_provider_unpacks_signed_activations_around_zero(chain: Any, encoding: str) -> None:
    request = chain.request("ort-cpu", "int8-s8s8", encoding)
    assert ask_provider_for_integers(request, row("ort-cpu")) is not True


def test_16_bit_activations_are_not_asked_about(chain: Any) -> None:
    request = chain.request("ort-cpu", "int8-a16w8")
    assert ask_provider_for_integers(request, row("ort-cpu")) is None


def test_an_absent_provider_leaves_it_open(chain: Any) -> None:
    needs_whole_sums("int8-u8s8")
    request = chain.request("ort-cpu", "int8-u8s8")
    assert ask_provider_for_integers(request, row("ort-cuda")) is None
