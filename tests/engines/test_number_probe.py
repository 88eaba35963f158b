from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npumark.engines import number_probe
from npumark.engines.number_probe import DEPTH, LADDER, ROWS, WIDTH, classify, product

Round = Callable[[np.ndarray], np.ndarray]
Dot = Callable[[np.ndarray, np.ndarray], np.ndarray]


def significand(bits: int, *, truncate: bool = False) -> Round:
    """Keep ``bits`` bits of every value, to the nearest even, or cut off; the range stays."""

    def rounded(a: np.ndarray) -> np.ndarray:
        fraction, exponent = np.frexp(a.astype(np.float64))
        scaled = np.ldexp(fraction, bits)
        kept = np.trunc(scaled) if truncate else np.rint(scaled)
        return np.asarray(np.ldexp(kept, exponent - bits))

    return rounded


def half(a: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return a.astype(np.float16).astype(np.float64)


def saturating_half(a: np.ndarray) -> np.ndarray:
    return half(np.clip(a, -65504, 65504))


def whole(a: np.ndarray) -> np.ndarray:
    return a.astype(np.float32).astype(np.float64)


def int8_of_rows(a: np.ndarray) -> np.ndarray:
    return _int8(a, axis=1)


def int8_of_columns(a: np.ndarray) -> np.ndarray:
    return _int8(a, axis=0)


def int8_of_all(a: np.ndarray) -> np.ndarray:
    return _int8(a, axis=None)


def _int8(a: np.ndarray, axis: int | None) -> np.ndarray:
    peak = np.abs(a).max(axis=axis, keepdims=True)
    scale = np.where(peak == 0, 1, peak / 127)
    return np.asarray(np.rint(a / scale) * scale)


def block_of_16(a: np.ndarray) -> np.ndarray:
    """Give every 16 neighbours of a row one exponent and 8 bits each."""
    blocks = a.reshape(a.shape[0], -1, 16)
    peak = np.abs(blocks).max(axis=2, keepdims=True)
    step = np.exp2(np.floor(np.log2(np.where(peak == 0, 1, peak))) - 6)
    return np.asarray(np.rint(blocks / step) * step).reshape(a.shape)


def in_order(carry: Round) -> Dot:
    """Sum one product after the other, each partial sum rounded."""

    def dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        total = np.zeros((a.shape[0], b.shape[1]))
        with np.errstate(invalid="ignore", over="ignore"):
            for k in range(a.shape[1]):
                total = carry(total + a[:, k : k + 1] * b[k])
        return total

    return dot


def in_lanes(carry: Round, lanes: int) -> Dot:
    """Sum in ``lanes`` lanes, then their halves pairwise, as vector units do."""

    def dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        totals = [in_order(carry)(a[:, i::lanes], b[i::lanes]) for i in range(lanes)]
        with np.errstate(invalid="ignore", over="ignore"):
            while len(totals) > 1:
                low, high = totals[: len(totals) // 2], totals[len(totals) // 2 :]
                totals = [carry(one + other) for one, other in zip(low, high, strict=True)]
        return totals[0]

    return dot


def run(
    operand: Round, result: Round, dot: Dot, io: str = "float32", weight: Round | None = None
) -> number_probe.Verdict:
    told = product(io)
    weight = weight or operand

    def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore", over="ignore"):
            return result(dot(operand(a), weight(b.astype(np.float64))))

    x = told.x.astype(np.float64)
    outputs = [multiply(x, told.w), multiply(multiply(x, told.u), told.v)]
    with np.errstate(over="ignore"):
        return classify([out.astype(io) for out in outputs], io)


FP32_SUMS = (in_order(whole), in_lanes(whole, 16), np.matmul)
FP16_SUMS = (in_order(half), in_lanes(half, 8), in_lanes(half, 32))


@pytest.mark.parametrize("dot", FP32_SUMS)
@pytest.mark.parametrize(
    ("operand", "result", "family"),
    [
        (whole, whole, "FP32"),
        (significand(11), whole, "TF32"),
        (significand(11, truncate=True), whole, "TF32"),
        (half, half, "FP16"),
        (half, whole, "FP16"),
        (saturating_half, saturating_half, "FP16"),
        (significand(8), significand(8), "BF16"),
        (significand(8), whole, "BF16"),
        (significand(8, truncate=True), whole, "BF16"),
    ],
)
def test_each_format_is_told_with_fp32_sums(
    operand: Round, result: Round, family: str, dot: Dot
) -> None:
    verdict = run(operand, result, dot)
    assert (verdict.family, verdict.why, verdict.accumulator) == (family, None, "FP32")


@pytest.mark.parametrize("dot", FP16_SUMS)
def test_fp16_sums_are_told_from_fp32_ones(dot: Dot) -> None:
    verdict = run(half, half, dot)
    assert (verdict.family, verdict.accumulator) == ("FP16", "narrower")
    assert verdict.facts is not None
    assert not verdict.facts.wide_sums


def test_bf16_sums_are_told_from_fp32_ones() -> None:
    verdict = run(significand(8), significand(8), in_order(significand(8)))
    assert (verdict.family, verdict.accumulator) == ("BF16", "narrower")


@pytest.mark.parametrize(
    ("operand", "result", "family"),
    [
        (whole, whole, "FP32"),  # the graph's FP16 is only its storage
        (significand(11), whole, "TF32"),
        (half, half, "FP16"),
        (significand(8), significand(8), "BF16"),
    ],
)
def test_a_16_bit_graph_tells_what_computes_it(operand: Round, result: Round, family: str) -> None:
    verdict = run(operand, result, np.matmul, "float16")
    assert (verdict.family, verdict.accumulator) == (family, "FP32")


def test_a_16_bit_graph_shows_fp16_sums_too() -> None:
    verdict = run(half, half, in_order(half), "float16")
    assert (verdict.family, verdict.accumulator) == ("FP16", "narrower")


@pytest.mark.parametrize(
    ("operand", "weight"),
    [
        (int8_of_rows, int8_of_columns),
        (int8_of_all, int8_of_all),
        (whole, int8_of_columns),
        (int8_of_rows, whole),
        (block_of_16, block_of_16),
    ],
)
def test_integers_and_blocks_are_no_floating_point(operand: Round, weight: Round) -> None:
    verdict = run(operand, whole, np.matmul, weight=weight)
    assert verdict.family is None
    assert verdict.why is not None
    assert "share a scale" in verdict.why


def test_a_last_bit_that_is_off_everywhere_is_no_other_format() -> None:
    verdict = run(half, lambda a: half(a) * (1 + 2.0**-23), np.matmul)
    assert (verdict.family, verdict.accumulator) == ("FP16", "FP32")


def test_two_formats_at_once_are_named_and_not_claimed() -> None:
    verdict = run(whole, whole, np.matmul, weight=half)
    assert verdict.family is None
    assert verdict.why == "activations are multiplied as FP32, weights as FP16"


@given(st.sampled_from(LADDER), st.sampled_from(LADDER), st.booleans())
def test_the_bits_that_survive_are_counted(activation: int, weight: int, cut: bool) -> None:
    operand = significand(activation, truncate=cut)
    facts = run(operand, whole, np.matmul, weight=significand(weight, truncate=cut)).facts
    assert facts is not None
    assert (facts.activation_bits, facts.weight_bits) == (activation, weight)
    assert facts.inner_bits == activation
    assert (facts.activation_wide, facts.weight_wide, facts.inner_wide) == (True, True, True)


@given(st.sampled_from([n for n in LADDER if n not in (8, 11, 24)]))
def test_a_length_of_no_known_format_gets_no_family(bits: int) -> None:
    verdict = run(significand(bits), whole, np.matmul)
    assert verdict.family is None
    assert verdict.accumulator is None


def exact() -> list[np.ndarray]:
    told = product()
    return [told.x @ told.w, (told.x @ told.u) @ told.v]


@given(st.integers(0, len(LADDER) - 2))
def test_a_gap_in_the_ladder_is_a_contradiction(at: int) -> None:
    y, z = exact()
    y[at, at] = 0
    verdict = classify([y, z])
    assert verdict.family is None
    assert verdict.why == "an activation keeps a long significand and loses a shorter one"


@pytest.mark.parametrize("fill", [np.nan, np.inf, 0.0])
def test_answers_of_no_worth_get_no_family(fill: float) -> None:
    assert classify([np.full((ROWS, WIDTH), fill, np.float32)] * 2).family is None


@pytest.mark.parametrize("outputs", [[], [np.zeros((ROWS, WIDTH))], [np.zeros((2, 2))] * 2])
def test_outputs_of_another_shape_get_no_family(outputs: list[Any]) -> None:
    verdict = classify(outputs)
    assert (verdict.family, verdict.facts) == (None, None)
    assert verdict.why is not None


def test_every_sum_is_exact_in_fp32_in_any_order() -> None:
    told = product()
    terms = np.abs(told.x.astype(np.float64))[:, :, None] * np.abs(told.w)[None]
    sums = number_probe._questions()
    first = len(sums.activation) + len(sums.weight)
    for at in range(first, first + len(sums.sums)):
        assert terms[at, :, at].sum() * 256 < 2**24


@pytest.mark.parametrize("io", ["float32", "float16"])
def test_the_model_is_valid_and_holds_the_operands(io: str) -> None:
    model = onnx.load_from_string(number_probe.probe_model(io))
    onnx.checker.check_model(model, full_check=True)
    told = product(io)
    assert told.x.shape == (ROWS, DEPTH)
    for tensor in model.graph.initializer:
        held = onnx.numpy_helper.to_array(tensor)
        assert held.dtype == io
        assert np.array_equal(held, getattr(told, tensor.name))
        assert np.isfinite(held).all()


@pytest.mark.parametrize("io", ["float32", "float16"])
def test_onnx_runtime_computes_both_graphs_in_fp32_on_its_cpu_provider(io: str) -> None:
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(number_probe.probe_model(io), providers=["CPUExecutionProvider"])
    verdict = classify(session.run(None, {"x": product(io).x}), io)
    assert (verdict.family, verdict.accumulator) == ("FP32", "FP32")


@pytest.mark.parametrize("hint", ["f32", "bf16", "f16"])
def test_openvino_computes_in_the_format_that_it_says(hint: str) -> None:
    ov = pytest.importorskip("openvino")
    core = ov.Core()
    compiled = core.compile_model(
        core.read_model(number_probe.probe_model()), "CPU", {"INFERENCE_PRECISION_HINT": hint}
    )
    said = str(compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name())
    found = compiled.create_infer_request().infer({0: product().x})
    verdict = classify([found[0], found[1]])
    names = {"f32": "FP32", "bf16": "BF16", "f16": "FP16"}
    assert (verdict.family, verdict.accumulator) == (names[said], "FP32")
