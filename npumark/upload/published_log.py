"""A server's log as it publishes it: its head and its tiles (C2SP tlog-tiles), fetched and bounded.

Nothing that comes back is believed: a head has to be signed, and what is computed from tiles has
to be verified against a head.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from npumark.errors import IntegrityError, NetworkError
from npumark.transparency.checkpoint import Checkpoint, open_checkpoint
from npumark.transparency.merkle import HASH_BYTES, Node
from npumark.transparency.note import MAX_NOTE, parse_verifier_key
from npumark.transparency.tiles import WIDTH, Tile, decode_bundle, hashes_in, node_of, tile_of
from npumark.upload.client import MOST_BYTES, Client

_LATER: Final = "Try again later; without --online the receipt is checked offline."
_UNTRUE: Final = "The server cannot show its log. Keep the receipt, and tell whoever runs it."


class PublishedLog:
    """The log of a server, whose heads are signed with the key ``vkey``."""

    def __init__(self, client: Client, vkey: str) -> None:
        self._client = client
        self._url = f"{client.address.url}/log"
        self.vkey = vkey
        self._key = parse_verifier_key(vkey)

    def head(self) -> tuple[str, Checkpoint]:
        """Return the present head as the signed note and what it says.

        Raises NetworkError where the server cannot be asked, IntegrityError where it answers with
        no head that the log's key signed.
        """
        raw = self._read("checkpoint", MAX_NOTE)
        try:
            note = (raw or b"").decode()
            return note, open_checkpoint(note, self._key)
        except ValueError as fault:
            raise IntegrityError(
                f"the checkpoint at {self._url}/checkpoint is not to be trusted: {fault}", _UNTRUE
            ) from None

    def node(self, size: int) -> Node:
        """Return how the tree of ``size`` leaves is asked for hashes; each tile is fetched once."""
        return node_of(cache(self._tile), size)

    def entry(self, index: int, size: int) -> bytes:
        """Return what the log of ``size`` leaves shows as the content of leaf ``index``. Raises
        IntegrityError where it does not serve it."""
        tile = tile_of(None, index, size)
        try:
            return decode_bundle(self._file(tile, MOST_BYTES))[index % WIDTH]
        except (ValueError, IndexError):
            raise self._lacks(tile) from None

    def _tile(self, tile: Tile) -> list[bytes]:
        """Raises IntegrityError where the log does not serve a tile that its head needs."""
        try:
            hashes = hashes_in(self._file(tile, WIDTH * HASH_BYTES))[: tile.width]
        except ValueError:
            raise self._lacks(tile) from None
        if len(hashes) != tile.width:
            raise self._lacks(tile)
        return hashes

    def _file(self, tile: Tile, most: int) -> bytes:
        """Return the content of a tile, or of the full one: a log may drop a partial tile once
        that is there. Empty where there is neither."""
        found = self._read(tile.path, most)
        if found is None and tile.width < WIDTH:
            found = self._read(Tile(tile.level, tile.index).path, most)
        return found or b""

    def _lacks(self, tile: Tile) -> IntegrityError:
        return IntegrityError(
            f"the log at {self._url} does not serve {tile.path}, which its head needs", _UNTRUE
        )

    def _read(self, path: str, most: int) -> bytes | None:
        """Return what lies at a path, null where there is nothing."""
        url = f"{self._url}/{path}"
        try:
            answer = self._client.get(f"/log/{path}")
        except NetworkError as fault:
            raise NetworkError(fault.message, _LATER) from fault
        if answer.status in (404, 410):
            return None
        if not answer.ok:
            raise NetworkError(f"{url} answers with status {answer.status}", _LATER)
        if len(answer.body) > most:
            raise IntegrityError(f"{url} holds more than {most} bytes", _UNTRUE)
        return answer.body
