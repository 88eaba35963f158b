"""What went wrong, grouped by its kind and reason, and what to do about each."""

from __future__ import annotations

import re
from pathlib import Path

from npumark.record.model import Entry, Payload
from npumark.report.advice import ENTRIES, advice
from npumark.report.entries import last_words
from npumark.report.sheet import BAD, DIM, Sheet
from npumark.report.words import count, plainly

_BY_DESIGN = frozenset({"screened"})
_NO_FAULT = frozenset({"skipped", "unsupported", "unvalidated", "division", "not_started"})
_NO_MEMORY = re.compile(r"(out|lack) of memory")


def failures(sheet: Sheet, run: Payload, logs: Path | None = None) -> None:
    """Add each kind of failure once, with the entries it met and the reasons they gave, and the
    folder ``logs`` of the workers' logs."""
    groups: dict[str, list[Entry]] = {code: [] for code in ENTRIES}
    for entry in run.entries:
        if entry.why_not is not None and entry.why_not not in _BY_DESIGN:
            groups.setdefault(_code(entry, entry.why_not), []).append(entry)
    met = {code: entries for code, entries in groups.items() if entries}
    if not met:
        return
    sheet.heading("What was not measured, or does not count")
    for code, entries in met.items():
        fault = code not in _NO_FAULT
        title = f"{code.replace('_', ' ')}: {count(len(entries), 'entry', 'entries')}"
        sheet.say(title, indent=2, style=BAD if fault else "")
        for why, names in _by_reason(entries).items():
            sheet.say(f"{', '.join(names)}: {why}", indent=4, hang=2)
        for line in dict.fromkeys(filter(None, map(_last_words, entries))):
            sheet.say(f"| {line}", indent=4, hang=2, style=DIM)
        sheet.say(str(advice(ENTRIES, code)), indent=4)
    if logs is not None and any(a.log_tail for e in run.entries for a in e.attempts):
        sheet.path("Logs:", str(logs), indent=2)


def _code(entry: Entry, why_not: str) -> str:
    """Return the reason code, told apart where the same ending asks for another next step."""
    if why_not == "crashed" and _NO_MEMORY.search(entry.why or ""):
        return "out_of_memory"
    return why_not


def _by_reason(entries: list[Entry]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for entry in entries:
        name = f"{entry.engine} {entry.workload} {entry.variant}"
        found.setdefault(plainly(entry.why or "no reason was recorded"), []).append(name)
    return found


def _last_words(entry: Entry) -> str | None:
    return next((said for a in reversed(entry.attempts) if (said := last_words(a))), None)
