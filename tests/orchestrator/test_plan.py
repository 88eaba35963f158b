from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from npumark.errors import NothingToMeasure, UsageError
from npumark.orchestrator.lists import (
    KnownCrash,
    load_known_crashes,
    load_ladder,
    parse_known_crashes,
    parse_ladder,
)
from npumark.orchestrator.plan import (
    Host,
    _first_of_each_format,
    estimate,
    files_read,
    large_peak_left_out,
    make_plan,
)
from npumark.orchestrator.request import RunRequest
from npumark.policy import load_policy
from npumark.score.planned import Planned
from npumark.worker.protocol import EngineInfo
from tests import synthetic
from tests.synthetic import CPU, NPU, engine, manifest_of, plan_for, workload_doc

GPU = engine("ort-cuda-dgpu", "dGPU", variants=("fp16", "fp32"), derived_from={})
IGPU = engine("ort-dml-igpu", "iGPU", variants=("fp16",), derived_from={})
CRASH = KnownCrash("ort-*", "net-1", "int8-*", "linux", "1.*", "it divides by zero")


def keys(plan: tuple[Planned, ...]) -> list[str]:
    return [f"{p.engine}/{p.workload}/{p.variant}" for p in plan]


def planned(
    request: RunRequest,
    engines: tuple[EngineInfo, ...] = (CPU,),
    *,
    free: int | None = None,
    platform: str = "linux",
) -> tuple[Planned, ...]:
    return make_plan(
        synthetic.manifest(),
        engines,
        request,
        load_policy(),
        ladder=load_ladder("default"),
        known_crashes=(CRASH,),
        host=Host(platform, free),
    )


def left_out(
    request: RunRequest, engines: tuple[EngineInfo, ...], platform: str = "linux"
) -> str | None:
    plan = planned(request, engines, platform=platform)
    return large_peak_left_out(request, plan, synthetic.manifest(), engines, platform)


def test_a_default_plan_holds_every_variant_in_a_fixed_order() -> None:
    variants = ("fp32", "bf16", "fp16", "int8-u8s8")
    expected = []
    for workload in ("peak-s", "peak-l", "net-1", "net-2"):
        expected += [f"ort-cpu/{workload}/{v}" for v in variants]
        expected += [f"ort-qnn-npu/{workload}/{v}" for v in ("fp16", "int8-u8s8")]
    assert keys(plan_for((CPU, NPU), RunRequest())) == expected


def test_a_derived_variant_reads_another_graph_and_declares_its_own_format() -> None:
    bf16 = next(p for p in plan_for((CPU,), RunRequest()) if p.variant == "bf16")
    assert (bf16.graph_variant, bf16.declared_format) == ("fp32", "BF16")


def test_variants_without_a_graph_are_no_entries() -> None:
    odd = replace(CPU, variants=("int4", "fp32"), derived_from={"bf16": "missing"})
    assert {p.variant for p in plan_for((odd,), RunRequest())} == {"fp32"}


def test_the_large_peak_is_for_discrete_gpus_and_others_on_request() -> None:
    def large(request: RunRequest) -> set[str]:
        return {p.engine for p in plan_for((CPU, GPU, IGPU, NPU), request) if p.tier == "large"}

    assert large(RunRequest()) == {GPU.id}
    assert large(RunRequest(large_peak=True)) == {GPU.id, IGPU.id}
    assert large(RunRequest(workloads=("peak-xl",))) == {CPU.id, GPU.id, IGPU.id, NPU.id}


@pytest.mark.parametrize(
    ("platform", "ships"), [("linux", True), ("win32", True), ("darwin", False)]
)
def test_the_large_peak_is_for_windows_and_linux(platform: str, ships: bool) -> None:
    asked = RunRequest(large_peak=True)
    plan = planned(asked, (CPU, GPU), platform=platform)
    assert any(p.tier == "large" for p in plan) is ships
    said = left_out(asked, (CPU, GPU), platform)
    assert (said is None) is ships
    if not ships:
        assert said is not None
        assert "Windows and Linux only" in said
        with pytest.raises(UsageError, match="peak-xl is measured under Windows and Linux only"):
            planned(RunRequest(workloads=("peak-xl",)), (CPU, GPU), platform=platform)
        # A kind stands for those of it that there are.
        kind = planned(RunRequest(workloads=("peak",)), (GPU,), platform=platform)
        assert {p.tier for p in kind} == {"peak"}


