"""Planted defects change what they say and nothing else."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from workloads.defects import (
    DEFECTS,
    OWN_DEFECTS,
    double_layer,
    pick,
    planted,
    skip_block,
    skippable,
    zero_layer,
)
from workloads.graph import Graph


def small() -> tuple[Graph, dict[str, npt.NDArray[np.float32]]]:
    graph = Graph("small")
    x = graph.input("x", (1, 4, 8, 8))
    for index in range(3):
        with graph.block(f"block{index}", x):
            y = graph.conv(x, f"conv{index}", 4, 3)
            x = graph.add(y, x, f"add{index}")
    with graph.block("wider", x):
        x = graph.conv(x, "wide", 6, 1)
    graph.output("y", x)
    rng = np.random.default_rng(1)
    values = {w.name: rng.random(w.shape, np.float32) for w in graph.weights.values()}
    return graph, values


def test_only_blocks_that_keep_the_shape_can_be_skipped() -> None:
    graph, _ = small()
    assert [block.name for block in skippable(graph)] == ["block0", "block1", "block2"]
    with pytest.raises(ValueError, match="no place"):
        pick(skippable(graph), "nowhere")


@pytest.mark.parametrize(("where", "index"), [("first", 0), ("middle", 1), ("last", 2)])
def test_a_skipped_block_is_bridged(where: str, index: int) -> None:
    graph, values = small()
    broken = skip_block(where)(graph, values, None)
    assert {f"conv{index}", f"add{index}"}.isdisjoint(n.name for n in broken.graph.nodes)
    before = "x" if index == 0 else f"add{index - 1}"
    after = "wide" if index == 2 else f"conv{index + 1}"
    assert broken.graph.node(after).inputs == (before,)
    assert broken.values is values
    assert len(graph.nodes) == 7


@pytest.mark.parametrize("name", ["rolled-channels", "zeroed-block", "doubled-weights"])
def test_a_weight_defect_touches_the_middle_block_alone(name: str) -> None:
    graph, values = small()
    broken = DEFECTS[name](graph, values, None)
    changed = {n for n, value in broken.values.items() if not np.array_equal(value, values[n])}
    weight, bias = "conv1.weight", "conv1.bias"
    assert changed == ({weight, bias} if name == "zeroed-block" else {weight})
    expected = {
        "rolled-channels": np.roll(values[weight], 1, axis=0),
        "zeroed-block": np.zeros_like(values[weight]),
        "doubled-weights": 2 * values[weight],
    }[name]
    assert np.array_equal(broken.values[weight], expected)


def test_a_named_layer_is_zeroed_or_doubled_alone() -> None:
    graph, values = small()
    zeroed = zero_layer("conv0")(graph, values, None).values
    assert not zeroed["conv0.weight"].any()
    assert not zeroed["conv0.bias"].any()
    doubled = double_layer("wide")(graph, values, None).values
    assert np.array_equal(doubled["wide.weight"], 2 * values["wide.weight"])
    assert all(doubled[n] is values[n] for n in values if n != "wide.weight")


def test_a_network_has_the_common_defects_and_its_own() -> None:
    assert planted("small") == DEFECTS
    for workload, own in OWN_DEFECTS.items():
        assert planted(workload) == DEFECTS | own
