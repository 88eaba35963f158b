"""Environments of engines: where they lie, whether they are whole, what they hold.

``<engines>/<name>/`` is a virtual environment with ``environment.json`` in it, written last, so
that one without it was never finished. It is marked as npumark's from its beginning: the folder
may hold a user's own things too, and those are none of ours. Everything here only reads;
``install`` makes them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from dataclasses import asdict, dataclass
from email.parser import BytesHeaderParser
from pathlib import Path
from typing import Any, Literal

from npumark import paths
from npumark.engines import catalogue
from npumark.engines.catalogue import Environment
from npumark.engines.platforms import here as here
from npumark.orchestrator.plain_file import read_plain

FILE = "environment.json"
SCHEMA = "npumark-environment/1"
MAKING = ".making-"
"""Begins the name of a folder in which an environment is being made, or was."""

MARK = ".npumark-environment"
"""A file in every environment that npumark began to make: what has none, and no
``environment.json`` of ours either, somebody else put there."""

_MAX_FILE_BYTES = 1 << 20
_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)(\[[^\]]*\])?==(?P<version>[^\s;]+)"
    r"(\s*;\s*sys_platform\s*==\s*'(?P<system>\w+)')?"
)

State = Literal["absent", "installed", "outdated", "broken", "half-made", "foreign"]


@dataclass(frozen=True, slots=True)
class Seal:
    """What ``environment.json`` says: what was asked for, and what came of it.

    ``interpreter`` and ``site`` are relative to the environment. ``python`` is a version.
    """

    name: str
    requirements: tuple[str, ...]
    python: str
    interpreter: str
    site: str
    packages: dict[str, str]

    def encode(self) -> bytes:
        """Return the file's bytes, its own digest among them."""
        body = {"schema": SCHEMA, **asdict(self)}
        return _dump({**body, "sha256": hashlib.sha256(_dump(body)).hexdigest()})


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment that is whole. ``packages`` are the versions that are in it now.

    ``sha256`` is that of ``environment.json``. ``changed`` names the packages that are not what
    was installed.
    """

    name: str
    folder: Path
    seal: Seal
    sha256: str
    packages: dict[str, str]

    @property
    def python(self) -> str:
        """The path of its interpreter."""
        return str(self.folder / self.seal.interpreter)

    @property
    def changed(self) -> tuple[str, ...]:
        before, now = self.seal.packages, self.packages
        return tuple(n for n in sorted({*before, *now}) if before.get(n) != now.get(n))


@dataclass(frozen=True, slots=True)
class Standing:
    """How it stands with an environment: ``why`` where it cannot be used, or is out of date.

    ``foreign``: a file or folder that npumark did not make has its name.
    """

    name: str
    state: State
    why: str | None = None
    installed: Installed | None = None

    @property
    def remedy(self) -> str:
        """The end of a sentence that tells how the environment becomes whole."""
        if self.state == "foreign":
            return f"move it away, then run `npumark engines install {self.name}`"
        if catalogue.environment(self.name) is None:
            return f"`npumark engines remove {self.name}` frees its space"
        return remake(self.name)


def remake(name: str) -> str:
    """Return the end of a sentence that tells how an environment is made anew, whatever it is."""
    return f"`npumark engines install {name} --again` makes its environment anew"


def freed(name: str) -> str:
    """Return the end of a sentence about an environment that lacks something beside it."""
    return f"install that, or free the space with `npumark engines remove {name}`"


def runs_here(row: Environment) -> bool:
    return here() in row.platforms


def standings(folder: Path | None = None) -> tuple[Standing, ...]:
    """Return how it stands with every environment: those of the catalogue in its order, then
    those that another npumark made. ``folder`` holds them (``paths.engines_dir()`` by default)."""
    root = folder or paths.engines_dir()
    known = [row.name for row in catalogue.ENVIRONMENTS]
    try:
        others = sorted(p.name for p in root.iterdir() if p.name[0] != "." and is_ours(p))
    except OSError:
        others = []
    return tuple(standing(name, root) for name in (*known, *(n for n in others if n not in known)))


def standing(name: str, folder: Path | None = None) -> Standing:
    """Return how it stands with the environment of this name."""
    root = folder or paths.engines_dir()
    place = root / name
    foreign = Standing(name, "foreign", "something that npumark did not make has its name")
    if not os.path.isdir(place):  # noqa: PTH112 - Path raises where it may not look
        if os.path.isfile(place):  # noqa: PTH113 - as above
            return foreign
        if _is_begun(root, name):
            return Standing(name, "half-made", "its installation has not come to its end")
        return Standing(name, "absent")
    if not is_ours(place) and not _is_empty(place):
        return foreign
    row = catalogue.environment(name)
    if row is None:
        return Standing(name, "broken", "this version of npumark has no such environment")
    try:
        installed = read(place)
    except ValueError as fault:
        return Standing(name, "broken", str(fault))
    if installed.seal.requirements != row.requirements:
        why = "it holds other versions than this npumark asks for"
        return Standing(name, "outdated", why, installed)
    if installed.changed:
        why = f"packages in it were changed: {', '.join(installed.changed[:5])}"
        return Standing(name, "outdated", why, installed)
    return Standing(name, "installed", None, installed)


def is_ours(folder: Path) -> bool:
    """Say whether npumark made a folder: it bears the mark, or a seal that npumark wrote."""
    try:
        if (folder / MARK).is_file():
            return True
        _unseal(_raw(folder))
    except (OSError, ValueError):
        return False
    return True


def _is_begun(root: Path, name: str) -> bool:
    try:
        names = [entry.name for entry in root.iterdir()]
    except OSError:
        return False
    return any(found.startswith(f"{MAKING}{name}.") for found in names)


def _is_empty(folder: Path) -> bool:
    try:
        return not any(folder.iterdir())
    except OSError:
        return False


def pins(requirements: tuple[str, ...], system: str = sys.platform) -> dict[str, str]:
    """Return the versions by package that requirements of the catalogue pin on ``system``.

    Raises ValueError for a requirement of another form than ``name[extra]==version; sys_platform
    == 'x'``.
    """
    found = {}
    for text in requirements:
        parts = _REQUIREMENT.fullmatch(text)
        if parts is None:
            raise ValueError(f"not a pinned requirement: {text}")
        if parts["system"] in (None, system):
            found[_normal(parts["name"])] = parts["version"]
    return found


def lacking(requirements: tuple[str, ...], packages: dict[str, str]) -> tuple[str, ...]:
    """Return the requirements that apply here and that ``packages`` do not meet at their pin."""
    return tuple(
        f"{name} {version}"
        for name, version in pins(requirements).items()
        # A build's own label may follow the version: 1.0+cpu.
        if packages.get(name, "").partition("+")[0] != version
    )


def read(folder: Path) -> Installed:
    """Return the environment at ``folder``. Raises ValueError, in a clause, where it is not whole.

    Nothing in it is run: the versions are those that its packages' own metadata give.
    """
    try:
        raw = _raw(folder)
    except FileNotFoundError:
        raise ValueError(f"it has no {FILE}, so it was never finished") from None
    except OSError as fault:
        raise ValueError(f"its {FILE} cannot be read: {fault.strerror or fault}") from fault
    seal = _unseal(raw)
    if seal.name != folder.name:
        raise ValueError(f"its {FILE} is of another environment, {seal.name!r:.60}")
    for what, place in (("interpreter", seal.interpreter), ("packages", seal.site)):
        if not _inside(folder, place):
            raise ValueError(f"its {FILE} names a place outside of it for its {what}")
    if not (folder / seal.interpreter).is_file():
        raise ValueError(f"its interpreter {folder / seal.interpreter} is gone")
    # The file that it leads to is often named by its version: after an upgrade by another.
    named = re.fullmatch(r"python(\d+\.\d+)", (folder / seal.interpreter).resolve().name)
    if named and named[1] != minor(seal.python):
        raise ValueError(other_python(seal.python, named[1]))
    packages = packages_in(folder / seal.site)
    gone = [name for name in seal.packages if name not in packages]
    if gone:
        raise ValueError(f"packages are gone from it: {', '.join(gone[:5])}")
    return Installed(folder.name, folder, seal, hashlib.sha256(raw).hexdigest(), packages)


def minor(version: str) -> str:
    """Return ``3.11`` of ``3.11.7``: packages belong to a minor version of Python."""
    return ".".join(version.split(".")[:2])


def other_python(sealed: str, now: str) -> str:
    """Return the clause that tells of an interpreter that became another one."""
    return f"its interpreter is now Python {now}, and its packages are for Python {sealed}"


def size_of(found: Standing) -> int:
    """Return the bytes of an installed environment's files, 0 where it is not installed."""
    if found.installed is None:
        return 0
    files = (p for p in found.installed.folder.rglob("*") if not p.is_symlink())
    return sum(p.stat().st_size for p in files if p.is_file())


