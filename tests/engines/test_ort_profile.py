from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from npumark.engines.ort_profile import (
    MAX_EVENTS,
    Inner,
    Span,
    formats,
    parse_profile,
    read_profile,
)
from npumark.errors import EngineError

RUN = {"cat": "Session", "name": "model_run", "ts": 0, "dur": 1}


def node(
    op: str,
    us: int,
    provider: str | None = "CPUExecutionProvider",
    kinds: tuple[str, ...] = ("float",),
    shape: tuple[int, ...] = (4, 4),
    out: tuple[int, ...] = (4, 4),
) -> dict[str, Any]:
    args = {
        "op_name": op,
        "provider": provider,
        "input_type_shape": [{kind: list(shape)} for kind in kinds],
        "output_type_shape": [{"float": list(out)}],
    }
    return {"cat": "Node", "name": f"{op}_kernel_time", "ts": 7, "dur": us, "args": args}


def test_a_profile_with_other_runs_than_were_made_is_refused() -> None:
    with pytest.raises(EngineError, match="holds 1 calls, not 2"):
        parse_profile([RUN, node("Add", 1)], 2)


def test_a_capped_profile_is_refused() -> None:
    with pytest.raises(EngineError, match="capped"):
        parse_profile([RUN] * MAX_EVENTS, MAX_EVENTS)


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"cat": "Node", "name": "x_kernel_time"}]'])
def test_a_file_that_is_no_profile_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(EngineError):
        read_profile(tmp_path / "p.json", 1 if "Node" not in text else 0)


def test_a_profile_is_read_from_its_file(tmp_path: Path) -> None:
    event = node("MatMul", 3)
    event["args"]["thread_scheduling_stats"] = {"sub_threads": {"1": {}, "2": {}}}
    (tmp_path / "p.json").write_text(json.dumps([RUN, event]))
    profile = read_profile(tmp_path / "p.json", 1)
    assert profile.threads == 3
    assert profile.kernels[0].inputs == (("float", (4, 4)),)


def test_the_format_is_that_of_most_multiplications_however_long_they_took() -> None:
    def told(product_us: int) -> Any:
        events = [
            RUN,
            node("Conv", 100, kinds=("float", "float"), shape=(8, 4, 3, 3), out=(1, 8, 5, 5)),
            node("MatMulInteger", product_us, kinds=("uint8",), shape=(10, 200), out=(10, 3)),
        ]
        return formats(parse_profile(events, 1), "INT8")

    for product_us in (1, 10_000):
        found = told(product_us)
        assert (found.ran, found.by) == ("FP32", "macs")
        assert found.share == {"FP32": 7200 / 13200, "INT8": 6000 / 13200}


def test_the_format_is_that_of_most_multiplying_time_where_weights_are_not_listed() -> None:
    events = [
        RUN,
        node("QLinearConv", 60, kinds=("uint8",)),
        node("MatMul", 30),
        node("Softmax", 500),
    ]
    found = formats(parse_profile(events, 1), "INT8")
    assert found.ran == "INT8"
    assert found.share == {"INT8": pytest.approx(2 / 3), "FP32": pytest.approx(1 / 3)}
    assert found.counts["Softmax(float)"] == 1


@pytest.mark.parametrize(
    ("kind", "ran"), [("float", "FP32"), ("float16", "FP16"), ("bfloat16", "BF16")]
)
def test_a_float_multiplication_has_the_type_of_its_input(kind: str, ran: str) -> None:
    assert formats(parse_profile([RUN, node("Gemm", 5, kinds=(kind,))], 1), "FP16").ran == ran


def test_weights_unpacked_while_running_are_weight_only() -> None:
    events = [
        RUN,
        node("DequantizeLinear", 1, kinds=("int8", "float"), out=(4, 4)),
        node("MatMul", 5, kinds=("float", "float")),
    ]
    assert formats(parse_profile(events, 1), "W8").ran == "W8"
    # The same operators in a graph that claims 8-bit arithmetic are floating point.
    assert formats(parse_profile(events, 1), "INT8").ran == "FP32"
    assert formats(parse_profile([RUN, node("MatMulNBits", 5)], 1), "W8").ran == "W8"


def test_weights_unpacked_at_load_are_plain_floating_point() -> None:
    events = [RUN, node("MatMul", 5, kinds=("float",))]
    assert formats(parse_profile(events, 1), "W8").ran == "FP32"


def test_a_graph_without_multiplications_has_no_format() -> None:
    found = formats(parse_profile([RUN, node("Relu", 5)], 1), "FP32")
    assert found.ran is None
    assert found.why


def test_calls_and_what_providers_add_of_their_own_are_read() -> None:
    inside = {
        "cat": "Kernel",
        "name": "OV::mm0",
        "dur": 7,
        "args": {"ep": "X", "ov_node_type": "FullyConnected", "ov_exec_type": "brgemm_avx512_I8"},
    }
    profile = parse_profile([RUN, {**RUN, "ts": 9, "dur": 40}, inside, node("Relu", 3)], 2)
    assert profile.calls == (Span(0, 1), Span(9, 40))
    assert profile.kernels[0].span == Span(7, 3)
    assert profile.inner == (Inner("X", "FullyConnected", "brgemm_avx512_I8", 7),)


def test_a_provider_is_believed_about_its_own_floating_point() -> None:
    events = [RUN, node("MatMul", 5, "GPU"), node("MatMul", 5)]
    found = formats(parse_profile(events, 1), "FP32", {("GPU", "float"): "TF32"})
    assert found.share == {"FP32": 0.5, "TF32": 0.5}


@pytest.mark.parametrize(("declared", "ran"), [("W8", "W8"), ("INT4", "INT4"), ("INT8", "W8")])
def test_unpacked_weights_are_never_called_integers(declared: str, ran: str) -> None:
    events = [RUN, node("MatMulNBits", 5, kinds=("float", "uint8", "float"))]
    assert formats(parse_profile(events, 1), declared).ran == ran
