"""The engines of this computer as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from npumark.record.model import Processor
from npumark.report.page import Page
from npumark.report.sheet import DIM, GOOD, STRONG, WARN, Part, Sheet
from npumark.report.words import count
from npumark.worker.protocol import EngineInfo


def render_engines(
    engines: Sequence[EngineInfo], processors: Mapping[str, Processor], page: Page
) -> str:
    """Return the engines that can be measured, then the others with their reasons.

    ``processors`` maps an available engine's id to the device it runs on.
    """
    sheet = Sheet(page)
    working = [e for e in engines if e.available]
    sheet.say(
        f"{count(len(working), 'engine')} can be measured here."
        if working
        else "No engine can be measured here.",
        style=STRONG if working else WARN,
    )
    for engine in working:
        sheet.blank()
        sheet.line((engine.id, GOOD), ("  emulated" if engine.emulated else "", WARN))
        sheet.facts(_facts(engine, processors.get(engine.id)), indent=2)
    others = [e for e in engines if not e.available]
    if others:
        sheet.heading("Not available")
        for engine in others:
            sheet.say(f"{engine.id}: {engine.reason or 'no reason was given'}", indent=2, hang=2)
    return sheet.text()


def _facts(engine: EngineInfo, processor: Processor | None) -> list[tuple[str, list[Part]]]:
    device = f"{processor.role} · {processor.name}" if processor else "unknown"
    version = f"{engine.runtime_title} {engine.version or '(version unknown)'}"
    facts: list[tuple[str, list[Part]]] = [
        ("runtime", [version]),
        ("processor", [device]),
        ("measures", [", ".join(engine.variants) or "nothing"]),
    ]
    if engine.extra_variants:
        only = ", ".join(engine.extra_variants)
        facts.append(("", [only, ("with --all-variants", DIM)]))
    return facts
