"""A record's computer and the state that it was in, in words, with units.

What stands in ``machine`` and in a check's value is anybody's: what has another form than it should
is shown as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from npumark.record.model import Check
from npumark.report.words import figure, percent, size

_MACHINE: Final = {
    "os": "system",
    "os_version": "system's version",
    "bios": "firmware",
    "bios_date": "firmware of",
    "cpu_model": "processor",
    "cpu_vendor": "processor's maker",
    "cpu_family": "processor's family",
    "cpu_model_number": "processor's model number",
    "cpu_stepping": "processor's stepping",
    "board_vendor": "board's maker",
    "board_product": "board",
    "isa": "instruction sets",
    "memory_bytes": "memory",
}
_STATE: Final = {
    "cpu_busy": "processor busy before the run",
    "thermal": "temperature",
    "throttling": "throttled before the run",
    "throttling_while_measuring": "throttled while measuring",
    "throttling_while_measuring_in_a_part": "throttled in a part of the run",
    "load_beside_measuring": "taken by other programs while measuring",
    "load_beside_measuring_in_a_part": "taken by other programs in a part of the run",
    "cpu_limits": "processors that may be used",
}
_SHARES: Final = ("cpu_busy", "load_beside_measuring", "load_beside_measuring_in_a_part")
_UNITS: Final = ("khz", "bytes", "celsius", "percent")


def facts(machine: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what a record says of its computer, without what it could not read."""
    for name, value in machine.items():
        if name != "why" and value not in (None, [], {}):
            yield _MACHINE.get(name, _plain(name)), _value(value, _unit(name))


def state(checks: Mapping[str, Check], beside: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what was seen of the computer's state, without what is a fact ``beside`` it too."""
    for name, check in checks.items():
        if name not in beside:
            yield _title(name), _seen(name, check)


def violations(checks: Mapping[str, Check]) -> Iterator[str]:
    """Yield each check that was not as it should be, with what was seen."""
    for name, check in checks.items():
        if check.violation:
            yield f"{_title(name)}: {_seen(name, check)}"


def _title(name: str) -> str:
    return _STATE.get(name, _plain(name))


def _seen(name: str, check: Check) -> str:
    value = check.value
    if value is None:
        return f"unknown: {check.why}" if check.why else "unknown"
    if name in _SHARES and _number(value):
        return percent(value)
    if isinstance(value, dict):
        if name.startswith("throttling"):
            moved = value.get("in_window", value)
            if isinstance(moved, dict) and all(n in (0, None) for n in moved.values()):
                return "no"
        if name == "cpu_limits" and "usable" in value and "logical" in value:
            return f"{_value(value['usable'])} of {_value(value['logical'])}"
    return _value(value)


def _value(value: Any, unit: str = "") -> str:
    """Return a JSON value in words; numbers in ``unit``, which a member's name may state."""
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if _number(value):
        return _measured(value, unit)
    if isinstance(value, list):
        return ", ".join(_value(each, unit) for each in value)
    if not isinstance(value, dict):
        return str(value)
    if value.keys() == {"min", "max"} and all(map(_number, value.values())):
        low, high = (_measured(value[end], unit) for end in ("min", "max"))
        return low if low == high else f"{low} to {high}"
    known = {str(k): v for k, v in value.items() if v not in (None, [], {})}
    return ", ".join(f"{_plain(k)} {_value(v, _unit(k) or unit)}" for k, v in known.items())


def _measured(number: float, unit: str) -> str:
    if unit == "khz":
        return f"{figure(number / 1e6)} GHz"
    if unit == "bytes":
        return size(round(number))
    if unit == "celsius":
        return f"{figure(number)} °C"
    if unit == "percent":
        return f"{figure(number)} %"
    return str(number) if isinstance(number, int) else figure(number)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _unit(name: str) -> str:
    last = name.rpartition("_")[2]
    return last if last in _UNITS else ""


def _plain(name: str) -> str:
    """Return a code as words, without the unit that its values show."""
    unit = _unit(name)
    return name.removesuffix(f"_{unit}" if unit else "").replace("_", " ")
