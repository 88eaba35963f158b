"""What is said to a request for an engine: 2 for what cannot be, 3 for what is not here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from npumark.errors import NothingToMeasure, UsageError
from npumark.orchestrator.select import select_engines
from npumark.worker.protocol import EngineInfo
from tests.synthetic import engine

CPU = engine("ort-cpu")
OPENVINO = engine("openvino-cpu")
CARDS = tuple(engine(f"ort-cuda-dgpu-{n}", "dGPU") for n in (1, 2))
EMULATED = engine("ort-qnn-npu", "NPU", emulated=True)


def gone(name: str, reason: str, runtime: str | None = None) -> EngineInfo:
    info = engine(name)
    return replace(info, available=False, reason=reason, runtime=runtime or info.runtime)


NO_GPU = gone("openvino-gpu", "OpenVINO finds no GPU here")
ABSENT = gone("ort-dml-gpu", "not installed; run `npumark engines install directml`")
NO_LITERT = gone("litert", "not installed; `npumark engines install litert` installs LiteRT")
NO_VINO = gone("ort-openvino", "its environment is broken: `npumark engines install x`", "ort")
EVERY = (NO_VINO, CPU, OPENVINO, *CARDS, EMULATED, NO_GPU, ABSENT, NO_LITERT)


def chosen(
    *wanted: str, emulated: bool = False, among: tuple[EngineInfo, ...] = EVERY
) -> list[str]:
    return [e.id for e in select_engines(among, wanted or None, include_emulated=emulated)]


def test_engines_are_named_by_id_provider_or_runtime() -> None:
    assert chosen("openvino-cpu") == ["openvino-cpu"]
    assert chosen("ort-cuda") == ["ort-cuda-dgpu-1", "ort-cuda-dgpu-2"]
    assert chosen("ort") == ["ort-cpu", "ort-cuda-dgpu-1", "ort-cuda-dgpu-2"]
    assert chosen("openvino", "ort-cpu") == ["ort-cpu", "openvino-cpu"]


@pytest.mark.parametrize(
    ("wanted", "says", "hint"),
    [
        ("openvino-ane", "OpenVINO does not drive 'ane'", "openvino-cpu, openvino-gpu"),
        ("ort-qnn-gpu", "ONNX Runtime with QNN does not drive 'gpu'", "It drives: ort-qnn-npu."),
        ("mlx-npu", "MLX does not drive 'npu'", "mlx-gpu"),
        ("openvino-gpu.1", "does not drive 'gpu.1'", "Those that work here: ort-cpu"),
        ("ort-cuda-dgpu-3", "no ort-cuda-dgpu-3 on this", "ort-cuda-dgpu-1, ort-cuda-dgpu-2"),
        ("openvino-cpu-2", "there is no openvino-cpu-2", "There is: openvino-cpu."),
        ("ort-openvino-ane", "OpenVINO does not drive 'ane'", "ort-openvino-npu"),
        ("AUTO", "lets the runtime choose", "Name a device."),
        ("openvino-auto", "lets the runtime choose", "Name a device."),
        ("openvino-HETERO:GPU,CPU", "lets the runtime choose", "Name a device."),
        ("MULTI:CPU", "lets the runtime choose", "Name a device."),
        ("ort-cpv", "no engine called 'ort-cpv'", "Did you mean ort-cpu?"),
        ("npux", "no engine called 'npux'", "`npumark engines` lists them all."),
    ],
)
def test_what_does_not_go_together_is_a_wrong_request(wanted: str, says: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        chosen(wanted)
    assert says in caught.value.message
    assert hint in (caught.value.hint or "")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("wanted", "says", "hint"),
    [
        ("openvino-gpu", "openvino-gpu: OpenVINO finds no GPU here", "lists every engine and why"),
        ("openvino-gpu-2", "OpenVINO finds no GPU here", "lists every engine"),
        ("ort-dml-gpu", "not installed", "`npumark engines install directml` makes it available."),
        ("ort-dml", "not installed", "`npumark engines install directml` makes it available."),
        ("litert", "not installed", "`npumark engines install litert` makes it available."),
        ("litert-gpu", "not installed", "`npumark engines install litert` makes it available."),
        ("ort-openvino-npu", "its environment is broken", "install x` makes it available."),
        ("ort-openvino", "its environment is broken", "install x` makes it available."),
        ("ort-qnn-npu", "it is an emulator", "--include-emulated measures it"),
        ("ort-qnn", "it is an emulator", "--include-emulated measures it"),
    ],
)
def test_what_is_known_and_not_here_is_nothing_to_measure(
    wanted: str, says: str, hint: str
) -> None:
    with pytest.raises(NothingToMeasure) as caught:
        chosen(wanted)
    assert says in caught.value.message
    assert hint in (caught.value.hint or "")
    assert caught.value.exit_code == 3


def test_one_that_is_not_here_among_others_is_told_where_it_was_named() -> None:
    with pytest.raises(NothingToMeasure, match="finds no GPU"):
        chosen("ort-cpu", "openvino-gpu")
    # A runtime stands for those of its devices that work.
    assert chosen("openvino") == ["openvino-cpu"]


def test_emulated_engines_wait_to_be_asked_for_and_so_does_anothers_virtual_one() -> None:
    guest = engine("toy-npu", "NPU", virtual=True)
    scripted = engine("virtual-npu", "NPU", virtual=True, runtime="virtual")
    among = (CPU, EMULATED, guest, scripted)
    assert chosen(among=among) == ["ort-cpu", "virtual-npu"]
    assert chosen(among=among, emulated=True) == [e.id for e in among]
    with pytest.raises(NothingToMeasure, match="it is virtual"):
        chosen("toy-npu", among=among)


def test_reasons_that_are_alike_are_told_once() -> None:
    twins = tuple(gone(f"ort-openvino-{role}", "not installed") for role in ("gpu", "npu"))
    with pytest.raises(NothingToMeasure, match="ort-openvino-gpu, ort-openvino-npu: not installed"):
        chosen(among=twins)
