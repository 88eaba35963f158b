"""A plan before it is carried out: entries, space and time."""

from __future__ import annotations

from collections.abc import Sequence

from npumark.orchestrator.run import DryRun
from npumark.report.page import Page
from npumark.report.progress import ON_TOP
from npumark.report.sheet import DIM, STRONG, WARN, Part, Sheet
from npumark.report.words import count, duration, size
from npumark.score.planned import Planned

_TIERS = {
    "peak": "Peak test",
    "large": "Large-batch peak",
    "scored": "Scored networks",
    "extra": "Extras",
}


def render_plan(found: DryRun, page: Page) -> str:
    """Return what a run would measure, the space it needs and the time it may take.

    The time is a projection from the policy alone; it says so.
    """
    sheet = Sheet(page)
    active = [p for p in found.plan if p.skip is None]
    measured = f"{count(len(active), 'entry', 'entries')} on {count(_engines(active), 'engine')}"
    if found.box.solo:
        measured = "All cards at once and nothing else, with the solo peaks of another record"
    sheet.say(f"{measured}; nothing has been measured.", style=STRONG)
    for tier, title in _TIERS.items():
        _tier(sheet, title, [p for p in active if p.tier == tier])
    _box(sheet, found)
    skipped = [p for p in found.plan if p.skip is not None]
    if skipped or found.large_why:
        sheet.heading("Left out")
        if found.large_why:
            sheet.say(f"The large-batch peak: {found.large_why}", indent=2, hang=2)
        for planned in skipped:
            sheet.say(f"{planned}: {planned.skip}", indent=2, hang=2)
    sheet.blank()
    sheet.facts(_needs(found))
    return sheet.text()


def _tier(sheet: Sheet, title: str, entries: Sequence[Planned]) -> None:
    if not entries:
        return
    sheet.heading(title)
    for workload in dict.fromkeys(p.workload for p in entries):
        sheet.line(workload, indent=2)
        mine = [p for p in entries if p.workload == workload]
        rows: list[tuple[str, Sequence[Part]]] = [
            (engine, [", ".join(p.variant for p in mine if p.engine == engine)])
            for engine in dict.fromkeys(p.engine for p in mine)
        ]
        sheet.facts(rows, indent=4)


def _box(sheet: Sheet, found: DryRun) -> None:
    if not found.box.choices:
        return
    sheet.heading("All cards at once")
    rows: list[tuple[str, Sequence[Part]]] = [
        (c.role, [", ".join(p.id for p in c.cards)] if c.why is None else [(c.why, WARN)])
        for c in found.box.choices
    ]
    sheet.facts(rows, indent=2)
    for solo in found.box.solo:
        sheet.line(f"{solo.card}: {solo.engine} · {solo.workload} · {solo.variant}", indent=2)


def _needs(found: DryRun) -> list[tuple[str, Sequence[Part]]]:
    alone, at_once = (
        _range(*map(str, bounds)) if bounds[1] else ""
        for bounds in (found.estimate.attempts, found.box_attempts)
    )
    attempts: list[Part] = [f"{alone} alone" if at_once else alone] if alone else []
    attempts += [f"{at_once} at all cards at once"] if at_once else []
    soon, late = (
        s + found.idle_window_s + box
        for s, box in zip(found.estimate.seconds, found.box_s, strict=True)
    )
    space: list[Part] = [f"{size(found.estimate.pack_bytes)} of pack files are read"]
    if found.missing_bytes > found.free_bytes:
        space.append((f"{size(found.missing_bytes)} to be made: more than is free", WARN))
    else:
        space.append(f"{size(found.missing_bytes)} to be made first" * bool(found.missing_bytes))
    space.append((f"{size(found.free_bytes)} free", DIM))
    return [
        ("attempts", attempts or ["0"]),
        (
            "time",
            [
                f"projected {_range(duration(soon), duration(late))}",
                (f"of watching, warm-ups and timed loops; {ON_TOP}", DIM),
            ],
        ),
        ("space", [part for part in space if part]),
        ("pack", [str(found.pack_root)]),
    ]


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _engines(entries: Sequence[Planned]) -> int:
    return len({p.engine for p in entries})
