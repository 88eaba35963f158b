"""Which cards a box total is made of, and with which configuration each (methodology §3b)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from npumark.pack.manifest import Manifest
from npumark.record.box import BoxLeftOut, BoxPlan, BoxRoleName, BoxSolo
from npumark.record.model import EngineRecord, Entry, Plan, Processor
from npumark.score.peak import no_score_reason

ROLES: tuple[BoxRoleName, ...] = ("iGPU", "dGPU", "NPU")
"""The CPU is never summed."""


@dataclass(frozen=True, slots=True)
class RoleCards:
    """The cards of a role that are measured at once, in the order of the processors.

    ``solos`` are their best solo configurations, ``left_out`` the other devices of the role.
    ``why`` says why no total can be formed, null where one can; ``solos`` may then lack cards.
    """

    role: BoxRoleName
    solos: tuple[BoxSolo, ...]
    left_out: tuple[BoxLeftOut, ...]
    why: str | None


def stage_why(options: Plan) -> str | None:
    """Return why a run has no box stage whatever its cards are; null where it may have one."""
    if options.box.mode == "off":
        return "the box stage was left out (--no-box)"
    if options.box.mode == "auto" and options.quick:
        return "a quick run leaves the box stage out (--box measures it)"
    chosen = (options.engines, options.workloads, options.variants)
    if options.box.mode == "auto" and any(names is not None for names in chosen):
        return "only a part of the run was asked for, without the box stage (--box measures it)"
    return None


def role_cards(
    engines: Sequence[EngineRecord],
    processors: Sequence[Processor],
    plan: BoxPlan,
    entries: Sequence[Entry],
    manifest: Manifest,
) -> list[RoleCards]:
    """Return the cards of each role that has two or more devices, or was asked for by name.

    A card's configuration is the highest peak among the engines on it that may be published
    and are not emulated, or the one that ``plan`` took from another record. ``engines`` hold
    their peaks. What an emulator stands for is no device.
    """
    devices = [p for p in processors if not p.details.get("emulated")]
    found = []
    for role in ROLES:
        own = [p for p in devices if p.role == role]
        if _wanted(role, own, plan):
            found.append(_of_role(role, own, _eligible(engines), plan, entries, manifest))
    return found


def nothing_to_sum(cards: Sequence[RoleCards]) -> str | None:
    """Return why a run with these roles has nothing to measure at once; null where it has."""
    return None if cards else "nothing to sum: no role has two or more devices"


def _wanted(role: BoxRoleName, devices: Sequence[Processor], plan: BoxPlan) -> bool:
    if plan.roles is not None and role not in plan.roles:
        return False
    if plan.cards is not None:
        return any(p.id in plan.cards for p in devices)
    return len(devices) > 1 or plan.roles is not None


def _eligible(engines: Sequence[EngineRecord]) -> list[EngineRecord]:
    """Return the engines that may stand for a card; virtual ones only among their own kind."""
    public = [e for e in engines if not e.local_only]
    scripted = all(e.virtual for e in public)
    return [e for e in public if not e.emulated and (scripted or not e.virtual)]


def _of_role(
    role: BoxRoleName,
    devices: Sequence[Processor],
    engines: Sequence[EngineRecord],
    plan: BoxPlan,
    entries: Sequence[Entry],
    manifest: Manifest,
) -> RoleCards:
    solos: list[BoxSolo] = []
    left_out: list[BoxLeftOut] = []
    faults: list[str] = []
    asked = [p for p in devices if plan.cards is None or p.id in plan.cards]
    for device in devices:
        reaching = [e for e in engines if e.processor == device.id]
        if device not in asked:
            left_out.append(BoxLeftOut(card=device.id, why="it was not asked for"))
        elif not reaching:
            why = "no engine of this run whose results may be published reaches it"
            left_out.append(BoxLeftOut(card=device.id, why=why))
        elif doubt := device.details.get("identity"):
            faults.append(f"which device {device.id} is cannot be told: {doubt}")
        else:
            solo = _solo(device.id, reaching, plan, entries, manifest)
            if isinstance(solo, BoxSolo):
                solos.append(solo)
            else:
                faults.append(solo)
    if not faults and len(solos) < 2:
        faults.append(_too_few(role, solos))
    return RoleCards(role, tuple(solos), tuple(left_out), "; ".join(faults) or None)


def _too_few(role: BoxRoleName, solos: Sequence[BoxSolo]) -> str:
    there = f"{solos[0].card} is the only {role}" if solos else f"there is no {role}"
    return f"nothing to sum: {there} to measure"


def _solo(
    card: str,
    engines: Sequence[EngineRecord],
    plan: BoxPlan,
    entries: Sequence[Entry],
    manifest: Manifest,
) -> BoxSolo | str:
    """Return a card's configuration, or a sentence that says why it has none."""
    if plan.solo:
        given = next((s for s in plan.solo if s.card == card), None)
        if given is None:
            return f"the record that the peaks are taken from gives none for {card}"
        return next(_unusable(given, engines, manifest), given)
    best: BoxSolo | None = None
    for engine in engines:
        peak = engine.peak
        if peak is not None and (best is None or peak.tops > best.tops):
            best = BoxSolo(
                card=card,
                engine=engine.id,
                workload=peak.workload,
                variant=peak.variant,
                format=peak.format,
                label=peak.label,
                tops=peak.tops,
                unstable=peak.unstable,
                source=None,
            )
    if best is not None:
        return best
    names = {e.id for e in engines}
    why = no_score_reason([e for e in entries if e.engine in names], engines, manifest)
    return f"{card} has no peak of its own: {why}"


def _unusable(solo: BoxSolo, engines: Sequence[EngineRecord], manifest: Manifest) -> Iterator[str]:
    """Yield why a peak of another record cannot be measured again here."""
    if solo.engine not in {e.id for e in engines}:
        yield f"{solo.engine}, whose peak the other record gives, is no engine of {solo.card} here"
    workload = manifest.workloads.get(solo.workload)
    if workload is None or workload.tier != "peak":
        yield f"{solo.workload}, which the other record measured, is no peak test of this pack"
