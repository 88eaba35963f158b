"""What the sensors' readings say of why something slowed down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_Readings = Sequence[Mapping[str, Any]]

_NOT_SLOWING = {"clocks set by an application", "clocks set for the display"}
"""What NVML names as a reason for a clock, and what holds it from the start."""


@dataclass(frozen=True, slots=True)
class Slowdowns:
    """``said`` is a clause of what was told; ``advice`` one of what to do, that follows "and"."""

    said: str
    advice: str


def slowdowns(during: _Readings) -> Slowdowns:
    """Return what readings, in order of time, tell of heat, quotas and power limits."""
    hot, quota = _moved(during, "thermal_core", "thermal_package"), _moved(during, "nr_throttled")
    reasons, limit = _reasons(during), _lowest_limit(during)
    told, advice = [], ""
    if quota:
        told.append(f"the quota of its control group stopped it {_times(quota)}")
        advice = "raise the CPU quota of the container it runs in"
    if reasons:
        told += [f"{card} was held down by {why}" for card, why in reasons]
        advice = "look after the card's cooling and power limit"
    if hot:
        told.insert(0, f"the processor lowered its clock because of heat {_times(hot)}")
    if limit is not None and limit < 100:
        told.insert(0, f"the system held the processor's speed at {limit} %")
    if hot or (limit is not None and limit < 100):
        advice = "let the machine cool better: dust, fans, a hard surface, a cooler room"
    if told:
        return Slowdowns(", ".join(told), advice)
    if hot is None and limit is None and not _asked(during):
        return Slowdowns(
            f"nothing here says whether heat slowed it{_untold(during)}",
            "look for heat and other programs yourself: this system does not tell",
        )
    return Slowdowns(
        "no sensor told of heat, quotas or power limits", "look for other programs that took over"
    )


def _moved(during: _Readings, *names: str) -> int | None:
    """Return how far the largest-moving of counters went from the first reading to the last; null
    where none was read in both."""
    if len(during) < 2:
        return None
    first, last = during[0].get("throttling", {}), during[-1].get("throttling", {})
    moved = [
        last[name] - first[name]
        for name in names
        if first.get(name) is not None and last.get(name) is not None
    ]
    return max(moved, default=None)


def _reasons(during: _Readings) -> list[tuple[str, str]]:
    """Return each card that was held down, and by what in how many of its readings."""
    asked: Counter[str] = Counter()
    seen: dict[str, Counter[str]] = {}
    for reading in during:
        for card in reading.get("gpus", ()):
            if card.get("reasons") is None:
                continue
            name = f"the {card['vendor']} card {card['card'] or 'of no known address'}"
            asked[name] += 1
            counts = seen.setdefault(name, Counter())
            counts.update(r for r in card["reasons"] if r not in _NOT_SLOWING)
    return [
        (name, " and ".join(f"{why} ({n} of {asked[name]} readings)" for why, n in counts.items()))
        for name, counts in seen.items()
        if counts
    ]


def _asked(during: _Readings) -> bool:
    """Say whether any card told whether it was held down."""
    return any(c.get("reasons") is not None for r in during for c in r.get("gpus", ()))


def _lowest_limit(during: _Readings) -> int | None:
    """Return the lowest speed limit in percent that macOS stated, null where it stated none."""
    stated = [r["speed_limit_percent"] for r in during if "speed_limit_percent" in r]
    return min(stated, default=None)


def _untold(during: _Readings) -> str:
    """Return what is known all the same, or why not even that is."""
    if not during:
        return ": no sensor was read meanwhile"
    celsius = [r["hottest_celsius"] for r in during if r.get("hottest_celsius") is not None]
    if celsius:
        return f", which reached {max(celsius):.0f} °C at its hottest"
    why = during[-1].get("why", {}).get("hottest_celsius")
    return f": {why}" if why else ""


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
