"""One worker from start to end: its result if it is whole and the exit clean, else its fate.

While a worker runs, this side sits in one blocking wait with a deadline. Whatever happens, no
process of the worker's remains afterwards, and the reason is one of five distinct statuses:
``crashed``, ``timeout``, ``no_result``, ``interrupted``, or what the worker itself reports.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Literal, get_args

from npumark.errors import SetupError
from npumark.orchestrator import containment
from npumark.orchestrator.capture import LogDrain, ResultReader
from npumark.orchestrator.feeding import job_file
from npumark.orchestrator.interrupts import Interrupts
from npumark.orchestrator.oom import oom_kills
from npumark.orchestrator.threads import start_thread
from npumark.orchestrator.worker_env import worker_environment
from npumark.policy import WorkerLimits
from npumark.worker import launch
from npumark.worker.protocol import MAX_RESULT_BYTES, Job, Result, Status, decode_result

_OURS: frozenset[Status] = frozenset({"timeout", "no_result", "interrupted", "skipped"})
"""Only this side can say these of a worker. One that says them of itself has failed."""

_END_BY = 1.75
"""Of the grace, counted from the ending: when the rest of a worker is waited for no longer. With
a grace of 1 s an interrupt has its 2 s, what is left of them for saving."""

_ASKED = frozenset(
    {-signal.SIGINT, -signal.SIGTERM, 0xC000013A}
    | ({-signal.SIGHUP} if sys.platform != "win32" else set())
)
"""How a worker ends that was asked to (on Windows as a console that is closed asks)."""

_STOPPED = "stopped by the user"

Said = Literal["exit", "deadline", "interrupt", "too_large", "ready", "released", "stop"]
Event = tuple[Said, int | str]
"""What befalls a worker, as its supervision hears of it. With an interrupt comes the count so
far, with a deadline or a stop the reason in words. The last three are those of one that is held
back (see held), and the first four and a stop are endings."""

_MUST_HOLD = {"measure": "measurement", "window": "window", "diagnose": "probed"}
"""What a result that claims success must hold, by kind of job."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a worker ended. ``result`` is null unless it was whole and the exit clean.

    ``started_ns`` is on the monotonic clock. ``exit_code`` is minus the signal's number where
    one ended it, null where the process could not be ended or started.
    """

    status: Status
    why: str | None
    result: Result | None
    exit_code: int | None
    started_ns: int
    wall_ns: int
    log_tail: str


def worker_command(python: str | None = None) -> tuple[str, ...]:
    """Return the command of a worker: this interpreter's, or that of an engine's environment.

    ``-P`` keeps the current folder and the launcher's off the import path; faulthandler leaves
    a trace of where a crash happened in the log.
    """
    return (python or sys.executable, "-P", "-X", "faulthandler", launch.__file__)


def supervise(
    job: Job,
    *,
    limits: WorkerLimits,
    deadline_s: float,
    interrupts: Interrupts,
    marker: str,
    log_path: Path | None = None,
    cwd: Path | None = None,
    python: str | None = None,
    command: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Outcome:
    """Run ``job`` in a fresh worker and return how it ended; never raises for what a worker did.

    ``marker`` names the attempt and is inherited by every process it starts. ``python`` is the
    interpreter of the engine's environment, or null for this one. Signals that arrive meanwhile
    end the worker (a second one at once) and leave ``interrupts`` set. Raises SetupError where
    the worker cannot be attended or handed its job: no pipe, no thread, no temporary file.
    """
    env = worker_environment(
        os.environ if environ is None else environ, marker, apart=python is not None
    )
    return Supervision(job, limits, deadline_s).run(
        interrupts, command or worker_command(python), env, log_path, cwd
    )


class Supervision:
    """One worker's. ``deadline_s`` is counted from its start."""

    def __init__(self, job: Job, limits: WorkerLimits, deadline_s: float) -> None:
        self._job = job
        self._limits = limits
        self._deadline_s = deadline_s
        self._inbox: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def run(
        self,
        interrupts: Interrupts,
        command: Sequence[str],
        env: dict[str, str],
        log_path: Path | None,
        cwd: Path | None = None,
    ) -> Outcome:
        """Start the worker and return how it ended (see ``supervise``)."""
        with interrupts.deferred(lambda count: self._inbox.put(("interrupt", count))):
            if interrupts.seen:
                now = time.monotonic_ns()
                return Outcome("interrupted", "stopped before it started", None, None, now, 0, "")
            return self._run(command, env, log_path, cwd)

    def _run(
        self, command: Sequence[str], env: dict[str, str], log_path: Path | None, cwd: Path | None
    ) -> Outcome:
        ooms = oom_kills()
        started = time.monotonic_ns()
        with ExitStack() as log_end, ExitStack() as result_end, ExitStack() as handed:
            log_read, log_write = open_pipe(log_end, handed)
            result_read, result_write = open_pipe(result_end, handed)
            stdin = self._stdin(handed)
            try:
                child = containment.start(
                    command,
                    stdin=stdin,
                    log_fd=log_write,
                    result_fd=result_write,
                    env=env,
                    cwd=cwd or Path(tempfile.gettempdir()),
                )
            except OSError as fault:
                text = f"the worker could not be started: {fault.strerror or fault}"
                wall = time.monotonic_ns() - started
                return Outcome("crashed", text, None, None, started, wall, "")
            limits = self._limits
            try:
                log = LogDrain(log_read, log_path, limits.log_cap_bytes, limits.log_tail_bytes)
                log_end.pop_all()  # its reader closes it from here on
                reader = self._reader(result_read)
                result_end.pop_all()
                start_thread(partial(self._watch, child), "npumark-exit")
            except SetupError:
                self._kill(child)
                child.exit_code(limits.kill_grace_s)
                raise
        ending, detail = self._await_ending(started)
        asked = time.monotonic()
        if ending in ("deadline", "interrupt", "stop"):
            self._wind_down(child)
        self._kill(child)  # the worker, or whatever outlived it
        # One end for all three: together they must fit what an interrupt may take.
        until = asked + _END_BY * self._limits.kill_grace_s
        exit_code = child.exit_code(_left(until))
        whole = reader.join(_left(until)) and exit_code is not None
        log.join(_left(until))
        wall = time.monotonic_ns() - started
        status, why, result = self._judge(
            ending, detail, exit_code, reader, whole=whole, oom=_more_ooms(ooms, oom_kills())
        )
        return Outcome(status, why, result, exit_code, started, wall, log.text())

    def _watch(self, child: containment.Contained) -> None:
        child.await_exit()
        self._inbox.put(("exit", 0))

    # -- what is otherwise where a worker is held back (see held) ---------------------------

    def _stdin(self, handed: ExitStack) -> int | IO[bytes]:
        """Return what the worker reads its job from; it is closed here once that has started."""
        return handed.enter_context(job_file(self._job.encode()))

    def _reader(self, fd: int) -> ResultReader:
        return ResultReader(fd, MAX_RESULT_BYTES, self._too_large)

    def _kill(self, child: containment.Contained) -> None:
        child.kill()

    def _await_ending(self, started: int) -> Event:
        left = self._deadline_s - (time.monotonic_ns() - started) / 1e9
        try:
            return self._inbox.get(timeout=max(0.0, left))
        except queue.Empty:
            return "deadline", f"no end within {self._deadline_s:g} s"

    # ---------------------------------------------------------------------------------------

    def _too_large(self) -> None:
        self._inbox.put(("too_large", 0))

    def _wind_down(self, child: containment.Contained) -> None:
        """Ask, then wait for the exit: until the grace is over or a second signal forces."""
        child.ask_to_end()
        until = time.monotonic() + self._limits.kill_grace_s
        while (left := until - time.monotonic()) > 0:
            try:
                said, detail = self._inbox.get(timeout=left)
            except queue.Empty:
                return
            if said == "exit" or (said == "interrupt" and detail != 1):
                return

    def _asked_too(self) -> bool:
        """Whether this program is asked to end, as the worker was by somebody else: schedulers
        signal every process of a step, in no promised order. Waits for as long as the grace."""
        until = time.monotonic() + self._limits.kill_grace_s
        with suppress(queue.Empty):
            while True:
                said, _ = self._inbox.get(timeout=_left(until))
                if said == "interrupt":
                    return True
        return False

    def _judge(
        self,
        ending: Said,
        detail: int | str,
        exit_code: int | None,
        reader: ResultReader,
        *,
        whole: bool,
        oom: bool,
    ) -> tuple[Status, str | None, Result | None]:
        if ending == "interrupt":
            return "interrupted", _STOPPED, None
        if ending == "stop":
            return "interrupted", str(detail), None
        if ending == "deadline":
            stuck = "" if exit_code is not None else "; the process could not be ended"
            return "timeout", f"{detail}{stuck}", None
        if ending == "too_large" or reader.overflowed:
            return "no_result", f"the result exceeds {MAX_RESULT_BYTES / 1e6:.1f} MB", None
        if exit_code != 0:
            if exit_code in _ASKED and self._asked_too():
                return "interrupted", _STOPPED, None
            return "crashed", describe_exit(exit_code, oom=oom), None
        raw = reader.data()
        if not raw:
            return "no_result", "the worker ended without a result", None
        try:
            result = decode_result(raw)
        except (ValueError, RecursionError) as fault:
            if not whole:
                return "no_result", "the result never came to its end", None
            return "no_result", f"the result is not whole ({len(raw)} bytes): {fault}"[:300], None
        if result.status not in get_args(Status):
            return "no_result", f"the result has an unknown status {result.status!r}"[:300], None
        if result.status == "interrupted" and self._asked_too():
            return "interrupted", _STOPPED, None
        if result.status in _OURS:
            why = f"the worker ended by itself as {result.status}: {result.why}"[:300]
            return "crashed", why, None
        held = _MUST_HOLD.get(self._job.kind)
        if held and result.status == "ok" and getattr(result, held) is None:
            return "no_result", f"the result claims success without its {held}", None
        return result.status, result.why, result


