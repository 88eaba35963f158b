"""A record recomputes exactly, and an edited one does not."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from npumark.orchestrator.request import RunRequest
from npumark.policy import load_policy
from npumark.record.model import Attempt, Payload
from npumark.score.derive import derive
from npumark.score.planned import Planned
from npumark.score.recompute import recompute
from tests import synthetic, synthetic_box
from tests.synthetic import CPU, NPU, Answer, payload_of, simulate

POLICY = load_policy()
PACK = synthetic.manifest()


def mixed(planned: Any, n: int) -> Answer:
    """One of everything: a death, a failed gate, disagreement, a screened variant."""
    answer = synthetic.steady(planned, n)
    rate = answer.ips or 1.0
    if planned.workload == "peak-s" and planned.variant == "int8-u8s8":
        return Answer(ips=rate * (1.0, 0.8, 0.9, 1.03, 1.1, 0.7, 1.01, 0.99, 1.02)[n - 1])
    if planned.workload == "net-1" and planned.variant == "int8-u8s8" and n == 2:
        return Answer(ips=None, status="crashed")
    if planned.workload == "net-2" and planned.variant == "fp16":
        return Answer(ips=rate * 9, measures={"snr_db": 3.0})
    return answer


RUN = simulate(mixed, (CPU, NPU))
RECORD = payload_of(RUN)
DOCUMENT = RECORD.model_dump(mode="json", by_alias=True)


def verify(document: dict[str, Any]) -> list[str]:
    return [str(d) for d in recompute(Payload.model_validate(document), PACK, POLICY)]


def test_a_run_recomputes_exactly() -> None:
    assert verify(DOCUMENT) == []
    assert RECORD.complete
    assert RECORD.score is not None


def test_a_quick_and_a_budgeted_run_recompute_exactly() -> None:
    quick = payload_of(simulate(mixed, (CPU, NPU), RunRequest(quick=True)))
    assert verify(quick.model_dump(mode="json", by_alias=True)) == []
    short = payload_of(simulate(mixed, (CPU, NPU), RunRequest(time_budget_s=100)))
    assert not short.complete
    assert short.not_comparable_because == ["no_score", "time_budget"]
    assert verify(short.model_dump(mode="json", by_alias=True)) == []


@pytest.mark.parametrize("limit", [0, 1, 7, 30, 60])
def test_a_run_cut_short_anywhere_recomputes_exactly(limit: int) -> None:
    record = payload_of(simulate(mixed, (CPU, NPU), limit=limit))
    assert verify(record.model_dump(mode="json", by_alias=True)) == []


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of every number and truth value."""
    if isinstance(value, dict):
        return [p for k, v in value.items() for p in leaves(v, (*path, k))]
    if isinstance(value, list):
        return [p for i, v in enumerate(value) for p in leaves(v, (*path, i))]
    return [path] if isinstance(value, int | float) else []


def edited(document: Any, path: tuple[Any, ...]) -> Any:
    """Return the document with the leaf at ``path`` moved by the least that shows."""
    if not path:
        if isinstance(document, bool):
            return not document
        if isinstance(document, int):
            return document + 1
        # A share may not exceed 1.
        return document * (1 - 1e-12 if document == 1 else 1 + 1e-12) + 1e-300
    copy = dict(document) if isinstance(document, dict) else list(document)
    copy[path[0]] = edited(document[path[0]], path[1:])
    return copy


SMALL = payload_of(
    simulate(
        mixed,
        plan=[
            p for p in RUN.facts.plan if p.engine == CPU.id and p.workload in ("peak-s", "net-1")
        ],
    )
).model_dump(mode="json", by_alias=True)
"""A run small enough to edit every leaf of."""

RAW = ("plan", "processors", "environment", "resumed", "machine", "harness", "tool")


def moves_a_figure(path: tuple[Any, ...]) -> bool:
    """Whether a leaf is derived, or a fact of an attempt from which a figure follows."""
    if path[0] in RAW or path[:2] == ("suite", "verified") or "requested" in path:
        return False
    if "attempts" not in path[:-1]:
        return True
    if "timed_check" in path:
        return bool(path[-1] != "nondeterministic")  # which alone forbids nothing
    return path[-1] in {"n", "seed", "iterations", "timed_ns", "ips"}


EDITS = [p for p in leaves(SMALL) if moves_a_figure(p)]

BOXED = payload_of(
    synthetic_box.with_box(
        simulate(
            synthetic.steady,
            synthetic_box.cards(2),
            plan=[
                p
                for p in synthetic.plan_for(synthetic_box.cards(2), RunRequest())
                if (p.workload, p.variant) == ("peak-s", "int8-u8s8")
            ],
        )
    )
).model_dump(mode="json", by_alias=True)
"""A small run of two cards, with the box stage after it."""

