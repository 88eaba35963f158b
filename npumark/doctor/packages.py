"""Packages that overwrite or hide each other, environments that are not whole, odd variables."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import Distribution
from pathlib import Path

from npumark import paths
from npumark.doctor.examined import Examined, good, noted, spoils
from npumark.doctor.scene import Scene
from npumark.engines.catalogue import PROVIDERS
from npumark.engines.ort_wheels import wheels
from npumark.errors import SetupError
from npumark.orchestrator.environments import Standing, standings
from npumark.orchestrator.worker_env import environment_facts

RUNTIMES = frozenset(
    {"onnxruntime", "numpy", "psutil"} | {row.module for row in PROVIDERS if row.module}
)
"""The top-level packages that workers import."""

OURS = "npumark's own Python"
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Overlap:
    """Packages that write the same files below ``package``, of which the last one installed
    is what an import gets."""

    package: str
    distributions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Clash:
    """An overlap and the Python in which it is."""

    where: str
    package: str
    distributions: tuple[str, ...]

    def __str__(self) -> str:
        return f"{' and '.join(self.distributions)} overwrite each other in {self.where}"


def overlaps(installed: Iterable[Distribution]) -> tuple[Overlap, ...]:
    """Return the runtimes' packages of which several distributions write the same file.

    Distributions that share a folder and no file (MLX and its backends) are none.
    """
    writers: dict[str, dict[str, set[str]]] = {}
    for package in installed:
        name = f"{package.metadata['Name']} {package.version}"
        for line in (package.read_text("RECORD") or "").splitlines():
            path = line.rpartition(",")[0].rpartition(",")[0].strip('"')
            top, _, rest = path.partition("/")
            if rest and top in RUNTIMES and not path.endswith(".pyc"):
                writers.setdefault(top, {}).setdefault(path, set()).add(name)
    found = []
    for top, files in sorted(writers.items()):
        names = {name for owners in files.values() if len(owners) > 1 for name in owners}
        if names:
            found.append(Overlap(top, tuple(sorted(names))))
    return tuple(found)


def shadowed_wheels(scene: Scene) -> Examined:
    """Distributions that overwrite each other, here and in each environment."""
    about = ("shadowed_wheels", "Packages that overwrite each other")
    found = [
        Clash(place, package, names)
        for place, folders in _interpreters()
        for package, names in _clashes(scene, folders).items()
    ]
    if not found:
        return good(*about, [], "No package of a runtime overwrites another.")
    first = found[0]
    if first.where == OURS:
        names = " ".join(name.partition(" ")[0] for name in first.distributions)
        fix = (
            f"`pip uninstall {names}`, then install the one that is wanted; "
            "`npumark engines install` keeps the others apart."
        )
    else:
        fix = f"`npumark engines install {first.where.rpartition(' ')[2]} --again`."
    told = "; ".join(str(clash) for clash in found)
    listed = [asdict(clash) for clash in found]
    return spoils(*about, listed, f"{told}: the last one installed wins.", fix)


def _clashes(scene: Scene, folders: tuple[str, ...] | None) -> dict[str, tuple[str, ...]]:
    packages = list(scene.outside.installed(folders))
    found = {overlap.package: overlap.distributions for overlap in overlaps(packages)}
    # Builds of ONNX Runtime are known by name, even where their list of files is lost.
    builds = wheels(packages, None).builds
    if len(builds) > 1:
        found.setdefault("onnxruntime", tuple(f"{n} {v}" for n, v in sorted(builds.items())))
    return found


def local_modules(scene: Scene) -> Examined:
    """A file or folder that hides an installed package from imports, or would."""
    about = ("local_modules", "Files that hide packages")
    sites = _sites(scene)
    hiding: list[str] = []
    lying: list[str] = []
    for entry in dict.fromkeys((*scene.outside.import_path, str(scene.outside.here))):
        folder = Path(entry) if entry else scene.outside.here
        if any(folder == site for site in sites):
            continue
        ahead = entry in scene.outside.import_path and _before(entry, scene, sites)
        for name in sorted(RUNTIMES):
            for place in (folder / name, folder / f"{name}.py"):
                if _is_module(place):
                    (hiding if ahead else lying).append(str(place))
    if hiding:
        return spoils(
            *about,
            hiding,
            f"{_few(hiding)}: imported in place of the installed package.",
            "Rename or remove it, take its folder out of PYTHONPATH, or start npumark from "
            "another folder.",
        )
    if lying:
        return noted(
            *about,
            lying,
            f"{_few(lying)}: bears the name of a runtime. npumark's workers do not import it; "
            "`python -m npumark` started here would.",
            "Start npumark from another folder, or as `npumark`.",
        )
    return good(*about, [], "No file here or on PYTHONPATH hides a package.")


def environments(scene: Scene) -> Examined:  # noqa: ARG001 - every check has one form
    """Environments of engines that are broken, half made or out of date."""
    about = ("environments", "Environments of engines")
    try:
        doubt = paths.engines_doubt()
        found = standings()
    except SetupError as fault:
        return spoils(*about, None, f"{fault.message}.", fault.hint or "")
    value = [{"name": s.name, "state": s.state, "why": s.why} for s in found if s.state != "absent"]
    bad = [s for s in found if s.state not in ("absent", "installed")]
    if bad:
        told = "; ".join(f"{s.name} is {_words(s)}: {s.why}" for s in bad)
        fixes = "; ".join(s.remedy for s in bad)
        return spoils(*about, value, f"{told}.", f"{fixes[0].upper()}{fixes[1:]}.")
    if doubt is not None:
        return spoils(
            *about,
            value,
            f"{doubt}.",
            "Set NPUMARK_ENGINES to the folder that holds them, or unset it.",
        )
    whole = ", ".join(s.name for s in found if s.state == "installed")
    return good(*about, value, f"Whole: {whole}." if whole else "None is installed.")


def variables(scene: Scene) -> Examined:
    """Variables that choose or bend a device: kept, and recorded by name."""
    about = ("variables", "Variables")
    facts = environment_facts(scene.outside.variables)
    kept = facts["noted"]
    # Those of Python itself are set everywhere, and say nothing.
    removed = [name for name in facts["removed"] if not name.upper().startswith("PYTHON")]
    if not kept and not removed:
        return good(*about, facts, "No variable bends a device or a runtime.")
    parts = []
    if kept:
        parts.append(f"{', '.join(kept)} choose or bend devices, and reach every engine")
    if removed:
        parts.append(f"{', '.join(removed)} are kept from the engines")
    unset = f"`unset {' '.join(kept)}`"
    if scene.host.system == "win32":
        unset = " and ".join(f"`set {name}=`" for name in kept)
    fix = f"{unset} where they are not meant." if kept else None
    return noted(*about, facts, f"{'; '.join(parts)}.", fix)


def _interpreters() -> list[tuple[str, tuple[str, ...] | None]]:
    """Return each Python whose packages count: what it is called, and where they lie."""
    found: list[tuple[str, tuple[str, ...] | None]] = [(OURS, None)]
    with suppress(SetupError):  # the check of the environments says it
        found += [
            (f"the environment {s.name}", (str(s.installed.folder / s.installed.seal.site),))
            for s in standings()
            if s.installed is not None
        ]
    return found


def _sites(scene: Scene) -> set[Path]:
    """Return the folders in which installed packages of the runtimes lie."""
    return {
        Path(str(package.locate_file("")))
        for package in scene.outside.installed(None)
        if (package.metadata["Name"] or "").lower().replace("-", "_") in RUNTIMES
    }


def _before(entry: str, scene: Scene, sites: set[Path]) -> bool:
    """Say whether an import looks into ``entry`` before it looks into an installed package's."""
    path = scene.outside.import_path
    behind = [i for i, other in enumerate(path) if Path(other) in sites]
    return not behind or path.index(entry) < min(behind)


def _is_module(place: Path) -> bool:
    try:
        return place.is_file() if place.suffix == ".py" else (place / "__init__.py").is_file()
    except OSError:
        return False


def _few(places: list[str]) -> str:
    more = len(places) - _SHOWN
    return ", ".join(places[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _words(standing: Standing) -> str:
    return {"outdated": "out of date", "half-made": "half made", "foreign": "in the way"}.get(
        standing.state, standing.state
    )
