"""Several workers in one window: every way in which one of them can spoil it for the others."""

from __future__ import annotations

import gc
import json
import os
import queue
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from npumark.errors import SetupError
from npumark.orchestrator import containment, supervisor
from npumark.orchestrator.interrupts import Interrupts
from npumark.orchestrator.supervisor import Outcome
from npumark.orchestrator.together import Member, Together, _Group, run_together
from npumark.policy import load_policy
from npumark.worker.protocol import Job, Result, Status, Window, WindowCheck, WindowOptions
from tests.worker.conftest import make_job, make_pack

pytestmark = pytest.mark.skipif(os.name != "posix", reason="drives POSIX processes")

POLICY = load_policy()
RULES = replace(POLICY.box, lead_s=0.0, overrun_s=60.0)
JOB = Job("window", "nowhere:Engine", window=WindowOptions(0.1))
DONE = Result(
    "ok",
    window=Window(
        late_ns=0,
        inside=1,
        straddling=(),
        calls=1,
        check=WindowCheck(0, 0, 200.0, None),
        load_ns=1,
        warmup_ns=1,
        samples_sha256=None,
        cpus=None,
        peak_rss_bytes=None,
    ),
)

PRELUDE = f"""
import json, os, signal, subprocess, sys, time
fd = int(sys.argv[1])
job = json.loads(sys.stdin.buffer.readline())
def ready():
    os.write(fd, b"\\x06")
def released():
    ready()
    line = sys.stdin.buffer.readline()
    if not line: os._exit(1)
    return json.loads(line)["start_ns"]
def answer(late_ns=0):
    done = json.loads({DONE.encode()!r})
    done["window"]["late_ns"] = late_ns
    os.write(fd, json.dumps(done).encode())
"""
GOOD = "answer(released())"
HANGS = "time.sleep(600)"
HANGS_IN_THE_WINDOW = "released(); time.sleep(600)"


def says(result: Result) -> str:
    return f"os.write(fd, {result.encode()!r})"


def member(name: str, body: str, job: Job = JOB, **changes: Any) -> Member:
    command = (sys.executable, "-S", "-c", PRELUDE + body)
    return Member(name, job, f"test-{os.getpid()}/{name}", command=command, **changes)


def drive(*bodies: str | Member, **changes: Any) -> Together:
    members = [
        member(f"card {i}", body) if isinstance(body, str) else body
        for i, body in enumerate(bodies)
    ]
    options: dict[str, Any] = {
        "limits": POLICY.worker,
        "rules": RULES,
        "window_s": 0.1,
        "ready_deadline_s": 600.0,
        "interrupts": Interrupts(),
    }
    before = time.monotonic()
    together = run_together(members, **{**options, **changes})
    # Nothing waits for a deadline that is not the test's own.
    assert time.monotonic() - before < 500
    assert_none_left()
    return together


