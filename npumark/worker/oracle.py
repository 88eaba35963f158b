"""The one exception to "an engine never sees an answer": the virtual engine, by its reference.

A session of any other engine is given neither the references nor a clock of its own; a real
engine that offers the same methods gains nothing by them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from npumark.engines.base import Array, Session
from npumark.errors import EngineError
from npumark.worker.timed_loop import Clock, Sample

VIRTUAL_REF = "npumark.engines.virtual:Virtual"


@dataclass(frozen=True, slots=True)
class Teaching:
    """An eval set: every input, and every reference output [samples, ...]."""

    samples: Sequence[Sample]
    references: Sequence[Array]


def script_session(engine_ref: str, session: Session, teaching: Teaching) -> Clock:
    """Return the clock to time ``session`` with; teach a virtual session its answers.

    It is ``time.perf_counter_ns`` itself, but for a virtual session whose clock is fake.
    """
    if engine_ref != VIRTUAL_REF:
        return time.perf_counter_ns
    from npumark.engines.virtual import VirtualSession

    if not isinstance(session, VirtualSession):
        raise EngineError("a virtual engine must have a virtual session")
    session.learn(teaching.samples, teaching.references)
    return session.clock_ns if session.fake_clock else time.perf_counter_ns


def sleeper(engine_ref: str, session: Session) -> Callable[[float], None]:
    """Return what lets so many seconds pass between two calls of ``session``: the system's sleep,
    or a virtual session's own, whose clock may be another."""
    if engine_ref != VIRTUAL_REF:
        return time.sleep
    from npumark.engines.virtual import VirtualSession

    if not isinstance(session, VirtualSession):
        raise EngineError("a virtual engine must have a virtual session")
    return session.idle
