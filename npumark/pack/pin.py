"""What this build calls its own pack. Written by ``tool/build_pack.py merge``; never by hand."""

from __future__ import annotations

from typing import Final

from npumark.pack.manifest import Manifest

SUITE_NAME: Final = "npumark-open"
SUITE_VERSION: Final = "1.0.0"
PINNED_MANIFEST_SHA256: Final = "ea08169aa9e71bd500e7f86185dfbf6c40298b9522f253bcd1d3bd77b85a17eb"


def is_pinned(manifest: Manifest) -> bool:
    """Say whether a manifest is, to the byte, the one this build was made with."""
    return manifest.sha256 == PINNED_MANIFEST_SHA256