def describe_exit(code: int | None, *, oom: bool) -> str:
    """Say how a process ended. Lack of memory is named only with evidence (``oom``)."""
    if code is None:
        return "the worker could not be ended"
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        if oom and name == "SIGKILL":
            return "the worker died: SIGKILL, while the system was killing for lack of memory"
        return f"the worker died: {name}"
    if code >= 1 << 31:  # a Windows NTSTATUS
        known = {
            0xC0000005: "access violation",
            0xC000001D: "illegal instruction",
            0xC00000FD: "stack overflow",
            0xC0000409: "abort",
        }
        return f"the worker died: {known.get(code, 'exception')} (0x{code:08X})"
    return f"the worker died: exit status {code}"


def _left(until: float) -> float:
    return max(0.0, until - time.monotonic())


def open_pipe(reading: ExitStack, handed: ExitStack) -> tuple[int, int]:
    """Return a pipe's two ends, each closed with its stack.

    Raises SetupError where there is none to be had.
    """
    try:
        read, write = os.pipe()
    except OSError as fault:
        raise SetupError(
            f"no worker can be started: {fault.strerror or fault}",
            "Close other programs, or raise the limit of open files.",
        ) from fault
    reading.callback(os.close, read)
    handed.callback(os.close, write)
    return read, write


def _more_ooms(before: int | None, after: int | None) -> bool:
    return before is not None and after is not None and after > before
