"""What else runs on the machine: other programs, another npumark, heat and throttling."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from npumark import paths
from npumark.doctor.examined import Examined, good, noted, spoils, unread
from npumark.doctor.scene import Scene
from npumark.errors import SetupError
from npumark.machine import gpu_sensors, nvidia_sensors
from npumark.machine.busy import Busy
from npumark.orchestrator.lock import at_work


def background(scene: Scene) -> Examined:
    """Other programs that keep the processor busy; the busiest are named.

    Only what the user who asks runs is named as what may be closed: the system's own processes
    and those of other users are named to explain the load.
    """
    seen = scene.environment.checks["cpu_busy"]
    about = ("background_load", "Background load")
    if seen.value is None:
        return unread(*about, seen.why)
    listed = [asdict(process) for process in scene.busiest]
    value = {"busy": seen.value, "seconds": scene.seconds, "busiest": listed}
    told = f"The processor was {seen.value:.0%} busy for {scene.seconds:.0f} s"
    if not seen.violation:
        return good(*about, value, f"{told}.")
    named = _of_weight(scene)
    mine = [p for p in named if p.mine]
    others = [p for p in named if not p.mine]
    if not named:
        cause = (
            "by many processes that take little each"
            if scene.busiest
            else "with no process that can be seen from here: outside of this container, or of "
            "another user"
        )
        return spoils(
            *about,
            value,
            f"{told}, {cause}.",
            "Stop what else runs on this computer, or measure with `--wait-idle`.",
        )
    parts = [f"{p.name} (process {p.pid}) {p.cpus:.0%} of a CPU" for p in mine]
    if others:
        theirs = ", ".join(f"{p.name} {p.cpus:.0%} of a CPU" for p in others)
        parts.append(f"of the system or other users {theirs}")
    close = "Close what of these programs is yours" if others else "Close these programs"
    return spoils(
        *about,
        value,
        f"{told}: {', '.join(parts)}.",
        f"{close}, or measure with `--wait-idle`, which waits until the computer is quiet."
        if mine
        else "Measure with `--wait-idle`, which waits until the computer is quiet.",
    )


def _of_weight(scene: Scene) -> list[Busy]:
    """Return the processes that took a share of a CPU, and of the load, that is worth a word."""
    load = scene.load
    whole = (load["busy"] or 0.0) * (load["cpu_s"] or 0.0)
    cpus = whole / load["seconds"] if load["seconds"] > 0 else 0.0
    least = scene.policy.diagnose.notable * max(1.0, cpus)
    return [p for p in scene.busiest if p.cpus >= least]


def other_npumark(scene: Scene) -> Examined:
    """Another npumark that measures or installs."""
    about = ("other_npumark", "Another npumark")
    try:
        holder = at_work() or at_work(paths.engines_dir())
    except SetupError as fault:
        return unread(*about, fault.message)
    if holder is None:
        return good(
            *about, None, "No other npumark is at work with this data folder or its engines."
        )
    windows = scene.host.system == "win32"
    stop = "Ctrl+C in its window" if windows else f"`kill -INT {holder.pid}`"
    return spoils(
        *about,
        {"pid": holder.pid, "command": holder.command, "since": holder.since},
        f"npumark is at work already: `{holder.command}`, process {holder.pid}, since "
        f"{holder.since}.",
        f"Wait for it to end, or stop it with {stop}: it saves what it has measured.",
    )


def thermal(scene: Scene) -> Examined:
    """A machine so hot that it slows down, by its thermal zones and its graphics cards."""
    seen = scene.environment.checks["thermal"]
    about = ("thermal", "Temperature")
    nvidia, unasked = nvidia_sensors.ask_once(scene.host)
    cards = [
        {name: card[name] for name in ("card", "vendor", "celsius", "reasons")}
        for card in (*gpu_sensors.readings(scene.host), *nvidia)
    ]
    slowed = [card for card in cards if any(map(_is_heat, card["reasons"] or ()))]
    value: Any = {"zones": seen.value, "cards": cards, "slowed_cards": slowed}
    if seen.violation or slowed:
        where = "The machine" if seen.violation else "A graphics card"
        hot = _hottest(seen.value) if seen.violation else _hottest_card(slowed)
        return spoils(
            *about,
            value,
            f"{where} is so hot that it slows down{hot}.",
            "Let it cool down, clear its vents, and set its fans to full speed before measuring.",
        )
    told = [card for card in cards if card["reasons"] is not None]
    if seen.value is None and not told:
        return unread(*about, "; ".join(filter(None, (seen.why, unasked))))
    asked = [] if seen.value is None else [f"the machine{_hottest(seen.value)}"]
    if told:
        asked.append(f"{len(told)} of {len(cards)} graphics cards{_hottest_card(told)}")
    lacks = "" if unasked is None else f" NVIDIA's cards were not asked: {unasked}."
    return good(*about, value, f"Heat slows nothing of what was asked: {', '.join(asked)}.{lacks}")


def throttling(scene: Scene) -> Examined:
    """Counters of stolen and lowered time that move while nothing is measured."""
    seen = scene.environment.checks["throttling"]
    about = ("throttling", "Throttling")
    if seen.value is None:
        return unread(*about, seen.why)
    moved = {name: count for name, count in seen.value["in_window"].items() if count}
    before = _so_far({name: count or 0 for name, count in seen.value["before"].items()})
    if any(name.startswith("thermal") for name in moved):
        return spoils(
            *about,
            seen.value,
            f"The processor lowered its clock for heat within {scene.seconds:.0f} s.",
            "Let it cool down, clear its vents, and set its fans to full speed before measuring.",
        )
    if moved:
        return spoils(
            *about,
            seen.value,
            f"The CPU quota of a control group stopped processes within {scene.seconds:.0f} s.",
            "Raise the quota, or stop what shares it (see the CPU quota).",
        )
    if before:
        return noted(*about, seen.value, f"Not now, but before: {' and '.join(before)}.")
    return good(*about, seen.value, "Nothing here has been throttled.")


def steal(scene: Scene) -> Examined:
    """A hypervisor below, and the time that it gave to others."""
    from npumark.machine.identity import machine

    about = ("virtual_machine", "Virtual machine")
    facts = machine(scene.host)
    kind, share = facts["virtualisation"], scene.load["steal"]
    value = {"virtualisation": kind, "steal": share}
    if share:
        return noted(
            *about,
            value,
            f"The hypervisor gave {share:.1%} of the processor's time to others.",
            "Give the machine CPUs of its own (dedicated or pinned ones), or measure when its "
            "host is idle.",
        )
    if kind is None:
        return unread(*about, facts["why"].get("virtualisation"))
    if kind != "none seen":
        return noted(*about, value, f"A hypervisor is below ({kind}): what it does is not seen.")
    return good(*about, value, "No hypervisor is seen.")


def _so_far(counts: dict[str, int]) -> list[str]:
    """Return in words what the counters of throttling (see cpu_limits) have counted."""
    told = []
    hot = max(counts.get("thermal_core", 0), counts.get("thermal_package", 0))
    if hot:
        told.append(f"the processor lowered its clock for heat (counted {hot} times)")
    stops, stopped_us = counts.get("nr_throttled", 0), counts.get("throttled_usec", 0)
    if stops or stopped_us:
        told.append(f"a CPU quota stopped processes for {stopped_us / 1e6:.3g} s")
    return told


def _is_heat(reason: str) -> bool:
    return any(word in reason for word in ("thermal", "prochot", "heat"))


def _hottest_card(cards: list[dict[str, Any]]) -> str:
    celsius = max((card["celsius"] for card in cards if card["celsius"] is not None), default=None)
    return "" if celsius is None else f" (the hottest has {celsius:.0f} °C)"


def _hottest(zones: Any) -> str:
    if not isinstance(zones, list):
        return ""
    hottest = max(zones, key=lambda zone: zone["celsius"])
    return f" (the hottest zone, {hottest['kind']}, has {hottest['celsius']:.0f} °C)"
