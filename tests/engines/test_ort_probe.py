"""What a probe lists and hands over, for providers whose hardware is not here."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from npumark.engines import ort_devices, ort_plugins, ort_probe, ort_session, vitisai_report
from npumark.engines.base import CacheMemo, LoadRequest
from npumark.engines.catalogue import Provider, provider
from npumark.engines.cuda_driver import Card
from npumark.engines.litert_adapter import processor_of
from npumark.engines.ort_plugins import OTHERS, Plugin, third_party
from npumark.engines.ort_session import open_session, requested_provider
from npumark.engines.ort_wheels import Wheels
from npumark.engines.vulkan_adapters import Adapter
from npumark.errors import EngineError, WrongDevice
from npumark.machine.processors import assign
from npumark.worker.protocol import EngineInfo
from tests.engines.fake_ort import CPU, EpDevice, FakeOrt, device

WHEELS = Wheels({"onnxruntime": "1.99.0"}, {}, "onnxruntime", None)
STRICT = "session.disable_cpu_ep_fallback"
CARDS = (
    Card(0, "GeForce A", "GPU-aa", "0000:01:00.0", None, integrated=False),
    Card(1, "GeForce A", "GPU-bb", "0000:41:00.0", None, integrated=False),
)


class Bench:
    """A probe, and loads, against a fake runtime and fake packages."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self._patch, self._folder = monkeypatch, folder
        self._plugins: list[Plugin] = []
        monkeypatch.setattr(ort_plugins, "_registered", {})
        for module in (ort_probe, ort_session):
            monkeypatch.setattr(module, "installed_plugins", lambda **_: tuple(self._plugins))
        monkeypatch.setattr(ort_probe, "offered", lambda _: ())
        monkeypatch.setattr(ort_probe, "installed_wheels", lambda: WHEELS)

    def install(self, runtime: FakeOrt) -> FakeOrt:
        self._patch.setitem(sys.modules, "onnxruntime", runtime)
        return runtime

    def add(self, row: Provider, fault: str | None = None) -> Plugin:
        library = self._folder / f"{row.id}.so"
        library.touch()
        plugin = Plugin(row, row.packages[0], "0.1", None if fault else str(library), fault)
        self._plugins.append(plugin)
        return plugin

    def cards(self, engine: str, cards: tuple[Card, ...]) -> None:
        self._patch.setitem(ort_devices._NAMED, engine, ort_devices._cards(lambda: cards))

    def probe(self, *only: str) -> dict[str, EngineInfo]:
        infos = ort_probe.probe_engines(list(only) or None)
        assert len({info.id for info in infos}) == len(infos)
        # What a probe found goes through JSON to every job.
        assert json.loads(json.dumps([info.options for info in infos])) == [
            info.options for info in infos
        ]
        return {info.id: info for info in infos}

    def load(self, info: EngineInfo, encoding: str = "fp32", **changes: Any) -> Any:
        request = LoadRequest(
            engine_id=info.id,
            workload_id="w",
            graph=self._folder / "graph.onnx",
            encoding=encoding,
            format="",
            inputs=(),
            outputs=(),
            threads=2,
            options=info.options,
            cache_dir=None,
        )
        asked = {key: changes.pop(key) for key in ("fresh", "profile") if key in changes}
        request = replace(request, **changes)
        return open_session(request, requested_provider(request), **asked)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    return Bench(monkeypatch, tmp_path)


def row(name: str) -> Provider:
    found = provider(name)
    assert found is not None
    return found


def test_a_provider_that_is_only_compiled_in_is_not_available(bench: Bench) -> None:
    runtime = bench.install(FakeOrt(("CUDAExecutionProvider", "AzureExecutionProvider", CPU)))
    bench.cards("ort-cuda", CARDS[:1])
    runtime.broken["CUDAExecutionProvider"] = "libcudnn.so.9: cannot open shared object file"
    infos = bench.probe()
    assert infos["ort-cpu"].available
    assert infos["ort-cpu"].note is None
    assert not infos["ort-cuda-dgpu"].available
    assert "libcudnn.so.9" in str(infos["ort-cuda-dgpu"].reason)
    assert "NVIDIA's driver" in str(infos["ort-cuda-dgpu"].reason)
    assert not [name for name in infos if "azure" in name]


def test_without_a_driver_the_reason_is_the_driver(bench: Bench, monkeypatch: Any) -> None:
    def missing() -> tuple[Card, ...]:
        raise EngineError("NVIDIA's driver is not installed")

    bench.install(FakeOrt(("CUDAExecutionProvider", CPU)))
    monkeypatch.setitem(ort_devices._NAMED, "ort-cuda", ort_devices._cards(missing))
    info = bench.probe("ort-cuda")["ort-cuda-dgpu"]
    assert (info.available, info.reason) == (False, "NVIDIA's driver is not installed")


