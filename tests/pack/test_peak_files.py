"""The chains' bytes: against an independent implementation's hashes, and by exact arithmetic."""

from __future__ import annotations

import hashlib
import io
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npumark.pack import peak_files, seeded
from npumark.pack.manifest import load_manifest
from npumark.pack.seeded import Chain

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "exact_reference.json").read_text()
)
CHEAP = [vector for vector in VECTORS if vector["D"] <= 2048]


@pytest.mark.parametrize("vector", CHEAP, ids=lambda v: v["workload"])
def test_tensors_match_an_independent_implementation(vector: dict[str, Any]) -> None:
    chain = Chain.parse(vector["workload"])
    assert (vector["M"], vector["shift"]) == seeded.he_grid(chain.width)
    for name, expected in vector["sha256"].items():
        if "reference" not in name:
            assert _sha(_tensor(chain, name)) == expected, name


def test_references_match_an_independent_implementation() -> None:
    for vector in CHEAP[:2]:
        chain = Chain.parse(vector["workload"])
        for name in peak_files.EVAL[: 2 if chain.width < 1024 else 1]:
            exact = seeded.reference(chain, name)
            expected = vector["sha256"]
            assert _sha(exact) == expected[f"{name} reference float32"]
            assert _sha(exact.astype("<f2")) == expected[f"{name} reference float16"]


def test_the_manifest_pins_the_vectors_inputs_and_references() -> None:
    """The manifest's hash of a whole file is that of its inputs one after the other."""
    files = load_manifest().files
    chain = Chain(16, 256, 3)
    for name, dtype, make in (
        ("inputs.f32", "<f4", seeded.inputs),
        ("references.f16", "<f2", seeded.reference),
    ):
        whole = np.stack([make(chain, name) for name in peak_files.EVAL]).astype(dtype)
        assert files[f"{chain.workload}/{name}"].sha256 == _sha(whole)


def test_the_written_files_are_the_tensors_in_order() -> None:
    chain = Chain(16, 256, 3)
    for form in ("fp32", "fp16"):
        out = io.BytesIO()
        peak_files.write_weights(chain, peak_files.weight_form(form), out)
        for placed in peak_files.layout(chain, peak_files.weight_form(form)):
            stored = np.frombuffer(out.getvalue(), placed.dtype, 256 * 256, placed.offset)
            exact = seeded.weights(chain, int(placed.name[1:])).astype(placed.dtype)
            assert np.array_equal(stored.reshape(placed.shape), exact)


def test_int8_rounds_exactly_and_scales_by_channel() -> None:
    chain = Chain(16, 256, 3)
    _, shift = seeded.he_grid(chain.width)
    integers = seeded.weight_integers(chain, 0)
    values, scale = peak_files.int8_layer(integers, shift)
    for column in range(0, 256, 31):
        top = int(np.abs(integers[:, column]).max())
        assert scale[column] == np.float32(Fraction(top, 127 * 2**shift))
        for row in range(0, 256, 7):
            exact = Fraction(127 * int(integers[row, column]), top)
            assert values[row, column] == round(exact)  # Fraction rounds half to even
    assert np.abs(values).max(axis=0).min() == 127


@given(
    st.lists(st.integers(-32767, 32767), min_size=1, max_size=64).filter(any),
)
def test_int8_rounding_is_exact_for_any_integers(column: list[int]) -> None:
    values, _ = peak_files.int8_layer(np.array(column, np.int32)[:, None], 0)
    top = max(map(abs, column))
    assert values[:, 0].tolist() == [round(Fraction(127 * k, top)) for k in column]


def test_calibration_never_sees_an_eval_input() -> None:
    assert not set(peak_files.CALIBRATION) & set(peak_files.EVAL)


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ValueError, match="int3"):
        peak_files.weight_form("int3")


def _tensor(chain: Chain, name: str) -> np.ndarray[Any, np.dtype[np.floating[Any]]]:
    tensor, dtype = name.split()
    if tensor.startswith("w"):
        return seeded.weights(chain, int(tensor[1:])).astype(np.dtype(dtype))
    return seeded.inputs(chain, tensor).astype(np.dtype(dtype))


def _sha(array: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
