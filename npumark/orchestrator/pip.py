"""pip, run in an environment's interpreter: watched while it works, explained where it fails.

Where packages come from is pip's own business (its configuration, its variables): this module
knows no address. ``NPUMARK_MIRROR`` names a folder or a URL that is searched before. Of what pip
is set up for, the way to packages alone is taken over: other settings would install elsewhere,
something else, or nothing.
"""

from __future__ import annotations

import ast
import os
import queue
import re
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit
from urllib.request import url2pathname

from npumark.errors import IntegrityError, NetworkError, NpumarkError, SetupError, UsageError
from npumark.orchestrator.containment import before_it_starts, kill_marked, once_started
from npumark.orchestrator.worker_env import MARKER

MIRROR_VARIABLE = "NPUMARK_MIRROR"

_ISOLATED = ("-I", "-u", "-X", "utf8")
_QUIET = (
    "--disable-pip-version-check",
    "--no-input",
    "--no-color",
    "--no-warn-script-location",
    "--progress-bar=off",
    # What is installed is what somebody built and published: nothing is compiled here.
    "--only-binary=:all:",
    "--retries=2",
    "--timeout=20",
)
_WAY = frozenset(
    {
        "cache-dir",
        "cert",
        "client-cert",
        "extra-index-url",
        "find-links",
        "index-url",
        "keyring-provider",
        "no-cache-dir",
        "no-index",
        "proxy",
        "pypi-url",
        "trusted-host",
        "use-deprecated",
        "use-feature",
    }
)
"""The settings of pip that say where packages are and how they are reached."""

_SETTING = re.compile(r"(?P<scope>:env:|[\w-]+)\.(?P<name>[\w-]+)=(?P<value>['\"].*['\"])$")
_SCOPES = ("global", "install", ":env:")
"""Where pip looks for a setting of its command ``install``; a later one counts."""

_HEARTBEAT_S = 15.0
_KEPT_LINES = 400

_NO_SPACE = re.compile(r"no space left|not enough space|disk quota|\[?errno (28|122)\]?", re.I)
_NO_NETWORK = re.compile(
    r"NewConnectionError|NameResolutionError|ConnectTimeoutError|ReadTimeout|ProxyError|SSLError|"
    r"Max retries exceeded|Connection (refused|reset|aborted|broken)|Network is unreachable|"
    r"name resolution|getaddrinfo failed|IncompleteRead|RemoteDisconnected|HTTP error 5\d\d",
    re.I,
)
_NO_MATCH = re.compile(r"No matching distribution found for (?P<what>[^\s(]+)")
_OTHER_HASH = re.compile(r"DO NOT MATCH THE HASHES|Hash mismatch", re.I)

Tell = Callable[[str], None]
"""Called with what is being done, again every few seconds while it is the same."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where pip looks: its arguments, and the settings that it must not heed."""

    arguments: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    mirror_only: bool = False


