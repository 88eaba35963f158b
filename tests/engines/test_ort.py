from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from npumark.engines.base import LoadRequest
from npumark.engines.ort import OnnxRuntime, started
from npumark.errors import EngineError
from tests.int8_sums import needs_whole_sums


def snr_db(found: np.ndarray, reference: np.ndarray) -> float:
    reference = reference.astype(np.float64)
    noise = np.sum((found.astype(np.float64) - reference) ** 2)
    return float(10 * np.log10(np.sum(reference**2) / noise))


def observe(engine: OnnxRuntime, request: LoadRequest) -> Any:
    session = engine.load(request)
    session.step()()
    return session.observed()


def test_the_probe_lists_the_cpu_and_no_provider_that_is_only_compiled_in() -> None:
    infos = {info.id: info for info in OnnxRuntime().probe({})}
    assert not any("azure" in name for name in infos)
    info = infos["ort-cpu"]
    assert info.available
    assert info.processor["role"] == "CPU"
    assert info.versions["onnxruntime"] == info.version


@pytest.mark.parametrize(
    ("variant", "ran", "least_db"),
    [
        ("fp32", "FP32", 60),
        ("fp16", "FP32", 55),
        ("int8-u8s8", "INT8", 25),
        ("int8-s8s8", "INT8", 25),
        ("int8-a16w8", "W8", 25),  # 16-bit ranges stand beside a weight-only product
    ],
)
def test_the_format_that_ran_is_told_from_the_profile(
    chain: Any, variant: str, ran: str, least_db: float
) -> None:
    if variant != "int8-a16w8":  # whose products are of floating-point numbers
        needs_whole_sums(variant)
    engine = OnnxRuntime()
    request = chain.request("ort-cpu", variant)
    answers = chain.answers(engine, request)
    for answer, reference in zip(answers, chain.references(), strict=True):
        assert snr_db(answer, reference) > least_db
    observed = observe(engine, request)
    assert observed.precision == ran
    assert observed.device == "CPUExecutionProvider"
    assert observed.threads == 1
    placement = engine.placement(request, list(chain.feeds(request)[0]), 3)
    assert (placement.verdict, placement.share, placement.op_share) == ("proved", 1.0, 1.0)
    assert placement.partitions == 1


def test_weight_only_multiplies_in_floating_point(
    weight_only: Callable[[str], LoadRequest],
) -> None:
    request = weight_only("ort-cpu")
    observed = observe(OnnxRuntime(), request)
    assert observed.precision == "W8"
    assert not any("Dynamic" in op or "Integer" in op for op in observed.details["ops"])


def test_a_step_reads_its_input_in_place_and_fills_its_output(chain: Any) -> None:
    engine = OnnxRuntime()
    request = chain.request("ort-cpu", "fp32")
    session = engine.load(request)
    before = session.outputs()[0]
    first, second = (feed[0] for feed in chain.feeds(request))
    session.inputs()[0][...] = first
    session.step()()
    one = before.copy()
    session.inputs()[0][...] = second
    session.step()()
    assert session.outputs()[0] is before
    assert not np.array_equal(one, before)
    session.inputs()[0][...] = first
    session.step()()
    assert np.array_equal(one, before)


@pytest.mark.parametrize(("threads", "profiled"), [(1, None), (2, 2)])
def test_threads_are_read_back(chain: Any, threads: int, profiled: int | None) -> None:
    request = replace(chain.request("ort-cpu", "fp32"), threads=threads)
    observed = observe(OnnxRuntime(), request)
    assert observed.threads == threads
    assert observed.details["profiled_threads"] == profiled
    assert observed.details["started_threads"] == threads
    assert observed.details["threads_why"] is None


def test_threads_that_nothing_tells_are_unknown_and_not_those_asked_for(
    chain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("npumark.engines.ort.process_threads", lambda: None)
    observed = observe(OnnxRuntime(), chain.request("ort-cpu", "fp32"))
    assert observed.threads is None
    assert observed.details["requested_threads"] == 1
    assert observed.details["threads_why"]


@pytest.mark.parametrize(
    ("before", "after", "expected"), [(3, 3, 1), (3, 6, 4), (4, 3, None), (None, 3, None)]
)
def test_started_threads(before: int | None, after: int | None, expected: int | None) -> None:
    assert started(before, after) == expected


def test_threads_are_explicit(chain: Any) -> None:
    request = chain.request("ort-cpu", "fp32")
    with pytest.raises(EngineError, match="number of threads"):
        OnnxRuntime().load(replace(request, threads=None))


def test_an_engine_that_is_not_here_is_refused(chain: Any) -> None:
    with pytest.raises(EngineError, match="no engine ort-qnn-npu"):
        OnnxRuntime().load(chain.request("ort-qnn-npu", "fp32"))


def test_a_graph_that_is_none_is_an_engine_error(chain: Any) -> None:
    request = chain.request("ort-cpu", "fp32")
    with pytest.raises(EngineError):
        OnnxRuntime().load(replace(request, graph=request.graph.with_name("missing.onnx")))


def test_a_closed_session_runs_no_more(chain: Any) -> None:
    session = OnnxRuntime().load(chain.request("ort-cpu", "fp32"))
    session.close()
    with pytest.raises(EngineError, match="closed"):
        session.step()()
