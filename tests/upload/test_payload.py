"""What is uploaded recomputes exactly and holds nothing that need not leave the computer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from npumark.errors import IntegrityError, UsageError
from npumark.policy import load_policy
from npumark.record.model import Attempt, Payload
from npumark.record.published import DETAILS, FACTS, MACHINE
from npumark.score.derive import derive
from npumark.score.recompute import facts_of, recompute
from npumark.server.plausibility import judge, load_rules
from npumark.server.privacy import private_data
from npumark.upload.payload import upload_payload
from tests import forge

POLICY = load_policy()
RUNS: dict[str, dict[str, Any]] = {
    "small": {"small": True},
    "quick": {"quick": True},
    "whole": {},
    "npu": {"npu": forge.NPU},
    "cards": {"cards": 2},
}

SECRETS = (
    "/home/alice/secret/model.onnx",
    "alice@example.com",
    "GPU-0f0e0d0c-0b0a-0908-0706-050403020100",
    "0000:65:00.0",
    "aa:bb:cc:dd:ee:ff",
    "my-private-host",
)


def upload(payload: Payload) -> Payload:
    return upload_payload(payload, forge.pack(), POLICY, [("my-private-host", "<host>")])


def _with_attempts(payload: Payload, change: Callable[[Attempt], Attempt]) -> Payload:
    entries = [
        e.model_copy(update={"attempts": [change(a) for a in e.attempts]}) for e in payload.entries
    ]
    return payload.model_copy(update={"entries": entries})


def talkative(payload: Payload) -> Payload:
    """Return a run that says everything that a run may say of its computer, and more."""
    said = f"cannot load {SECRETS[0]}: {' '.join(SECRETS[1:])}"

    def told(attempt: Attempt) -> Attempt:
        seen = attempt.observed
        assert seen is not None
        details = {**seen.details, "options": {"path": SECRETS[0], "uuid": SECRETS[2]}}
        update = {"details": details, "precision_why": said if seen.precision is None else None}
        observed = seen.model_copy(update=update)
        return attempt.model_copy(update={"observed": observed, "log_tail": said})

    payload = _with_attempts(payload, told)
    private = {"bus": SECRETS[3], "uuid": SECRETS[2], "note": said, "driver": "560.1"}
    environment = payload.environment
    return payload.model_copy(
        update={
            "plan": payload.plan.model_copy(update={"argv": ["run", "--out", SECRETS[0]]}),
            "machine": {
                **payload.machine,
                "boot": "474c1abdde000d86",
                "owner": "alice",
                "bios": None,
                "why": {**payload.machine["why"], "bios": said},
            },
            "processors": [
                p.model_copy(update={"details": {**p.details, **private}})
                for p in payload.processors
            ],
            "environment": environment.model_copy(
                update={
                    "facts": {
                        **environment.facts,
                        "unavailable": {"x": said},
                        "sleep_held_off": {"means": None, "why": said},
                    }
                }
            ),
            "harness": {"overhead_ns": None, "why": said},
        }
    )


@pytest.mark.parametrize("kind", RUNS)
def test_an_upload_recomputes_and_is_taken_by_the_server(kind: str) -> None:
    sent = upload(talkative(forge.forge_payload(**RUNS[kind])))
    assert recompute(sent, forge.pack(), POLICY) == []
    assert private_data(sent) == []
    assert judge(sent, rules=load_rules(), now=forge.NOW).refusals == []


@pytest.mark.parametrize("kind", RUNS)
def test_nothing_private_is_left(kind: str) -> None:
    raw = upload(talkative(forge.forge_payload(**RUNS[kind]))).model_dump_json()
    assert [secret for secret in (*SECRETS, "alice", "474c1abdde") if secret in raw] == []


def test_the_run_that_is_stripped_here_is_refused_unstripped() -> None:
    talking = talkative(forge.forge_payload(small=True))
    assert private_data(talking)
    assert all(secret in talking.model_dump_json() for secret in SECRETS)


def test_only_facts_that_are_listed_are_left() -> None:
    sent = upload(talkative(forge.forge_payload(small=True)))
    told = {n for n, v in sent.machine.items() if v is not None and n != "why"}
    assert told <= MACHINE
    assert set(sent.environment.facts) <= FACTS
    assert all(set(p.details) <= DETAILS for p in sent.processors)
    assert sent.plan.argv == []
    assert all(a.log_tail is None for e in sent.entries for a in e.attempts)


def test_what_is_public_is_kept_as_it_was() -> None:
    run = forge.forge_payload(small=True)
    sent = upload(run)
    assert (sent.score, sent.run_id, sent.created) == (run.score, run.run_id, run.created)
    assert {n: sent.machine[n] for n in MACHINE} == {n: run.machine[n] for n in MACHINE}
    assert [p.details for p in sent.processors] == [p.details for p in run.processors]
    assert sent.environment.checks == run.environment.checks


def test_a_reason_that_is_quoted_further_up_is_public_there_too() -> None:
    run = forge.forge_payload(quick=True)
    facts = facts_of(run, forge.pack())
    key, (attempt, *_) = list(facts.attempts.items())[-1]
    died = attempt.model_copy(
        update={
            "status": "crashed",
            "why": f"worker died in {SECRETS[0]}",
            "measurement": None,
            "observed": None,
            "placement": None,
            "pid_exit": -11,
        }
    )
    crashed = replace(facts, attempts={**facts.attempts, key: [died]})
    run = run.model_copy(update=derive(crashed, forge.pack(), POLICY).fields())
    assert run.entries[-1].crashed_attempts[0].why == f"worker died in {SECRETS[0]}"
    assert upload(run).entries[-1].crashed_attempts[0].why == "worker died in <path>"


@pytest.mark.parametrize(
    ("typed", "sent"),
    [
        (["ort-cpu", "alice's laptop"], ["ort-cpu"]),
        (["ort"], ["ort"]),
        (["alice"], []),
        (None, None),
    ],
)
def test_words_of_a_selection_are_sent_where_they_name_something(
    typed: list[str] | None, sent: list[str] | None
) -> None:
    run = forge.forge_payload(small=True)
    plan = run.plan.model_copy(update={"engines": typed})
    assert upload(run.model_copy(update={"plan": plan})).plan.engines == sent


def _engines(run: Payload, **fields: bool) -> Payload:
    return run.model_copy(update={"engines": [e.model_copy(update=fields) for e in run.engines]})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda run: _engines(run, virtual=True), "virtual engines only"),
        (lambda run: _engines(run, emulated=True), "emulated engines only"),
        (lambda run: _engines(run, local_only=True), "may not be published"),
        (lambda run: run.model_copy(update={"complete": False, "finished": None}), "not complete"),
        (lambda run: run.model_copy(update={"score": None, "score_why": "none"}), "no score"),
        (lambda run: run.model_copy(update={"policy_sha256": "0" * 64}), "another npumark"),
        (
            lambda run: run.model_copy(
                update={"suite": run.suite.model_copy(update={"manifest_sha256": "0" * 64})}
            ),
            "another pack",
        ),
        (
            lambda run: run.model_copy(
                update={
                    "suite": run.suite.model_copy(
                        update={"verified": False, "why_not": "a file was changed"}
                    )
                }
            ),
            "a file was changed",
        ),
    ],
)
def test_a_run_that_cannot_be_uploaded_says_why_and_what_to_do(change: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says) as refused:
        upload(change(forge.forge_payload(small=True)))
    assert refused.value.hint


def test_an_edited_figure_is_not_uploaded() -> None:
    run = forge.forge_payload(small=True)
    attempt = run.entries[0].attempts[0]
    assert attempt.measurement is not None
    faster = attempt.measurement.model_copy(update={"ips": attempt.measurement.ips * 2})
    run = _with_attempts(run, lambda a: a.model_copy(update={"measurement": faster}))
    with pytest.raises(IntegrityError, match="does not recompute"):
        upload(run)


def test_local_only_engines_are_left_out_and_the_rest_is_scored_without_them() -> None:
    run = forge.forge_payload(npu=forge.NPU)
    hidden = run.model_copy(
        update={
            "engines": [
                e.model_copy(update={"local_only": e.id == "ort-dml-npu"}) for e in run.engines
            ]
        }
    )
    sent = upload(hidden)
    assert [e.id for e in sent.engines] == ["ort-cpu"]
    assert {e.engine for e in sent.entries} == {"ort-cpu"}
    assert sent.score is not None
    assert sent.score.engine == "ort-cpu"