def test_windows_ml_that_does_not_answer_costs_one_line(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(wanted: Any) -> tuple[Plugin, ...]:
        raise EngineError("Windows ML does not answer (0x80070005); run Windows Update")

    bench.install(FakeOrt((CPU,)))
    before = bench.probe()
    monkeypatch.setattr(ort_probe, "offered", silent)
    infos = bench.probe()
    assert set(infos) - set(before) == {"ort-windowsml"}
    assert infos["ort-cpu"].available
    told = infos["ort-windowsml"]
    assert (told.available, told.reason) == (
        False,
        "Windows ML does not answer (0x80070005); run Windows Update",
    )
    assert bench.probe("ort-cpu")["ort-cpu"].available


def test_a_provider_that_windows_delivers_is_recorded_with_its_certification(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    details = {"source": "windows-ml", "certification": "Certified", "ready_state": "Ready"}
    offer = Plugin(row("ort-vitisai"), "Maker.VitisAI_8wekyb", "1.8.63.0", None, "gone", details)
    bench.install(FakeOrt((CPU,)))
    monkeypatch.setattr(ort_probe, "offered", lambda _: (offer,))
    versions = bench.probe()["ort-vitisai-npu"].versions
    assert versions["Maker.VitisAI_8wekyb"] == "1.8.63.0"
    assert versions["Maker.VitisAI_8wekyb certification"] == "Certified"
    assert versions["Maker.VitisAI_8wekyb ready_state"] == "Ready"


def test_windows_ml_is_asked_only_for_what_no_package_brings(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def offers(wanted: Any) -> tuple[Plugin, ...]:
        asked.extend(name for name in ("ort-qnn", "ort-vitisai") if wanted(row(name)))
        return ()

    bench.install(FakeOrt((CPU,)))
    bench.add(row("ort-qnn"), fault="broken")
    monkeypatch.setattr(ort_probe, "offered", offers)
    bench.probe()
    assert asked == ["ort-vitisai"]
    bench.probe("ort-cuda")
    assert asked == ["ort-vitisai"]


def test_a_provider_whose_devices_break_the_list_costs_itself_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> tuple[Card, ...]:
        raise AttributeError("undefined symbol: cuDeviceGetCount")

    bench.install(FakeOrt(("CUDAExecutionProvider", CPU)))
    monkeypatch.setitem(ort_devices._NAMED, "ort-cuda", ort_devices._cards(broken))
    infos = bench.probe()
    assert infos["ort-cpu"].available
    assert infos["ort-cuda-dgpu"].reason == (
        "its devices cannot be listed: undefined symbol: cuDeviceGetCount"
    )


def test_cards_are_numbered_in_bus_order_and_bound_by_their_own_number(bench: Bench) -> None:
    runtime = bench.install(FakeOrt(("CUDAExecutionProvider", CPU)))
    # The runtime counts the card on the later bus first.
    bench.cards("ort-cuda", (replace(CARDS[1], ordinal=0), replace(CARDS[0], ordinal=1)))
    infos = bench.probe("ort-cuda")
    assert list(infos) == ["ort-cuda-dgpu-1", "ort-cuda-dgpu-2"]
    first = infos["ort-cuda-dgpu-1"]
    assert first.processor["bus"] == "0000:01:00.0"
    assert first.processor["uuid"] == "GPU-aa"
    bench.load(first)
    made = runtime.opened[-1]
    assert made.options["device_id"] == "1"
    assert made.options["use_tf32"] == "0"
    assert made.options["cudnn_conv_algo_search"] == "EXHAUSTIVE"
    assert STRICT not in made.entries
    assert made.entries["session.record_ep_graph_assignment_info"] == "1"


def test_cudas_libraries_are_loaded_before_its_sessions(bench: Bench) -> None:
    runtime = bench.install(FakeOrt(("CUDAExecutionProvider", CPU)))
    bench.cards("ort-cuda", CARDS[:1])
    info = bench.probe("ort-cuda")["ort-cuda-dgpu"]
    assert runtime.preloaded == 1
    bench.load(info)
    assert runtime.preloaded == 2
    bench.probe("ort-cpu")
    assert runtime.preloaded == 2


def test_the_one_node_model_may_not_use_the_cpu(bench: Bench) -> None:
    runtime = bench.install(FakeOrt(("CUDAExecutionProvider", CPU)))
    bench.cards("ort-cuda", CARDS[:1])
    assert bench.probe("ort-cuda")["ort-cuda-dgpu"].available
    assert runtime.opened[-1].entries[STRICT] == "1"
    # The CPU's own engine can't be told so.
    assert bench.probe("ort-cpu")["ort-cpu"].available
    assert STRICT not in runtime.opened[-1].entries


@pytest.mark.parametrize("fault", ["yields_cpu", "takes"])
def test_a_fall_back_is_the_wrong_device(bench: Bench, fault: str) -> None:
    runtime = bench.install(FakeOrt(("CUDAExecutionProvider", CPU)))
    bench.cards("ort-cuda", CARDS[:1])
    info = bench.probe("ort-cuda")["ort-cuda-dgpu"]
    if fault == "yields_cpu":
        runtime.yields_cpu.add("CUDAExecutionProvider")
        expected = "runs on CPUExecutionProvider instead of CUDAExecutionProvider"
    else:
        runtime.takes["CUDAExecutionProvider"] = 0
        expected = "given none of the graph's 3 nodes"
    with pytest.raises(WrongDevice, match=expected):
        bench.load(info)
    probed = bench.probe("ort-cuda")["ort-cuda-dgpu"]
    assert not probed.available


def test_a_partial_fall_back_is_left_to_the_proof_of_placement(bench: Bench) -> None:
    runtime = bench.install(FakeOrt(("CUDAExecutionProvider", CPU)))
    bench.cards("ort-cuda", CARDS[:1])
    info = bench.probe("ort-cuda")["ort-cuda-dgpu"]
    runtime.takes["CUDAExecutionProvider"] = 1
    assert bench.load(info).get_providers() == ["CUDAExecutionProvider", CPU]


def test_tensorrt_is_told_precision_and_cache(bench: Bench, tmp_path: Path) -> None:
    runtime = bench.install(FakeOrt(("TensorrtExecutionProvider", CPU)))
    bench.cards("ort-tensorrt", CARDS[:1])
    info = bench.probe("ort-tensorrt")["ort-tensorrt-dgpu"]
    assert info.options["cache"] is True
    bench.load(info, "int8-s8s8", cache_dir=tmp_path)
    made = runtime.opened[-1].options
    assert (made["trt_int8_enable"], made["trt_fp16_enable"]) == ("1", "0")
    assert made["trt_engine_cache_path"] == made["trt_timing_cache_path"]
    assert Path(made["trt_engine_cache_path"]).is_relative_to(tmp_path)
    bench.load(info, "fp16")
    made = runtime.opened[-1].options
    assert (made["trt_int8_enable"], made["trt_fp16_enable"]) == ("0", "1")
    assert "trt_engine_cache_path" not in made


def test_migraphx_has_a_role_by_its_card(bench: Bench, tmp_path: Path) -> None:
    runtime = bench.install(FakeOrt(("MIGraphXExecutionProvider", CPU)))
    inside = Card(0, "Radeon 780M", None, "0000:c4:00.0", None, integrated=True)
    bench.cards("ort-migraphx", (inside, replace(CARDS[0], ordinal=1)))
    infos = bench.probe("ort-migraphx")
    assert infos["ort-migraphx-igpu"].processor["role"] == "iGPU"
    assert infos["ort-migraphx-dgpu"].processor["role"] == "dGPU"
    bench.load(infos["ort-migraphx-igpu"], cache_dir=tmp_path)
    made = runtime.opened[-1].options
    assert made["device_id"] == "0"
    assert Path(made["migraphx_model_cache_dir"]).is_relative_to(tmp_path)


def dml(number: str, luid: str, discrete: str, name: str, ids: tuple[int, int]) -> EpDevice:
    metadata = {
        "DxgiAdapterNumber": number,
        "LUID": luid,
        "Discrete": discrete,
        "Description": name,
    }
    return device("DmlExecutionProvider", "GPU", *ids, metadata=metadata)


INSIDE = dml("0", "71001", "0", "Intel(R) Graphics", (0x8086, 0x7D55))
CARD = dml("1", "82002", "1", "NVIDIA GeForce", (0x10DE, 0x2684))


@pytest.mark.parametrize("order", [(INSIDE, CARD), (CARD, INSIDE)])
def test_directml_binds_the_adapter_whatever_the_order(
    bench: Bench, order: tuple[EpDevice, ...]
) -> None:
    runtime = bench.install(FakeOrt(("DmlExecutionProvider", CPU), order))
    infos = bench.probe("ort-dml")
    # Both are graphics processors of one kind of engine: numbered, and joined by LUID.
    assert [i.processor["role"] for i in infos.values() if i.available] == ["iGPU", "dGPU"]
    second = infos["ort-dml-gpu-2"]
    assert second.processor["luid"] == "82002"
    assert second.processor["name"] == "NVIDIA GeForce"
    runtime.devices.reverse()
    bench.load(second)
    assert runtime.opened[-1].device is CARD
    assert "finds no NPU" in str(infos["ort-dml-npu"].reason)


def test_an_adapter_that_is_gone_is_no_other_adapter(bench: Bench) -> None:
    runtime = bench.install(FakeOrt(("DmlExecutionProvider", CPU), (INSIDE, CARD)))
    second = bench.probe("ort-dml")["ort-dml-gpu-2"]
    runtime.devices.remove(CARD)
    with pytest.raises(EngineError, match="no longer lists the device"):
        bench.load(second)


@pytest.mark.parametrize(
    ("name", "ids", "emulated"),
    [
        ("Microsoft Basic Render Driver", (0x1414, 0x8C), True),
        (None, (0x1414, 0x8C), True),
        ("llvmpipe (LLVM 15)", (0x10005, 0), True),
        ("NVIDIA GeForce", (0x10DE, 0x2684), False),
    ],
)
def test_a_software_adapter_is_emulated(
    bench: Bench, name: str | None, ids: tuple[int, int], emulated: bool
) -> None:
    metadata = {"Description": name} if name else {}
    adapter = device("DmlExecutionProvider", "GPU", *ids, metadata=metadata)
    bench.install(FakeOrt(("DmlExecutionProvider", CPU), (adapter,)))
    assert bench.probe("ort-dml")["ort-dml-gpu"].emulated is emulated


def test_identical_cards_without_an_address_are_two(bench: Bench) -> None:
    twins = tuple(dml("0", "", "1", "Twin", (0x1002, 0x744C)) for _ in range(2))
    runtime = bench.install(FakeOrt(("DmlExecutionProvider", CPU), twins))
    infos = bench.probe("ort-dml")
    bench.load(infos["ort-dml-gpu-1"])
    assert runtime.opened[-1].device is twins[0]
    bench.load(infos["ort-dml-gpu-2"])
    assert runtime.opened[-1].device is twins[1]


def test_coreml_has_an_engine_for_each_set_of_units(bench: Bench, tmp_path: Path) -> None:
    runtime = bench.install(FakeOrt(("CoreMLExecutionProvider", CPU)))
    infos = bench.probe("ort-coreml")
    asked = {}
    for name, info in infos.items():
        bench.load(info, "fp16", cache_dir=tmp_path)
        asked[name] = runtime.opened[-1].options
    assert {name: options["MLComputeUnits"] for name, options in asked.items()} == {
        "ort-coreml-ane": "CPUAndNeuralEngine",
        "ort-coreml-gpu": "CPUAndGPU",
        "ort-coreml-cpu": "CPUOnly",
    }
    assert asked["ort-coreml-ane"]["ModelFormat"] == "MLProgram"
    assert Path(asked["ort-coreml-ane"]["ModelCacheDirectory"]).is_relative_to(tmp_path)
    # A CPU compiles at once, and is not asked to keep anything.
    assert "ModelCacheDirectory" not in asked["ort-coreml-cpu"]
    assert infos["ort-coreml-cpu"].processor["key"] == "cpu"


def test_vitisai_keeps_its_models_in_the_entrys_folder(bench: Bench, tmp_path: Path) -> None:
    runtime = bench.install(FakeOrt(("VitisAIExecutionProvider", CPU)))
    info = bench.probe("ort-vitisai")["ort-vitisai-npu"]
    assert info.derived_from == {"bf16": "fp32"}
    bench.load(info, "int8-u8s8", cache_dir=tmp_path)
    made = next(s.options for s in runtime.opened if "cache_key" in s.options)
    assert (made["cache_key"], made["enable_cache_file_io_in_mem"]) == ("model", "0")
    assert Path(made["cache_dir"]).is_relative_to(tmp_path)


class VitisOrt(FakeOrt):
    """Writes Vitis AI's report, and a compiled graph, as the provider does where it is asked to."""

    def InferenceSession(
        self,
        model: Any,
        settings: Any,
        providers: list[Any] | None = None,
        enable_fallback: int = 1,
    ) -> Any:
        session = super().InferenceSession(model, settings, providers, enable_fallback)
        made = self.opened[-1]
        made.entries["asked"] = os.environ.get(vitisai_report.VARIABLE, "")
        if made.entries["asked"] and "cache_dir" in made.options:
            folder = Path(made.options["cache_dir"]) / made.options["cache_key"]
            folder.mkdir(exist_ok=True)
            (folder / made.entries["asked"]).write_text(VITIS_REPORT)
        if "ep.context_file_path" in made.entries:
            Path(made.entries["ep.context_file_path"]).write_bytes(b"context")
        return session


VITIS_REPORT = json.dumps(
    {"deviceStat": [{"name": "all", "nodeNum": 3}, {"name": "NPU", "nodeNum": 3}]}
)


def test_vitisais_report_is_kept_with_what_it_compiled(bench: Bench, tmp_path: Path) -> None:
    runtime = bench.install(VitisOrt(("VitisAIExecutionProvider", CPU)))
    info = bench.probe("ort-vitisai")["ort-vitisai-npu"]
    runtime.opened.clear()
    memo = CacheMemo()
    bench.load(info, "int8-u8s8", cache_dir=tmp_path / "entry", cache_memo=memo)
    compiled, loaded = runtime.opened
    # What it may write when it loads a compiled model must not replace what it wrote before.
    assert (compiled.entries["asked"], loaded.entries["asked"]) == (vitisai_report.NAME, "")
    assert vitisai_report.from_fact(memo.facts[vitisai_report.FACT]).on_npu == 3
    later = CacheMemo()
    bench.load(info, "int8-u8s8", cache_dir=tmp_path / "entry", cache_memo=later)
    assert len(runtime.opened) == 3
    assert later.facts == memo.facts


def test_without_a_compiled_model_vitisai_reports_beside_the_profile(
    bench: Bench, tmp_path: Path
) -> None:
    runtime = bench.install(VitisOrt(("VitisAIExecutionProvider", CPU)))
    info = bench.probe("ort-vitisai")["ort-vitisai-npu"]
    bench.load(info, "int8-u8s8")
    assert "cache_dir" not in runtime.opened[-1].options
    bench.load(info, "int8-u8s8", profile=tmp_path / "profile")
    assert vitisai_report.read_report(tmp_path).on_npu == 3


def test_a_fresh_session_takes_no_compiled_model(bench: Bench, tmp_path: Path) -> None:
    runtime = bench.install(VitisOrt(("VitisAIExecutionProvider", CPU)))
    info = bench.probe("ort-vitisai")["ort-vitisai-npu"]
    bench.load(info, cache_dir=tmp_path / "entry")
    assert Path(runtime.opened[-1].model).name == "context.onnx"
    bench.load(info, cache_dir=tmp_path / "entry", fresh=True)
    assert Path(runtime.opened[-1].model).name == "graph.onnx"
    assert "cache_dir" not in runtime.opened[-1].options


def test_tensorrt_rtx_stays_local(bench: Bench, tmp_path: Path) -> None:
    name = "NvTensorRTRTXExecutionProvider"
    card = device(
        name, "GPU", 0x10DE, 0x2684, metadata={"pci_bus_id": "0000:01:00.0", "Discrete": "1"}
    )
    runtime = bench.install(FakeOrt(brings={name: (card,)}))
    plugin = bench.add(row("ort-trt-rtx"))
    info = bench.probe("ort-trt-rtx")["ort-trt-rtx-dgpu"]
    assert info.available
    assert info.local_only
    assert info.processor["bus"] == "0000:01:00.0"
    assert info.versions[plugin.package] == "0.1"
    bench.load(info, cache_dir=tmp_path)
    made = runtime.opened[-1]
    assert Path(made.options["nv_runtime_cache_path"]).is_relative_to(tmp_path)
    assert made.device is card


def openvino(name: str, kind: str, ids: tuple[int, int], **ep: str) -> EpDevice:
    told = {"ov_device": name, "OPTIMIZATION_CAPABILITIES": "FP32 FP16 INT8", **ep}
    return device("OpenVINOExecutionProvider", kind, *ids, ep=told)


def test_openvino_never_takes_a_device_that_chooses(bench: Bench) -> None:
    cpu = openvino("CPU", "CPU", (0x8086, 0))
    auto = replace(cpu, ep_metadata={**cpu.ep_metadata, "ov_meta_device": "AUTO"})
    gpu = openvino(
        "GPU.0",
        "GPU",
        (0x8086, 0x56A0),
        DEVICE_TYPE="discrete",
        FULL_DEVICE_NAME="Arc A770",
        DEVICE_PCI_INFO="{domain: 0 bus: 3 device: 0 function: 0}",
    )
    npu = openvino("NPU", "NPU", (0x8086, 0x643E))
    name = "OpenVINOExecutionProvider"
    runtime = bench.install(FakeOrt(brings={name: (auto, npu, gpu, cpu)}))
    bench.add(row("ort-openvino"))
    infos = bench.probe("ort-openvino")
    assert list(infos) == ["ort-openvino-cpu", "ort-openvino-gpu", "ort-openvino-npu"]
    assert infos["ort-openvino-gpu"].processor["role"] == "dGPU"
    assert infos["ort-openvino-gpu"].processor["bus"] == "0000:03:00.0"

    bench.load(infos["ort-openvino-gpu"], "fp16")
    made = runtime.opened[-1]
    assert made.device is gpu
    assert json.loads(made.options["load_config"])["GPU"]["INFERENCE_PRECISION_HINT"] == "f16"
    assert STRICT not in made.entries

    bench.load(infos["ort-openvino-cpu"], "int8-u8s8")
    told = json.loads(runtime.opened[-1].options["load_config"])["CPU"]
    assert told["INFERENCE_NUM_THREADS"] == "2"
    assert told["INFERENCE_PRECISION_HINT"] == "f32"
    assert told["DYNAMIC_QUANTIZATION_GROUP_SIZE"] == "0"
    bench.load(infos["ort-openvino-cpu"], "bf16")
    told = json.loads(runtime.opened[-1].options["load_config"])["CPU"]
    assert told["INFERENCE_PRECISION_HINT"] == "bf16"

    # Where the NPU's compiler fails, the provider would compile for its own CPU unseen.
    bench.load(infos["ort-openvino-npu"], "int8-u8s8")
    assert runtime.opened[-1].entries[STRICT] == "1"


def qnn(kind: str, metadata: dict[str, str] | None = None) -> EpDevice:
    return device("QNNExecutionProvider", kind, 0x8086, 0, metadata=metadata or {})


@pytest.mark.parametrize(
    ("kind", "machine", "emulated"),
    [("CPU", "x86_64", True), ("CPU", "aarch64", False), ("NPU", "ARM64", False)],
)
def test_qnn_is_emulated_on_x86_only(
    bench: Bench, monkeypatch: Any, tmp_path: Path, kind: str, machine: str, emulated: bool
) -> None:
    library = tmp_path / "libQnnHtp.so"
    library.touch()
    backend = type("Module", (), {"get_qnn_htp_path": staticmethod(lambda: str(library))})
    monkeypatch.setitem(sys.modules, "onnxruntime_qnn", backend)
    monkeypatch.setattr("platform.machine", lambda: machine)
    runtime = bench.install(FakeOrt(brings={"QNNExecutionProvider": (qnn(kind), qnn("GPU"))}))
    bench.add(row("ort-qnn"))
    info = bench.probe("ort-qnn")["ort-qnn-npu"]
    assert (info.available, info.emulated) == (True, emulated)
    assert info.processor["role"] == "NPU"
    bench.load(info, "int8-u8s8")
    made = runtime.opened[-1].options
    assert made["backend_path"] == str(library)
    assert made["offload_graph_io_quantization"] == "0"
    # A real device's driver decides what chip it is.
    assert ("htp_arch" in made, "soc_model" in made) == (emulated, emulated)

    library.unlink()
    gone = bench.probe("ort-qnn")["ort-qnn-npu"]
    assert not gone.available
    assert "libQnnHtp.so is not where the package says it is" in str(gone.reason)


def test_a_plugin_that_cannot_be_loaded_costs_its_own_engine(bench: Bench) -> None:
    runtime = bench.install(FakeOrt())
    runtime.unloadable["ggml"] = "libgomp.so.1: cannot open shared object file"
    bench.add(row("ort-ggml"))
    bench.add(row("ort-qnn"), fault="libonnxruntime_providers_qnn.so is not where it should be")
    infos = bench.probe()
    assert infos["ort-cpu"].available
    assert "libgomp.so.1" in str(infos["ort-ggml-cpu"].reason)
    assert "not where it should be" in str(infos["ort-qnn-npu"].reason)


def test_a_plugin_that_went_after_the_probe_is_said(bench: Bench) -> None:
    cpu = device("ggml", "CPU", 0x8086)
    bench.install(FakeOrt(brings={"ggml": (cpu,)}))
    bench.add(row("ort-ggml"))
    info = bench.probe("ort-ggml")["ort-ggml-cpu"]
    bench._plugins.clear()
    with pytest.raises(EngineError, match="the package that brings it is gone"):
        bench.load(info)


def test_ggml_keeps_fp32_weights_in_fp32(bench: Bench) -> None:
    runtime = bench.install(FakeOrt(brings={"ggml": (device("ggml", "CPU", 0x8086),)}))
    bench.add(row("ort-ggml"))
    info = bench.probe("ort-ggml")["ort-ggml-cpu"]
    assert info.processor["key"] == "cpu"
    bench.load(info, "fp32")
    assert runtime.opened[-1].options == {"device": "cpu", "threads": "2", "weights": "f32"}
    bench.load(info, "fp16")
    assert runtime.opened[-1].options["weights"] == "f16"


def test_an_unknown_plugin_becomes_engines_of_its_devices(bench: Bench) -> None:
    name = "AcmeExecutionProvider"
    npu = device(name, "NPU", 0x1234, 0x5678, metadata={"Description": "Acme One"})
    runtime = bench.install(FakeOrt(brings={name: (npu,)}))
    bench.add(third_party("onnxruntime_acme", name, "onnxruntime-acme"))
    info = bench.probe()["ort-acme-npu"]
    assert info.available
    assert info.variants == ("fp32", "fp16", "int8-u8s8")
    assert info.processor["name"] == "Acme One"
    bench.load(info)
    assert runtime.opened[-1].device is npu
    # An environment is asked for its own providers alone.
    assert "ort-acme-npu" not in bench.probe("ort-cpu")


def test_what_is_not_asked_for_is_not_registered(bench: Bench) -> None:
    """A plug-in may bring the process down: asked for another, none but that one is loaded."""
    runtime = bench.install(FakeOrt((CPU, "XnnpackExecutionProvider")))
    bench.add(row("ort-qnn"))
    bench.add(third_party("onnxruntime_acme", "AcmeExecutionProvider", "onnxruntime-acme"))
    assert bench.probe("ort-cpu")["ort-cpu"].available
    assert list(runtime.registered) == []
    assert list(bench.probe("ort-ggml")) == ["ort-ggml-cpu"]
    assert list(runtime.registered) == []
    others = bench.probe(OTHERS)
    assert list(runtime.registered) == ["AcmeExecutionProvider"]
    assert "ort-xnnpack" in others
    assert all(name.startswith("ort-acme") for name in set(others) - {"ort-xnnpack"})
    bench.probe("ort-qnn")
    assert "QNNExecutionProvider" in runtime.registered


def test_a_provider_that_no_row_knows_is_said(bench: Bench) -> None:
    bench.install(FakeOrt(("XnnpackExecutionProvider", CPU)))
    info = bench.probe()["ort-xnnpack"]
    assert not info.available
    assert "does not know the provider XnnpackExecutionProvider" in str(info.reason)


def software() -> tuple[Adapter, ...]:
    return (Adapter("SwiftShader Device (Subzero)", "cpu", 0x1AE0, 0xC0DE),)


def hardware() -> tuple[Adapter, ...]:
    return (Adapter("NVIDIA GeForce", "discrete", 0x10DE, 0x2684), *software())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="WebGPU is on Vulkan there only")
@pytest.mark.parametrize(
    ("adapters", "role", "emulated"), [(software, "iGPU", True), (hardware, "dGPU", False)]
)
def test_webgpu_is_emulated_where_vulkan_has_no_hardware(
    bench: Bench,
    monkeypatch: Any,
    adapters: Callable[[], tuple[Adapter, ...]],
    role: str,
    emulated: bool,
) -> None:
    monkeypatch.setattr(ort_devices, "vulkan_adapters", adapters)
    monkeypatch.setattr(ort_session, "vulkan_adapters", adapters)
    runtime = bench.install(FakeOrt(("WebGpuExecutionProvider", CPU)))
    info = bench.probe("ort-webgpu")["ort-webgpu-gpu"]
    assert (info.emulated, info.processor["role"]) == (emulated, role)
    assert info.processor["name"] == adapters()[0].name
    # This build lists only what others got: an empty list is no evidence of a fall-back.
    runtime.takes["WebGpuExecutionProvider"] = 0
    assert bench.load(info).get_providers()[0] == "WebGpuExecutionProvider"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="WebGPU is on Vulkan there only")
@pytest.mark.parametrize(("adapters", "emulated"), [(software, True), (hardware, False)])
def test_software_beside_a_card_is_not_the_card(
    bench: Bench,
    monkeypatch: Any,
    adapters: Callable[[], tuple[Adapter, ...]],
    emulated: bool,
) -> None:
    monkeypatch.setattr(ort_devices, "vulkan_adapters", adapters)
    monkeypatch.setattr(ort_session, "vulkan_adapters", adapters)
    metadata = {"pci_bus_id": "0000:01:00.0", "Discrete": "1"}
    card = device("WebGpuExecutionProvider", "GPU", 0x10DE, 0x2684, metadata=metadata)
    bench.install(FakeOrt(brings={"WebGpuExecutionProvider": (card,)}))
    bench.add(row("ort-webgpu"))
    info = bench.probe("ort-webgpu")["ort-webgpu-gpu"]
    assert (info.available, info.emulated) == (True, emulated)
    assert ("bus" in info.processor) is not emulated
    assert info.processor["name"] == adapters()[0].name


def two_cards() -> tuple[Adapter, ...]:
    return (Adapter("Intel Arc", "integrated", 0x8086, 0x7D55), *hardware())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="WebGPU is on Vulkan there only")
