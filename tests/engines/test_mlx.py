"""MLX's engine against a stand-in: devices, the timed call, and what a worker is told."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from npumark.engines import mlx_probe
from npumark.engines.base import Engine, LoadRequest
from npumark.engines.mlx import Mlx, ran
from npumark.engines.number_probe import Verdict
from npumark.errors import EngineError, PackError, Unsupported, WrongDevice
from npumark.pack.manifest import TensorSpec
from tests.engines.conftest import Chain
from tests.engines.fake_mlx import METAL, Device, FakeMlx, cuda

Install = Callable[[FakeMlx], FakeMlx]

ONE = cuda("NVIDIA RTX 6000", "0000:41:00.0", "GPU-aa")
TWO = cuda("NVIDIA RTX 6000", "0000:03:00.0", "GPU-bb")


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return a function that makes a fake the ``mlx.core`` that is imported."""

    def put(fake: FakeMlx) -> FakeMlx:
        package = ModuleType("mlx")
        package.core = fake  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "mlx", package)
        monkeypatch.setitem(sys.modules, "mlx.core", fake)  # type: ignore[arg-type]
        return fake

    return put


def engine() -> Engine:
    found = Mlx()
    found.prepare()
    return found


def request(chain: Chain, variant: str = "mlx-fp16", device: str = "gpu") -> LoadRequest:
    """Return a request for the small chain as MLX is asked for it."""
    base = chain.request(f"mlx-{device}", "fp32")
    kind = "float32" if variant == "mlx-bf16" else "float16"
    return replace(
        base,
        graph=base.graph.parent / "program.json",
        encoding=variant,
        format={"mlx-w8": "W8", "mlx-w4": "INT4", "mlx-bf16": "BF16"}.get(variant, "FP16"),
        inputs=(replace(base.inputs[0], dtype=kind),),
        outputs=(replace(base.outputs[0], dtype=kind),),
        options={"device": device, "index": 0},
    )


def snr_db(found: Any, wanted: Any) -> float:
    error = np.asarray(found, np.float64) - np.asarray(wanted, np.float64)
    signal = float(np.sum(np.square(np.asarray(wanted, np.float64))))
    return float(10 * np.log10(signal / np.sum(error**2)))


# -- which devices there are ------------------------------------------------------------------


def test_apple_s_gpu_is_integrated_and_has_no_key(install: Install) -> None:
    install(FakeMlx(gpus=[METAL]))
    gpu, cpu = engine().probe({})
    assert (gpu.id, gpu.available, gpu.processor) == (
        "mlx-gpu",
        True,
        {"role": "iGPU", "name": "Apple M3 Max"},
    )
    assert gpu.variants == ("mlx-fp16", "mlx-bf16", "mlx-w8")
    assert gpu.extra_variants == ("mlx-w4",)
    assert (cpu.id, cpu.available, cpu.processor["key"]) == ("mlx-cpu", True, "cpu")


def test_cards_are_numbered_by_their_bus(install: Install) -> None:
    install(FakeMlx(gpus=[ONE, TWO]))
    first, second, _ = engine().probe({})
    assert (first.id, first.processor["bus"], first.options["index"]) == (
        "mlx-gpu-1",
        "0000:03:00.0",
        1,
    )
    assert (second.id, second.processor["uuid"]) == ("mlx-gpu-2", "GPU-aa")
    assert {first.processor["role"], second.processor["role"]} == {"dGPU"}


def test_a_gpu_on_a_processor_s_own_chip_is_integrated() -> None:
    info = cuda("NVIDIA GB10", "000f:01:00.0", "GPU-cc")
    assert mlx_probe.processor(mlx_probe.Device("gpu"), info)["role"] == "iGPU"


