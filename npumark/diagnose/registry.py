"""Every probe, in the order in which they run and are shown."""

from __future__ import annotations

from npumark.diagnose.probe import Probe

PROBES: tuple[Probe, ...] = ()
