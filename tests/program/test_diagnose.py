"""Whole diagnostics runs on virtual engines: what is chosen, measured, kept and said."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from npumark.cli.app import main
from npumark.diagnose.document import Diagnostics, TargetFields, read_document
from npumark.diagnose.reading import differences
from npumark.diagnose.registry import PROBES
from npumark.errors import NothingToMeasure, UsageError
from npumark.machine import cpu_limits
from npumark.orchestrator.diagnose_request import DiagnoseRequest
from npumark.orchestrator.diagnosing import Outcome, execute
from npumark.orchestrator.events import Event, Note, Stage
from npumark.record.history import list_runs

Card = Callable[..., dict[str, Any]]

RULES = {
    "diagnose.loop_s": "0.05",
    "level_s": "0.02",
    "streams": "[1, 2]",
    "batches": "[1, 2]",
    "idle_ms": "[1, 100]",
    "idle_calls": "[5, 3]",
    "lead_s": "0.05",
}


class Bench:
    """The program tests' bench, with short probes."""

    def __init__(self, bench: Any) -> None:
        self.runs = bench
        bench.rules.update(RULES)
        self.events: list[Event] = []

    def diagnose(self, *cards: dict[str, Any], **fields: Any) -> Outcome:
        request = DiagnoseRequest(
            **{
                "virtual": self.runs.script(*cards),
                "manifest": self.runs.manifest,
                "skip_preconditions": True,
                "probes": ("idle_wake",),
                **fields,
            }
        )
        self.events.clear()
        return execute(request, self.events.append, policy=self.runs.policy)

    @property
    def notes(self) -> list[str]:
        return [e.text for e in self.events if isinstance(e, Note)]


@pytest.fixture
def lab(bench: Any) -> Bench:
    return Bench(bench)


