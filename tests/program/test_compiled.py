"""Engines that compile: prepared before attempt 1, loaded from a model that was verified."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from npumark.engines.model_sidecar import SIDECAR
from npumark.orchestrator.compiled import root
from npumark.orchestrator.events import AttemptEnded, Stage
from npumark.pack.manifest import load_manifest
from npumark.record.model import Payload, Preparation
from npumark.score.recompute import recompute

NET = "tiny-net"
Card = Callable[..., dict[str, Any]]
ONE = {"workloads": (NET,), "variants": ("fp32",)}


def compiling(make_card: Card, *faults: dict[str, Any], **compiles: Any) -> dict[str, Any]:
    return make_card(compiles=compiles, faults=list(faults))


def only(payload: Payload) -> Preparation:
    (made,) = payload.prepared
    return made


def attempts_of(payload: Payload) -> list[tuple[str, str | None, bool | None]]:
    """Return each attempt's status, what became of the compiled model, and whether it was used."""
    return [
        (
            a.status,
            a.cache.state if a.cache else None,
            a.measurement.loaded_from_cache if a.measurement else None,
        )
        for e in payload.entries
        for a in e.attempts
    ]


def models() -> list[Path]:
    return sorted(root().glob("*/models-*/model.bin"))


def test_a_model_is_compiled_once_and_every_attempt_loads_it(bench: Any, make_card: Card) -> None:
    out = bench.run(compiling(make_card, bytes=100), quick=False, **ONE)
    payload = bench.check(out.path)
    made = only(payload)
    assert (made.status, made.why, made.state, made.before) == ("ok", None, "built", 1)
    assert made.bytes == 100
    assert all((made.compile_ns, made.load_ns, made.first_call_ns))
    assert attempts_of(payload) == [("ok", "reused", True)] * 3
    assert all(a.cache and a.cache.compile_ns is None for a in payload.entries[0].attempts)
    assert payload.where_time_went_ns["compile"] >= made.wall_ns
    doing = [e.text for e in bench.events if isinstance(e, Stage) and e.name == "compile"]
    assert doing == [f"Compiling for virtual-cpu · {NET} · fp32"]
    # What the preparation loaded is no attempt.
    assert len(list((bench.home / "script.attempts").glob(f"virtual-cpu.{NET}.*"))) == 3
    assert len(models()) == 1

    again = bench.check(bench.run(compiling(make_card, bytes=100), **ONE).path)
    assert (only(again).state, only(again).compile_ns) == ("reused", None)
    assert only(again).load_ns
    assert attempts_of(again) == [("ok", "reused", True)]
    doing = [e.text for e in bench.events if isinstance(e, Stage) and e.name == "compile"]
    assert doing == [f"Checking the compiled model of virtual-cpu · {NET} · fp32"]


def _flip(model: Path) -> None:
    raw = bytearray(model.read_bytes())
    raw[len(raw) // 2] ^= 1
    model.write_bytes(raw)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (_flip, "model.bin is not what was compiled"),
        (lambda m: m.write_bytes(m.read_bytes()[:-1]), "model.bin is not what was compiled"),
        (lambda m: m.unlink(), "a file of it was added or lost"),
        (lambda m: (m.parent.parent / SIDECAR).write_text("{}"), "its sidecar is damaged"),
    ],
)
def test_a_damaged_model_is_compiled_again_once(
    bench: Any, make_card: Card, damage: Callable[[Path], object], why: str
) -> None:
    bench.run(compiling(make_card), **ONE)
    (model,) = models()
    good = model.read_bytes()
    damage(model)
    payload = bench.check(bench.run(compiling(make_card), **ONE).path)
    assert (only(payload).state, only(payload).why) == ("rebuilt", why)
    # A damaged model answers wrong where it is believed: the gate would have seen it.
    assert attempts_of(payload) == [("ok", "reused", True)]
    assert payload.score is None or payload.entries[0].counts
    assert good in {m.read_bytes() for m in models()}


def test_a_model_of_another_entry_is_not_believed(bench: Any, make_card: Card) -> None:
    workloads = {"workloads": (NET,)}
    bench.run(compiling(make_card), **workloads)
    one, two = (m.parent.parent for m in models())
    kept = one.with_name("kept")
    one.rename(kept)
    two.rename(one)
    kept.rename(two)
    payload = bench.check(bench.run(compiling(make_card), **workloads).path)
    assert [p.state for p in payload.prepared] == ["rebuilt"] * 2
    assert {p.why for p in payload.prepared} == {"it was compiled for another entry"}
    assert attempts_of(payload) == [("ok", "reused", True)] * 2


