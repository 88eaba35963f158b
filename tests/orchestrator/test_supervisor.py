"""Every way a worker can end, driven by small programs in its place."""

from __future__ import annotations

import errno
import gc
import os
import signal
import sys
import tempfile
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest

from npumark.errors import SetupError
from npumark.orchestrator import containment, supervisor
from npumark.orchestrator.capture import LogDrain, ResultReader
from npumark.orchestrator.interrupts import Interrupts
from npumark.orchestrator.supervisor import Outcome, describe_exit, supervise, worker_command
from npumark.policy import WorkerLimits, load_policy
from npumark.worker.protocol import EngineInfo, Job, JobKind, Result

pytestmark = pytest.mark.skipif(os.name != "posix", reason="drives POSIX processes")

LIMITS = replace(load_policy().worker, log_cap_bytes=4096, log_tail_bytes=512)
JOB = Job("probe", "nowhere:Engine")

PRELUDE = """
import json, os, signal, subprocess, sys, time
fd = int(sys.argv[1])
job = json.loads(sys.stdin.buffer.read())
def answer(raw):
    os.write(fd, raw if isinstance(raw, bytes) else raw.encode())
"""
GOOD = Result("ok", engines=(EngineInfo("x-cpu", True, None, "x", "X", "1"),)).encode()


def drive(
    body: str,
    *,
    deadline_s: float = 30.0,
    interrupts: Interrupts | None = None,
    log_path: Path | None = None,
    job: Job = JOB,
    marker: str = "test",
    limits: WorkerLimits = LIMITS,
) -> Outcome:
    return supervise(
        job,
        limits=limits,
        deadline_s=deadline_s,
        interrupts=interrupts or Interrupts(),
        marker=marker,
        log_path=log_path,
        command=(sys.executable, "-c", PRELUDE + body),
        environ={"PATH": os.environ.get("PATH", "")},
    )


def test_a_whole_result_and_a_clean_exit_are_believed() -> None:
    out = drive(f"assert job['kind'] == 'probe'\nanswer({GOOD!r})")
    assert (out.status, out.why, out.exit_code) == ("ok", None, 0)
    assert out.result is not None
    assert out.result.engines[0].id == "x-cpu"
    assert out.wall_ns > 0


def test_a_signal_is_named_and_its_log_kept() -> None:
    body = "sys.stderr.write('last words'); sys.stderr.flush(); os.kill(os.getpid(), 11)"
    out = drive(body)
    assert out.status == "crashed"
    assert out.why == "the worker died: SIGSEGV"
    assert out.exit_code == -signal.SIGSEGV
    assert out.log_tail == "last words"
    assert out.result is None


def test_a_result_before_a_crash_does_not_count() -> None:
    out = drive(f"answer({GOOD!r}); os.kill(os.getpid(), 9)")
    assert (out.status, out.why) == ("crashed", "the worker died: SIGKILL")
    assert out.result is None


def test_lack_of_memory_is_named_only_with_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    counters = iter([3, 4])
    monkeypatch.setattr(supervisor, "oom_kills", lambda: next(counters))
    out = drive("os.kill(os.getpid(), 9)")
    assert out.why == "the worker died: SIGKILL, while the system was killing for lack of memory"
    monkeypatch.setattr(supervisor, "oom_kills", lambda: None)
    assert drive("os.kill(os.getpid(), 9)").why == "the worker died: SIGKILL"


def test_an_exit_status_is_a_crash_even_with_a_result() -> None:
    out = drive(f"answer({GOOD!r}); sys.exit(7)")
    assert (out.status, out.why) == ("crashed", "the worker died: exit status 7")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("", "ended without a result"),
        (f"answer({GOOD[: len(GOOD) // 2]!r})", "not whole"),
        ("answer('null')", "not whole"),
        ("answer('[' * 100000)", "not whole"),
        (f"answer({GOOD.replace(b'npumark-worker/1', b'other/9')!r})", "not whole"),
        (f"answer({GOOD.replace(b'ok', b'fine', 1)!r})", "unknown status"),
    ],
)
def test_what_is_no_result_is_called_so(body: str, why: str) -> None:
    out = drive(body)
    assert out.status == "no_result"
    assert out.why is not None
    assert why in out.why
    assert out.result is None