TESTIMONY = {"started_ns", "load_ns", "warmup_ns", "peak_rss_bytes", "snr_db"}
"""What is told of an attempt and no figure, and no rule to the last bit, follows from."""


def box_edits() -> list[tuple[Any, ...]]:
    return [("box", *p) for p in leaves(BOXED["box"]) if p[-1] not in TESTIMONY]


def test_there_is_something_to_edit() -> None:
    kinds = {".".join(str(x) for x in p if isinstance(x, str)) for p in EDITS}
    assert {
        "score.tops",
        "engines.peak.tops",
        "engines.delivered.networks.net-1.tops",
        "engines.high_accuracy.tops",
        "entries.figure.ips",
        "entries.stats.robust_cv",
        "entries.gates.standard.margin",
        "entries.attempts.measurement.timed_ns",
        "comparable",
    } <= kinds


def test_any_edited_figure_is_named() -> None:
    missed = [p for p in EDITS if not verify(edited(SMALL, p))]
    assert missed == []


def test_any_edited_figure_of_a_box_is_named() -> None:
    assert verify(BOXED) == []
    kinds = {".".join(str(x) for x in p if isinstance(x, str)) for p in box_edits()}
    assert {
        "box.roles.tops",
        "box.roles.scaling",
        "box.roles.cards.solo.tops",
        "box.roles.cards.slow_in_box",
        "box.roles.attempts.wall_ns",
        "box.roles.attempts.window_ns",
        "box.roles.attempts.cards.window.straddling",
        "box.roles.attempts.cards.window.check.iteration",
    } <= kinds
    missed = [p for p in box_edits() if not verify(edited(BOXED, p))]
    assert missed == []


LEADER = next(i for i, p in enumerate(RUN.facts.plan) if p.variant == "int8-u8s8")


def edit_attempt(path: tuple[Any, ...], value: Any) -> list[str]:
    """Return the differences after one field of an entry's third attempt was set."""
    document = copy.deepcopy(DOCUMENT)
    place = document["entries"][LEADER]["attempts"][2]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return verify(document)


def test_a_third_attempt_too_soon_after_the_second_is_named() -> None:
    found = edit_attempt(
        ("started_ns",), DOCUMENT["entries"][LEADER]["attempts"][1]["started_ns"] + 1
    )
    assert any("start 30 s apart" in f for f in found)
    assert any("overlaps" in f for f in found)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("measurement", "latency_ns", "p90"), None, "samples"),
        (("measurement", "latency_ns", "p999"), 10**9, "samples"),
        (("measurement", "latency_ns", "max"), 1, "ascending"),
        (("measurement", "latency_ns", "median"), 10**10, "sum to this"),
        (("measurement", "loop_ns"), 0, "less than timed"),
        (("measurement", "loop_ns"), 10**12, "more than all"),
        (("status",), "crashed", "ok if, and only if"),
        (("measurement", "accuracy_ns"), 4 * 10**9, "less than its stages"),
        (("measurement", "warmup_ns"), 10**6, "the warm-up that it began"),
        (("pid_exit",), -9, "failed worker"),
        (("measurement",), None, "ok if, and only if"),
        (("n",), 7, "recomputed 3"),
        (("why",), "it was warm", "failed for no reason"),
        (("log_tail",), "last words", "failed for no reason"),
        (("measurement", "measures", "snr_db"), 201.0, "than an exact answer"),
        (("measurement", "measures", "cosine_mean"), 1.1, "than an exact answer"),
        (("measurement", "measures", "kl"), -1.0, "than an exact answer"),
        (("measurement", "timed_check", "min_snr_db"), 1e300, "than an exact answer"),
        (("seed",), 7, "seed"),
        (("measurement", "timed_check", "passed"), False, "timed_check.passed"),
        (("measurement", "timed_check", "bit_identical"), False, "timed_check.passed"),
        (("measurement", "timed_check", "iterations"), [], "timed_check.passed"),
        (("measurement", "timed_check", "iterations"), [0, 1, 2, 3], "by its seed"),
    ],
)
def test_an_impossible_attempt_is_named(path: tuple[str, ...], value: Any, says: str) -> None:
    assert any(says in f for f in edit_attempt(path, value))


