"""Which processes take the processor's time: two looks around a while, and the difference.

Processes are told by name and number. Their arguments are never read: they may hold what nobody
should see in a report.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from npumark.machine.host import THIS, Host, Running, whole_number
from npumark.plain import one_line

_TICKS_PER_S = 100
"""USER_HZ, as in /proc/stat (see sensors)."""

_KERNEL_THREAD = 0x00200000
"""PF_KTHREAD of linux/sched.h."""


@dataclass(frozen=True, slots=True)
class Busy:
    """``cpus`` is how many CPUs' worth of time a process took, 1.0 for one CPU all the while;
    ``mine`` as ``Running`` has it."""

    pid: int
    name: str
    cpus: float
    mine: bool


def processes(host: Host = THIS) -> tuple[Running, ...]:
    """Return the processes that this user can see; none where the system lists none."""
    if host.system != "linux":
        return host.processes()
    found = (_process(host, path) for path in host.listing("/proc", "[0-9]*"))
    return tuple(process for process in found if process is not None)


def busiest(
    before: tuple[Running, ...], after: tuple[Running, ...], seconds: float, most: int = 8
) -> tuple[Busy, ...]:
    """Return the processes that took the most CPU time between two looks ``seconds`` apart, this
    one left out. One that began meanwhile counts from its beginning."""
    if seconds <= 0:
        return ()
    known = {(p.pid, p.started): p.cpu_s for p in before}
    taken = [
        Busy(
            p.pid,
            one_line(p.name),
            (p.cpu_s - known.get((p.pid, p.started), 0.0)) / seconds,
            p.mine,
        )
        for p in after
        if p.pid not in (0, os.getpid())  # 0 is what Windows calls its idle time
    ]
    taken.sort(key=lambda busy: (-busy.cpus, busy.pid))
    return tuple(busy for busy in taken[:most] if busy.cpus > 0)


def _process(host: Host, path: str) -> Running | None:
    """Return what /proc/<pid>/stat tells, null for a process that has ended.

    The name stands in brackets and may hold some itself; the flags are field 9, utime and stime
    fields 14 and 15, the start time field 22.
    """
    text = host.read(f"{path}/stat").value or ""
    head, _, tail = text.rpartition(")")
    number, _, name = head.partition(" (")
    fields = [whole_number(field) for field in tail.split()[1:]]
    pid = whole_number(number)
    if pid is None or len(fields) < 19:
        return None
    flags, user, system, started = fields[5], fields[10], fields[11], fields[18]
    if user is None or system is None or started is None:
        return None
    kernel = flags is None or bool(flags & _KERNEL_THREAD)
    mine = pid > 1 and not kernel and _runs_as(host, path) == host.user()
    return Running(pid, float(started), name, (user + system) / _TICKS_PER_S, mine)


def _runs_as(host: Host, path: str) -> int | None:
    """Return the number of the user whose rights a process has: the second of its ``Uid:``."""
    for line in (host.read(f"{path}/status").value or "").splitlines():
        if line.startswith("Uid:"):
            numbers = line.split()[1:]
            return whole_number(numbers[1]) if len(numbers) > 1 else None
    return None
