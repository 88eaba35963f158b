"""Parameters and multiply-accumulates of every definition equal the published ones."""

from __future__ import annotations

import pytest

from workloads.deeplabv3_mobilenet_v3_large import definition as deeplab
from workloads.graph import Graph
from workloads.mobilenet_v3_large import definition as mobilenet
from workloads.resnet50 import definition as resnet


@pytest.mark.parametrize(
    ("graph", "parameters", "gmacs"),
    [
        (mobilenet.build(), 5_483_032, 0.2166),
        (resnet.build(), 25_557_032, 4.0892),
        (deeplab.build(520, auxiliary=True), 11_029_328, 10.452),
    ],
    ids=lambda value: value.workload if isinstance(value, Graph) else "",
)
def test_counts_equal_the_published_ones(graph: Graph, parameters: int, gmacs: float) -> None:
    assert graph.parameters() == parameters
    assert round(graph.macs() / 1e9, len(str(gmacs).split(".")[1])) == gmacs


def test_deeplab_without_its_auxiliary_head() -> None:
    assert round(deeplab.build(520).macs() / 1e9, 3) == 10.436
    assert round(deeplab.build(512).macs() / 1e9, 3) == 9.826


def test_every_tensor_is_produced_before_it_is_read() -> None:
    for graph in (mobilenet.build(), resnet.build(), deeplab.build()):
        ready = set(graph.inputs)
        for node in graph.nodes:
            assert ready.issuperset(node.inputs)
            ready.add(node.name)
        assert ready.issuperset(graph.outputs.values())


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda g: g.conv("nothing", "a", 4, 1), "unknown tensor"),
        (lambda g: g.conv("x", "x", 4, 1), "exists already"),
        (lambda g: g.conv("x", "a", 4, 1, groups=2), "do not split"),
        (lambda g: g.activation("x", "a", "swish"), "unknown activation"),
        (lambda g: g.reshape("x", "a", (5,)), "cannot reshape"),
        (lambda g: g.select("x", "a", 1, 3), "outside axis"),
        (lambda g: g.matmul("x", "x", "a"), "inner sizes"),
    ],
)
def test_a_wrong_definition_is_refused(call: object, text: str) -> None:
    graph = Graph("broken")
    graph.input("x", (1, 3, 8, 4))
    with pytest.raises(ValueError, match=text):
        call(graph)  # type: ignore[operator]
