"""Physical devices: which engines share one, what it is called, which number it has.

A device is known by its hardware key (UUID, bus address, adapter LUID), never by its name: two
cards of one model have one name, and two runtimes spell one card differently. Keys order and
join devices here and go no further; the record numbers them instead.

A probe's ``processor`` states ``role`` and, where its runtime knows them, ``key`` (``cpu`` for
the CPU), ``uuid``, ``bus``, ``luid``, ``vendor_id``, ``device_id``, ``name``, ``driver``,
``firmware`` and ``details``. In ``details``, ``role_from`` says that the role is a guess, and from
what; ``identity`` that the engine cannot tell which device it uses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from npumark.errors import IntegrityError
from npumark.hardware import key_sets, number
from npumark.machine.card import ROLES, Card, Role, vendor_name
from npumark.machine.identity import clean_cpu_name
from npumark.plain import one_line
from npumark.record.model import Processor
from npumark.worker.protocol import EngineInfo

_GPUS = ("iGPU", "dGPU")
_NOT_DETAILS = frozenset(
    {"key", "uuid", "bus", "luid", "serial"}
    | {"vendor", "vendor_id", "device_id", "role_from", "provider_version"}
)
"""What a probe's details may hold and a processor's do not: hardware keys, what is stated there
in other words, and what is the engine's own."""
_MARKS = re.compile(r"\((?:R|TM|C)\)|®|™", re.IGNORECASE)


@dataclass(slots=True)
class _Device:
    """One physical device as the system and the probes found it.

    ``views`` are the ways in which engines see it: a runtime's provider sees a device once.
    ``roles`` are what each engine calls it, ``guessed`` the engines that do not know.
    """

    card: Card | None
    keys: dict[str, frozenset[str]]
    vendor_id: int | None
    device_id: int | None
    roles: dict[str, Role] = field(default_factory=dict)
    guessed: set[str] = field(default_factory=set)
    names: list[str] = field(default_factory=list)
    views: set[str] = field(default_factory=set)
    runtimes: set[str] = field(default_factory=set)
    details: dict[str, Any] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    @property
    def engines(self) -> list[str]:
        return list(self.roles)

    @property
    def role(self) -> Role:
        """What its engines call it; where they differ, or guess, what the system does, else the
        first."""
        told = self.told()
        if self.card is not None and (not told or len(set(told)) > 1):
            return self.card.role
        return told[0] if told else next(iter(self.roles.values()))

    def told(self) -> list[Role]:
        """Return what those engines call it that know."""
        return [role for engine, role in self.roles.items() if engine not in self.guessed]

    def absorb(self, other: _Device) -> None:
        """Take ``other``, found to be the same device, into this one."""
        self.card = self.card or other.card
        for kind, values in other.keys.items():
            self.keys[kind] = self.keys.get(kind, frozenset()) | values
        self.vendor_id = self.vendor_id if self.vendor_id is not None else other.vendor_id
        self.device_id = self.device_id if self.device_id is not None else other.device_id
        self.roles.update(other.roles)
        self.guessed |= other.guessed
        self.names += other.names
        self.views |= other.views
        self.runtimes |= other.runtimes
        self.details = {**other.details, **self.details}
        self.said += other.said


def assign(
    infos: Iterable[EngineInfo], cards: Sequence[Card] = ()
) -> tuple[list[Processor], dict[str, str]]:
    """Return what ``settle`` does, without where devices sit."""
    settled = settle(infos, cards)
    return settled.processors, settled.owner


@dataclass(frozen=True, slots=True)
class Settled:
    """The processors of this computer, the processor's id of each available engine, and the PCI
    address of each processor that has one. Addresses place workers; no record holds one."""

    processors: list[Processor]
    owner: dict[str, str]
    bus: dict[str, str]


def settle(infos: Iterable[EngineInfo], cards: Sequence[Card] = ()) -> Settled:
    """Return the processors of this computer, what each engine runs on, and where they sit.

    ``cards`` is what the operating system lists (machine.inventory); a device that no engine
    reaches is a processor too. An id is the role (``cpu``, ``npu``), numbered where there are
    several (``dgpu-2``); ``number`` counts devices of one role and one name, in bus order.
    What an emulated engine runs on is a processor of its own (``npu-emulated``), never one of
    the real ones. Where a device's identity is in doubt its ``details`` say so under
    ``identity``: totals over such devices must not be formed. Raises IntegrityError for an
    engine whose role is none of ours.
    """
    available = [info for info in infos if info.available]
    devices = [_of_card(card) for card in cards]
    for info in available:
        if not info.emulated:
            _place(devices, _of_engine(info))
    _settle(devices)
    emulators: list[_Device] = []
    for info in available:
        if info.emulated:
            _place(emulators, _of_engine(info))
    settled = Settled([], {}, {})
    for group, suffix in ((devices, ""), (emulators, "-emulated")):
        _number(settled, group, suffix)
    return settled