def test_a_large_peak_that_adds_nothing_is_told() -> None:
    """With the right reason: what was asked for, or what there is."""

    def said(here: tuple[EngineInfo, ...] = (CPU, GPU), /, **fields: Any) -> str | None:
        return left_out(RunRequest(large_peak=True, **fields), here)

    assert said((CPU,)) == "no engine that works here is on a GPU"
    assert said(engines=(CPU.id,)) == "no engine that was asked for is on a GPU"
    assert said(workloads=("net-1",)) == "it is none of the workloads that were asked for"
    plain = "no GPU that is measured here has a graph for it"
    assert said(variants=("int8-u8s8",)) == f"{plain} in the encodings asked for"
    odd = engine("litert-dgpu", "dGPU", variants=("mlx-fp16",), derived_from={})
    assert said((CPU, odd)) == plain
    assert said() is None
    assert left_out(RunRequest(), (CPU,), "darwin") is None


def test_an_encoding_that_is_not_there_is_the_reason_of_an_empty_plan() -> None:
    odd = engine("litert-cpu", variants=("litert-fp16",), derived_from={})
    encodings = ", ".join(v.id for v in synthetic.manifest().workloads["peak-xl"].variants)
    for engines, who in (
        (("litert-cpu",), "litert-cpu runs none"),
        (None, "no engine here runs any"),
    ):
        request = RunRequest(workloads=("peak-xl",), engines=engines)
        with pytest.raises(NothingToMeasure) as told:
            planned(request, (odd,))
        assert told.value.message == f"{who} of the encodings that peak-xl comes in: {encodings}"


def test_the_large_peaks_files_are_read_where_it_is_planned_only() -> None:
    pack = synthetic.manifest()
    assert not any("peak-xl" in path for path in files_read(plan_for((CPU,), RunRequest()), pack))
    more = plan_for((CPU, GPU), RunRequest())
    assert any("peak-xl" in path for path in files_read(more, pack))


def test_the_large_peak_has_the_encodings_that_its_engine_runs() -> None:
    wide = replace(GPU, variants=("fp32", "fp16", "int8-u8s8"), derived_from={})
    plan = plan_for((wide,), RunRequest())
    assert {p.variant for p in plan if p.tier == "large"} == {"fp32", "fp16", "int8-u8s8"}


def test_extras_are_measured_when_named() -> None:
    named = plan_for((CPU,), RunRequest(workloads=("net-x", "peak")))
    assert {p.workload for p in named} == {"peak-s", "peak-l", "net-x"}


def test_a_quick_plan_has_one_shape_and_one_label_per_family() -> None:
    more = replace(CPU, variants=(*CPU.variants, "int8-s8s8"))
    assert keys(plan_for((more,), RunRequest(quick=True))) == [
        "ort-cpu/peak-s/fp32",
        "ort-cpu/peak-s/bf16",
        "ort-cpu/peak-s/fp16",
        "ort-cpu/peak-s/int8-u8s8",
        "ort-cpu/net-1/fp32",
        "ort-cpu/net-1/int8-u8s8",
        "ort-cpu/net-2/fp32",
        "ort-cpu/net-2/int8-u8s8",
    ]


def test_a_quick_plan_holds_activations_of_16_bits_beside_those_of_8() -> None:
    entries = [
        Planned(NPU.id, "peak-s", variant, variant, "INT8", "peak", "peak")
        for variant in ("int8-u8s8", "int8-s8s8", "int8-a16w8")
    ]
    assert [p.variant for p in _first_of_each_format(entries)] == ["int8-u8s8", "int8-a16w8"]


def test_the_ladder_thins_networks_and_leaves_the_peak_whole() -> None:
    plan = plan_for((CPU, GPU), RunRequest(ladder="default"))
    assert sum(p.tier == "peak" and p.engine == CPU.id for p in plan) == 8
    assert {p.variant for p in plan if p.kind == "network" and p.engine == CPU.id} == {
        "fp32",
        "int8-u8s8",
    }
    assert {p.variant for p in plan if p.kind == "network" and p.engine == GPU.id} == {"fp16"}


def test_an_engine_the_ladder_has_no_label_for_runs_one_of_each_format() -> None:
    odd = engine("mlx-gpu", "iGPU", variants=("fp32", "int8-u8s8"), derived_from={})
    plan = plan_for((odd,), RunRequest(ladder="default", workloads=("net-1",)))
    assert {p.variant for p in plan} == {"fp32", "int8-u8s8"}


def test_extra_variants_run_on_request_only() -> None:
    more = replace(CPU, variants=("fp32",), extra_variants=("fp16",))

    def variants(request: RunRequest) -> set[str]:
        return {p.variant for p in plan_for((more,), request)}

    assert variants(RunRequest()) == {"fp32"}
    assert variants(RunRequest(all_variants=True)) == {"fp32", "fp16"}
    assert variants(RunRequest(variants=("FP16",))) == {"fp16"}
    assert variants(RunRequest(variants=("fp16", "fp32"))) == {"fp32", "fp16"}


