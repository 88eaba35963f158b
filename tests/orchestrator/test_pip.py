"""pip is watched, ended with its children, and explained in one sentence where it fails."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from npumark.errors import IntegrityError, NetworkError, NpumarkError, SetupError, UsageError
from npumark.orchestrator import pip
from npumark.orchestrator.pip import PipFailed, Source, explain, sources, step_of

OFFLINE = """\
Looking in indexes: https://index.invalid/simple
WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, status=None)) after \
connection broken by 'NewConnectionError('<pip._vendor.urllib3.connection.HTTPSConnection object \
at 0x7f5c>: Failed to establish a new connection: [Errno -3] Temporary failure in name \
resolution')': /simple/stub/
ERROR: Could not find a version that satisfies the requirement stub==1.0 (from versions: none)
ERROR: No matching distribution found for stub==1.0""".splitlines()

NO_WHEEL = """\
ERROR: Could not find a version that satisfies the requirement stub==1.0 (from versions: 0.9)
ERROR: No matching distribution found for stub==1.0""".splitlines()

NO_SPACE = [
    "Collecting stub==1.0",
    "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
]

HASHES = ["ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE."]


@pytest.mark.parametrize(
    ("lines", "kind", "words"),
    [
        (OFFLINE, NetworkError, "no connection (stub==1.0 was looked for)"),
        (NO_WHEEL, SetupError, "there is no wheel of stub==1.0 for this Python"),
        (NO_SPACE, SetupError, "the disk is full"),
        ([*OFFLINE, *NO_SPACE], SetupError, "the disk is full"),
        (HASHES, IntegrityError, "is not what its index says"),
        (["ERROR: ResolutionImpossible:", "see the docs"], SetupError, "pip says ERROR: Resol"),
        (["odd"], SetupError, "pip says odd"),
        ([], SetupError, "it wrote nothing"),
    ],
)
def test_a_failure_is_one_sentence_with_its_exit_code(
    lines: list[str], kind: type[NpumarkError], words: str
) -> None:
    told = explain(lines)
    assert type(told) is kind
    assert words in told.message
    assert "\n" not in told.message
    assert "http" not in told.message


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("Collecting onnxruntime==1.31.1 (from x)", "looking for onnxruntime==1.31.1"),
        ("Collecting mlx==0.3; sys_platform == 'linux'", "looking for mlx==0.3"),
        (
            "  Downloading a-1.0-py3-none-any.whl (98.6 MB)",
            "downloading a-1.0-py3-none-any.whl (98.6 MB)",
        ),
        ("  Downloading a-1.0-py3-none-any.whl.metadata (5.1 kB)", None),
        ("Installing collected packages: a, b, c", "unpacking a, b, c"),
        ("Processing /mirror/a-1.0-py3-none-any.whl", "taking a-1.0-py3-none-any.whl"),
        ("Successfully installed a-1.0", None),
    ],
)
def test_what_pip_does_is_told_in_our_words(line: str, step: str | None) -> None:
    assert step_of(line) == step


def test_a_mirror_is_searched_before_anything_else(tmp_path: Path) -> None:
    assert sources(None) == sources(" ") == (Source(),)
    first, then = sources(str(tmp_path))
    assert first.arguments == ("--no-index", "--find-links", str(tmp_path))
    assert then.arguments == ("--find-links", str(tmp_path))
    page, _ = sources("https://wheels.invalid/page.html")
    assert page.arguments == ("--no-index", "--find-links", "https://wheels.invalid/page.html")
    index, more = sources("https://wheels.invalid/simple/")
    assert index.arguments == ("--index-url", "https://wheels.invalid/simple/")
    assert {"index-url", "extra-index-url", "find-links", "no-index"} <= set(index.hidden)
    assert more.arguments == ("--extra-index-url", "https://wheels.invalid/simple/")


def test_a_mirror_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match="NPUMARK_MIRROR is '/no/such', and there is no such"):
        sources("/no/such")


@pytest.mark.parametrize(
    ("mirror", "why"),
    [
        ("http://[bad", "that is no whole URL"),
        ("http://", "that is no whole URL"),
        ("https:///wheels", "that is no whole URL"),
        ("https://host:99999/wheels", "that is no whole URL"),
        ("https://host:port/wheels", "that is no whole URL"),
        ("HTTP://host/x y", "that is no whole URL"),
        ("ftp://host/wheels", "packages are not fetched by ftp"),
        ("file:///no/such", "there is no such folder"),
        ("file://[bad", "there is no such folder"),
        ("\0", "there is no such folder"),
    ],
)
def test_a_mirror_that_is_none_is_told_before_anything_is_made(mirror: str, why: str) -> None:
    with pytest.raises(UsageError) as told:
        sources(mirror)
    assert told.value.message == f"NPUMARK_MIRROR is {mirror!r}, and {why}"


@pytest.mark.skipif(os.name != "posix", reason="spells a path of POSIX as a URL")
def test_a_mirror_may_be_a_folder_as_a_url(tmp_path: Path) -> None:
    (tmp_path / "my wheels").mkdir()
    assert sources(f"file://{tmp_path}/my%20wheels") == sources(str(tmp_path / "my wheels"))


class Runs:
    """Stands in for ``run``: ``ends`` are the lines with which each call fails, or null.

    ``told`` is what pip says of its settings; ``variables`` are those of each call.
    """

    def __init__(self, *ends: Sequence[str] | None, told: tuple[str, ...] = ()) -> None:
        self.ends, self.told = list(ends), told
        self.commands: list[tuple[str, ...]] = []
        self.variables: list[Mapping[str, str]] = []

    def __call__(
        self,
        command: Sequence[str],
        marker: str,
        tell: Any,
        variables: Mapping[str, str] | None = None,
    ) -> tuple[str, ...]:
        if "config" in command:
            assert variables is None
            return self.told
        self.commands.append(tuple(command))
        self.variables.append(variables or {})
        lines = self.ends.pop(0)
        if lines is not None:
            raise PipFailed(lines)
        return ()


def install(runs: Runs, mirror: str | None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(pip, "run", runs)
    told: list[str] = []
    pip.install("/python", ["stub==1.0"], mirror, "test", told.append)
    return told


def test_a_mirror_that_has_everything_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(None)
    install(runs, str(tmp_path), monkeypatch)
    (command,) = runs.commands
    assert command[0] == "/python"
    assert "--no-index" in command
    assert command[-1] == "stub==1.0"
    assert "--only-binary=:all:" in command


def test_what_a_mirror_lacks_is_looked_for_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(NO_WHEEL, None)
    assert "the mirror does not have all of it; looking further" in install(
        runs, str(tmp_path), monkeypatch
    )
    assert "--no-index" not in runs.commands[1]


def test_a_full_disk_is_not_looked_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(NO_SPACE)
    with pytest.raises(SetupError, match="the disk is full"):
        install(runs, str(tmp_path), monkeypatch)
    assert len(runs.commands) == 1


def test_no_address_is_given_to_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(None)
    install(runs, None, monkeypatch)
    assert not any("://" in word or "index" in word for word in runs.commands[0])


def python(body: str) -> tuple[str, ...]:
    return (sys.executable, "-u", "-c", body)


def test_a_command_is_followed_line_by_line() -> None:
    told: list[str] = []
    body = (
        "print('Collecting a==1'); print('noise'); print('Collecting a==1'); print('Collecting b')"
    )
    pip.run(python(body), "test", told.append)
    assert told == ["looking for a==1", "looking for b"]


def test_a_command_that_fails_hands_over_its_last_lines() -> None:
    with pytest.raises(PipFailed) as failed:
        pip.run(python("print('first'); print('ERROR: last'); raise SystemExit(1)"), "t", str)
    assert failed.value.lines == ("first", "ERROR: last")


def test_of_pips_settings_the_way_to_packages_alone_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_TARGET", "/elsewhere")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/etc/mine.conf")
    told = (
        "WARNING: something odd",
        "global.index-url='https://user:word@index.invalid/simple'",
        "global.proxy='http://old.invalid'",
        "install.proxy='http://new.invalid'",
        "install.target='/elsewhere'",
        "install.dry-run='true'",
        "download.cert='/not/of/install'",
        ":env:.find-links='/a\\n/b'",
        ":env:.target='/elsewhere'",
    )
    runs = Runs(NO_WHEEL, None, told=told)
    install(runs, str(tmp_path), monkeypatch)
    seen = [{k: v for k, v in v.items() if k.startswith("PIP_")} for v in runs.variables]
    assert seen == [
        {"PIP_CONFIG_FILE": os.devnull, "PIP_PROXY": "http://new.invalid"},
        {
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_PROXY": "http://new.invalid",
            "PIP_INDEX_URL": "https://user:word@index.invalid/simple",
            "PIP_FIND_LINKS": "/a\n/b",
        },
    ]


def test_pip_tells_its_settings_from_its_files_and_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real pip: a file with one setting that counts and others that would send it away."""
    file = tmp_path / "pip.conf"
    file.write_text(
        "[global]\nindex-url = https://index.invalid/simple\ntarget = /elsewhere\n"
        "[install]\nuser = true\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    monkeypatch.setenv("PIP_CERT", "/a/bundle.pem")
    found = pip.settings(sys.executable, "test")
    assert found["index-url"] == "https://index.invalid/simple"
    assert found["cert"] == "/a/bundle.pem"
    assert not {"target", "user"} & set(found)
    file.write_text("[global\n")
    with pytest.raises(SetupError, match=r"pip cannot read how it is set up: .*no section headers"):
        pip.settings(sys.executable, "test")


def test_an_interpreter_that_cannot_be_started_is_named() -> None:
    with pytest.raises(SetupError, match="the interpreter /no/python cannot be started: No such"):
        pip.run(("/no/python", "-V"), "t", str)


@pytest.mark.skipif(os.name != "posix", reason="drives POSIX processes")
def test_a_stop_leaves_nothing_running() -> None:
    """Ctrl-C while pip and a child of its are at work: both end."""
    body = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])