def display_name(raw: str | None, role: Role) -> str:
    """Return a device's name without trade marks, and a CPU's also without filler words."""
    if raw is None or not raw.strip():
        return f"unnamed {role}"
    if role == "CPU":
        return clean_cpu_name(raw)
    return " ".join(_MARKS.sub(" ", raw).split()) or " ".join(raw.split())


def _of_card(card: Card) -> _Device:
    return _Device(card, dict(card.keys), card.vendor_id, card.device_id)


def _of_engine(info: EngineInfo) -> _Device:
    told = info.processor
    details = dict(told.get("details") or {})
    vendor, device_id = (
        number(told.get(name, details.get(name))) for name in ("vendor_id", "device_id")
    )
    device = _Device(None, key_sets(told), vendor, device_id)
    device.roles[info.id] = _role(info)
    if details.get("role_from"):
        device.guessed.add(info.id)
    if doubt := details.pop("identity", None):
        device.said.append(str(doubt))
    name = one_line(str(told.get("name") or ""))
    if name:
        device.names.append(name)
    device.views.add(str(info.options.get("provider") or info.runtime))
    version = f" {info.version}" if info.version else ""
    device.runtimes.add(f"{info.runtime_title}{version}")
    device.details.update({k: v for k, v in details.items() if k not in _NOT_DETAILS})
    for said in ("driver", "firmware"):
        if told.get(said):
            device.details[said] = told[said]
    return device


def _role(info: EngineInfo) -> Role:
    told = info.processor.get("role")
    for role in ROLES:
        if told == role:
            return role
    raise IntegrityError(
        f"engine {info.id} reports the processor role {told!r}; there are {', '.join(ROLES)}",
        "Update or remove the package that provides this engine.",
    )


def _place(devices: list[_Device], device: _Device) -> None:
    """Add a device, united with every one that it shares a key with, directly or by a third."""
    same = [d for d in devices if _share(d, device)]
    if not same:
        devices.append(device)
        return
    first, *rest = [*same, device]
    for other in rest:
        first.absorb(other)
        if other is not device:
            devices.remove(other)


def _share(one: _Device, other: _Device) -> bool:
    return any(values & other.keys.get(kind, frozenset()) for kind, values in one.keys.items())


def _settle(devices: list[_Device]) -> None:
    """Join what engines could not tell by a key to the one device it can be, or say the doubt.

    Where one device is all it can be, a missing key leaves nothing open. As soon as there are
    two, it could be either.
    """
    for device in [d for d in devices if d.card is None and not d.said]:
        others = [d for d in devices if d is not device]
        cards = [d for d in others if d.card and _kind(d) == _kind(device)]
        if device.keys and not cards:
            continue
        could = _candidates(device, cards) or _candidates(device, [d for d in others if d.keys])
        if len(could) == 1:
            could[0].absorb(device)
            devices.remove(device)
        elif len(could) > 1:
            device.said.append(_doubt(device))
    for role in ROLES:
        _settle_without_keys([d for d in devices if d.role == role], devices)


def _settle_without_keys(group: list[_Device], devices: list[_Device]) -> None:
    loose = [d for d in group if d.card is None and not d.keys and not d.said]
    if not loose or len(group) == 1:
        return
    first, *rest = loose
    if len(loose) == len(group) and all(_could_be(first, d) for d in rest):
        for other in rest:
            if not _could_be(first, other):  # a third that the first has become meanwhile
                other.said.append(_doubt(other))
                continue
            first.absorb(other)
            devices.remove(other)
        return
    for device in loose:
        strangers = [d for d in group if d is not device]
        if any(_same_model(device, d) for d in strangers):
            device.said.append(_doubt(device))


def _candidates(device: _Device, anchors: Sequence[_Device]) -> list[_Device]:
    """Return the devices that ``device`` may be, those of its own role where there are any.

    What the system lists is complete, so a GPU that an engine files under the other role may be
    one of those; what engines list is not.
    """
    could = [d for d in anchors if _could_be(d, device)]
    own = [d for d in could if d.role == device.role]
    return own or [d for d in could if d.card]


