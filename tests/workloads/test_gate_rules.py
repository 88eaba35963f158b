"""Bounds follow from measured runs by the policy's margins, and from nothing else."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npumark.gates.judge import judge
from npumark.policy import load_policy
from workloads.gate_rules import (
    degeneracy,
    enough_decisive,
    flip_budget,
    loosen,
    peak_gate,
    standard_gate,
    strict_gate,
)
from workloads.regate import FRAGMENT, MEASURES_FILE, regated

RULES = load_policy().gates
NEUTRAL = {
    "snr_db": 14.0,
    "cosine_mean": 0.98,
    "cosine_p10": 0.97,
    "kl": 0.02,
    "flips": 1.0,
    "decisive": 30.0,
}


def test_standard_bounds_are_the_neutral_run_and_the_margins() -> None:
    gate = standard_gate("classification", "ORT CPU A8W8", NEUTRAL, RULES)
    assert gate.basis == "standard: ORT CPU A8W8"
    assert gate.bounds == pytest.approx(
        {"snr_db": 8.0, "cosine_mean": 0.97, "cosine_p10": 0.955, "kl": 0.04, "flips": 2.0}
    )


def test_strict_bounds_take_the_worst_run_of_each_measure_and_no_flips() -> None:
    runs = {
        "emulation": {**NEUTRAL, "snr_db": 50.0, "kl": 1e-4, "cosine_mean": 0.9999},
        "ORT FP16": {**NEUTRAL, "snr_db": 70.0, "kl": 2e-4, "cosine_mean": 0.99999},
    }
    gate = strict_gate(runs, RULES)
    assert gate.bounds["snr_db"] == 44.0
    assert gate.bounds["kl"] == pytest.approx(4e-4)
    assert gate.bounds["cosine_mean"] == pytest.approx(0.99985)
    assert "flips" not in gate.bounds
    assert gate.basis == (
        "near-lossless: worst of emulation, ORT FP16 "
        "(snr_db, cosine_mean, cosine_p10 from emulation; kl from ORT FP16)"
    )


@pytest.mark.parametrize(("decisive", "budget"), [(24, 2), (20, 1), (0, 1), (21, 2), (41, 3)])
def test_flip_budget(decisive: int, budget: int) -> None:
    assert flip_budget(decisive, RULES) == budget


@pytest.mark.parametrize(
    ("task", "change", "floors", "text"),
    [
        ("classification", {"snr_db": 5.9}, {"kl": 0.05, "flips": 2.0}, "SNR is 5.9 dB"),
        (
            "classification",
            {"flips": 8.0},
            {"kl": 0.05, "flips": 2.0, "snr_db": 8.0},
            "changes 8 of 30",
        ),
        ("segmentation", {"miou": 0.6}, {"miou": 0.9, "snr_db": 8.0, "flips": 2.0}, "miou is 0.60"),
        (
            "embedding",
            {"snr_db": 2.0},
            {"cosine_mean": 0.99, "cosine_p10": 0.98, "token_cosine": 0.98, "flips": 2.0},
            "SNR is 2.0 dB",
        ),
        (
            "classification",
            {"snr_db": RULES.degenerate.min_snr_db},
            {"kl": 0.05, "flips": 2.0},
            "SNR is 6.0 dB",
        ),
    ],
)
def test_a_degenerate_neutral_run_gives_way_to_fixed_floors(
    task: str, change: dict[str, float], floors: dict[str, float], text: str
) -> None:
    gate = standard_gate(task, "ORT CPU A8W8", {**NEUTRAL, **change}, RULES)
    assert gate.bounds == floors
    assert gate.basis.startswith("fixed floors")
    assert text in gate.basis


def test_a_chain_has_no_fixed_floors() -> None:
    with pytest.raises(ValueError, match="no fixed floors"):
        standard_gate("chain", "x", {"snr_db": 1.0}, RULES)


@pytest.mark.parametrize("value", [None, float("nan"), float("inf")])
def test_a_run_without_a_finite_measure_is_no_reference(value: float | None) -> None:
    with pytest.raises(ValueError, match="no finite kl"):
        strict_gate({"broken": {**NEUTRAL, "kl": value}}, RULES)
    with pytest.raises(ValueError, match="no finite kl"):
        standard_gate("classification", "broken", {**NEUTRAL, "kl": value}, RULES)


def test_no_run_makes_no_gate() -> None:
    with pytest.raises(ValueError, match="no reference run"):
        strict_gate({}, RULES)


def test_the_peak_gate_is_the_policys() -> None:
    assert peak_gate(RULES).bounds == {"snr_db": RULES.peak_snr_db}


def test_enough_decisive_samples() -> None:
    assert enough_decisive({"decisive": 24.0}, RULES)
    assert not enough_decisive({"decisive": 23.0}, RULES)
    assert not enough_decisive({}, RULES)


@given(
    st.fixed_dictionaries(
        {
            "snr_db": st.floats(6, 200, exclude_min=True),
            "cosine_mean": st.floats(-1, 1),
            "kl": st.floats(0, 10),
            "flips": st.integers(0, 7).map(float),
            "decisive": st.just(30.0),
        }
    )
)
def test_a_run_passes_the_gates_derived_from_it(run: dict[str, float]) -> None:
    assert degeneracy(run, RULES) is None
    assert judge(run, strict_gate({"itself": run}, RULES)).passed
    gate = standard_gate("classification", "itself", run, RULES)
    assert judge({**run, "flips": 0.0}, gate).passed


@given(st.floats(1e-3, 1), st.floats(0, 5))
def test_more_margin_never_tightens(value: float, more: float) -> None:
    wide = dataclasses.replace(
        RULES,
        snr_margin_db=RULES.snr_margin_db + more,
        kl_factor=RULES.kl_factor + more,
        gap_fraction=RULES.gap_fraction + more,
    )
    assert loosen("snr_db", value, wide) <= loosen("snr_db", value, RULES)
    assert loosen("kl", value, wide) >= loosen("kl", value, RULES)
    assert loosen("miou", value, wide) <= loosen("miou", value, RULES)


def test_every_shipped_bound_follows_from_the_kept_measures_by_rule() -> None:
    measures = json.loads(MEASURES_FILE.read_text(encoding="utf-8"))
    shipped = json.loads(FRAGMENT.read_text(encoding="utf-8"))
    assert regated(shipped, measures, RULES) == shipped
    looser = dataclasses.replace(RULES, snr_margin_db=RULES.snr_margin_db + 1)
    assert regated(shipped, measures, looser) != shipped