@pytest.fixture
def heard() -> Iterator[None]:
    """SIGINT as a terminal sends it: a test run in the background may have been started with it
    ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def kept(outcome: Outcome) -> Diagnostics:
    """Return what was saved, each finding read again from the raw samples beside it."""
    document = read_document(outcome.path)
    assert document.payload_sha256 == outcome.document.payload_sha256
    assert differences(document.payload, outcome.path.parent, PROBES) == []
    return document.payload


def only(payload: Diagnostics) -> TargetFields:
    (target,) = payload.targets
    return target


def test_the_fastest_variant_of_the_last_benchmark_is_probed(lab: Bench, make_card: Card) -> None:
    card = make_card(wake={"after_ms": 100, "factor": 3})
    run = lab.runs.run(card)
    outcome = lab.diagnose(card, probes=None)
    payload = kept(outcome)
    target = only(payload)
    assert outcome.exit_code == 0
    assert (target.workload, target.variant) == ("tiny-net", "int8-u8s8")
    assert (target.chosen, target.chosen_from) == ("last benchmark", run.record.payload.run_id)
    assert target.candidates == []
    (note,) = lab.notes
    assert note.startswith("the loops of these probes take ")
    assert target.probe_ips == 500.0
    assert target.py_ips is None
    ratios = {r.name: r.value for f in target.findings for r in f.ratios}
    # Virtual sessions share nothing: two streams give twice the single one.
    assert ratios["threads_gain"] == ratios["processes_gain"] == 2.0
    assert ratios["idle_wake_tax"] == 3.0
    assert [f.probe for f in target.findings] == [p.name for p in PROBES if not p.deep]


def test_without_a_benchmark_the_variants_are_measured_first_and_that_is_said(
    lab: Bench, make_card: Card
) -> None:
    payload = kept(lab.diagnose(make_card()))
    target = only(payload)
    assert target.chosen == "measured here"
    assert target.chosen_from is None
    assert [(c.variant, c.ips) for c in target.candidates] == [
        ("fp32", 250.0),
        ("int8-u8s8", 500.0),
    ]
    assert target.variant == "int8-u8s8"
    note, _ = lab.notes
    assert "no earlier benchmark" in note
    assert "virtual-cpu · tiny-net" in note
    assert payload.comparable is False
    assert list_runs() == []


def test_a_variant_that_answers_wrong_is_not_chosen(lab: Bench, make_card: Card) -> None:
    faults = [{"variant": "int8-u8s8", "do": "zeros"}]
    target = only(kept(lab.diagnose(make_card(faults=faults))))
    assert target.variant == "fp32"
    wrong = target.candidates[1]
    assert (wrong.status, wrong.ips) == ("gate_failed", None)
    assert wrong.why is not None


def test_where_no_variant_passes_nothing_is_probed(lab: Bench, make_card: Card) -> None:
    outcome = lab.diagnose(make_card(faults=[{"do": "zeros"}]))
    target = only(kept(outcome))
    assert outcome.exit_code == 3
    assert (target.variant, target.single, target.findings) == (None, None, [])
    assert target.why is not None
    assert target.why.startswith("no variant passes here; fp32: ")


def test_every_step_says_what_else_ran_and_the_single_loop_ends_a_probe(
    lab: Bench, make_card: Card
) -> None:
    probes = ("idle_wake", "concurrency", "compile_cache")
    target = only(kept(lab.diagnose(make_card(), probes=probes)))
    assert target.single is not None
    steps = [target.single, *(s for f in target.findings for s in f.steps)]
    assert all(s.facts["load"]["seconds"] > 0 for s in steps)
    names = {f.probe: [s.name for s in f.steps] for f in target.findings}
    assert names["idle_wake"][-1] == names["concurrency"][-1] == "again"
    assert "again" not in names["compile_cache"]
    (again,) = [s for f in target.findings for s in f.steps if s.name == "again"][:1]
    assert (again.kind, again.options, again.status) == ("single", {"seconds": 0.02}, "ok")


def test_nothing_is_repeated_where_nothing_was_measured(lab: Bench, make_card: Card) -> None:
    card = make_card(faults=[{"do": "unsupported", "when": "batch"}])
    target = only(kept(lab.diagnose(card, probes=("batching",))))
    assert [s.name for s in target.findings[0].steps] == ["batch-2"]


def test_an_engine_that_answers_wrong_now_is_not_diagnosed(lab: Bench, make_card: Card) -> None:
    assert lab.runs.run(make_card()).exit_code == 0
    outcome = lab.diagnose(make_card(faults=[{"do": "zeros"}]))
    target = only(kept(outcome))
    assert outcome.exit_code == 3
    assert (target.chosen, target.status, target.probe_ips) == (
        "last benchmark",
        "gate_failed",
        None,
    )
    assert target.why is not None
    assert "zero everywhere" in target.why
    assert target.findings == []


@pytest.mark.parametrize(("load", "streams"), [(3, "2 threads"), (6, "2 processes")])
def test_a_level_that_answers_wrong_has_no_rate(
    lab: Bench, make_card: Card, load: int, streams: str
) -> None:
    """Loads of the variant: the candidate's, the single attempt's, two threads', two processes'."""
    fault = {"variant": "int8-u8s8", "attempts": [load], "do": "zeros"}
    finding = only(kept(lab.diagnose(make_card(faults=[fault]), probes=("concurrency",)))).findings[
        0
    ]
    row = next(r for r in finding.rows if r["streams"] == streams)
    assert row["ips"] is None
    assert "answers wrong" in str(row["why"])
    assert sorted(s.status for s in finding.steps) == ["gate_failed", "ok", "ok"]


def test_a_batch_of_a_quantised_network_may_be_summed_in_another_order(
    lab: Bench, make_card: Card
) -> None:
    card = make_card(faults=[{"do": "noise", "snr_db": 45, "when": "batch"}])
    target = only(kept(lab.diagnose(card, probes=("batching",))))
    (finding,) = target.findings
    assert (target.format, finding.status, finding.why) == ("INT8", "ok", None)
    assert finding.rows[1]["ips"] is not None


def test_what_runtimes_tell_is_redacted(lab: Bench, make_card: Card) -> None:
    home = str(lab.runs.home)
    card = make_card(device=f"{home}/device")
    outcome = lab.diagnose(card, probes=("auto_scheduler",))
    kept(outcome)
    assert home not in outcome.path.read_text(encoding="utf-8")
    (finding,) = only(outcome.document.payload).findings
    assert "<npumark-home>/device" in {row["picked"] for row in finding.rows}


def test_the_cores_are_the_cpus_that_may_be_used(
    lab: Bench, make_card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = replace(cpu_limits.limits(), usable=7, threads=3)
    monkeypatch.setattr(cpu_limits, "limits", lambda *_: limits)
    assert only(kept(lab.diagnose(make_card()))).cores == 7


def test_a_step_that_dies_costs_its_finding_and_no_more(lab: Bench, make_card: Card) -> None:
    # The third load of the variant: after the candidate's and the single attempt's.
    fault = {"variant": "int8-u8s8", "attempts": [3], "do": "abort"}
    outcome = lab.diagnose(make_card(faults=[fault]), probes=("idle_wake", "batching"))
    target = only(kept(outcome))
    assert outcome.exit_code == 1
    assert target.status == "ok"
    assert {f.probe: f.status for f in target.findings} == {"batching": "failed", "idle_wake": "ok"}
    assert target.findings[0].steps[0].status == "crashed"


def test_a_single_attempt_that_dies_costs_its_target(lab: Bench, make_card: Card) -> None:
    fault = {"variant": "int8-u8s8", "attempts": [2], "do": "exit", "code": 3}
    outcome = lab.diagnose(
        make_card(faults=[fault]), make_card("virtual-gpu", processor=_gpu()), probes=("idle_wake",)
    )
    payload = kept(outcome)
    assert outcome.exit_code == 1
    assert [t.status for t in payload.targets] == ["crashed", "ok"]
    assert payload.targets[0].probe_ips is None


def test_one_process_of_several_that_dies_is_named(lab: Bench, make_card: Card) -> None:
    fault = {"variant": "int8-u8s8", "attempts": [5], "do": "exit", "code": 3}
    outcome = lab.diagnose(make_card(faults=[fault]), probes=("concurrency",))
    finding = only(kept(outcome)).findings[0]
    assert outcome.exit_code == 1
    two = finding.rows[-1]
    assert (two["streams"], two["ips"]) == ("2 processes", None)
    assert str(two["why"]).startswith("process-")


def test_more_sessions_than_memory_holds_are_not_started(
    lab: Bench, make_card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.runs.rules["memory_factor"] = "1.0"
    # The files of one session fit, those of two do not.
    size = sum(f.stat().st_size for f in lab.runs.home.rglob("tiny-net/*") if f.suffix != ".onnx")
    for module in ("orchestrator.diagnose_steps", "orchestrator.diagnosing.sensors"):
        monkeypatch.setattr(f"npumark.{module}.available_memory", lambda: round(1.5 * size))
    outcome = lab.diagnose(make_card(), probes=("concurrency",))
    finding = only(kept(outcome)).findings[0]
    assert outcome.exit_code == 0
    assert finding.status == "failed"
    assert finding.why is not None
    assert finding.why.startswith("not enough memory: ")


def test_a_signal_ends_it_and_what_was_measured_is_saved(
    lab: Bench, make_card: Card, heard: None
) -> None:
    def listen(event: Event) -> None:
        if isinstance(event, Stage) and event.name.endswith("idle_wake"):
            os.kill(os.getpid(), signal.SIGINT)

    request = DiagnoseRequest(
        virtual=lab.runs.script(make_card()),
        manifest=lab.runs.manifest,
        skip_preconditions=True,
        probes=("idle_wake",),
    )
    outcome = execute(request, listen, policy=lab.runs.policy)
    payload = kept(outcome)
    assert outcome.exit_code == 130
    assert (payload.complete, payload.finished) == (False, None)
    target = only(payload)
    assert target.probe_ips == 500.0
    assert target.findings == []


def test_sustained_load_lasts_as_long_as_asked(lab: Bench, make_card: Card) -> None:
    lab.runs.rules["pace_window_s"] = "1.0"
    outcome = lab.diagnose(make_card(), probes=("sustained",), sustained_s=3.0)
    payload = kept(outcome)
    assert payload.rules["sustained_s"] == 3.0
    (finding,) = only(payload).findings
    assert finding.status == "ok", finding.why


def test_sustained_load_without_a_pace_is_refused(lab: Bench, make_card: Card) -> None:
    lab.runs.rules["pace_window_s"] = "1.0"
    with pytest.raises(UsageError, match="no two windows to compare") as told:
        lab.diagnose(make_card(), probes=("sustained",), sustained_s=1.9)
    assert told.value.hint is not None
    assert "--sustained-s 2" in told.value.hint


def test_a_probe_or_workload_that_is_none_is_refused(lab: Bench, make_card: Card) -> None:
    with pytest.raises(UsageError, match="no probe called 'concurency'") as told:
        lab.diagnose(make_card(), probes=("concurency",))
    assert told.value.hint is not None
    assert "Did you mean concurrency?" in told.value.hint


def test_an_engine_that_emulates_is_probed_where_it_is_asked_for(
    lab: Bench, make_card: Card
) -> None:
    fake = make_card("virtual-gpu", processor=_gpu(), variants=["fp32"], emulated=True)
    with pytest.raises(NothingToMeasure, match="emulator"):
        lab.diagnose(fake)
    assert only(kept(lab.diagnose(fake, include_emulated=True))).engine == "virtual-gpu"


@pytest.fixture
def call(lab: Bench, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Return a caller of ``npumark diagnose`` on the bench's pack, engines and policy."""
    for module in ("orchestrator.diagnosing", "policy"):
        monkeypatch.setattr(f"npumark.{module}.load_policy", lambda: lab.runs.policy)

    def run(*words: str, cards: tuple[dict[str, Any], ...]) -> int:
        given = ["--virtual", str(lab.runs.script(*cards)), "--manifest", str(lab.runs.manifest)]
        return main(["diagnose", "--skip-preconditions", *given, *words])

    return run


