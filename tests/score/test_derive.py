"""Entries, figures and the score, from simulated runs."""

from __future__ import annotations

import dataclasses
import statistics

import pytest

from npumark.orchestrator.request import RunRequest
from npumark.policy import load_policy
from npumark.record.model import EngineRecord, Entry, Processor
from npumark.score.delivered import rankable
from npumark.score.derive import Derived, derive
from npumark.score.labels import declared_label, format_label, score_label, tops_text
from npumark.score.planned import Planned
from npumark.score.stats import geometric_mean
from tests import synthetic
from tests.synthetic import CPU, GOOD, NPU, Answer, Model, engine, simulate, steady

PACK, POLICY = synthetic.manifest(), load_policy()
IN_RANGE = dict(GOOD, snr_db=30.0)
"""Passes the standard gate and fails the near-lossless one."""


def derived(answers: Model = steady, *engines: object, **options: object) -> Derived:
    run = simulate(answers, engines or (CPU,), **options)  # type: ignore[arg-type]
    return derive(run.facts, PACK, POLICY)


def entry_of(result: Derived, workload: str, variant: str, engine_id: str = CPU.id) -> Entry:
    return next(
        e
        for e in result.entries
        if (e.engine, e.workload, e.variant) == (engine_id, workload, variant)
    )


def engine_of(result: Derived, name: str = CPU.id) -> EngineRecord:
    return next(e for e in result.engines if e.id == name)


def but(planned_workload: str, variant: str, *answers: Answer) -> Model:
    """Answer steadily but for one entry, whose first attempts are given."""

    def model(planned: Planned, n: int) -> Answer:
        if (planned.workload, planned.variant) == (planned_workload, variant) and n <= len(answers):
            return answers[n - 1]
        return steady(planned, n)

    return model


def fast(**change: object) -> Answer:
    return dataclasses.replace(Answer(ips=750.0), **change)  # type: ignore[arg-type]


def test_the_score_is_the_best_configuration_of_the_best_engine() -> None:
    result = derived(steady, CPU, NPU)
    figures = [
        e.figure.tops
        for e in result.entries
        if e.counts and e.figure and e.workload.startswith("peak")
    ]
    assert result.score is not None
    assert result.score.tops == max(figures)
    assert (result.score.format, result.score.engine) == ("INT8", CPU.id)
    assert result.score.label.endswith("TOPS · CPU · Some CPU (ONNX Runtime) · INT8")
    assert result.score_why is None
    assert (result.comparable, result.not_comparable_because) == (True, [])


def test_a_peak_counts_the_fastest_three_of_five() -> None:
    entry = entry_of(derived(), "peak-s", "int8-u8s8")
    rates = [a.measurement.ips for a in entry.attempts if a.measurement]
    assert entry.figure is not None
    assert len(rates) == entry.stats.attempts == 5
    assert entry.stats.counted == 3
    assert entry.stats.agreed
    assert entry.figure.ips == statistics.median(sorted(rates)[-3:])
    assert entry.figure.tops == 2 * 10**9 * entry.figure.ips / 1e12
    peak = engine_of(derived()).peak
    assert peak is not None
    assert (peak.attempts, peak.counted) == (5, 3)


def test_delivered_is_the_geometric_mean_of_the_fastest_passing_variants() -> None:
    figure = engine_of(derived()).delivered
    assert figure is not None
    assert figure.complete
    assert figure.missing == []
    assert {n.variant for n in figure.networks.values()} == {"int8-u8s8"}
    assert figure.tops == geometric_mean([n.tops for n in figure.networks.values()])
    assert rankable(engine_of(derived()))


@pytest.mark.parametrize("mark", ["emulated", "virtual", "local_only"])
def test_what_is_no_devices_own_or_not_published_is_never_ranked(mark: str) -> None:
    engine_info = dataclasses.replace(CPU, **{mark: True})
    found = engine_of(derived(steady, engine_info, request=RunRequest(include_emulated=True)))
    assert found.delivered is not None
    assert found.delivered.complete
    assert not rankable(found)


