"""Which devices LiteRT drives here, and what its own small models are."""

from __future__ import annotations

import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npumark.engines import litert_probe, number_probe
from npumark.engines.litert import LiteRt
from npumark.engines.litert_probe import multiplies_in, probe_devices, settings
from npumark.errors import EngineError

installed = pytest.mark.skipif(
    find_spec("ai_edge_litert") is None, reason="LiteRT is missing: pip install ai-edge-litert"
)


@pytest.mark.parametrize("threads", [None, 0])
def test_a_cpu_without_a_number_of_threads_is_refused(threads: int | None) -> None:
    with pytest.raises(EngineError, match="threads"):
        settings("CPU", threads)


@installed
def test_the_cpu_works_here_and_the_others_work_or_say_why_not() -> None:
    cpu, gpu, npu = probe_devices()
    assert (cpu.id, cpu.available, cpu.reason) == ("litert-cpu", True, None)
    assert cpu.processor == {"key": "cpu", "role": "CPU", "name": None}
    assert [e.options["cache"] for e in (cpu, gpu, npu)] == [True, False, False]
    assert gpu.id == "litert-gpu"
    assert gpu.available or "GPU" in (gpu.reason or "")
    assert npu.id == "litert-npu"
    assert npu.available or "NPU" in (npu.reason or "")


@installed
@pytest.mark.parametrize(
    ("known", "available", "emulated"),
    [
        (({"role": "iGPU", "name": "Intel Arc"}, False), True, False),
        (({"role": "iGPU", "name": "Microsoft Basic Render Driver"}, True), True, True),
        (None, False, False),
    ],
)
def test_a_gpu_that_may_be_a_program_is_no_gpu(
    monkeypatch: pytest.MonkeyPatch, known: Any, available: bool, emulated: bool
) -> None:
    monkeypatch.setattr(litert_probe, "_fault", lambda *_: None)
    monkeypatch.setattr(litert_probe, "taken_adapter", lambda: None)
    monkeypatch.setattr(litert_probe, "vulkan_adapters", lambda: None)
    monkeypatch.setattr(litert_probe, "processor_of", lambda *_: known)
    _, gpu, _ = probe_devices()
    assert (gpu.available, gpu.emulated) == (available, emulated)
    assert gpu.processor == (known[0] if known else {})
    assert available or "does not say" in str(gpu.reason)


@installed
def test_a_device_that_is_not_asked_for_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def fault(_: Any, compiled_with: Any) -> str:
        tried.append(compiled_with.accelerators)
        return "no"

    monkeypatch.setattr(litert_probe, "_fault", fault)
    (cpu,) = LiteRt().probe({"only": ["CPU"]})
    assert (cpu.id, tried) == ("litert-cpu", [litert_probe.CPU])
    (gpu,) = LiteRt().probe({"only": ["GPU"]})
    assert gpu.id == "litert-gpu"
    # What an environment is asked for is a provider.
    assert len(LiteRt().probe({"only": ["litert"]})) == 3


@installed
def test_float16_weights_are_multiplied_in_fp32_on_a_cpu() -> None:
    from npumark.engines.litert_library import Library, package_folder

    verdict = multiplies_in(Library(package_folder()), settings("CPU", 1))
    assert (verdict.family, verdict.why) == ("FP32", None)


@installed
def test_the_probes_models_are_those_that_the_builder_makes() -> None:
    import lzma

    from npumark.engines.litert_probe import MODELS, NUMBER_PROBE, ONE_NODE
    from workloads.litert_build import number_probe_model, one_node_model

    assert (MODELS / ONE_NODE).read_bytes() == one_node_model()
    kept = lzma.decompress((MODELS / NUMBER_PROBE).read_bytes())
    assert kept == number_probe_model()
    weights = np.ascontiguousarray(number_probe.product("float16").w.T).tobytes()
    assert weights in kept


@pytest.mark.parametrize(
    "name",
    ["plain", 'a "quoted" \\ name', "日本", "\U0001f600 beyond the plane", "tab\tand\x7fdel"],
)
def test_a_path_of_packed_weights_is_a_string_of_toml(name: str) -> None:
    text = settings("CPU", 2, weights=Path("/somewhere") / name).options["xnnpack"]
    told = tomllib.loads(text)
    assert told == {"num_threads": 2, "weight_cache_file_path": str(Path("/somewhere") / name)}