def test_a_cpu_is_measured_by_default_on_a_mac_alone(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(FakeMlx())
    monkeypatch.setattr(sys, "platform", "linux")
    cpu = engine().probe({})[-1]
    assert cpu.variants == ()
    assert "slowly" in (cpu.note or "")
    assert cpu.extra_variants == ("mlx-fp16", "mlx-bf16", "mlx-w8", "mlx-w4")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert engine().probe({})[-1].variants == ("mlx-fp16",)


@pytest.mark.parametrize(
    ("platform", "installed", "why"),
    [
        ("darwin", {"mlx": "1", "mlx-metal": "1"}, "no GPU with Metal here; it needs Apple"),
        ("linux", {"mlx": "1", "mlx-cuda-13": "1"}, "no NVIDIA GPU here; it needs NVIDIA's driver"),
        ("linux", {"mlx": "1", "mlx-cpu": "1"}, "not installed; `npumark engines install mlx-cuda"),
    ],
)
def test_a_gpu_that_is_not_here_says_why(
    platform: str, installed: dict[str, str], why: str
) -> None:
    assert why in mlx_probe.no_gpu(platform, installed)


def test_without_a_gpu_the_cpu_is_still_found(install: Install) -> None:
    install(FakeMlx())
    gpu, cpu = engine().probe({})
    assert not gpu.available
    assert gpu.reason
    assert cpu.available


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ({"broken": "[metal] cannot\nload kernel"}, "fails: [metal] cannot load kernel"),
        ({"wrong": True}, "wrong answer"),
        ({"stays": Device("cpu")}, "computes on Device(cpu, 0), not on Device(gpu, 0)"),
    ],
)
def test_a_device_that_does_not_work_is_told(
    install: Install, fault: dict[str, Any], why: str
) -> None:
    install(FakeMlx(gpus=[METAL], **fault))
    gpu = engine().probe({})[0]
    assert not gpu.available
    assert why in (gpu.reason or "")


# -- a session ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variant", "at_least", "at_most"),
    [("mlx-fp16", 60, 75), ("mlx-bf16", 60, 200), ("mlx-w8", 40, 48), ("mlx-w4", 15, 22)],
)
def test_the_chain_is_computed_in_each_encoding(
    install: Install, chain: Chain, variant: str, at_least: float, at_most: float
) -> None:
    """NumPy has no bfloat16, so that the stand-in computes it in float32."""
    install(FakeMlx(gpus=[METAL]))
    found = chain.answers(engine(), request(chain, variant))
    assert at_least < snr_db(np.stack(found), chain.references()) < at_most


def test_every_call_forces_and_shows_its_own_outputs(install: Install, chain: Chain) -> None:
    fake = install(FakeMlx(gpus=[METAL]))
    asked = request(chain)
    session = engine().load(asked)
    outputs, step, seen = session.outputs(), session.step(), []
    for feed in chain.feeds(asked):
        before = fake.forced
        session.inputs()[0][...] = feed[0]
        step()
        assert fake.forced == before + 1
        seen.append(outputs[0])
    assert not np.array_equal(seen[0], seen[1]), "one sequence, each call's own results"
    assert session.outputs() is outputs
    assert session.nondeterministic
    session.close()
    with pytest.raises(EngineError, match="closed"):
        session.step()()


def test_what_fails_when_it_is_forced_fails_inside_the_call(install: Install, chain: Chain) -> None:
    """Negative control: a step that only queued its work would return."""
    fake = install(FakeMlx(gpus=[METAL]))
    step = engine().load(request(chain)).step()
    step()
    fake.gone = True
    with pytest.raises(RuntimeError, match="the device is gone"):
        step()


def test_swapped_layers_are_another_answer(install: Install, chain: Chain, tmp_path: Path) -> None:
    install(FakeMlx(gpus=[METAL]))
    asked = request(chain)
    folder = tmp_path / "peak-16x256x3"
    folder.mkdir()
    for name in ("program.json", "fp16.weights"):
        (folder / name).write_bytes((asked.graph.parent / name).read_bytes())
    raw = bytearray((folder / "fp16.weights").read_bytes())
    third = len(raw) // 3
    (folder / "fp16.weights").write_bytes(raw[third : 2 * third] + raw[:third] + raw[2 * third :])
    found = chain.answers(engine(), replace(asked, graph=folder / "program.json"))
    assert snr_db(np.stack(found), chain.references()) < 5


def test_what_ran_is_read_back(install: Install, chain: Chain) -> None:
    install(FakeMlx(gpus=[METAL]))
    asked = request(chain)
    session = engine().load(asked)
    told = session.observed()
    assert (told.device, told.precision, told.threads) == ("Device(gpu, 0)", "FP16", None)
    assert told.details["device_info"]["architecture"] == "applegpu_g15s"
    assert told.details["mac_types"] == {"float16": 3 * 16 * 256 * 256}
    assert told.details["threads_why"]


def test_products_of_halves_in_another_format_are_labelled_by_it(
    install: Install, chain: Chain
) -> None:
    install(FakeMlx(gpus=[METAL], multiplies_as=np.float32))
    assert engine().load(request(chain)).observed().precision == "FP32"


@pytest.mark.parametrize(("variant", "family"), [("mlx-w8", "W8"), ("mlx-w4", "INT4")])
def test_packed_weights_are_told_by_their_arrays(
    install: Install, chain: Chain, variant: str, family: str
) -> None:
    install(FakeMlx(gpus=[METAL]))
    assert engine().load(request(chain, variant)).observed().precision == family


FP16, FP32 = Verdict("FP16", None), Verdict("FP32", None)


