"""What this build calls its own pack. Written by ``tool/build_pack.py merge``; never by hand."""

from __future__ import annotations

from typing import Final

from npumark.pack.manifest import Manifest

SUITE_NAME: Final = "npumark-open"
SUITE_VERSION: Final = "1.0.0"
PINNED_MANIFEST_SHA256: Final = "3708d824cf2582c4fab7e31518254fdb2c89b00b7be168d5c6ce8dccf4d2d39c"


def is_pinned(manifest: Manifest) -> bool:
    """Say whether a manifest is, to the byte, the one this build was made with."""
    return manifest.sha256 == PINNED_MANIFEST_SHA256
