"""A LiteRT model for one input per call, rewritten for several, in memory.

Resizing the inputs of a compiled model stops at shapes that are constants, as the pack's are. So
the file itself is changed (a FlatBuffer, by the schema of TensorFlow Lite): the leading dimension
of every tensor that an input reaches, and of the sizes that a Reshape or a Slice is given, is
multiplied. Numbers keep their places, so nothing else moves. As with ONNX graphs
(engines.onnx_batch), whoever uses the model compares every row's answers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from npumark.errors import EngineError

_OPERATOR_CODES, _SUBGRAPHS, _BUFFERS = 1, 2, 4
"""Fields of a model; those of its parts stand where they are read."""

_RESHAPE = 22
_SHAPE_OPERAND = {_RESHAPE: 1, 65: 2}
"""Operators that take a size with the batch in it (Reshape, Slice) -> which operand that is."""


def batched(raw: bytes, n: int) -> bytes:
    """Return the model in ``raw`` for ``n`` inputs per call.

    Raises EngineError where it is none.
    """
    data = bytearray(raw)
    try:
        for place in _leading_places(_Reader(data)):
            (size,) = struct.unpack_from("<i", data, place)
            if size > 0:  # -1 is what is left
                struct.pack_into("<i", data, place, size * n)
    except (struct.error, IndexError) as fault:
        raise EngineError(f"the model cannot be read as one of LiteRT's: {fault}") from fault
    return bytes(data)


def _leading_places(reader: _Reader) -> set[int]:
    """Return where the leading dimensions of what the inputs reach are written."""
    model = reader.root()
    codes = [_builtin(code) for code in model.tables(_OPERATOR_CODES)]
    buffers = list(model.tables(_BUFFERS))
    found = set()
    for subgraph in model.tables(_SUBGRAPHS):
        tensors = list(subgraph.tables(0))
        live = set(subgraph.numbers(1))
        for operator in subgraph.tables(3):
            inputs = operator.numbers(1)
            if live.isdisjoint(inputs):
                continue
            live.update(operator.numbers(2))
            code = codes[operator.number(0, "I")]
            options = operator.table(4)
            if code == _RESHAPE and options is not None:
                found |= _first(options, 0)
            operand = _SHAPE_OPERAND.get(code)
            if operand is not None and len(inputs) > operand:
                found |= _first(buffers[tensors[inputs[operand]].number(2, "I")], 0)
        for index in live:
            found |= _first(tensors[index], 0) | _first(tensors[index], 7)
    return found


def _builtin(code: _Table) -> int:
    # Older files have their operator in a field of one byte.
    return max(code.number(0, "b"), code.number(3, "i"))


def _first(table: _Table, field: int) -> set[int]:
    """Return where the first item of a vector stands; empty: there is none."""
    vector = table.vector(field)
    return {vector[0]} if vector is not None and vector[1] else set()


@dataclass(frozen=True, slots=True)
class _Reader:
    data: bytearray

    def unpack(self, kind: str, place: int) -> int:
        return int(struct.unpack_from(f"<{kind}", self.data, place)[0])

    def root(self) -> _Table:
        return _Table(self, self.unpack("I", 0))


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of a FlatBuffer: fields by their number, each absent or at a place of its own."""

    reader: _Reader
    place: int

    def number(self, field: int, kind: str) -> int:
        """Return a number, 0 where it is left out."""
        at = self._at(field)
        return 0 if at is None else self.reader.unpack(kind, at)

    def table(self, field: int) -> _Table | None:
        at = self._at(field)
        return None if at is None else _Table(self.reader, at + self.reader.unpack("I", at))

    def vector(self, field: int) -> tuple[int, int] | None:
        """Return where a vector's items begin and how many there are."""
        at = self._at(field)
        if at is None:
            return None
        start = at + self.reader.unpack("I", at)
        return start + 4, self.reader.unpack("I", start)

    def numbers(self, field: int) -> list[int]:
        start, count = self.vector(field) or (0, 0)
        return [self.reader.unpack("i", start + 4 * i) for i in range(count)]

    def tables(self, field: int) -> Iterator[_Table]:
        start, count = self.vector(field) or (0, 0)
        for at in range(start, start + 4 * count, 4):
            yield _Table(self.reader, at + self.reader.unpack("I", at))

    def _at(self, field: int) -> int | None:
        layout = self.place - self.reader.unpack("i", self.place)
        entry = 4 + 2 * field
        if entry >= self.reader.unpack("H", layout):
            return None
        offset = self.reader.unpack("H", layout + entry)
        return self.place + offset if offset else None
