"""What the sensors' readings say of why something slowed down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from npumark.policy import DiagnoseRules

_Readings = Sequence[Mapping[str, Any]]

_NOT_SLOWING = {"clocks set by an application", "clocks set for the display"}
"""What NVML names as a reason for a clock, and what holds it from the start."""

_COOL = "let the machine cool better: dust, fans, a hard surface, a cooler room"


@dataclass(frozen=True, slots=True)
class Slowdowns:
    """``said`` is a clause of what was told; ``advice`` one of what to do, that follows "and".
    ``known`` says that a cause was told of."""

    said: str
    advice: str
    known: bool = True


def slowdowns(during: _Readings, own_cpus: float | None, rules: DiagnoseRules) -> Slowdowns:
    """Return what readings, in order of time, tell of heat, other programs, quotas and power
    limits. ``own_cpus`` is how many CPUs the worker itself kept busy meanwhile, null unknown."""
    hot = _moved(during, "thermal_core", "thermal_package")
    causes = [
        cause
        for cause in (
            _heat(hot),
            _speed_limit(_lowest_limit(during)),
            _cards(_reasons(during)),
            *_taken(during, own_cpus, rules),
            _quota(_moved(during, "nr_throttled")),
        )
        if cause is not None
    ]
    if causes:
        return Slowdowns(", ".join(c.said for c in causes), causes[0].advice)
    if hot is None and _lowest_limit(during) is None and not _asked(during):
        return Slowdowns(
            f"nothing here says whether heat slowed it{_untold(during)}",
            "look for heat yourself: this system does not tell",
            known=False,
        )
    return Slowdowns(
        "no sensor told of heat, quotas or power limits",
        "run it again: nothing here explains it",
        known=False,
    )


def _heat(count: int | None) -> Slowdowns | None:
    said = f"the processor lowered its clock because of heat {_times(count or 0)}"
    return Slowdowns(said, _COOL) if count else None


def _speed_limit(percent: int | None) -> Slowdowns | None:
    if percent is None or percent >= 100:
        return None
    return Slowdowns(f"the system held the processor's speed at {percent} %", _COOL)


def _quota(count: int | None) -> Slowdowns | None:
    if not count:
        return None
    return Slowdowns(
        f"the quota of its control group stopped it {_times(count)}",
        "raise the CPU quota of the container it runs in",
    )


def _cards(reasons: Sequence[tuple[str, str]]) -> Slowdowns | None:
    if not reasons:
        return None
    return Slowdowns(
        ", ".join(f"{card} was held down by {why}" for card, why in reasons),
        "look after the card's cooling and power limit",
    )


def _taken(
    during: _Readings, own_cpus: float | None, rules: DiagnoseRules
) -> Iterator[Slowdowns | None]:
    """Yield what share of the machine's CPU time others had, where it is notable: other programs,
    and a hypervisor's other guests."""
    counted = [(r["at_ns"], r["cpu_s"]) for r in during if r.get("cpu_s")]
    if len(counted) < 2:
        return
    (begin, first), (end, last) = counted[0], counted[-1]
    busy, idle = last["busy"] - first["busy"], last["idle"] - first["idle"]
    whole = busy + idle
    if whole <= 0 or end <= begin:
        return
    stolen = (last["steal"] or 0.0) - (first["steal"] or 0.0)
    if own_cpus is not None:
        others = (busy - stolen - own_cpus * (end - begin) / 1e9) / whole
        if others >= rules.notable:
            said = f"other programs took {100 * others:.0f} % of the CPU time"
            yield Slowdowns(said, "end what else runs, or measure when it does not")
    if stolen / whole >= rules.notable:
        said = f"the hypervisor gave {100 * stolen / whole:.0f} % of the CPU time to others"
        yield Slowdowns(said, "give the virtual machine CPUs of its own")


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
    """Return the card that was held down, and by what in how many of its readings. Where a
    reading tells of several, nobody says which of them the work was on."""
    asked: Counter[str] = Counter()
    seen: dict[str, Counter[str]] = {}
    for card in _own_cards(during):
        if card.get("reasons") is not None:
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
    """Say whether the work's card told whether it was held down."""
    return any(card.get("reasons") is not None for card in _own_cards(during))


def _own_cards(during: _Readings) -> list[Mapping[str, Any]]:
    """Return what each reading tells of the work's card, where it tells of one card alone."""
    return [reading["gpus"][0] for reading in during if len(reading.get("gpus", ())) == 1]


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
