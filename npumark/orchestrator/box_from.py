"""Solo peaks that another record gives: believed only where it recomputes, and of these cards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from npumark.errors import IntegrityError, UsageError
from npumark.machine.identity import other_machine
from npumark.orchestrator.box_choice import RoleChoice
from npumark.orchestrator.plan import entry_of
from npumark.orchestrator.request import RunRequest
from npumark.orchestrator.select import named_engines
from npumark.orchestrator.survey import Survey
from npumark.pack.manifest import Manifest
from npumark.pack.pin import PINNED_MANIFEST_SHA256
from npumark.policy import Policy
from npumark.record.box import BoxPlan, BoxSolo, BoxSource
from npumark.record.files import read_record
from npumark.record.model import EngineRecord, Payload, Processor, Record
from npumark.score.box_cards import role_cards
from npumark.score.planned import Planned
from npumark.score.recompute import recompute

_SHOWN = 6


def verified(path: Path, manifest: Manifest, policy: Policy) -> Record:
    """Return the record at ``path``, every figure of which follows from its attempts.

    Raises UsageError where there is none, IntegrityError where it is damaged, was edited or does
    not recompute, as ``npumark verify`` does.
    """
    record = read_record(path)
    found = recompute(
        record.payload,
        manifest,
        policy,
        pinned_sha256=PINNED_MANIFEST_SHA256,
        now=datetime.now(UTC),
    )
    if found:
        raise IntegrityError(
            f"{path} does not recompute: {len(found)} of its values are not what its attempts "
            f"give; first {found[0]}",
            f"`npumark verify {path}` names each. Without --from the peaks are measured anew.",
        )
    return record


def solo_peaks(
    record: Record,
    request: RunRequest,
    choices: Sequence[RoleChoice],
    survey: Survey,
    manifest: Manifest,
    machine: Mapping[str, Any],
) -> tuple[BoxSolo, ...]:
    """Return the best solo configuration of each chosen card, as ``record`` gives it.

    ``machine`` is this computer (machine.identity.machine). Raises UsageError, naming what
    differs, where it, a card or its engine here is not the one that was measured there, where the
    record has no peak of a card, and where its run was quick and the one that is asked for is not.
    """
    source = record.payload
    if source.plan.quick and not request.quick:
        raise UsageError(
            f"{source.run_id} is of a quick run, whose peaks are of short loops",
            "Name a record of a whole run, or add --quick.",
        )
    if moved := list(other_machine(source.machine, machine)):
        raise UsageError(
            f"{source.run_id} is of another computer: {'; '.join(moved)}",
            "Without --from the peaks are measured first.",
        )
    for given in source.plan.box.solo[:1]:
        other = f", {given.source.run_id}" if given.source else ""
        raise UsageError(
            f"{source.run_id} took its peaks from another record{other}", "Name that one in --from."
        )
    wanted = BoxPlan(
        mode="only",
        roles=[c.role for c in choices],
        cards=[p.id for c in choices for p in c.cards],
        solo=[],
    )
    engines = _meant(source, request, survey)
    roles = role_cards(engines, source.processors, wanted, source.entries, manifest)
    solos = {solo.card: solo for cards in roles for solo in cards.solos}
    odd = [text for choice in choices for text in _odd(choice, source, solos, survey)]
    if odd:
        more = f"; and {len(odd) - _SHOWN} more" if len(odd) > _SHOWN else ""
        raise UsageError(
            f"{source.run_id} has no peaks of these cards: {'; '.join(odd[:_SHOWN])}{more}",
            "Without --from the peaks are measured first.",
        )
    origin = BoxSource(
        run_id=source.run_id,
        payload_sha256=record.payload_sha256,
        quick=source.plan.quick,
        noisy=source.environment.noisy,
    )
    return tuple(
        solos[p.id].model_copy(update={"source": origin}) for c in choices for p in c.cards
    )


def notes(solos: Sequence[BoxSolo], record: Record, survey: Survey) -> tuple[str, ...]:
    """Return what is told of peaks that are taken from ``record``: whose they are, that its
    computer was noisy, and which versions of their engines' parts and drivers changed since."""
    source = record.payload
    changed = dict.fromkeys(text for solo in solos for text in _changed(solo, source, survey))
    told = [f"the peaks are those of {source.run_id}"]
    told += ["they were measured on a noisy machine"] if source.environment.noisy else []
    told += [f"since they were measured, {text}" for text in changed]
    return tuple(told)