def assert_none_left() -> None:
    """No process of any member is there any more, but for what the kernel still clears away."""
    until = time.monotonic() + 60
    while left := marked(f"test-{os.getpid()}/"):
        if time.monotonic() > until:
            pytest.fail(f"left over: {left}")
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def marked(start: str) -> list[int]:
    """Return the processes whose marker begins so."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("NPUMARK_WORKER", "").startswith(start):
                found.append(process.pid)
        except (psutil.Error, OSError):
            continue
    return found


def fates(together: Together) -> list[str]:
    return [outcome.status for outcome in together.outcomes]


def test_all_are_told_one_start_once_all_are_ready() -> None:
    rules = replace(RULES, lead_s=2.0)
    together = drive(
        GOOD, "time.sleep(0.2); answer(released())", GOOD, rules=rules, clock=lambda: 5
    )
    assert together.released
    assert together.at_fault == ()
    assert fates(together) == ["ok"] * 3
    windows = [out.result.window for out in together.outcomes if out.result]
    assert [w.late_ns for w in windows if w] == [2_000_000_005] * 3


def test_one_alone_is_a_window_too() -> None:
    assert fates(drive(GOOD)) == ["ok"]


def test_nobody_has_no_window() -> None:
    with pytest.raises(ValueError, match="nobody"):
        drive()


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        ("os.kill(os.getpid(), 11)", "crashed", "the worker died: SIGSEGV"),
        ("os._exit(3)", "crashed", "the worker died: exit status 3"),
        ("os._exit(0)", "no_result", "the worker ended without a result"),
        ("ready(); os.kill(os.getpid(), 9)", "crashed", "the worker died: SIGKILL"),
        ("answer()", "no_result", "the result came before the window"),
        ("ready(); answer()", "no_result", "the result came before the window"),
        (says(Result("unsupported", "not on this card")), "unsupported", "not on this card"),
        (says(Result("wrong_device", "it was the CPU")), "wrong_device", "it was the CPU"),
    ],
)
def test_who_fails_before_the_release_ends_the_others(body: str, status: str, why: str) -> None:
    together = drive(GOOD, body, HANGS)
    assert not together.released
    assert together.at_fault == (1,)
    assert fates(together) == ["interrupted", status, "interrupted"]
    assert together.outcomes[1].why == why
    for i in (0, 2):
        assert together.outcomes[i].why == f"stopped because card 1 failed: {why}"
        assert together.outcomes[i].result is None


def test_who_dies_in_the_window_ends_the_others() -> None:
    together = drive(HANGS_IN_THE_WINDOW, "released(); os.kill(os.getpid(), 6)")
    assert together.released
    assert together.at_fault == (1,)
    assert fates(together) == ["interrupted", "crashed"]
    assert together.outcomes[0].why == "stopped because card 1 failed: the worker died: SIGABRT"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("os.write(fd, b'garbage')", "not whole"),
        ("os.write(fd, b'x\\x06')", "not whole"),
        ("released(); os.write(fd, b'{\"schema\": ')", "not whole"),
        ("released(); ready(); answer()", "not whole"),
        (f"released(); {says(Result('ok'))}", "without its window"),
    ],
)
def test_who_answers_nonsense_has_failed(body: str, why: str) -> None:
    together = drive(body, HANGS_IN_THE_WINDOW)
    assert together.at_fault == (0,)
    assert fates(together) == ["no_result", "interrupted"]
    assert why in (together.outcomes[0].why or "")


def test_who_is_never_ready_has_failed_at_the_deadline() -> None:
    together = drive("ready(); time.sleep(600)", HANGS, ready_deadline_s=2.0)
    assert not together.released
    assert together.at_fault == (1,)
    assert fates(together) == ["interrupted", "timeout"]
    assert together.outcomes[1].why == "not ready within 2 s"


def test_who_does_not_come_back_has_failed_and_the_others_stand() -> None:
    rules = replace(RULES, overrun_s=2.0)
    together = drive(HANGS_IN_THE_WINDOW, GOOD, rules=rules)
    assert together.released
    assert together.at_fault == (0,)
    assert fates(together) == ["timeout", "ok"]
    assert together.outcomes[0].why == "not back 2 s after the window"
    assert together.outcomes[1].result is not None


def test_one_that_reads_no_job_blocks_nobody() -> None:
    """Its job fills the pipe: who writes it waits, and is let go when the worker ends."""
    big = replace(JOB, options={"pad": "x" * (1 << 20)})
    deaf = member("deaf", "", big)
    sleeps = replace(deaf, command=(sys.executable, "-S", "-c", HANGS.join(["import time; ", ""])))
    before = threading.active_count()
    together = drive(GOOD, sleeps, ready_deadline_s=2.0)
    assert fates(together) == ["interrupted", "timeout"]
    until = time.monotonic() + 60
    while threading.active_count() > before and time.monotonic() < until:
        time.sleep(0.01)
    assert threading.active_count() <= before


def test_a_large_job_comes_whole() -> None:
    big = replace(JOB, options={"pad": "x" * (1 << 20)})
    body = "assert len(job['options']['pad']) == 1 << 20\n" + GOOD
    assert fates(drive(member("a", body, big), member("b", body, big))) == ["ok", "ok"]


def test_a_flood_of_words_costs_nobody_anything(tmp_path: Path) -> None:
    limits = replace(POLICY.worker, log_cap_bytes=4096, log_tail_bytes=512)
    flood = "for _ in range(200): os.write(2, b'#' * 65536)\n"
    one = member("a", f"{flood}start = released()\n{flood}answer(start)", log_path=tmp_path / "log")
    together = drive(one, GOOD, limits=limits)
    assert fates(together) == ["ok", "ok"]
    assert len(together.outcomes[0].log_tail) == 512
    assert (tmp_path / "log").stat().st_size < 5000


class Told:
    """Stands for a supervision: what it is told."""

    def __init__(self) -> None:
        self.stops: list[str] = []

    def stop(self, why: str) -> None:
        self.stops.append(why)


def test_all_that_failed_by_themselves_are_named_in_their_order() -> None:
    def ended(status: Status, why: str | None) -> Outcome:
        return Outcome(status, why, None, None, 0, 0, "")

    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    events.put(("ready", 3, None))
    events.put(("ended", 2, ended("timeout", None)))
    events.put(("ended", 3, ended("interrupted", "stopped because c failed: timeout")))
    events.put(("ended", 0, ended("crashed", "it died")))
    events.put(("ended", 1, ended("ok", None)))
    held = [Told() for _ in range(4)]
    group = _Group([member(name, "") for name in "abcd"], held, RULES, 0.1, lambda: 0)  # type: ignore[arg-type]
    together = group.conduct(events)
    assert together.at_fault == (2, 0)
    assert not together.released
    assert fates(together) == ["crashed", "ok", "timeout", "interrupted"]
    assert held[3].stops[0] == "stopped because c failed: timeout"


def test_a_worker_deaf_to_the_asking_is_killed() -> None:
    deaf = "signal.signal(15, signal.SIG_IGN); released(); time.sleep(600)"
    together = drive(deaf, "released(); os._exit(3)")
    assert fates(together) == ["interrupted", "crashed"]
    assert together.outcomes[0].exit_code in (-signal.SIGKILL, -signal.SIGTERM)


def test_what_a_stopped_worker_started_is_killed_with_it(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    starts = f"""
child = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)'],
    start_new_session=True, pass_fds=(fd,))
