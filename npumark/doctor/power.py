"""What feeds the machine, and how freely its processor may clock."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from npumark.doctor.examined import Examined, good, noted, spoils, unread
from npumark.doctor.scene import Scene
from npumark.machine.host import Host
from npumark.machine.power import SAVING_PROFILES

_CPUFREQ = "/sys/devices/system/cpu/cpufreq"


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
    if seen.value["boost"] is False:
        return noted(
            *about,
            seen.value,
            "Boost is off: the processor never clocks above its nominal clock. Each record "
            "says so.",
            f"Where that is not meant: {_boost_fix(scene)}",
        )
    domains = _domains(scene.host)
    if not domains:
        return unread(*about, "the system does not say which clocks are permitted")
    most = max(domain.hardware_khz for domain in domains)
    held = [
        domain
        for domain in domains
        if domain.permitted_khz < (1 - scene.policy.diagnose.notable) * domain.hardware_khz
    ]
    if not held:
        return good(*about, seen.value, f"Up to {most / 1e6:.2f} GHz are permitted.")
    lowest = min(held, key=lambda domain: domain.permitted_khz / domain.hardware_khz)
    return noted(
        *about,
        {**seen.value, "held": [asdict(domain) for domain in held]},
        f"{len(held)} of {len(domains)} clock domains of the processor are held below what they "
        f"have, the most {lowest.name} ({lowest.permitted_khz / 1e6:.2f} of "
        f"{lowest.hardware_khz / 1e6:.2f} GHz). Each record says so.",
        f"Where that is not meant: `sudo cpupower frequency-set --max {most}kHz`, or remove what "
        "sets the limit (thermald, TLP, the firmware).",
    )


@dataclass(frozen=True, slots=True)
class Domain:
    """A clock domain: cores that clock together, and their highest clocks in kHz."""

    name: str
    permitted_khz: int
    hardware_khz: int


def _domains(host: Host) -> list[Domain]:
    """Return the domains that tell both clocks; a core's own highest clock need not be that of
    the processor, which has slower cores besides."""
    found = []
    for folder in host.listing(_CPUFREQ, "policy[0-9]*") if host.system == "linux" else ():
        permitted = host.number(f"{folder}/scaling_max_freq")
        hardware = host.number(f"{folder}/cpuinfo_max_freq")
        if permitted is not None and hardware is not None:
            found.append(Domain(folder.rpartition("/")[2], permitted, hardware))
    return found


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
        files = f"{_CPUFREQ}/policy*/energy_performance_preference"
        steps.append(f"`echo balance_performance | sudo tee {files}`")
    return f"{' and '.join(steps)}."


def _boost_fix(scene: Scene) -> str:
    pstate = "/sys/devices/system/cpu/intel_pstate/no_turbo"
    if scene.host.number(pstate) == 1:
        return f"`echo 0 | sudo tee {pstate}`, or allow boost in the firmware."
    return (
        "`echo 1 | sudo tee /sys/devices/system/cpu/cpufreq/boost`, or allow boost in the firmware."
    )
