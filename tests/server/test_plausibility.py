"""What the server's rules say of records: one rule at a time, and of honest records nothing."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from functools import cache
from typing import Any

import pytest

from npumark.record.model import Payload
from npumark.score.comparability import NOT_RANKED
from npumark.server.plan import missing_entries
from npumark.server.plausibility import (
    MOST,
    MOST_ATTEMPTS,
    Rules,
    Verdict,
    judge,
    load_rules,
)
from npumark.server.refusal import CODES
from tests import forge

LUNAR = "Intel Core Ultra 7 258V"
WHOLE: dict[str, dict[str, Any]] = {
    "cpu": {},
    "quick": {"quick": True},
    "small": {"small": True},
    "card": {"cards": 1},
    "box": {"cards": 2},
    "npu": {"npu": forge.NPU, "cpu": LUNAR},
}


@cache
def rules() -> Rules:
    return load_rules()


def verdict(payload: Payload | dict[str, Any], **over: Any) -> Verdict:
    """Return the verdict at ``forge.NOW``; ``over`` replaces fields of the rules."""
    if isinstance(payload, dict):
        payload = Payload.model_validate(payload, strict=True)
    return judge(payload, rules=dataclasses.replace(rules(), **over), now=forge.NOW)


def codes(found: Verdict) -> list[str]:
    return [fault.code for fault in found.refusals]


@pytest.mark.parametrize("kind", WHOLE)
def test_an_honest_record_is_not_refused(kind: str) -> None:
    assert verdict(forge.forge_payload(**WHOLE[kind])).refusals == []


@pytest.mark.parametrize(
    ("kind", "reasons"),
    [
        ("cpu", []),
        ("box", []),
        ("npu", []),
        ("quick", ["quick"]),
        ("small", ["quick", "selection"]),
    ],
)
def test_what_keeps_an_honest_record_unranked_is_told(kind: str, reasons: list[str]) -> None:
    found = verdict(forge.forge_payload(**WHOLE[kind]))
    assert found.not_ranked_because == reasons
    assert found.ranked is (reasons == [])
    assert set(reasons) <= set(NOT_RANKED)


def test_a_run_whose_only_fault_is_an_unstable_peak_is_ranked() -> None:
    payload = forge.forge_payload(spread=0.3)
    assert payload.not_comparable_because == ["peak_unstable"]
    assert verdict(payload).ranked


def test_a_chip_that_nobody_knows_is_accepted_and_not_ranked() -> None:
    found = verdict(forge.forge_payload(cards=1, card="NVIDIA GeForce RTX 9999"))
    assert found.refusals == []
    assert found.not_ranked_because == ["ceiling_unknown"]


def test_the_same_record_gets_the_same_verdict() -> None:
    payload = forge.forge_payload(speed=9.0)
    assert verdict(payload) == verdict(payload)


def test_every_code_of_the_rules_is_one_of_the_table() -> None:
    assert NOT_RANKED.keys().isdisjoint(CODES.keys() - {"local_only", "development_build"})


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        (("score_version",), "9.9", "unknown_score_version"),
        (("suite", "manifest_sha256"), "0" * 64, "another_pack"),
        (("suite", "verified"), False, "another_pack"),
        (("policy_sha256",), "0" * 64, "another_policy"),
        (("formula_sha256",), "0" * 64, "another_policy"),
    ],
)
def test_a_record_of_another_series_is_refused_for_that_alone(
    path: tuple[str, ...], value: Any, code: str
) -> None:
    assert codes(verdict(forge.edited(forge.forge_payload(small=True), path, value))) == [code]


@pytest.mark.parametrize("name", ["created", "finished"])
def test_a_date_beyond_the_skew_is_refused(name: str) -> None:
    payload = forge.forge_payload(small=True)
    late = forge.stamp(forge.NOW + timedelta(minutes=11))
    assert codes(verdict(forge.edited(payload, (name,), late)))[0] == "future_date"


def test_a_date_within_the_skew_is_accepted() -> None:
    soon = forge.stamp(forge.NOW + timedelta(minutes=9))
    payload = forge.forge_payload(small=True, created=soon)
    document = forge.edited(payload, ("finished",), soon)
    assert codes(verdict(document)) == []


@pytest.mark.parametrize("created", ["2024-12-31T23:59:59Z", "1970-01-01T00:00:00Z"])
def test_a_date_before_there_was_a_program_is_refused(created: str) -> None:
    fault = verdict(forge.forge_payload(small=True, created=created)).refusals[0]
    assert (fault.code, fault.details["first"][:10]) == ("inconsistent", "2025-01-01")


def test_the_first_day_is_accepted() -> None:
    payload = forge.forge_payload(small=True, created="2025-01-01T00:00:00Z")
    assert codes(verdict(payload)) == []


@pytest.mark.parametrize("part", sorted(MOST))
def test_a_payload_that_would_take_long_to_judge_is_refused_at_once(part: str) -> None:
    payload = forge.forge_payload(small=True)
    (one,) = (getattr(payload, part) or [None])[:1]
    many = payload.model_copy(update={part: [one] * (MOST[part] + 1)})
    (fault,) = verdict(many).refusals
    assert (fault.code, fault.details["part"]) == ("too_large", part)


def test_more_attempts_than_an_entry_has_are_refused_at_once() -> None:
    payload = forge.forge_payload(small=True)
    first = payload.entries[0]
    longer = first.model_copy(update={"attempts": first.attempts * (MOST_ATTEMPTS + 1)})
    (fault,) = verdict(payload.model_copy(update={"entries": [longer]})).refusals
    assert (fault.code, fault.details["part"]) == ("too_large", "attempts")


def test_results_that_may_not_be_published_are_refused() -> None:
    document = forge.edited(forge.forge_payload(small=True), ("engines", 0, "local_only"), True)
    assert codes(verdict(document))[0] == "local_only"


def test_an_engine_of_the_catalogue_cannot_deny_that_it_is_local_only() -> None:
    document = forge.edited(forge.forge_payload(cards=1), ("engines", 1, "id"), "ort-trt-rtx-dgpu")
    for entry in document["entries"]:
        entry["engine"] = entry["engine"].replace("ort-cuda-dgpu", "ort-trt-rtx-dgpu")
    assert "local_only" in codes(verdict(document))


def test_an_entry_that_stopped_at_attempts_that_do_not_agree_is_refused() -> None:
    payload = forge.forge_payload()
    i = counting(payload, "network", "resnet50")
    document = forge.edited(payload, ("entries", i, "attempts", 1), slower)
    found = verdict(document)
    assert found.refusals[0].code == "stopped_too_early"
    details = found.refusals[0].details
    assert details["entry"] == i
    assert (details["attempts"], details["wanted"]) == (3, 5)
    assert details["spread"] > details["agreement"] == 0.02


def test_a_counted_figure_of_one_attempt_is_refused() -> None:
    payload = forge.forge_payload()
    i = counting(payload, "peak")
    document = forge.edited(payload, ("entries", i, "attempts"), lambda ran: ran[:1])
    found = verdict(document).refusals[0]
    assert (found.code, found.details["entry"]) == ("single_attempt", i)


def test_a_quick_run_counts_with_one_attempt() -> None:
    assert codes(verdict(forge.forge_payload(quick=True))) == []


def test_a_workload_that_a_complete_run_must_have_is_missed() -> None:
    document = forge.as_document(forge.forge_payload())
    document["entries"] = [e for e in document["entries"] if e["workload"] != "resnet50"]
    found = next(f for f in verdict(document).refusals if f.code == "plan_incomplete")
    assert found.details["count"] == 4
    assert found.details["missing"][0] == ["ort-cpu", "resnet50", "fp32"]


@pytest.mark.parametrize(
    ("workload", "of_macs", "missing"),
    [("peak-8192x4096x4", False, True), ("peak-8192x4096x4", True, False)],
)
def test_the_large_peak_belongs_to_cards_where_its_files_ship(
    workload: str, *, of_macs: bool, missing: bool
) -> None:
    payload = forge.forge_payload(cards=1)
    entries = [e for e in payload.entries if e.workload != workload]
    machine = {**payload.machine, "os": "macOS"} if of_macs else payload.machine
    without = payload.model_copy(update={"entries": entries, "machine": machine})
    assert bool(missing_entries(without, forge.pack())) is missing


def test_a_ladder_may_leave_out_encodings_and_no_network() -> None:
    payload = forge.forge_payload()
    plan = payload.plan.model_copy(update={"ladder": "default"})
    fewer = [e for e in payload.entries if (e.workload, e.variant) != ("resnet50", "w8")]
    laddered = payload.model_copy(update={"plan": plan, "entries": fewer})
    assert missing_entries(laddered, forge.pack()) == []
    assert missing_entries(payload.model_copy(update={"entries": fewer}), forge.pack()) == [
        ("ort-cpu", "resnet50", "w8")
    ]
    without = [e for e in payload.entries if e.workload != "resnet50"]
    none = payload.model_copy(update={"plan": plan, "entries": without})
    assert len(missing_entries(none, forge.pack())) == 4


@pytest.mark.parametrize(("speed", "refused"), [(6.85, False), (6.95, True)])
def test_a_peak_is_held_to_five_quarters_of_the_ceiling(speed: float, *, refused: bool) -> None:
    # INT8 at speed 1: 4.23 TOPS; 16 cores x 5.7 GHz x 256 operations x 1.25 = 29.2.
    found = codes(verdict(forge.forge_payload(speed=speed, small=True)))
    assert set(found) == ({"above_ceiling"} if refused else set())


def test_a_refusal_above_the_ceiling_shows_its_numbers() -> None:
    details = verdict(forge.forge_payload(speed=7.0, small=True)).refusals[0].details
    assert details["tops"] >= details["factor"] * details["ceiling_tops"]
    assert details["source"] == "x86-vectors"
    assert details["how"] == "16 cores x 5.7 GHz x 256 operations per cycle (AVX-512)"


def test_a_total_above_the_solo_peaks_is_refused() -> None:
    found = verdict(forge.forge_payload(cards=2, box_share=1.08))
    assert codes(found) == ["box_above_solo"]
    details = found.refusals[0].details
    assert details["tops"] > details["most_scaling"] * details["solo_tops"]


def test_a_total_just_above_the_solo_peaks_is_a_warning() -> None:
    payload = forge.forge_payload(cards=2, box_share=1.03)
    assert codes(verdict(payload)) == []


def test_a_peak_that_another_record_gave_the_box_stage_is_held_to_the_ceiling() -> None:
    payload = forge.forge_payload(cards=2)
    assert payload.box is not None
    solo = payload.box.roles[0].cards[0].solo.model_dump(mode="json")
    document = forge.edited(payload, ("plan", "box", "solo"), [{**solo, "tops": 5000.0}])
    assert "above_ceiling" in codes(verdict(document))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("plan", "loop_s"), 1e300),
        (("plan", "loop_s"), -1e300),
        (("plan", "spacing_s"), 1e300),
        (("created",), "yesterday"),
    ],
)
def test_numbers_and_dates_without_sense_are_refused(path: tuple[str, ...], value: Any) -> None:
    assert codes(verdict(forge.edited(forge.forge_payload(small=True), path, value)))


@pytest.mark.parametrize("value", [None, "x", [1], {"a": 1}, True, -1e300])
@pytest.mark.parametrize(
    "path",
    [
        ("environment", "checks", "memory", "value"),
        ("environment", "checks", "memory", "value", "needed_bytes"),
        ("environment", "checks", "clocks", "value", "hardware_max_khz"),
        ("environment", "checks", "clocks", "value", "hardware_max_khz", "max"),
        ("environment", "checks", "cpu_limits", "value", "physical"),
        ("machine", "isa"),
        ("machine", "architecture"),
        ("machine", "why"),
        ("harness", "overhead_ns"),
    ],
    ids=lambda path: ".".join(path[-3:]) if isinstance(path, tuple) else "",
)
def test_free_form_parts_of_any_type_are_judged(path: tuple[str, ...], value: Any) -> None:
    found = verdict(forge.edited(forge.forge_payload(small=True), path, value))
    assert found.refusals == [] or found.refusals[0].code == "inconsistent"


def test_rules_of_other_parts_have_another_name() -> None:
    other = dataclasses.replace(rules().chips, sha256="0" * 64)
    assert dataclasses.replace(rules(), chips=other).sha256 != rules().sha256
    assert load_rules().sha256 == rules().sha256


# --- Figures, edited one by one ---------------------------------------------------------------


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the path of every number in a document."""
    if isinstance(value, dict):
        return [p for name, item in value.items() for p in leaves(item, (*path, name))]
    if isinstance(value, list):
        return [p for i, item in enumerate(value) for p in leaves(item, (*path, i))]
    return [path] if isinstance(value, int | float) and not isinstance(value, bool) else []