open({str(note)!r}, 'w').write(str(child.pid))
released(); time.sleep(600)"""
    together = drive(starts, "released(); os._exit(3)")
    assert fates(together) == ["interrupted", "crashed"]
    pid, until = int(note.read_text()), time.monotonic() + 60
    while is_running(pid) and time.monotonic() < until:  # the kernel takes its time
        time.sleep(0.01)
    assert not is_running(pid)


def test_one_look_at_all_processes_ends_what_any_of_them_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many cards there are: on a computer with many processes each look takes long."""
    looks: list[tuple[str, ...]] = []
    real = containment.kill_marked

    def counted(*markers: str) -> list[int]:
        looks.append(markers)
        return real(*markers)

    monkeypatch.setattr(containment, "kill_marked", counted)
    drive(HANGS_IN_THE_WINDOW, "released(); os._exit(3)", GOOD)
    assert looks == [tuple(f"test-{os.getpid()}/card {i}" for i in range(3))]


def test_an_interpreter_that_is_missing_ends_the_others() -> None:
    gone = Member("gone", JOB, "test/gone", python="/no/such/python")
    together = drive(gone, HANGS)
    assert together.at_fault == (0,)
    assert fates(together) == ["crashed", "interrupted"]


@pytest.mark.parametrize("times", [1, 2])
def test_a_signal_before_the_release_stops_all_and_blames_nobody(times: int) -> None:
    interrupts = Interrupts()

    def signals() -> None:
        for _ in range(times):
            interrupts.trigger()

    threading.Timer(0.3, signals).start()
    limits = replace(POLICY.worker, kill_grace_s=1.0 if times == 1 else 600.0)
    deaf = "signal.signal(15, signal.SIG_IGN); time.sleep(600)"
    together = drive("ready(); time.sleep(600)", deaf, limits=limits, interrupts=interrupts)
    assert fates(together) == ["interrupted", "interrupted"]
    assert {out.why for out in together.outcomes} == {"stopped by the user"}
    assert together.at_fault == ()
    assert not together.released
    assert interrupts.seen


@pytest.mark.parametrize("times", [1, 2])
def test_a_signal_in_the_window_stops_all_and_blames_nobody(times: int) -> None:
    interrupts = Interrupts()

    def clock() -> int:
        """Release, and have the signals come once the workers know of it."""
        threading.Timer(0.3, lambda: [interrupts.trigger() for _ in range(times)]).start()
        return 0

    limits = replace(POLICY.worker, kill_grace_s=1.0 if times == 1 else 600.0)
    deaf = "signal.signal(15, signal.SIG_IGN); released(); time.sleep(600)"
    together = drive(HANGS_IN_THE_WINDOW, deaf, limits=limits, interrupts=interrupts, clock=clock)
    assert together.released
    assert fates(together) == ["interrupted", "interrupted"]
    assert together.at_fault == ()


def test_after_a_signal_nothing_starts() -> None:
    interrupts = Interrupts()
    interrupts.trigger()
    together = drive(GOOD, GOOD, interrupts=interrupts)
    assert [out.why for out in together.outcomes] == ["stopped before it started"] * 2
    assert together.at_fault == ()


def test_a_system_that_has_no_pipe_left_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    real = supervisor.open_pipe
    calls: list[int] = []

    def scarce(*stacks: Any) -> tuple[int, int]:
        calls.append(1)
        if threading.current_thread().name.endswith("_1"):
            raise SetupError("no worker can be started", "Close other programs.")
        return real(*stacks)

    monkeypatch.setattr(supervisor, "open_pipe", scarce)
    with pytest.raises(SetupError, match="no worker can be started"):
        drive(HANGS, GOOD)
    assert_none_left()