def test_a_model_that_is_damaged_during_the_run_costs_nothing_but_time(
    bench: Any, make_card: Card
) -> None:
    request = bench.request(compiling(make_card), quick=False, **ONE)

    def tamper(event: Any) -> None:
        if isinstance(event, AttemptEnded) and event.attempt.n == 1:
            _flip(models()[0])

    from npumark.orchestrator.run import execute

    out = execute(request, tamper, policy=bench.policy)
    payload = bench.check(out.path)
    assert [(a[1], a[2]) for a in attempts_of(payload)] == [
        ("reused", True),
        ("rebuilt", False),
        ("reused", True),
    ]
    assert {a[0] for a in attempts_of(payload)} == {"ok"}
    second = payload.entries[0].attempts[1].cache
    assert second is not None
    assert second.why == "model.bin is not what was compiled"
    assert second.compile_ns
    # What an attempt made is seen to load before it is relied on.
    assert [(p.before, p.state) for p in payload.prepared] == [(1, "built"), (3, "reused")]


@pytest.mark.parametrize("do", ["abort", "exit", "half_json"])
def test_a_model_on_which_a_process_dies_is_not_relied_on(
    bench: Any, make_card: Card, do: str
) -> None:
    # It loads where it was compiled, and kills, or silences, every process that loads it again.
    card = compiling(make_card, {"when": "reload", "do": do})
    payload = bench.check(bench.run(card, **ONE).path)
    made = only(payload)
    assert made.state == "unkept"
    assert (made.why or "").startswith("it was compiled and does not load: ")
    assert attempts_of(payload) == [("ok", None, None)]
    assert models() == []


def test_a_model_that_kills_and_was_left_by_an_earlier_run_is_compiled_again(
    bench: Any, make_card: Card
) -> None:
    bench.run(compiling(make_card), **ONE)
    # Two loads prepared the first run; the third dies of what they left.
    fault = {"when": "reload", "do": "abort", "attempts": [-3]}
    payload = bench.check(bench.run(compiling(make_card, fault), **ONE).path)
    assert only(payload).state == "rebuilt"
    assert "SIGABRT" in (only(payload).why or "")
    assert attempts_of(payload) == [("ok", "reused", True)]


def test_a_model_that_answers_otherwise_when_loaded_again_is_not_relied_on(
    bench: Any, make_card: Card
) -> None:
    card = compiling(make_card, {"when": "reload", "do": "zeros"})
    payload = bench.check(bench.run(card, **ONE).path)
    assert only(payload).state == "unkept"
    assert only(payload).why == "loaded again it answers otherwise than when it was compiled"
    assert attempts_of(payload) == [("ok", None, None)]
    assert payload.entries[0].counts


def test_a_runtime_that_writes_no_model_runs_without_one(bench: Any, make_card: Card) -> None:
    payload = bench.check(bench.run(compiling(make_card, keeps=False), **ONE).path)
    made = only(payload)
    assert (made.state, made.why) == ("unkept", "the runtime wrote no compiled model")
    assert attempts_of(payload) == [("ok", None, None)]


def test_a_place_for_models_that_is_none_is_said_and_costs_no_figure(
    bench: Any, make_card: Card
) -> None:
    root().parent.mkdir(parents=True, exist_ok=True)
    root().write_text("a file in the way")
    payload = bench.check(bench.run(compiling(make_card), **ONE).path)
    assert only(payload).state == "unkept"
    assert (only(payload).why or "").startswith("it cannot be written: ")
    assert attempts_of(payload) == [("ok", None, None)]


def test_a_failed_preparation_is_said_and_the_attempt_says_why(bench: Any, make_card: Card) -> None:
    card = compiling(make_card, {"when": "compile", "do": "unsupported"})
    payload = bench.check(bench.run(card, **ONE).path)
    made = only(payload)
    assert (made.status, made.state) == ("unsupported", None)
    assert made.why == "the virtual engine does not run this variant"
    assert [a[0] for a in attempts_of(payload)] == ["unsupported"]


def test_an_entry_that_hangs_while_it_compiles_is_prepared_once_and_attempted_once(
    bench: Any, make_card: Card
) -> None:
    bench.rules["attempt_deadline_s"] = "2.0"
    card = compiling(make_card, {"when": "compile", "do": "hang", "workload": NET})
    payload = bench.check(bench.run(card, quick=False, **ONE).path)
    assert (only(payload).status, only(payload).state) == ("timeout", None)
    # The deadline passed once while preparing and once in the attempt: that ends the entry.
    assert [a[0] for a in attempts_of(payload)] == ["timeout"]
    assert payload.complete
    assert payload.entries[0].why_not == "timeout"
    without = payload.model_copy(update={"prepared": []})
    found = recompute(without, load_manifest(bench.manifest), bench.policy)
    assert "complete" in {d.path for d in found}


