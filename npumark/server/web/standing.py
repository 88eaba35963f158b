"""Why a result is not ranked, and other standings, in words for those who only read."""

from __future__ import annotations

from npumark.report.advice import NOT_COMPARABLE
from npumark.score.comparability import NOT_RANKED
from npumark.server.refusal import CODES


def reason_words(code: str) -> str:
    """Return what keeps a result from being ranked, as a sentence; an unknown code stands for
    itself."""
    if code in NOT_COMPARABLE:
        return NOT_COMPARABLE[code].says
    told = NOT_RANKED.get(code) or (CODES[code][1] if code in CODES else code.replace("_", " "))
    return f"{told[0].upper()}{told[1:]}."
