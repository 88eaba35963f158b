"""A private key in a file that only its user can read: 64 hexadecimal digits and a line end."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from npumark.errors import IntegrityError, SetupError
from npumark.record.files import write_atomically
from npumark.record.signing import InstallKey

_FORM = re.compile(rb"[0-9a-f]{64}\n?")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class NoKey(IntegrityError):
    """A key is no longer where it was put."""


def read_key(path: Path) -> InstallKey:
    """Return the key in ``path``.

    Raises NoKey; SetupError where others may read the file, or this user may not;
    IntegrityError where it holds no key.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for without end
            raise SetupError(
                f"{path} is no file, and a key is due there",
                "Put a copy of the key there, or make a new one: `npumark keys rotate`.",
            )
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            raw = file.read(128)
    except FileNotFoundError:
        raise NoKey(
            f"the key file {path} is gone", "Put it back, or make a new key: `npumark keys rotate`."
        ) from None
    except OSError as fault:
        raise SetupError(
            f"the key file {path} cannot be read: {fault.strerror or fault}",
            "Make it readable for this user alone.",
        ) from fault
    if _open_to_others(mode):
        raise SetupError(
            f"the key file {path} may be read or written by others (mode {stat.S_IMODE(mode):03o})",
            f"Close it to them: chmod 600 '{path}'; if somebody may have read it, make a new key: "
            "`npumark keys rotate`.",
        )
    if not _FORM.fullmatch(raw):
        raise IntegrityError(
            f"the key file {path} is damaged: it does not hold 64 hexadecimal digits",
            "Put a copy back, or make a new key: `npumark keys rotate`.",
        )
    return InstallKey(bytes.fromhex(raw.decode().strip()))


def write_key(path: Path, key: InstallKey) -> None:
    """Write ``key`` to ``path``, a new file.

    Raises UsageError where it exists, SetupError where it cannot be written or where the file
    system opens every file to everybody.
    """
    write_atomically(path, key.seed.hex().encode() + b"\n", mode=0o600)
    if _open_to_others(path.stat().st_mode):
        path.unlink()
        raise SetupError(
            f"the file system of {path.parent} cannot keep a file from other users",
            "Set NPUMARK_HOME to a folder on one that can.",
        )


def _open_to_others(mode: int) -> bool:
    """Whether a file's mode lets others in; Windows has no such bits, the folder's list counts."""
    return os.name == "posix" and bool(mode & _OTHERS)
