"""What really ran, and where: the engine's own account, of which only the sound part is believed.

Both are read when the measuring is done. An engine that fails at telling leaves unknown what it
could not tell, with the reason; the finished measurement stands.
"""

from __future__ import annotations

import json
import math
import traceback
from dataclasses import asdict, replace

from npumark.engines.base import Array, Engine, LoadRequest, Session
from npumark.errors import EngineError, WrongDevice
from npumark.worker.protocol import Observed, Placement

MAX_DETAILS_BYTES = 4 << 20


def read_back(session: Session, runtime: str) -> tuple[Observed, str | None]:
    """Return what the session says it ran, then close it; and why it could not say, or null.

    Raises WrongDevice where the session finds that its work ran elsewhere.
    """
    why = None
    try:
        observed = storable(session.observed())
    except WrongDevice:
        raise
    except Exception as fault:  # noqa: BLE001 - a finished measurement outlives its evidence
        traceback.print_exc()
        why = f"what ran could not be read back: {_one_line(fault)}"[:500]
        observed = Observed(
            device=None,
            precision=None,
            precision_why=why,
            threads=None,
            runtime=runtime,
            version=None,
        )
    try:
        session.close()
    except Exception:  # noqa: BLE001 - nothing more is asked of it
        traceback.print_exc()
    return observed, why


def storable(observed: Observed) -> Observed:
    """Return ``observed``; without its details, and with the reason, where a record cannot hold
    those. Raises ValueError or TypeError where it cannot hold the rest."""
    bare = replace(observed, details={})
    json.dumps(asdict(bare), allow_nan=False)
    try:
        size = len(json.dumps(observed.details, allow_nan=False))
    except (ValueError, TypeError, RecursionError) as fault:
        return replace(bare, details={"why": f"JSON cannot hold the details: {fault}"[:300]})
    if size > MAX_DETAILS_BYTES:
        return replace(bare, details={"why": f"the details took {size} bytes"})
    return observed


def prove_placement(
    engine: Engine, request: LoadRequest, feed: list[Array], runs: int, untold: str | None = None
) -> Placement:
    """Return the engine's proof of where ``runs`` calls ran.

    An engine that fails at proving leaves the placement unproved, with the reason; one that
    finds its work elsewhere raises WrongDevice. ``untold`` is why the engine could not tell
    what ran: the same profile would have to be made again, and is not.
    """
    if runs < 1:
        return _unproved("no profiled run was asked for")
    if untold is not None:
        return _unproved(untold)
    try:
        return sound(engine.placement(request, feed, runs))
    except WrongDevice:
        raise
    except EngineError as fault:
        return _unproved(str(fault))


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


def _unproved(why: str) -> Placement:
    return Placement("unproved", None, None, None, "none", why)


def _one_line(fault: Exception) -> str:
    if isinstance(fault, MemoryError):
        return "out of memory"
    text = " ".join(str(fault).split())
    return text if isinstance(fault, EngineError) and text else f"{type(fault).__name__}: {text}"
