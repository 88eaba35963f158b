"""What else runs on the machine: other programs, another npumark, heat and throttling."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from npumark import paths
from npumark.doctor.examined import Examined, good, noted, spoils, unread
from npumark.doctor.scene import Scene
from npumark.errors import SetupError
from npumark.machine import gpu_sensors
from npumark.orchestrator.lock import at_work


def background(scene: Scene) -> Examined:
    """Other programs that keep the processor busy; the busiest are named."""
    seen = scene.environment.checks["cpu_busy"]
    about = ("background_load", "Background load")
    if seen.value is None:
        return unread(*about, seen.why)
    listed = [asdict(process) for process in scene.busiest]
    value = {"busy": seen.value, "seconds": scene.seconds, "busiest": listed}
    share = f"{seen.value:.0%}"
    if not seen.violation:
        return good(*about, value, f"The processor was {share} busy for {scene.seconds:.0f} s.")
    named = [p for p in scene.busiest if p.cpus >= 0.01]
    if not named:
        return spoils(
            *about,
            value,
            f"The processor was {share} busy for {scene.seconds:.0f} s, with no process that can "
            "be seen from here: outside of this container, or of another user.",
            "Stop what else runs on this computer, or measure with `--wait-idle`.",
        )
    told = ", ".join(f"{p.name} (process {p.pid}) {p.cpus:.0%} of a CPU" for p in named)
    numbers = " ".join(str(p.pid) for p in named)
    kill = (
        f"`taskkill /PID {named[0].pid}`" if scene.host.system == "win32" else f"`kill {numbers}`"
    )
    return spoils(
        *about,
        value,
        f"The processor was {share} busy for {scene.seconds:.0f} s: {told}.",
        f"Close these programs ({kill} ends what may be ended), or measure with `--wait-idle`.",
    )


def other_npumark(scene: Scene) -> Examined:  # noqa: ARG001 - every check has one form
    """Another npumark that measures or installs."""
    about = ("other_npumark", "Another npumark")
    try:
        holder = at_work() or at_work(paths.engines_dir())
    except SetupError as fault:
        return unread(*about, fault.message)
    if holder is None:
        return good(*about, None, "No other npumark is at work here.")
    return spoils(
        *about,
        {"pid": holder.pid, "command": holder.command, "since": holder.since},
        f"npumark is at work already: `{holder.command}`, process {holder.pid}, since "
        f"{holder.since}.",
        f"Wait for it to end, or stop it (`kill -INT {holder.pid}` saves what it has measured).",
    )


def thermal(scene: Scene) -> Examined:
    """A machine so hot that it slows down, by its thermal zones and its graphics drivers."""
    seen = scene.environment.checks["thermal"]
    about = ("thermal", "Temperature")
    slowed = [
        {"card": card["card"], "reasons": card["reasons"]}
        for card in gpu_sensors.readings(scene.host)
        if any("thermal" in reason or "prochot" in reason for reason in card["reasons"] or ())
    ]
    value: Any = {"zones": seen.value, "slowed_cards": slowed}
    if seen.violation or slowed:
        where = "The machine" if seen.violation else "A graphics card"
        return spoils(
            *about,
            value,
            f"{where} is so hot that it slows down{_hottest(seen.value)}.",
            "Let it cool down, clear its vents, and set its fans to full speed before measuring.",
        )
    if seen.value is None:
        return unread(*about, seen.why)
    return good(*about, value, f"No part is at a temperature that slows it{_hottest(seen.value)}.")


def throttling(scene: Scene) -> Examined:
    """Counters of stolen and lowered time that move while nothing is measured."""
    seen = scene.environment.checks["throttling"]
    about = ("throttling", "Throttling")
    if seen.value is None:
        return unread(*about, seen.why)
    moved = {name: count for name, count in seen.value["in_window"].items() if count}
    before = {name: count for name, count in seen.value["before"].items() if count}
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
        told = ", ".join(f"{name} {count}" for name, count in before.items())
        return noted(*about, seen.value, f"Not now, but before: {told}.")
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


def _hottest(zones: Any) -> str:
    if not isinstance(zones, list):
        return ""
    hottest = max(zones, key=lambda zone: zone["celsius"])
    return f" (the hottest zone, {hottest['kind']}, has {hottest['celsius']:.0f} °C)"