def test_a_missing_network_makes_a_partial_figure_that_is_never_ranked() -> None:
    def model(planned: Planned, n: int) -> Answer:
        answer = steady(planned, n)
        wrong = dataclasses.replace(answer, measures={"snr_db": 1.0})
        return wrong if planned.workload == "net-2" else answer

    result = derived(model)
    figure = engine_of(result).delivered
    assert figure is not None
    assert (figure.complete, figure.missing) == (False, ["net-2"])
    assert figure.tops == figure.networks["net-1"].tops
    assert not rankable(engine_of(result))
    assert "delivered_partial" in result.warnings
    assert not rankable(engine_of(result).model_copy(update={"delivered": None}))


def test_no_network_at_all_gives_no_figure() -> None:
    result = derived(steady, request=RunRequest(workloads=("peak",)))
    assert engine_of(result).delivered is None
    assert engine_of(result).peak is not None


def test_high_accuracy_needs_the_near_lossless_gate() -> None:
    def model(planned: Planned, n: int) -> Answer:
        answer = steady(planned, n)
        if planned.declared_format == "INT8":
            return dataclasses.replace(answer, measures=IN_RANGE, ips=60.0)
        return dataclasses.replace(answer, ips=55.0)

    own = engine_of(derived(model))
    assert own.delivered is not None
    assert own.high_accuracy is not None
    assert {n.format for n in own.delivered.networks.values()} == {"INT8"}
    assert {n.format for n in own.high_accuracy.networks.values()} == {"FP32"}
    assert own.high_accuracy.tops < own.delivered.tops


def test_a_screened_variant_is_never_the_high_accuracy_figure() -> None:
    def model(planned: Planned, n: int) -> Answer:
        answer = steady(planned, n)
        int8 = planned.declared_format == "INT8"
        return dataclasses.replace(answer, measures=IN_RANGE) if int8 else answer

    own = engine_of(derived(model))
    assert own.delivered is not None
    assert own.high_accuracy is None


def test_a_screened_variant_keeps_its_one_attempt_and_does_not_count() -> None:
    entry = entry_of(derived(), "net-1", "fp32")
    assert entry.stats.screened
    assert (entry.counts, entry.why_not, entry.status) == (False, "screened", "ok")
    assert (entry.stats.attempts, len(entry.attempts)) == (1, 1)
    assert entry.figure is not None
    assert entry.stats.robust_cv is None
    assert not entry.stats.screened_outlier


def test_a_screened_variant_that_beat_the_winners_median_is_flagged() -> None:
    """The winner's first attempt was a lucky one: 200, then 100; another did 160 once."""
    lucky = [Answer(ips=200.0), *[Answer(ips=100.0)] * 4]
    result = derived(
        lambda p, n: (
            lucky[n - 1]
            if (p.workload, p.variant) == ("net-1", "int8-u8s8")
            else Answer(ips=160.0)
            if (p.workload, p.variant) == ("net-1", "bf16")
            else Answer(ips=10.0)
        )
    )
    assert entry_of(result, "net-1", "bf16").stats.screened_outlier
    assert not entry_of(result, "net-1", "fp16").stats.screened_outlier
    figure = engine_of(result).delivered
    assert figure is not None
    assert figure.networks["net-1"].screened_outlier
    assert not figure.networks["net-2"].screened_outlier
    assert "screened_outlier" in result.warnings


def test_a_scattered_entry_is_unstable_and_says_so_where_it_counts() -> None:
    wild = [150.0, 100.0, 200.0, 120.0, 170.0, 130.0, 180.0, 110.0, 190.0]
    result = derived(but("peak-s", "int8-u8s8", *[Answer(ips=v) for v in wild]))
    entry = entry_of(result, "peak-s", "int8-u8s8")
    assert entry.stats.unstable
    assert (entry.stats.attempts, entry.stats.counted, entry.stats.agreed) == (9, 5, False)
    assert entry.figure is not None
    landed = [a.measurement.ips for a in entry.attempts if a.measurement]
    assert entry.figure.ips == statistics.median(sorted(landed)[-5:])


