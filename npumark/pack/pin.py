"""What this build calls its own pack. Written by ``tool/build_pack.py merge``; never by hand."""

from __future__ import annotations

from typing import Final

from npumark.pack.manifest import Manifest

SUITE_NAME: Final = "npumark-open"
SUITE_VERSION: Final = "1.0.0"
PINNED_MANIFEST_SHA256: Final = "333aff2529aea89304ac1232db4bb239d4a02d8a76762490e8e025d576185f01"


def is_pinned(manifest: Manifest) -> bool:
    """Say whether a manifest is, to the byte, the one this build was made with."""
    return manifest.sha256 == PINNED_MANIFEST_SHA256
