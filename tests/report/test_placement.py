"""What a report says of where the work ran, of several engines on one processor, and of marks."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from npumark.orchestrator.request import RunRequest
from npumark.record.model import Processor, Record
from npumark.report.page import Page, width_of
from npumark.report.terminal import render
from npumark.report.words import part
from npumark.score.planned import Planned
from tests.synthetic import CPU, Answer, engine, payload_of, simulate, steady

CARD = {"key": "key-dGPU", "role": "dGPU", "name": "NVIDIA RTX 4070"}
ONE: dict[str, Any] = {"variants": ("fp16",), "derived_from": {}, "runtime_title": "ORT"}
NPU = engine("ort-qnn-npu", "NPU", **ONE | {"variants": ("fp16", "int8-u8s8")})
GPU = engine("ort-cuda-dgpu", "dGPU", processor=CARD, **ONE)
RTX = engine("ort-trt-rtx-dgpu", "dGPU", processor=CARD, local_only=True, **ONE)
EMULATED = engine("ort-webgpu-gpu", "iGPU", emulated=True, **ONE | {"runtime_title": "WebGPU"})
PEAKS = RunRequest(include_emulated=True, workloads=("peak-s", "net-1"))


def fell_back(planned: Planned, n: int) -> Answer:
    answer = dataclasses.replace(steady(planned, n), evidence="profile")
    assert answer.ips is not None
    if planned.engine == NPU.id and planned.declared_format == "FP16":
        return dataclasses.replace(answer, share=0.4, op_share=0.7, partitions=5)
    if planned.engine == NPU.id:
        return dataclasses.replace(answer, share=0.9963, op_share=0.95, partitions=2)
    if planned.engine == RTX.id:
        return dataclasses.replace(answer, ips=answer.ips * 9, share=1.0)
    return answer


def shown(*engines: Any, width: int = 80, answers: Any = fell_back, **over: Any) -> str:
    payload = payload_of(simulate(answers, engines, PEAKS)).model_copy(update=over)
    record = Record(payload=payload, payload_sha256="0" * 64, signatures=None)
    return render(record, Page(width=width))


PARTIAL = """\
NPU · Some NPU
  ORT 1.0  ort-qnn-npu
    peak           0.30 TOPS  INT8  peak-s  stable (0.4 %)
                   fastest 3 of 5 attempts
    delivered      0.30 TOPS  partial, never ranked: without net-2
    near-lossless  0.30 TOPS  partial, never ranked: without net-2
          TOPS  gate margin     CV
    INT8  0.30  SNR +40 dB   0.4 %  ████████████████████████████████████████
      NPU 99.6 % (profile). 95 % of the operators, 2 partitions.
    FP16     —  SNR +40 dB       —
      NPU 40 % (profile). 70 % of the operators, 5 partitions. wrong device:
        40.0% of the time ran on the NPU; 90% is needed

Networks · ORT (ort-qnn-npu)
        inf/s  TOPS  gate margin     CV  ran on
net-1
  FP16      —     —  SNR +40 dB       —  NPU 40 % (profile)
    70 % of the operators, 5 partitions. wrong device: 40.0% of the time ran on
      the NPU; 50% is needed
* INT8    752  0.30  SNR +40 dB   0.4 %  NPU 99.6 % (profile)
    95 % of the operators, 2 partitions.
"""


def test_a_partial_fall_back_shows_its_shares_and_one_too_far_has_no_figure() -> None:
    assert PARTIAL in shown(NPU)


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_line_of_it_is_wider_than_the_page(width: int) -> None:
    text = shown(CPU, NPU, GPU, RTX, EMULATED, width=width)
    lines = [line for line in text.splitlines() if "`" not in line]
    assert max(map(width_of, lines)) <= width


def test_a_processors_engines_stand_together_the_best_first() -> None:
    text = shown(GPU, RTX, CPU)
    block = text[text.index("dGPU · NVIDIA RTX 4070\n") :].splitlines()
    assert block[1] == ("  best 0.74 TOPS  ort-trt-rtx-dgpu, FP16 (not for publication)")
    assert block[2] == "  beside it: ort-cuda-dgpu 0.083"
    assert block[3] == "  ORT 1.0  ort-trt-rtx-dgpu  not for publication"
    assert "  ORT 1.0  ort-cuda-dgpu" in block
    assert text.startswith(
        "0.74 TOPS · dGPU · NVIDIA RTX 4070 (ORT) · FP16 (not for publication)\n"
    )


def test_one_engine_of_a_processor_stands_without_a_best() -> None:
    assert "best 0." not in shown(CPU)


def test_an_emulated_engine_is_called_so_at_its_peak_and_its_networks() -> None:
    text = shown(EMULATED, CPU)
    assert "  WebGPU 1.0  ort-webgpu-gpu  emulated\n" in text
    assert "0.083 TOPS  FP16 (emulated)" in text
    assert "Networks · WebGPU (ort-webgpu-gpu, emulated)" in text
    assert text.startswith("0.30 TOPS · CPU")


@pytest.mark.parametrize(
    ("verdict", "share", "words"),
    [
        ("inferred", 0.99, "NPU inferred 99 % (profile). not counted: the placement is inferred"),
        ("unproved", None, "NPU unproved (profile). not counted: the placement is unproved"),
    ],
)
def test_what_is_not_proved_keeps_its_figure_and_says_so(
    verdict: Any, share: float | None, words: str
) -> None:
    def model(planned: Planned, n: int) -> Answer:
        return dataclasses.replace(
            steady(planned, n), verdict=verdict, share=share, evidence="profile"
        )

    text = shown(NPU, answers=model)
    assert words in text
    assert "INT8   0.30 " in text
    assert text.startswith("No score: ")


def test_a_processor_that_nothing_ran_on_is_named_with_its_driver_beside_those_used() -> None:
    idle = Processor(id="npu", role="NPU", name="Intel AI Boost", number=1, details={})
    payload = payload_of(simulate(steady, (CPU,), PEAKS))
    used = payload.processors[0].model_copy(
        update={"details": {"driver": "xe of Linux 6.8", "identity": "it may be another"}}
    )
    text = shown(CPU, processors=[used, idle])
    assert "CPU · Some CPU\n  xe of Linux 6.8\n  In doubt: it may be another.\n" in text
    assert "Not measured: NPU · Intel AI Boost. `npumark engines`" in text
    asked = payload.plan.model_copy(update={"engines": [CPU.id]})
    assert "Not measured" not in shown(CPU, processors=[used, idle], plan=asked)


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (1.0, "100 %"),
        (0.9999, "99.9 %"),
        (0.995, "99.5 %"),
        (0.9949, "99 %"),
        (0.4, "40 %"),
        (None, "—"),
    ],
)
def test_a_share_that_is_not_the_whole_never_reads_so(share: float | None, text: str) -> None:
    assert part(share) == text