def test_a_later_crash_keeps_the_result_and_is_listed() -> None:
    result = derived(but("net-1", "int8-u8s8", fast(), fast(ips=None, status="crashed")))
    entry = entry_of(result, "net-1", "int8-u8s8")
    assert entry.counts
    assert (entry.status, entry.stats.attempts, entry.stats.counted) == ("ok", 5, 4)
    assert [(c.attempt, c.why) for c in entry.crashed_attempts] == [(2, "it crashed")]
    assert "attempts_died" in result.warnings


@pytest.mark.parametrize("status", ["crashed", "no_result"])
def test_an_entry_of_which_nothing_landed_keeps_its_status(status: str) -> None:
    dead = fast(ips=None, status=status)
    entry = entry_of(derived(but("net-1", "fp32", *[dead] * 5)), "net-1", "fp32")
    assert (entry.status, entry.counts, entry.why_not) == (status, False, status)
    assert entry.figure is None
    assert (entry.stats.attempts, len(entry.crashed_attempts)) == (5, 5)
    assert not entry.placement.eligible


def test_one_landing_among_deaths_is_no_figure_to_count_with() -> None:
    dead = fast(ips=None, status="crashed")
    entry = entry_of(derived(but("net-1", "int8-u8s8", fast(), *[dead] * 4)), "net-1", "int8-u8s8")
    assert (entry.counts, entry.why_not) == (False, "too_few_attempts")


def test_an_entry_that_hangs_twice_is_given_up() -> None:
    hang = fast(ips=None, status="timeout")
    result = derived(but("net-1", "int8-u8s8", fast(), hang, hang))
    entry = entry_of(result, "net-1", "int8-u8s8")
    assert (entry.status, entry.counts, entry.why_not) == ("timeout", False, "timeout")
    assert len(entry.attempts) == 3


@pytest.mark.parametrize("landed", [2, 3])
def test_hangs_after_enough_landed_keep_the_result_and_are_listed(landed: int) -> None:
    # Rates too far apart to agree, so that the entry goes on to its maximum.
    rates = [fast(ips=5000.0 + 500 * i) for i in range(landed)]
    hang = fast(ips=None, status="timeout")
    result = derived(but("net-1", "int8-u8s8", *rates, hang, hang))
    entry = entry_of(result, "net-1", "int8-u8s8")
    assert (entry.status, entry.counts, entry.why_not) == ("ok", True, None)
    assert (entry.stats.attempts, entry.stats.counted) == (landed + 2, landed)
    assert [c.attempt for c in entry.crashed_attempts] == [landed + 1, landed + 2]
    assert entry.figure is not None
    assert entry.figure.ips == statistics.median(
        a.measurement.ips for a in entry.attempts if a.measurement
    )
    assert "attempts_died" in result.warnings


def test_a_later_wrong_answer_voids_the_entry() -> None:
    wrong = fast(measures={"snr_db": 2.0})
    entry = entry_of(derived(but("net-1", "int8-u8s8", fast(), wrong)), "net-1", "int8-u8s8")
    assert (entry.status, entry.counts, len(entry.attempts)) == ("gate_failed", False, 2)
    assert entry.gates.standard is not None
    assert not entry.gates.standard.passed
    assert entry.figure is not None


def test_interrupted_attempts_are_void() -> None:
    void = fast(ips=None, status="interrupted")
    entry = entry_of(derived(but("net-1", "int8-u8s8", void, fast())), "net-1", "int8-u8s8")
    assert entry.counts
    assert (len(entry.attempts), entry.stats.attempts) == (4, 3)
    assert entry.crashed_attempts == []


def test_what_never_started_says_so() -> None:
    result = derived(steady, limit=2)
    entry = result.entries[-1]
    assert (entry.status, entry.why_not, entry.figure) == ("interrupted", "not_started", None)
    assert not result.complete
    assert result.score is None
    assert result.score_why is not None
    assert "incomplete (2)" in result.score_why
    assert "not_started" in result.score_why


