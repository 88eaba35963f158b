"""``npumark serve``: its first start, its settings, and what keeps it from starting."""

from __future__ import annotations

import importlib.util
import json
import socket
import stat
from pathlib import Path

import psutil
import pytest

from npumark.cli.app import main
from npumark.errors import IntegrityError, NpumarkError, SetupError, UsageError
from npumark.record.signing import BuildKey
from npumark.server.process import listen
from npumark.server.settings import Settings, config_of, origin_of, server_key
from npumark.server.store import origin_in
from tests.server.live import live

URL = "https://results.example.org"


def settings(folder: Path, **over: object) -> Settings:
    return Settings(**{"data": str(folder / "server"), "url": URL, **over})  # type: ignore[arg-type]


# Settings


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://results.example.org", "results.example.org"),
        ("https://results.example.org:443/", "results.example.org"),
        ("http://127.0.0.1:8000", "127.0.0.1:8000"),
        ("https://Example.org/npumark/", "example.org/npumark"),
    ],
)
def test_a_server_is_called_after_its_url(url: str, origin: str) -> None:
    assert origin_of(url) == origin


@pytest.mark.parametrize(
    "url", ["", "results.example.org", "ftp://example.org", "http://", "http://a:b", "http://a/?q"]
)
def test_what_is_no_url_of_a_server(url: str) -> None:
    with pytest.raises(UsageError):
        origin_of(url)


def test_settings_reach_workers_unchanged(tmp_path: Path) -> None:
    told = settings(tmp_path, witnesses=("w",), allow_development=True, body_s=3.5)
    assert Settings.from_json(told.to_json()) == told


def test_the_first_start_makes_the_key_for_its_owner_alone(tmp_path: Path) -> None:
    config = config_of(settings(tmp_path))
    path = tmp_path / "server" / "server.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text().strip() == config.key.seed.hex()


def test_the_next_start_has_the_same_key(tmp_path: Path) -> None:
    first, second = (config_of(settings(tmp_path)) for _ in range(2))
    assert first.key == second.key


def test_a_named_key_is_made_where_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "elsewhere.key"
    config = config_of(settings(tmp_path, key=str(path)))
    assert server_key(path) == config.key


def test_a_key_that_others_may_read_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "server.key"
    path.write_text("0f" * 32 + "\n")
    path.chmod(0o644)
    with pytest.raises(SetupError, match="others") as caught:
        server_key(path)
    assert "chmod 600" in (caught.value.hint or "")


def test_build_keys_are_read_with_their_remarks(tmp_path: Path) -> None:
    path = tmp_path / "build.keys"
    path.write_text(f"# of this year\n{'1f' * 32}  # 0.2\n\n")
    key = BuildKey(b"\x1f" * 32)
    assert config_of(settings(tmp_path, build_keys=str(path))).build_keys == {key.key_id: key}


@pytest.mark.parametrize(
    ("over", "content", "kind"),
    [
        ({"key": "FILE"}, "no key", IntegrityError),
        ({"build_keys": "FILE"}, "1f", IntegrityError),
        ({"build_keys": "FILE"}, None, SetupError),
        ({"origin": "Über uns"}, None, UsageError),
        ({"witnesses": ("nobody",)}, None, UsageError),
    ],
)
def test_settings_that_cannot_be(
    tmp_path: Path, over: dict[str, str], content: str | None, kind: type[NpumarkError]
) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_text(content)
        path.chmod(0o600)
    named = {name: str(path) if value == "FILE" else value for name, value in over.items()}
    with pytest.raises(kind):
        config_of(settings(tmp_path, **named))


# Starting


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with_it = pytest.raises(SetupError, match=f"cannot listen on 127.0.0.1, port {port}")
        with with_it:
            listen("127.0.0.1", port)


def test_an_address_of_another_computer() -> None:
    with pytest.raises(SetupError, match="cannot listen"):
        listen("192.0.2.1", 0)


def test_without_the_packages_of_the_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert main(["serve"]) == 2
    assert "pip install 'npumark[server]'" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["mysql://here/x", "sqlite:////nowhere/at/all.sqlite", "what?"])
def test_a_database_that_cannot_be_used(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    url: str,
) -> None:
    monkeypatch.setenv("NPUMARK_HOME", str(tmp_path))
    assert main(["serve", "--port", "0", "--database", url]) == 2
    assert "database" in capsys.readouterr().err


def test_a_wrong_place_is_told_before_a_port_that_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["serve", "--port", port, "--data", str(tmp_path / "file")]) == 2
    told = capsys.readouterr().err
    assert "--data" in told
    assert "NPUMARK_HOME" not in told
    assert "port" not in told


def test_a_server_says_that_it_stopped_and_its_database_is_its_own(tmp_path: Path) -> None:
    with live(tmp_path) as server:
        file = tmp_path / "data" / "server" / "server.sqlite"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        server.process.terminate()
        assert server.process.stdout is not None
        assert server.process.stdout.read() == "stopped\n"


def test_a_server_on_every_address_has_to_be_told_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["serve", "--port", "0", "--host", "0.0.0.0"]) == 2
    assert "--url" in capsys.readouterr().err


def test_several_workers_serve_one_address_and_end_together(tmp_path: Path) -> None:
    with live(tmp_path, "--workers", "2", "--allow-development") as server:
        server.register()
        answers = [
            server.ask("POST", "/api/v1/results", server.submission(f"w{n}")) for n in (1, 2)
        ]
        assert [answer.status for answer in answers] == [201, 201]
        counted = server.ask("GET", "/metrics").body.decode()
        assert 'npumark_submissions_total{code="accepted"} 2.0' in counted
        assert "npumark_log_size 2" in counted
        workers = psutil.Process(server.process.pid).children(recursive=True)
        server.process.terminate()
        assert server.process.wait() == 0
        assert psutil.wait_procs(workers, timeout=30)[1] == []


def test_workers_end_where_their_parent_is_killed(tmp_path: Path) -> None:
    with live(tmp_path, "--workers", "2") as server:
        assert server.ask("GET", "/readyz").status == 200
        workers = psutil.Process(server.process.pid).children(recursive=True)
        server.process.kill()
        assert psutil.wait_procs(workers, timeout=30)[1] == []


def test_a_restarted_server_goes_on_with_its_log(tmp_path: Path) -> None:
    with live(tmp_path, "--allow-development") as server:
        server.register()
        assert server.ask("POST", "/api/v1/results", server.submission("before")).status == 201
        origin, sender = server.told["origin"], server.sender
    # On another port: without --origin, a log that is there keeps its name.
    with live(tmp_path, "--allow-development") as server:
        assert server.told["origin"] == origin != server.told["listens"].removeprefix("http://")
        server.sender = sender
        receipt = server.ask("POST", "/api/v1/results", server.submission("after"))
        assert json.loads(receipt.body)["log"]["index"] == 1


def test_a_log_is_not_renamed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = str(tmp_path / "server")
    with live(tmp_path, "--data", place, "--origin", "one.example"):
        pass
    assert main(["serve", "--port", "0", "--data", place, "--origin", "two.example"]) == 2
    assert "--origin one.example" in capsys.readouterr().err


def test_a_database_without_a_log_names_nothing(tmp_path: Path) -> None:
    assert origin_in(f"sqlite:///{tmp_path / 'new.sqlite'}") is None