def test_an_entry_that_dies_while_it_compiles_is_prepared_once(bench: Any, make_card: Card) -> None:
    card = compiling(make_card, {"when": "compile", "do": "abort"})
    payload = bench.check(bench.run(card, quick=False, **ONE).path)
    assert (only(payload).status, only(payload).before) == ("crashed", 1)
    assert "SIGABRT" in (only(payload).why or "")
    # A crash runs to its maximum, and each attempt says why.
    assert {a[:2] for a in attempts_of(payload)} == {("crashed", None)}
    assert len(payload.entries[0].attempts) == bench.policy.repetition.network_max_attempts


def test_a_model_whose_calls_fail_is_compiled_again_once(bench: Any, make_card: Card) -> None:
    bench.run(compiling(make_card), **ONE)
    for do in ("unsupported", "wrong_device", "raise"):
        bench.home.joinpath("script.attempts").rename(bench.home / f"attempts before {do}")
        fault = {"do": do, "call": 1, "attempts": [-1]}
        payload = bench.check(bench.run(compiling(make_card, fault), **ONE).path)
        assert only(payload).state == "rebuilt"
        assert attempts_of(payload) == [("ok", "reused", True)]


def test_a_resumed_run_is_prepared_again(bench: Any, make_card: Card) -> None:
    bench.rules["spacing_s"] = "600.0"
    card = compiling(make_card)
    first = bench.check(bench.run(card, quick=False, time_budget_s=300.0, **ONE).path)
    assert not first.complete
    assert [p.before for p in first.prepared] == [1]
    bench.rules["spacing_s"] = "0.0"
    from npumark.orchestrator.request import RunRequest
    from npumark.orchestrator.run import execute

    payload = bench.check(execute(RunRequest(resume="last"), policy=bench.policy).path)
    assert payload.complete
    assert [(p.before, p.state) for p in payload.prepared] == [(1, "built"), (2, "reused")]
    assert attempts_of(payload) == [("ok", "reused", True)] * 3
    spent = sum(p.wall_ns for p in payload.prepared)
    assert payload.where_time_went_ns["compile"] >= spent


def test_what_a_record_says_of_compiling_is_checked(bench: Any, make_card: Card) -> None:
    payload = bench.check(bench.run(compiling(make_card), **ONE).path)
    made = only(payload)

    def differences(**changes: Any) -> set[str]:
        edited = payload.model_copy(update={"prepared": [made.model_copy(update=changes)]})
        found = recompute(edited, load_manifest(bench.manifest), bench.policy)
        return {d.path for d in found}

    assert differences() == set()
    assert "prepared[0].engine" in differences(engine="x")
    assert "prepared[0].before" in differences(before=3)
    assert "prepared[0].started_ns" in differences(started_ns=made.started_ns + 10**12)
    assert "prepared[0].compile_ns" in differences(compile_ns=10**15)
    assert "prepared[0].state" in differences(state="reused")
    assert "where_time_went_ns.compile" in differences(wall_ns=10**12, started_ns=0)
    without = payload.model_copy(update={"prepared": []})
    found = recompute(without, load_manifest(bench.manifest), bench.policy)
    assert {d.path for d in found} == {"entries[0].attempts[0].cache"}
    entry, attempt = payload.entries[0], payload.entries[0].attempts[0]
    measured = attempt.measurement
    assert measured is not None
    lied = attempt.model_copy(
        update={"measurement": measured.model_copy(update={"loaded_from_cache": False})}
    )
    edited = payload.model_copy(update={"entries": [entry.model_copy(update={"attempts": [lied]})]})
    found = recompute(edited, load_manifest(bench.manifest), bench.policy)
    assert {d.path for d in found} == {"entries[0].attempts[0].measurement.loaded_from_cache"}


def test_a_broken_line_of_a_preparation_is_named(bench: Any, make_card: Card) -> None:
    from npumark.errors import IntegrityError
    from npumark.orchestrator.request import RunRequest
    from npumark.orchestrator.run import execute

    bench.rules["spacing_s"] = "600.0"
    bench.run(compiling(make_card), quick=False, time_budget_s=300.0, **ONE)
    (journal,) = bench.home.glob("data/runs/*/journal.jsonl")
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    (made,) = (line for line in lines if line["kind"] == "prepared")
    made["preparation"]["state"] = "melted"
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(IntegrityError, match="state"):
        execute(replace(RunRequest(), resume="last"), policy=bench.policy)
