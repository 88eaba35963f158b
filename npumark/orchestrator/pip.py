"""pip, run in an environment's interpreter: watched while it works, explained where it fails.

Where packages come from is pip's own business (its configuration, its variables): this module
knows no address. ``NPUMARK_MIRROR`` names a folder or a URL that is searched before.
"""

from __future__ import annotations

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

from npumark.errors import IntegrityError, NetworkError, NpumarkError, SetupError, UsageError
from npumark.orchestrator.containment import kill_marked
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
_MISDIRECTING = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_PYTHON", "PIP_DRY_RUN")
"""Variables with which pip would install elsewhere than into the environment, or nowhere."""

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
    """Where pip looks: its arguments, and the variables it must not see."""

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
    index (it ends in ``/simple``). Raises UsageError where the folder is not there.
    """
    mirror = (mirror or "").strip()
    if not mirror:
        return (Source(),)
    hidden = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS")
    if re.match(r"https?://", mirror):
        if mirror.rstrip("/").endswith("/simple"):
            return (
                Source(("--index-url", mirror), hidden, mirror_only=True),
                Source(("--extra-index-url", mirror)),
            )
    else:
        folder = Path(mirror).expanduser()
        if not folder.is_dir():
            raise UsageError(
                f"{MIRROR_VARIABLE} is {mirror!r}, and there is no such folder",
                "Set it to a folder of wheels or to a URL, or leave it unset.",
            )
        mirror = str(folder.absolute())
    return (
        Source(("--no-index", "--find-links", mirror), hidden, mirror_only=True),
        Source(("--find-links", mirror)),
    )


def install(
    python: str, requirements: Sequence[str], mirror: str | None, marker: str, tell: Tell
) -> None:
    """Install ``requirements`` into the environment of ``python``.

    Raises NetworkError, SetupError, IntegrityError or UsageError with one sentence. The process
    carries ``marker`` and does not outlive this call.
    """
    *first, last = sources(mirror)
    for source in first:
        try:
            return _install(python, requirements, source, marker, tell)
        except PipFailed as fault:
            if _NO_SPACE.search("\n".join(fault.lines)):
                raise explain(fault.lines) from fault
            tell("the mirror does not have all of it; looking further")
    try:
        return _install(python, requirements, last, marker, tell)
    except PipFailed as fault:
        raise explain(fault.lines) from fault


def _install(
    python: str, requirements: Sequence[str], source: Source, marker: str, tell: Tell
) -> None:
    command = (python, *_ISOLATED, "-m", "pip", "install", *_QUIET)
    run((*command, *source.arguments, *requirements), marker, tell, hidden=source.hidden)


def run(command: Sequence[str], marker: str, tell: Tell, *, hidden: Sequence[str] = ()) -> None:
    """Run a command to its end, telling what it does. Raises PipFailed where it fails, OSError
    where it cannot be started; whatever is raised, nothing of it is left running."""
    env = _variables(os.environ, (*_MISDIRECTING, *hidden)) | {MARKER: marker}
    lines: deque[str] = deque(maxlen=_KEPT_LINES)
    inbox: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=env,
        text=True,
        encoding="utf-8",
        errors="replace",
    ) as process:
        assert process.stdout is not None
        reader = threading.Thread(target=_read, args=(process.stdout, inbox), daemon=True)
        reader.start()
        try:
            _follow(inbox, lines, tell)
            failed = process.wait() != 0
        except BaseException:
            process.kill()
            kill_marked(marker)
            raise
    if failed:
        raise PipFailed(lines)


def _follow(inbox: queue.SimpleQueue[str | None], lines: deque[str], tell: Tell) -> None:
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


def _variables(base: Mapping[str, str], hidden: Sequence[str]) -> dict[str, str]:
    return {name: value for name, value in base.items() if name.upper() not in hidden}


def elapsed(since: float) -> str:
    """Return the time since ``since`` (of ``time.monotonic``) in whole seconds or minutes."""
    seconds = int(time.monotonic() - since)
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min {seconds % 60} s"
