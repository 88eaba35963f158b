"""Proves before a run that every file it reads is the manifest's, and rebuilds what is not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from npumark.errors import PackError
from npumark.pack import materialize, store
from npumark.pack.inspection import Fault, Stamp, inspect
from npumark.pack.manifest import Manifest
from npumark.pack.pin import is_pinned
from npumark.pack.progress import Listener, silent

_NAMED = 3


@dataclass(frozen=True, slots=True)
class EnsureResult:
    """A pack ready to be read.

    ``stamps`` of every file that is there, by path. ``verified`` says that each is what the
    manifest pinned in this build says; otherwise ``why_not`` is a sentence for the report.
    ``faults`` are the files that differ and could not be rebuilt; one that is missing from
    ``stamps`` too cannot be read at all. ``rebuilt`` names those that were at fault and, though
    something lay in their place, are right again.
    """

    root: Path
    stamps: dict[str, Stamp]
    verified: bool
    why_not: str | None
    faults: dict[str, str]
    rebuilt: tuple[Fault, ...]


def verify_files(
    manifest: Manifest, root: Path, paths: Iterable[str], progress: Listener = silent
) -> dict[str, Stamp]:
    """Hash files and return their stamps.

    Raises PackError naming every file that is missing, changed, cut short, swapped with
    another or a link out of the pack; its ``path`` is the first of them.
    """
    found = inspect(manifest, root, paths, progress)
    if found.faults:
        faults = list(found.faults.values())
        raise PackError(
            "; ".join(fault.text for fault in faults),
            "Run `npumark pack materialize` to rebuild what can be.",
            path=faults[0].path,
        )
    return found.stamps


def ensure(
    manifest: Manifest,
    paths: Iterable[str] | None = None,
    progress: Listener = silent,
    *,
    root: Path | None = None,
    shipped: Path = materialize.SHIPPED,
    memory: int | None = None,
) -> EnsureResult:
    """Verify the files a run reads (None: a default run's), rebuilding once what is at fault.

    Nothing is written, and no lock taken, where all is well: a read-only pack can be measured.
    A file that cannot be rebuilt as the manifest says is left as it lies, or put in place as it
    comes out; the run may read it and is not comparable. ``memory`` is how many bytes of it are
    free, null unknown. Raises SetupError where something must be rebuilt and the place takes no
    files, or disk or memory has no room, PackError where ``paths`` names a file that the
    manifest lacks.
    """
    root = root or store.pack_root(manifest)
    wanted = (
        materialize.default_paths(manifest)
        if paths is None
        else materialize.with_needs(manifest, paths)
    )
    found = inspect(manifest, root, wanted, progress)
    stamps = dict(found.stamps)
    faults: dict[str, str] = {}
    rebuilt: tuple[Fault, ...] = ()
    if found.faults:
        found, made = materialize.rebuild(
            manifest, root, wanted, progress, shipped=shipped, keep_other=True, memory=memory
        )
        left = {p: f.stamp for p, f in found.faults.items() if f.stamp and p in made.failures}
        stamps = {**found.stamps, **left, **made.others, **made.stamps}
        faults = {p: _both(found.faults.get(p), text) for p, text in made.failures.items()}
        rebuilt = tuple(
            fault
            for path, fault in found.faults.items()
            if path in made.stamps and fault.kind != "missing"
        )
    why_not = _why_not(manifest, faults)
    return EnsureResult(root, stamps, why_not is None, why_not, faults, rebuilt)


def _both(fault: Fault | None, failure: str) -> str:
    if fault is None or fault.kind == "missing":
        return failure
    return f"{fault.text}, and cannot be rebuilt: {failure}"


def _why_not(manifest: Manifest, faults: dict[str, str]) -> str | None:
    if faults:
        named = "; ".join(list(faults.values())[:_NAMED])
        more = len(faults) - _NAMED
        return named + (f"; and {more} more" if more > 0 else "")
    if not is_pinned(manifest):
        return f"the manifest ({manifest.sha256[:12]}…) is not the one this npumark was built with"
    return None
