"""``npumark run --submit``: asked before anything is measured, sent once it is saved."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from npumark.cli import run as run_command
from npumark.cli.app import main
from npumark.errors import UsageError
from npumark.record.files import write_record
from npumark.record.history import run_folder
from tests.upload.paper_server import URL, PaperServer, local_record

RUN = "20261130T120000Z-aaaaaa"


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have a run be there as soon as it is measured; return which were."""
    done: list[str] = []

    def execute(request: object, view: object) -> SimpleNamespace:
        done.append(RUN)
        record = local_record(RUN)
        folder = run_folder(RUN)
        folder.path.mkdir(parents=True)
        write_record(folder.record, record)
        return SimpleNamespace(record=record, path=folder.record, exit_code=1)

    monkeypatch.setattr("npumark.orchestrator.run.execute", execute)
    monkeypatch.setenv("NPUMARK_KEYSTORE", "file")
    monkeypatch.delenv("NPUMARK_SERVER", raising=False)
    return done


def test_without_consent_nothing_is_measured(
    server: PaperServer,
    measured: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", "--quick", "--submit", "--server", URL]) == 2
    assert (measured, server.asked) == ([], [])
    assert "nobody agreed yet" in capsys.readouterr().err


def test_without_a_server_nothing_is_measured(measured: list[str]) -> None:
    assert main(["run", "--quick", "--submit", "--yes"]) == 2
    assert measured == []


def test_a_dry_run_has_nothing_to_submit(measured: list[str]) -> None:
    assert main(["run", "--submit", "--dry-run", "--server", URL]) == 2


def test_without_the_peak_test_nothing_is_measured(
    server: PaperServer, measured: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "--quick", "--submit", "--yes", "--server", URL]
    assert main([*words, "--workload", "network"]) == 2
    assert (measured, server.asked) == ([], [])
    assert "has no score" in capsys.readouterr().err
    assert main([*words, "--workload", "peak"]) == 1
    assert measured == [RUN]


def test_a_run_that_cannot_be_uploaded_is_given_no_way_on(
    server: PaperServer,
    measured: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def nothing(*_: object) -> None:
        raise UsageError(f"run {RUN} has no score to submit: none was measured", "See the report.")

    monkeypatch.setattr("npumark.upload.prepare.upload_payload", nothing)
    assert main(["run", "--quick", "--submit", "--yes", "--server", URL]) == 1
    err = capsys.readouterr().err
    assert "it was not uploaded" in err
    assert "goes on with it" not in err


def test_the_run_is_sent_and_its_own_exit_status_stays(
    server: PaperServer,
    measured: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", "--quick", "--submit", "--yes", "--server", URL, "--json"]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("{")
    assert f"Sent: {URL}/results/" in err
    assert len(server.receipts) == 1


def test_an_upload_that_fails_is_queued_and_changes_nothing(
    server: PaperServer,
    measured: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.refusing[RUN] = (422, "above_ceiling")
    assert main(["run", "--quick", "--submit", "--yes", "--server", URL]) == 1
    err = capsys.readouterr().err
    assert "the run is saved, and its upload is not complete" in err
    assert f"`npumark submit {RUN} --server {URL}` goes on with it." in err


def test_no_connection_is_opened_before_the_run_is_saved(
    server: PaperServer,
    measured: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[list[str]] = []

    def measure(request: object, as_json: bool) -> tuple[int, str]:
        seen.append(list(server.asked))
        run_folder(RUN).path.mkdir(parents=True)
        write_record(run_folder(RUN).record, local_record(RUN))
        return 0, RUN

    monkeypatch.setattr(run_command, "_measure", measure)
    assert main(["run", "--quick", "--submit", "--yes", "--server", URL]) == 0
    assert seen == [[]]
    assert server.asked
