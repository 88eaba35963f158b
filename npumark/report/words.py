"""Figures as words: three significant digits, a dash where nothing was measured."""

from __future__ import annotations

import math
import re

from npumark.gates.measures import MEASURES
from npumark.plain import count as count
from npumark.score.labels import tops_text

DASH = "—"

_NAMES = {"snr_db": "SNR", "kl": "KL", "miou": "mIoU", "miou_decisive": "mIoU decisive"}
"""Measures that people write otherwise than with words in place of underscores."""

_MEASURE = re.compile(rf"\b({'|'.join(sorted(MEASURES, key=len, reverse=True))})\b")
_BEYOND = re.compile(
    rf"(?P<name>{_MEASURE.pattern}) (?P<value>[-+.\de]+)(?: (?P<unit>[a-zA-Z]+))? is "
    r"(?P<side>below|above) the bound (?P<bound>[-+.\de]*\d)(?: (?P=unit))?"
)
"""A broken bound, as ``gates.judge`` tells it."""

_MOST_DIGITS = 15
"""Larger numbers are of no machine, only of a damaged record."""


def figure(value: float | None) -> str:
    """Return ``value`` to three significant digits (whole numbers from 1000, powers of ten where
    it is very small or beyond any machine), or a dash."""
    if value is None or not math.isfinite(value):
        return DASH
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if size < -4 or size >= _MOST_DIGITS:
        return f"{value:.2e}"
    if size >= 3:
        return f"{value:,.0f}"
    return f"{value:.{max(0, 2 - size)}f}"


def tops(value: float | None) -> str:
    """Return TOPS as the headline writes them, or a dash where there are none."""
    if value is None:
        return DASH
    return tops_text(value) if abs(value) < 10**_MOST_DIGITS else f"{value:.2e}"


def percent(share: float | None) -> str:
    """Return a share as a percentage with one decimal below ten, or a dash."""
    if share is None or not math.isfinite(share):
        return DASH
    value = 100 * share
    if abs(value) >= 10**_MOST_DIGITS:
        return f"{value:.2e} %"
    return f"{value:.1f} %" if round(abs(value), 1) < 10 else f"{value:.0f} %"


def part(share: float | None) -> str:
    """Return a share of a whole, or a dash; one that is not the whole never reads ``100 %``."""
    if share is None or not 0.995 <= share < 1:
        return percent(share)
    return f"{math.floor(share * 1000) / 10:.1f} %"


def duration(seconds: float | None) -> str:
    """Return a length of time as people say it: ``43 ms``, ``38 s``, ``6 min``, ``1 h 20 min``."""
    if seconds is None or not math.isfinite(seconds):
        return DASH
    if 0 < seconds < 0.0995:
        return f"{seconds * 1000:.1f} ms" if seconds < 0.00995 else f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def size(count: int | None) -> str:
    """Return a number of bytes as storage is sold, in powers of 1000, or a dash."""
    if count is None:
        return DASH
    if count < 1000:
        return f"{count} B"
    value = count / 1000
    for unit in ("kB", "MB"):
        if value < 999.95:
            return f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def margin(measure: str | None, slack: float | None, unit: str) -> str:
    """Return a gate's margin with its measure's name: ``SNR +9.7 dB``, or a dash."""
    if measure is None or slack is None:
        return DASH
    return f"{_name(measure)} {slack:+.3g} {unit}".rstrip()


def plainly(text: str) -> str:
    """Return a recorded reason as people write it: measures by their names, three digits."""
    return _MEASURE.sub(lambda match: _name(match[0]), _BEYOND.sub(_bound, text))


def _name(measure: str) -> str:
    return _NAMES.get(measure, measure.replace("_", " "))


def _bound(match: re.Match[str]) -> str:
    unit = f" {match['unit']}" if match["unit"] else ""
    value, bound = match["value"], match["bound"]
    # As many digits as tell the two apart: a value beyond its bound must not look equal to it.
    short = next(
        (t for n in (3, 4, 5) if (t := f"{float(value):.{n}g}") != f"{float(bound):.{n}g}"), value
    )
    return f"{_name(match['name'])} {short} is {match['side']} the bound of {bound}{unit}"


def shape(workload: str) -> str:
    """Return a peak workload's id as its shape: ``peak-512x2048x8`` is ``512×2048, 8 layers``."""
    if not workload.startswith("peak-"):
        return workload
    parts = workload.removeprefix("peak-").split("x")
    if len(parts) != 3:
        return workload
    return f"{parts[0]}×{parts[1]}, {parts[2]} layers"
