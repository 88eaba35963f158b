"""Every processor of this computer by the operating system's own word, before any engine's."""

from __future__ import annotations

from dataclasses import dataclass, replace

from npumark.machine.apple import apple_cards
from npumark.machine.card import CPU_KEY, Card
from npumark.machine.dxcore import windows_cards
from npumark.machine.host import THIS, Host
from npumark.machine.identity import cpu_model
from npumark.machine.nvidia import nvidia_cards
from npumark.machine.pci import linux_cards

_NVIDIA = 0x10DE


@dataclass(frozen=True, slots=True)
class Inventory:
    """What the system lists. ``lacks`` says, a clause each, why some of it may be missing."""

    cards: tuple[Card, ...]
    lacks: tuple[str, ...] = ()


def inventory(host: Host = THIS) -> Inventory:
    """Return the CPU, the GPUs and the NPUs that this computer has.

    What cannot be read is missing: the engines then say what there is. On a system that lists
    its cards, NVIDIA's library adds names, UUIDs and versions to those it drives, and to the
    list those that a container shows it alone.
    """
    if host.system == "darwin":
        return Inventory(apple_cards(host))
    cpu = Card("CPU", {"key": frozenset({CPU_KEY})}, name=cpu_model(host).value, name_sure=True)
    if host.system == "win32":
        listed, fault = windows_cards(host)
        # A whole list without such a card spares the question to a library that is not there.
        if fault is None and not any(c.vendor_id == _NVIDIA for c in listed):
            return Inventory((cpu, *listed))
    else:
        listed, fault = linux_cards(host), None
    told, why = nvidia_cards(host)
    # With no list to say that there is such a card, NVML's silence is no news.
    silent = why if fault is None else None
    return Inventory(
        (cpu, *_told_by_vendor(listed, told)), tuple(said for said in (fault, silent) if said)
    )


def _told_by_vendor(listed: tuple[Card, ...], told: tuple[Card, ...]) -> tuple[Card, ...]:
    """Return the system's cards with what their vendor's library knows of each, joined by bus
    address; those that the system does not list follow."""
    cards = list(listed)
    for vendor_card in told:
        bus = vendor_card.keys.get("bus", frozenset())
        at = next((i for i, c in enumerate(cards) if bus & c.keys.get("bus", frozenset())), None)
        if at is None:
            cards.append(vendor_card)
        else:
            known = cards[at]
            cards[at] = replace(
                vendor_card,
                role=known.role,
                keys={**known.keys, **vendor_card.keys},
                driver=vendor_card.driver or known.driver,
                details={**known.details, **vendor_card.details},
            )
    return tuple(cards)
