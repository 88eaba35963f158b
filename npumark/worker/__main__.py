"""The worker: one job on stdin, one result on the pipe. ``launch`` starts it.

PIPE is an inherited file descriptor, on Windows an inherited handle. Whatever happens inside
becomes a result with its own status; only a death of the process leaves none. The exit status
is 0 where a result was delivered. The worker of a window that nobody releases any more ends
without one, as does one whose parent has ended.
"""

from __future__ import annotations

import time

_BEGAN = time.perf_counter_ns()

import os  # noqa: E402 - the clock starts before the imports that it measures
import sys  # noqa: E402
import traceback  # noqa: E402
from dataclasses import replace  # noqa: E402

from npumark.errors import EngineError, PackError, Unsupported, WrongDevice  # noqa: E402
from npumark.worker import affinity  # noqa: E402
from npumark.worker.barrier import Abandoned, Barrier, alone, pipe_barrier  # noqa: E402
from npumark.worker.parent import end_with_parent  # noqa: E402
from npumark.worker.protocol import (  # noqa: E402
    MAX_RESULT_BYTES,
    Job,
    Result,
    Status,
    decode_job,
)


def main(arguments: list[str], began_ns: int = _BEGAN) -> int:
    """Run the job on stdin; return the exit status: 0 delivered, 1 nobody waits, 2 not a job."""
    if len(arguments) != 1:
        print("usage: python -m npumark.worker PIPE < JOB", file=sys.stderr)
        return 2
    if not end_with_parent():
        print("whoever started this worker has ended", file=sys.stderr)
        return 1
    pipe = _open_pipe(int(arguments[0]))
    try:
        job = decode_job(sys.stdin.buffer.readline())
    except (ValueError, KeyError, TypeError) as fault:
        print(f"not a job: {fault}", file=sys.stderr)
        return 2
    try:
        result = carry_out(job, began_ns, pipe_barrier(pipe, sys.stdin.buffer))
    except Abandoned as fault:
        print(fault, file=sys.stderr)
        return 1
    raw = _encode(replace(result, python=sys.version.split()[0]))
    try:
        _write(pipe, raw)
    except OSError as fault:
        print(f"nobody reads the result: {fault}", file=sys.stderr)
        return 1
    return 0


def carry_out(job: Job, began_ns: int, barrier: Barrier = alone) -> Result:
    """Return the job's result; every exception inside becomes one, with its reason in a line.

    Raises only Abandoned: the ``barrier`` of a window says that nobody waits for a result.
    """
    try:
        affinity.bind(job.cpus)
        from npumark.worker import diagnose, measure, overhead, prepare, window

        if job.kind == "probe":
            return measure.probe(job)
        if job.kind == "overhead":
            return overhead.measure_overhead(job)
        if job.kind == "prepare":
            return prepare.prepare(job)
        if job.kind == "window":
            return window.run_window(job, barrier)
        if job.kind == "diagnose":
            return diagnose.diagnose(job)
        return measure.measure(job, began_ns)
    except KeyboardInterrupt:
        return Result("interrupted", "stopped by a signal")
    except Abandoned:
        raise
    except BaseException as fault:  # noqa: BLE001 - SystemExit too: a runtime may not end a worker
        traceback.print_exc()
        return Result(_status(fault), _one_line(fault))


def _status(fault: BaseException) -> Status:
    if isinstance(fault, PackError):
        return "pack_error"
    if isinstance(fault, Unsupported):
        return "unsupported"
    if isinstance(fault, WrongDevice):
        return "wrong_device"
    return "crashed"


def _one_line(fault: BaseException) -> str:
    text = " ".join(str(fault).split())
    if isinstance(fault, MemoryError):
        return "the worker ran out of memory"
    if isinstance(fault, (EngineError, PackError)) and text:
        return text[:500]
    return f"{type(fault).__name__}: {text}"[:500]


def _encode(result: Result) -> bytes:
    try:
        raw = result.encode()
    except (ValueError, TypeError, RecursionError) as fault:
        return Result(
            "crashed", f"the engine reported what JSON cannot hold: {fault}"[:500]
        ).encode()
    if len(raw) > MAX_RESULT_BYTES:
        return Result("crashed", "the engine reported more than a result may hold").encode()
    return raw


def _open_pipe(number: int) -> int:
    if sys.platform == "win32":
        import msvcrt

        return msvcrt.open_osfhandle(number, os.O_WRONLY)
    os.set_inheritable(number, False)
    return number


def _write(pipe: int, raw: bytes) -> None:
    view = memoryview(raw)
    while view:
        view = view[os.write(pipe, view) :]
    os.close(pipe)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
