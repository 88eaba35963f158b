"""Which processor LiteRT's GPU is, and what its own small models are."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from npumark.engines import number_probe
from npumark.engines.litert_probe import gpu_identity, multiplies_in, probe_devices, settings
from npumark.engines.vulkan_adapters import Adapter
from npumark.errors import EngineError

SWIFT = Adapter("SwiftShader Device (Subzero)", "cpu", 0x1AE0, 0xC0DE)
PIPE = Adapter("llvmpipe (LLVM 15)", "cpu", 0x10005, 0)
ARC = Adapter("Intel(R) Arc(TM) Graphics", "integrated", 0x8086, 0x7D55)
RTX = Adapter("NVIDIA RTX A2000", "discrete", 0x10DE, 0x2531)

installed = pytest.mark.skipif(
    find_spec("ai_edge_litert") is None, reason="LiteRT is missing: pip install ai-edge-litert"
)


@pytest.mark.parametrize(
    ("platform", "adapters", "role", "name", "emulated"),
    [
        ("linux", (SWIFT,), "dGPU", SWIFT.name, True),
        ("linux", (SWIFT, PIPE), "dGPU", f"{SWIFT.name}, {PIPE.name}", True),
        ("linux", (ARC, PIPE), "iGPU", ARC.name, False),
        ("linux", (RTX,), "dGPU", RTX.name, False),
        ("linux", (ARC, RTX), "dGPU", None, False),
        ("linux", None, "dGPU", None, False),
        ("darwin", None, "iGPU", None, False),
    ],
)
def test_the_gpu_is_the_only_hardware_that_could_be_it(
    platform: str,
    adapters: tuple[Adapter, ...] | None,
    role: str,
    name: str | None,
    emulated: bool,
) -> None:
    told, found = gpu_identity(platform, adapters)
    assert (told["role"], told["name"], found) == (role, name, emulated)


def test_of_two_gpus_none_is_claimed() -> None:
    told, _ = gpu_identity("linux", (ARC, RTX))
    assert "does not say which" in told["details"]["identity"]


@pytest.mark.parametrize("threads", [None, 0])
def test_a_cpu_without_a_number_of_threads_is_refused(threads: int | None) -> None:
    with pytest.raises(EngineError, match="threads"):
        settings("CPU", threads)


@installed
def test_the_cpu_works_here_and_the_others_work_or_say_why_not() -> None:
    cpu, gpu, npu = probe_devices()
    assert (cpu.id, cpu.available, cpu.reason) == ("litert-cpu", True, None)
    assert cpu.processor == {"key": "cpu", "role": "CPU", "name": None}
    assert gpu.id == "litert-gpu"
    assert gpu.available or "GPU" in (gpu.reason or "")
    assert npu.id == "litert-npu"
    assert npu.available or "NPU" in (npu.reason or "")


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
