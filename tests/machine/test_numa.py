"""The node nearest to a card is what the kernel says, and null with a reason wherever it says
nothing that a worker could be bound by."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from npumark.machine.numa import Near, near

BUS = "0000:c1:00.0"
DEVICE = f"/sys/bus/pci/devices/{BUS}/numa_node"
NODE = "/sys/devices/system/node/node1/cpulist"


def test_the_cpus_of_the_cards_node_that_are_allowed(fake: Any) -> None:
    fake.tree({DEVICE: 1, NODE: "2-3,6"})
    host = replace(fake.host, affinity=lambda: frozenset({0, 3, 6}))
    assert near(BUS, host) == Near(1, (3, 6), None)


def test_without_a_mask_every_cpu_of_the_node_is_meant(fake: Any) -> None:
    fake.tree({DEVICE: 1, NODE: "2-3"})
    assert near(BUS, replace(fake.host, affinity=lambda: None)) == Near(1, (2, 3), None)


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({}, "Linux tells no NUMA node for the card"),
        ({DEVICE: "rubbish"}, "Linux tells no NUMA node for the card"),
        ({DEVICE: -1, NODE: "0"}, "Linux knows the card to be near no NUMA node"),
        ({DEVICE: 1}, "the CPUs of NUMA node 1 could not be read"),
        ({DEVICE: 1, NODE: "x-y"}, "the CPUs of NUMA node 1 could not be read"),
        ({DEVICE: 1, NODE: "64-127"}, "this process may run on no CPU of NUMA node 1"),
    ],
)
def test_what_is_not_known_is_null_with_a_reason(
    fake: Any, files: dict[str, Any], why: str
) -> None:
    fake.tree(files)
    assert near(BUS, fake.host) == Near(None, None, why)


def test_a_card_without_an_address_and_other_systems(fake: Any) -> None:
    assert near(None, fake.host) == Near(None, None, "the card's bus address is not known")
    windows = replace(fake.host, system="win32")
    fake.tree({DEVICE: 1, NODE: "0"})
    assert near(BUS, windows) == Near(None, None, "only Linux tells the NUMA node of a card")