def test_a_skipped_entry_keeps_its_reason() -> None:
    plan = [
        dataclasses.replace(p, skip="known to abort") if p.variant == "fp16" else p
        for p in synthetic.plan_for((CPU,), RunRequest())
    ]
    entry = entry_of(derived(steady, plan=plan), "net-1", "fp16")
    assert (entry.status, entry.why, entry.why_not) == ("skipped", "known to abort", "skipped")


def test_work_on_the_wrong_device_is_shown_and_never_counted() -> None:
    result = derived(lambda p, n: dataclasses.replace(steady(p, n), share=0.2), NPU)
    assert {e.status for e in result.entries} == {"wrong_device"}
    assert not any(e.counts for e in result.entries)
    assert result.score is None
    placement = result.entries[0].placement
    assert (placement.share, placement.eligible) == (0.2, False)
    # Its rate is another processor's: it stands with the attempt and nowhere else.
    assert {(e.figure, e.stats.counted) for e in result.entries} == {(None, 0)}
    assert all(e.attempts[0].measurement for e in result.entries)
    assert result.engines[0].peak is None


def test_a_partial_fall_back_counts_with_its_share_operations_and_partitions() -> None:
    def model(planned: Planned, n: int) -> Answer:
        least = 0.91 if n == 2 else 0.97
        return dataclasses.replace(steady(planned, n), share=least, op_share=0.5, partitions=3)

    entry = entry_of(derived(model, NPU), "peak-s", "int8-u8s8", NPU.id)
    assert entry.counts
    placement = entry.placement
    assert (placement.share, placement.op_share, placement.partitions) == (0.91, 0.5, 3)


@pytest.mark.parametrize("share", [0.97, None])
def test_a_later_attempt_that_fell_back_takes_the_figure_away(share: float | None) -> None:
    def model(planned: Planned, n: int) -> Answer:
        return dataclasses.replace(steady(planned, n), share=0.4 if n == 3 else share or 1.0)

    entry = entry_of(derived(model, NPU), "peak-s", "int8-u8s8", NPU.id)
    assert (entry.status, entry.counts, entry.figure) == ("wrong_device", False, None)
    assert entry.stats.attempts == 3


def test_one_unproved_attempt_is_enough() -> None:
    def model(planned: Planned, n: int) -> Answer:
        share = None if n == 2 else 0.97
        return dataclasses.replace(steady(planned, n), share=share)

    entry = entry_of(derived(model, NPU), "net-1", "int8-u8s8", NPU.id)
    assert (entry.status, entry.why_not) == ("ok", "placement_unproved")
    assert (entry.placement.share, entry.placement.eligible) == (None, False)


def test_figures_count_under_the_format_that_ran() -> None:
    def model(planned: Planned, n: int) -> Answer:
        ran = "FP32" if planned.declared_format == "FP16" else planned.declared_format
        return dataclasses.replace(steady(planned, n), precision=ran)

    result = derived(model, request=RunRequest(variants=("fp16",)))
    entry = entry_of(result, "peak-s", "fp16")
    assert (entry.declared_format, entry.format) == ("FP16", "FP32")
    assert entry.label == "FP16 (computed in FP32)"
    assert result.score is not None
    assert result.score.format == "FP32"
    assert result.score.label.endswith("FP16 (computed in FP32)")
    assert "format_differs" in result.warnings


def test_wider_activations_are_told_from_the_family_they_count_under() -> None:
    both = (("int8-u8s8", "INT8"), ("int8-a16w8", "INT8"))
    pack = synthetic.manifest_of(
        synthetic.workload_doc("peak-s", "peak", "peak", 1_000_000_000, both)
    )
    engine = dataclasses.replace(NPU, variants=("int8-u8s8", "int8-a16w8"))

    def model(planned: Planned, n: int) -> Answer:
        return fast(ips=900.0) if planned.variant == "int8-a16w8" else steady(planned, n)

    run = simulate(model, (engine,), RunRequest(variants=("INT8",)), pack=pack)
    result = derive(run.facts, pack, POLICY)
    labels = {e.variant: (e.declared_format, e.format, e.label) for e in result.entries}
    assert labels == {
        "int8-u8s8": ("INT8", "INT8", "INT8"),
        "int8-a16w8": ("INT8", "INT8", "INT8 (A16W8)"),
    }
    assert result.score is not None
    assert result.score.format == "INT8"
    assert result.score.label.endswith("· INT8 (A16W8)")


