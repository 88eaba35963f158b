"""The log as files that any web server or CDN can serve: C2SP tlog-tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, Engine

from npumark.errors import SetupError
from npumark.paths import make
from npumark.record.files import write_atomically
from npumark.server import log
from npumark.server.database import snapshot
from npumark.transparency.tiles import HEIGHT, WIDTH, Tile


@dataclass(frozen=True, slots=True)
class Exported:
    """``size`` is that of the log, ``written`` how many files were new, ``kept`` how many lay
    there."""

    size: int
    written: int
    kept: int


def export_log(engine: Engine, folder: Path) -> Exported:
    """Write the log below ``folder`` as it would be served below ``/log``.

    What is at the path of a tile never changes, so that only new ones are written; the checkpoint
    comes last, so that whoever reads it finds the tiles below it. Raises SetupError where the
    folder cannot be written to.
    """
    try:
        make(folder)
    except SetupError as fault:
        raise SetupError(fault.message, "Name another folder as DIR.") from fault
    written = kept = 0
    with snapshot(engine) as connection:
        size = log.head(connection).size
        for tile in tiles_of(size):
            place = folder / tile.path
            if place.exists():
                kept += 1
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(place, _content(connection, tile), force=True)
            written += 1
        note = log.checkpoint(connection)
        write_atomically(folder / "checkpoint", note.encode(), force=True)
    return Exported(size, written, kept)


def tiles_of(size: int) -> Iterator[Tile]:
    """Yield all tiles and bundles of a log of ``size`` leaves, the last of each level as wide as
    it is."""
    level, held = 0, size
    while held:
        for index in range(-(-held // WIDTH)):
            width = min(WIDTH, held - index * WIDTH)
            if level == 0:
                yield Tile(None, index, width)
            yield Tile(level, index, width)
        level, held = level + 1, held >> HEIGHT


def _content(connection: Connection, tile: Tile) -> bytes:
    if tile.level is None:
        found = log.bundle(connection, tile.index, tile.width)
    else:
        found = log.tile(connection, tile.level, tile.index, tile.width)
    if found is None:
        raise ValueError(f"the log has no {tile.path}")
    return found
