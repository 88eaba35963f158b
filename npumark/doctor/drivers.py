"""The drivers of the machine's cards, against the oldest that its engines work with."""

from __future__ import annotations

from npumark.doctor.examined import Examined, good, noted, spoils, unread
from npumark.doctor.minimum_drivers import MINIMUMS
from npumark.doctor.scene import Scene
from npumark.errors import SetupError
from npumark.machine.card import Card
from npumark.orchestrator.environments import standings


def drivers(scene: Scene) -> list[Examined]:
    """One result per GPU and NPU; one in all where there is none."""
    cards = [card for card in scene.inventory.cards if card.role != "CPU"]
    if not cards:
        about = ("drivers", "Drivers")
        if scene.inventory.lacks:
            return [unread(*about, "; ".join(scene.inventory.lacks))]
        return [good(*about, [], "No GPU and no NPU is listed here.")]
    made = _environments()
    return [_driver(scene, card, n, made) for n, card in enumerate(cards, start=1)]


def _environments() -> frozenset[str]:
    """Return the environments that somebody made here, whole or not."""
    try:
        return frozenset(s.name for s in standings() if s.state not in ("absent", "foreign"))
    except SetupError:  # the check of the environments says it
        return frozenset()


def _driver(scene: Scene, card: Card, number: int, made: frozenset[str]) -> Examined:
    name = card.name or f"unnamed {card.role}"
    about = (f"driver_{number}", f"Driver of {name}")
    rows = [row for row in MINIMUMS if row.concerns(card, scene.host.system)]
    if card.driver is None:
        return unread(*about, "no driver is loaded, or it does not tell its version")
    read = [(row, version) for row in rows if (version := row.found(card.driver))]
    value = {"driver": card.driver, "minimums": [(r.version, r.source) for r, _ in read]}
    if not rows:
        return unread(*about, f"{card.driver}: npumark knows no oldest driver for it")
    if not read:
        return unread(*about, f"{card.driver}: the version is of no form that can be compared")
    for row, version in read:
        if not row.is_old(version):
            continue
        told = f"{card.driver} is older than {row.version}, which {row.needed_by} needs"
        if row.is_used(made):
            return spoils(*about, value, f"{told} ({row.source}).", row.update)
        return noted(
            *about,
            value,
            f"{told} ({row.source}). No environment that needs it is installed here, so this is "
            "no fault so far.",
        )
    return good(*about, value, f"{card.driver} is new enough for {read[0][0].needed_by}.")
