"""The whole way, over real sockets: a server process, and the client's own keys and clock."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from npumark.cli.app import main
from npumark.record.files import seal, write_record
from npumark.record.history import run_folder
from tests import forge
from tests.server.live import Live, live

RUNS = ("20261130T120000Z-aaaaaa", "20261130T130000Z-bbbbbb")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Live]:
    home = tmp_path / "server"
    home.mkdir()
    with live(home, "--allow-development") as running:
        yield running


def save(run: str) -> None:
    created = forge.stamp(datetime.now(UTC) - timedelta(days=1))
    payload = forge.vary(forge.forge_payload(small=True), run_id=run, created=created)
    run_folder(run).path.mkdir(parents=True)
    write_record(run_folder(run).record, seal(payload))


def test_what_is_queued_arrives_and_can_be_withdrawn(
    served: Live, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NPUMARK_KEYSTORE", "file")
    url = served.told["listens"]
    for run in RUNS:
        save(run)
        assert main(["submit", run, "--server", url, "--yes", "--json"]) == 0, capsys.readouterr()
        (upload,) = json.loads(capsys.readouterr().out)["uploads"]
        assert (upload["run_id"], upload["status"]) == (run, "sent")
        assert served.ask("GET", f"/api/v1/results/{upload['result_id']}").status == 200
    assert main(["keys", "rotate", "--yes"]) == 0
    assert main(["submit", "--withdraw", RUNS[0], "--yes"]) == 0
    capsys.readouterr()
    assert main(["submit", "--list", "--json"]) == 0
    listed = {u["run_id"]: u for u in json.loads(capsys.readouterr().out)["uploads"]}
    assert [listed[run]["status"] for run in RUNS] == ["withdrawn", "sent"]
    gone = listed[RUNS[0]]["result_id"]
    assert served.ask("GET", f"/api/v1/results/{gone}").status == 410


def test_somebody_else_checks_a_result_with_what_its_page_offers(
    served: Live,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("NPUMARK_KEYSTORE", "file")
    save(RUNS[0])
    assert main(["submit", "--server", served.told["listens"], "--yes", "--json"]) == 0
    (upload,) = json.loads(capsys.readouterr().out)["uploads"]
    files = {}
    for part in ("record", "receipt"):
        files[part] = tmp_path / f"{part}.json"
        answer = served.ask("GET", f"/api/v1/results/{upload['result_id']}/{part}")
        files[part].write_bytes(answer.body)
    monkeypatch.setenv("NPUMARK_HOME", str(tmp_path / "another"))
    words = ["verify", str(files["record"]), "--receipt", str(files["receipt"])]
    assert main([*words, "--online"]) == 0, capsys.readouterr().err
    out = capsys.readouterr().out
    assert "proves leaf 0 under the log's head of 1 leaf," in out
    assert "The log has 1 leaf," in out


def test_a_record_that_the_server_refuses_is_told_with_its_code(
    served: Live, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NPUMARK_KEYSTORE", "file")
    tomorrow = forge.stamp(datetime.now(UTC) + timedelta(days=1))
    payload = forge.vary(forge.forge_payload(small=True), run_id=RUNS[0], created=tomorrow)
    run_folder(RUNS[0]).path.mkdir(parents=True)
    write_record(run_folder(RUNS[0]).record, seal(payload))
    assert main(["submit", "--server", served.told["listens"], "--yes"]) == 5
    assert "Refused (future_date)" in capsys.readouterr().out