class PipFailed(Exception):
    """pip ended with an error; ``lines`` are the last that it wrote."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("pip failed")
        self.lines = tuple(lines)


def sources(mirror: str | None) -> tuple[Source, ...]:
    """Return where to look, in order: the mirror alone, then what pip is set up for as well.

    ``mirror`` is a folder of wheels, the URL of a page that links to some, or that of a package
    index (it ends in ``/simple``). Raises UsageError where it is none of these.
    """
    mirror = (mirror or "").strip()
    if not mirror:
        return (Source(),)
    hidden = ("index-url", "pypi-url", "extra-index-url", "find-links", "no-index")
    scheme = mirror.partition("://")[0].lower() if "://" in mirror else None
    if scheme in ("http", "https"):
        _check_url(mirror)
        if mirror.rstrip("/").endswith("/simple"):
            return (
                Source(("--index-url", mirror), hidden, mirror_only=True),
                Source(("--extra-index-url", mirror)),
            )
    elif scheme not in (None, "file"):
        raise _no_mirror(mirror, f"packages are not fetched by {scheme}")
    else:
        mirror = str(_folder(mirror, is_url=scheme is not None))
    return (
        Source(("--no-index", "--find-links", mirror), hidden, mirror_only=True),
        Source(("--find-links", mirror)),
    )


def _check_url(mirror: str) -> None:
    try:
        parts = urlsplit(mirror)
        whole = bool(parts.hostname) and parts.port != 0
    except ValueError:
        whole = False
    if not whole or re.search(r"[\s\x00-\x1f\x7f]", mirror):
        raise _no_mirror(mirror, "that is no whole URL")


def _folder(mirror: str, *, is_url: bool) -> Path:
    try:
        folder = Path(url2pathname(urlsplit(mirror).path) if is_url else mirror).expanduser()
        there = folder.is_dir()
    except (ValueError, OSError, RuntimeError):
        there = False
    if not there:
        raise _no_mirror(mirror, "there is no such folder")
    return folder.absolute()


def _no_mirror(mirror: str, why: str) -> UsageError:
    return UsageError(
        f"{MIRROR_VARIABLE} is {mirror!r}, and {why}",
        "Set it to a folder of wheels or to an http or https URL, or leave it unset.",
    )


def install(
    python: str, requirements: Sequence[str], mirror: str | None, marker: str, tell: Tell
) -> None:
    """Install ``requirements`` into the environment of ``python``.

    Raises NetworkError, SetupError, IntegrityError or UsageError with one sentence. The process
    carries ``marker`` and does not outlive this call.
    """
    *first, last = sources(mirror)
    way = settings(python, marker)
    for source in first:
        try:
            return _install(python, requirements, source, way, marker, tell)
        except PipFailed as fault:
            if _NO_SPACE.search("\n".join(fault.lines)):
                raise explain(fault.lines) from fault
            tell("the mirror does not have all of it; looking further")
    try:
        return _install(python, requirements, last, way, marker, tell)
    except PipFailed as fault:
        raise explain(fault.lines) from fault


def settings(python: str, marker: str) -> dict[str, str]:
    """Return how pip is set up to reach packages, by setting, from its files and variables.

    Raises SetupError where it cannot read them.
    """
    command = (python, *_ISOLATED, "-m", "pip", "config", "list", "--no-color")
    try:
        lines = run(command, marker, lambda _: None)
    except PipFailed as fault:
        said = " ".join(" ".join(fault.lines).split())[:300] or "it wrote nothing"
        raise SetupError(
            f"pip cannot read how it is set up: {said}",
            "Mend or remove that file; `pip config debug` lists the files that pip reads.",
        ) from fault
    found: dict[str, dict[str, str]] = {scope: {} for scope in _SCOPES}
    for line in lines:
        told = _SETTING.match(line)
        if told is None or told["scope"] not in found:
            continue
        name = told["name"].lower().replace("_", "-")
        if name in _WAY:
            found[told["scope"]][name] = str(ast.literal_eval(told["value"]))
    return {name: value for scope in _SCOPES for name, value in found[scope].items()}


def _install(
    python: str,
    requirements: Sequence[str],
    source: Source,
    way: Mapping[str, str],
    marker: str,
    tell: Tell,
) -> None:
    command = (python, *_ISOLATED, "-m", "pip", "install", *_QUIET)
    variables = _only(os.environ, {k: v for k, v in way.items() if k not in source.hidden})
    run((*command, *source.arguments, *requirements), marker, tell, variables=variables)


def _only(base: Mapping[str, str], way: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which pip reads no file and heeds these settings alone."""
    env = {name: value for name, value in base.items() if not name.upper().startswith("PIP_")}
    env["PIP_CONFIG_FILE"] = os.devnull
    return env | {f"PIP_{name.upper().replace('-', '_')}": value for name, value in way.items()}