print('Collecting', f'{os.getpid()},{child.pid}')
time.sleep(600)"""
    pids: list[int] = []

    def stop(doing: str) -> None:
        pids.extend(int(word) for word in doing.removeprefix("looking for ").split(","))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pip.run(python(body), f"stop-{os.getpid()}", stop)
    until = time.monotonic() + 60
    while any(map(alive, pids)) and time.monotonic() < until:
        time.sleep(0.01)
    assert len(pids) == 2
    assert not any(map(alive, pids))


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux's kernel")
def test_whoever_is_killed_outright_leaves_no_pip_running() -> None:
    """kill -9 of npumark itself, which can then end nothing."""
    body = """
import os, time
print('Collecting', os.getpid(), flush=True)
time.sleep(600)"""
    ours = f"""
import sys
from npumark.orchestrator import pip
pip.run((sys.executable, '-u', '-c', {body!r}), 'killed', lambda said: print(said, flush=True))"""
    with subprocess.Popen((sys.executable, "-c", ours), stdout=subprocess.PIPE) as npumark:
        assert npumark.stdout is not None
        pid = int(npumark.stdout.readline().split()[-1])
        assert alive(pid)
        npumark.kill()
    until = time.monotonic() + 60
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.01)
    assert not alive(pid)


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_time_is_told_in_seconds_then_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pip.time, "monotonic", lambda: 1000.0)
    assert pip.elapsed(999.0) == "1 s"
    assert pip.elapsed(875.0) == "2 min 5 s"
