"""What ``--engine``, ``--workload`` and ``--variant`` select, and what is said to a wrong name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from npumark.engines import catalogue
from npumark.errors import NothingToMeasure, UsageError
from npumark.orchestrator.reach import needs_of, row_of
from npumark.pack.manifest import Manifest, Workload
from npumark.score.planned import derived_format
from npumark.worker.protocol import EngineInfo

_CHOOSERS = frozenset({"auto", "multi", "hetero", "batch"})
"""Devices of OpenVINO's that stand for a choice among others."""

_INSTALL = re.compile(r"`npumark engines install [a-z0-9-]+`")
_NEXT_STEP = re.compile(r"`|\b(needs?|installs?|reinstall|move|update)\b|--include-emulated")
"""In a reason: it says itself what would help."""

_LISTED = "`npumark engines` lists every engine and why."


def select_engines(
    engines: Sequence[EngineInfo], wanted: Sequence[str] | None, *, include_emulated: bool
) -> tuple[EngineInfo, ...]:
    """Return the engines to measure: by id, by provider (``ort-qnn``) or by runtime for all of
    its devices. What else was named and cannot be measured here, ``left_out`` tells.

    Raises UsageError for a name that no engine has or that pairs a runtime with a device it
    does not drive, NothingToMeasure where nothing is left to measure.
    """
    engines = named_engines(engines, wanted)
    found = tuple(e for e in engines if _usable(e, include_emulated=include_emulated))
    if not found:
        raise NothingToMeasure(_why_none(engines), _remedy(engines) or _LISTED)
    return found


def named_engines(
    engines: Sequence[EngineInfo], wanted: Sequence[str] | None
) -> tuple[EngineInfo, ...]:
    """Return the engines that a request means, available or not: all where none is named.

    Raises UsageError as ``select_engines`` does.
    """
    if wanted is None:
        return tuple(engines)
    picked = [e for name in wanted for e in _named(name, engines)]
    return tuple(e for e in engines if e in picked)


def left_out(
    engines: Sequence[EngineInfo], wanted: Sequence[str] | None, *, include_emulated: bool
) -> tuple[EngineInfo, ...]:
    """Return what the names in ``wanted`` that stand for nothing measurable here stand for.

    Raises UsageError as ``select_engines`` does.
    """
    gone: dict[str, EngineInfo] = {}
    for name in wanted or ():
        meant = _named(name, engines)
        if not any(_usable(e, include_emulated=include_emulated) for e in meant):
            gone |= {e.id: e for e in meant}
    return tuple(gone.values())


def told_left_out(gone: Sequence[EngineInfo]) -> tuple[str, ...]:
    """Return the sentences that tell of engines which were named and are left out, with the
    reason and what would help; engines with one reason share theirs."""
    said = []
    for reason, ids in _by_reason(gone).items():
        mine = [e for e in gone if e.id in ids]
        step = _remedy(mine)
        if _NEXT_STEP.search(reason):
            needs = _needs(mine) if _INSTALL.search(reason) else ""
            step = f"It also needs {needs}." if needs else None
        verb = "is" if len(ids) == 1 else "are"
        said.append(f"{', '.join(ids)} {verb} left out: {reason}" + (f". {step}" if step else ""))
    return tuple(said)


def _usable(engine: EngineInfo, *, include_emulated: bool) -> bool:
    asked = include_emulated or not (engine.emulated or _virtual_guest(engine))
    return engine.available and asked


def _virtual_guest(engine: EngineInfo) -> bool:
    """Whether a virtual engine came with another package: those of a script, which the tests
    run, were asked for by naming it."""
    return engine.virtual and engine.runtime != "virtual"


def _named(name: str, engines: Sequence[EngineInfo]) -> list[EngineInfo]:
    """Return the engines that ``name`` stands for. Raises UsageError where there are none."""
    provider = f"{name}-" if catalogue.provider(name) else None
    found = [
        e
        for e in engines
        if name in (e.id, e.runtime) or (provider is not None and e.id.startswith(provider))
    ]
    return found or _stand_ins(name, engines)


def _stand_ins(name: str, engines: Sequence[EngineInfo]) -> list[EngineInfo]:
    """Return the engine that says why ``name``, which is known, is not here.

    A runtime that is not installed, or whose probe broke, stands for all of its devices; one
    device that cannot be measured for every number of it. Raises UsageError for any other name.
    """
    if _CHOOSERS & set(re.split(r"[^a-z]+", name.lower())):
        raise UsageError(
            f"{name!r} lets the runtime choose among devices, so that what ran could not be told",
            f"Name a device. {_there_are(engines)}",
        )
    base = re.sub(r"-\d+$", "", name)
    numbered = [e for e in engines if e.id == base or re.fullmatch(rf"{re.escape(base)}-\d+", e.id)]
    gone = [e for e in numbered if not e.available]
    if gone and len(gone) == len(numbered):
        return gone
    if numbered:
        listed = ", ".join(e.id for e in numbered)
        raise UsageError(f"there is no {name} on this computer", f"There is: {listed}.")
    row = row_of(base)
    ids = [] if row is None else [row.engine_id(role) for role in row.roles]
    blanks = [e for e in engines if not e.available and (e.id == e.runtime or row_of(e.id) == row)]
    if row is not None:
        silent = [e for e in blanks if e.id in (row.id, row.runtime)]
    else:
        silent = [e for e in blanks if name.startswith(f"{e.id}-")]
    if silent and (row is None or base in ids):
        return silent
    if row is not None and base not in ids:
        what = base.removeprefix(f"{row.id}-").removeprefix(f"{row.runtime}-")
        raise UsageError(
            f"{row.title} does not drive {what!r}",
            f"It drives: {', '.join(dict.fromkeys(ids))}. {_there_are(engines)}",
        )
    _known("engine", name, {e.id for e in engines} | {e.runtime for e in engines}, None)
    raise AssertionError("an unknown name is refused")