def test_json_is_the_document_and_nothing_else(
    call: Callable[..., int],
    make_card: Card,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "d.json"
    words = ("--json", "--probe", "idle-wake", "--out", str(out))
    assert call(*words, cards=(make_card(),)) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["payload"]["schema"] == "npumark-diagnostics/1"
    assert out.read_text(encoding="utf-8") == said.out
    assert "no earlier benchmark" in said.err
    assert call(*words, cards=(make_card(),)) == 2
    assert "exists" in capsys.readouterr().err


def test_the_report_says_what_was_found_and_a_check_reads_it_again(
    call: Callable[..., int], lab: Bench, make_card: Card, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("--probe", "idle_wake", cards=(make_card(),)) == 0
    assert "takes no longer than one of many" in capsys.readouterr().out
    (folder,) = (lab.runs.home / "data" / "diagnostics").iterdir()
    assert main(["diagnose", "--check", str(folder / "diagnostics.json")]) == 0
    assert capsys.readouterr().out == "1 finding, each as its raw samples give it\n"
    next(folder.rglob("busy.i64")).write_bytes(b"")
    assert main(["diagnose", "--check", str(folder)]) == 5
    assert "busy.i64 was changed" in capsys.readouterr().err


def test_nothing_to_diagnose_is_3(
    call: Callable[..., int], make_card: Card, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = make_card(available=False, reason="no such device")
    assert call(cards=(gone,)) == 3
    assert "no such device" in capsys.readouterr().err


def _gpu() -> dict[str, Any]:
    return {"key": "0000:01:00.0", "role": "iGPU", "name": "Virtual GPU"}
