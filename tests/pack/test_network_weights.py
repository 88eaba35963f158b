"""Weights from seeds and constants: exact values, exact bytes."""

from __future__ import annotations

import io
import lzma
from pathlib import Path

import numpy as np
import pytest

from npumark.pack import network_weights, seeded
from npumark.pack.network_weights import CONSTANTS, byte_sums, parse_constants, seeded_integers
from npumark.pack.weight_encoding import (
    ALIGNMENT,
    Encoder,
    Stored,
    int8_scale,
    int8_values,
    sections,
    write_sections,
)
from workloads.constants import TensorConstants, pack
from workloads.graph import Weight

CONV = Weight("a.weight", (5, 3, 3, 3), "conv", 135)
BIAS = Weight("a.bias", (5,), "bias", 5)


def test_integers_are_sums_of_four_bytes_of_the_stream() -> None:
    words = seeded.raw_stream("net", "a", 8)
    raw = np.frombuffer(words.astype("<u8").tobytes(), np.uint8).reshape(-1, 4)
    expected = raw.astype(np.int32).sum(axis=1) - 510
    assert byte_sums(words, 16).tolist() == expected.tolist()
    assert seeded_integers("net", "a", (3, 5)).reshape(-1).tolist() == expected[:15].tolist()


def test_integers_have_the_spread_that_the_recipe_assumes() -> None:
    drawn = seeded_integers("net", "spread", (200_000,))
    assert abs(float(drawn.mean())) < 1.5
    assert abs(float(drawn.std()) - 147.8) < 1
    assert drawn.min() >= -510
    assert drawn.max() <= 510


def _tensors() -> list[TensorConstants]:
    mantissa = np.array([1024, 1500, 2047, 2048, 1025], np.uint16)
    exponent = np.array([-18, -19, -20, -21, -18], np.int8)
    return [
        TensorConstants(CONV, "seeded", mantissa, exponent, centre=4),
        TensorConstants(BIAS, "dyadic", values=np.array([1, -2, 1024, 0, 5], np.int32)),
    ]


def test_values_are_exact_products() -> None:
    opened = parse_constants(pack("net", _tensors()))
    (_, weight), (_, bias) = opened.tensors()
    integers = seeded_integers("net", "a.weight", CONV.shape).astype(object)
    integers[:, :, 1, 1] *= 4
    scales = [1024 * 2.0**-18, 1500 * 2.0**-19, 2047 * 2.0**-20, 2048 * 2.0**-21, 1025 * 2.0**-18]
    for channel, scale in enumerate(scales):
        wide = integers[channel].astype(np.float64) * scale
        assert (weight[channel].astype(np.float64) == wide).all()
    assert bias.tolist() == [1 / 1024, -2 / 1024, 1.0, 0.0, 5 / 1024]


def test_fitted_rows_replace_their_channels() -> None:
    dense = Weight("head.weight", (4, 3), "dense", 12)
    rows = np.array([[1, -2, 3, -510]], np.int16)
    scale = np.full(3, 1024, np.uint16), np.full(3, -10, np.int8)
    index = np.array([1], np.int32)
    tensor = TensorConstants(dense, "seeded", *scale, rows=rows, row_index=index)
    value = tensor.value("net")
    assert value[:, 1].tolist() == [1.0, -2.0, 3.0, -510.0]
    plain = seeded_integers("net", "head.weight", (4, 3))
    assert value[:, 0].tolist() == plain[:, 0].tolist()


def test_int8_is_symmetric_per_output_channel() -> None:
    value = np.array([[0.5, -1.0], [-0.25, 127.0]], np.float32)
    scale = int8_scale(value, "dense")
    assert scale.tolist() == [np.float32(0.5) / np.float32(127), 1.0]
    assert int8_values(value, scale, "dense").tolist() == [[127, -1], [-64, 127]]
    assert int8_scale(value, "table").shape == ()
    assert int8_scale(np.zeros((2, 3), np.float32), "dense").tolist() == [1, 1, 1]


def test_a_bias_is_quantised_with_the_product_of_both_scales() -> None:
    encoder = Encoder("int8")
    list(encoder.encode(Stored("w", (1, 2), "dense"), np.array([[127, 254]], np.float32)))
    bias = Stored("b", (2,), "bias", of="w", input_scale=0.5)
    plain, quantised, step = encoder.encode(bias, np.array([3.0, -5.0], np.float32))
    assert plain.array.tolist() == [3.0, -5.0]
    assert quantised.array.tolist() == [6, -5]
    assert step.array.tolist() == [0.5, 1.0]


def test_sections_are_aligned_and_the_writer_agrees() -> None:
    opened = parse_constants(pack("net", _tensors(), partners={"a.bias": "a.weight"}))
    for form in ("fp32", "fp16", "int8"):
        out = io.BytesIO()
        write_sections(form, opened.tensors(), out)
        for section, offset in sections(form, opened.tensors()):
            assert offset % ALIGNMENT == 0
            found = out.getvalue()[offset : offset + section.array.nbytes]
            assert found == section.array.tobytes()


def test_weights_are_written_from_the_pack_root(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / CONSTANTS).write_bytes(pack("net", _tensors()))
    out = io.BytesIO()
    network_weights.write_weights(tmp_path, "net", "fp32", out)
    first = np.frombuffer(out.getvalue()[: 4 * CONV.size], "<f4")
    assert (first == _tensors()[0].value("net").reshape(-1)).all()


@pytest.mark.parametrize("data", [b"", b"nonsense", lzma.compress(b"\x05" + bytes(7) + b"{")])
def test_damaged_constants_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a network's constants"):
        parse_constants(data)


def test_unknown_formats_and_rules_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown weight format"):
        Encoder("fp8")
    opened = parse_constants(pack("net", _tensors()))
    with pytest.raises(ValueError, match="unknown rule"):
        opened.value({"name": "a", "rule": "magic", "shape": [1], "kind": "bias"})
