"""Physical devices: which engines share one, what it is called, which number it has.

A device is known by its hardware key (UUID, bus address, adapter LUID), never by its name: two
cards of one model have one name, and two runtimes spell one card differently. Keys order and
join devices here and go no further; the record numbers them instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from npumark.errors import IntegrityError
from npumark.machine.identity import clean_cpu_name
from npumark.record.model import Processor
from npumark.worker.protocol import EngineInfo

Role = Literal["CPU", "iGPU", "dGPU", "NPU"]
ROLES: tuple[Role, ...] = ("CPU", "iGPU", "dGPU", "NPU")

_KEYS = ("key", "uuid", "bus", "luid")
"""Fields of a probe's ``processor`` that name hardware; engines that share one share a device."""

_BUS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")
_MARKS = re.compile(r"\((?:R|TM|C)\)|®|™", re.IGNORECASE)


@dataclass(slots=True)
class _Device:
    """One physical device as the probes found it."""

    role: Role
    keys: set[str]
    names: list[str] = field(default_factory=list)
    engines: list[str] = field(default_factory=list)
    runtimes: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    def raw_name(self) -> str | None:
        return self.names[0] if self.names else None


def assign(
    infos: Iterable[EngineInfo], cpu_name: str | None = None
) -> tuple[list[Processor], dict[str, str]]:
    """Return the processors behind the available engines, and each engine's processor id.

    ``cpu_name`` is the processor's own model name (identity.cpu_model), used where the engines
    give the CPU none. An id is the role (``cpu``, ``npu``), numbered where there are several
    (``dgpu-2``); ``number`` counts devices of one role and one name, in bus order. Where a
    device's identity is in doubt its ``details`` say so under ``identity``: totals over such
    devices must not be formed. Raises IntegrityError for an engine whose role is none of ours.
    """
    devices = _merge_unnamed(_joined([info for info in infos if info.available]))
    devices.sort(key=lambda d: (ROLES.index(d.role), _bus_order(d.keys), d.engines))
    counts = {role: sum(1 for d in devices if d.role == role) for role in ROLES}
    processors: list[Processor] = []
    owner: dict[str, str] = {}
    within: dict[Role, int] = dict.fromkeys(ROLES, 0)
    numbers: dict[tuple[Role, str], int] = {}
    for device in devices:
        within[device.role] += 1
        short = device.role.lower()
        identifier = short if counts[device.role] == 1 else f"{short}-{within[device.role]}"
        raw = device.raw_name() or (cpu_name if device.role == "CPU" else None)
        name = display_name(raw, device.role)
        numbers[device.role, name] = numbers.get((device.role, name), 0) + 1
        details = dict(device.details)
        details["raw_name"] = raw
        if device.said:
            details["identity"] = "; ".join(device.said)
        processors.append(
            Processor(
                id=identifier,
                role=device.role,
                name=name,
                number=numbers[device.role, name],
                details=details,
            )
        )
        owner.update(dict.fromkeys(device.engines, identifier))
    return processors, owner


def display_name(raw: str | None, role: Role) -> str:
    """Return a device's name without trade marks, and a CPU's also without filler words."""
    if raw is None or not raw.strip():
        return f"unnamed {role}"
    if role == "CPU":
        return clean_cpu_name(raw)
    return " ".join(_MARKS.sub(" ", raw).split()) or " ".join(raw.split())


def _joined(infos: list[EngineInfo]) -> list[_Device]:
    """Return one device per set of engines that share a hardware key, directly or by a third."""
    devices: list[_Device] = []
    for info in infos:
        told = info.processor
        role = _role(info)
        keys = {str(told[k]).strip().lower() for k in _KEYS if told.get(k) not in (None, "")}
        device = _Device(role, keys)
        _add(device, info)
        for other in [d for d in devices if d.keys & keys]:
            devices.remove(other)
            device = _united(other, device)
        devices.append(device)
    return devices


def _role(info: EngineInfo) -> Role:
    told = info.processor.get("role")
    for role in ROLES:
        if told == role:
            return role
    raise IntegrityError(
        f"engine {info.id} reports the processor role {told!r}; there are {', '.join(ROLES)}",
        "Update or remove the package that provides this engine.",
    )


def _add(device: _Device, info: EngineInfo) -> None:
    name = str(info.processor.get("name") or "").strip()
    if name:
        device.names.append(name)
    device.engines.append(info.id)
    device.runtimes.append(info.runtime)
    device.details.update(info.processor.get("details") or {})


def _united(first: _Device, second: _Device) -> _Device:
    said = first.said + second.said
    if first.role != second.role:
        said.append(f"{second.engines[0]} calls it {second.role}, {first.engines[0]} {first.role}")
    return _Device(
        role=first.role,
        keys=first.keys | second.keys,
        names=first.names + second.names,
        engines=first.engines + second.engines,
        runtimes=first.runtimes + second.runtimes,
        details={**second.details, **first.details},
        said=said,
    )


def _merge_unnamed(devices: list[_Device]) -> list[_Device]:
    """Join devices without a key to the one device of their role, or say they are in doubt.

    One device of a role, seen once by each runtime, needs no key to be known. As soon as a
    runtime sees two, or two keys exist, a missing key could be any of them.
    """
    settled: list[_Device] = []
    for role in ROLES:
        group = [d for d in devices if d.role == role]
        unnamed = [d for d in group if not d.keys]
        seen = [runtime for d in group for runtime in set(d.runtimes)]
        if not unnamed or len(group) == 1:
            settled += group
        elif len(group) - len(unnamed) <= 1 and len(seen) == len(set(seen)):
            # The keyed device, where there is one, comes first and lends its name.
            first, *rest = sorted(group, key=lambda d: not d.keys)
            for other in rest:
                first = _united(first, other)
            settled.append(first)
        else:
            for device in unnamed:
                device.said.append(
                    f"{device.engines[0]} states no hardware key, and this computer has several "
                    f"devices of the role {role}: it may be one that is listed apart"
                )
            settled += group
    return settled


def _bus_order(keys: set[str]) -> tuple[int, list[tuple[int, int | str]], str]:
    """Order bus addresses by number, before every other key in natural order, before none."""
    for key in sorted(keys):
        match = _BUS.search(key)
        if match:
            numbers = [int(part or "0", 16) for part in match.groups()]
            return (0, [(0, number) for number in numbers], "")
    if not keys:
        return (2, [], "")
    key = min(keys)
    parts: list[tuple[int, int | str]] = [
        (0, int(part)) if part.isdigit() else (1, part) for part in re.findall(r"\d+|\D+", key)
    ]
    return (1, parts, key)