def select_workloads(
    manifest: Manifest, wanted: Sequence[str] | None
) -> tuple[tuple[Workload, bool], ...]:
    """Return the workloads in manifest order, each with whether it was asked for by its own id.

    ``peak`` and ``network`` stand for all of their kind. Raises UsageError.
    """
    workloads = tuple(manifest.workloads.values())
    if wanted is None:
        return tuple((w, False) for w in workloads)
    for name in wanted:
        _known("workload", name, {*manifest.workloads, "peak", "network"}, list(manifest.workloads))
    return tuple((w, w.id in wanted) for w in workloads if w.id in wanted or w.kind in wanted)


def check_variants(
    manifest: Manifest, engines: Sequence[EngineInfo], wanted: Sequence[str] | None
) -> None:
    """Raise UsageError for a variant that neither the pack nor an engine has.

    A variant is named by its id or, for all of a family, by its format (``INT8``).
    """
    if wanted is None:
        return
    packed = [v for w in manifest.workloads.values() for v in w.variants]
    derived = [name for e in engines for name in e.derived_from]
    ids = sorted({v.id for v in packed} | set(derived))
    families = {v.format for v in packed} | {derived_format(d) for d in derived}
    shown = [*ids, *sorted(families)]
    for name in wanted:
        if name.lower() not in {s.lower() for s in shown}:
            _known("variant", name, (), shown)


def _known(what: str, name: str, names: Iterable[str], show: Sequence[str] | None) -> None:
    """Raise UsageError unless ``name`` is known. ``show`` are the names to tell, null where they
    are too many to; only what can be looked up there is suggested."""
    names = set(names)
    if name in names:
        return
    close = closest(name, sorted(names if show is None else show))
    guess = f"Did you mean {close}? " if close else ""
    all_ = f"The {what}s are: {', '.join(show)}." if show else f"`npumark {what}s` lists them all."
    raise UsageError(f"there is no {what} called {name!r}", f"{guess}{all_}")


def closest(name: str, names: Sequence[str]) -> str | None:
    """Return the one of ``names`` that ``name`` probably means, or null: whatever its letters'
    case, a part between hyphens (``qnn`` of ``ort-qnn-npu``), or one that is spelt alike."""
    wanted = name.lower()
    lowered = {n.lower(): n for n in names}
    if wanted in lowered:
        return lowered[wanted]
    parts = [n for n in names if f"-{wanted}-" in f"-{n.lower()}-"]
    if parts:
        return parts[0]
    close = get_close_matches(wanted, list(lowered), n=1)
    return lowered[close[0]] if close else None


def _there_are(engines: Sequence[EngineInfo]) -> str:
    working = [e.id for e in engines if e.available]
    if not working:
        return _LISTED
    return f"Those that work here: {', '.join(working)}."


def _why_none(engines: Sequence[EngineInfo]) -> str:
    if not engines:
        return "no engine was found on this computer"
    reasons = "; ".join(f"{', '.join(ids)}: {why}" for why, ids in _by_reason(engines).items())
    return f"no engine here can be measured ({reasons})"


def _by_reason(engines: Sequence[EngineInfo]) -> dict[str, list[str]]:
    """Return the ids of engines that cannot be measured by why: one reason is told once."""
    found: dict[str, list[str]] = {}
    for e in engines:
        reason = e.reason or f"it is {_kind(e)} (measure it with --include-emulated)"
        found.setdefault(reason, []).append(e.id)
    return found


def _kind(engine: EngineInfo) -> str:
    return "an emulator" if engine.emulated else "virtual"


def _remedy(engines: Sequence[EngineInfo]) -> str | None:
    """Return the one command that helps, where there is one, and what else the engines need;
    null where the reasons hold the next step themselves."""
    if engines and all(e.available for e in engines):
        return "--include-emulated measures it; such a run is never comparable."
    found = {m[0] for e in engines if (m := _INSTALL.search(e.reason or ""))}
    if len(found) == 1:
        (command,) = found
        brought = [e for e in engines if _INSTALL.search(e.reason or "")]
        needs = _needs(brought)
        what = "it" if len(brought) == len(engines) else ", ".join(e.id for e in brought)
        more = f"adds {what}; it also needs {needs}" if needs else f"makes {what} available"
        return f"{command} {more}."
    if engines and all(_NEXT_STEP.search(e.reason or "`") for e in engines):
        return None
    return _LISTED


def _needs(engines: Sequence[EngineInfo]) -> str:
    return "; ".join(dict.fromkeys(needs for e in engines if (needs := needs_of(e))))
