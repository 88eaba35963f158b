"""The box total of each role: all cards at once beside each card alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from npumark.policy import load_policy
from npumark.record.box import BoxAttempt, BoxCard, BoxRole, BoxSolo
from npumark.record.model import Payload
from npumark.report.charts import bar
from npumark.report.entries import last_words
from npumark.report.page import Page, width_of
from npumark.report.sheet import DIM, STRONG, WARN, Part, Sheet
from npumark.report.words import DASH, count, duration, figure, percent, plainly, shape, tops

_WIDEST_BAR = 40
_SIDE_BY_SIDE = 8
"""Columns that a bar needs at the least to stand beside its figures."""


def box_lines(run: Payload) -> list[str]:
    """Return a line per box total, for the head of a report."""
    roles = run.box.roles if run.box else []
    return [
        f"Box total {tops(r.tops)} TOPS · {_cards(r)} · scaling {figure(r.scaling)}"
        for r in roles
        if r.tops is not None
    ]


def box(sheet: Sheet, run: Payload, logs: Path | None = None) -> None:
    """Add a block per role whose cards were measured at once, or why there is none although it
    was asked for, and the folder ``logs`` of the workers' logs where a card left one."""
    if run.box is None:
        if run.plan.box.mode in ("on", "only") and run.box_why:
            sheet.blank()
            sheet.say(f"No box total: {run.box_why}.", style=WARN)
        return
    for role in run.box.roles:
        _role(sheet, run, role)
    told = (c.log_tail for r in run.box.roles for a in r.attempts for c in a.cards)
    if logs is not None and any(told):
        sheet.path("Logs:", str(logs), indent=2)


def void_of_all(run: Payload) -> tuple[int, int]:
    """Return how many attempts at all cards at once are void, and how many were made."""
    made = [a for r in (run.box.roles if run.box else []) for a in r.attempts if a.status == "ran"]
    return sum(not a.counts for a in made), len(made)


def _role(sheet: Sheet, run: Payload, role: BoxRole) -> None:
    sheet.heading(f"All at once: {_cards(role)}")
    sheet.facts(_facts(role), indent=2)
    _chart(sheet, run, role)
    for left in role.left_out:
        sheet.say(f"Left out: {left.card}: {left.why}", indent=2, hang=2)
    _void(sheet, role.attempts)


def _cards(role: BoxRole) -> str:
    """Return ``8 dGPUs``, with their name where they share one."""
    names = _names(role)
    return f"{count(len(role.cards), role.role)}{f' · {names[0]}' if len(names) == 1 else ''}"


def _names(role: BoxRole) -> list[str]:
    return list(dict.fromkeys(card.name for card in role.cards))


def _facts(role: BoxRole) -> list[tuple[str, list[Part]]]:
    facts: list[tuple[str, list[Part]]] = []
    counted = [a for a in role.attempts if a.counts]
    if role.tops is None:
        facts.append(("total", [DASH, (plainly(role.why or "the reason was not recorded"), WARN)]))
    else:
        of = "1 attempt" if len(counted) == 1 else f"median of {count(len(counted), 'attempt')}"
        agree = len(counted) > 1 and role.agreement is not None
        total: list[Part] = [(f"{tops(role.tops)} TOPS", STRONG), of]
        total += [f"which agree within {percent(role.agreement)}"] if agree else []
        facts.append(("total", [*total, ("beside the score, never part of it", DIM)]))
    if role.scaling is not None:
        alone = f"of {tops(role.solo_tops)} TOPS, which the cards reach one at a time, summed"
        facts.append(("scaling", [(figure(role.scaling), STRONG), alone]))
    facts.append(("attempts", _attempts(role.attempts)))
    started = [a.skew_ns for a in counted if a.skew_ns is not None]
    if started:
        facts.append(("start", [f"all cards within {duration(max(started) / 1e9)}"]))
    if bound := _bound(role.attempts):
        facts.append(("workers", bound))
    return facts


def _attempts(attempts: Sequence[BoxAttempt]) -> list[Part]:
    counted = sum(a.counts for a in attempts)
    stopped = sum(a.status == "interrupted" for a in attempts)
    skipped = sum(a.status == "skipped" for a in attempts)
    void = len(attempts) - counted - stopped - skipped
    parts: list[Part] = [f"{counted} counted"]
    parts += [(f"{void} void", WARN)] if void else []
    parts += [(f"{stopped} interrupted", WARN)] if stopped else []
    parts += [(f"{skipped} skipped", WARN)] if skipped else []
    lengths = {a.window_ns for a in attempts}
    parts += [(f"each in one window of {duration(min(lengths) / 1e9)}", DIM)] if lengths else []
    return parts


def _bound(attempts: Sequence[BoxAttempt]) -> list[Part]:
    """Return what the workers of the last attempt were bound to, or why they were not."""
    pins = [card.pin for card in attempts[-1].cards] if attempts else []
    bound = [pin for pin in pins if pin.cpus is not None]
    parts: list[Part] = []
    if bound:
        nodes = sorted({pin.numa_node for pin in bound if pin.numa_node is not None})
        where = f"NUMA node {', '.join(map(str, nodes))}" if nodes else "given CPUs"
        parts.append(f"{len(bound)} of {len(pins)} bound to {where}")
    parts += [(f"not bound: {why}", DIM) for why in dict.fromkeys(_unbound(attempts)) if why]
    return parts


def _unbound(attempts: Sequence[BoxAttempt]) -> Iterator[str | None]:
    for card in attempts[-1].cards if attempts else ():
        if card.pin.cpus is None:
            yield card.pin.why


@dataclass(frozen=True, slots=True)
class _Line:
    """One bar: a card solo or in the box. ``share`` is what it keeps in the box."""

    name: str
    mode: str
    tops: float | None
    share: str
    note: str
    style: str


