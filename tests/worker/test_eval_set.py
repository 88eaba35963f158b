from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npumark.errors import PackError
from npumark.pack.manifest import EvalSet, StoredTensor, TensorSpec
from npumark.worker.eval_set import StoredLayout, load_inputs, open_tensor


def stored(root: Path, array: np.ndarray, transform: str | None = None) -> StoredTensor:
    (root / "x.bin").write_bytes(array.tobytes())
    return StoredTensor("x", "x.bin", str(array.dtype), array.shape, transform)


def eval_set(tensor: StoredTensor, n: int) -> EvalSet:
    return EvalSet(n, 0, (tensor,), (), (), {})


def test_pixels_are_centred_and_exact_in_float16(tmp_path: Path) -> None:
    pixels = np.arange(256, dtype=np.uint8).reshape(2, 1, 8, 16)
    spec = TensorSpec("x", "float16", (1, 1, 8, 16))
    found = load_inputs(tmp_path, eval_set(stored(tmp_path, pixels, "u8-centred"), 2), (spec,))
    assert len(found) == 2
    assert found[1][0].dtype == np.float16
    assert found[1][0].shape == (1, 1, 8, 16)
    exact = pixels.astype(np.float64) / 128 - 1
    assert np.array_equal(np.stack([f[0][0] for f in found]).astype(np.float64), exact)


def test_integers_are_widened_to_what_the_graph_takes(tmp_path: Path) -> None:
    ids = np.array([[1, 50000], [3, 4]], np.uint16)
    spec = TensorSpec("x", "int64", (1, 2))
    found = load_inputs(tmp_path, eval_set(stored(tmp_path, ids), 2), (spec,))
    assert found[0][0].tolist() == [[1, 50000]]
    assert found[0][0].dtype == np.int64


def test_a_file_of_another_size_is_refused(tmp_path: Path) -> None:
    tensor = stored(tmp_path, np.zeros((2, 3), np.float32))
    (tmp_path / "x.bin").write_bytes(b"\0" * 20)
    with pytest.raises(PackError, match=r"x\.bin does not hold"):
        open_tensor(tmp_path, tensor)


def test_inputs_that_do_not_fit_the_graph_are_refused(tmp_path: Path) -> None:
    tensor = stored(tmp_path, np.zeros((2, 3), np.float32))
    with pytest.raises(PackError, match="not 2 inputs"):
        load_inputs(tmp_path, eval_set(tensor, 2), (TensorSpec("x", "float32", (1, 4)),))
    with pytest.raises(PackError, match="not 3 inputs"):
        load_inputs(tmp_path, eval_set(tensor, 3), (TensorSpec("x", "float32", (1, 3)),))
    with pytest.raises(PackError, match="lacks the graph's input z"):
        load_inputs(tmp_path, eval_set(tensor, 2), (TensorSpec("z", "float32", (1, 3)),))


def test_an_unknown_transform_is_refused(tmp_path: Path) -> None:
    tensor = stored(tmp_path, np.zeros((2, 3), np.float32), "mirrored")
    with pytest.raises(PackError, match="mirrored"):
        load_inputs(tmp_path, eval_set(tensor, 2), (TensorSpec("x", "float32", (1, 3)),))


NHWC = (0, 2, 3, 1)


def test_a_graph_of_another_layout_gets_its_inputs_in_it(tmp_path: Path) -> None:
    pixels = np.arange(2 * 3 * 4 * 5, dtype=np.uint8).reshape(2, 3, 4, 5)
    spec = TensorSpec("x", "float32", (1, 4, 5, 3), NHWC)
    found = load_inputs(tmp_path, eval_set(stored(tmp_path, pixels), 2), (spec,))
    assert np.array_equal(found[1][0], pixels[1:].transpose(NHWC))
    assert found[1][0].flags.c_contiguous
    # Without the order of the axes the same bytes are another picture.
    plain = TensorSpec("x", "float32", (1, 4, 5, 3))
    other = load_inputs(tmp_path, eval_set(stored(tmp_path, pixels), 2), (plain,))
    assert not np.array_equal(other[1][0], found[1][0])


def test_outputs_are_shown_in_the_stored_layout_without_a_copy() -> None:
    rows = np.arange(60, dtype=np.float32).reshape(1, 3, 4, 5)
    output = np.ascontiguousarray(rows.transpose(NHWC))
    outputs = [output, np.ones((1, 2))]
    specs = (TensorSpec("y", "float32", (1, 4, 5, 3), NHWC), TensorSpec("z", "float32", (1, 2)))
    shown = StoredLayout(outputs, specs)
    assert np.array_equal(shown[0], rows)
    assert np.shares_memory(shown[0], output)
    assert [a.shape for a in shown[:2]] == [(1, 3, 4, 5), (1, 2)]
    # A runtime that makes new outputs is seen with its latest.
    outputs[0] = output + 1
    assert np.array_equal(next(iter(shown)), rows + 1)


def test_an_output_of_another_rank_is_left_to_the_judge() -> None:
    shown = StoredLayout([np.ones(60)], (TensorSpec("y", "float32", (1, 4, 5, 3), NHWC),))
    assert shown[0].shape == (60,)


def test_the_stored_shape_undoes_the_order_of_axes() -> None:
    assert TensorSpec("x", "float32", (1, 4, 5, 3), NHWC).stored_shape == (1, 3, 4, 5)
    assert TensorSpec("x", "float32", (5, 3, 4), (2, 0, 1)).stored_shape == (3, 4, 5)
    assert TensorSpec("x", "float32", (1, 4)).stored_shape == (1, 4)
