from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from npumark.engines import integer_probe
from npumark.engines.integer_probe import (
    ACTIVATIONS,
    DEPTH,
    ROWS,
    WIDTH,
    integer_input,
    integer_model,
    multiplied_integers,
)
from tests.int8_sums import needs_whole_sums

BOTH = (integer_probe._COARSE, integer_probe._FINE)


def operands(steps: float) -> tuple[np.ndarray, np.ndarray]:
    """Return activations [ROWS, DEPTH] and weights [DEPTH, ROWS] as a dequantiser gives them."""
    sums = integer_probe._sums(steps)
    x = (sums.activations * integer_probe._X_SCALE).astype(np.float32)
    return x, (sums.weights.T * integer_probe._W_SCALE).astype(np.float32)


def shown(products: list[np.ndarray]) -> list[np.ndarray]:
    """Quantise products [ROWS, ROWS] as the graph does, and return its outputs."""
    found = []
    for product, steps in zip(products, BOTH, strict=True):
        step = float(integer_probe._step(steps))
        y = np.zeros((ROWS, WIDTH), np.float32)
        y[:, :ROWS] = np.rint(product / step).clip(-128, 127) * step
        found.append(y)
    return found


def whole_sums() -> list[np.ndarray]:
    found = []
    for steps in BOTH:
        sums = integer_probe._sums(steps)
        total = sums.activations @ sums.weights.T
        found.append(total * float(integer_probe._X_SCALE) * float(integer_probe._W_SCALE))
    return found


def in_lanes(lanes: int) -> list[np.ndarray]:
    """Sum in FP32, in ``lanes`` lanes whose sums are then added in pairs."""
    found = []
    for x, w in map(operands, BOTH):
        total = np.zeros((ROWS, ROWS, lanes), np.float32)
        for k in range(0, DEPTH, lanes):
            total += x[:, None, k : k + lanes] * w[k : k + lanes].T[None]
        while total.shape[2] > 1:
            half = total.shape[2] // 2
            total = total[:, :, :half] + total[:, :, half:]
        found.append(total[:, :, 0])
    return found


def test_integers_are_exact() -> None:
    assert multiplied_integers(shown(whole_sums())) is True


def test_a_half_step_may_be_rounded_either_way() -> None:
    off = [
        y + float(integer_probe._step(s)) for y, s in zip(shown(whole_sums()), BOTH, strict=True)
    ]
    assert multiplied_integers(off) is True


@pytest.mark.parametrize("lanes", [1, 4, 16, 64, 512])
def test_fp32_is_never_taken_for_integers(lanes: int) -> None:
    assert multiplied_integers(shown(in_lanes(lanes))) is not True


def test_fp32_by_numpys_own_product_is_not_taken_for_integers() -> None:
    assert multiplied_integers(shown([x @ w for x, w in map(operands, BOTH)])) is not True


@pytest.mark.parametrize("bits", [8, 11])
def test_operands_of_16_bits_are_refused_however_well_they_are_summed(bits: int) -> None:
    def rounded(a: np.ndarray) -> np.ndarray:
        fraction, exponent = np.frexp(a.astype(np.float64))
        return np.asarray(np.ldexp(np.rint(np.ldexp(fraction, bits)), exponent - bits))

    products = [rounded(x) @ rounded(w) for x, w in map(operands, BOTH)]
    assert multiplied_integers(shown(products)) is False


def test_a_runtime_that_cannot_make_fine_steps_stays_open() -> None:
    coarse, fine = shown(whole_sums())
    assert multiplied_integers([coarse, np.zeros_like(fine) + 1]) is None


@pytest.mark.parametrize(
    "outputs", [[], [np.zeros((ROWS, WIDTH))], [np.zeros((2, 2)), np.zeros((2, 2))]]
)
def test_outputs_of_another_shape_tell_nothing(outputs: list[Any]) -> None:
    assert multiplied_integers(outputs) is None


@pytest.mark.parametrize("fill", [np.nan, np.inf])
def test_answers_of_no_worth_are_refused(fill: float) -> None:
    assert multiplied_integers([np.full((ROWS, WIDTH), fill)] * 2) is False


def test_factors_and_sums_fit_their_integers() -> None:
    for steps in BOTH:
        sums = integer_probe._sums(steps)
        assert np.abs(sums.activations).max() <= 127
        assert np.abs(sums.weights).max() <= 127
        products = sums.activations * sums.weights
        assert np.array_equal(products.sum(axis=1), sums.answers)
        assert np.abs(products).sum(axis=1).max() < 2**31
        assert np.abs(sums.answers * steps).max() <= 127
    assert len({integer_probe._sums(s).activations.tobytes() for s in BOTH}) == 1


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_model_is_valid_and_its_input_lies_on_the_steps(activation: str) -> None:
    onnx.checker.check_model(onnx.load_from_string(integer_model(activation)), full_check=True)
    steps = integer_input() / integer_probe._X_SCALE
    assert np.abs(steps - np.rint(steps)).max() < 1e-3


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_onnx_runtime_without_its_fusions_is_floating_point(activation: str) -> None:
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(
        integer_model(activation), options, providers=["CPUExecutionProvider"]
    )
    assert multiplied_integers(session.run(["y", "z"], {"x": integer_input()})) is not True


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_openvino_multiplies_integers(activation: str) -> None:
    ov = pytest.importorskip("openvino")
    needs_whole_sums("int8")
    core = ov.Core()
    model = core.read_model(integer_model(activation))
    compiled = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    found = compiled.create_infer_request().infer({0: integer_input()})
    assert multiplied_integers([found[0], found[1]]) is True