@pytest.mark.parametrize(
    ("macs", "verdict", "family"),
    [
        ({"float16": 9}, FP16, "FP16"),
        ({"float16": 9}, FP32, "FP32"),
        ({"uint32 x 8 bits": 9, "float16": 1}, FP16, "W8"),
        ({"uint32 x 4 bits": 9}, FP16, "INT4"),
        ({"uint32 x 8 bits": 9}, FP32, None),
        ({"float16": 9}, Verdict(None, "odd"), None),
        ({}, FP16, None),
    ],
)
def test_a_format_is_claimed_where_types_and_products_agree(
    macs: dict[str, int], verdict: Verdict, family: str | None
) -> None:
    found = ran(macs, "float16", verdict)
    assert found.ran == family
    assert (found.why is None) == (family is not None)


def test_placement_is_that_of_the_stream(install: Install, chain: Chain) -> None:
    install(FakeMlx(gpus=[METAL]))
    placed = engine().placement(request(chain), [], 3)
    assert (placed.verdict, placed.share, placed.partitions) == ("proved", 1.0, 1)


def test_work_that_lands_on_the_cpu_is_never_a_gpu_s(install: Install, chain: Chain) -> None:
    install(FakeMlx(gpus=[METAL], stays=Device("cpu")))
    for attempt in (engine().load, lambda r: engine().placement(r, [], 3)):
        with pytest.raises(WrongDevice, match=r"Device\(cpu, 0\), not on Device\(gpu, 0\)"):
            attempt(request(chain))


def test_a_gpu_that_is_not_here_is_not_replaced(install: Install, chain: Chain) -> None:
    install(FakeMlx())
    with pytest.raises(EngineError, match="without gpu backend"):
        engine().load(request(chain))


@pytest.mark.parametrize("options", [{"device": "auto"}, {"device": "gpu", "index": "1"}])
def test_an_unknown_device_is_refused(
    install: Install, chain: Chain, options: dict[str, Any]
) -> None:
    install(FakeMlx(gpus=[METAL]))
    with pytest.raises(Unsupported, match="MLX has no device"):
        engine().load(replace(request(chain), options=options))


def test_an_encoding_or_graph_of_others_is_refused(install: Install, chain: Chain) -> None:
    install(FakeMlx(gpus=[METAL]))
    with pytest.raises(Unsupported, match="no form of int8-u8s8"):
        engine().load(replace(request(chain), encoding="int8-u8s8"))
    with pytest.raises(Unsupported, match=r"does not read fp32\.onnx"):
        engine().load(chain.request("mlx-gpu", "fp32"))


def test_a_missing_weight_file_is_the_pack_s_fault(
    install: Install, chain: Chain, tmp_path: Path
) -> None:
    install(FakeMlx(gpus=[METAL]))
    asked = request(chain)
    graph = tmp_path / "peak-16x256x3" / "program.json"
    graph.parent.mkdir()
    graph.write_bytes(asked.graph.read_bytes())
    with pytest.raises(PackError, match=r"fp16\.weights cannot be read"):
        engine().load(replace(asked, graph=graph))


def test_a_layout_that_the_function_has_not_is_refused(install: Install, chain: Chain) -> None:
    install(FakeMlx(gpus=[METAL]))
    turned = TensorSpec("x", "float16", (256, 16), (1, 0))
    with pytest.raises(EngineError, match="in the layout"):
        engine().load(replace(request(chain), inputs=(turned,)))


def test_the_harness_is_measured_on_one_node(install: Install, chain: Chain) -> None:
    install(FakeMlx(gpus=[METAL]))
    spec = TensorSpec("x", "float32", (1, 4))
    session = engine().load(
        replace(
            request(chain),
            workload_id="one-node",
            encoding="fp32",
            inputs=(spec,),
            outputs=(replace(spec, name="y"),),
        )
    )
    session.inputs()[0][...] = [[-1, 0, 2, -3]]
    session.step()()
    assert session.outputs()[0].tolist() == [[0, 0, 2, 0]]


def test_a_package_without_its_back_end_names_what_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import builtins

    real = builtins.__import__

    def failing(text: str) -> None:
        def broken(name: str, *rest: Any, **more: Any) -> Any:
            if name == "mlx.core":
                raise ImportError(text)
            return real(name, *rest, **more)

        monkeypatch.setattr(builtins, "__import__", broken)

    failing("libmlx.so: cannot open shared object file")
    with pytest.raises(EngineError, match="engines install mlx` installs both"):
        Mlx().prepare()
    failing("libcuda.so.1: cannot open shared object file")
    with pytest.raises(EngineError, match="needs NVIDIA's driver"):
        Mlx().prepare()
