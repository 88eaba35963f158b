"""Every probe, in the order in which they run and are shown."""

from __future__ import annotations

from npumark.diagnose import concurrency, contention, idle_wake, sustained
from npumark.diagnose.probe import Probe

PROBES: tuple[Probe, ...] = (
    concurrency.PROBE,
    idle_wake.PROBE,
    sustained.PROBE,
    contention.PROBE,
)
