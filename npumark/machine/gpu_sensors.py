"""Clocks, temperature, power and reasons for slowing down of AMD's and Intel's graphics, by sysfs.

Files of the drivers ``amdgpu``, ``i915`` and ``xe``, as the kernel's documentation names them;
NVIDIA's cards are asked by NVML (see nvidia_sensors). Not yet run on hardware.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from npumark.machine.host import THIS, Host, whole_number

_DRM = "/sys/class/drm"

_INTEL_CLOCKS = (
    "device/tile0/gt0/freq0/act_freq",  # xe
    "gt/gt0/rps_act_freq_mhz",  # i915
    "gt_act_freq_mhz",  # i915 of kernels before 5.18
)
_INTEL_REASONS = (
    ("device/tile0/gt0/freq0/throttle", "reason_"),
    ("gt/gt0", "throttle_reason_"),
)


def readings(host: Host = THIS) -> list[dict[str, Any]]:
    """Return what each card of AMD and Intel tells now: ``card`` (its bus address), ``vendor``,
    ``clock_mhz``, ``celsius`` (the hottest of its sensors), ``power_w`` and ``reasons`` (why the
    driver holds the clock down, none where it does not); null what it does not tell, with the
    reason in ``why``. Empty on other systems than Linux."""
    if host.system != "linux":
        return []
    readers = {"0x1002": _amd, "0x8086": _intel}
    found = []
    for card in host.listing(_DRM, "card[0-9]*"):
        if whole_number(card.rpartition("/card")[2]) is None:
            continue  # a connector: card0-HDMI-A-1
        reader = readers.get(host.read(f"{card}/device/vendor").value or "")
        if reader is not None:
            found.append(reader(host, card))
    return found


def _amd(host: Host, card: str) -> dict[str, Any]:
    hwmon = _hwmon(host, card)
    hertz = _first(host, [f"{h}/freq1_input" for h in hwmon])
    return _told(
        host,
        card,
        "AMD",
        None if hertz is None else hertz / 1e6,
        hwmon,
        None,
        "amdgpu's sysfs names no reasons",
    )


def _intel(host: Host, card: str) -> dict[str, Any]:
    clock = _first(host, [f"{card}/{name}" for name in _INTEL_CLOCKS])
    reasons: list[str] | None = None
    for folder, lead in _INTEL_REASONS:
        stated = {
            path.rpartition(lead)[2]: host.number(path)
            for path in host.listing(f"{card}/{folder}", f"{lead}*")
        }
        stated.pop("status", None)  # whether there is any
        if stated:
            reasons = sorted(name for name, on in stated.items() if on)
            break
    why = "the driver lists no throttle reasons"
    return _told(host, card, "Intel", clock, _hwmon(host, card), reasons, why)


def _told(
    host: Host,
    card: str,
    vendor: str,
    clock_mhz: float | None,
    hwmon: Sequence[str],
    reasons: list[str] | None,
    no_reasons: str,
) -> dict[str, Any]:
    milli = [host.number(path) for h in hwmon for path in host.listing(h, "temp[0-9]*_input")]
    celsius = max((n / 1000 for n in milli if n is not None), default=None)
    names = ("power1_average", "power1_input")
    micro = _first(host, [f"{h}/{name}" for h in hwmon for name in names])
    told: dict[str, Any] = {
        "card": host.linked(f"{card}/device"),
        "vendor": vendor,
        "clock_mhz": clock_mhz,
        "celsius": celsius,
        "power_w": None if micro is None else micro / 1e6,
        "reasons": reasons,
    }
    whys = {
        "clock_mhz": "its driver states no clock",
        "celsius": "its driver has no temperature sensor",
        "power_w": "its driver states no power",
        "reasons": no_reasons,
    }
    return {**told, "why": {name: why for name, why in whys.items() if told[name] is None}}


def _hwmon(host: Host, card: str) -> list[str]:
    return host.listing(f"{card}/device/hwmon", "hwmon[0-9]*")


def _first(host: Host, paths: Sequence[str]) -> int | None:
    return next((n for path in paths if (n := host.number(path)) is not None), None)
