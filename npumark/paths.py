"""Where npumark keeps what it writes.

The platform's user directories (platformdirs), or folders under ``NPUMARK_HOME`` alone where
that is set. Naming a place creates nothing; :func:`make` creates it and proves that it can be
written to.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import platformdirs

from npumark.errors import SetupError

HOME_VARIABLE = "NPUMARK_HOME"
ENGINES_VARIABLE = "NPUMARK_ENGINES"

_APP = "npumark"


def home() -> Path | None:
    """Return the folder that ``NPUMARK_HOME`` names, absolute, or None where it is unset."""
    return _named_by(HOME_VARIABLE)


def _named_by(variable: str) -> Path | None:
    value = os.environ.get(variable, "").strip()
    if not value:
        return None
    try:
        return Path(value).expanduser().absolute()
    except (RuntimeError, OSError) as fault:
        raise SetupError(
            f"{variable} is {value!r}, and no such folder can be found",
            f"Set {variable} to the full path of a folder.",
        ) from fault


def cache_dir() -> Path:
    """Return the folder of what can be made again: packs, compiled models."""
    root = home()
    return root / "cache" if root else _known(platformdirs.user_cache_path)


def data_dir() -> Path:
    """Return the folder of what cannot: records, journals, engine environments."""
    root = home()
    return root / "data" if root else _known(platformdirs.user_data_path)


def engines_dir() -> Path:
    """Return the folder of engine environments: ``NPUMARK_ENGINES``, or ``engines`` in the data."""
    return _named_by(ENGINES_VARIABLE) or data_dir() / "engines"


def engines_doubt() -> str | None:
    """Return a sentence where ``NPUMARK_ENGINES`` names no folder, so that no environment is
    found; null where it does, or is unset."""
    place = _named_by(ENGINES_VARIABLE)
    if place is None or os.path.isdir(place):  # noqa: PTH112 - Path raises where it may not look
        return None
    why = "that is no folder" if os.path.lexists(place) else "there is no such folder yet"
    return f"{ENGINES_VARIABLE} is {str(place)!r}, and {why}: no environment is used from it"


def config_dir() -> Path:
    """Return the folder of settings and keys."""
    root = home()
    return root / "config" if root else _known(platformdirs.user_config_path)


def _known(ask: Callable[..., Path]) -> Path:
    """Return what the platform names. Without a home folder it names ``~`` itself, or fails."""
    try:
        place = ask(_APP, appauthor=False)
    except (RuntimeError, KeyError, OSError):
        place = None
    if place is None or not place.is_absolute():
        raise SetupError(
            "no home folder of this user is known, so there is no place to keep anything",
            f"Set {HOME_VARIABLE} to the full path of a folder.",
        )
    return place


def make(folder: Path) -> Path:
    """Create ``folder`` where it is missing, prove that it takes files, and return it.

    Raises SetupError saying why not: read-only, no permission, no space, not a folder.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".probe-"):
            pass
    except OSError as fault:
        raise unwritable(folder, fault) from fault
    return folder


def unwritable(place: Path, fault: OSError) -> SetupError:
    """Return the error that tells a user why ``place`` cannot be written to."""
    variable = _chosen_by(place)
    hint = f"Make it writable, or set {variable} to a folder that is."
    if fault.errno in {errno.ENOSPC, errno.EDQUOT}:
        return SetupError(
            f"no space left while writing to {place}",
            f"Free some space, or set {variable} to a folder on another disk.",
        )
    if fault.errno == errno.EROFS:
        return SetupError(f"{place} is on a read-only file system", hint)
    if fault.errno in {errno.EACCES, errno.EPERM}:
        return SetupError(f"there is no permission to write to {place}", hint)
    if fault.errno in {errno.EEXIST, errno.ENOTDIR}:
        return SetupError(f"{place} cannot be a folder: a file is in the way", hint)
    return SetupError(f"{place} cannot be written to: {fault.strerror or fault}", hint)


def _chosen_by(place: Path) -> str:
    """Return the variable that decides where ``place`` lies."""
    engines = _named_by(ENGINES_VARIABLE)
    if engines is not None and place.is_relative_to(engines):
        return ENGINES_VARIABLE
    return HOME_VARIABLE
