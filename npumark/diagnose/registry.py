"""Every probe, in the order in which they run and are shown."""

from __future__ import annotations

from npumark.diagnose import (
    auto_scheduler,
    batching,
    compile_cache,
    concurrency,
    contention,
    idle_wake,
    sustained,
)
from npumark.diagnose.probe import Probe

PROBES: tuple[Probe, ...] = (
    concurrency.PROBE,
    batching.PROBE,
    idle_wake.PROBE,
    sustained.PROBE,
    contention.PROBE,
    auto_scheduler.PROBE,
    compile_cache.PROBE,
)
