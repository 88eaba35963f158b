"""The document: sealed, strict, and every finding in it read again from the raw samples."""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npumark.diagnose.document import (
    Diagnostics,
    Document,
    ProbeFinding,
    SampleFile,
    StepSeen,
    TargetFields,
    decode,
    encode,
    read_document,
    seal,
)
from npumark.diagnose.latency import latency_of
from npumark.diagnose.probe import Finding, Probe, Ratio, Samples, Seen, Step, Target, rate
from npumark.diagnose.reading import (
    differences,
    find,
    from_first_call,
    read_samples,
    seen_of,
    target_of,
    told,
)
from npumark.diagnose.registry import PROBES
from npumark.errors import IntegrityError, UsageError
from npumark.policy import DiagnoseRules, load_policy
from npumark.record.canonical import payload_sha256
from npumark.record.model import Environment, Suite, Tool

RULES = load_policy().diagnose
MS = 1_000_000
UPTIME = 2**60
"""A clock may count from long ago: beyond what JSON holds exactly."""


def _steps(target: Target, rules: DiagnoseRules) -> tuple[Step, ...]:
    del target, rules
    return (Step("twice", "sustained", {"seconds": 1.0}),)


def _finding(
    target: Target, single: Seen, seen: Mapping[str, Seen], rules: DiagnoseRules
) -> Finding:
    del target, rules
    calls = seen["twice"].samples["calls"]
    ratio = rate(calls) / rate(single.samples["calls"])
    rows = tuple({"call": str(i), "begin_ns": int(b)} for i, (b, _) in enumerate(calls))
    columns = (("call", "call"), ("begin_ns", "begin"))
    ratios = (Ratio("pace", ratio, "pace ÷ probe_ips"),)
    return Finding("ok", None, columns, rows, None, ratios, "It goes.", "Let it go.")


PROBE = Probe("pace", "Pace", False, _steps, _finding)


def kept(folder: Path, name: str, values: Samples) -> SampleFile:
    raw = values.astype("<i8").tobytes()
    (folder / name).write_bytes(raw)
    columns = 1 if values.ndim == 1 else values.shape[1]
    sha = hashlib.sha256(raw).hexdigest()
    return SampleFile(file=name, sha256=sha, n=len(values), columns=columns)


def step_seen(name: str, kind: str, file: SampleFile, **over: Any) -> StepSeen:
    fields: dict[str, Any] = {
        "name": name,
        "kind": kind,
        "options": {},
        "beside": None,
        "status": "ok",
        "why": None,
        "samples": {"calls": file},
        "facts": {},
        "sensors": [],
    }
    return StepSeen(**{**fields, **over})


@pytest.fixture
def payload(tmp_path: Path) -> Diagnostics:
    durations = np.full(40, 10 * MS, dtype=np.int64)
    begins = UPTIME + np.arange(5, dtype=np.int64) * 20 * MS
    calls = np.stack((begins, begins + 20 * MS), axis=1)
    single = step_seen("single", "single", kept(tmp_path, "single.i64", durations))
    twice = step_seen(
        "twice", "sustained", kept(tmp_path, "twice.i64", calls), options={"seconds": 1.0}
    )
    fields: dict[str, Any] = {
        "engine": "ort-cpu",
        "processor": "cpu",
        "role": "CPU",
        "runtime": "ort",
        "version": "1",
        "compiles": False,
        "cores": 2,
        "card": "0000:01:00.0",
        "workload": "net",
        "variant": "fp32",
        "format": "FP32",
        "chosen": "last benchmark",
        "chosen_from": "run",
        "chosen_why": None,
        "candidates": [],
        "status": "ok",
        "why": None,
        "probe_ips": rate(durations),
        "py_ips": None,
        "latency_ns": latency_of(durations, RULES),
        "single": single,
        "findings": [],
    }
    target = target_of(TargetFields(**fields))
    seen = {"twice": seen_of(twice, tmp_path)}
    found = find(PROBE, target, seen_of(single, tmp_path), seen, RULES)
    fields["findings"] = [told(PROBE, found, [twice])]
    return Diagnostics(
        schema="npumark-diagnostics/1",
        id="20260101T000000Z-abc123",
        created="2026-01-01T00:00:00Z",
        finished=None,
        complete=True,
        comparable=False,
        tool=Tool(version="0", python="3", packages={}),
        machine={},
        processors=[],
        environment=Environment(checks={}, noisy=False, skipped=True, facts={}),
        suite=Suite(
            name="test",
            version="1",
            edition="seeded",
            basis="tests",
            manifest_sha256="0" * 64,
            verified=True,
            why_not=None,
        ),
        policy_sha256="0" * 64,
        rules=asdict(RULES),
        deep=False,
        probes=["pace"],
        argv=[],
        targets=[TargetFields(**fields)],
    )


