"""Placement by compute plan: the preferred device, weighted by cost, and nothing else."""

from __future__ import annotations

from math import nan

import pytest

from npumark.engines.coreml_plan import Kind, PlannedOp, devices, prove, summary

ALL: tuple[Kind, ...] = ("CPU", "GPU", "NPU")


def op(preferred: Kind | None, cost: float | None, operator: str = "ios17.linear") -> PlannedOp:
    return PlannedOp(operator, preferred, ALL, cost)


CONSTANT = PlannedOp("ios17.const", None, (), None)


def test_what_is_only_supported_on_the_neural_engine_counts_nothing_there() -> None:
    placement = prove([CONSTANT, op("CPU", 0.5), op("CPU", 0.5)], "NPU")
    assert placement.verdict == "proved"
    assert (placement.share, placement.op_share, placement.partitions) == (0.0, 0.0, 1)
    assert placement.evidence == "plan"


def test_a_share_is_of_cost_and_not_of_operations() -> None:
    cheap = [op("NPU", 0.4 / 99) for _ in range(99)]
    placement = prove([*cheap, op("CPU", 0.6)], "NPU")
    assert placement.share == pytest.approx(0.4)
    assert placement.op_share == pytest.approx(0.99)
    assert placement.partitions == 2


def test_constants_and_what_unpacks_weights_count_for_neither_side() -> None:
    unpacks = PlannedOp("ios16.constexpr_affine_dequantize", "CPU", ("CPU",), 0.9)
    placement = prove([CONSTANT, unpacks, op("NPU", 0.1)], "NPU")
    assert (placement.share, placement.op_share, placement.partitions) == (1.0, 1.0, 1)


def test_an_operation_without_a_device_counts_against_the_claim() -> None:
    placement = prove([op("NPU", 0.5), op(None, 0.5), op("NPU", 0.0)], "NPU")
    assert placement.share == pytest.approx(0.5)
    assert placement.op_share == pytest.approx(2 / 3)
    assert placement.partitions == 3


@pytest.mark.parametrize("where", ["NPU", "CPU", None])
def test_cost_that_is_not_told_counts_against_the_claim(where: Kind | None) -> None:
    placement = prove([op("NPU", 0.3), op(where, None)], "NPU")
    assert placement.share == pytest.approx(0.3)


def test_rounding_never_makes_a_share_of_more_than_the_whole() -> None:
    placement = prove([op("GPU", 0.1) for _ in range(10)], "GPU")
    assert placement.share == 1.0


@pytest.mark.parametrize(
    ("ops", "why"),
    [
        (None, "gave no compute plan"),
        ([], "holds no operation"),
        ([CONSTANT], "holds no operation"),
        ([op("NPU", None)], "estimates no cost"),
        ([op("NPU", 0.0)], "estimates no cost"),
        ([op("NPU", nan)], "no share"),
        ([op("NPU", -0.1), op("NPU", 1.0)], "no share"),
        ([op("NPU", 1.5)], "no share"),
    ],
)
def test_nothing_is_proved_by_a_plan_that_says_nothing(
    ops: list[PlannedOp] | None, why: str
) -> None:
    placement = prove(ops, "NPU")
    assert placement.verdict == "unproved"
    assert placement.share is None
    assert why in str(placement.why)


def test_the_reason_for_a_missing_plan_is_kept() -> None:
    assert prove(None, "NPU", "compute plans need macOS 14.4").why == (
        "compute plans need macOS 14.4"
    )


def test_the_summary_names_devices_by_cost() -> None:
    ops = [CONSTANT, op("CPU", 0.1), op("CPU", 0.1), op("NPU", 0.7), op(None, 0.1)]
    assert summary(ops) == {
        "CPU": {"ops": 2, "cost": pytest.approx(0.2)},
        "Neural Engine": {"ops": 1, "cost": 0.7},
        "unknown": {"ops": 1, "cost": 0.1},
    }
    assert devices(ops) == ("Neural Engine", "CPU", "unknown")