def test_an_engine_without_default_variants_runs_its_extras_where_it_is_named() -> None:
    slow = replace(CPU, id="slow-cpu", variants=(), extra_variants=("fp16", "fp32"))
    engines = (CPU, slow)
    assert {p.engine for p in planned(RunRequest(), engines)} == {CPU.id}
    named = planned(RunRequest(engines=("slow-cpu",), workloads=("peak-s",)), engines)
    assert keys(named) == ["slow-cpu/peak-s/fp16", "slow-cpu/peak-s/fp32"]
    # One that has default variants keeps to them.
    more = replace(CPU, variants=("fp32",), extra_variants=("fp16",))
    named = planned(RunRequest(engines=(CPU.id,), workloads=("peak-s",)), (more,))
    assert keys(named) == [f"{CPU.id}/peak-s/fp32"]
    for request in (RunRequest(all_variants=True), RunRequest(variants=("fp16",))):
        assert {p.engine for p in planned(request, engines)} == {CPU.id}


def test_a_variant_may_be_named_by_its_format() -> None:
    assert {p.variant for p in plan_for((CPU,), RunRequest(variants=("INT8",)))} == {"int8-u8s8"}
    assert {p.variant for p in plan_for((CPU,), RunRequest(variants=("BF16",)))} == {"bf16"}


