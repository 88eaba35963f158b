"""The eval set in memory: inputs as the graph takes them, references as they are stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from npumark.errors import PackError
from npumark.pack.manifest import EvalSet, StoredTensor, TensorSpec
from npumark.worker.timed_loop import Sample

Array = npt.NDArray[Any]


def open_tensor(root: Path, tensor: StoredTensor) -> Array:
    """Return the stored array, memory-mapped read-only, shape [samples, ...].

    Raises PackError where the file's size is not that of the declared shape and type.
    """
    dtype = np.dtype(tensor.dtype).newbyteorder("<")
    path = root / tensor.file
    wanted = int(np.prod(tensor.shape, dtype=np.int64)) * dtype.itemsize
    if path.stat().st_size != wanted or wanted == 0:
        raise PackError(
            f"{tensor.file} does not hold {tensor.dtype}{list(tensor.shape)}", path=tensor.file
        )
    return np.memmap(path, dtype=dtype, mode="r", shape=tensor.shape)


def load_inputs(root: Path, eval_set: EvalSet, specs: tuple[TensorSpec, ...]) -> list[Sample]:
    """Return every input, one tuple per sample in the order and types of ``specs``.

    Transforms, casts and changes of layout happen here, once and untimed. Raises PackError
    where the set lacks an input of the graph, or holds one of another shape.
    """
    stored = {tensor.name: tensor for tensor in eval_set.inputs}
    columns = []
    for spec in specs:
        if spec.name not in stored:
            raise PackError(f"the eval set lacks the graph's input {spec.name}")
        columns.append(_column(root, stored[spec.name], spec, eval_set.n))
    return list(zip(*columns, strict=True))


def load_references(root: Path, eval_set: EvalSet) -> tuple[Array, ...]:
    """Return the reference outputs, memory-mapped, each [samples, ...]."""
    return tuple(open_tensor(root, tensor) for tensor in eval_set.references)


def load_mu(root: Path, eval_set: EvalSet) -> tuple[Array, ...]:
    """Return the mean reference outputs over the calibration inputs; empty means zero."""
    return tuple(open_tensor(root, tensor) for tensor in eval_set.mu)


def _column(root: Path, tensor: StoredTensor, spec: TensorSpec, n: int) -> list[Array]:
    raw = open_tensor(root, tensor)
    if raw.shape[0] != n or raw[0].size != int(np.prod(spec.shape, dtype=np.int64)):
        raise PackError(
            f"{tensor.file} holds {list(raw.shape)}, which is not {n} inputs of {list(spec.shape)}",
            path=tensor.file,
        )
    if tensor.transform not in (None, "u8-centred"):
        raise PackError(f"unknown transform {tensor.transform!r}", path=tensor.file)
    column = []
    for sample in raw:
        value = np.asarray(sample)
        if tensor.transform == "u8-centred":
            value = value.astype(np.float32) / np.float32(128) - np.float32(1)
        value = value.astype(spec.dtype).reshape(spec.stored_shape)
        column.append(np.ascontiguousarray(value.transpose(spec.perm) if spec.perm else value))
    return column


class StoredLayout(Sequence[Array]):
    """An engine's outputs as the references are stored: transposed views, never copies.

    They are looked up at every access, so that an engine whose runtime makes new outputs at
    every call is seen with its latest.
    """

    def __init__(self, outputs: Sequence[Array], specs: Sequence[TensorSpec]) -> None:
        self._outputs = outputs
        self._perms = [spec.stored_perm for spec in specs]

    def __len__(self) -> int:
        return len(self._outputs)

    @overload
    def __getitem__(self, index: int) -> Array: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Array]: ...

    def __getitem__(self, index: int | slice) -> Array | Sequence[Array]:
        if isinstance(index, slice):
            return list(self)[index]
        output, perm = self._outputs[index], self._perms[index]
        # An output of another rank is the judge's to refuse.
        return output.transpose(perm) if perm and output.ndim == len(perm) else output

    def __iter__(self) -> Iterator[Array]:
        return (self[i] for i in range(len(self)))
