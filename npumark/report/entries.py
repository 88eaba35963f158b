"""An entry in words: its format, what became of it, and why it does not count."""

from __future__ import annotations

from npumark.gates.measures import MEASURES
from npumark.record.box import BoxCardRun
from npumark.record.model import Attempt, Entry
from npumark.report.sheet import BAD, DIM, GOOD, WARN, Part
from npumark.report.words import DASH, count, margin, part, percent, plainly
from npumark.score.labels import declared_label, format_label

_ENDED = {
    "crashed": "crashed",
    "timeout": "did not finish in time",
    "no_result": "gave no result",
}
"""What an attempt did that died, by its status."""


def label(entry: Entry) -> str:
    """Return the format an entry ran in, or the declared one where it never ran; its engine's
    marks stand above it."""
    if entry.figure is None:
        return declared_label(entry.declared_format, entry.variant)
    return format_label(entry.declared_format, entry.format, variant=entry.variant)


def state(entry: Entry) -> str:
    """Return what became of an entry that does not count, in a word or two."""
    return "not counted" if entry.figure is not None else entry.status.replace("_", " ")


def reason(entry: Entry) -> str:
    """Return in words why ``entry`` does not count."""
    return plainly(entry.why or (entry.why_not or entry.status).replace("_", " "))


def deaths(entry: Entry) -> list[str]:
    """Return a sentence for each way in which attempts of ``entry`` died, but for the one that
    is the entry's own reason not to count."""
    listed = {c.attempt for c in entry.crashed_attempts}
    own = (entry.status, entry.why) if not entry.counts else None
    dead = [a for a in entry.attempts if a.n in listed and (a.status, a.why) != own]
    return [
        _died([a.n for a in dead if (a.status, a.why) == way], *way)
        for way in dict.fromkeys((a.status, a.why) for a in dead)
    ]


def gate_margin(entry: Entry) -> Part:
    """Return the margin to the standard gate's binding bound, or a dash."""
    gate = entry.gates.standard
    if gate is None:
        return (DASH, DIM)
    unit = MEASURES[gate.binding].unit if gate.binding in MEASURES else ""
    return (margin(gate.binding, gate.margin, unit), GOOD if gate.passed else BAD)


def stability(entry: Entry) -> Part:
    """Return the robust CV over the attempts, or a dash where one alone says nothing of it."""
    stats = entry.stats
    if stats.screened:
        return ("screened", DIM)
    if stats.attempts < 2 or stats.robust_cv is None:
        return (DASH, DIM)
    return (percent(stats.robust_cv), WARN if stats.unstable else "")


def place(entry: Entry, role: str) -> Part:
    """Return where an entry ran, in a few words: ``NPU 97 % (profile)``, ``CPU 100 %``."""
    placement = entry.placement
    if placement.verdict is None:
        return (DASH, DIM)
    words = [role]
    if placement.verdict != "proved":
        words.append(placement.verdict)
    if placement.share is not None:
        words.append(part(placement.share))
    if role != "CPU" and placement.evidence not in (None, "none"):
        words.append(f"({placement.evidence})")
    return (" ".join(words), "" if placement.eligible else WARN)


def pieces(entry: Entry, role: str) -> str | None:
    """Return what else is known of where an entry ran, on another processor than a CPU or where
    not all of it ran there: its share of operators, and the partitions of its graph."""
    placement = entry.placement
    whole = placement.share is None or placement.share == 1.0
    if placement.verdict is None or (role == "CPU" and whole):
        return None
    known = []
    if placement.op_share is not None:
        known.append(f"{part(placement.op_share)} of the operators")
    if placement.partitions is not None:
        known.append(count(placement.partitions, "partition"))
    return ", ".join(known) or None


def _died(numbers: list[int], status: str, why: str | None) -> str:
    which = f"Attempt{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
    return f"{which} {_ENDED.get(status, status)}{f': {why}' if why else ''}."


def last_words(attempt: Attempt | BoxCardRun) -> str | None:
    """Return the last line of an attempt's log that tells more than its reason does, or None.

    The lines of a traceback tell where in the program it happened; they are in the log.
    """
    lines = [x.rstrip() for x in (attempt.log_tail or "").splitlines()]
    said = [x for x in lines if x and not x[0].isspace() and not x.startswith(_TRACES)]
    if not said or (attempt.why and attempt.why in said[-1]):
        return None
    return said[-1]


_TRACES = (
    "Traceback (most recent call last)",
    "The above exception was the direct cause",
    "During handling of the above exception",
    "Current thread 0x",
    "Thread 0x",
    "Extension modules: ",
)
