"""What a record says of compiled models: what was prepared, for which attempt, what those found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from npumark.record.model import Attempt, CacheFields, Payload, Preparation
from npumark.score.catalogued import row_of
from npumark.score.demand import Key
from npumark.score.derive import RunFacts
from npumark.score.difference import Difference

_KEPT = ("reused", "built", "rebuilt")
_LEFT_NONE = ("crashed", "timeout", "no_result")
"""Ends of a preparation after which no attempt finds what it may have begun."""


def compiled(payload: Payload, facts: RunFacts) -> Iterator[Difference]:
    """Check what was prepared: for which attempt, when, how long, and what attempts found."""
    attempts = {p.key: e.attempts for p, e in zip(facts.plan, payload.entries, strict=True)}
    # What another record measured alone is prepared for the box stage, and is no entry here.
    for solo in payload.plan.box.solo:
        attempts.setdefault((solo.engine, solo.workload, solo.variant), [])
    made_for: dict[Key, list[Preparation]] = {}
    for i, made in enumerate(payload.prepared):
        path, key = f"prepared[{i}]", (made.engine, made.workload, made.variant)
        ran = attempts.get(key)
        if ran is None:
            yield Difference(f"{path}.engine", made.engine, None, "no entry of the plan")
            continue
        made_for.setdefault(key, []).append(made)
        yield from _when(path, made, ran)
        yield from _told(path, made)
        if made.status != "ok" and made.state is not None:
            why = f"what ended as {made.status} leaves no compiled model"
            yield Difference(f"{path}.state", made.state, None, why)
    spent, noted = sum(p.wall_ns for p in payload.prepared), payload.where_time_went_ns
    if noted.get("compile", 0) < spent:
        path = "where_time_went_ns.compile"
        yield Difference(path, noted.get("compile"), spent, "less than the preparations took")
    ours = {e.id for e in payload.engines if e.virtual or row_of(e) is not None}
    sizes = _sizes(payload)
    for i, (planned, entry) in enumerate(zip(facts.plan, payload.entries, strict=True)):
        before: tuple[Preparation | None, int] | None = None
        for j, attempt in enumerate(entry.attempts):
            path = f"entries[{i}].attempts[{j}]"
            # What the attempt found is what was prepared last.
            due = [p for p in made_for.get(planned.key, ()) if p.before <= attempt.n]
            last = due[-1] if due else None
            yield from _found(path, attempt, last, ours=entry.engine in ours)
            if attempt.cache is None or attempt.cache.state != "reused":
                before = None
                continue
            known = last.bytes if last is not None and last.state in _KEPT else None
            if before is not None and before[0] is last:
                known = before[1]
            found = attempt.cache.bytes
            if found is not None:
                before = (last, found)
                yield from _size(f"{path}.cache.bytes", found, known, sizes.get(entry.engine))


def _when(path: str, made: Preparation, ran: Sequence[Attempt]) -> Iterator[Difference]:
    if not 1 <= made.before <= len(ran) + 1:
        yield Difference(f"{path}.before", made.before, len(ran) + 1, "no attempt followed")
        return
    if made.before <= len(ran):
        due, ends = ran[made.before - 1].started_ns, made.started_ns + made.wall_ns
        if ends > due:
            why = "it must end before the attempt that it prepares"
            yield Difference(f"{path}.started_ns", ends, due, why)
    took = sum(ns or 0 for ns in (made.compile_ns, made.first_call_ns, made.load_ns))
    if took > made.wall_ns:
        yield Difference(f"{path}.compile_ns", took, made.wall_ns, "more than all of it")


def _told(path: str, said: Preparation | CacheFields) -> Iterator[Difference]:
    """Check that a state has the figures that belong to it, and no others."""
    if said.state == "reused" and said.compile_ns is not None:
        yield Difference(f"{path}.state", said.state, "built", "something was compiled")
    if said.state in ("built", "rebuilt") and said.compile_ns is None:
        why = f"a model was {said.state}, which takes time"
        yield Difference(f"{path}.compile_ns", None, None, why)
    if (said.bytes is not None) != (said.state in _KEPT):
        why = "a compiled model has a size if, and only if, it is kept"
        yield Difference(f"{path}.bytes", said.bytes, None, why)


def _found(
    path: str, attempt: Attempt, prepared: Preparation | None, *, ours: bool
) -> Iterator[Difference]:
    found, measured = attempt.cache, attempt.measurement
    told = None if measured is None else measured.loaded_from_cache
    where = f"{path}.measurement.loaded_from_cache"
    if found is None:
        if told and ours:
            yield Difference(where, told, None, "the attempt had no compiled model")
        if ours and measured is not None and prepared is not None and prepared.state in _KEPT:
            why = "a compiled model was prepared, and the attempt says nothing of it"
            yield Difference(f"{path}.cache", None, "reused", why)
        return
    yield from _told(f"{path}.cache", found)
    if prepared is None:
        yield Difference(f"{path}.cache", found.state, None, "it was not prepared before")
    elif found.state == "reused" and (prepared.state == "unkept" or prepared.status in _LEFT_NONE):
        left = "unkept" if prepared.state == "unkept" else prepared.status
        why = f"what was prepared for it was {left}"
        yield Difference(f"{path}.cache.state", found.state, "unkept", why)
    if measured is not None and told is not (found.state == "reused"):
        yield Difference(where, told, found.state == "reused", f"its model was {found.state}")


def _sizes(payload: Payload) -> Mapping[str, str]:
    """Return by engine whether its compiled models keep their size (``same``), or may gain files
    while a session lives (``more``); others' runtimes write them again as they like."""
    rows = {e.id: row_of(e) for e in payload.engines}
    return {
        name: "same" if row.cache == "ep-context" else "more"
        for name, row in rows.items()
        if row is not None and (row.cache == "ep-context" or row.runtime != "ort")
    }


def _size(path: str, found: int, before: int | None, rule: str | None) -> Iterator[Difference]:
    if before is None or rule is None or found == before:
        return
    if rule == "same" or found < before:
        why = "the compiled model changed its size, and was not compiled again"
        yield Difference(path, found, before, why)