def test_a_format_the_runtime_does_not_tell_is_not_claimed() -> None:
    result = derived(lambda p, n: dataclasses.replace(steady(p, n), precision=None))
    entry = entry_of(result, "peak-s", "int8-u8s8")
    assert (entry.format, entry.label, entry.counts) == (None, "INT8 (unconfirmed)", True)
    assert "format_unconfirmed" in result.warnings


def test_a_format_that_changes_between_attempts_does_not_count() -> None:
    def model(planned: Planned, n: int) -> Answer:
        return dataclasses.replace(steady(planned, n), precision="INT8" if n == 1 else "FP32")

    entry = entry_of(derived(model), "net-1", "int8-u8s8")
    assert (entry.format, entry.counts, entry.why_not) == (None, False, "format_changed")


def test_a_quick_run_scores_on_one_attempt_and_says_it_is_quick() -> None:
    result = derived(steady, request=RunRequest(quick=True))
    assert result.complete
    assert result.score is not None
    assert result.score.label.endswith("· quick run")
    assert result.not_comparable_because == ["quick"]


def test_the_large_peak_stands_beside_the_score() -> None:
    gpu = engine("ort-cuda-dgpu", "dGPU", variants=("fp16",), derived_from={})
    result = derived(lambda p, n: dataclasses.replace(steady(p, n), ips=100.0), CPU, gpu)
    assert result.large_peak is not None
    assert result.large_peak["engines"][gpu.id]["tops"] == pytest.approx(1.8, rel=1e-3)
    assert result.large_peak["roles"]["dGPU"]["engine"] == gpu.id
    assert result.score is not None
    assert result.score.workload == "peak-l"
    assert derived().large_peak is None


def _gpu_of_tiers(large: float) -> Derived:
    """Derive a GPU's run whose large chain reaches ``large`` times the TOPS of the peak test, the
    first of its two encodings there 30 % more than the other."""
    gpu = engine("ort-cuda-dgpu", "dGPU", variants=("fp32", "fp16"), derived_from={})
    macs = PACK.workloads

    def model(planned: Planned, n: int) -> Answer:
        speed = large if planned.tier == "large" else 1.0
        speed *= 1.3 if planned.tier == "large" and planned.variant == "fp16" else 1.0
        ips = 1e12 * speed / macs[planned.workload].macs
        return dataclasses.replace(steady(planned, n), ips=ips)

    return derived(model, gpu, request=RunRequest(workloads=("peak",)))


@pytest.mark.parametrize("large", [0.1, 10.0])
def test_screening_never_compares_the_large_peak_with_the_peak_test(large: float) -> None:
    result = _gpu_of_tiers(large)
    ran = {(e.workload, e.variant): e.stats for e in result.entries}
    assert {w for w, _ in ran} == {"peak-s", "peak-l", "peak-xl"}
    screened = {key for key, stats in ran.items() if stats.screened}
    assert screened == {("peak-xl", "fp32")}  # by its own tier's best
    assert {stats.attempts for key, stats in ran.items() if key not in screened} == {5}


def test_the_large_peak_is_in_neither_score_nor_peak_nor_delivered() -> None:
    result = _gpu_of_tiers(10.0)
    assert result.large_peak is not None
    (gpu,) = result.engines
    assert gpu.peak is not None
    assert result.score is not None
    assert gpu.peak.tops == result.score.tops == pytest.approx(2.0, rel=1e-3)
    assert result.large_peak["engines"][gpu.id]["tops"] == pytest.approx(26.0, rel=1e-3)
    assert gpu.peak.workload != "peak-xl"
    assert gpu.delivered is None