def _could_be(one: _Device, other: _Device) -> bool:
    """Whether two devices may be one: nothing that both state differs, and no provider saw
    both."""
    if _kind(one) != _kind(other) or one.views & other.views or not _same_model(one, other):
        return False
    shared = one.keys.keys() & other.keys.keys() - {"key"}
    return not any(one.keys[kind].isdisjoint(other.keys[kind]) for kind in shared)


def _same_model(one: _Device, other: _Device) -> bool:
    pairs = ((one.vendor_id, other.vendor_id), (one.device_id, other.device_id))
    return all(a is None or b is None or a == b for a, b in pairs)


def _kind(device: _Device) -> str:
    return "GPU" if device.role in _GPUS else device.role


def _doubt(device: _Device) -> str:
    stated = "states no hardware key" if not device.keys else "states a key that nothing else has"
    if device.device_id is not None and not device.keys:
        stated = "states no more than its model"
    return (
        f"{device.engines[0]} {stated}, and this computer has several devices of the role "
        f"{device.role}: it may be one that is listed apart"
    )


def _number(settled: Settled, group: list[_Device], suffix: str) -> None:
    group = sorted(group, key=lambda d: (ROLES.index(d.role), _bus_order(d.keys), d.engines))
    counts = {role: sum(1 for d in group if d.role == role) for role in ROLES}
    within: dict[Role, int] = dict.fromkeys(ROLES, 0)
    numbers: dict[tuple[Role, str], int] = {}
    for device in group:
        role = device.role
        within[role] += 1
        identifier = f"{role.lower()}{suffix}"
        if counts[role] > 1:
            identifier = f"{identifier}-{within[role]}"
        raw = _raw_name(device)
        name = display_name(raw or _by_vendor(device), role)
        numbers[role, name] = numbers.get((role, name), 0) + 1
        details = _details(device, raw)
        if suffix:
            details["emulated"] = True
        settled.processors.append(
            Processor(
                id=identifier, role=role, name=name, number=numbers[role, name], details=details
            )
        )
        settled.owner.update(dict.fromkeys(device.engines, identifier))
        if device.keys.get("bus"):
            settled.bus[identifier] = min(device.keys["bus"])


def _raw_name(device: _Device) -> str | None:
    """Return the name that is sure to be this product's, else the first that an engine gives,
    else what its id may stand for."""
    card = device.card
    listed = one_line(card.name or "") if card is not None else ""
    if card is not None and card.name_sure and listed:
        return listed
    return next(iter(device.names), listed or None)


def _by_vendor(device: _Device) -> str | None:
    vendor = vendor_name(device.vendor_id)
    return None if vendor is None or device.role == "CPU" else f"{vendor} {device.role}"


def _details(device: _Device, raw: str | None) -> dict[str, Any]:
    details = dict(device.details)
    card = device.card
    if card is not None:
        details = {**details, **card.details}
        details |= {k: v for k in ("driver", "firmware") if (v := getattr(card, k)) is not None}
    if maker := vendor_name(device.vendor_id):
        details["maker"] = maker
    if device.role != "CPU" and device.vendor_id is not None and device.device_id is not None:
        details["model_id"] = f"{device.vendor_id:04x}:{device.device_id:04x}"
    if device.runtimes:
        details["runtimes"] = sorted(device.runtimes)
    details["raw_name"] = raw
    told = [(e, r) for e, r in device.roles.items() if e not in device.guessed]
    odd = next(((e, r) for e, r in told if r != told[0][1]), None)
    if odd is not None:
        device.said.append(f"{odd[0]} calls it {odd[1]}, {told[0][0]} {told[0][1]}")
    if device.said:
        details["identity"] = "; ".join(device.said)
    return details


def _bus_order(
    keys: dict[str, frozenset[str]],
) -> tuple[int, list[tuple[int, int | str]], str]:
    """Order bus addresses by number, before every other key in natural order, before none."""
    if keys.get("bus"):
        return (0, [(0, int(part, 16)) for part in re.split(r"[:.]", min(keys["bus"]))], "")
    every = [value for values in keys.values() for value in values]
    if not every:
        return (2, [], "")
    key = min(every)
    # A number is ordered by its length, then its digits: it may be longer than int takes.
    parts: list[tuple[int, int | str]] = []
    for digits, rest in re.findall(r"([0-9]+)|([^0-9]+)", key):
        plain = digits.lstrip("0")
        parts += [(0, len(plain)), (1, plain)] if digits else [(1, rest)]
    return (1, parts, key)