def edited(payload: Diagnostics, **fields: Any) -> Diagnostics:
    target = payload.targets[0].model_copy(update=fields)
    return payload.model_copy(update={"targets": [target]})


def test_what_is_written_is_what_is_read(payload: Diagnostics, tmp_path: Path) -> None:
    document = seal(payload)
    (tmp_path / "diagnostics.json").write_bytes(encode(document))
    again = read_document(tmp_path)
    assert again.payload_sha256 == document.payload_sha256
    assert encode(again) == encode(document)


def test_every_finding_is_reproduced_from_the_raw_samples(
    payload: Diagnostics, tmp_path: Path
) -> None:
    read = decode(encode(seal(payload))).payload
    assert read.targets[0].findings[0].ratios[0].value == pytest.approx(0.5)
    assert differences(read, tmp_path, [PROBE]) == []


def test_a_target_is_read_from_the_document_as_it_was(payload: Diagnostics) -> None:
    target = target_of(payload.targets[0])
    assert (target.cores, target.card) == (2, "0000:01:00.0")


def test_calls_are_counted_from_the_first_one(payload: Diagnostics) -> None:
    rows = payload.targets[0].findings[0].rows
    assert [row["begin_ns"] for row in rows] == [i * 20 * MS for i in range(5)]
    assert from_first_call({"a": np.array([5, 6])})["a"].tolist() == [5, 6]


def test_a_changed_ratio_is_named(payload: Diagnostics, tmp_path: Path) -> None:
    finding = payload.targets[0].findings[0]
    better = finding.ratios[0].model_copy(update={"value": 0.6})
    wrong = edited(payload, findings=[finding.model_copy(update={"ratios": [better]})])
    assert differences(wrong, tmp_path, [PROBE]) == [
        "ort-cpu · net: pace: ratios is not what the samples give"
    ]


def test_a_changed_rate_of_the_single_attempt_is_named(
    payload: Diagnostics, tmp_path: Path
) -> None:
    (text,) = differences(edited(payload, probe_ips=101.0), tmp_path, [PROBE])
    assert text == "ort-cpu · net: probe_ips is 101.0, the samples give 100.0"


@pytest.mark.parametrize("name", ["single.i64", "twice.i64"])
def test_a_changed_or_missing_file_is_named(
    payload: Diagnostics, tmp_path: Path, name: str
) -> None:
    raw = bytearray((tmp_path / name).read_bytes())
    raw[0] ^= 1
    (tmp_path / name).write_bytes(raw)
    (text,) = differences(payload, tmp_path, [PROBE])
    assert f"{name} was changed" in text
    (tmp_path / name).unlink()
    (text,) = differences(payload, tmp_path, [PROBE])
    assert f"{name} cannot be read" in text


@pytest.mark.parametrize("load", [["much"], "much", {"others": "much"}, {"others": [1]}])
def test_facts_of_another_form_are_told(payload: Diagnostics, tmp_path: Path, load: Any) -> None:
    single = payload.targets[0].single
    assert single is not None
    odd = single.model_copy(update={"facts": {"load": load}})
    stated = payload.targets[0].findings[0].model_copy(update={"probe": "idle_wake"})
    rules = {**payload.rules, "idle_ms": [1], "idle_calls": [3]}
    steps = [
        step_seen(
            "idle",
            "idle",
            kept(tmp_path, "idle.i64", np.full(3, MS)),
            options={"idle_ms": [1], "calls": [3]},
        )
    ]
    samples = dict.fromkeys(("busy", "after-1-ms"), steps[0].samples["calls"])
    steps = [steps[0].model_copy(update={"samples": samples})]
    other = edited(
        payload.model_copy(update={"rules": rules}),
        single=odd,
        findings=[stated.model_copy(update={"steps": steps})],
    )
    assert "ort-cpu · net: idle_wake: finding is not what the samples give" in differences(
        other, tmp_path, PROBES
    )


