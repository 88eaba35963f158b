"""The engines of this computer: what works on each processor, and what the rest is missing."""

from __future__ import annotations

from collections.abc import Sequence

from npumark.orchestrator.reach import environment_for, lack, needs_of, remedies, unreached
from npumark.orchestrator.survey import Survey
from npumark.record.model import Processor
from npumark.report.page import Page
from npumark.report.processors import processor_name
from npumark.report.sheet import DIM, GOOD, STRONG, WARN, Part, Sheet
from npumark.report.words import count
from npumark.score.labels import engine_marks
from npumark.worker.protocol import EngineInfo


def render_engines(found: Survey, page: Page) -> str:
    """Return the engines that can be measured, by processor; the processors that none drives;
    then what is not available: what fails here, what can be installed, what is for another
    system."""
    sheet = Sheet(page)
    working = [e for e in found.infos if e.available]
    _summary(sheet, working)
    for processor in found.processors:
        mine = [e for e in working if found.owner[e.id] == processor.id]
        if mine:
            _processor(sheet, processor, mine, found)
    _unreached(sheet, found)
    _unlisted(sheet, found)
    missing = [e for e in found.infos if not e.available]
    _broken(sheet, [e for e in missing if lack(e) == "broken"])
    _installable(sheet, [e for e in missing if lack(e) == "absent"])
    elsewhere = [e.id for e in missing if lack(e) == "elsewhere"]
    if elsewhere:
        sheet.heading("For other systems")
        sheet.say(", ".join(elsewhere), indent=2)
    return sheet.text()


def _summary(sheet: Sheet, working: Sequence[EngineInfo]) -> None:
    emulated = [e for e in working if e.emulated]
    real = len(working) - len(emulated)
    if real:
        sheet.say(f"{count(real, 'engine')} can be measured here.", style=STRONG)
    else:
        sheet.say("No engine can be measured here.", style=WARN)
    if emulated:
        also = ", ".join(e.id for e in emulated)
        sheet.say(
            f"Emulated, measured with --include-emulated alone and never scored: {also}.",
            style=WARN,
        )


def _processor(
    sheet: Sheet, processor: Processor, engines: Sequence[EngineInfo], found: Survey
) -> None:
    sheet.heading(processor_name(processor, found.processors))
    known = processor.details
    told = [str(known[k]) for k in ("driver", "firmware") if known.get(k)]
    if told:
        sheet.say(" · ".join(told), indent=2, style=DIM)
    if doubt := known.get("identity"):
        sheet.say(f"In doubt: {doubt}.", indent=2, hang=2, style=WARN)
    for engine in engines:
        marks = ", ".join(engine_marks(engine))
        sheet.parts([(engine.id, GOOD), *([(marks, WARN)] if marks else [])], indent=2)
        sheet.facts(_facts(engine), indent=4)


def _facts(engine: EngineInfo) -> list[tuple[str, list[Part]]]:
    runtime: list[Part] = [f"{engine.runtime_title} {engine.version or '(version unknown)'}"]
    if engine.environment is not None:
        runtime.append((f"environment {engine.environment}", DIM))
    if engine.package is not None:
        runtime.append((f"from the package {engine.package}", WARN))
    facts: list[tuple[str, list[Part]]] = [("runtime", runtime)]
    extra = ", ".join(engine.extra_variants)
    if engine.variants or not extra:
        facts.append(("measures", [", ".join(engine.variants) or "nothing"]))
        if extra:
            facts.append(("", [extra, ("with --all-variants", DIM)]))
    else:
        facts.append(("measures", [extra, ("only when it is named", DIM)]))
    if engine.note:
        facts.append(("note", [(engine.note, WARN)]))
    return facts


def _unreached(sheet: Sheet, found: Survey) -> None:
    idle = unreached(found.processors, found.owner)
    if not idle:
        return
    sheet.heading("No engine here drives")
    for processor in idle:
        sheet.line((processor_name(processor, found.processors), WARN), indent=2)
        ways = remedies(processor, found.infos)
        for way in ways:
            sheet.say(str(way), indent=4, hang=2)
        if not ways:
            sheet.say("npumark knows no engine for it on this system", indent=4, hang=2)


def _unlisted(sheet: Sheet, found: Survey) -> None:
    """Say that there may be processors which the system could not be asked for."""
    if not found.lacks:
        return
    sheet.heading("May be missing above")
    for said in found.lacks:
        sheet.say(f"{said}; update or reinstall its card's driver", indent=2, hang=2)


def _broken(sheet: Sheet, engines: Sequence[EngineInfo]) -> None:
    """Add what is here and does not work, by runtime; engines with one reason share a line."""
    if not engines:
        return
    sheet.heading("Not available")
    for runtime in dict.fromkeys(e.runtime for e in engines):
        by_reason: dict[str, list[str]] = {}
        for engine in engines:
            if engine.runtime == runtime:
                reason = engine.reason or "no reason was given"
                by_reason.setdefault(reason, []).append(engine.id)
        for reason, ids in by_reason.items():
            sheet.say(f"{', '.join(ids)}: {reason}", indent=2, hang=2)


def _installable(sheet: Sheet, engines: Sequence[EngineInfo]) -> None:
    if not engines:
        return
    sheet.heading("Can be added with `npumark engines install NAME`")
    names: dict[str, list[EngineInfo]] = {}
    for engine in engines:
        names.setdefault(environment_for(engine) or "", []).append(engine)
    rows: list[tuple[str, list[Part]]] = []
    for name, brought in names.items():
        rows.append((name, [", ".join(e.id for e in brought), *_note(brought)]))
    sheet.facts(rows, indent=2)


def _note(engines: Sequence[EngineInfo]) -> list[Part]:
    """Return what engines that could be installed still need, in brackets, nothing twice."""
    needs = sorted({needs for e in engines if (needs := needs_of(e))})
    more = [n for n in needs if not any(n != other and n in other for other in needs)]
    return [(f"(also needs {'; '.join(more)})", DIM)] if more else []