@pytest.mark.parametrize(
    ("request_", "says", "hint"),
    [
        (RunRequest(engines=("ort-cpv",)), "engine called 'ort-cpv'", "Did you mean ort-cpu?"),
        (RunRequest(workloads=("net-11",)), "workload called 'net-11'", "net-1"),
        (RunRequest(variants=("int9",)), "variant called 'int9'", "Did you mean INT8? The"),
        (
            RunRequest(variants=("int9",)),
            "variant called 'int9'",
            "int8-u8s8, BF16, FP16, FP32, INT8.",
        ),
        (RunRequest(variants=("fp23",)), "variant called 'fp23'", "The variants are: bf16, fp16"),
        (RunRequest(quick=True, all_variants=True), "contradict", "one of the two"),
        (RunRequest(ladder="default", all_variants=True), "contradict", "one of the two"),
    ],
)
def test_a_wrong_name_is_answered_with_the_right_ones(
    request_: RunRequest, says: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        plan_for((CPU,), request_)
    assert says in caught.value.message
    assert hint in (caught.value.hint or "")


def test_an_engine_that_cannot_be_measured_is_said_to_be() -> None:
    gone = replace(NPU, available=False, reason="no driver")
    with pytest.raises(NothingToMeasure, match="no driver"):
        plan_for((CPU, gone), RunRequest(engines=(NPU.id,)))
    assert {p.engine for p in plan_for((CPU, gone), RunRequest(engines=(NPU.id, CPU.id)))} == {
        CPU.id
    }
    with pytest.raises(NothingToMeasure, match="no driver"):
        plan_for((gone,), RunRequest())
    with pytest.raises(NothingToMeasure, match="no engine was found"):
        plan_for((), RunRequest())
    assert {p.engine for p in plan_for((CPU, gone), RunRequest())} == {CPU.id}


def test_a_runtime_names_all_of_its_devices() -> None:
    plan = plan_for((CPU, GPU, NPU, engine("toy-cpu")), RunRequest(engines=("ort",)))
    assert {p.engine for p in plan} == {CPU.id, GPU.id, NPU.id}


def test_emulated_engines_wait_to_be_asked_for() -> None:
    fake = replace(NPU, emulated=True)
    assert {p.engine for p in plan_for((CPU, fake), RunRequest())} == {CPU.id}
    both = plan_for((CPU, fake), RunRequest(include_emulated=True))
    assert {p.engine for p in both} == {CPU.id, NPU.id}
    with pytest.raises(NothingToMeasure, match="emulator"):
        plan_for((fake,), RunRequest())


def test_an_empty_plan_is_nothing_to_measure() -> None:
    with pytest.raises(NothingToMeasure):
        plan_for((NPU,), RunRequest(variants=("fp32",), workloads=("peak",)))


def test_a_known_crash_is_planned_and_skipped_unless_included() -> None:
    def skips(**change: Any) -> list[str]:
        request = RunRequest(include_known_crashes=change.pop("include", False))
        return keys(tuple(p for p in planned(request, **change) if p.skip))

    assert skips() == ["ort-cpu/net-1/int8-u8s8"]
    assert skips(include=True) == []
    assert skips(platform="win32") == []
    assert skips(engines=(replace(CPU, version="2.0"),)) == []
    reason = next(p.skip for p in planned(RunRequest()) if p.skip)
    assert "it divides by zero" in reason
    assert "--include-known-crashes" in reason


def test_an_entry_that_does_not_fit_memory_is_skipped() -> None:
    """Each entry reads a 1 MiB graph and a 1 MiB input; the policy wants 1.2 times that."""
    needed = round(1.2 * (2 << 20))
    tight = planned(RunRequest(include_known_crashes=True), free=needed - 1)
    assert all("not enough memory" in (p.skip or "") for p in tight)
    assert not any(p.skip for p in planned(RunRequest(include_known_crashes=True), free=needed))


def test_files_are_those_of_active_entries_once_each() -> None:
    plan = plan_for((CPU,), RunRequest(workloads=("net-1",), variants=("fp32", "bf16", "fp16")))
    assert files_read(plan, synthetic.manifest()) == ("net-1/fp32.onnx", "x.bin", "net-1/fp16.onnx")
    assert files_read([replace(p, skip="why") for p in plan], synthetic.manifest()) == ()


def test_an_estimate_spans_the_stop_rules_and_the_spacing() -> None:
    policy = load_policy()
    one = plan_for((CPU,), RunRequest(workloads=("peak-s",), variants=("fp32",)))
    each = policy.timing.loop_s + policy.timing.warmup_max_s
    projected = estimate(one, synthetic.manifest(), policy)
    assert projected.attempts == (5, 9)
    assert projected.seconds == (4 * 30 + each, 8 * 30 + each)
    assert projected.pack_bytes == 2 << 20
    many = plan_for((CPU, NPU), RunRequest())
    assert estimate(many, synthetic.manifest(), policy).attempts == (
        24 + 2 * 4 + 2 * 2 * 2,  # the leader of each engine's peak and of each network repeats
        12 * 9 + 12 * 5,
    )
    quick = estimate(one, synthetic.manifest(), policy, quick=True)
    assert quick.attempts == (1, 1)
    assert estimate((), synthetic.manifest(), policy).seconds == (0.0, 0.0)


def test_unvalidated_variants_are_planned() -> None:
    doc = workload_doc("net-1", "network", "scored", 10**8, [("fp32", "FP32")])
    doc["variants"][0]["validated"] = False
    assert keys(plan_for((CPU,), RunRequest(), manifest_of(doc))) == [
        "ort-cpu/net-1/fp32",
        "ort-cpu/net-1/bf16",
    ]


def test_the_shipped_lists_read() -> None:
    assert isinstance(load_known_crashes(), tuple)
    ladder = load_ladder("default")
    assert ladder.labels("ort-cpu")[0] == ("fp32",)
    assert ladder.labels("ort-qnn-npu")[1] == ("int8-a16w8",)
    assert ladder.labels("ort-cuda-dgpu-2") == (("fp16",),)
    with pytest.raises(UsageError, match="no ladder called 'steep'"):
        load_ladder("steep")


@pytest.mark.parametrize(
    "doc",
    [
        [],
        {"schema": "npumark-ladder/2", "name": "x", "origin": "", "rules": []},
        {"schema": "npumark-ladder/1", "name": "x", "origin": "", "rules": [{"engine": "*"}]},
        {
            "schema": "npumark-ladder/1",
            "name": "x",
            "origin": "",
            "rules": [{"engine": "*", "labels": [[]]}],
        },
    ],
)
def test_a_broken_ladder_is_refused(doc: Any) -> None:
    with pytest.raises(ValueError):
        parse_ladder(json.dumps(doc).encode())


@pytest.mark.parametrize("entry", [{"engine": "*"}, {"reason": "r", "colour": "red"}])
def test_a_broken_list_of_crashes_is_refused(entry: Any) -> None:
    doc = {"schema": "npumark-known-crashes/1", "combinations": [entry]}
    with pytest.raises(ValueError):
        parse_known_crashes(json.dumps(doc).encode())


def test_a_crash_that_names_only_a_reason_hits_everything() -> None:
    doc = {"schema": "npumark-known-crashes/1", "combinations": [{"reason": "r"}]}
    (crash,) = parse_known_crashes(json.dumps(doc).encode())
    assert crash.hits(engine="e", workload="w", variant="v", platform="p", version=None)
    assert (
        parse_ladder(
            json.dumps(
                {"schema": "npumark-ladder/1", "name": "x", "origin": "", "rules": []}
            ).encode()
        ).labels("any")
        == ()
    )


def test_a_device_of_a_runtime_that_failed_is_told_why() -> None:
    broken = EngineInfo("ort", False, "the worker died: SIGABRT", "ort", "ort", None)
    for wanted in ("ort", "ort-cpu", "ort-dml-gpu"):
        with pytest.raises(NothingToMeasure, match="ort: the worker died: SIGABRT"):
            planned(RunRequest(engines=(wanted,)), (broken, engine("toy-npu", "NPU")))
    with pytest.raises(UsageError, match="no engine called 'ortcpu'"):
        planned(RunRequest(engines=("ortcpu",)), (broken, engine("toy-npu", "NPU")))
