"""What really ran, and where: the engine's own account, of which only the sound part is believed.

Both are read when the measuring is done. An engine that fails at telling leaves unknown what it
could not tell, with the reason; the finished measurement stands.
"""

from __future__ import annotations

import json
import traceback
from dataclasses import replace
from typing import Any, get_args

from npumark.engines.base import Array, Engine, LoadRequest, Session
from npumark.errors import EngineError, WrongDevice
from npumark.plain import one_line
from npumark.worker.protocol import Observed, Placement, Verdict

VERDICTS = get_args(Verdict)
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
    except (Exception, SystemExit) as fault:  # noqa: BLE001 - the measurement outlives its evidence
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
    close(session)
    return observed, why


def close(session: Session) -> None:
    """Close a session whose measuring is done: that it fails then costs nothing."""
    try:
        session.close()
    except (Exception, SystemExit):  # noqa: BLE001 - nothing more is asked of it
        traceback.print_exc()


def storable(observed: Any) -> Observed:
    """Return ``observed`` with its texts as single lines; without its details, and with the
    reason, where a record cannot hold those. Raises EngineError where it cannot hold the rest."""
    if not isinstance(observed, Observed):
        raise EngineError(f"the engine told of it by a {type(observed).__name__}, not Observed")
    told: dict[str, Any] = {}
    for name in ("device", "precision", "precision_why", "version"):
        told[name] = getattr(observed, name)
        if not (told[name] is None or isinstance(told[name], str)):
            raise EngineError(f"{name} is {_short(told[name])}, neither text nor null")
    if not isinstance(observed.runtime, str):
        raise EngineError(f"runtime is {_short(observed.runtime)}, not text")
    threads, versions = observed.threads, observed.versions
    if not (threads is None or _is_count(threads)):
        raise EngineError(f"threads is {_short(threads)}, neither a count nor null")
    if not (isinstance(versions, dict) and _texts(*versions, *versions.values())):
        raise EngineError("versions is not a table of texts")
    lines: dict[str, Any] = {k: v and one_line(v)[:2000] for k, v in told.items()}
    bare = Observed(
        **lines,
        threads=threads,
        runtime=one_line(observed.runtime),
        versions={one_line(k): one_line(v) for k, v in versions.items()},
    )
    details: Any = observed.details
    if not isinstance(details, dict):
        return replace(bare, details={"why": "the details are not a table"})
    try:
        size = len(json.dumps(details, allow_nan=False, ensure_ascii=False).encode())
    except (ValueError, TypeError, RecursionError) as fault:
        return replace(bare, details={"why": f"JSON cannot hold the details: {fault}"[:300]})
    if size > MAX_DETAILS_BYTES:
        return replace(bare, details={"why": f"the details took {size} bytes"})
    return replace(bare, details=details)


def _texts(*values: object) -> bool:
    return all(isinstance(value, str) for value in values)


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
    except (EngineError, SystemExit) as fault:
        return _unproved(_one_line(fault))


def sound(placement: Any) -> Placement:
    """Return ``placement``, or an unproved one that says why where it claims what cannot be."""
    if not isinstance(placement, Placement):
        return _unproved(f"the engine's proof is a {type(placement).__name__}, not a Placement")
    evidence: Any = placement.evidence
    if not isinstance(evidence, str):
        return _unproved(f"the engine's evidence is a {type(evidence).__name__}, not text")
    told = replace(
        placement,
        evidence=one_line(evidence)[:500],
        why=None if placement.why is None else _words(placement.why),
    )
    if told.verdict not in VERDICTS:
        return _refused(told, f"the engine's verdict is {_short(told.verdict)}")
    for share in (told.share, told.op_share):
        if share is not None and not _is_share(share):
            why = f"the engine reported a share of {_short(share)}, not a number between 0 and 1"
            return _refused(told, why)
    if not (told.partitions is None or _is_count(told.partitions)):
        return _refused(told, f"the engine reported {_short(told.partitions)} partitions")
    if told.verdict == "proved" and told.share is None:
        why = "the engine claims a proof without a share"
        return replace(_refused(told, why), op_share=told.op_share)
    return told


def _is_share(value: Any) -> bool:
    # NumPy's float64 is a float, its other numbers are not: JSON holds none of those.
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and 0.0 <= value <= 1.0


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**53


def _refused(placement: Placement, why: str) -> Placement:
    return Placement("unproved", None, None, None, placement.evidence, why)


def _short(value: object) -> str:
    try:
        return one_line(repr(value))[:80]
    except Exception:  # noqa: BLE001 - the value is an engine's own, and may fail at being shown
        return f"a {type(value).__name__}"


def _words(why: Any) -> str:
    return one_line(why)[:2000] if isinstance(why, str) else _short(why)


def _unproved(why: str) -> Placement:
    return Placement("unproved", None, None, None, "none", why)


def _one_line(fault: BaseException) -> str:
    if isinstance(fault, MemoryError):
        return "out of memory"
    text = one_line(str(fault))
    return text if isinstance(fault, EngineError) and text else f"{type(fault).__name__}: {text}"
