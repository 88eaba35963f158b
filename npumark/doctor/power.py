"""What feeds the machine, and how freely its processor may clock."""

from __future__ import annotations

from typing import Any

from npumark.doctor.examined import Examined, good, noted, spoils, unread
from npumark.doctor.scene import Scene
from npumark.machine.power import SAVING_PROFILES

_POLICIES = "/sys/devices/system/cpu/cpufreq/policy*"


def source(scene: Scene) -> Examined:
    """A computer on its battery holds its power down."""
    seen = scene.environment.checks["power_source"]
    about = ("power_source", "Power source")
    if seen.value is None:
        return unread(*about, seen.why)
    if seen.violation:
        return spoils(
            *about,
            seen.value,
            "The computer runs on its battery, and holds its power down.",
            "Plug in its power supply.",
        )
    return good(*about, seen.value, "The computer runs on mains power.")


def profile(scene: Scene) -> Examined:
    """A profile, governor or preference that saves energy holds clocks down."""
    seen = scene.environment.checks["power_profile"]
    about = ("power_profile", "Power profile")
    if seen.value is None:
        return unread(*about, seen.why)
    told = _told(seen.value)
    if not seen.violation:
        return good(*about, seen.value, f"No setting here saves energy ({told}).")
    return spoils(
        *about,
        seen.value,
        f"A setting that saves energy holds the clocks down ({told}).",
        _fix(scene.host.system, seen.value),
    )


def clocks(scene: Scene) -> Examined:
    """Clocks that are permitted below what the processor can, or no boost."""
    seen = scene.environment.checks["clocks"]
    about = ("clocks", "Processor clocks")
    if seen.value is None:
        return unread(*about, seen.why)
    permitted, can = seen.value["permitted_max_khz"], seen.value["hardware_max_khz"]
    if seen.value["boost"] is False:
        return spoils(
            *about,
            seen.value,
            "Boost is off: the processor never clocks above its nominal clock.",
            _boost_fix(scene),
        )
    if permitted is None or can is None:
        return unread(*about, "the system does not say which clocks are permitted")
    if permitted["max"] < can["max"] or permitted["min"] < can["min"]:
        return spoils(
            *about,
            seen.value,
            f"Clocks are held to {permitted['max'] / 1e6:.2f} GHz where the processor has "
            f"{can['max'] / 1e6:.2f} GHz.",
            f"`sudo cpupower frequency-set --max {can['max']}kHz`, or remove what sets the limit "
            "(thermald, TLP, the firmware).",
        )
    return good(*about, seen.value, f"Up to {can['max'] / 1e6:.2f} GHz are permitted.")


def clock_source(scene: Scene) -> Examined:
    """A clock source outside of the processor makes every reading of the time slow."""
    about = ("clock_source", "Clock source")
    if scene.host.system != "linux":
        return unread(*about, "only Linux names it")
    base = "/sys/devices/system/clocksource/clocksource0"
    used = scene.host.read(f"{base}/current_clocksource")
    if used.value is None:
        return unread(*about, used.why)
    if used.value in ("hpet", "acpi_pm", "jiffies"):
        return noted(
            *about,
            used.value,
            f"The kernel reads the time from {used.value}, which is slow: each timed call pays.",
            "Start the kernel with `tsc=reliable` where the processor's counter is sound.",
        )
    return good(*about, used.value, f"The kernel reads the time from {used.value}.")


def _told(value: dict[str, Any]) -> str:
    parts = []
    if value.get("profile"):
        parts.append(f"profile {value['profile']}")
    for key, what in (("governors", "governor"), ("energy_preferences", "energy preference")):
        if value.get(key):
            parts.append(f"{what} {', '.join(value[key])}")
    return "; ".join(parts)


def _fix(system: str, value: dict[str, Any]) -> str:
    if system == "darwin":
        return "`sudo pmset -a lowpowermode 0` switches low power mode off."
    if system == "win32":
        return "`powercfg /setactive SCHEME_MIN` chooses the plan for high performance."
    steps = []
    if value["profile"] in SAVING_PROFILES:
        steps.append("`powerprofilesctl set performance`")
    if "powersave" in value["governors"]:
        steps.append("`sudo cpupower frequency-set -g performance`")
    if "power" in value["energy_preferences"]:
        steps.append(
            f"`echo balance_performance | sudo tee {_POLICIES}/energy_performance_preference`"
        )
    return f"{' and '.join(steps)}."


def _boost_fix(scene: Scene) -> str:
    pstate = "/sys/devices/system/cpu/intel_pstate/no_turbo"
    if scene.host.number(pstate) == 1:
        return f"`echo 0 | sudo tee {pstate}`, or allow boost in the firmware."
    return (
        "`echo 1 | sudo tee /sys/devices/system/cpu/cpufreq/boost`, or allow boost in the firmware."
    )
