"""What the checks look at: the machine over a short while, and what lies outside of it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from npumark.machine import busy, preconditions, sensors
from npumark.machine.busy import Busy
from npumark.machine.host import Host, whole_number
from npumark.machine.inventory import Inventory, inventory
from npumark.pack.manifest import Manifest
from npumark.policy import Policy
from npumark.record.model import Environment


def _free(place: Path) -> int:
    return shutil.disk_usage(place).free


def _writable(place: Path) -> bool:
    return os.access(place, os.W_OK)


def _temporary() -> Path:
    """Return the folder that Python's ``tempfile`` would take, which proves it by writing there
    and is not asked for that reason."""
    named = [os.environ[n] for n in ("TMPDIR", "TEMP", "TMP") if os.environ.get(n)]
    if os.name == "nt":
        usual = [
            os.path.expandvars(r"%LOCALAPPDATA%\Temp"),
            os.path.expandvars(r"%SYSTEMROOT%\Temp"),
        ]
    else:
        usual = ["/tmp", "/var/tmp", "/usr/tmp"]  # noqa: S108 - looked at, never written to
    for place in map(Path, (*named, *usual)):
        if place.is_dir() and _writable(place):
            return place
    raise FileNotFoundError("no folder for temporary files")


def _installed(folders: tuple[str, ...] | None) -> Iterable[Distribution]:
    return distributions() if folders is None else distributions(path=list(folders))


@dataclass(frozen=True, slots=True)
class Outside:
    """What is not the machine's own: disks, packages, variables, folders.

    ``installed`` returns the packages in some folders, null for this interpreter's own.
    ``temporary`` raises FileNotFoundError where no such folder takes files.
    """

    free: Callable[[Path], int] = _free
    writable: Callable[[Path], bool] = _writable
    temporary: Callable[[], Path] = _temporary
    installed: Callable[[tuple[str, ...] | None], Iterable[Distribution]] = _installed
    import_path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))
    here: Path = field(default_factory=Path.cwd)
    variables: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))


@dataclass(frozen=True, slots=True)
class Swapping:
    """Pages since boot, read from /proc/vmstat: what went to the swap and what came back."""

    out: int
    back: int


@dataclass(frozen=True, slots=True)
class Scene:
    """Readings around a while of ``seconds`` in which nothing was done.

    ``environment`` is what the run's own preconditions say, ``load`` is
    ``sensors.load_between``, ``busiest`` the processes that took the most, ``swapped`` how many
    pages went to the swap and came back, null where that is not counted.
    """

    host: Host
    policy: Policy
    manifest: Manifest
    outside: Outside
    inventory: Inventory
    seconds: float
    environment: Environment
    load: dict[str, Any]
    busiest: tuple[Busy, ...]
    swapped: int | None


def look(
    host: Host,
    policy: Policy,
    manifest: Manifest,
    resident_bytes: Callable[[Inventory], int | None],
    outside: Outside | None = None,
) -> Scene:
    """Watch the machine for the policy's quick window and return what was seen.

    ``resident_bytes`` tells how much an entry keeps in memory on a machine with those cards.
    """
    cards = inventory(host)
    seconds = policy.preconditions.quick_idle_window_s
    swap, before, first = _swapping(host), busy.processes(host), sensors.load_sample(host)
    environment = preconditions.check(policy, resident_bytes(cards), seconds, host)
    last, after = sensors.load_sample(host), busy.processes(host)
    return Scene(
        host=host,
        policy=policy,
        manifest=manifest,
        outside=outside or Outside(),
        inventory=cards,
        seconds=seconds,
        environment=environment,
        load=sensors.load_between(first, last),
        busiest=busy.busiest(before, after, last.at - first.at),
        swapped=_moved(swap, _swapping(host)),
    )


def _swapping(host: Host) -> Swapping | None:
    if host.system != "linux":
        return None
    counts = dict(
        line.split(maxsplit=1)
        for line in (host.read("/proc/vmstat").value or "").splitlines()
        if line.startswith(("pswpin ", "pswpout "))
    )
    out, back = (whole_number(counts.get(name, "").strip()) for name in ("pswpout", "pswpin"))
    return None if out is None or back is None else Swapping(out, back)


def _moved(first: Swapping | None, last: Swapping | None) -> int | None:
    if first is None or last is None:
        return None
    return max(0, last.out - first.out) + max(0, last.back - first.back)
