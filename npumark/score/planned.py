"""One line of the plan: engine x workload x variant, before anything has been measured."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from npumark.pack.manifest import Kind, Tier


@dataclass(frozen=True, slots=True)
class Planned:
    """``graph_variant`` is the manifest variant the engine loads: another than ``variant``
    where the engine computes in a format of its own (``bf16`` from the ``fp32`` graph).

    ``skip`` is the reason an entry is listed and not run (a known crash, no memory).
    """

    engine: str
    workload: str
    variant: str
    graph_variant: str
    declared_format: str
    kind: Kind
    tier: Tier
    skip: str | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.engine, self.workload, self.variant)

    def __str__(self) -> str:
        return f"{self.engine} · {self.workload} · {self.variant}"


def derived_format(encoding: str) -> str:
    """Return the family of an encoding that has no graph of its own: BF16 of ``bf16``."""
    return encoding.split("-")[0].upper()


def attempt_seed(run_id: str, planned: Planned, n: int) -> int:
    """Return the seed that draws an attempt's timed checks: of its own, the same when asked
    again, and not known before the run."""
    text = "/".join((run_id, *planned.key, str(n)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little")