def remade(change: Callable[[list[Attempt]], Sequence[Attempt]], variant: str) -> list[str]:
    """Return the differences of a record whose attempts of one entry were tampered with and
    whose figures were then derived anew."""
    facts = RUN.facts
    key = (CPU.id, "peak-s", variant)
    attempts = {**facts.attempts, key: change(list(facts.attempts[key]))}
    run = dataclasses.replace(RUN, facts=dataclasses.replace(facts, attempts=attempts))
    return verify(payload_of(run).model_dump(mode="json", by_alias=True))


def test_an_entry_that_stopped_while_its_attempts_disagree_is_named_and_counts_for_nothing() -> (
    None
):
    found = remade(lambda attempts: attempts[:5], "int8-u8s8")
    assert any("another entry's turn" in f for f in found)
    facts, key = RUN.facts, (CPU.id, "peak-s", "int8-u8s8")
    cut = dataclasses.replace(facts, attempts={**facts.attempts, key: facts.attempts[key][:5]})
    entry = derive(cut, PACK, POLICY).entries[LEADER]
    assert not entry.counts
    assert entry.why_not == "incomplete"


def test_an_attempt_beyond_the_stop_rule_is_named() -> None:
    def one_more(attempts: list[Attempt]) -> list[Attempt]:
        late = attempts[-1].started_ns + 10**13
        return [*attempts, attempts[-1].model_copy(update={"n": 10, "started_ns": late})]

    assert any("no entry wanted another" in f for f in remade(one_more, "int8-u8s8"))


def test_a_dropped_attempt_is_named() -> None:
    """Leaving the slowest out and renumbering the rest changes whose turn it was."""

    def without_the_slowest(attempts: list[Attempt]) -> list[Attempt]:
        kept = [*attempts[:1], *attempts[2:]]
        return [a.model_copy(update={"n": i}) for i, a in enumerate(kept, start=1)]

    assert any("another entry's turn" in f for f in remade(without_the_slowest, "int8-u8s8"))


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"policy_sha256": "0" * 64}, "policy_sha256"),
        ({"formula_sha256": "0" * 64}, "formula_sha256"),
        ({"score_version": "3.1"}, "score_version"),
        ({"finished": "2026-11-30T11:00:00Z"}, "finished"),
        ({"created": "yesterday"}, "created"),
        ({"finished": "2026-11-30T12:10:00"}, "finished"),
        ({"environment": {**DOCUMENT["environment"], "noisy": True}}, "environment.noisy"),
        ({"suite": {**DOCUMENT["suite"], "manifest_sha256": "1"}}, "suite.manifest_sha256"),
        ({"suite": {**DOCUMENT["suite"], "verified": False}}, "comparable"),
        ({"processors": []}, "engines[0].processor"),
        ({"engines": []}, "entries[0].engine"),
        ({"entries": [*DOCUMENT["entries"], DOCUMENT["entries"][0]]}, "entries["),
        ({"where_time_went_ns": {}}, "where_time_went_ns.loop"),
        ({"warnings": ["noisy"]}, "warnings"),
        ({"plan": {**DOCUMENT["plan"], "quick": True}}, "not_comparable_because"),
    ],
)
def test_a_changed_fact_of_the_run_is_named(change: dict[str, Any], path: str) -> None:
    found = verify({**DOCUMENT, **change})
    assert any(f.startswith(path) for f in found), found


def test_an_invented_warning_is_named() -> None:
    (found,) = verify({**DOCUMENT, "warnings": [*DOCUMENT["warnings"], "two_wheels"]})
    assert found.startswith("warnings: ")


@pytest.mark.parametrize("field", ["workload", "graph_variant", "variant", "declared_format"])
def test_an_entry_that_names_nothing_is_named(field: str) -> None:
    entries = copy.deepcopy(DOCUMENT["entries"])
    entries[0][field] = "fp16" if field == "variant" else "nothing"
    found = verify({**DOCUMENT, "entries": entries})
    assert any(f.startswith("entries[0].") for f in found)


def test_a_verified_suite_needs_the_pinned_manifest() -> None:
    assert recompute(RECORD, PACK, POLICY, pinned_sha256=PACK.sha256) == []
    found = recompute(RECORD, PACK, POLICY, pinned_sha256="f" * 64)
    assert [d.path for d in found] == ["suite.verified"]


def test_a_number_that_is_not_finite_is_named() -> None:
    noisy = RECORD.model_copy(update={"machine": {"watts": [1.0, math.nan]}})
    assert [d.path for d in recompute(noisy, PACK, POLICY)] == ["machine.watts[1]"]


def test_a_record_from_the_future_is_named() -> None:
    during = datetime(2026, 11, 30, 12, 5, tzinfo=UTC)
    assert [d.path for d in recompute(RECORD, PACK, POLICY, now=during)] == ["finished"]
    assert recompute(RECORD, PACK, POLICY, now=during + timedelta(hours=1)) == []