@pytest.mark.parametrize("listed", [True, False])
def test_of_several_cards_webgpu_claims_none(bench: Bench, monkeypatch: Any, listed: bool) -> None:
    monkeypatch.setattr(ort_devices, "vulkan_adapters", two_cards)
    monkeypatch.setattr(ort_session, "vulkan_adapters", two_cards)
    if listed:
        found = tuple(
            device(
                "WebGpuExecutionProvider",
                "GPU",
                vendor,
                model,
                metadata={"pci_bus_id": bus, "Discrete": discrete, "Description": name},
            )
            for vendor, model, bus, discrete, name in (
                (0x8086, 0x7D55, "0000:00:02.0", "0", "Intel Arc"),
                (0x10DE, 0x2684, "0000:01:00.0", "1", "NVIDIA GeForce"),
            )
        )
        bench.install(FakeOrt(brings={"WebGpuExecutionProvider": found}))
        bench.add(row("ort-webgpu"))
    else:
        bench.install(FakeOrt(("WebGpuExecutionProvider", CPU)))
    found_infos = [i for i in bench.probe("ort-webgpu").values() if i.id.startswith("ort-webgpu")]
    (info,) = found_infos
    assert (info.available, info.emulated) == (True, False)
    assert info.processor["name"] is None
    assert not {"bus", "luid", "uuid", "key"} & set(info.processor)
    told = info.processor["details"]
    assert "does not say which" in told["identity"]
    assert "Intel Arc, NVIDIA GeForce" in told["identity"]
    assert told["role_from"].startswith("nothing")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="WebGPU is on Vulkan there only")
