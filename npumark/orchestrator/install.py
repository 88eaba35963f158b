"""Making and removing environments of engines: whole or not at all, never while measuring.

An environment is made beside its place, in a folder of another name, and moved there once its
packages are in and its ``environment.json`` is written: whoever stops half-way leaves the one
that was there before, or none. A run never comes here: it installs nothing.
"""

from __future__ import annotations

import errno
import os
import platform
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from npumark import paths
from npumark.engines import catalogue
from npumark.engines.catalogue import Environment
from npumark.errors import Interrupted, SetupError, UsageError
from npumark.orchestrator import pip
from npumark.orchestrator.discover import Found, discover
from npumark.orchestrator.environments import (
    FILE,
    MAKING,
    Seal,
    Standing,
    here,
    packages_in,
    runs_here,
    standing,
    standings,
)
from npumark.orchestrator.interrupts import Interrupts
from npumark.orchestrator.lock import Holder, measuring
from npumark.orchestrator.survey import environment_runtimes
from npumark.policy import load_policy

_REMOVING = ".old-"
_ROOM_FOR_PIP = 32 << 20
"""An environment with nothing but pip in it takes some 20 MB."""

PLATFORM_NAMES = {
    "linux-x86_64": "Linux on x86-64",
    "linux-aarch64": "Linux on ARM64",
    "windows-amd64": "Windows on x86-64",
    "windows-arm64": "Windows on ARM64",
    "macos-arm64": "macOS on Apple silicon",
    "macos-x86_64": "macOS on x86-64",
}


@dataclass(frozen=True, slots=True)
class Made:
    """What an installation came to: ``already`` where nothing had to be done. ``engines`` are
    those that its probe found, available or not."""

    standing: Standing
    already: bool
    engines: tuple[Found, ...]


def install(name: str, tell: pip.Tell) -> Made:
    """Make the environment called ``name`` unless it is there and up to date, and ask its engines.

    Raises UsageError (unknown, or not for this platform), SetupError (a measurement is running,
    no space, no venv, no wheel), NetworkError, and Interrupted; in each case what was there
    before is there still.
    """
    row = check(name)
    already = standing(name).state == "installed"
    with _changing(f"npumark engines install {name}") as (root, interrupts, holder):
        if not already:
            _make(row, root, interrupts, holder, tell)
        tell("asking its engines")
        now = standing(name, root)
        found = discover(
            environment_runtimes((now,)),
            limits=load_policy().worker,
            interrupts=interrupts,
            marker=holder.marker,
        )
    return Made(now, already, found)


def check(name: str) -> Environment:
    """Return the environment of this name. Raises UsageError where there is none, or where it is
    not for this platform."""
    row = catalogue.environment(name)
    if row is None:
        raise _unknown(name)
    if not runs_here(row):
        places = ", ".join(PLATFORM_NAMES.get(p, p) for p in row.platforms)
        raise UsageError(
            f"the environment {name} is not for this computer "
            f"({PLATFORM_NAMES.get(here(), here())}): it works on {places}",
            "`npumark engines install` lists what can be installed here.",
        )
    return row


def remove(name: str) -> bool:
    """Remove an environment; return whether there was one.

    Raises UsageError for a name that no environment has, SetupError where a measurement is
    running or it cannot be removed.
    """
    if name not in {s.name for s in standings()}:
        raise _unknown(name)
    with _changing(f"npumark engines remove {name}") as (root, interrupts, _):
        there = standing(name, root).state != "absent"
        with interrupts.deferred():
            _put_away(root / name, root)
            _clear(root, name)
    return there


@contextmanager
def _changing(command: str) -> Iterator[tuple[Path, Interrupts, Holder]]:
    """Hold the machine's lock and that of the environments, which other homes may share."""
    root = paths.engines_dir()
    try:
        with (
            Interrupts() as interrupts,
            measuring(command) as holder,
            measuring(command, root),
        ):
            yield root, interrupts, holder
    except KeyboardInterrupt:
        raise Interrupted("stopped; the environment is as it was before") from None


def _make(
    row: Environment, root: Path, interrupts: Interrupts, holder: Holder, tell: pip.Tell
) -> None:
    making = root / f"{MAKING}{row.name}.{os.getpid()}"
    marker = f"{holder.marker}/install"
    mirror = os.environ.get(pip.MIRROR_VARIABLE)
    pip.sources(mirror)  # one that is not there is told before anything is made
    try:
        _clear(root, row.name)
        tell("making an environment")
        _venv(making, marker)
        scheme = {"base": str(making), "platbase": str(making)}
        python = Path(sysconfig.get_path("scripts", "venv", scheme)) / (
            "python.exe" if sys.platform == "win32" else "python"
        )
        pip.install(str(python), row.requirements, mirror, marker, tell)
        site = Path(sysconfig.get_path("purelib", "venv", scheme))
        seal = Seal(
            name=row.name,
            requirements=row.requirements,
            python=platform.python_version(),
            interpreter=python.relative_to(making).as_posix(),
            site=site.relative_to(making).as_posix(),
            packages=packages_in(site),
        )
        with interrupts.deferred():
            _write(making / FILE, seal.encode())
            _put_away(root / row.name, root)
            making.rename(root / row.name)
            _clear(root, row.name)
    except OSError as fault:
        raise paths.unwritable(root / row.name, fault) from fault
    finally:
        with interrupts.deferred():
            _clear(root, row.name)


def _venv(folder: Path, marker: str) -> None:
    try:
        pip.run((sys.executable, "-I", "-m", "venv", str(folder)), marker, lambda _: None)
    except pip.PipFailed as fault:
        said = "\n".join(fault.lines)
        if "ensurepip is not available" in said or "No module named" in said:
            raise SetupError(
                "this Python cannot make environments: its venv or ensurepip module is missing",
                "Install it (on Debian and Ubuntu: apt install python3-venv), or install npumark "
                "with another Python.",
            ) from fault
        # It does not say so where it fails for lack of space.
        if shutil.disk_usage(folder.parent).free < _ROOM_FOR_PIP:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from fault
        raise SetupError(
            f"this Python's venv failed: {' '.join(fault.lines[-1:])[:300] or 'it wrote nothing'}",
            "Install npumark with another Python, or look whether this one is whole.",
        ) from fault


def _put_away(place: Path, root: Path) -> None:
    """Move an environment out of its place, at once; removing its files takes its time."""
    if place.exists():
        place.rename(root / f"{_REMOVING}{place.name}.{os.getpid()}")


def _clear(root: Path, name: str) -> None:
    """Remove what a stopped installation or removal left; the lock says that none is going on."""
    for prefix in (MAKING, _REMOVING):
        for folder in root.glob(f"{prefix}{name}.*"):
            with suppress(OSError):
                shutil.rmtree(folder)


def _write(path: Path, raw: bytes) -> None:
    with path.open("wb") as stream:
        stream.write(raw)
        stream.flush()
        os.fsync(stream.fileno())


def _unknown(name: str) -> UsageError:
    names = [row.name for row in catalogue.ENVIRONMENTS]
    close = get_close_matches(name, names, n=1)
    guess = f"Did you mean {close[0]}? " if close else ""
    return UsageError(
        f"there is no environment called {name!r}",
        f"{guess}`npumark engines install` lists them.",
    )