def plan_of(solos: Sequence[BoxSolo], survey: Survey, manifest: Manifest) -> tuple[Planned, ...]:
    """Return how the configurations are run here. Raises UsageError where one no longer can be."""
    planned = []
    for solo in solos:
        entry = entry_of(
            manifest.workloads[solo.workload], survey.engine(solo.engine).info, solo.variant
        )
        if entry is None:
            raise UsageError(
                f"the pack has no {solo.workload}/{solo.variant}, the peak of {solo.card}",
                "Without --from the peaks are measured first.",
            )
        planned.append(entry)
    return tuple(planned)


def _meant(source: Payload, request: RunRequest, survey: Survey) -> list[EngineRecord]:
    """Return the engines of a record that the request does not leave out by name."""
    if request.engines is None:
        return list(source.engines)
    named = {e.id for e in named_engines(survey.infos, request.engines)}
    return [e for e in source.engines if e.id in named]


def _odd(
    choice: RoleChoice, source: Payload, solos: Mapping[str, BoxSolo], survey: Survey
) -> Iterator[str]:
    """Yield what of a role's cards is otherwise than it was where the record was made."""
    there = {p.id: p for p in source.processors if p.role == choice.role}
    here = {p.id: p for p in survey.processors if p.role == choice.role}
    if there.keys() != here.keys():
        yield (
            f"it lists {', '.join(there) or f'no {choice.role}'}, and this computer has "
            f"{', '.join(here)}"
        )
        return
    for card in choice.cards:
        known = there[card.id]
        if _model(known) != _model(card):
            yield f"{card.id} is {_told(card)} here and {_told(known)} there"
        elif card.id not in solos:
            yield f"it has no peak of {card.id} that counts"
        else:
            yield from _engine(solos[card.id], source, survey)


def _engine(solo: BoxSolo, source: Payload, survey: Survey) -> Iterator[str]:
    found = next((f.info for f in survey.found if f.info.id == solo.engine), None)
    if found is None or not found.available:
        why = f": {found.reason}" if found is not None and found.reason else ""
        yield f"{solo.engine}, which led on {solo.card}, is not available here{why}"
        return
    if survey.owner[solo.engine] != solo.card:
        yield f"{solo.engine} runs on {survey.owner[solo.engine]} here and on {solo.card} there"
    before = next(e.version for e in source.engines if e.id == solo.engine)
    if before != found.version:
        yield f"{solo.engine} is version {found.version} here and {before} there"


def _changed(solo: BoxSolo, source: Payload, survey: Survey) -> Iterator[str]:
    engine = next(e for e in source.engines if e.id == solo.engine)
    now = survey.engine(solo.engine).info.versions
    for part in sorted({*engine.versions, *now}):
        if engine.versions.get(part) != now.get(part):
            yield (
                f"{part} of {engine.runtime} has changed from "
                f"{engine.versions.get(part, 'none')} to {now.get(part, 'none')}"
            )
    before = next(p.details for p in source.processors if p.id == solo.card)
    after = next(p.details for p in survey.processors if p.id == solo.card)
    for part in ("driver", "firmware"):
        if before.get(part) != after.get(part):
            yield (
                f"the {part} of {solo.card} has changed from "
                f"{before.get(part, 'an unknown one')} to {after.get(part, 'an unknown one')}"
            )


def _model(card: Processor) -> tuple[str, int, object]:
    return card.name, card.number, card.details.get("model_id")


def _told(card: Processor) -> str:
    model = card.details.get("model_id")
    return f"{card.name} #{card.number}" + (f" ({model})" if model else "")
