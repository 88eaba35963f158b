"""What feeds this computer and how freely it may spend it: source, profile, governor, clocks."""

from __future__ import annotations

import re
from typing import Any

from npumark.machine.host import THIS, Host
from npumark.record.model import Check

_SUPPLIES = "/sys/class/power_supply"
_CPUFREQ = "/sys/devices/system/cpu/cpufreq"

_MAINS = {"Mains", "USB", "Wireless"}
"""Kinds of supply that feed the system; a UPS reports for itself and is not one of its own."""

SAVING_PROFILES = {"low-power", "power-saver", "power"}
"""Names under which systems hold clocks down to save energy."""

_WINDOWS_PLANS = {
    "381b4222-f694-41f0-9685-ff5bb260df2e": "balanced",
    "8c5e7fda-e8bf-4a96-9a85-a6e23a8c635c": "high-performance",
    "a1841308-3541-4fab-bc81-f71556f20b4a": "power-saver",
    "e9a42b02-d5df-448d-aa00-03f14749eb61": "ultimate-performance",
}
_GUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def source(host: Host = THIS) -> Check:
    """Return ``mains`` or ``battery``; battery is a violation, unknown is not.

    Only supplies of the system count: a UPS, or the battery of a mouse (scope ``Device``),
    says nothing of what feeds this computer.
    """
    if host.system != "linux":
        state = host.battery()
        if state is None or state.plugged is None:
            return _unread("the system states no power source")
        return _stated("mains" if state.plugged else "battery", violation=not state.plugged)
    mains: list[bool] = []
    discharging: list[bool] = []
    kinds: set[str] = set()
    for supply in host.listing(_SUPPLIES, "*"):
        kind = host.read(f"{supply}/type").value or ""
        kinds.add(kind)
        if host.read(f"{supply}/scope").value == "Device":
            continue
        online = host.number(f"{supply}/online")
        status = host.read(f"{supply}/status").value
        if kind in _MAINS and online is not None:
            mains.append(online > 0)  # 2 stands for a programmable supply that is on line
        elif kind == "Battery" and host.number(f"{supply}/present") != 0 and status:
            discharging.append(status == "Discharging")
    if any(mains):
        return _stated("mains", violation=False)
    if any(discharging) or (mains and discharging):
        return _stated("battery", violation=True)
    if mains and not kinds & {"Battery"}:
        return _unread("every mains supply is off line and there is no battery")
    if discharging:
        return _unread("a battery that is not discharging, and no mains supply is listed")
    if kinds:
        return _unread("no supply listed here feeds the system itself (a UPS, a mouse …)")
    return _unread("the system lists no power supply")


def profile(host: Host = THIS) -> Check:
    """Return the power profile, governor and energy preference; saving energy is a violation.

    ``powersave`` is the ordinary governor of the ``*_pstate`` drivers, which the energy
    preference steers; with any other driver it holds the lowest clock, and is a violation.
    """
    if host.system == "darwin":
        text = host.output(("pmset", "-g", "custom")).value or ""
        modes = {int(n) for n in re.findall(r"lowpowermode\s+([0-9])", _active_section(host, text))}
        if not modes:
            return _unread("pmset states no low power mode")
        saving = 1 in modes
        return _stated({"profile": "low-power" if saving else "automatic"}, violation=saving)
    if host.system == "win32":
        found = _GUID.search(host.output(("powercfg", "/getactivescheme")).value or "")
        if found is None:
            return _unread("powercfg does not name the active power plan")
        plan = _WINDOWS_PLANS.get(found[0].lower(), "another plan")
        return _stated({"profile": plan}, violation=plan in SAVING_PROFILES)
    policies = host.listing(_CPUFREQ, "policy[0-9]*")
    value: dict[str, Any] = {
        "profile": host.read("/sys/firmware/acpi/platform_profile").value,
        "drivers": _distinct(host, policies, "scaling_driver"),
        "governors": _distinct(host, policies, "scaling_governor"),
        "energy_preferences": _distinct(host, policies, "energy_performance_preference"),
    }
    if not any(value.values()):
        return _unread("neither a platform profile nor a clock governor is exposed here")
    steered = all(
        driver.endswith("pstate") or "pstate-epp" in driver for driver in value["drivers"]
    )
    saving = (
        value["profile"] in SAVING_PROFILES
        or "power" in value["energy_preferences"]
        or ("powersave" in value["governors"] and not steered)
    )
    return _stated(value, violation=saving)


def clocks(host: Host = THIS) -> Check:
    """Return, in kHz over all clock domains, the present, permitted and hardware clocks.

    A permitted clock below the hardware's is a setting; it is recorded and no violation.
    """
    if host.system == "linux":
        policies = host.listing(_CPUFREQ, "policy[0-9]*")
        if policies:
            return _stated(
                {
                    "current_khz": _extent(host, policies, "scaling_cur_freq"),
                    "permitted_max_khz": _extent(host, policies, "scaling_max_freq"),
                    "hardware_max_khz": _extent(host, policies, "cpuinfo_max_freq"),
                    "boost": _boost(host),
                },
                violation=False,
            )
        seen = re.findall(
            r"^cpu MHz\s*:\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)$",
            host.read("/proc/cpuinfo").value or "",
            re.M,
        )
        if seen:
            stated = [round(float(mhz) * 1000) for mhz in seen]
            return _stated(
                {
                    "current_khz": {"min": min(stated), "max": max(stated)},
                    "permitted_max_khz": None,
                    "hardware_max_khz": None,
                    "boost": None,
                },
                violation=False,
            )
    return _unread("this system exposes no processor clocks")


def _active_section(host: Host, text: str) -> str:
    """Return pmset's settings of the source in use (``AC Power:`` or ``Battery Power:``)."""
    on_battery = source(host).value == "battery"
    title = "Battery Power:" if on_battery else "AC Power:"
    _, found, rest = text.partition(title)
    return re.split(r"^\S.*Power:", rest, maxsplit=1, flags=re.MULTILINE)[0] if found else text


def _boost(host: Host) -> bool | None:
    """Return whether clocks above the nominal one are on, where a driver says so."""
    generic = host.number(f"{_CPUFREQ}/boost")
    if generic is not None:
        return generic == 1
    off = host.number("/sys/devices/system/cpu/intel_pstate/no_turbo")
    return None if off is None else off == 0


def _distinct(host: Host, policies: list[str], name: str) -> list[str]:
    seen = {host.read(f"{policy}/{name}").value for policy in policies}
    return sorted(text for text in seen if text is not None)


def _extent(host: Host, policies: list[str], name: str) -> dict[str, int] | None:
    seen = [n for policy in policies if (n := host.number(f"{policy}/{name}")) is not None]
    return {"min": min(seen), "max": max(seen)} if seen else None


def _stated(value: Any, *, violation: bool) -> Check:
    return Check(value=value, why=None, violation=violation)


def _unread(why: str) -> Check:
    return Check(value=None, why=why, violation=False)