@pytest.mark.parametrize(
    ("kind", "lacks"), [("measure", "measurement"), ("window", "window"), ("diagnose", "probed")]
)
def test_success_without_what_was_asked_for_is_no_result(kind: JobKind, lacks: str) -> None:
    out = drive(f"answer({GOOD!r})", job=Job(kind, "nowhere:Engine"))
    assert out.status == "no_result"
    assert out.why == f"the result claims success without its {lacks}"


def test_a_result_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "MAX_RESULT_BYTES", 1 << 20)
    out = drive("while True: answer(b'x' * 65536)")
    assert (out.status, out.why) == ("no_result", "the result exceeds 1.0 MB")


def test_a_hang_ends_at_the_deadline() -> None:
    out = drive("time.sleep(600); os._exit(0)", deadline_s=0.3)
    assert (out.status, out.why) == ("timeout", "no end within 0.3 s")
    assert out.exit_code == -signal.SIGTERM


def test_a_worker_deaf_to_sigterm_is_killed() -> None:
    """What its parent ignores it ignores from its first instruction."""
    heard = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        out = supervise(
            JOB,
            limits=LIMITS,
            deadline_s=0.1,
            interrupts=Interrupts(),
            marker="test",
            command=("/bin/sleep", "600"),
        )
    finally:
        signal.signal(signal.SIGTERM, heard)
    assert out.status == "timeout"
    assert out.exit_code == -signal.SIGKILL


def test_a_worker_that_never_reads_its_job_blocks_nobody() -> None:
    big = Job("probe", "nowhere:Engine", options={"pad": "x" * (1 << 20)})
    out = supervise(
        big,
        limits=LIMITS,
        deadline_s=0.3,
        interrupts=Interrupts(),
        marker="test",
        command=(sys.executable, "-c", "import time; time.sleep(600)"),
    )
    assert out.status == "timeout"


def test_a_flood_is_capped_and_its_ends_kept(tmp_path: Path) -> None:
    log = tmp_path / "log"
    body = f"""
os.write(2, b'first words\\n')
for _ in range(400): os.write(2, b'#' * 65536)
os.write(2, b'last words')
answer({GOOD!r})"""
    out = drive(body, log_path=log)
    assert out.status == "ok"
    assert out.log_tail.endswith("last words")
    assert len(out.log_tail) == LIMITS.log_tail_bytes
    kept = log.read_text()
    assert kept.startswith("first words")
    assert kept.endswith("last words")
    assert "bytes dropped" in kept
    assert len(kept) < LIMITS.log_cap_bytes + 100


def test_a_log_that_cannot_be_written_costs_nothing(tmp_path: Path) -> None:
    out = drive(f"os.write(1, b'hello'); answer({GOOD!r})", log_path=tmp_path / "no" / "such")
    assert (out.status, out.log_tail) == ("ok", "hello")


@pytest.mark.parametrize("session", ["False", "True"])
def test_what_outlives_the_worker_is_killed(session: str, tmp_path: Path) -> None:
    """A grandchild, in the worker's group or in a session of its own, holding every pipe."""
    note = tmp_path / "pid"
    body = f"""
child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],
    start_new_session={session}, pass_fds=(fd,))
open({str(note)!r}, 'w').write(str(child.pid))
answer({GOOD!r})"""
    out = drive(body, marker=f"grandchild-{session}")
    assert out.status == "ok"
    _assert_gone(int(note.read_text()))


def _assert_gone(pid: int) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return
        time.sleep(0.01)
    pytest.fail(f"process {pid} is still there")


def test_an_interrupt_ends_the_worker_in_time() -> None:
    interrupts = Interrupts()
    threading.Timer(0.3, interrupts.trigger).start()
    out = drive("signal.signal(15, signal.SIG_IGN)\ntime.sleep(600)", interrupts=interrupts)
    assert (out.status, out.why) == ("interrupted", "stopped by the user")
    assert interrupts.seen
    assert out.wall_ns < 300e9  # killed, long before its own end


class Stuck:
    """A process that nothing ends, as one stuck in the kernel, with its pipes held open."""

    def __init__(self, log_fd: int, result_fd: int) -> None:
        self.held = [os.dup(log_fd), os.dup(result_fd)]
        self.waits: list[float] = []

    def await_exit(self) -> None:
        threading.Event().wait(60)

    def ask_to_end(self) -> None:
        pass

    kill = ask_to_end

    def exit_code(self, timeout: float) -> None:
        self.wait(timeout)

    def wait(self, timeout: float) -> bool:
        self.waits.append(timeout)
        time.sleep(timeout)
        return False


