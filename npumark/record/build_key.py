"""The key of a release build, which its pipeline writes into the package (``_build_key``)."""

from __future__ import annotations

import importlib

from npumark.errors import IntegrityError
from npumark.record.signing import BuildKey

MODULE = "npumark._build_key"
"""Written by ``tool/inject_build_key.py`` and never committed: ``PAD`` and ``MASKED``, 32 bytes
each, whose exclusive or is the key. A development build has no such module."""


def build_key() -> BuildKey | None:
    """Return this build's key, null in a development build. Raises IntegrityError where the
    module is damaged."""
    try:
        module = importlib.import_module(MODULE)
    except ModuleNotFoundError as absent:
        if absent.name == MODULE:
            return None
        raise _damaged() from absent
    except Exception as fault:
        raise _damaged() from fault
    pad, masked = getattr(module, "PAD", b""), getattr(module, "MASKED", b"")
    if not all(isinstance(half, bytes) and len(half) == 32 for half in (pad, masked)):
        raise _damaged()
    return BuildKey(unmask(pad, masked))


def unmask(pad: bytes, masked: bytes) -> bytes:
    """Return the exclusive or of two strings of one length; it undoes itself."""
    return bytes(a ^ b for a, b in zip(pad, masked, strict=True))


def _damaged() -> IntegrityError:
    return IntegrityError("the build key of this npumark is damaged", "Install npumark again.")
