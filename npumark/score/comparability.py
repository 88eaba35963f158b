"""Whether a run may be compared with others, as reason codes, and what else to warn of.

A run is comparable when its pack verified, a score with verified math exists and is stable, and
nothing about the run itself sets it apart (methodology §10). An unstable peak makes a run not
comparable for deltas and personal bests but leaves it rankable, marked unstable. A noisy
machine is a warning: the methodology does not exclude such a run; claims refuse it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from npumark.policy import Policy
from npumark.record.box import Box
from npumark.record.model import (
    EngineRecord,
    Entry,
    Environment,
    Plan,
    ResumeEvent,
    Score,
    Suite,
)

REASONS: dict[str, str] = {
    "quick": "a quick run measures each entry once, briefly",
    "pack_not_verified": "a pack file or the manifest is not, or did not stay, the pinned one",
    "no_score": "there is no score",
    "peak_unstable": "the leading peak's attempts spread too far (rankable, marked unstable)",
    "time_budget": "the time budget ended the run before all that it measures was complete",
    "incomplete": "the run ended before all that it measures was complete",
    "resumed_changed": "something changed between the interruption and the resumption",
    "selection": "only some engines, workloads or variants were asked for, or the box stage alone",
    "virtual": "a virtual engine took part",
    "emulated": "an emulated engine took part",
    "local_only": "an engine took part whose results may not be published",
    "third_party": "an engine from another package took part",
    "short_loop": "the timed loop was shorter than the policy's",
    "short_spacing": "attempts were allowed closer together than the policy's spacing",
}

ENDED_BY = "ended_by"
"""The fact of a run's environment that says what ended it early: ``time_budget``, or nothing
where the run did not come to an end of its own."""

RANKABLE_WITH = frozenset({"peak_unstable"})

NOT_RANKED: dict[str, str] = {
    **REASONS,
    "ceiling_unknown": "what one of its chips can compute at the most is not known yet",
    "development_build": "a development build made it, which no release key vouches for",
    "implausible": "the rules that came into force later would refuse it",
}
"""Why a results server takes a run and does not rank it."""

WARNINGS: dict[str, str] = {
    "noisy": "a precondition was violated: other work, power or heat may have moved the figures",
    "preconditions_skipped": "the machine's state was not checked before measuring",
    "attempts_died": "attempts crashed, timed out or gave no result",
    "slow_tail": "a figure's slowest calls are far slower than its median call",
    "screened_outlier": "a variant that was not repeated beat the winner's median once",
    "format_differs": "a figure was computed in another format than its variant declares",
    "format_unconfirmed": "a runtime does not say which format it computed a figure in",
    "delivered_partial": "an engine's delivered figure lacks a scored network",
    "third_party": "an engine from another package took part, which nobody here has checked",
    "network_unstable": "a counted network's attempts spread too far",
    "box_card_slow": "a card is far slower than its identical cards: check its cooling, power and "
    "PCIe link",
    "box_scaling": "all cards at once reach more than they can by themselves: a solo peak is too "
    "low, and the results database refuses such a total",
    "box_void": "an attempt of the box stage does not count: a card failed, was late or was wrong",
}


@dataclass(frozen=True, slots=True)
class RunState:
    """What comparability depends on."""

    options: Plan
    suite: Suite
    environment: Environment
    resumed: Sequence[ResumeEvent]
    engines: Sequence[EngineRecord]
    entries: Sequence[Entry]
    score: Score | None
    complete: bool
    box: Box | None
    policy: Policy

    def took_part(self, kind: Callable[[EngineRecord], bool]) -> bool:
        """Whether an engine of some kind ran at least one attempt, alone or with others."""
        ran = {e.engine for e in self.entries if e.attempts}
        roles = self.box.roles if self.box else []
        ran |= {card.engine for r in roles for a in r.attempts for card in a.cards}
        return any(engine.id in ran and kind(engine) for engine in self.engines)


def not_comparable_because(run: RunState) -> list[str]:
    """Return the codes of every reason, in the order of ``REASONS``; empty: comparable."""
    options, timing = run.options, run.policy.timing
    selected = (options.engines, options.workloads, options.variants)
    over_budget = (
        options.time_budget_s is not None and run.environment.facts.get(ENDED_BY) == "time_budget"
    )
    holds = {
        "quick": options.quick,
        "pack_not_verified": not run.suite.verified or any(map(_met_a_bad_file, run.entries)),
        "no_score": run.score is None,
        "peak_unstable": run.score is not None and run.score.unstable,
        "time_budget": not run.complete and over_budget,
        "incomplete": not run.complete and not over_budget,
        "resumed_changed": any(event.changed for event in run.resumed),
        "selection": any(s is not None for s in selected) or options.box.mode == "only",
        "virtual": run.took_part(lambda e: e.virtual),
        "emulated": run.took_part(lambda e: e.emulated),
        "local_only": run.took_part(lambda e: e.local_only),
        "third_party": run.took_part(lambda e: e.package is not None),
        "short_loop": not options.quick and options.loop_s < timing.loop_s,
        "short_spacing": (
            not options.quick and options.spacing_s < run.policy.repetition.spacing_s
        ),
    }
    return [code for code in REASONS if holds[code]]


def _met_a_bad_file(entry: Entry) -> bool:
    """Whether a worker refused a pack file: it changed after the pack had been verified."""
    return any(a.status == "pack_error" for a in entry.attempts)


def rankable(reasons: Sequence[str]) -> bool:
    """Whether the results database ranks a run with these reasons."""
    return set(reasons) <= RANKABLE_WITH


def warnings(run: RunState) -> list[str]:
    """Return the codes of what a reader should know, in the order of ``WARNINGS``."""
    counting = [e for e in run.entries if e.counts]
    tail = run.policy.repetition.tail_ratio_warning
    roles = run.box.roles if run.box else []
    holds = {
        "noisy": run.environment.noisy,
        "preconditions_skipped": run.environment.skipped,
        "attempts_died": any(e.crashed_attempts for e in run.entries),
        "slow_tail": any((e.stats.tail_ratio or 0.0) > tail for e in counting),
        "screened_outlier": any(e.stats.screened_outlier for e in run.entries),
        "format_differs": any(e.format not in (None, e.declared_format) for e in counting),
        "format_unconfirmed": any(e.format is None for e in counting),
        "delivered_partial": any(e.delivered and not e.delivered.complete for e in run.engines),
        "third_party": run.took_part(lambda e: e.package is not None),
        "network_unstable": any(e.delivered and e.delivered.unstable for e in run.engines),
        "box_card_slow": any(c.slow_alone or c.slow_in_box for r in roles for c in r.cards),
        "box_scaling": any((r.scaling or 0.0) > run.policy.box.most_scaling for r in roles),
        "box_void": any(a.status == "ran" and not a.counts for r in roles for a in r.attempts),
    }
    return [code for code in WARNINGS if holds[code]]