@pytest.mark.parametrize("listed", [True, False])
def test_a_software_adapter_is_one_processor_for_every_runtime(
    bench: Bench, monkeypatch: Any, listed: bool
) -> None:
    monkeypatch.setattr(ort_devices, "vulkan_adapters", software)
    monkeypatch.setattr(ort_session, "vulkan_adapters", software)
    if listed:
        metadata = {"pci_bus_id": "0000:01:00.0", "Discrete": "1"}
        card = device("WebGpuExecutionProvider", "GPU", 0x10DE, 0x2684, metadata=metadata)
        bench.install(FakeOrt(brings={"WebGpuExecutionProvider": (card,)}))
        bench.add(row("ort-webgpu"))
    else:
        bench.install(FakeOrt(("WebGpuExecutionProvider", CPU)))
    ours = bench.probe("ort-webgpu")["ort-webgpu-gpu"]
    known = processor_of("linux", None, software())
    assert known is not None
    lite = EngineInfo(
        "litert-gpu", True, None, "litert", "LiteRT", None, processor=known[0], emulated=True
    )
    processors, owner = assign([ours, lite])
    assert [p.id for p in processors] == ["igpu-emulated"]
    assert set(owner.values()) == {"igpu-emulated"}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="WebGPU is on Vulkan there only")