def _chart(sheet: Sheet, run: Payload, role: BoxRole) -> None:
    """Add two bars per card, solo and in the box, all on one scale. Cards go by their ids, and
    by what they are called too where that differs."""
    named = len(_names(role)) > 1
    ran = {card.card: _configuration(run, card.solo) for card in role.cards}
    same = len(set(ran.values())) == 1
    if same:
        sheet.say(f"Each card ran {next(iter(ran.values()))}.", indent=2, hang=2, style=DIM)
    best = max(
        (t for c in role.cards for t in (c.solo.tops, c.in_box_tops) if t is not None), default=0.0
    )
    lines: list[_Line] = []
    for card in role.cards:
        told = "" if same else f"ran {ran[card.card]}"
        kept = "" if card.of_solo is None else percent(card.of_solo)
        name = f"{card.card} · {card.name} #{card.number}" if named else card.card
        alone = "unstable" if card.solo.unstable else ""
        lines.append(_Line(name, "solo", card.solo.tops, alone, told, DIM))
        lines.append(_Line("", "in box", card.in_box_tops, kept, _remarks(card), WARN))
    _bars(sheet, lines, best)


def _configuration(run: Payload, solo: BoxSolo) -> str:
    """Return what a card runs, and the record its figure is taken from where that is another."""
    runtime = next((e.runtime_title for e in run.engines if e.id == solo.engine), solo.engine)
    text = f"{runtime}, {solo.label}, {shape(solo.workload)}"
    if solo.source is None:
        return text
    how = [word for word in ("quick", "noisy") if getattr(solo.source, word)]
    told = f", which was {' and '.join(how)}" if how else ""
    return f"{text} (solo: as run {solo.source.run_id} states{told})"


def _remarks(card: BoxCard) -> str:
    return " ".join(filter(None, (_slow(card), _disturbed(card))))


def _disturbed(card: BoxCard) -> str:
    if card.of_solo is None or card.of_solo <= load_policy().box.most_scaling:
        return ""
    return "Faster in the box than alone: its solo peak was disturbed. Measure again."


def _slow(card: BoxCard) -> str:
    modes = (("alone", card.slow_alone), ("in the box", card.slow_in_box))
    when = " and ".join(mode for mode, slow in modes if slow)
    if not when:
        return ""
    bound = percent(load_policy().box.slow_card)
    return (
        f"Slow {when}: under {bound} of the median of its identical cards. Check its cooling, "
        "power and PCIe link."
    )


def _bars(sheet: Sheet, lines: Sequence[_Line], best: float) -> None:
    if not lines:
        return
    page = sheet.page
    lead = _widest(page, *(line.name for line in lines))
    mode = _widest(page, *(line.mode for line in lines))
    value = _widest(page, "TOPS", *(tops(line.tops) for line in lines))
    share = _widest(page, "of solo", *(line.share for line in lines))
    room = (page.width or 80 + lead + share) - 4 - lead - mode - value - share - 4 * 2
    stacked = room < _SIDE_BY_SIDE
    width = min(_WIDEST_BAR, (page.width or 80) - 6 if stacked else room)
    if not stacked:
        titles = f"{'':{lead}}  {'':{mode}}  {'TOPS':>{value}}  {'of solo':>{share}}"
        sheet.line((titles, DIM), indent=4)
    for line in lines:
        drawn = (
            ""
            if line.tops is None or not best
            else bar(line.tops / best, width, unicode=page.unicode)
        )
        style = "cyan" if line.mode == "solo" else "green"
        if stacked:
            if line.name:
                sheet.parts([line.name], indent=4)
            parts: list[Part] = [line.mode, f"{tops(line.tops)} TOPS" if line.tops else DASH]
            told = f"{line.share} of solo" if line.share.endswith("%") else line.share
            sheet.parts([*parts, *([told] if told else [])], indent=4)
            if drawn:
                sheet.line((drawn, style), indent=4)
        else:
            name = line.name + " " * (lead - width_of(page.plain(line.name)))
            sheet.line(
                f"{name}  {line.mode:{mode}}  {tops(line.tops):>{value}}  ",
                (f"{line.share:>{share}}  ", WARN if line.share == "unstable" else ""),
                (drawn, style),
                indent=4,
            )
        if line.note:
            sheet.say(line.note, indent=6, hang=2, style=line.style)


def _void(sheet: Sheet, attempts: Sequence[BoxAttempt]) -> None:
    """Add why attempts do not count, each reason once, and the last words of cards at fault."""
    reasons: dict[tuple[str, str], list[BoxAttempt]] = {}
    for attempt in attempts:
        if not attempt.counts:
            ended: str = "void" if attempt.status == "ran" else attempt.status
            why = "; ".join(attempt.void_because) or attempt.why or "the reason was not recorded"
            reasons.setdefault((ended, why), []).append(attempt)
    for (how, why), met in reasons.items():
        which = f"Attempt{'s' if len(met) > 1 else ''} {', '.join(str(a.n) for a in met)}"
        sheet.say(f"{which} {how}: {plainly(why)}", indent=2, hang=2, style=WARN)
        for said in dict.fromkeys(_said(met)):
            sheet.say(f"| {said}", indent=4, hang=2, style=DIM)


def _said(attempts: Sequence[BoxAttempt]) -> Iterator[str]:
    for card in (card for attempt in attempts for card in attempt.cards):
        said = None if card.status in ("ok", "interrupted") else last_words(card)
        if said is not None:
            yield f"{card.card}: {said}"


def _widest(page: Page, *texts: str) -> int:
    return max(width_of(page.plain(text)) for text in texts)
