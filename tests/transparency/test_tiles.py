"""Tiles are named and filled as C2SP tlog-tiles says, and a tree is read from them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npumark.transparency.merkle import (
    Frontier,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    root_of,
    root_over,
    verify_consistency,
    verify_inclusion,
)
from npumark.transparency.tiles import (
    MAX_INDEX,
    Tile,
    decode_bundle,
    encode_bundle,
    hashes_in,
    node_of,
    parse_tile_path,
    tile_of,
)

PATHS = {
    "tile/0/x001/x234/067": Tile(0, 1234067),  # the example of the specification
    "tile/0/000": Tile(0, 0),
    "tile/1/000.p/17": Tile(1, 0, 17),
    "tile/0/273.p/112": Tile(0, 273, 112),
    "tile/63/999": Tile(63, 999),
    "tile/entries/x001/000.p/255": Tile(None, 1000, 255),
}


@pytest.mark.parametrize("path", PATHS)
def test_paths_both_ways(path: str) -> None:
    assert parse_tile_path(path) == PATHS[path]
    assert PATHS[path].path == path


@given(st.none() | st.integers(0, 63), st.integers(0, MAX_INDEX), st.integers(1, 256))
def test_every_tile_has_one_path(level: int | None, index: int, width: int) -> None:
    tile = Tile(level, index, width)
    assert parse_tile_path(tile.path) == tile


@pytest.mark.parametrize(
    "path",
    [
        "",
        "tile/0",
        "tile/0/",
        "tile/0/0",
        "tile/00/000",
        "tile/64/000",
        "tile/-1/000",
        "tile/0/x000/000",
        "tile/0/x000/001",
        "tile/0/001/000",
        "tile/0/x001",
        "tile/0/000.p/0",
        "tile/0/000.p/256",
        "tile/0/000.p/007",
        "tile/0/000.p/",
        "tile/0/000.p",
        "tile/0/000/",
        "tile/0/000\n",
        "/tile/0/000",
        "tile/0/٠٠٠",
        "tile/0/../000",
        "tile/0/x999/x999/x999/x999/x999/x999/999",
        "tile/0/x001/x000/x000/x000/x000/x000/x000/000",
        "tile/entry/000",
        "tile/0/%30%30%30",
    ],
)
def test_no_path(path: str) -> None:
    with pytest.raises(ValueError, match="no path of a tile"):
        parse_tile_path(path)


def tiles_of(size: int) -> list[Tile]:
    """Return the tiles of a tree, as the specification counts them."""
    found, level = [], 0
    while (held := size >> 8 * level) > 0:
        found += [Tile(level, n) for n in range(held // 256)]
        found += [Tile(level, held // 256, held % 256)] if held % 256 else []
        level += 1
    return found


def test_the_tree_of_the_specification() -> None:
    last = [Tile(0, 273, 112), Tile(1, 0), Tile(1, 1, 17), Tile(2, 0, 1)]
    assert tiles_of(70_000)[273:] == last
    assert tile_of(0, 69_999, 70_000) == last[0]
    assert tile_of(1, 255, 70_000) == last[1]
    assert tile_of(1, 272, 70_000) == last[2]
    assert tile_of(2, 0, 70_000) == last[3]
    assert tile_of(None, 5, 70_000) == Tile(None, 0)
    with pytest.raises(ValueError, match="no such hash"):
        tile_of(1, 273, 70_000)
    with pytest.raises(ValueError, match="no such hash"):
        tile_of(0, -1, 70_000)


class Published:
    """A log as the tiles that it publishes at one size, and no others."""

    def __init__(self, leaves: list[bytes]) -> None:
        self.size = len(leaves)
        self.held: dict[Tile, list[bytes]] = {}
        row, level = leaves, 0
        while row:
            for n in range(-(-len(row) // 256)):
                part = row[n * 256 : n * 256 + 256]
                self.held[Tile(level, n, len(part))] = part
            row = [root_over(row[n * 256 : n * 256 + 256]) for n in range(len(row) // 256)]
            level += 1

    def read(self, tile: Tile) -> list[bytes]:
        return self.held[tile]


LEAVES = [leaf_hash(i.to_bytes(4, "big")) for i in range(65_800)]


@pytest.mark.parametrize("size", [1, 2, 255, 256, 257, 511, 600, 65_535, 65_800])
def test_a_tree_is_read_from_the_tiles_of_its_size_alone(size: int) -> None:
    edge = Frontier()
    for leaf in LEAVES[:size]:
        edge = edge.append(leaf)
    log = Published(LEAVES[:size])
    assert sorted(log.held, key=str) == sorted(tiles_of(size), key=str)
    node = node_of(log.read, size)
    assert root_of(size, node) == edge.root()
    for index in {0, size // 2, size - 1}:
        proof = inclusion_proof(index, size, node)
        assert verify_inclusion(LEAVES[index], index, size, proof, edge.root())
    for older in {1, size // 3 + 1, size}:
        proof = consistency_proof(older, size, node)
        assert verify_consistency(older, size, root_of(older, node), edge.root(), proof)


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=256))
def test_bundles_both_ways(entries: list[bytes]) -> None:
    assert decode_bundle(encode_bundle(entries)) == entries


def test_the_form_of_a_bundle() -> None:
    assert encode_bundle([b"ab", b"", b"c"]) == b"\x00\x02ab\x00\x00\x00\x01c"
    assert decode_bundle(encode_bundle([b"x" * 65_535])) == [b"x" * 65_535]
    with pytest.raises(ValueError, match="65535 bytes"):
        encode_bundle([b"x" * 65_536])


@pytest.mark.parametrize("raw", [b"", b"\x00", b"\x00\x02a", b"\x00\x01a\x00", b"\x00\x00" * 257])
def test_no_bundle(raw: bytes) -> None:
    with pytest.raises(ValueError, match="bundle"):
        decode_bundle(raw)


def test_the_form_of_a_tile() -> None:
    assert hashes_in(LEAVES[0] + LEAVES[1]) == LEAVES[:2]
    for raw in (b"", LEAVES[0][:31], LEAVES[0] + b"x", b"".join(LEAVES[:257])):
        with pytest.raises(ValueError, match="does not have"):
            hashes_in(raw)
