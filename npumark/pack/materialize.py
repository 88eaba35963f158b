"""Makes what a pack lacks: shipped files copied, derived ones written from their recipes.

Files are hashed while they are written. Two are made at a time: NumPy, BLAS, hashing and
decompression all release the interpreter lock, so two threads fill two cores.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from npumark.errors import PackError
from npumark.pack import recipes, store
from npumark.pack.inspection import Inspection, Stamp, inspect, known
from npumark.pack.manifest import Manifest, PackFile
from npumark.pack.progress import Listener, Meter, silent
from npumark.policy import DATA

SHIPPED = DATA / "pack"
"""Where the installation keeps the files that no recipe can make."""

THREADS = 2


@dataclass(frozen=True, slots=True)
class Made:
    """What making some files came to: ``stamps`` of those that match the manifest, ``others``
    of those kept although they do not, and a sentence for each that failed."""

    stamps: dict[str, Stamp]
    others: dict[str, Stamp]
    failures: dict[str, str]


def default_paths(manifest: Manifest) -> tuple[str, ...]:
    """Return the files that a default run reads: every workload but the large and extra ones."""
    return workload_paths(manifest, default_workloads(manifest))


def default_workloads(manifest: Manifest) -> tuple[str, ...]:
    """Return the workloads of a default run."""
    return tuple(w.id for w in manifest.workloads.values() if w.tier in {"peak", "scored"})


def workload_paths(manifest: Manifest, workloads: Iterable[str]) -> tuple[str, ...]:
    """Return every file that any variant of some workloads reads, and what those are made from.

    Canonical inputs that lie beside an eval set come too: they are part of the workload.
    Raises KeyError where the manifest has no such workload.
    """
    wanted: dict[str, None] = {}
    for workload in map(manifest.workloads.__getitem__, workloads):
        for variant in workload.variants:
            wanted.update(dict.fromkeys(workload.files(variant.id)))
        wanted.update(dict.fromkeys(t.file for t in workload.eval.canonical_inputs))
    return with_needs(manifest, wanted)


def with_needs(manifest: Manifest, wanted: Iterable[str]) -> tuple[str, ...]:
    """Return ``wanted`` and all that it is made from, sources first.

    Raises PackError where the manifest lacks one of them or a file needs itself.
    """
    order: dict[str, None] = {}
    open_paths: set[str] = set()

    def visit(path: str) -> None:
        if path in order:
            return
        if path in open_paths:
            raise PackError(f"in the manifest {path} is made from itself", path=path)
        open_paths.add(path)
        for need in known(manifest, path).needs:
            visit(need)
        order[path] = None

    for path in wanted:
        visit(path)
    return tuple(order)


def materialize(
    manifest: Manifest,
    paths: Iterable[str] | None = None,
    progress: Listener = silent,
    *,
    root: Path | None = None,
    shipped: Path = SHIPPED,
    memory: int | None = None,
) -> Path:
    """Bring files of a pack into place and return its root; those that match are left alone.

    ``paths`` are the manifest's (None: what a default run reads); what they are made from comes
    too. ``memory`` is how many bytes of it are free, null unknown. Raises PackError naming a
    file that cannot be made or does not come out as the manifest says, SetupError where the
    place takes no files, or disk or memory has no room, before anything is written.
    """
    root = root or store.pack_root(manifest)
    wanted = default_paths(manifest) if paths is None else with_needs(manifest, paths)
    found = inspect(manifest, root, wanted, progress)
    if found.faults:
        _, made = rebuild(
            manifest, root, wanted, progress, shipped=shipped, keep_other=False, memory=memory
        )
        if made.failures:
            path, text = next(iter(made.failures.items()))
            raise PackError(text, "Reinstall npumark to restore what it is made from.", path=path)
    return root


def rebuild(
    manifest: Manifest,
    root: Path,
    wanted: tuple[str, ...],
    progress: Listener,
    *,
    shipped: Path = SHIPPED,
    keep_other: bool,
    memory: int | None = None,
) -> tuple[Inspection, Made]:
    """Under the pack's lock, look again and make every file that is still at fault, once.

    ``wanted`` has sources before what is made from them. With ``keep_other`` a file that comes
    out different from what the manifest says is put in place where nothing usable was.
    Raises SetupError where the place takes no files, or disk or memory has no room.
    """
    with store.locked(root, progress):
        found = inspect(manifest, root, wanted, progress)
        todo = [manifest.files[path] for path in wanted if path in found.faults]
        store.check_space(root, sum(file.size for file in todo))
        _check_memory(todo, memory)
        store.sweep(root)
        keep = {f.path for f in todo if keep_other and found.faults[f.path].stamp is None}
        made = _Crew(root, shipped, keep, todo, progress).work(todo)
    return found, made


def _check_memory(todo: Iterable[PackFile], free: int | None) -> None:
    """Raise SetupError where the files that take the most memory, as many as are made at a time,
    do not fit into what is free."""
    largest = sorted(todo, key=recipes.working_bytes, reverse=True)[:THREADS]
    if largest:
        needed = sum(map(recipes.working_bytes, largest))
        store.check_memory(needed, free, largest[0].path)


class _Crew:
    """Makes files two at a time, each only after those it needs."""

    def __init__(
        self,
        root: Path,
        shipped: Path,
        keep: set[str],
        todo: list[PackFile],
        progress: Listener,
    ) -> None:
        self.root = root
        self.source = recipes.Source(root, shipped)
        self.keep = keep
        self.meter = Meter("write", sum(file.size for file in todo), progress)
        self.stop = threading.Event()

    def work(self, todo: list[PackFile]) -> Made:
        made = Made({}, {}, {})
        left = list(todo)
        with ThreadPoolExecutor(THREADS) as pool:
            try:
                while left:
                    pending = {file.path for file in left}
                    ready = [file for file in left if not pending.intersection(file.needs)]
                    left = [file for file in left if file not in ready]
                    jobs = {pool.submit(self._make, file): file for file in ready}
                    for job in as_completed(jobs):
                        self._settle(jobs[job], job, made)
            except BaseException:
                self.stop.set()
                pool.shutdown(cancel_futures=True)
                raise
        return made

    def _make(self, file: PackFile) -> store.Written:
        return store.write_file(
            self.root,
            file,
            lambda out: recipes.make(file, self.source, out),
            keep_other=file.path in self.keep,
            count=self._counter(file.path),
            stop=self.stop,
        )

    def _counter(self, path: str) -> Callable[[int], None]:
        return lambda count: self.meter.add(count, path)

    def _settle(self, file: PackFile, job: Future[store.Written], made: Made) -> None:
        try:
            written = job.result()
        except PackError as fault:
            made.failures[file.path] = fault.message
            return
        if written.matches:
            made.stamps[file.path] = written.stamp
            return
        made.failures[file.path] = (
            f"{file.path} comes out with sha256 {written.sha256[:12]}…, "
            f"not {file.sha256[:12]}… as the manifest says"
        )
        if file.path in self.keep:
            made.others[file.path] = written.stamp