def test_an_emulated_engine_never_leads() -> None:
    fake = dataclasses.replace(NPU, emulated=True)
    fast_npu = lambda p, n: Answer(ips=1e4) if p.engine == NPU.id else steady(p, n)  # noqa: E731
    both = derived(fast_npu, CPU, fake, request=RunRequest(include_emulated=True))
    assert both.score is not None
    assert both.score.engine == CPU.id
    alone = derived(fast_npu, fake, request=RunRequest(include_emulated=True))
    assert alone.score is None
    assert "emulated" in (alone.score_why or "")
    assert {e.label for e in alone.entries} == {"FP16 (emulated)", "INT8 (emulated)"}
    peak = alone.engines[0].peak
    assert peak is not None
    assert peak.label == "FP16 (emulated)"


def test_a_virtual_engine_leads_no_engine_that_measures() -> None:
    fake = dataclasses.replace(NPU, virtual=True, runtime="virtual")
    fast_npu = lambda p, n: Answer(ips=1e4) if p.engine == NPU.id else steady(p, n)  # noqa: E731
    both = derived(fast_npu, CPU, fake)
    assert both.score is not None
    assert both.score.engine == CPU.id
    wrong = lambda p, n: (  # noqa: E731
        Answer(ips=1e4) if p.engine == NPU.id else dataclasses.replace(steady(p, n), measures={})
    )
    beside_a_failure = derived(wrong, CPU, fake)
    assert beside_a_failure.score is None
    assert "virtual" in (beside_a_failure.score_why or "")
    alone = derived(fast_npu, fake)
    assert alone.score is not None
    assert alone.score.label.endswith("(virtual)")
    assert not alone.comparable


def test_a_local_only_engine_may_lead_and_says_that_it_is_not_for_publication() -> None:
    local = dataclasses.replace(NPU, local_only=True)
    fast_npu = lambda p, n: Answer(ips=1e4) if p.engine == NPU.id else steady(p, n)  # noqa: E731
    result = derived(fast_npu, CPU, local)
    assert result.score is not None
    assert result.score.engine == NPU.id
    assert result.score.label.endswith("· FP16 (not for publication)")
    assert result.not_comparable_because == ["local_only"]


def test_time_is_accounted_for_to_the_nanosecond() -> None:
    result = derived(but("net-1", "fp32", fast(ips=None, status="crashed")))
    walls = sum(a.wall_ns for e in result.entries for a in e.attempts)
    assert sum(result.where_time_went_ns.values()) == walls
    assert result.where_time_went_ns["unfinished"] == 5_000_000_000


@pytest.mark.parametrize(
    ("tops", "text"),
    [
        (49.34, "49.3"),
        (9.999, "10.0"),
        (5.214, "5.21"),
        (0.834, "0.83"),
        (0.00421, "0.0042"),
        (1234.5, "1234.5"),
        (0.0996, "0.10"),
        (0.0000123, "1.2e-05"),
    ],
)
def test_tops_are_shown_with_the_digits_they_bear(tops: float, text: str) -> None:
    assert tops_text(tops) == text


def test_labels() -> None:
    assert format_label("INT8", "INT8") == "INT8"
    assert format_label("W8", "INT8") == "W8 (computed in INT8)"
    assert format_label("INT8", "INT8", ("emulated",)) == "INT8 (emulated)"
    assert format_label("FP16", "FP32", ("emulated",)) == "FP16 (computed in FP32, emulated)"
    assert format_label("FP16", None, ("virtual",)) == "FP16 (unconfirmed, virtual)"
    assert format_label("INT8", "INT8", variant="int8-u8s8") == "INT8"
    assert format_label("INT8", "INT8", variant="int8-a16w8") == "INT8 (A16W8)"
    text = format_label("INT8", "W8", ("emulated",), variant="int8-a16w8")
    assert text == "INT8 (A16W8, computed in W8, emulated)"
    assert declared_label("INT8", "int8-a16w8") == "INT8 (A16W8)"
    assert declared_label("INT8", "int8-s8s8") == "INT8"
    cards = [
        Processor(id=f"dgpu-{i}", role="dGPU", name="RTX", number=i, details={}) for i in (1, 2)
    ]
    label = score_label(55.0, cards[1], cards, "TensorRT", "FP16", quick=False)
    assert label == "55.0 TOPS · dGPU 2 · RTX (TensorRT) · FP16"