FREE = ("machine", "environment", "harness", "plan", "where_time_went_ns")
"""Parts whose numbers nothing else in a record bears out."""
UNCHECKED = frozenset(
    {
        *("first_call_ns", "warmup_calls", "timer_overhead_ns", "peak_rss_bytes", "import_ns"),
        *("verify_ns", "load_ns", "warmup_ns", "accuracy_ns", "placement_ns", "burst_ips", "drift"),
        *("sustained_ips", "threads", "wall_ns", "started_ns", "loop_ns", "min", "max", "number"),
        *("partitions", "p90", "p95", "p99", "p999", "pid_exit"),
    }
)
"""Numbers that only bound others, or stand alone; nothing that is shown as a figure follows from
them. A digest and a signature guard them."""

SMALL = forge.as_document(forge.forge_payload(small=True))
FIGURES = [
    path
    for path in leaves(SMALL)
    if path[0] not in FREE and path[-1] not in UNCHECKED and "assigned" not in path
]


@pytest.mark.parametrize("path", FIGURES, ids=lambda path: ".".join(map(str, path)))
def test_a_number_that_is_edited_is_refused(path: tuple[str | int, ...]) -> None:
    def change(number: float) -> float:
        return number + 1 if isinstance(number, int) else number * 0.999

    assert codes(verdict(forge.edited(forge.forge_payload(small=True), path, change)))


