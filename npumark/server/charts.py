"""Charts as inline SVG, drawn by the server: they need no script, and take their colours from the
page's style sheet, by class.

Every chart stands beside the numbers that it shows, or says them in its ``title`` and ``desc``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from markupsafe import Markup, escape

from npumark.report.words import figure
from npumark.score import stats

DOTS_REACH = 0.10
"""How far from an entry's figure its dots reach to either side, as a share of it; one that is
further off stands at the edge."""

_BARS = 32
"""Columns of a histogram, at the most."""


@dataclass(frozen=True, slots=True)
class Dot:
    """An attempt: ``ips`` is null where it gave no figure, ``counted`` whether it is one of those
    that the entry's figure is the median of."""

    n: int
    ips: float | None
    counted: bool


def bar(share: float, kind: str = "") -> Markup:
    """Return a bar of ``share`` (0 to 1) of the room that it has. It is hidden from those who
    hear the page: the number stands beside it. ``kind`` is a class of its own."""
    width = 100 * min(max(share, 0.0), 1.0)
    drawn = max(width, 0.5) if share > 0 else 0.0
    return Markup(
        '<svg class="bar {}" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true" '
        'focusable="false"><rect class="track" width="100" height="8"/>'
        '<rect class="fill" width="{:.2f}" height="8"/></svg>'
    ).format(kind, drawn)


def dots(attempts: Sequence[Dot], middle: float | None) -> Markup:
    """Return attempts as dots beside the entry's figure ``middle`` (inferences/s): filled where
    counted, hollow where not, a cross where an attempt gave no figure."""
    if not attempts:
        return Markup("")
    width, height, reach = 132.0, 20.0, 60.0
    drawn = [
        Markup('<line class="axis" x1="66" x2="66" y1="2" y2="18"/>'),
        Markup('<line class="axis faint" x1="6" x2="126" y1="10" y2="10"/>'),
    ]
    # Attempts lie in three rows in turn, so that equal ones stay apart.
    for row, attempt in zip(count(), attempts, strict=False):
        y = (10.0, 6.0, 14.0)[row % 3]
        if attempt.ips is None or not middle:
            x = 6.0 + 7 * (attempt.n - 1) % 120
            drawn.append(
                Markup('<path class="cross" d="M{:.1f} {:.1f}l5 5m0 -5l-5 5"/>').format(x, y - 2.5)
            )
            continue
        off = (attempt.ips / middle - 1) / DOTS_REACH
        x = 66 + reach * min(max(off, -1.0), 1.0)
        kind = "dot counted" if attempt.counted else "dot"
        drawn.append(
            Markup('<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="2.8"/>').format(kind, x, y)
        )
    return Markup(
        '<svg class="dots" viewBox="0 0 {:.0f} {:.0f}" width="132" height="20" role="img">'
        "<title>{}</title>{}</svg>"
    ).format(width, height, _said(attempts), Markup("").join(drawn))


def _said(attempts: Sequence[Dot]) -> str:
    counted = [f"{figure(a.ips)}" for a in attempts if a.counted]
    others = [figure(a.ips) for a in attempts if not a.counted and a.ips is not None]
    died = sum(a.ips is None for a in attempts)
    told = [f"counted: {', '.join(counted)} inferences/s"] if counted else []
    if others:
        told.append(f"not counted: {', '.join(others)}{'' if counted else ' inferences/s'}")
    told += [f"{died} without a figure"] if died else []
    return "; ".join(told)


@dataclass(frozen=True, slots=True)
class Bin:
    """A column of a histogram: from ``low`` to ``high`` TOPS, and how many machines."""

    low: float
    high: float
    machines: int


def bins(values: Sequence[float]) -> list[Bin]:
    """Return the histogram of positive values; empty without any. The columns are equally wide."""
    if not values:
        return []
    low, high = min(values), max(values)
    if low == high:
        return [Bin(low, high, len(values))]
    columns = min(_BARS, max(5, math.ceil(2 * len(values) ** (1 / 3))))
    step = (high - low) / columns
    found = [0] * columns
    for value in values:
        found[min(columns - 1, int((value - low) / step))] += 1
    return [Bin(low + i * step, low + (i + 1) * step, n) for i, n in enumerate(found)]


def histogram(values: Sequence[float], title: str) -> Markup:
    """Return how ``values`` (TOPS) are distributed, with their median; nothing without any."""
    columns = bins(values)
    if not columns:
        return Markup("")
    middle = stats.median(values)
    width, height, floor = 640.0, 200.0, 168.0
    most = max(c.machines for c in columns)
    low, high = columns[0].low, columns[-1].high
    span = high - low
    drawn = []
    for i, column in enumerate(columns):
        tall = (floor - 24) * column.machines / most
        x, wide = i * width / len(columns), width / len(columns)
        drawn.append(
            Markup(
                '<rect class="fill" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}">'
                "<title>{} to {} TOPS: {}</title></rect>"
            ).format(
                x + wide * 0.06,
                floor - tall,
                wide * 0.88,
                tall,
                figure(column.low),
                figure(column.high),
                column.machines,
            )
        )
    at = width / 2 if not span else width * (middle - low) / span
    side = "end" if at > width / 2 else "start"
    drawn.append(
        Markup(
            '<line class="median" x1="{0:.1f}" x2="{0:.1f}" y1="14" y2="{1:.0f}"/>'
            '<text class="strong" x="{2:.1f}" y="12" text-anchor="{3}">median {4}</text>'
        ).format(at, floor, at, side, figure(middle))
    )
    drawn.append(
        Markup(
            '<line class="axis" x1="0" x2="{0:.0f}" y1="{1:.0f}" y2="{1:.0f}"/>'
            '<text x="0" y="{2:.0f}">{3} TOPS</text>'
            '<text x="{0:.0f}" y="{2:.0f}" text-anchor="end">{4} TOPS</text>'
        ).format(width, floor, height - 12, figure(low), figure(high))
    )
    desc = (
        f"{len(values)} machines from {figure(low)} to {figure(high)} TOPS, "
        f"median {figure(middle)} TOPS"
    )
    return Markup(
        '<svg class="histogram" viewBox="0 0 {:.0f} {:.0f}" role="img"><title>{}</title>'
        "<desc>{}</desc>{}</svg>"
    ).format(width, height, escape(title), desc, Markup("").join(drawn))