def test_percentiles_are_those_of_the_documents_rules(payload: Diagnostics, tmp_path: Path) -> None:
    latency = payload.targets[0].latency_ns
    assert latency is not None
    assert (latency.p95, latency.p999) == (10 * MS, None)
    lax = {**payload.rules, "percentiles": {"p90": 1, "p95": 1, "p99": 1, "p999": 1}}
    stated = edited(payload.model_copy(update={"rules": lax}))
    assert differences(stated, tmp_path, [PROBE]) == [
        "ort-cpu · net: latency_ns is not what the samples give"
    ]
    other = edited(stated, latency_ns=latency.model_copy(update={"p99": 10 * MS, "p999": 10 * MS}))
    assert differences(other, tmp_path, [PROBE]) == []


def test_rules_of_another_form_are_told(payload: Diagnostics, tmp_path: Path) -> None:
    for rules in ({}, {**payload.rules, "percentiles": {}}, {**payload.rules, "percentiles": 3}):
        other = payload.model_copy(update={"rules": rules})
        assert differences(other, tmp_path, [PROBE]) == ["its rules are not those of this version"]


def test_rules_that_a_probe_cannot_ask_by_are_told(payload: Diagnostics, tmp_path: Path) -> None:
    odd = payload.model_copy(update={"rules": {**payload.rules, "streams": ["many"]}})
    finding = odd.targets[0].findings[0].model_copy(update={"probe": "concurrency"})
    (text,) = differences(edited(odd, findings=[finding]), tmp_path, PROBES)
    assert text.startswith("ort-cpu · net: concurrency: ")


@pytest.mark.parametrize(
    "over",
    [
        {"options": {"seconds": 0.1}},
        {"kind": "auto"},
        {"beside": "cpu"},
        {"name": "again", "kind": "single"},
    ],
)
def test_steps_that_the_probe_does_not_ask_for_are_named(
    payload: Diagnostics, tmp_path: Path, over: dict[str, Any]
) -> None:
    finding = payload.targets[0].findings[0]
    (step,) = finding.steps
    other = finding.model_copy(update={"steps": [step.model_copy(update=over)]})
    assert differences(edited(payload, findings=[other]), tmp_path, [PROBE]) == [
        "ort-cpu · net: pace: its steps are not those of the probe"
    ]
    assert differences(
        edited(payload, findings=[finding.model_copy(update={"steps": []})]), tmp_path, [PROBE]
    ) == ["ort-cpu · net: pace: its steps are not those of the probe"]


def test_the_repetition_of_the_single_loop_may_follow_a_probes_steps(
    payload: Diagnostics, tmp_path: Path
) -> None:
    finding, single = payload.targets[0].findings[0], payload.targets[0].single
    assert single is not None
    again = single.model_copy(update={"name": "again", "options": {"seconds": 1.0}})
    more = finding.model_copy(update={"steps": [*finding.steps, again]})
    assert differences(edited(payload, findings=[more]), tmp_path, [PROBE]) == []


def test_a_probe_of_another_version_is_told(payload: Diagnostics, tmp_path: Path) -> None:
    (text,) = differences(payload, tmp_path, [])
    assert "no probe 'pace'" in text


def test_an_edited_document_is_refused(payload: Diagnostics) -> None:
    doc = json.loads(encode(seal(payload)))
    doc["payload"]["targets"][0]["probe_ips"] = 200.0
    with pytest.raises(IntegrityError, match="was changed after it was written"):
        decode(json.dumps(doc).encode())


def test_an_unknown_field_is_refused(payload: Diagnostics) -> None:
    doc = json.loads(encode(seal(payload)))
    doc["payload"]["comparable_too"] = True
    with pytest.raises(IntegrityError, match="comparable_too"):
        decode(json.dumps(doc).encode())