def test_figures_are_among_the_numbers_that_were_edited() -> None:
    assert {("score", "tops"), ("engines", 0, "peak", "tops")} < set(FIGURES)
    assert len(FIGURES) > 25


@pytest.mark.parametrize(
    ("path", "code"),
    [
        (("score", "tops"), "figures_differ"),
        (("engines", 0, "peak", "tops"), "figures_differ"),
        (("entries", 0, "figure", "ips"), "figures_differ"),
        (("entries", 0, "stats", "attempts"), "figures_differ"),
        (("entries", 0, "attempts", 0, "measurement", "ips"), "inconsistent"),
        (("entries", 0, "attempts", 0, "measurement", "latency_ns", "median"), "inconsistent"),
        (("entries", 0, "attempts", 0, "seed"), "inconsistent"),
    ],
)
def test_an_edited_figure_and_an_edited_fact_have_codes_of_their_own(
    path: tuple[str | int, ...], code: str
) -> None:
    document = forge.edited(forge.forge_payload(small=True), path, lambda n: n * 2)
    assert codes(verdict(document))[0] == code


def test_a_refusal_lists_the_first_ten_differences() -> None:
    document = forge.as_document(forge.forge_payload(quick=True))
    for entry in document["entries"]:
        entry["figure"]["tops"] *= 1.01
        entry["stats"]["attempts"] = 7
    (fault,) = verdict(document).refusals
    assert fault.code == "figures_differ"
    assert len(fault.details["differences"]) == 10
    assert fault.details["count"] == 22
    assert fault.details["differences"][0]["path"] == "entries[0].figure.tops"


def counting(payload: Payload, kind: str, workload: str = "peak-2048x2048x4") -> int:
    """Return the place of the entry of a workload that counts."""
    named = {"network": workload, "peak": "peak-2048x2048x4"}[kind]
    return next(i for i, e in enumerate(payload.entries) if e.workload == named and e.counts)


def slower(attempt: dict[str, Any]) -> dict[str, Any]:
    """Return the attempt at four fifths of its rate, consistent in itself."""
    return forge.at_rate(attempt, 0.8)
