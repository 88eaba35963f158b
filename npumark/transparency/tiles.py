"""A log as static files (C2SP tlog-tiles): their paths, their contents, and trees read from them.

A tile of level L holds up to 256 hashes, each over 256**L leaves; a bundle holds the entries of a
tile of level 0. The last tile of a level may be partial, and is then named with its width.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from npumark.transparency.merkle import HASH_BYTES, Node, root_over

HEIGHT: Final = 8
WIDTH: Final = 1 << HEIGHT
MAX_ENTRY: Final = 0xFFFF
"""Bytes of one entry: a bundle states lengths in 16 bits."""
MAX_LEVEL: Final = 63
MAX_INDEX: Final = 2**55 - 1
"""Of a tile: more than a log of 2**63 leaves has."""

_PATH: Final = re.compile(
    r"tile/(?P<level>entries|0|[1-9][0-9]?)"
    r"/(?P<index>(?:x[0-9]{3}/){0,6}[0-9]{3})(?:\.p/(?P<width>[1-9][0-9]{0,2}))?"
)


@dataclass(frozen=True, slots=True)
class Tile:
    """Names a tile: ``level`` is None for a bundle of entries, ``width`` 256 where it is full."""

    level: int | None
    index: int
    width: int = WIDTH

    @property
    def path(self) -> str:
        """Its path below the log's prefix."""
        digits = str(self.index)
        digits = digits.zfill(-(-len(digits) // 3) * 3)
        *above, last = (digits[i : i + 3] for i in range(0, len(digits), 3))
        place = "".join(f"x{part}/" for part in above) + last
        level = "entries" if self.level is None else self.level
        return f"tile/{level}/{place}" + (f".p/{self.width}" if self.width < WIDTH else "")


def parse_tile_path(path: str) -> Tile:
    """Return the tile that a path names. Raises ValueError unless it is the path of one."""
    found = _PATH.fullmatch(path)
    if found is None:
        raise ValueError("it is no path of a tile")
    level = None if found["level"] == "entries" else int(found["level"])
    tile = Tile(level, int(re.sub("[x/]", "", found["index"])), int(found["width"] or WIDTH))
    # The only way to write it: no superfluous elements, no width of a full tile.
    if tile.path != path or tile.index > MAX_INDEX or (level or 0) > MAX_LEVEL:
        raise ValueError("it is no path of a tile")
    return tile


def hashes_in(tile: bytes) -> list[bytes]:
    """Return the hashes of a tile. Raises ValueError where it is empty or holds part of one."""
    if not tile or len(tile) % HASH_BYTES or len(tile) > WIDTH * HASH_BYTES:
        raise ValueError(f"a tile does not have {len(tile)} bytes")
    return [tile[i : i + HASH_BYTES] for i in range(0, len(tile), HASH_BYTES)]


def encode_bundle(entries: Sequence[bytes]) -> bytes:
    """Return the bundle of ``entries``. Raises ValueError where one is longer than 65,535 bytes."""
    if any(len(e) > MAX_ENTRY for e in entries):
        raise ValueError(f"an entry of the log has more than {MAX_ENTRY} bytes")
    return b"".join(len(e).to_bytes(2) + e for e in entries)


def decode_bundle(raw: bytes) -> list[bytes]:
    """Return the entries of a bundle. Raises ValueError where it is empty, ends in an entry, or
    has more than 256."""
    entries, at = [], 0
    while at < len(raw):
        length = int.from_bytes(raw[at : at + 2])
        entry = raw[at + 2 : at + 2 + length]
        if len(raw) < at + 2 or len(entry) < length:
            raise ValueError("the bundle ends in the middle of an entry")
        entries.append(entry)
        at += 2 + length
    if not 0 < len(entries) <= WIDTH:
        raise ValueError(f"a bundle does not have {len(entries)} entries")
    return entries


def tile_of(level: int | None, index: int, size: int) -> Tile:
    """Return the tile that holds hash ``index`` of a level (or entry, None) in a tree of ``size``
    leaves. Raises ValueError where that tree has no such hash."""
    held = size >> HEIGHT * (level or 0)
    if not 0 <= index < held:
        raise ValueError(f"a log of {size} leaves has no such hash")
    n = index // WIDTH
    return Tile(level, n, min(WIDTH, held - n * WIDTH))


def node_of(read: Callable[[Tile], Sequence[bytes]], size: int) -> Node:
    """Return how a tree of ``size`` leaves is asked for hashes where it is known by its tiles.

    ``read`` returns the hashes of a tile of exactly the width that is asked for. What it returns
    is taken as it is: a proof that is built from it has to be verified.
    """

    def node(level: int, index: int) -> bytes:
        row, above = divmod(level, HEIGHT)
        first = index << above
        tile = tile_of(row, first + (1 << above) - 1, size)
        at = first % WIDTH
        return root_over(read(tile)[at : at + (1 << above)])

    return node
