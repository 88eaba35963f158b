"""LiteRT on the smallest chain: right answers, told truly, and plain words where it cannot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="LiteRT is missing: pip install ai-edge-litert")

from npumark.engines import litert
from npumark.engines.base import CacheMemo, LoadRequest, Session
from npumark.engines.litert import LiteRt, open_model
from npumark.engines.litert_library import Library, NativeError, package_folder
from npumark.engines.litert_native import CPU, GPU, Model, Settings
from npumark.engines.one_node import SHAPE, one_node_model
from npumark.errors import EngineError, Unsupported
from npumark.pack.manifest import TensorSpec
from tests.engines.conftest import Chain

VARIANTS = pytest.mark.parametrize(
    ("variant", "ran", "snr_db"), [("litert-fp16", "FP32", 60), ("litert-int8", "INT8", 30)]
)


@pytest.fixture
def engine() -> LiteRt:
    made = LiteRt()
    made.prepare()
    return made


def snr_db(chain: Chain, answers: list[Any]) -> float:
    reference = chain.references().astype(np.float64)
    error = np.stack(answers).astype(np.float64) - reference
    return float(10 * np.log10(np.square(reference).sum() / np.square(error).sum()))


@VARIANTS
def test_answers_are_right(
    chain: Chain, engine: LiteRt, variant: str, ran: str, snr_db: float
) -> None:
    del ran
    answers = chain.answers(engine, chain.request("litert-cpu", variant))
    reference = chain.references().astype(np.float64)
    noise = np.square(np.stack(answers) - reference).sum()
    assert 10 * np.log10(np.square(reference).sum() / noise) > snr_db


@VARIANTS
def test_what_ran_is_read_back(
    chain: Chain, engine: LiteRt, variant: str, ran: str, snr_db: float
) -> None:
    del snr_db
    request = chain.request("litert-cpu", variant)
    session = engine.load(request)
    session.step()()
    observed = session.observed()
    assert (observed.device, observed.precision, observed.precision_why) == ("CPU", ran, None)
    assert observed.threads == request.threads
    assert observed.details["accel_ops_pct"] == 100.0
    assert observed.details["mac_share"] == {ran: 1.0}
    assert set(observed.details["mac_kernels"].values()) == {3}
    placement = engine.placement(request, list(chain.feeds(request)[0]), 3)
    assert (placement.verdict, placement.share) == ("proved", 1.0)


def test_inputs_and_outputs_are_read_and_written_in_place(chain: Chain, engine: LiteRt) -> None:
    request = chain.request("litert-cpu", "litert-int8")
    session = engine.load(request)
    (x,), (y,) = session.inputs(), session.outputs()
    first, second = (feed[0] for feed in chain.feeds(request))
    seen = []
    for feed in (first, second, first):
        x[...] = feed
        session.step()()
        seen.append(y.copy())
    assert np.array_equal(seen[0], seen[2])
    assert not np.array_equal(seen[0], seen[1])
    assert session.inputs()[0] is x
    assert session.outputs()[0] is y
    session.close()


def test_a_closed_session_keeps_its_arrays_and_computes_no_more(
    chain: Chain, engine: LiteRt
) -> None:
    session = engine.load(chain.request("litert-cpu", "litert-fp16"))
    (y,) = session.outputs()
    session.close()
    assert not y.any()
    with pytest.raises(EngineError, match="closed"):
        session.step()()


def test_the_harness_is_measured_on_a_graph_of_its_own(tmp_path: Path, engine: LiteRt) -> None:
    graph = tmp_path / "one_node.onnx"
    graph.write_bytes(one_node_model())
    session = engine.load(one_node_request(graph))
    session.inputs()[0][...] = np.array([[-1, 0, 1, 2]], np.float32)
    session.step()()
    assert session.outputs()[0].tolist() == [[0, 0, 1, 2]]
    session.close()


def one_node_request(graph: Path) -> LoadRequest:
    return LoadRequest(
        engine_id="litert-cpu",
        workload_id="one-node",
        graph=graph,
        encoding="fp32",
        format="FP32",
        inputs=(TensorSpec("x", "float32", SHAPE),),
        outputs=(TensorSpec("y", "float32", SHAPE),),
        threads=1,
        options={"device": "CPU"},
        cache_dir=None,
    )


def test_a_defect_in_the_weights_shows(chain: Chain, engine: LiteRt, tmp_path: Path) -> None:
    request = chain.request("litert-cpu", "litert-int8")
    raw = bytearray(request.graph.read_bytes())
    size = 256 * 256
    middle = len(raw) - 2 * size
    raw[middle : middle + size] = np.roll(
        np.frombuffer(bytes(raw[middle : middle + size]), np.int8).reshape(256, 256), 1, 0
    ).tobytes()
    broken = tmp_path / "broken.tflite"
    broken.write_bytes(raw)
    assert snr_db(chain, chain.answers(engine, replace(request, graph=broken))) < 20
    assert snr_db(chain, chain.answers(engine, request)) > 20


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"options": {"device": "TPU"}}, Unsupported, "no device 'TPU'"),
        ({"graph": Path("model.onnx")}, Unsupported, "does not read model.onnx"),
        ({"graph": Path("absent.tflite")}, EngineError, "CreateModelFromFile failed"),
        ({"threads": None}, EngineError, "number of threads"),
        ({"inputs": (TensorSpec("z", "float32", (16, 256)),)}, EngineError, "inputs are x, not z"),
        ({"inputs": (TensorSpec("x", "float16", (16, 256)),)}, EngineError, "16384 bytes"),
    ],
    ids=["device", "another format", "no file", "threads", "name", "size"],
)
def test_what_cannot_run_is_refused_in_words(
    chain: Chain, engine: LiteRt, change: dict[str, Any], kind: type[EngineError], words: str
) -> None:
    request = replace(chain.request("litert-cpu", "litert-int8"), **change)
    with pytest.raises(kind, match=words):
        engine.load(request)


@pytest.mark.parametrize("keep", [0, 100])
def test_a_file_that_is_no_model_is_refused(
    chain: Chain, engine: LiteRt, tmp_path: Path, keep: int
) -> None:
    request = chain.request("litert-cpu", "litert-int8")
    broken = tmp_path / "broken.tflite"
    # Deeper damage ends the process in the runtime; that files are whole is checked before.
    broken.write_bytes(request.graph.read_bytes()[:keep])
    with pytest.raises(EngineError, match="LiteRT's"):
        engine.load(replace(request, graph=broken))


def test_an_interface_without_a_call_says_so() -> None:
    with pytest.raises(NativeError, match="has no NoSuchThing"):
        Library(package_folder()).function("NoSuchThing")


@pytest.fixture
def helped(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Make a GPU of the CPU: one that takes no model alone. Returns what was asked for."""
    asked: list[int] = []

    def model(library: Library, source: Path | bytes, settings: Settings) -> Model:
        asked.append(settings.accelerators)
        if settings.accelerators == GPU:
            raise NativeError("LiteRT's CreateCompiledModel failed: unsupported")
        return Model(library, source, replace(settings, accelerators=CPU))

    monkeypatch.setattr(litert, "Model", model)
    return asked


