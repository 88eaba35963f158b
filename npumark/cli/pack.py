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
    """List the workloads, their size on disk, and whether they are there."""
    from npumark.pack import materialize, pin, store
    from npumark.pack.manifest import load_manifest

    loaded = load_manifest(manifest)
    root = store.pack_root(loaded)
    usual = materialize.default_workloads(loaded)
    suite = loaded.suite
    own = "" if pin.is_pinned(loaded) else ", a foreign manifest: never comparable"
    lines = [f"{suite.get('name')} {suite.get('version')} ({suite.get('edition')}){own}", ""]
    rows = []
    for workload in loaded.workloads.values():
        files = [loaded.files[p] for p in materialize.workload_paths(loaded, [workload.id])]
        size = sum(file.size for file in files)
        present = all(_has_size(root / file.path, file.size) for file in files)
        variants = [variant.id for variant in workload.variants]
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
            "variants": variants,
        }
        rows.append(row)
        state = "present" if present else "not made yet"
        asked = "" if workload.id in usual else ", only when asked for"
        lines.append(f"{workload.id:36} {_size(size):>9}  {state}{asked}")
        lines.append(f"    {workload.title}: {', '.join(variants)}")
    if as_json:
        output.put_json({**_identity(loaded, root), "workloads": rows})
        return
    output.put("\n".join([*lines, "", str(root)]) + "\n")


@app.command()
def verify(
    workload: WorkloadOption = None, manifest: ManifestOption = None, as_json: JsonOption = False
) -> None:
    """Hash every file and name each that differs from the manifest; exit 5 if one does."""
    from npumark.errors import PackError
    from npumark.pack import inspection, pin, store
    from npumark.pack.manifest import load_manifest

    loaded = load_manifest(manifest)
    root = store.pack_root(loaded)
    paths = _paths(loaded, workload)
    with _progress() as listener:
        found = inspection.inspect(loaded, root, paths, listener)
    extra = inspection.extra_files(loaded, root)
    faults = list(found.faults.values())
    if as_json:
        listed = [{"path": f.path, "kind": f.kind, "text": f.text} for f in faults]
        output.put_json(
            {
                **_identity(loaded, root),
                "verified": not faults and pin.is_pinned(loaded),
                "files": len(paths),
                "faults": listed,
                "extra": list(extra),
            }
        )
    else:
        lines = [fault.text for fault in faults]
        lines += [f"{path} is not in the manifest, and is never read" for path in extra]
        if not faults:
            lines.append(f"{len(paths)} files match the manifest in {root}")
        if not faults and not pin.is_pinned(loaded):
            lines.append("the manifest is not npumark's own: a run with it is never comparable")
        output.put("".join(f"{line}\n" for line in lines))
    if faults:
        raise PackError(
            f"{len(faults)} of {len(paths)} files are not what the manifest says: "
            f"{faults[0].text}" + (", …" if len(faults) > 1 else ""),
            "Run `npumark pack materialize` to rebuild what can be.",
            path=faults[0].path,
        )


@app.command()
def materialize(
    workload: WorkloadOption = None, manifest: ManifestOption = None, as_json: JsonOption = False
) -> None:
    """Make the files that are missing or damaged, and check each while it is written."""
    from npumark.pack import materialize as materializer
    from npumark.pack import store
    from npumark.pack.manifest import load_manifest

    loaded = load_manifest(manifest)
    paths = _paths(loaded, workload)
    with _progress() as listener:
        root = materializer.materialize(loaded, paths, listener)
    size = sum(loaded.files[path].size for path in paths)
    if as_json:
        output.put_json(
            {**_identity(loaded, store.pack_root(loaded)), "files": len(paths), "bytes": size}
        )
    else:
        output.put(f"{len(paths)} files, {_size(size)}, in {root}\n")


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
    manifest: ManifestOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove the pack's files; the next run makes them again."""
    from npumark.pack import store
    from npumark.pack.manifest import load_manifest

    roots = store.packs() if everything else (store.pack_root(load_manifest(manifest)),)
    with _progress() as listener:
        freed = sum(store.remove(root, listener) for root in roots)
    if as_json:
        output.put_json({"removed": [str(root) for root in roots], "bytes": freed})
    else:
        output.put(f"{_size(freed)} freed\n")


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


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB"
