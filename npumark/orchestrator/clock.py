"""The run's own clock: nanoseconds since the run began, through resumptions and reboots.

It counts on the system's monotonic clock, so nothing that sets the time of day moves a start
stamp. Beside it a watch tells whether the machine slept meanwhile.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

NS = 1_000_000_000
SLEPT_NS = NS // 10
"""Less is the two clocks being read one after the other; a real suspend takes longer."""
_SLEPT_BY_WALL_NS = 2 * NS
"""Where only the time of day tells, a correction of the clock must not look like a sleep."""


@dataclass(frozen=True, slots=True)
class RunClock:
    """``origin_ns`` is the monotonic time at which the run's clock read zero."""

    origin_ns: int

    @classmethod
    def start(cls) -> RunClock:
        return cls(time.monotonic_ns())

    @classmethod
    def resume(cls, origin_ns: int, last_ns: int, wall_gap_ns: int, *, rebooted: bool) -> RunClock:
        """Return the clock of a resumed run.

        On the same boot it is the same clock. After a reboot it continues from ``last_ns``, the
        last instant known, plus the time of day's gap, which is never taken as negative.
        """
        if not rebooted and time.monotonic_ns() - origin_ns >= last_ns:
            return cls(origin_ns)
        return cls(time.monotonic_ns() - last_ns - max(0, wall_gap_ns))

    def now_ns(self) -> int:
        return time.monotonic_ns() - self.origin_ns

    def at(self, monotonic_ns: int) -> int:
        """Return the run's time of a monotonic stamp taken in this process or a child."""
        return max(0, monotonic_ns - self.origin_ns)


class SleepWatch:
    """Tells how long the machine has been suspended since the watch was made."""

    def __init__(self) -> None:
        self._offset = _sleep_offset()

    def slept_ns(self) -> int:
        """Return the suspended time in nanoseconds; 0 where it is too short to be one."""
        slept = _sleep_offset() - self._offset
        return slept if slept >= _THRESHOLD else 0


if sys.platform == "linux":
    _THRESHOLD = SLEPT_NS

    def _sleep_offset() -> int:
        # CLOCK_MONOTONIC stands still during a suspend, CLOCK_BOOTTIME does not.
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.clock_gettime_ns(
            time.CLOCK_MONOTONIC
        )

elif sys.platform == "darwin":
    _THRESHOLD = SLEPT_NS

    def _sleep_offset() -> int:
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC) - time.clock_gettime_ns(
            time.CLOCK_UPTIME_RAW
        )

elif sys.platform == "win32":
    import ctypes

    _THRESHOLD = SLEPT_NS

    def _sleep_offset() -> int:
        biased, unbiased = ctypes.c_uint64(), ctypes.c_uint64()
        ctypes.windll.kernelbase.QueryInterruptTime(ctypes.byref(biased))
        ctypes.windll.kernel32.QueryUnbiasedInterruptTime(ctypes.byref(unbiased))
        return (biased.value - unbiased.value) * 100

else:
    _THRESHOLD = _SLEPT_BY_WALL_NS

    def _sleep_offset() -> int:
        return time.time_ns() - time.monotonic_ns()
