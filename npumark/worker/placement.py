"""Placement: ask the engine for its proof, in a session apart, and believe only a sound one."""

from __future__ import annotations

import math

from npumark.engines.base import Array, Engine, LoadRequest
from npumark.errors import EngineError, WrongDevice
from npumark.worker.protocol import Placement


def prove_placement(
    engine: Engine, request: LoadRequest, feed: list[Array], runs: int
) -> Placement:
    """Return the engine's proof of where ``runs`` calls ran.

    An engine that fails at proving leaves the placement unproved, with the reason; one that
    finds its work elsewhere raises WrongDevice.
    """
    if runs < 1:
        return Placement("unproved", None, None, None, "none", "no profiled run was asked for")
    try:
        return sound(engine.placement(request, feed, runs))
    except WrongDevice:
        raise
    except EngineError as fault:
        return Placement("unproved", None, None, None, "none", str(fault))


def sound(placement: Placement) -> Placement:
    """Return ``placement``, or an unproved one where what it claims cannot be a share of time."""
    for share in (placement.share, placement.op_share):
        if share is not None and not (math.isfinite(share) and 0.0 <= share <= 1.0):
            why = "the engine reported a share that is not between 0 and 1"
            return Placement("unproved", None, None, None, placement.evidence, why)
    if placement.verdict == "proved" and placement.share is None:
        why = "the engine claims a proof without a share"
        return Placement("unproved", None, placement.op_share, None, placement.evidence, why)
    return placement
