"""How long an attempt at all cards is expected to take, by what is known of its cards."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from npumark.orchestrator.box import BoxStage
from npumark.orchestrator.box_plan import attempt_s
from npumark.policy import load_policy
from npumark.record.box import BoxAttempt
from npumark.score.box import RoleCards
from tests.score.test_box import only_role, record

POLICY = load_policy()
NS = 1_000_000_000
ROLE = only_role(record())
CARDS = RoleCards("dGPU", tuple(c.solo for c in ROLE.cards), (), None)
FIXED = round(attempt_s(POLICY) * NS)


def expected(own: list[BoxAttempt], loads: dict[str, list[int | None]]) -> int:
    """Return it of a run whose cards took so long to load alone; null for an attempt that died."""
    attempts = {
        (solo.engine, solo.workload, solo.variant): [
            SimpleNamespace(
                measurement=ns and SimpleNamespace(import_ns=1, verify_ns=2, load_ns=ns)
            )
            for ns in loads.get(solo.card, [])
        ]
        for solo in CARDS.solos
    }
    book: Any = SimpleNamespace(
        policy=POLICY,
        attempts=attempts,
        planned_of=lambda s: SimpleNamespace(key=(s.engine, s.workload, s.variant)),
    )
    stage = BoxStage(SimpleNamespace(book=book), lambda _: None, ())  # type: ignore[arg-type,return-value]
    return stage._expected_ns(CARDS, own)


def test_before_the_first_the_longest_start_of_a_card_alone_comes_on_top() -> None:
    loads = {"dgpu-1": [5 * NS, 80 * NS], "dgpu-2": [None, 7 * NS]}
    assert expected([], loads) == FIXED + 80 * NS + 3


def test_peaks_of_another_record_tell_nothing_of_loading() -> None:
    assert expected([], {}) == FIXED


@pytest.mark.parametrize("status", ["crashed", "interrupted", "timeout"])
def test_what_a_card_cut_short_or_held_up_is_no_measure(status: Any) -> None:
    whole, other, _ = ROLE.attempts
    short = [other.cards[0].model_copy(update={"status": status}), *other.cards[1:]]
    cut = other.model_copy(update={"cards": short, "wall_ns": 1})
    assert expected([cut], {"dgpu-1": [4 * NS]}) == FIXED + 4 * NS + 3
    assert expected([whole, cut], {"dgpu-1": [4 * NS]}) == whole.wall_ns
