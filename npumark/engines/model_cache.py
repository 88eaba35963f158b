"""A folder of compiled models that is believed only while its bytes are those it was left with.

The folder's name already says what the model depends on (contents, runtime, device, options);
the sidecar says what lies in it. A file that was changed, added or lost empties the folder, and
the model is compiled again, once. It is never a reason to run elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

_T = TypeVar("_T")

SIDECAR = "sidecar.json"


class ModelCache:
    """One entry's compiled models under ``folder``; ``folder/models`` is the runtime's own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._models = folder / "models"

    def build(self, compile_into: Callable[[Path], _T]) -> _T:
        """Return what ``compile_into`` makes of the verified folder, and seal what it left.

        Where it fails on a filled folder, the folder is emptied and it is tried once more;
        a second failure is the caller's.
        """
        if not self.intact():
            self._empty()
        filled = any(self._models.iterdir())
        try:
            made = compile_into(self._models)
        except Exception:
            if not filled:
                raise
            self._empty()
            made = compile_into(self._models)
        self._seal()
        return made

    def intact(self) -> bool:
        """Say whether the folder holds exactly the files, byte for byte, that were sealed."""
        try:
            sealed = json.loads((self._folder / SIDECAR).read_text(encoding="utf-8"))
            return isinstance(sealed, dict) and sealed == self._hashes()
        except (OSError, ValueError):
            return False

    def _hashes(self) -> dict[str, str]:
        found = {}
        for path in sorted(self._models.rglob("*")):
            if path.is_file():
                with path.open("rb") as stream:
                    digest = hashlib.file_digest(stream, "sha256").hexdigest()
                found[path.relative_to(self._models).as_posix()] = digest
        return found

    def _empty(self) -> None:
        (self._folder / SIDECAR).unlink(missing_ok=True)
        if self._models.exists():
            shutil.rmtree(self._models)
        self._models.mkdir(parents=True)

    def _seal(self) -> None:
        temporary = self._folder / f"{SIDECAR}.{os.getpid()}.tmp"
        temporary.write_text(json.dumps(self._hashes(), sort_keys=True), encoding="utf-8")
        temporary.replace(self._folder / SIDECAR)
