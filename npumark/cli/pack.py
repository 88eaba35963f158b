"""``npumark pack``: list, check, make and remove the files that runs read."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npumark.cli import complete, output

if TYPE_CHECKING:
    from npumark.pack.manifest import Manifest
    from npumark.pack.progress import Listener

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    help="List, check, make and remove the files that runs read.",
)

ManifestOption = Annotated[
    Path | None,
    typer.Option("--manifest", metavar="FILE", help="Use this manifest instead of npumark's own."),
]
WorkloadOption = Annotated[
    list[str] | None,
    typer.Option(
        "--workload",
        "-w",
        metavar="ID",
        help="This workload only. May be repeated; without it, those of a default run.",
        autocompletion=complete.workloads,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Put one JSON document on stdout.")]


@app.command("list")
def list_(manifest: ManifestOption = None, as_json: JsonOption = False) -> None:
    """List the workloads, their size and whether they are there."""
    from npumark.pack import materialize, pin, store
    from npumark.pack.manifest import load_manifest
    from npumark.report.page import page_of
    from npumark.report.sheet import DIM, Column, Row, Sheet
    from npumark.report.words import size as size_text

    loaded = load_manifest(manifest)
    root = store.pack_root(loaded)
    usual = materialize.default_workloads(loaded)
    suite = loaded.suite
    own = "" if pin.is_pinned(loaded) else ", a foreign manifest: never comparable"
    rows = []
    shown = []
    for workload in loaded.workloads.values():
        files = [loaded.files[p] for p in materialize.workload_paths(loaded, [workload.id])]
        size = sum(file.size for file in files)
        variants = [variant.id for variant in workload.variants]
        there = {file.path for file in files if _has_size(root / file.path, file.size)}
        present = len(there) == len(files)
        made = [v for v in variants if there.issuperset(workload.files(v))]
        row = {
            "id": workload.id,
            "title": workload.title,
            "kind": workload.kind,
            "tier": workload.tier,
            "default": workload.id in usual,
            "macs": workload.macs,
            "params": workload.params,
            "bytes": size,
            "present": present,
            "made": made,
            "variants": variants,
        }
        rows.append(row)
        some = f"partly made ({', '.join(made)})" if made else "not made yet"
        state = "present" if present else some
        asked = "" if workload.id in usual else ", only when asked for"
        note = f"{workload.title}: {', '.join(variants)}"
        shown.append(Row((workload.id, size_text(size), f"{state}{asked}"), (note, DIM)))
    if as_json:
        output.put_json({**_identity(loaded, root), "workloads": rows})
        return
    sheet = Sheet(page_of(sys.stdout))
    sheet.say(f"{suite.get('name')} {suite.get('version')} ({suite.get('edition')}){own}", hang=2)
    sheet.blank()
    sheet.table((Column("workload"), Column("size", right=True), Column("state")), shown)
    sheet.blank()
    sheet.path("Folder:", str(root))
    output.put(sheet.text())


@app.command()
def verify(
    workload: WorkloadOption = None, manifest: ManifestOption = None, as_json: JsonOption = False
) -> None:
    """Hash every file and name each damaged one, with exit code 5.

    A file that is not there yet is no damage: the next run that reads it makes it.
    """
    from npumark.errors import PackError
    from npumark.pack import inspection, pin, store
    from npumark.pack.manifest import load_manifest

    loaded = load_manifest(manifest)
    root = store.pack_root(loaded)
    paths = _paths(loaded, workload)
    with _progress() as listener:
        found = inspection.inspect(loaded, root, paths, listener)
    extra = inspection.extra_files(loaded, root)
    absent = [fault for fault in found.faults.values() if fault.kind == "missing"]
    faults = [fault for fault in found.faults.values() if fault.kind != "missing"]
    pinned = pin.is_pinned(loaded)
    if as_json:
        listed = [{"path": f.path, "kind": f.kind, "text": f.text} for f in faults]
        output.put_json(
            {
                **_identity(loaded, root),
                "verified": not found.faults and pinned,
                "files": len(paths),
                "faults": listed,
                "not_made": [fault.path for fault in absent],
                "extra": list(extra),
            }
        )
    else:
        lines = [fault.text for fault in faults]
        lines += [f"{path} is not in the manifest, and is never read" for path in extra]
        lines += _summary(len(paths), len(faults), len(absent), root)
        if not faults and not pinned:
            lines.append("the manifest is not npumark's own: a run with it is never comparable")
        output.put("".join(f"{line}\n" for line in lines))
    if faults:
        raise PackError(
            f"{len(faults)} of {len(paths)} files are damaged: "
            f"{faults[0].text}" + (", …" if len(faults) > 1 else ""),
            "Run `npumark pack materialize` to rebuild what can be.",
            path=faults[0].path,
        )


def _summary(every: int, damaged: int, absent: int, root: Path) -> list[str]:
    """Return what holds of the files that are there, and how many are not."""
    right = every - damaged - absent
    lines = [f"{right} of {every} files match the manifest in {root}"] if right else []
    if not absent and not damaged:
        lines = [f"{every} files match the manifest in {root}"]
    if absent:
        lines.append(
            f"{absent} of {every} files are not made yet; a run makes those that it reads, and "
            "`npumark pack materialize` makes all of them"
        )
    return lines


@app.command()
def materialize(
    workload: WorkloadOption = None, manifest: ManifestOption = None, as_json: JsonOption = False
) -> None:
    """Make what is missing or damaged, checking each file."""
    from npumark.machine.sensors import available_memory
    from npumark.pack import materialize as materializer
    from npumark.pack import store
    from npumark.pack.manifest import load_manifest
    from npumark.report.words import size as size_text

    loaded = load_manifest(manifest)
    paths = _paths(loaded, workload)
    with _progress() as listener:
        root = materializer.materialize(loaded, paths, listener, memory=available_memory())
    size = sum(loaded.files[path].size for path in paths)
    if as_json:
        output.put_json(
            {**_identity(loaded, store.pack_root(loaded)), "files": len(paths), "bytes": size}
        )
    else:
        output.put(f"{len(paths)} files, {size_text(size)}, in {root}\n")


@app.command()
def path(manifest: ManifestOption = None, as_json: JsonOption = False) -> None:
    """Print the folder in which the pack lives."""
    from npumark.pack import store
    from npumark.pack.manifest import load_manifest

    loaded = load_manifest(manifest)
    root = store.pack_root(loaded)
    if as_json:
        output.put_json(_identity(loaded, root))
    else:
        output.put(f"{root}\n")


@app.command()
def clean(
    everything: Annotated[
        bool, typer.Option("--all", help="Remove every pack, also those of other versions.")
    ] = False,
    compiled: Annotated[
        bool,
        typer.Option(
            "--compiled", help="Remove the compiled models instead of the files they are made of."
        ),
    ] = False,
    manifest: ManifestOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove the pack's files; the next run makes them again.

    Compiled models need no cleaning: a run removes those that none has used for 60 days, and
    the ones used longest ago once all of them take more than 20 GB.
    """
    from npumark.orchestrator import compiled as models
    from npumark.orchestrator.lock import measuring
    from npumark.pack import store
    from npumark.pack.manifest import load_manifest
    from npumark.report.words import size as size_text

    if compiled:
        roots: tuple[Path, ...] = (models.root(),)
    elif everything:
        roots = store.packs()
    else:
        roots = (store.pack_root(load_manifest(manifest)),)
    # A measurement that is going on reads these files: it is told of, and nothing removed.
    with measuring("npumark pack clean"), _progress() as listener:
        if compiled:
            freed = models.clear(models.root())
        else:
            freed = sum(store.remove(root, listener) for root in roots)
    if as_json:
        output.put_json({"removed": [str(root) for root in roots], "bytes": freed})
    else:
        output.put(f"{size_text(freed)} freed\n")


