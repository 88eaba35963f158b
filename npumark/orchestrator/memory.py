"""How much memory sessions need at the least, and why so much may not be there."""

from __future__ import annotations

from npumark.pack.manifest import Manifest
from npumark.policy import Policy
from npumark.score.planned import Planned


def needed_bytes(planned: Planned, manifest: Manifest, policy: Policy) -> int:
    """Return the bytes that one session of an entry needs at the least: a multiple of the files
    that it reads."""
    files = set(manifest.workloads[planned.workload].files(planned.graph_variant))
    resident = sum(manifest.files[path].size for path in files)
    return round(policy.preconditions.memory_factor * resident)


def lack_of_memory(needed: int, free: int | None) -> str | None:
    """Return why ``needed`` bytes do not fit into ``free``, null where they may or nobody knows."""
    if free is None or needed <= free:
        return None
    return f"not enough memory: {needed / 1e6:.1f} MB needed, {free / 1e6:.1f} MB free"
