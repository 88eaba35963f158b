from __future__ import annotations

import pytest

from npumark.engines.openvino_evidence import Layer, family, formats, macs, multiplies, prove


@pytest.mark.parametrize(
    ("primitive", "expected"),
    [
        ("brgemm_avx512_amx_bf16", "BF16"),
        ("brgemm_avx512_f16", "FP16"),
        ("jit_avx512_dw_f32", "FP32"),
        ("brgconv_avx512_amx_1x1_I8", "INT8"),
        ("brgemm_avx512_i8", "INT8"),
        ("gemm_tiled_opt__f16", "FP16"),
        ("ref_any", None),
        ("", None),
    ],
)
def test_a_primitive_names_its_type(primitive: str, expected: str | None) -> None:
    assert family(primitive) == expected


def test_the_format_is_that_of_most_multiplications_however_long_they_took() -> None:
    for us in (1, 10_000):
        layers = [
            Layer("Convolution", "jit_avx512_I8", us, 70),
            Layer("FullyConnected", "brgemm_avx512_f32", 100, 30),
        ]
        found = formats(layers, "INT8", dynamic_quantisation=0)
        assert (found.ran, found.by) == ("INT8", "macs")
        assert found.share == {"INT8": 0.7, "FP32": 0.3}


@pytest.mark.parametrize(
    ("kind", "inputs", "expected"),
    [
        ("FullyConnectedCompressed", [(1, 40), (8, 40)], 320),
        ("Convolution", [(1, 3, 9, 9), (8, 3, 3, 3)], 8 * 49 * 27),
        ("GroupConvolution", [(1, 8, 9, 9), (8, 1, 1, 3, 3)], 8 * 49 * 9),
        ("Convolution", [(1, 3, 9, 9)], None),
        ("MHA", [(1, 8, 9, 9)], None),
    ],
)
def test_multiplications_are_counted_from_shapes(
    kind: str, inputs: list[tuple[int, ...]], expected: int | None
) -> None:
    output = (1, 8) if kind.startswith("Fully") else (1, 8, 7, 7)
    assert macs(kind, inputs, [output]) == expected
    assert macs(kind, [], []) is None


def test_the_format_is_that_of_most_multiplying_time_where_shapes_are_not_told() -> None:
    layers = [
        Layer("Convolution", "jit_avx512_I8", 70),
        Layer("FullyConnected", "brgemm_avx512_f32", 30),
        Layer("Softmax", "jit_avx512_f32", 900),
    ]
    found = formats(layers, "INT8", dynamic_quantisation=0)
    assert found.ran == "INT8"
    assert found.share == {"INT8": 0.7, "FP32": 0.3}


def test_compressed_weights_are_weight_only_unless_activations_are_quantised() -> None:
    layers = [Layer("FullyConnectedCompressed", "brgemm_avx512_f32", 5)]
    assert formats(layers, "W8", dynamic_quantisation=0).ran == "W8"
    for group in (32, None):
        found = formats(layers, "W8", dynamic_quantisation=group)
        assert found.ran is None
        assert found.why is not None
        assert "quantised on the fly" in found.why


def test_weights_unpacked_at_load_are_plain_floating_point() -> None:
    layers = [Layer("Convolution", "jit_avx512_f32", 5)]
    assert formats(layers, "W8", dynamic_quantisation=0).ran == "FP32"


def test_a_profiled_model_that_differs_proves_nothing_about_the_timed() -> None:
    layers = [Layer("FullyConnected", "brgemm_avx512_f32", 5)]
    assert formats(layers, "FP32", dynamic_quantisation=0, same_primitives=True).ran == "FP32"
    found = formats(layers, "FP32", dynamic_quantisation=0, same_primitives=False)
    assert found.ran is None
    assert found.why is not None


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("FullyConnected", True),
        ("FullyConnectedQuantizedLegacy", True),
        ("FullyConnectedCompressed", True),
        ("GroupConvolution", True),
        ("ScaledDotProductAttentionWithKVCache", True),
        ("Subgraph", False),
        ("Reorder", False),
    ],
)
def test_layers_that_multiply(kind: str, expected: bool) -> None:
    assert multiplies(kind) is expected


def test_what_does_not_tell_its_type_has_no_format() -> None:
    found = formats([Layer("MatMul", "DPU", 5)], "INT8", dynamic_quantisation=0)
    assert found.ran is None
    assert found.why is not None
    assert formats([], "INT8", dynamic_quantisation=0).ran is None


def test_layers_that_the_host_ran_count_against_the_gpu() -> None:
    layers = [Layer("MatMul", "gemm_tiled_opt__f16", 60), Layer("NMS", "cpu_impl__f32", 40)]
    placement = prove(layers, "GPU.0", ["GPU.0"])
    assert placement.verdict == "proved"
    assert placement.share == 0.6
    assert placement.op_share == 0.5


@pytest.mark.parametrize("executed_on", [[], ["CPU"], ["NPU", "CPU"]])
def test_another_device_or_none_proves_nothing(executed_on: list[str]) -> None:
    placement = prove([Layer("MatMul", "DPU", 5)], "NPU", executed_on)
    assert placement.verdict == "unproved"
    assert placement.share is None
    assert placement.why


def test_no_time_proves_nothing() -> None:
    assert prove([], "CPU", ["CPU"]).verdict == "unproved"
