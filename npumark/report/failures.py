"""What went wrong, grouped by its kind and reason, and what to do about each."""

from __future__ import annotations

from npumark.record.model import Entry, Payload
from npumark.report.advice import STATUS, advice
from npumark.report.sheet import BAD, DIM, Sheet
from npumark.report.words import count

_ORDER = (
    "crashed",
    "timeout",
    "no_result",
    "wrong_device",
    "pack_error",
    "gate_failed",
    "interrupted",
    "skipped",
    "unsupported",
)
_FAULTS = frozenset(_ORDER[:6])
_LOG_LINES = 3


def failures(sheet: Sheet, run: Payload) -> None:
    """Add each kind of failure once, with the entries it met and the reasons they gave."""
    groups = {s: [e for e in run.entries if e.status == s] for s in _ORDER}
    if not any(groups.values()):
        return
    sheet.heading("What was not measured, or does not count")
    for status, entries in groups.items():
        if not entries:
            continue
        says = advice(STATUS, status)
        title = f"{status.replace('_', ' ')}: {count(len(entries), 'entry', 'entries')}"
        sheet.say(title, indent=2, style=BAD if status in _FAULTS else "")
        for why, met in _by_reason(entries).items():
            names = ", ".join(met)
            sheet.say(f"{names}: {why}" if why else names, indent=4, hang=2)
        tail = next((t for e in entries if (t := _log_tail(e))), None)
        if tail and status in _FAULTS:
            for line in tail:
                sheet.say(f"| {line}", indent=4, hang=2, style=DIM)
        sheet.say(str(says), indent=4, hang=0)


def _by_reason(entries: list[Entry]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for entry in entries:
        name = f"{entry.engine} {entry.workload} {entry.variant}"
        found.setdefault(_reason(entry), []).append(name)
    return found


def _reason(entry: Entry) -> str:
    gate = entry.gates.standard
    if entry.status == "gate_failed" and gate is not None and gate.why:
        return gate.why
    return entry.why or ""


def _log_tail(entry: Entry) -> list[str] | None:
    for attempt in reversed(entry.attempts):
        if attempt.log_tail and attempt.log_tail.strip():
            return [x.rstrip() for x in attempt.log_tail.strip().splitlines()[-_LOG_LINES:]]
    return None
