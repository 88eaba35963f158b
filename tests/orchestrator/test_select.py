"""What is said to a request for an engine: 2 for what cannot be, 3 for what is not here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from npumark.errors import NothingToMeasure, UsageError
from npumark.orchestrator.select import left_out, select_engines, told_left_out
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
NO_GGML = gone("ort-ggml-cpu", "not installed; run `npumark engines install ggml`", "ort")
EVERY = (NO_GGML, NO_VINO, CPU, OPENVINO, *CARDS, EMULATED, NO_GPU, ABSENT, NO_LITERT)


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
        ("ort-dml-gpu", "not installed", "directml` adds it; it also needs a Direct3D 12 driver."),
        ("ort-dml", "not installed", "directml` adds it; it also needs a Direct3D 12 driver."),
        ("litert", "not installed", "install litert` adds it; it also needs on Linux a Vulkan"),
        ("litert-gpu", "not installed", "install litert` adds it; it also needs on Linux a Vulkan"),
        (
            "ort-openvino-npu",
            "its environment is broken",
            "install x` adds it; it also needs Intel's",
        ),
        ("ort-openvino", "its environment is broken", "install x` adds it; it also needs Intel's"),
        ("ort-ggml-cpu", "not installed", "`npumark engines install ggml` makes it available."),
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


def test_one_that_is_not_here_does_not_stop_the_others_and_is_told() -> None:
    def told(*wanted: str, emulated: bool = False) -> tuple[str, ...]:
        return told_left_out(left_out(EVERY, wanted, include_emulated=emulated))

    named = ("ort-cpu", "openvino-gpu", "litert-gpu", "ort-qnn-npu", "ort-dml")
    assert chosen(*named) == ["ort-cpu"]
    assert told(*named) == (
        (
            "openvino-gpu is left out: OpenVINO finds no GPU here. `npumark engines` lists every "
            "engine and why."
        ),
        (
            f"litert is left out: {NO_LITERT.reason}. It also needs on Linux a Vulkan driver for "
            "the GPU; for an NPU its maker's runtime."
        ),
        "ort-qnn-npu is left out: it is an emulator (measure it with --include-emulated)",
        f"ort-dml-gpu is left out: {ABSENT.reason}. It also needs a Direct3D 12 driver.",
    )
    assert told("ort-cpu", "ort-ggml") == (f"ort-ggml-cpu is left out: {NO_GGML.reason}",)
    assert told("ort-qnn-npu", "ort-cpu", emulated=True) == ()
    # A runtime stands for those of its devices that work.
    assert chosen("openvino") == ["openvino-cpu"]
    assert told("openvino") == ()


def test_what_a_command_adds_is_told_of_that_alone() -> None:
    helps = gone("openvino-npu", "OpenVINO finds no NPU here; it needs Intel's driver")
    for names, what in ((("ort-dml-gpu",), "it"), (("ort-dml-gpu", "openvino-npu"), ABSENT.id)):
        with pytest.raises(NothingToMeasure) as caught:
            chosen(*names, among=(CPU, helps, ABSENT))
        assert caught.value.hint == (
            f"`npumark engines install directml` adds {what}; it also needs a Direct3D 12 driver."
        )


def test_a_reason_that_holds_the_next_step_gets_none_but_the_list() -> None:
    helps = gone("openvino-npu", "OpenVINO finds no NPU here; it needs Intel's driver")
    with pytest.raises(NothingToMeasure) as caught:
        chosen("openvino-npu", among=(CPU, helps))
    assert caught.value.hint == "`npumark engines` lists every engine and why."


@pytest.mark.parametrize(
    ("name", "meant"),
    [("qnn", "ort-qnn-npu"), ("QNN", "ort-qnn-npu"), ("ORT-CPU", "ort-cpu"), ("cuda", CARDS[0].id)],
)
def test_a_part_of_a_name_suggests_the_whole(name: str, meant: str) -> None:
    with pytest.raises(UsageError) as caught:
        chosen(name)
    assert (caught.value.hint or "").startswith(f"Did you mean {meant}? ")


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