def run(
    command: Sequence[str],
    marker: str,
    tell: Tell,
    *,
    variables: Mapping[str, str] | None = None,
    step: Callable[[str], str | None] | None = None,
) -> tuple[str, ...]:
    """Run a command to its end, telling what it does; return the last lines it wrote.

    ``variables`` are its environment, ours where null; ``step`` says what a line tells of, as
    ``step_of`` does of pip's. Raises PipFailed where it fails, SetupError where it cannot be
    started; whatever is raised, nothing of it is left running. Where this program is killed it is
    ended too (Linux and Windows).
    """
    env = {**(os.environ if variables is None else variables), MARKER: marker}
    lines: deque[str] = deque(maxlen=_KEPT_LINES)
    inbox: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    with _start(command, env) as process:
        assert process.stdout is not None
        once_started(process)
        reader = threading.Thread(target=_read, args=(process.stdout, inbox), daemon=True)
        reader.start()
        try:
            _follow(inbox, lines, tell, step or step_of)
            failed = process.wait() != 0
        except BaseException:
            process.kill()
            kill_marked(marker)
            raise
    if failed:
        raise PipFailed(lines)
    return tuple(lines)


def _start(command: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env,
            text=True,
            encoding="utf-8",
            errors="replace",
            preexec_fn=before_it_starts(),
        )
    except OSError as fault:
        raise SetupError(
            f"the interpreter {command[0]} cannot be started: {fault.strerror or fault}",
            "Look whether that Python is whole; if it is not, install npumark with another one.",
        ) from fault


def _follow(
    inbox: queue.SimpleQueue[str | None],
    lines: deque[str],
    tell: Tell,
    step_of: Callable[[str], str | None],
) -> None:
    doing: str | None = None
    while True:
        try:
            line = inbox.get(timeout=_HEARTBEAT_S)
        except queue.Empty:
            if doing:
                tell(doing)
            continue
        if line is None:
            return
        lines.append(line)
        step = step_of(line)
        if step and step != doing:
            doing = step
            tell(step)


def _read(stream: IO[str], inbox: queue.SimpleQueue[str | None]) -> None:
    try:
        for line in stream:
            inbox.put(line.rstrip())
    finally:
        inbox.put(None)


def step_of(line: str) -> str | None:
    """Return what a line of pip's says it is doing, in our words; null for all else."""
    line = line.strip()
    found = re.match(r"Downloading (\S+\.whl) (\(.*\))$", line)
    if found:
        return f"downloading {Path(found[1]).name} {found[2]}"
    found = re.match(r"Collecting ([^\s;(]+)", line)
    if found:
        return f"looking for {found[1]}"
    found = re.match(r"Processing (\S+\.whl)$", line)
    if found:
        return f"taking {Path(found[1]).name}"
    if line.startswith("Installing collected packages:"):
        return f"unpacking {line.partition(':')[2].strip()}"[:100]
    return None


def explain(lines: Sequence[str]) -> NpumarkError:
    """Return what tells a user why pip failed and what to do, from the lines it wrote."""
    text = "\n".join(lines)
    if _NO_SPACE.search(text):
        return SetupError(
            "the disk is full: the packages were not installed",
            "Free some space, or set NPUMARK_ENGINES to a folder on another disk.",
        )
    missing = _NO_MATCH.search(text)
    if _NO_NETWORK.search(text):
        what = f" ({missing['what']} was looked for)" if missing else ""
        return NetworkError(
            f"the packages could not be downloaded: no connection{what}",
            "Connect to the network and try again, or set NPUMARK_MIRROR to a folder that holds "
            "their wheels.",
        )
    if missing:
        return SetupError(
            f"there is no wheel of {missing['what']} for this Python and this platform",
            "Install npumark with another Python version, or look whether the mirror that pip is "
            "set up for lacks it.",
        )
    if _OTHER_HASH.search(text):
        return IntegrityError(
            "a downloaded package is not what its index says it is",
            "Try again; if it stays so, the index or the way to it is at fault.",
        )
    said = [line for line in lines if line.startswith("ERROR:")] or list(lines[-1:])
    why = " ".join(" ".join(said).split())[:300] or "it wrote nothing"
    return SetupError(f"the packages could not be installed: pip says {why}")


def elapsed(since: float) -> str:
    """Return the time since ``since`` (of ``time.monotonic``) in whole seconds or minutes."""
    seconds = int(time.monotonic() - since)
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min {seconds % 60} s"