def _identity(manifest: Manifest, root: Path) -> dict[str, object]:
    from npumark.pack import pin

    return {
        "suite": manifest.suite,
        "manifest_sha256": manifest.sha256,
        "pinned": pin.is_pinned(manifest),
        "root": str(root),
    }


def _paths(manifest: Manifest, workloads: list[str] | None) -> tuple[str, ...]:
    from npumark.errors import UsageError
    from npumark.pack import materialize as materializer

    if not workloads:
        return materializer.default_paths(manifest)
    unknown = [name for name in workloads if name not in manifest.workloads]
    if unknown:
        raise UsageError(
            f"the pack has no workload {unknown[0]!r}",
            f"Choose from: {', '.join(manifest.workloads)}.",
        )
    return materializer.workload_paths(manifest, workloads)


@contextlib.contextmanager
def _progress() -> Iterator[Listener]:
    """A bar on stderr where that is a terminal, silence elsewhere."""
    from npumark.pack.progress import Progress, silent

    if not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    verbs = {"wait": "waiting", "verify": "checking", "write": "making"}
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        stage = ""

        def listen(progress: Progress) -> None:
            nonlocal stage
            if progress.stage != stage:
                stage = progress.stage
                bar.reset(task)
            text = progress.note or f"{verbs[stage]} {progress.file or ''}"
            bar.update(
                task, description=text, completed=progress.done, total=progress.total or None
            )

        yield listen


def _has_size(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False