def every_leaf(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of every leaf; of a list's items, of the first and the last."""
    if isinstance(value, dict) and value:
        return [p for k, v in value.items() for p in every_leaf(v, (*path, k))]
    if isinstance(value, list) and value:
        ends = sorted({0, len(value) - 1})
        return [p for i in ends for p in every_leaf(value[i], (*path, i))]
    return [path]


def replaced(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copied = dict(document) if isinstance(document, dict) else list(document)
    copied[path[0]] = replaced(document[path[0]], path[1:], value)
    return copied


@pytest.mark.parametrize("value", [0, -1, 2**53 - 1, None, "", "ok", "crashed", [], {}])
def test_whatever_a_field_holds_recomputing_never_breaks(value: Any) -> None:
    """A record comes from strangers: it may be wrong in any way its shape allows."""
    figures, untouched = set(EDITS), Payload.model_validate(SMALL)
    taken, moved, missed = 0, 0, []
    for path in every_leaf(SMALL):
        try:
            payload = Payload.model_validate(replaced(SMALL, path, value))
        except ValidationError:
            continue
        found = recompute(payload, PACK, POLICY)
        taken += 1
        if path in figures and payload != untouched:
            moved += 1
            if not found:
                missed.append(path)
    assert missed == []
    assert taken >= 3
    assert moved >= (50 if isinstance(value, int) else 0)


@pytest.mark.parametrize("value", [0, -1, 2**53 - 1, 1e300, None, "", "ok", "crashed", []])
def test_whatever_a_box_holds_recomputing_never_breaks(value: Any) -> None:
    untouched = Payload.model_validate(BOXED)
    # An exit status may be unknown.
    figures = {p for p in box_edits() if p[-1] != "pid_exit"}
    taken, missed = 0, []
    parts = ({"box": BOXED["box"]}, {"plan": {"box": BOXED["plan"]["box"]}})
    for path in [p for part in parts for p in every_leaf(part)]:
        try:
            payload = Payload.model_validate(replaced(BOXED, path, value))
        except ValidationError:
            continue
        taken += 1
        found = recompute(payload, PACK, POLICY)
        if path in figures and payload != untouched and not found:
            missed.append(path)
    assert missed == []
    assert taken >= 2


CARD = ("cards", 1)
SEEN = (*CARD, "window")


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("n",), 7, "recomputed 2"),
        (("why",), "it was warm", "ended by nothing"),
        ((*CARD, "why"), "it was warm", "failed for no reason"),
        ((*CARD, "log_tail"), "last words", "failed for no reason"),
        ((*CARD, "pin"), {"numa_node": 0, "cpus": [0], "why": "it was warm"}, "has a reason"),
        ((*CARD, "pin"), {"numa_node": 0, "cpus": [], "why": None}, "CPUs of a node"),
        ((*CARD, "pin"), {"numa_node": None, "cpus": [0], "why": None}, "CPUs of a node"),
        ((*SEEN, "check", "snr_db"), 201.0, "than an exact answer"),
        ((*SEEN, "check", "snr_db"), 1e300, "than an exact answer"),
        (("started_ns",), 0, "the box stage comes after every scored stage"),
        (("started_ns",), BOXED["box"]["roles"][0]["attempts"][0]["started_ns"] + 1, "30 s apart"),
        (("wall_ns",), 10**12, "overlaps the attempt"),
        (("wall_ns",), 10**9, "last longer than the attempt"),
        (("window_ns",), 10**9, "the policy's window"),
        (("cards",), [], "not every card with its best solo configuration"),
        ((*CARD, "engine"), "ort-cpu", "not every card with its best solo configuration"),
        ((*CARD, "variant"), "fp16", "not every card with its best solo configuration"),
        ((*CARD, "workload"), "nothing", "names nothing"),
        ((*CARD, "status"), "crashed", "ok if, and only if"),
        (SEEN, None, "ok if, and only if"),
        ((*CARD, "pid_exit"), -9, "failed worker"),
        ((*CARD, "pin", "why"), None, "has a reason"),
        ((*SEEN, "late_ns"), -1, "before the start"),
        ((*SEEN, "calls"), 10**6, "across its end"),
        ((*SEEN, "inside"), 10**10, "more calls than nanoseconds"),
        ((*SEEN, "straddling"), [[1, 2]], "does not lie across"),
        ((*SEEN, "straddling"), [[4 * 10**9, 6 * 10**9]] * 2, "at most one call"),
        ((*SEEN, "straddling"), [[4 * 10**9, 5 * 10**9]], "does not lie across"),
        ((*SEEN, "check", "iteration"), 0, "the last call"),
        ((*SEEN, "check", "sample"), 7, "calls take the inputs in turn"),
        ((*SEEN, "check", "why"), "it was warm", "has a reason"),
        ((*SEEN, "check", "snr_db"), 3.0, "counts"),
    ],
)
def test_an_impossible_attempt_of_the_box_is_named(
    path: tuple[Any, ...], value: Any, says: str
) -> None:
    found = verify(replaced(BOXED, ("box", "roles", 0, "attempts", 1, *path), value))
    assert any(says in f for f in found), found


