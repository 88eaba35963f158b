"""Whether a package's native libraries are what was installed, looked at where one does not work.

A library that is gone or damaged is seldom what a runtime says: it finds no device, or leaves the
work to another one. The package's own list of files gives their sizes. Only what fails is looked
at: a library that somebody left out, or stripped, and that works without is no fault.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, PackagePath, distribution
from pathlib import Path

_BEGINS = {
    ".so": (b"\x7fELF",),
    ".dll": (b"MZ",),
    ".dylib": (
        b"\xcf\xfa\xed\xfe",
        b"\xce\xfa\xed\xfe",
        b"\xca\xfe\xba\xbe",
        b"\xca\xfe\xba\xbf",
    ),
}
"""How libraries begin: ELF, PE, Mach-O of one processor or of several."""


def damage(packages: Iterable[str], environment: str | None) -> str | None:
    """Say in a clause which library of these packages is not what was installed, and what to do;
    null where all are, or nothing tells.

    ``environment`` is the name of the one that npumark makes for them, or null.
    """
    for name in packages:
        try:
            found = _damaged(distribution(name))
        except (PackageNotFoundError, OSError, ValueError):
            continue
        if found is not None:
            library, why = found
            return f"{library} of the package {name} is damaged ({why}); {_fix(name, environment)}"
    return None


def _damaged(package: Distribution) -> tuple[str, str] | None:
    for file in package.files or ():
        kind = _kind(file.name)
        if kind is not None:
            why = _fault(Path(str(package.locate_file(file))), file, _BEGINS[kind])
            if why is not None:
                return file.name, why
    return None


def _kind(name: str) -> str | None:
    """Return the suffix that says what kind of library a file is; ``libx.so.1`` is one too."""
    ends = [kind for kind in _BEGINS if name.endswith(kind) or f"{kind}." in name]
    return ends[0] if ends else None


def _fault(path: Path, listed: PackagePath, begins: tuple[bytes, ...]) -> str | None:
    if not path.exists():
        return "it is gone"
    if not path.is_file():
        return "it is no file"
    size = path.stat().st_size
    if size == 0:
        return "it is empty" if listed.size != 0 else None
    with path.open("rb") as stream:
        if not stream.read(4).startswith(begins):
            return "it is no library"
    if listed.size is not None and size < listed.size:
        return f"it has {size} of {listed.size} bytes"
    return None


def _fix(package: str, environment: str | None) -> str:
    if environment is not None and Path(sys.prefix).name == environment:
        return f"`npumark engines install {environment} --again` makes its environment anew"
    return f"reinstall it: pip install --force-reinstall {package}"
