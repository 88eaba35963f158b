"""The page of engines, and what it says of processors that none drives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from npumark.engines import catalogue
from npumark.orchestrator import reach
from npumark.orchestrator.discover import Found, Runtime
from npumark.orchestrator.survey import Survey
from npumark.record.model import Processor
from npumark.report.engines import render_engines
from npumark.report.page import Page, width_of
from npumark.worker.protocol import EngineInfo


def processor(id_: str, role: Any, name: str, number: int = 1, **details: Any) -> Processor:
    return Processor(id=id_, role=role, name=name, number=number, details=details)


def info(id_: str, title: str = "ONNX Runtime", **fields: Any) -> EngineInfo:
    made = EngineInfo(id_, True, None, id_.split("-")[0], title, "1.32.0", variants=("fp16",))
    return replace(made, **fields)


def gone(id_: str, reason: str) -> EngineInfo:
    return info(id_, available=False, reason=reason, version=None)


CPU = processor("cpu", "CPU", "Intel Core Ultra 7")
CARDS = [
    processor(f"dgpu-{n}", "dGPU", "NVIDIA RTX 4070", n, maker="NVIDIA", driver="NVIDIA 570.86")
    for n in (1, 2)
]
NPU = processor("npu", "NPU", "Intel Meteor Lake NPU", maker="Intel")
FAKE = processor("npu-emulated", "NPU", "HTP emulator", emulated=True)
ENGINES = (
    (info("ort-cpu"), "cpu"),
    (info("openvino-cpu", "OpenVINO", extra_variants=("bf16",)), "cpu"),
    (info("ort-cuda-dgpu-1", environment="cuda"), "dgpu-1"),
    (info("ort-trt-rtx-dgpu-1", local_only=True, environment="tensorrt-rtx"), "dgpu-1"),
    (info("ort-qnn-npu", emulated=True, environment="qnn"), "npu-emulated"),
    (gone("openvino-gpu", "a device fails: no driver"), None),
    (gone("openvino-npu", "a device fails: no driver"), None),
    (gone("ort-openvino-npu", "not installed; run `npumark engines install ort-openvino`"), None),
    (gone("ort-webgpu-gpu", "not installed; run `npumark engines install webgpu`"), None),
    (gone("ort-coreml-ane", "ONNX Runtime with Core ML runs on macOS only"), None),
)


@pytest.fixture(autouse=True)
def on_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system and a catalogue that stay as they are, whatever providers are added."""
    known = ("openvino", "ort-openvino", "ort-webgpu", "ort-coreml", "ort-qnn", "coreml")
    needs = {"openvino": "Intel's driver", "ort-openvino": "Intel's driver", "ort-webgpu": "Vulkan"}
    rows = tuple(
        replace(row, needs=needs.get(row.id, "")) for row in catalogue.PROVIDERS if row.id in known
    )
    monkeypatch.setattr(catalogue, "PROVIDERS", rows)
    monkeypatch.setattr(reach, "here", lambda: "linux-x86_64")


def survey(*engines: tuple[EngineInfo, str | None]) -> Survey:
    engines = engines or ENGINES
    found = tuple(Found(e, Runtime(e.runtime, "")) for e, _ in engines)
    owner = {e.id: place for e, place in engines if place is not None}
    return Survey(found, (CPU, *CARDS, NPU, FAKE), owner)


PAGE = """\
4 engines can be measured here.
Emulated, measured with --include-emulated alone and never scored: ort-qnn-npu.

CPU · Intel Core Ultra 7
  ort-cpu
    runtime   ONNX Runtime 1.32.0
    measures  fp16
  openvino-cpu
    runtime   OpenVINO 1.32.0
    measures  fp16
              bf16  with --all-variants

dGPU · NVIDIA RTX 4070 #1
  NVIDIA 570.86
  ort-cuda-dgpu-1
    runtime   ONNX Runtime 1.32.0  environment cuda
    measures  fp16
  ort-trt-rtx-dgpu-1  not for publication
    runtime   ONNX Runtime 1.32.0  environment tensorrt-rtx
    measures  fp16

emulated NPU · HTP emulator
  ort-qnn-npu  emulated
    runtime   ONNX Runtime 1.32.0  environment qnn
    measures  fp16

No engine here drives
  dGPU · NVIDIA RTX 4070 #2
    `npumark engines install webgpu` adds ort-webgpu-gpu (Vulkan)
  NPU · Intel Meteor Lake NPU
    `npumark engines install ort-openvino` adds ort-openvino-npu (Intel's
      driver)
    openvino-npu would (Intel's driver)

Not available
  openvino-gpu, openvino-npu: a device fails: no driver

Can be added with `npumark engines install NAME`
  ort-openvino  ort-openvino-npu  (also needs Intel's driver)
  webgpu        ort-webgpu-gpu  (also needs Vulkan)

For other systems
  ort-coreml-ane
"""


