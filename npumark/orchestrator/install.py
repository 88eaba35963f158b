"""Making and removing environments of engines: whole or not at all, never while measuring.

An environment is made beside its place, in a folder of another name, and moved there once its
packages are in and its ``environment.json`` is written: whoever stops half-way leaves the one
that was there before, or none. Nothing is removed or replaced that npumark did not make, and no
link is followed. A run never comes here: it installs nothing.
"""

from __future__ import annotations

import errno
import glob
import os
import platform
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from npumark import paths
from npumark.engines import catalogue
from npumark.engines.catalogue import Environment
from npumark.errors import Interrupted, NpumarkError, SetupError, UsageError
from npumark.machine.card import vendor_name
from npumark.machine.inventory import inventory
from npumark.orchestrator import pip
from npumark.orchestrator.discover import Found, discover
from npumark.orchestrator.environments import (
    FILE,
    MAKING,
    MARK,
    Seal,
    Standing,
    here,
    is_ours,
    lacking,
    packages_in,
    runs_here,
    standing,
    standings,
)
from npumark.orchestrator.interrupts import Interrupts
from npumark.orchestrator.lock import Holder, measuring
from npumark.orchestrator.survey import environment_runtimes
from npumark.policy import load_policy
from npumark.worker import launch

_REMOVING = ".old-"
_WINDOWS_ML = "windowsml"
"""The environment whose providers Windows itself delivers, once it is asked to."""
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
    those that its probe found, available or not; ``note`` a sentence on what is not there yet."""

    standing: Standing
    already: bool
    engines: tuple[Found, ...]
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Removed:
    """Whether there was an environment, and the sentence that tells what stays of it, or null."""

    there: bool
    stays: str | None = None


def install(name: str, tell: pip.Tell, *, again: bool = False, anyway: bool = False) -> Made:
    """Make the environment called ``name`` unless it is there and up to date, and ask its engines.

    ``again`` makes it anew whatever is there, ``anyway`` though the card that all of it needs is
    not listed here. Raises UsageError (unknown, not for this platform, no such card), SetupError (a
    measurement is running, no space, no venv, no wheel, a folder in the way), NetworkError, and
    Interrupted; in each case what was there before is there still.
    """
    row = check(name)
    with _changing(f"npumark engines install {name}") as (root, interrupts, holder):
        before = standing(name, root)
        already = before.state == "installed" and not again
        if before.state == "foreign":
            raise _in_the_way(root / name)
        if not already:
            if row.maker is not None and not anyway:
                _check_card(row.name, row.maker)
            _make(row, root, interrupts, holder, tell)
        note = _deliver(standing(name, root), f"{holder.marker}/deliver", tell)
        tell("asking its engines")
        now = standing(name, root)
        found = discover(
            environment_runtimes((now,)),
            limits=load_policy().worker,
            interrupts=interrupts,
            marker=holder.marker,
        )
    return Made(now, already, found, note)


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


def _check_card(name: str, maker: str) -> None:
    """Raise UsageError where the system lists no card of ``maker``: nothing in the environment
    would work, and it is large."""
    listed = inventory()
    if any(c.role in ("iGPU", "dGPU") and vendor_name(c.vendor_id) == maker for c in listed.cards):
        return
    doubt = "".join(f"; the list may not be whole: {said}" for said in listed.lacks)
    raise UsageError(
        f"no {maker} card is listed on this computer, and nothing in the environment {name} "
        f"works without one{doubt}",
        f"`npumark engines install {name} --anyway` makes it all the same.",
    )


def remove(name: str) -> Removed:
    """Remove an environment that npumark made.

    Raises UsageError for a name that no environment has, SetupError where a measurement is
    running, where it cannot be removed, or where a folder of that name is none of npumark's.
    """
    if name not in {s.name for s in standings()}:
        raise _unknown(name)
    with _changing(f"npumark engines remove {name}") as (root, interrupts, _):
        place = root / name
        before = standing(name, root)
        if before.state == "foreign":
            raise _in_the_way(place)
        there = before.state != "absent" or place.is_symlink()
        target = place.resolve() if place.is_symlink() else None
        with interrupts.deferred():
            _put_away(place, root)
            left = _clear(root, name)
    if target is not None:
        return Removed(there, f"it was a link to {target}, whose files stay")
    if left:
        where, fault = left[0]
        why = fault.strerror or str(fault)
        return Removed(there, f"files of it stay in {where}, which cannot be deleted: {why}")
    return Removed(there)


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
        raise Interrupted(
            "stopped; the environment is as it was before", "Start it again."
        ) from None


def _in_the_way(place: Path) -> SetupError:
    return SetupError(
        f"{place} has the name of an environment, and npumark did not make it: it stays as it is",
        "Move it away, or set NPUMARK_ENGINES to another folder.",
    )


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
        making.mkdir()
        (making / MARK).touch()
        _venv(making, marker)
        scheme = {"base": str(making), "platbase": str(making)}
        python = Path(sysconfig.get_path("scripts", "venv", scheme)) / (
            "python.exe" if sys.platform == "win32" else "python"
        )
        pip.install(str(python), row.requirements, mirror, marker, tell)
        site = Path(sysconfig.get_path("purelib", "venv", scheme))
        packages = packages_in(site)
        if missing := lacking(row.requirements, packages):
            raise SetupError(
                f"pip ended well, and {', '.join(missing)} is not in the environment",
                "Look what `pip config list` shows: a setting may send packages elsewhere.",
            )
        seal = Seal(
            name=row.name,
            requirements=row.requirements,
            python=platform.python_version(),
            interpreter=python.relative_to(making).as_posix(),
            site=site.relative_to(making).as_posix(),
            packages=packages,
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


def _deliver(now: Standing, marker: str, tell: pip.Tell) -> str | None:
    """Have Windows install the providers that it delivers, where this is the environment that
    they are used from; return the sentence that tells why it did not, or null.

    It is asked each time: what it offers may have grown.
    """
    if now.name != _WINDOWS_ML or now.installed is None:
        return None
    tell("having Windows install its providers")
    command = (now.installed.python, "-I", "-u", "-X", "utf8", launch.__file__, launch.WINDOWS_ML)
    try:
        pip.run(command, marker, tell, step=lambda line: line if line[:7] == "asking " else None)
    except pip.PipFailed as fault:
        why = " ".join(" ".join(fault.lines[-1:]).split())[:300] or "it wrote nothing"
    except NpumarkError as fault:
        why = fault.message
    else:
        return None
    return (
        f"Windows did not install all of its providers: {why}; run Windows Update, then "
        f"`npumark engines install {now.name}`"
    )


def _put_away(place: Path, root: Path) -> None:
    """Move an environment out of its place, at once; removing its files takes its time.

    A link is moved as a link. Raises SetupError where it cannot be moved.
    """
    if not os.path.lexists(place):
        return
    try:
        place.rename(root / f"{_REMOVING}{place.name}.{os.getpid()}")
    except OSError as fault:
        raise paths.unwritable(place, fault) from fault


def _clear(root: Path, name: str) -> list[tuple[Path, OSError]]:
    """Remove what a stopped installation or removal left; the lock says that none is going on.
    Return what stays, each with why."""
    stays = []
    for prefix in (MAKING, _REMOVING):
        for place in root.glob(f"{prefix}{glob.escape(name)}.*"):
            if not re.fullmatch(r"\d+", place.name.rpartition(".")[2]):
                continue
            try:
                _delete(place)
            except OSError as fault:
                stays.append((place, fault))
    return stays


def _delete(place: Path) -> None:
    """Delete a folder that npumark made, or a link to one; leave what is neither.

    What says that it is npumark's goes last, so that a deletion that was stopped is completed
    by the next. Raises OSError where something cannot be deleted.
    """
    if place.is_symlink():
        place.unlink()
        return
    if not is_ours(place) and any(place.iterdir()):
        return
    proofs = (FILE, MARK)
    for entry in place.iterdir():
        if entry.name in proofs:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    for proof in proofs:
        (place / proof).unlink(missing_ok=True)
    place.rmdir()


def _write(path: Path, raw: bytes) -> None:
    with path.open("wb") as stream:
        stream.write(raw)
        stream.flush()
        os.fsync(stream.fileno())


def _unknown(name: str) -> UsageError:
    names = [row.name for row in catalogue.ENVIRONMENTS if runs_here(row)]
    close = get_close_matches(name.lower(), names, n=1)
    guess = f"Did you mean {close[0]}? " if close else ""
    return UsageError(
        f"there is no environment called {name!r}",
        f"{guess}`npumark engines install` lists them.",
    )
