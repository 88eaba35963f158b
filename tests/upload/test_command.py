"""``npumark submit`` as a user meets it: consent, words, documents, exit statuses."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import httpx
import pytest

from npumark.cli.app import main
from npumark.record.canonical import strict_loads
from npumark.record.envelope import Envelope
from npumark.record.files import seal, write_record
from npumark.record.history import run_folder
from npumark.record.signing import check_install, statement_holds
from npumark.score.comparability import NOT_RANKED
from tests.upload.paper_server import URL, PaperServer, local_record

RUN = "20261130T120000Z-aaaaaa"
OTHER = "20261130T130000Z-bbbbbb"

Say = Callable[..., tuple[int, str, str]]


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    """Return what carries a command out: its exit status, and what it wrote to each stream."""
    monkeypatch.setenv("NPUMARK_KEYSTORE", "file")
    monkeypatch.delenv("NPUMARK_SERVER", raising=False)
    monkeypatch.setattr(sys, "stdin", io.StringIO())

    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(["submit", *words])
        return status, *capsys.readouterr()

    return run


class Terminal(io.StringIO):
    """Standard input with somebody at it."""

    def isatty(self) -> bool:
        return True


class Stopped(Terminal):
    """Somebody who presses Ctrl-C."""

    def readline(self, *_: object) -> NoReturn:
        raise KeyboardInterrupt


def gone(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("connection refused", request=request)


@pytest.fixture(autouse=True)
def saved() -> None:
    save(RUN)


def save(run: str) -> None:
    folder = run_folder(run)
    folder.path.mkdir(parents=True)
    write_record(folder.record, local_record(run))


def test_nothing_is_sent_before_somebody_agreed(server: PaperServer, say: Say) -> None:
    status, out, err = say("--server", URL)
    assert (status, out) == (2, "")
    assert "Published, for everybody" in err
    assert "there is no terminal to ask on" in err
    assert server.asked == []
    assert say("--list")[1] == "Nothing was uploaded yet.\n"


def test_a_run_is_sent_and_its_page_and_standing_named(server: PaperServer, say: Say) -> None:
    status, out, _ = say("--server", URL, "--yes")
    assert status == 0
    assert f"Sent: {URL}/results/" in out
    assert f"Not ranked: {NOT_RANKED['development_build']}." in out


def test_consent_and_server_are_remembered(server: PaperServer, say: Say) -> None:
    say("--server", URL, "--yes")
    save(OTHER)
    status, out, err = say()
    assert (status, err) == (0, "")
    assert OTHER in out


def test_on_a_terminal_the_answer_decides(
    server: PaperServer, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    status, _, err = say("--server", URL)
    assert (status, server.asked) == (2, [])
    assert "next:" not in err
    monkeypatch.setattr(sys, "stdin", Terminal(""))
    assert say("--server", URL)[0] == 2
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    assert say("--server", URL)[0] == 0


def test_whoever_stops_at_the_question_is_told_so(
    server: PaperServer, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", Stopped())
    status, _, err = say("--server", URL)
    assert (status, server.asked) == (130, [])
    assert "stopped: nothing was sent" in err


def test_without_a_server_there_is_none_to_send_to(say: Say) -> None:
    status, _, err = say("--yes")
    assert status == 2
    assert "there is no public one yet" in err
    assert "--server https://results.example" in err


def test_the_server_comes_from_the_option_then_the_variable_then_memory(
    server: PaperServer, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPUMARK_SERVER", URL)
    assert say("--yes")[0] == 0
    monkeypatch.setenv("NPUMARK_SERVER", "https://other.example")
    assert "What is sent to https://other.example" in say()[2]
    assert say("--server", URL)[0] == 0


def test_the_document_says_what_the_text_says(server: PaperServer, say: Say) -> None:
    status, out, _ = say("--server", URL, "--yes", "--json")
    document = json.loads(out)
    (upload,) = document["uploads"]
    assert (status, document["error"], document["damaged"]) == (0, None, [])
    assert upload["url"].startswith(f"{URL}/results/")
    assert (upload["status"], upload["ranked"], upload["not_ranked_because"]) == (
        "sent",
        False,
        ["development_build"],
    )


def test_what_was_sent_is_shown_again_and_not_sent(server: PaperServer, say: Say) -> None:
    say("--server", URL, "--yes")
    server.asked.clear()
    status, out, err = say(RUN)
    assert status == 0
    assert f"Sent: {URL}/results/" in out
    assert f"run {RUN} was already sent" in err
    assert "nothing was sent now" in err
    assert server.asked == []


def test_a_run_that_was_sent_waits_for_no_other(server: PaperServer, say: Say) -> None:
    say("--server", URL, "--yes")
    save(OTHER)
    server.overrides["/api/v1/server"] = [gone] * 6
    assert say(OTHER)[0] == 6
    server.asked.clear()
    assert say(RUN)[0] == 0
    assert server.asked == []


def test_a_server_that_is_not_there_leaves_it_queued(server: PaperServer, say: Say) -> None:
    server.overrides["/api/v1/server"] = [gone] * 6
    status, out, err = say("--server", URL, "--yes")
    assert status == 6
    assert "Queued, the server could not be reached at " in out
    assert "stays queued" in err
    assert "Queued" in say("--list")[1]
    assert say()[0] == 0


def test_a_refusal_is_told_with_its_code_and_kept(server: PaperServer, say: Say) -> None:
    server.refusing[RUN] = (422, "above_ceiling")
    status, out, err = say("--server", URL, "--yes")
    assert status == 5
    assert "Refused (above_ceiling): it is above_ceiling." in out
    assert "refused 1 of 1 upload\n" in err
    (upload,) = json.loads(say("--list", "--json")[1])["uploads"]
    assert upload["refused"]["details"] == {"n": 1}
    assert say("--discard", upload["result_id"]) == (
        0,
        f"Dropped the upload of run {RUN}; the run itself stays.\n",
        "",
    )
    assert say("--list")[1] == "Nothing was uploaded yet.\n"


def test_a_result_is_withdrawn_by_the_name_of_its_run(server: PaperServer, say: Say) -> None:
    say("--server", URL, "--yes")
    status, out, err = say("--withdraw", "last", "--yes")
    assert (status, err) == (0, "")
    assert "Withdrawn at " in out
    assert len(server.withdrawn) == 1
    status, out, err = say("--withdraw", "last")
    assert status == 0
    assert "already withdrawn, at " in err
    status, _, err = say("--discard", RUN)
    assert status == 2
    assert "--withdraw" not in err


def test_nothing_is_withdrawn_before_somebody_said_yes(
    server: PaperServer, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    say("--server", URL, "--yes")
    assert say("--withdraw", RUN)[0] == 2
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    status, _, err = say("--withdraw", RUN)
    assert status == 2
    assert "deletes its result for good" in err
    assert server.withdrawn == {}
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    assert say("--withdraw", RUN)[0] == 0
    assert len(server.withdrawn) == 1


def test_a_withdrawal_without_a_server_is_not_said_to_be_queued(
    server: PaperServer, say: Say
) -> None:
    say("--server", URL, "--yes")
    server.overrides["/api/v1/server"] = [gone] * 6
    status, _, err = say("--withdraw", RUN, "--yes")
    assert status == 6
    assert "A withdrawal is not queued: ask for it again." in err
    assert "stays queued" not in err


def test_each_upload_says_which_server_it_is_for(server: PaperServer, say: Say) -> None:
    server.overrides["/api/v1/server"] = [gone] * 12
    for url in (URL, "http://lab.example"):
        assert say("--server", url, "--yes", "--insecure-http")[0] == 6
    assert "For: http://lab.example" in say("--list", "--server", "http://lab.example")[1]
    listed = json.loads(say("--list", "--json")[1])["uploads"]
    assert {upload["server"] for upload in listed} == {URL, "http://lab.example"}
    status, _, err = say("--discard", RUN)
    assert status == 2
    assert f"2 servers have an upload called {RUN!r}" in err
    assert say("--discard", RUN, "--server", URL)[0] == 0
    assert say("--discard", RUN)[0] == 0  # the other one, whatever server was used last
    assert say("--list")[1] == "Nothing was uploaded yet.\n"
    assert say("--discard", RUN)[0] == 2


def test_a_last_run_that_cannot_be_sent_holds_up_none_that_waits(
    server: PaperServer, say: Say
) -> None:
    server.overrides["/api/v1/server"] = [gone] * 6
    say("--server", URL, "--yes")
    record = local_record(OTHER)
    engines = [e.model_copy(update={"virtual": True}) for e in record.payload.engines]
    run_folder(OTHER).path.mkdir()
    later = {"engines": engines, "created": "2026-11-30T13:00:00Z"}
    write_record(run_folder(OTHER).record, seal(record.payload.model_copy(update=later)))
    status, out, err = say()
    assert status == 0
    assert "measured virtual engines only" in err
    assert RUN in out


def test_a_dry_run_shows_the_list_and_needs_no_server(say: Say) -> None:
    status, out, err = say("--dry-run")
    assert (status, err) == (0, "")
    assert "Published, for everybody" in out
    assert RUN in out
    sent = out.partition("Stays here")[0]
    for machine_talk in ("boot", "isa,", "raw name", "memory bytes", "idle window s", "1 attempts"):
        assert machine_talk not in sent
    assert "1 attempt of 1 entry" in " ".join(sent.split())


def test_a_dry_run_puts_the_very_bytes_out(server: PaperServer, say: Say) -> None:
    sent: list[bytes] = []
    say("--server", URL, "--yes")
    status, out, _ = say("--dry-run", "--json")
    body: dict[str, Any] = strict_loads(out.encode())
    envelope = Envelope.model_validate(body["envelope"])
    record = body["record"]
    install = record["signatures"]["install"]
    assert (status, server.asked.count("POST /api/v1/results"), sent) == (0, 2, [])
    assert envelope.origin == "results.example"
    assert statement_holds(
        envelope.statement(), "submission", install["public_key"], envelope.signature
    )
    check_install(record["payload_sha256"], record["signatures"])
    assert record["payload_sha256"] in server.receipts


@pytest.mark.parametrize(
    "words",
    [
        ["--list", "--dry-run"],
        ["--withdraw", "a", "--discard", "b"],
        ["--server", "ftp://x"],
        ["--server", "http://results.example", "--yes"],
        ["--withdraw", "no-such-run", "--server", URL],
        ["no-such-run", "--server", URL, "--yes"],
    ],
)
def test_what_cannot_be_done_is_a_usage_error(say: Say, words: list[str]) -> None:
    status, out, err = say(*words)
    assert (status, out) == (2, "")
    assert err


def test_a_report_links_the_result(
    server: PaperServer, say: Say, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["report", RUN])
    assert "Uploaded" not in capsys.readouterr().out
    say("--server", URL, "--yes")
    main(["report", RUN])
    assert f"Uploaded: {URL}/results/" in capsys.readouterr().out
    say("--withdraw", RUN, "--yes")
    main(["report", RUN])
    assert "Uploaded, withdrawn at " in capsys.readouterr().out


def _imported(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "module", ["npumark.cli.submit", "npumark.cli.run", "npumark.report.terminal"]
)
def test_nothing_but_sending_imports_http(module: str) -> None:
    assert "httpx" not in _imported(f"import {module}")
    assert "httpx" in _imported(f"import {module}, npumark.upload.client")