def test_the_page() -> None:
    assert render_engines(survey(), Page(width=80)) == PAGE


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_wider_than_the_page_and_no_engine_is_left_out(width: int) -> None:
    text = render_engines(survey(), Page(width=width))
    lines = [line for line in text.splitlines() if "`" not in line]
    assert max(map(width_of, lines)) <= width
    assert all(e.id in text for e, _ in ENGINES)


def test_nothing_that_can_be_measured_is_said() -> None:
    text = render_engines(survey((gone("ort", "the worker died: SIGABRT"), None)), Page())
    assert text.startswith("No engine can be measured here.\n")
    assert "ort: the worker died: SIGABRT" in text


def test_an_engine_that_is_measured_only_when_it_is_named_says_so() -> None:
    slow = info("mlx-cpu", "MLX", variants=(), extra_variants=("mlx-fp16", "mlx-w8"))
    text = render_engines(survey((slow, "cpu")), Page(width=80))
    assert "    measures  mlx-fp16, mlx-w8  only when it is named\n" in text
    assert "nothing" not in text


def test_what_several_engines_need_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = "a driver, and a library beside it"
    rows = tuple(replace(row, needs="a driver") for row in catalogue.PROVIDERS)
    rows += (replace(rows[0], id="ort-tensorrt", needs=whole),)
    monkeypatch.setattr(catalogue, "PROVIDERS", rows)
    absent = [
        (gone(name, "not installed; run `npumark engines install cuda`"), None)
        for name in ("ort-webgpu-gpu", "ort-tensorrt-dgpu")
    ]
    text = " ".join(render_engines(survey(*absent), Page(width=80)).split())
    assert f"ort-webgpu-gpu, ort-tensorrt-dgpu (also needs {whole})" in text


def test_an_identity_in_doubt_is_said() -> None:
    odd = processor("dgpu-3", "dGPU", "NVIDIA RTX 4070", 3, identity="a may be any of them")
    found = survey((info("ort-webgpu-gpu"), "dgpu-3"))
    text = render_engines(replace(found, processors=(*found.processors, odd)), Page(width=80))
    assert "  In doubt: a may be any of them.\n" in text


def test_a_list_that_is_not_whole_is_said() -> None:
    lacks = ("the process that asks Windows for its adapters ended with status 1",)
    text = " ".join(render_engines(replace(survey(), lacks=lacks), Page(width=200)).split())
    assert f"May be missing above {lacks[0]}; update or reinstall its card's driver" in text
    assert "May be missing above" not in render_engines(survey(), Page(width=200))


def test_a_processor_of_a_maker_that_no_provider_drives_says_so() -> None:
    alone = Survey((), (processor("npu", "NPU", "unnamed NPU"),), {})
    assert "npumark knows no engine for it on this system" in render_engines(alone, Page())


@pytest.mark.parametrize(
    ("engine", "lack"),
    [
        (gone("ort-qnn-npu", "not installed; `npumark engines install qnn` installs it"), "absent"),
        (gone("ort-qnn-npu", "its environment is broken; `npumark engines install qnn`"), "broken"),
        (gone("ort-coreml-ane", "whatever"), "elsewhere"),
        (gone("coreml", "whatever"), "elsewhere"),
        (gone("ort", "the worker died"), "broken"),
        (gone("toy-npu", "No module named 'toy'"), "broken"),
    ],
)
def test_what_an_engine_lacks(engine: EngineInfo, lack: str) -> None:
    assert reach.lack(engine) == lack


def test_an_engine_from_another_package_names_it() -> None:
    text = render_engines(survey((info("x-cpu", package="theirs 1.0"), "cpu")), Page())
    assert "x-cpu  third party" in text
    assert "from the package theirs 1.0" in text
    assert "third party" not in render_engines(survey((info("ort-cpu"), "cpu")), Page())
