"""The NUMA node that a card hangs on, and its CPUs: where a card's worker should run."""

from __future__ import annotations

from dataclasses import dataclass

from npumark.machine.host import THIS, Host, cpu_list

_NODE = "/sys/bus/pci/devices/{}/numa_node"
_CPUS = "/sys/devices/system/node/node{}/cpulist"


@dataclass(frozen=True, slots=True)
class Near:
    """The node nearest to a card, and those of its CPUs that this process may run on, in order;
    both null, with the reason ``why``, where a worker is not to be bound."""

    node: int | None
    cpus: tuple[int, ...] | None
    why: str | None


def near(bus: str | None, host: Host = THIS) -> Near:
    """Return the NUMA node nearest to the card at a PCI address (``0000:03:00.0``).

    Linux tells it under /sys; no other system is asked. A node of -1 is what firmware says that
    knows no nodes, as that of a computer with one socket does.
    """
    if host.system != "linux":
        return _unknown("only Linux tells the NUMA node of a card")
    if bus is None:
        return _unknown("the card's bus address is not known")
    node = host.number(_NODE.format(bus))
    if node is None:
        return _unknown("Linux tells no NUMA node for the card")
    if node < 0:
        return _unknown("Linux knows the card to be near no NUMA node")
    told = host.read(_CPUS.format(node))
    try:
        cpus = cpu_list(told.value or "")
    except ValueError:
        cpus = frozenset()
    if not cpus:
        return _unknown(f"the CPUs of NUMA node {node} could not be read")
    allowed = host.affinity()
    usable = cpus if allowed is None else cpus & allowed
    if not usable:
        return _unknown(f"this process may run on no CPU of NUMA node {node}")
    return Near(node, tuple(sorted(usable)), None)


def _unknown(why: str) -> Near:
    return Near(None, None, why)
