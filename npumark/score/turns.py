"""Whose turn it is while a run is replayed: what ``demand`` says, kept up attempt by attempt.

A box of eight cards has a thousand entries and thousands of attempts, and a stranger's record may
claim as many: after an attempt only its own contest is settled anew.
"""

from __future__ import annotations

from collections.abc import Sequence

from npumark.policy import Policy
from npumark.score.attempt import JudgedAttempt
from npumark.score.demand import Contest, Key, Standing, contest, settle, standing, tried
from npumark.score.planned import Planned


class Turns:
    """The state of a run of ``plan`` in which nothing has been measured yet."""

    def __init__(self, plan: Sequence[Planned], policy: Policy, *, quick: bool) -> None:
        self._policy, self._quick = policy, quick
        self._place = {p.key: i for i, p in enumerate(plan)}
        self._plan = plan
        self._contests: dict[Contest, list[Planned]] = {}
        for planned in plan:
            self._contests.setdefault(contest(planned), []).append(planned)
        self._unmeasured = {p.key for p in plan if p.skip is None}
        self._standings: dict[Key, Standing] = {}
        self._stood = dict.fromkeys(self._place, 0)
        self._wanting: set[Key] = set()
        for planned in plan:
            self._standings[planned.key] = standing(planned, (), policy, quick=quick)
        self._settle(plan)

    def put(self, planned: Planned, attempts: Sequence[JudgedAttempt], hung_before: int) -> None:
        """Take all attempts of an entry as they are now; ``hung_before`` counts its preparations
        that timed out."""
        key = planned.key
        self._standings[key] = standing(
            planned, attempts, self._policy, quick=self._quick, hung_before=hung_before
        )
        self._stood[key] = len(tried(attempts))
        before = bool(self._unmeasured)
        if self._standings[key].ran:
            self._unmeasured.discard(key)
        ended = before and not self._unmeasured  # screening begins, everywhere
        self._settle(self._plan if ended else self._contests[contest(planned)])

    def next(self) -> Planned | None:
        """Return the entry whose turn it is, as ``demand.next_entry`` does."""
        key = min(self._wanting, key=lambda k: (self._stood[k], self._place[k]), default=None)
        return None if key is None else self._plan[self._place[key]]

    def _settle(self, entries: Sequence[Planned]) -> None:
        state = settle(
            entries,
            self._standings,
            self._policy,
            quick=self._quick,
            first_pass=not self._unmeasured,
        )
        for key, wants in state.wants.items():
            if wants:
                self._wanting.add(key)
            else:
                self._wanting.discard(key)