def test_a_whole_document_of_another_form_is_not_called_damaged(payload: Diagnostics) -> None:
    doc = json.loads(encode(seal(payload)))
    del doc["payload"]["deep"]
    with pytest.raises(IntegrityError, match=r"does not follow .*: payload\.deep: "):
        decode(json.dumps(doc).encode())
    doc["payload_sha256"] = payload_sha256(doc["payload"])
    with pytest.raises(IntegrityError, match=r"was written by another .*: payload\.deep: "):
        decode(json.dumps(doc).encode())


def test_another_document_is_refused_and_a_missing_one_told(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="is no npumark-diagnostics/1 document"):
        decode(b'{"payload": {"schema": "npumark-record/1"}}')
    with pytest.raises(UsageError, match="cannot be read"):
        read_document(tmp_path / "nothing.json")


def test_a_number_that_is_none_is_refused(payload: Diagnostics) -> None:
    with pytest.raises(ValueError, match="finite"):
        TargetFields(**{**dict(payload.targets[0]), "probe_ips": math.inf})
    finding = payload.targets[0].findings[0]
    with pytest.raises(ValueError, match="rows"):
        ProbeFinding(**{**dict(finding), "rows": [{"ips": math.nan}]})


def test_a_document_is_never_comparable(payload: Diagnostics) -> None:
    with pytest.raises(ValueError, match="comparable"):
        Document(payload=Diagnostics(**{**dict(payload), "comparable": True}), payload_sha256="")


def test_samples_that_a_probe_cannot_read_make_its_finding_fail() -> None:
    seen = {"twice": Seen(Step("twice", "sustained"), "ok", None, {}, {})}
    single = Seen(Step("single", "single"), "ok", None, {"calls": np.full(3, MS)}, {})
    target = Target("ort-cpu", "ort", "CPU", "net", "fp32", compiles=False, cores=2)
    found = find(PROBE, target, single, seen, RULES)
    assert found.status == "failed"
    assert found.why is not None
    assert "cannot be read: KeyError" in found.why


def a_file(folder: Path, name: str = "calls.i64") -> SampleFile:
    raw = np.arange(3, dtype="<i8").tobytes()
    (folder / "calls.i64").write_bytes(raw)
    return SampleFile(file=name, sha256=hashlib.sha256(raw).hexdigest(), n=3, columns=1)


@pytest.mark.parametrize(
    "name", ["", ".", "../calls.i64", "a/../../calls.i64", "..\\calls.i64", "C:calls.i64", "a\0b"]
)
def test_samples_lie_below_the_document_alone(tmp_path: Path, name: str) -> None:
    below = tmp_path / "run"
    (below / "a").mkdir(parents=True)
    file = a_file(tmp_path, name)
    with pytest.raises(IntegrityError, match="is no file of the document's folder"):
        read_samples(below, file)


def test_an_absolute_path_is_none_of_a_documents(tmp_path: Path) -> None:
    a_file(tmp_path)
    with pytest.raises(IntegrityError, match="is no file of the document's folder"):
        read_samples(tmp_path, a_file(tmp_path, str(tmp_path / "calls.i64")))
    assert read_samples(tmp_path, a_file(tmp_path)).tolist() == [0, 1, 2]


@pytest.mark.skipif(sys.platform == "win32", reason="has neither without privileges")
def test_nothing_is_opened_that_is_no_plain_file_of_that_size(tmp_path: Path) -> None:
    file = a_file(tmp_path)
    run = tmp_path / "run"
    run.mkdir()
    (run / "calls.i64").symlink_to(tmp_path / "calls.i64")
    with pytest.raises(IntegrityError, match="is no file of the document's folder"):
        read_samples(run, file)
    (run / "calls.i64").unlink()
    os.mkfifo(run / "calls.i64")  # opening it would wait for ever
    with pytest.raises(IntegrityError, match="is no file of the document's folder"):
        read_samples(run, file)
    (run / "calls.i64").unlink()
    (run / "calls.i64").write_bytes(b"0" * 25)
    with pytest.raises(IntegrityError, match="does not hold 3 samples"):
        read_samples(run, file)
