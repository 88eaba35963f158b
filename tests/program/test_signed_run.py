"""A whole run is signed once it is measured and saved, wherever its record lies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from npumark.machine.host import THIS
from npumark.machine.machine_id import machine_id
from npumark.orchestrator.events import Event, Note, Saved
from npumark.orchestrator.run import Outcome
from npumark.record import keystore, signed
from npumark.record.files import read_record
from npumark.record.model import Record
from npumark.record.signed import check_signatures
from tests.program.conftest import make_bench


@dataclass(frozen=True)
class Run:
    """``before`` is what lay in the run's folder when it was about to be signed."""

    outcome: Outcome
    events: list[Event]
    before: Record
    out: Path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    home = tmp_path_factory.mktemp("signed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NPUMARK_HOME", str(home / "home"))
        bench = make_bench(home / "home")
        before, sign = [], signed.sign

        def look(record: Record) -> Record:
            before.append(read_record(bench.runs()[0]))
            return sign(record)

        patch.setattr(signed, "sign", look)
        outcome = bench.run(out=home / "out.json")
        (seen,) = before
        yield Run(outcome, bench.events, seen, home / "out.json")


def test_its_signatures_are_this_installations(run: Run) -> None:
    record = run.outcome.record
    assert record.signatures is not None
    shown = check_signatures(record.payload_sha256, record.signatures)
    assert (shown.key_id, shown.whose) == (keystore.install_key().key_id, "own")


def test_it_is_the_same_wherever_it_lies(run: Run) -> None:
    assert read_record(run.out) == read_record(run.outcome.path) == run.outcome.record


def test_it_was_saved_whole_before_it_was_signed(run: Run) -> None:
    assert run.before.payload.complete
    assert (run.before.payload, run.before.signatures) == (run.outcome.record.payload, None)


def test_the_first_run_tells_of_its_key_before_it_says_where_the_record_is(run: Run) -> None:
    *_, note, last = run.events
    assert isinstance(note, Note)
    assert "signs with a key of its own from now on" in note.text
    assert isinstance(last, Saved)


def test_it_holds_the_key_and_not_the_machine_id(run: Run) -> None:
    raw = run.outcome.path.read_text()
    own = THIS.read("/etc/machine-id").value
    assert machine_id() not in raw
    assert own is None or own not in raw
    assert keystore.install_key().key_id in raw
