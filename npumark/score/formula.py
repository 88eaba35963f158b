"""Which arithmetic this build computes figures with: a version, and a hash of its sources."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

FORMULA_VERSION: Final = "1"

ACCEPTED: Final[dict[str, str]] = {}
"""Earlier formulas, sha256 to version, that give the same figures from the same attempts."""

PACKAGE = Path(__file__).parent.parent
PARTS: Final = ("gates", "score")


def formula_files(package: Path = PACKAGE) -> tuple[Path, ...]:
    """Return the sources that define the arithmetic, in the order they are hashed.

    All of ``gates`` and ``score`` but this file, which would otherwise hash its own history.
    """
    return tuple(
        path
        for part in PARTS
        for path in sorted((package / part).glob("*.py"), key=lambda p: p.name)
        if path.name != Path(__file__).name
    )


def hash_sources(files: tuple[Path, ...], package: Path = PACKAGE) -> str:
    """Return the sha256 over names, lengths and contents, line endings normalised to LF."""
    digest = hashlib.sha256(f"npumark-formula/{FORMULA_VERSION}\n".encode())
    for path in files:
        text = path.read_bytes().replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        digest.update(f"{path.relative_to(package).as_posix()}\n{len(text)}\n".encode())
        digest.update(text)
    return digest.hexdigest()


@cache
def formula_sha256() -> str:
    """Return the hash of the arithmetic this build computes with."""
    return hash_sources(formula_files())


def is_known_formula(sha256: str) -> bool:
    """Whether figures made with a formula can be recomputed by this build."""
    return sha256 == formula_sha256() or sha256 in ACCEPTED