@pytest.mark.parametrize(
    "lacking", ["npumark-member_1", "npumark-feed", "npumark-log", "npumark-result", "npumark-exit"]
)
def test_a_system_that_has_no_thread_left_says_so_and_nothing_leaks(
    monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    real = threading.Thread

    def thread(*, name: str, **fields: Any) -> threading.Thread:
        made = real(name=name, **fields)
        if name == lacking:
            monkeypatch.setattr(made, "start", no_thread)
        return made

    def no_thread() -> None:
        raise RuntimeError("can't start new thread")

    gc.collect()  # what earlier tests left open must not be closed in between
    before = open_files()
    monkeypatch.setattr(threading, "Thread", thread)
    with pytest.raises(SetupError, match="can't start new thread") as told:
        drive(HANGS, GOOD)
    assert "pids" in (told.value.hint or "")
    assert_none_left()
    until = time.monotonic() + 60
    while open_files() != before and time.monotonic() < until:  # the readers of dead workers
        time.sleep(0.01)
    assert open_files() == before


def open_files() -> list[str]:
    place = Path("/proc/self/fd")
    return sorted(p.name for p in place.iterdir()) if place.exists() else []


@pytest.mark.parametrize("after_s", [0.2, 30.0])
def test_workers_that_were_asked_to_end_before_npumark_was(after_s: float) -> None:
    """A scheduler signals every process of a step, in no promised order."""
    interrupts = Interrupts()
    timer = threading.Timer(after_s, interrupts.trigger)
    timer.start()
    limits = replace(POLICY.worker, kill_grace_s=60.0 if after_s < 1 else 0.1)
    together = drive(
        *["released(); os.kill(os.getpid(), 15)"] * 2, interrupts=interrupts, limits=limits
    )
    timer.cancel()
    if after_s < 1:
        assert {(out.status, out.why) for out in together.outcomes} == {
            ("interrupted", "stopped by the user")
        }
        assert together.at_fault == ()
    else:
        assert together.at_fault
        assert "SIGTERM" in (together.outcomes[together.at_fault[0]].why or "")


def virtual(root: Path, **changes: Any) -> Job:
    """Return a window job of a virtual engine with a fake clock, in a pack of its own."""
    workload = make_pack(root)
    card = {"id": "virtual-cpu", "latency_us": {"*/*": 1000}, **changes.pop("card", {})}
    (root / "script.json").write_text(json.dumps({"engines": [card]}))
    return make_job(root, workload, kind="window", window=WindowOptions(0.1), **changes)


@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="needs two CPUs that a worker can be bound to",
)
def test_workers_released_together_ran_on_the_cpus_they_were_bound_to(tmp_path: Path) -> None:
    first, second, *_ = sorted(os.sched_getaffinity(0))
    members = [
        Member(name, virtual(tmp_path / name, cpus=cpus), f"test-{os.getpid()}/{name}")
        for name, cpus in (("a", (first,)), ("b", (second,)), ("both", (first, second)))
    ]
    together = drive(*members)
    windows = [out.result.window for out in together.outcomes if out.result]
    assert [w.cpus for w in windows if w] == [(first,), (second,), (first, second)]
    assert [w.calls for w in windows if w] == [100] * 3


Fault = dict[str, Any]


@pytest.mark.parametrize(
    ("fault", "status", "released"),
    [
        ({"do": "abort"}, "crashed", False),
        ({"do": "half_json"}, "no_result", False),
        ({"do": "unsupported"}, "unsupported", False),
        ({"do": "segfault", "call": 60}, "crashed", True),
        ({"do": "raise", "call": 60}, "crashed", True),
    ],
    ids=str,
)
def test_a_virtual_card_that_fails_is_named(
    tmp_path: Path, fault: Fault, status: str, released: bool
) -> None:
    members = [
        Member("good", virtual(tmp_path / "good"), f"test-{os.getpid()}/good"),
        Member(
            "bad", virtual(tmp_path / "bad", card={"faults": [fault]}), f"test-{os.getpid()}/bad"
        ),
    ]
    together = drive(*members)
    assert together.released == released
    assert together.at_fault == (1,)
    assert together.outcomes[1].status == status
    # A fake window is over at once: the good one may have come to its end.
    assert together.outcomes[0].status in (("ok", "interrupted") if released else ("interrupted",))


def test_a_wrong_answer_is_no_failure_of_the_worker(tmp_path: Path) -> None:
    """Whether an answer is right is judged by the score."""
    bad = virtual(tmp_path, card={"faults": [{"do": "zeros"}]})
    together = drive(Member("bad", bad, f"test-{os.getpid()}/bad"))
    assert fates(together) == ["ok"]
    result = together.outcomes[0].result
    assert result is not None
    assert result.window is not None
    assert result.window.check.snr_db is None
