"""A load on the machine beside what a probe measures: started, known to be busy, ended.

One process for each CPU that this program may use, and no more of them than its quota allows.
``cpu`` computes in its registers; ``memory`` streams through buffers that no cache holds. The two
take the same CPU time, so what the second costs an engine beyond the first is the memory's.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from npumark.diagnose.probe import Beside
from npumark.machine import cpu_limits
from npumark.machine.cache import LastLevel, last_level
from npumark.machine.host import THIS, Host
from npumark.machine.sensors import available_memory
from npumark.orchestrator import containment
from npumark.orchestrator.worker_env import worker_environment
from npumark.policy import DiagnoseRules
from npumark.worker import beside as program

_BUSY_WITHIN_S = 60.0
"""For every process to import NumPy, fill its buffer and say that it is busy."""

_LOOK_S = 0.1
"""Between two looks at whether a signal has come, while the processes become busy."""

_END_WITHIN_S = 10.0
"""For a process to look up from its work and tell what it did. One that is late is taken for dead;
where the body was interrupted none is waited for."""

_SHARE_NEEDS_S = 1.0
"""Systems count CPU time in ticks of up to 16 ms: within a second both ends are 3 % of it, and a
share of a moment would mean nothing."""

_MOST_MEMORY = 0.5
"""Of the memory that is free: the engine needs some too."""


class NoLoad(RuntimeError):
    """The load cannot be had here, for the reason it states."""


@dataclass(slots=True)
class Load:
    """``facts`` is empty until the load has ended; then it says what the load did: its
    ``processes``, the ``busy_share`` of a CPU that each had (null with ``busy_why``), the
    ``bytes_per_s`` that all moved together (read and written), how many ``died`` meanwhile, and
    through how large a buffer each streamed (``buffer_bytes``, null for ``cpu``) and why so
    large."""

    kind: Beside
    facts: dict[str, Any] = field(default_factory=dict)


@contextmanager
def beside(
    kind: Beside,
    *,
    rules: DiagnoseRules,
    marker: str = "npumark-beside",
    host: Host = THIS,
    busy_within_s: float = _BUSY_WITHIN_S,
    check: Callable[[], object] = lambda: None,
) -> Iterator[Load]:
    """Put a load on the machine while the body runs, and have it gone afterwards whatever
    happens. Raises NoLoad before the body where it cannot be had, and what ``check`` raises: it is
    called now and then until the load is busy."""
    cpus = sorted(host.affinity() or range(host.logical() or 1))
    cpus = cpus[: cpu_limits.limits(host).usable]
    buffers, why = _buffers(cpus, kind, rules, host)
    load = Load(kind)
    with ExitStack() as ending:
        processes = []
        for cpu, size in zip(cpus, buffers, strict=True):
            processes.append(_start([kind, str(cpu), str(size)], marker))
            ending.callback(processes[-1].kill)
        _await_busy(processes, time.monotonic() + busy_within_s, check)
        yield load
        load.facts.update(_facts(kind, _ended(processes), buffers, why))


def _start(arguments: Sequence[str], marker: str) -> _Process:
    try:
        return _Process(arguments, marker)
    except OSError as fault:
        raise NoLoad(f"the load beside it cannot be started: {fault.strerror or fault}") from fault


def _await_busy(processes: Sequence[_Process], until: float, check: Callable[[], object]) -> None:
    for process in processes:
        if process.line(until, check) != program.BUSY:
            raise NoLoad(f"a process of the load beside it never became busy{process.said()}")


def _buffers(
    cpus: Sequence[int], kind: Beside, rules: DiagnoseRules, host: Host
) -> tuple[list[int], str | None]:
    """Return how large a buffer each CPU's process streams through, and why the size of the
    caches is an assumption, null where the system states it.

    The buffers of those that share a cache are together ``stream_caches`` times as large as it,
    and each at least as large.
    """
    if kind == "cpu":
        return [0] * len(cpus), None
    levels = [last_level(host, cpu) for cpu in cpus]
    sizes = [_buffer(level, cpus, rules) for level in levels]
    free, needed = available_memory(host), sum(sizes)
    if free is not None and needed > _MOST_MEMORY * free:
        raise NoLoad(
            f"streaming through memory would take {needed / 1e9:.1f} GB, "
            f"and only {free / 1e9:.1f} GB are free"
        )
    return sizes, next((level.why for level in levels if level.why), None)


def _buffer(level: LastLevel, cpus: Sequence[int], rules: DiagnoseRules) -> int:
    cache = level.bytes or rules.cache_bytes
    sharing = len(level.shared_by.intersection(cpus)) if level.shared_by else 1
    return max(cache, rules.stream_caches * cache // max(1, sharing))


def _ended(processes: Sequence[_Process]) -> list[dict[str, Any]]:
    """End the processes; return what each tells, leaving out those that died."""
    for process in processes:
        process.ask_to_end()
    until = time.monotonic() + _END_WITHIN_S
    told = []
    for process in processes:
        with suppress(ValueError):
            told.append(json.loads(process.line(until) or ""))
    return told


def _facts(
    kind: Beside, told: Sequence[Mapping[str, Any]], buffers: Sequence[int], why: str | None
) -> dict[str, Any]:
    share, busy_why = _busy_share(told)
    return {
        "kind": kind,
        "processes": len(buffers),
        "died": len(buffers) - len(told),
        "bound": bool(told) and all(t["bound"] for t in told),
        "busy_share": share,
        "busy_why": busy_why,
        "bytes_per_s": sum(t["bytes"] / t["seconds"] for t in told if t["seconds"] > 0),
        "buffer_bytes": max(buffers) if kind == "memory" else None,
        "buffer_why": why,
    }


def _busy_share(told: Sequence[Mapping[str, Any]]) -> tuple[float | None, str | None]:
    """Return the share of a CPU that the processes had on average, or null and why."""
    if not told:
        return None, "no process lived to tell it"
    if min(t["seconds"] for t in told) < _SHARE_NEEDS_S:
        return None, f"CPU time is counted too coarsely for less than {_SHARE_NEEDS_S:g} s"
    return sum(t["cpu_s"] for t in told) / sum(t["seconds"] for t in told), None


class _Process:
    """One load process, and the lines it writes."""

    def __init__(self, arguments: Sequence[str], marker: str) -> None:
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._child = subprocess.Popen(
            [sys.executable, "-P", program.__file__, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=worker_environment(os.environ, marker),
            cwd=tempfile.gettempdir(),
            preexec_fn=containment.before_it_starts() if sys.platform != "win32" else None,
            start_new_session=sys.platform != "win32",
            creationflags=_group(),
        )
        containment.once_started(self._child)
        self._reader = threading.Thread(target=self._read, name="npumark-beside", daemon=True)
        self._reader.start()

    def line(self, until: float, check: Callable[[], object] = lambda: None) -> str | None:
        """Return its next line, null where none comes by ``until`` (monotonic) or at all.

        Raises what ``check`` raises, which is called every ``_LOOK_S``.
        """
        while True:
            check()
            left = max(0.0, until - time.monotonic())
            try:
                return self._lines.get(timeout=min(left, _LOOK_S)) or None
            except queue.Empty:
                if left <= _LOOK_S:
                    return None

    def said(self) -> str:
        code = self._child.poll()
        return "" if code is None else f" (it ended with status {code})"

    def ask_to_end(self) -> None:
        if self._child.stdin is not None:
            with suppress(OSError):
                self._child.stdin.close()

    def kill(self) -> None:
        self.ask_to_end()
        with suppress(OSError):
            self._child.kill()
        self._child.wait()
        self._reader.join()  # nobody writes to its pipe any more

    def _read(self) -> None:
        stdout = self._child.stdout
        if stdout is not None:
            with suppress(OSError), stdout:
                for line in stdout:
                    self._lines.put(line.decode("utf-8", "replace").strip())
        self._lines.put("")


def _group() -> int:
    """Return what gives a process a console group of its own on Windows: Ctrl-C is ours to see."""
    if sys.platform == "win32":
        return subprocess.CREATE_NEW_PROCESS_GROUP
    else:  # noqa: RET505 - a type checker sees one branch only, and calls the rest unreachable
        return 0