def test_the_waits_for_a_stuck_worker_share_one_end(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck: list[Stuck] = []

    def start(*_: object, log_fd: int, result_fd: int, **__: object) -> Stuck:
        stuck.append(Stuck(log_fd, result_fd))
        return stuck[0]

    monkeypatch.setattr(containment, "start", start)
    for reader in (LogDrain, ResultReader):
        monkeypatch.setattr(reader, "join", lambda _, timeout: stuck[0].wait(timeout))
    limits = replace(LIMITS, kill_grace_s=0.2)
    out = supervise(
        JOB, limits=limits, deadline_s=0.1, interrupts=Interrupts(), marker="test", command=("x",)
    )
    for fd in stuck[0].held:
        os.close(fd)
    assert (out.status, out.exit_code) == ("timeout", None)
    first, *rest = stuck[0].waits
    assert first < 0.2
    assert rest == [0.0, 0.0]


def open_files() -> list[str]:
    return sorted(p.name for p in Path("/proc/self/fd").iterdir())


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors there")
@pytest.mark.parametrize("fails", ["TemporaryFile", "gettempdir", "write"])
def test_a_full_temporary_folder_is_said_and_nothing_leaks(
    monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    command = ("no-such-program",)
    if fails == "write":
        monkeypatch.setattr(tempfile, "TemporaryFile", partial(open, "/dev/full", "wb"))
    else:
        monkeypatch.setattr(tempfile, fails, full)
        monkeypatch.setattr(tempfile, "TemporaryFile", full)
    gc.collect()  # what earlier tests left open must not be closed in between
    before = open_files()
    with pytest.raises(SetupError, match="temporary folder") as told:
        supervise(
            JOB,
            limits=LIMITS,
            deadline_s=1.0,
            interrupts=Interrupts(),
            marker="test",
            command=command,
        )
    assert "No space left" in told.value.message
    assert fails == "gettempdir" or tempfile.gettempdir() in told.value.message
    assert "TMPDIR" in (told.value.hint or "")
    assert open_files() == before


@pytest.mark.parametrize(
    "ends",
    ["os.kill(os.getpid(), 15)", f"answer({Result('interrupted', 'by a signal').encode()!r})"],
)
def test_a_worker_that_was_asked_to_end_before_npumark_was(ends: str) -> None:
    """A scheduler signals every process of a step, in no promised order."""
    interrupts = Interrupts()
    limits = replace(LIMITS, kill_grace_s=60.0)
    threading.Timer(0.5, interrupts.trigger).start()
    out = drive(ends, interrupts=interrupts, limits=limits)
    assert (out.status, out.why) == ("interrupted", "stopped by the user")
    alone = drive(ends, limits=replace(LIMITS, kill_grace_s=0.1))
    assert alone.status == "crashed"


def test_a_second_interrupt_does_not_wait_for_the_grace() -> None:
    interrupts = Interrupts()

    def twice() -> None:
        interrupts.trigger()
        interrupts.trigger()

    threading.Timer(0.3, twice).start()
    out = supervise(
        JOB,
        limits=replace(LIMITS, kill_grace_s=600.0),
        deadline_s=600.0,
        interrupts=interrupts,
        marker="test",
        command=(
            sys.executable,
            "-c",
            "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)",
        ),
    )
    assert out.status == "interrupted"
    assert out.wall_ns < 300e9


def test_nothing_starts_after_an_interrupt() -> None:
    interrupts = Interrupts()
    interrupts.trigger()
    out = drive("raise SystemExit(9)", interrupts=interrupts)
    assert (out.status, out.exit_code, out.wall_ns) == ("interrupted", None, 0)


def test_an_interpreter_that_is_missing_is_said() -> None:
    out = supervise(
        JOB,
        limits=LIMITS,
        deadline_s=1.0,
        interrupts=Interrupts(),
        marker="test",
        command=worker_command("/no/such/python"),
    )
    assert out.status == "crashed"
    assert out.why == "the worker could not be started: No such file or directory"


def test_endings_have_names() -> None:
    assert describe_exit(-6, oom=True) == "the worker died: SIGABRT"
    assert describe_exit(-199, oom=False) == "the worker died: signal 199"
    assert "access violation" in describe_exit(0xC0000005, oom=False)
    assert describe_exit(None, oom=False) == "the worker could not be ended"
