"""What ``--engine``, ``--workload`` and ``--variant`` select, and what is said to a wrong name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from npumark.errors import NothingToMeasure, UsageError
from npumark.pack.manifest import Manifest, Workload
from npumark.worker.protocol import EngineInfo


def select_engines(
    engines: Sequence[EngineInfo], wanted: Sequence[str] | None, *, include_emulated: bool
) -> tuple[EngineInfo, ...]:
    """Return the engines to measure: by id, or by runtime for all of its devices.

    Raises UsageError for a name that no engine has, NothingToMeasure where one named by its id,
    or all there are, cannot be measured here.
    """

    def usable(engine: EngineInfo) -> bool:
        return engine.available and (include_emulated or not engine.emulated)

    if wanted is not None:
        wanted = [_runtime_of(name, engines) or name for name in wanted]
        names = {e.id for e in engines} | {e.runtime for e in engines}
        for name in wanted:
            _known("engine", name, names, sorted(e.id for e in engines))
        engines = [e for e in engines if e.id in wanted or e.runtime in wanted]
    named = [e for e in engines if wanted is not None and e.id in wanted and not usable(e)]
    found = tuple(e for e in engines if usable(e))
    if named or not found:
        raise NothingToMeasure(
            _why_none(named or engines), "`npumark engines` lists every engine and why."
        )
    return found


def _runtime_of(name: str, engines: Sequence[EngineInfo]) -> str | None:
    """Return the runtime whose device ``name`` would be, where none of its devices is known."""
    blank = (e.id for e in engines if not e.available and e.id == e.runtime)
    return next((runtime for runtime in blank if name.startswith(f"{runtime}-")), None)


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
    families = {v.format.lower() for v in packed} | {d.split("-")[0].lower() for d in derived}
    for name in wanted:
        _known("variant", name.lower(), {i.lower() for i in ids} | families, ids)


def _known(what: str, name: str, names: Iterable[str], show: Sequence[str]) -> None:
    names = set(names)
    if name in names:
        return
    close = get_close_matches(name, sorted(names), n=1)
    guess = f"Did you mean {close[0]}? " if close else ""
    raise UsageError(
        f"there is no {what} called {name!r}", f"{guess}The {what}s are: {', '.join(show)}."
    )


def _why_none(engines: Sequence[EngineInfo]) -> str:
    if not engines:
        return "no engine was found on this computer"
    reasons = "; ".join(
        f"{e.id}: {e.reason or 'it is an emulator (measure it with --include-emulated)'}"
        for e in engines
    )
    return f"no engine here can be measured ({reasons})"
