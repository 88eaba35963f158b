"""Whether entries stopped where the rules of repetition let them (methodology §7, §8)."""

from __future__ import annotations

from collections.abc import Iterator

from npumark.record.model import Entry
from npumark.score import repetition, stats
from npumark.score.attempt import inferences_per_second
from npumark.server.refusal import Fault
from npumark.server.rules import Case


def stopped_rightly(case: Case) -> Iterator[Fault]:
    """Yield each counted figure that comes from one attempt, and each entry that stopped before
    its attempts agreed.

    What ends an entry otherwise (time-outs) is left to the recomputation.
    """
    payload, rules = case.payload, case.rules
    if payload.plan.quick:
        return
    hung = {(p.engine, p.workload, p.variant) for p in payload.prepared if p.status == "timeout"}
    for i, entry in enumerate(payload.entries):
        key = (entry.engine, entry.workload, entry.variant)
        if not entry.counts or entry.workload not in rules.manifest.workloads:
            continue
        outcomes = _outcomes(entry)
        landed = [ips for ips in outcomes if ips is not None]
        name = f"{entry.engine}, {entry.workload}, {entry.variant}"
        if len(landed) < 2:
            yield Fault(
                "single_attempt",
                f"entries[{i}] ({name}) counts with {len(landed)} measured attempt"
                f"{'s' * (len(landed) != 1)}",
                {"entry": i, "attempts": len(outcomes), "measured": len(landed)},
            )
            continue
        if key in hung or any(a.status == "timeout" for a in entry.attempts):
            continue
        kind = rules.manifest.workloads[entry.workload].kind
        wants = repetition.tally(outcomes, kind, rules.policy.repetition).wants
        if wants:
            yield Fault(
                "stopped_too_early",
                f"entries[{i}] ({name}) stopped after {len(outcomes)} attempts that do not agree",
                {
                    "entry": i,
                    "attempts": len(outcomes),
                    "wanted": len(outcomes) + wants,
                    "spread": stats.spread(landed),
                    "agreement": rules.policy.repetition.agreement,
                },
            )


def _outcomes(entry: Entry) -> list[float | None]:
    """Return what each attempt that stands came to: its rate, null where it died."""
    rates: list[float | None] = []
    for attempt in entry.attempts:
        if attempt.status == "interrupted":
            continue
        measured = attempt.measurement
        timed = measured is not None and measured.iterations > 0 and measured.timed_ns > 0
        rates.append(
            inferences_per_second(measured.iterations, measured.timed_ns)
            if measured is not None and timed
            else None
        )
    return rates
