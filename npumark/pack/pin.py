"""What this build calls its own pack. Written by ``tool/build_pack.py merge``; never by hand."""

from __future__ import annotations

from typing import Final

from npumark.pack.manifest import Manifest

SUITE_NAME: Final = "npumark-open"
SUITE_VERSION: Final = "1.0.0"
PINNED_MANIFEST_SHA256: Final = "7b1c727881f68e6c73e415aa94e98fd6f7bbc9da15f22080378d2e14dbbbb590"


def is_pinned(manifest: Manifest) -> bool:
    """Say whether a manifest is, to the byte, the one this build was made with."""
    return manifest.sha256 == PINNED_MANIFEST_SHA256