def test_an_attempt_of_the_box_beyond_those_wanted_is_named() -> None:
    attempts = BOXED["box"]["roles"][0]["attempts"]
    late = {**attempts[-1], "started_ns": attempts[-1]["started_ns"] + 10**12}
    found = verify(replaced(BOXED, ("box", "roles", 0, "attempts"), [*attempts, late]))
    assert any("no attempt was wanted any more" in f for f in found)


def _with_digests(document: dict[str, Any], digests: Sequence[str | None]) -> list[str]:
    """Return the differences of a document whose first two attempts and windows have these
    digests of raw samples."""
    document = copy.deepcopy(document)
    held = [a["measurement"] for a in document["entries"][0]["attempts"][:2]]
    held += [card["window"] for card in document["box"]["roles"][0]["attempts"][0]["cards"]]
    for place, digest in zip(held, digests, strict=True):
        place["samples_sha256"] = digest
    return verify(document)


@pytest.mark.parametrize("twice", [(0, 1), (0, 2), (2, 3)])
def test_raw_samples_that_stand_twice_are_named(twice: tuple[int, int]) -> None:
    digests = [c * 64 for c in "abcd"]
    assert _with_digests(BOXED, digests) == []
    assert _with_digests(BOXED, [None] * 4) == []
    digests[twice[1]] = digests[twice[0]]
    (found,) = _with_digests(BOXED, digests)
    assert "no two loops are alike" in found
    made_up = copy.deepcopy(BOXED)
    for engine in made_up["engines"]:
        engine["virtual"] = True
    assert not any("no two loops" in f for f in _with_digests(made_up, digests))


def test_a_dropped_attempt_of_the_box_is_named() -> None:
    attempts = BOXED["box"]["roles"][0]["attempts"]
    assert verify(replaced(BOXED, ("box", "roles", 0, "attempts"), attempts[1:]))


def test_a_box_that_was_not_asked_for_is_named() -> None:
    found = verify(replaced(BOXED, ("plan", "box", "mode"), "off"))
    assert any(f.startswith("box: ") for f in found)
    assert verify({**BOXED, "box": None})
    assert verify({**BOXED, "box_why": "it was warm"})


def test_a_peak_taken_from_no_record_is_named() -> None:
    solo = BOXED["box"]["roles"][0]["cards"][0]["solo"]
    for tops in (1e300, 1e-300, 0.0, -1.0):
        found = verify(replaced(BOXED, ("plan", "box", "solo"), [{**solo, "tops": tops}]))
        assert [f.split(":")[0] for f in found] == ["plan.box.solo[0].tops"]
    found = verify(replaced(BOXED, ("plan", "box", "solo"), [solo]))
    assert any(f.startswith("plan.box.solo[0].source") for f in found)


def _elsewhere(planned: Planned, n: int) -> Answer:
    return dataclasses.replace(synthetic.steady(planned, n), share=0.2)


def test_a_figure_given_to_work_that_ran_elsewhere_is_named() -> None:
    document = payload_of(simulate(_elsewhere, (NPU,))).model_dump(mode="json", by_alias=True)
    assert verify(document) == []
    entries = copy.deepcopy(document["entries"])
    ips = entries[0]["attempts"][0]["measurement"]["ips"]
    entries[0]["figure"] = {"ips": ips, "tops": 2e9 * ips / 1e12}
    assert any(f.startswith("entries[0].figure") for f in verify({**document, "entries": entries}))


@pytest.mark.parametrize(
    ("verdict", "share", "named"),
    [("proved", None, True), ("inferred", None, False), ("proved", 0.99, False)],
)
def test_a_proof_that_states_no_share_is_named(
    verdict: str, share: float | None, *, named: bool
) -> None:
    def model(planned: Planned, n: int) -> Answer:
        answer = synthetic.steady(planned, n)
        return dataclasses.replace(answer, verdict=verdict, share=share)  # type: ignore[arg-type]

    found = verify(payload_of(simulate(model, (NPU,))).model_dump(mode="json", by_alias=True))
    assert any("placement.share" in f for f in found) is named