def packages_in(site: Path) -> dict[str, str]:
    """Return the versions of the packages in a folder, by name, sorted; without the installer."""
    found = {}
    for package in _metadata_in(site):
        try:
            told = BytesHeaderParser().parsebytes(read_plain(package, _MAX_FILE_BYTES))
        except OSError:
            continue  # what was only half removed has none
        name, version = str(told["Name"] or ""), str(told["Version"] or "")
        if name and version and name != "pip":
            found[_normal(name)] = version
    return dict(sorted(found.items()))


def _metadata_in(site: Path) -> list[Path]:
    try:
        return [place / "METADATA" for place in site.iterdir() if place.suffix == ".dist-info"]
    except OSError:
        return []


def _inside(folder: Path, place: str) -> bool:
    """Say whether a path of a seal lies in its environment. The last of it may be a link, as the
    interpreter of every environment is; the folder that holds it may not lead out."""
    path = Path(place)
    if path.is_absolute() or path.drive or ".." in path.parts:
        return False
    try:
        return (folder / path).parent.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):
        return False


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _unseal(raw: bytes) -> Seal:
    """Return what the file says. Raises ValueError where it is not one that npumark wrote."""
    try:
        doc: dict[str, Any] = json.loads(raw)
        digest, whole = doc.pop("sha256"), hashlib.sha256(_dump(doc)).hexdigest()
        schema = doc.pop("schema")
        seal = Seal(**{**doc, "requirements": tuple(doc["requirements"])})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError(f"its {FILE} is damaged") from None
    texts = (seal.name, seal.python, seal.interpreter, seal.site, *seal.requirements)
    if digest != whole or schema != SCHEMA or not all(isinstance(t, str) and t for t in texts):
        raise ValueError(f"its {FILE} is damaged")
    if not isinstance(seal.packages, dict) or not all(
        isinstance(version, str) for version in seal.packages.values()
    ):
        raise ValueError(f"its {FILE} is damaged")
    return seal


def _raw(folder: Path) -> bytes:
    return read_plain(folder / FILE, _MAX_FILE_BYTES)


def _dump(doc: dict[str, Any]) -> bytes:
    return (json.dumps(doc, indent=1, sort_keys=True) + "\n").encode()