def test_webgpu_without_vulkan_says_so(bench: Bench, monkeypatch: Any) -> None:
    monkeypatch.setattr(ort_devices, "vulkan_adapters", lambda: None)
    bench.install(FakeOrt(("WebGpuExecutionProvider", CPU)))
    info = bench.probe("ort-webgpu")["ort-webgpu-gpu"]
    assert not info.available
    assert "no Vulkan driver" in str(info.reason)


def test_shadowed_builds_leave_the_cpu_only(bench: Bench, monkeypatch: Any) -> None:
    both = Wheels(
        {"onnxruntime": "1.32.0", "onnxruntime-gpu": "1.31.1"}, {}, "onnxruntime-gpu", None
    )
    monkeypatch.setattr(ort_probe, "installed_wheels", lambda: both)
    bench.install(FakeOrt(("CUDAExecutionProvider", CPU), brings={"ggml": ()}))
    bench.cards("ort-cuda", CARDS[:1])
    bench.add(row("ort-ggml"))
    infos = bench.probe()
    assert infos["ort-cpu"].available
    assert infos["ort-cpu"].versions == both.builds
    assert "onnxruntime-gpu is imported" in str(infos["ort-cpu"].note)
    # What was never here is not spoken of so.
    assert "overwrite" not in str(infos["ort-coreml-ane"].reason)
    for name in ("ort-cuda-dgpu", "ort-ggml-cpu"):
        assert not infos[name].available
        assert "overwrite each other" in str(infos[name].reason)
        assert "onnxruntime-gpu is imported" in str(infos[name].reason)


def test_a_damaged_library_is_told_instead_of_the_driver(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = "libQnnHtp.so of the package onnxruntime-qnn is damaged (it is empty); reinstall it"
    backend = type("Module", (), {"get_qnn_htp_path": staticmethod(lambda: __file__)})
    monkeypatch.setitem(sys.modules, "onnxruntime_qnn", backend)
    runtime = bench.install(FakeOrt(brings={"QNNExecutionProvider": (qnn("CPU"),)}))
    bench.add(row("ort-qnn"))
    good = bench.probe("ort-qnn")["ort-qnn-npu"]
    assert good.available
    for module in (ort_session, ort_probe):
        monkeypatch.setattr(module, "damage", lambda *_: broken)
    # A library that fails nothing is not looked at.
    assert bench.probe("ort-qnn")["ort-qnn-npu"].available
    runtime.takes["QNNExecutionProvider"] = 0
    bad = bench.probe("ort-qnn")["ort-qnn-npu"]
    assert (bad.available, bad.reason) == (False, broken)
    with pytest.raises(EngineError, match=r"ONNX Runtime with QNN: libQnnHtp\.so"):
        bench.load(good)
