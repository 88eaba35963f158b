"""What this build calls its own pack. Written by ``tool/build_pack.py merge``; never by hand."""

from __future__ import annotations

from typing import Final

from npumark.pack.manifest import Manifest

SUITE_NAME: Final = "npumark-open"
SUITE_VERSION: Final = "1.0.0"
PINNED_MANIFEST_SHA256: Final = "ad380bad5baede10ae7815c0a8ad165ee1b5ad9b61febe8e69d23878f91694da"


def is_pinned(manifest: Manifest) -> bool:
    """Say whether a manifest is, to the byte, the one this build was made with."""
    return manifest.sha256 == PINNED_MANIFEST_SHA256