def on_gpu(chain: Chain, variant: str) -> LoadRequest:
    return replace(chain.request("litert-gpu", variant), options={"device": "GPU"})


def test_a_gpu_that_needs_help_proves_nothing(
    chain: Chain, engine: LiteRt, helped: list[int]
) -> None:
    request = on_gpu(chain, "litert-fp16")
    open_model(engine.library(), request).close()
    assert helped == [GPU, GPU | CPU]
    placement = engine.placement(request, [], 3)
    assert (placement.verdict, placement.share) == ("unproved", None)


def test_a_gpu_does_not_tell_whether_it_multiplies_in_8_bits(
    chain: Chain, engine: LiteRt, helped: list[int]
) -> None:
    session: Session = engine.load(on_gpu(chain, "litert-int8"))
    session.step()()
    observed = session.observed()
    assert (observed.device, observed.precision, observed.threads) == ("GPU", None, None)
    assert "8 bits" in (observed.precision_why or "")
    assert observed.details["accel_ops_pct"] is None


def test_a_devices_memory_is_copied_to_and_from(
    chain: Chain, engine: LiteRt, monkeypatch: pytest.MonkeyPatch
) -> None:
    from npumark.engines import litert_buffer

    monkeypatch.setattr(litert_buffer, "_kinds", lambda *_: set[int]())
    request = chain.request("litert-cpu", "litert-fp16")
    session = engine.load(request)
    assert snr_db(chain, chain.answers(engine, request)) > 60
    session.close()


@VARIANTS
def test_packed_weights_are_kept_and_what_ran_is_read_back_alike(
    chain: Chain, engine: LiteRt, tmp_path: Path, variant: str, ran: str, snr_db: float
) -> None:
    del snr_db
    plain = chain.request("litert-cpu", variant)
    kept = replace(
        plain,
        options={**plain.options, "device": "CPU", "cache": True},
        cache_dir=tmp_path / "\U0001f600 packed",
    )
    right = chain.answers(engine, plain)
    seen = []
    for reused in (False, True):
        request = replace(kept, cache_memo=CacheMemo())
        session = engine.load(request)
        assert session.loaded_from_cache() is reused
        session.step()()
        seen.append(session.observed())
        request.cache_memo.settle()
        answers = chain.answers(engine, replace(kept, cache_memo=CacheMemo()))
        assert all(np.array_equal(a, b) for a, b in zip(answers, right, strict=True))
    assert seen[0] == seen[1]
    assert (seen[0].precision, seen[0].details["fully_accelerated"]) == (ran, True)
    (weights,) = kept.cache_dir.glob("models-*/weights.xnnpack") if kept.cache_dir else ()
    assert weights.stat().st_size > 0
