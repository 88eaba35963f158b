"""What went wrong, grouped by its kind and reason, and what to do about each."""

from __future__ import annotations

from npumark.record.model import Entry, Payload
from npumark.report.advice import ENTRIES, advice
from npumark.report.sheet import BAD, DIM, Sheet
from npumark.report.words import count

_BY_DESIGN = frozenset({"screened"})
_NO_FAULT = frozenset({"skipped", "unsupported", "unvalidated", "division", "not_started"})
_LOG_LINES = 3


def failures(sheet: Sheet, run: Payload) -> None:
    """Add each kind of failure once, with the entries it met and the reasons they gave."""
    groups: dict[str, list[Entry]] = {code: [] for code in ENTRIES}
    for entry in run.entries:
        if entry.why_not is not None and entry.why_not not in _BY_DESIGN:
            groups.setdefault(entry.why_not, []).append(entry)
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
        tail = next((t for e in entries if (t := _log_tail(e))), None)
        for line in tail or ():
            sheet.say(f"| {line}", indent=4, hang=2, style=DIM)
        sheet.say(str(advice(ENTRIES, code)), indent=4)


def _by_reason(entries: list[Entry]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for entry in entries:
        name = f"{entry.engine} {entry.workload} {entry.variant}"
        found.setdefault(entry.why or "no reason was recorded", []).append(name)
    return found


def _log_tail(entry: Entry) -> list[str] | None:
    for attempt in reversed(entry.attempts):
        if attempt.log_tail and attempt.log_tail.strip():
            return [x.rstrip() for x in attempt.log_tail.strip().splitlines()[-_LOG_LINES:]]
    return None
