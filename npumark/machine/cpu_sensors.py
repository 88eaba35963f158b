"""What the processor says of itself while it works: clocks, temperature, throttling, busy time.

Cheap enough to be read every few seconds beside a measurement: files and counters, on macOS one
short command. What a system does not tell is null, with the reason in ``why``.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from npumark.machine import cpu_limits, power, sensors
from npumark.machine.host import THIS, Host

_HWMON = "/sys/class/hwmon"
_DRIVERS = {"coretemp", "k10temp", "zenpower", "cpu_thermal"}
"""Drivers of hwmon whose temperatures are the processor's. AMD's are no thermal zones."""


def reading(host: Host = THIS) -> dict[str, Any]:
    """Return ``cpu_khz`` (``{"min", "max"}`` over the clock domains, now), ``hottest_celsius``
    (of the thermal zones and the processor's own sensors), ``cpu_s`` (the whole machine's CPU
    seconds since boot, ``{"busy", "idle", "steal"}``), ``throttling`` (counters so far, see
    cpu_limits) and ``why``: for each of the first three that is null, why.

    macOS tells no temperature but how far it holds the clocks down: ``speed_limit_percent``.
    """
    clocks, thermal = power.clocks(host), sensors.thermal(host)
    khz = clocks.value["current_khz"] if clocks.value else None
    times = sensors.cpu_times(host)
    told: dict[str, Any] = {
        "cpu_khz": khz,
        "cpu_s": None if times is None else asdict(times),
        "throttling": cpu_limits.throttling(host),
    }
    why = {} if khz else {"cpu_khz": clocks.why or "no clock domain tells its clock"}
    if times is None:
        why["cpu_s"] = "the system keeps no CPU time counters"
    celsius = list(_cpu_celsius(host))
    if isinstance(thermal.value, list):
        celsius += [zone["celsius"] for zone in thermal.value]
    elif isinstance(thermal.value, dict):
        told.update(thermal.value)
    told["hottest_celsius"] = max(celsius, default=None)
    if not celsius:
        why["hottest_celsius"] = thermal.why or "this system exposes no temperature"
    return {**told, "why": why}


def _cpu_celsius(host: Host) -> list[float]:
    found = []
    for folder in host.listing(_HWMON, "hwmon[0-9]*") if host.system == "linux" else ():
        if host.read(f"{folder}/name").value in _DRIVERS:
            milli = [host.number(path) for path in host.listing(folder, "temp[0-9]*_input")]
            found += [n / 1000 for n in milli if n is not None]
    return found
