from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from npumark.machine import cpu_limits
from npumark.machine.host import THIS, Host
from npumark.orchestrator import beside as module
from npumark.orchestrator.beside import NoLoad, beside
from npumark.policy import load_policy

RULES = replace(load_policy().diagnose, cache_bytes=1 << 20, stream_caches=2)
ONE = replace(THIS, affinity=lambda: frozenset({min(os.sched_getaffinity(0))}))

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="binds to CPUs as Linux does")


def loads() -> list[psutil.Process]:
    """The load processes of this very test process."""
    return [
        child
        for child in psutil.Process().children()
        if child.status() != psutil.STATUS_ZOMBIE and "beside.py" in " ".join(child.cmdline())
    ]


def has_worked(process: psutil.Process) -> None:
    """Wait until a process has had CPU time more than it has now."""
    began, until = process.cpu_times().user, time.monotonic() + 60
    while process.cpu_times().user <= began:
        assert time.monotonic() < until, "the load does nothing"
        threading.Event().wait(0.01)


def told(seconds: float, cpu_s: float) -> dict[str, Any]:
    return {"seconds": seconds, "cpu_s": cpu_s, "bytes": 0, "bound": True}


@pytest.mark.parametrize("kind", ["cpu", "memory"])
def test_a_load_is_busy_inside_and_gone_outside(kind: Any) -> None:
    with beside(kind, rules=RULES, host=ONE) as load:
        (process,) = loads()
        assert process.cpu_affinity() == [min(os.sched_getaffinity(0))]
        assert load.facts == {}
        has_worked(process)
    assert loads() == []
    facts = load.facts
    assert (facts["kind"], facts["processes"], facts["died"], facts["bound"]) == (kind, 1, 0, True)
    assert (facts["busy_share"] is None) != (facts["busy_why"] is None)
    assert (facts["bytes_per_s"] > 0) == (facts["buffer_bytes"] is not None) == (kind == "memory")


def test_a_load_that_dies_is_counted() -> None:
    with beside("cpu", rules=RULES, host=ONE) as load:
        os.kill(loads()[0].pid, signal.SIGKILL)
    assert (load.facts["processes"], load.facts["died"]) == (1, 1)
    assert load.facts["busy_share"] is None
    assert load.facts["busy_why"] == "no process lived to tell it"


def test_the_share_is_that_of_all_processes_together() -> None:
    facts = module._facts("cpu", [told(2.0, 1.0), told(3.0, 2.0)], [0, 0], None)
    assert (facts["busy_share"], facts["busy_why"]) == (3.0 / 5.0, None)


def test_the_share_of_a_moment_is_unknown() -> None:
    """Ticks of CPU time could make it any number, more than one whole CPU among them."""
    facts = module._facts("cpu", [told(2.0, 1.0), told(0.05, 0.08)], [0, 0], None)
    assert facts["busy_share"] is None
    assert facts["busy_why"] == "CPU time is counted too coarsely for less than 1 s"


@pytest.mark.parametrize("fault", [RuntimeError, KeyboardInterrupt, OSError])
def test_whatever_ends_the_body_ends_the_load(fault: type[BaseException]) -> None:
    seen = []

    def body() -> None:
        with beside("cpu", rules=RULES, host=ONE):
            seen.extend(loads())
            raise fault

    with pytest.raises(fault):
        body()
    assert len(seen) == 1
    assert loads() == []


def test_it_ends_with_whoever_started_it(tmp_path: Path) -> None:
    program = tmp_path / "dies.py"
    program.write_text(
        "import os\n"
        "from npumark.orchestrator.beside import beside\n"
        "from npumark.policy import load_policy\n"
        "import psutil\n"
        "with beside('cpu', rules=load_policy().diagnose):\n"
        "    print(*[c.pid for c in psutil.Process().children()], flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    died = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert died.returncode == -signal.SIGKILL
    pids = [int(pid) for pid in died.stdout.split()]
    assert pids
    for pid in pids:
        if psutil.pid_exists(pid):
            psutil.Process(pid).wait(10)


def test_a_process_that_is_never_busy_is_no_load(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "broken.py"
    program.write_text("raise SystemExit(7)\n")
    monkeypatch.setattr(module.program, "__file__", str(program))
    with pytest.raises(NoLoad, match="never became busy"), beside("cpu", rules=RULES, host=ONE):
        pytest.fail("the body ran without its load")


def test_a_signal_is_noticed_while_the_load_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "slow.py"
    program.write_text("import sys\nsys.stdin.read()\n")
    monkeypatch.setattr(module.program, "__file__", str(program))
    looks = iter(range(3))

    def check() -> None:
        if next(looks, None) is None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), beside("cpu", rules=RULES, host=ONE, check=check):
        pytest.fail("the body ran without its load")
    assert not [c for c in psutil.Process().children() if "slow.py" in " ".join(c.cmdline())]


def test_a_quota_leaves_no_more_processes_than_it_has_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = replace(cpu_limits.limits(), usable=1)
    monkeypatch.setattr(cpu_limits, "limits", lambda _: limits)
    more = frozenset({*os.sched_getaffinity(0), 1000})
    with beside("cpu", rules=RULES, host=replace(THIS, affinity=lambda: more)) as load:
        assert len(loads()) == 1
    assert load.facts["processes"] == 1


def test_a_process_that_cannot_be_started_is_no_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.sys, "executable", "/no/such/python")
    with pytest.raises(NoLoad, match="cannot be started: No such file"):
        beside("cpu", rules=RULES, host=ONE).__enter__()


def cached(machine: Any, size: str, *, cpus: int, shared: str) -> Host:
    for cpu in range(cpus):
        index = f"/sys/devices/system/cpu/cpu{cpu}/cache/index3"
        machine.write(f"{index}/level", 3)
        machine.write(f"{index}/type", "Unified")
        machine.write(f"{index}/size", size)
        machine.write(f"{index}/shared_cpu_list", shared)
    allowed = frozenset(range(cpus))
    return replace(machine.host, affinity=lambda: allowed)


@pytest.mark.parametrize(
    ("cpus", "each_mib"),
    [
        pytest.param(1, 128, id="one streams through four caches' worth"),
        pytest.param(2, 64, id="two share it"),
        pytest.param(16, 32, id="each at least one cache"),
    ],
)
def test_buffers_follow_the_cache_and_who_shares_it(machine: Any, cpus: int, each_mib: int) -> None:
    rules = load_policy().diagnose
    host = cached(machine, "32768K", cpus=cpus, shared="0-63")
    sizes, why = module._buffers(range(cpus), "memory", rules, host)
    assert sizes == [each_mib << 20] * cpus
    assert why is None


def test_an_unknown_cache_is_assumed_and_said_so(machine: Any) -> None:
    sizes, why = module._buffers([0], "memory", RULES, machine.host)
    assert (sizes, why) == ([2 << 20], "the kernel lists no caches here")
    assert module._buffers([0], "cpu", RULES, machine.host) == ([0], None)


def test_more_memory_than_is_free_is_not_taken(machine: Any) -> None:
    machine.write("/proc/meminfo", "MemTotal: 400000 kB\nMemAvailable: 200000 kB")
    host = cached(machine, "256M", cpus=1, shared="0")
    with pytest.raises(NoLoad, match=r"would take 1\.1 GB, and only 0\.2 GB are free"):
        beside("memory", rules=load_policy().diagnose, host=host).__enter__()
