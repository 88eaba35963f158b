"""Trees and proofs are those of RFC 9162, and nothing else is taken for them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npumark.transparency.merkle import (
    EMPTY_ROOT,
    Frontier,
    Node,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    node_hash,
    root_of,
    root_over,
    verify_consistency,
    verify_inclusion,
)

# The reference tree of Certificate Transparency: its leaves, its roots by size, and proofs.
ENTRIES = [
    bytes.fromhex(text)
    for text in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
INCLUSION = {
    (0, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (5, 8): [
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
    (2, 3): ["fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"],
}
CONSISTENCY = {
    (1, 8): [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ],
    (6, 8): [
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ],
    (2, 5): [
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ],
}


def naive_root(leaves: Sequence[bytes]) -> bytes:
    """MTH of RFC 9162 §2.1.1, word by word."""
    if not leaves:
        return hashlib.sha256().digest()
    if len(leaves) == 1:
        return leaves[0]
    k = 1
    while 2 * k < len(leaves):
        k *= 2
    return hashlib.sha256(b"\x01" + naive_root(leaves[:k]) + naive_root(leaves[k:])).digest()


def asked(leaves: Sequence[bytes]) -> Node:
    def node(level: int, index: int) -> bytes:
        part = leaves[index << level : (index + 1) << level]
        assert len(part) == 1 << level, "a subtree that is not complete has no root"
        return naive_root(part)

    return node


def leaves_of(count: int) -> list[bytes]:
    return [leaf_hash(i.to_bytes(4, "big")) for i in range(count)]


LEAVES = leaves_of(300)
sizes = st.integers(0, 300)


def grown(leaves: Sequence[bytes]) -> Frontier:
    edge = Frontier()
    for leaf in leaves:
        edge = edge.append(leaf)
    return edge


@pytest.mark.parametrize("size", range(9))
def test_roots_of_the_reference_tree(size: int) -> None:
    leaves = [leaf_hash(e) for e in ENTRIES[:size]]
    assert grown(leaves).root().hex() == ROOTS[size]
    assert root_of(size, asked(leaves)).hex() == ROOTS[size]


@pytest.mark.parametrize(("index", "size"), INCLUSION)
def test_inclusion_proofs_of_the_reference_tree(index: int, size: int) -> None:
    leaves = [leaf_hash(e) for e in ENTRIES]
    proof = inclusion_proof(index, size, asked(leaves))
    assert [h.hex() for h in proof] == INCLUSION[index, size]
    assert verify_inclusion(leaves[index], index, size, proof, bytes.fromhex(ROOTS[size]))


@pytest.mark.parametrize(("m", "n"), CONSISTENCY)
def test_consistency_proofs_of_the_reference_tree(m: int, n: int) -> None:
    proof = consistency_proof(m, n, asked([leaf_hash(e) for e in ENTRIES]))
    assert [h.hex() for h in proof] == CONSISTENCY[m, n]
    assert verify_consistency(m, n, bytes.fromhex(ROOTS[m]), bytes.fromhex(ROOTS[n]), proof)


def test_an_entry_cannot_pass_for_a_node() -> None:
    left, right = LEAVES[:2]
    assert leaf_hash(left + right) != node_hash(left, right)


@given(sizes)
def test_a_frontier_has_the_root_of_the_whole_tree(size: int) -> None:
    edge = grown(LEAVES[:size])
    assert edge.root() == naive_root(LEAVES[:size]) == root_of(size, asked(LEAVES))
    assert Frontier.from_bytes(size, edge.to_bytes()) == edge


@pytest.mark.parametrize("size", [1, 2, 8, 256])
def test_the_root_over_a_complete_subtree(size: int) -> None:
    assert root_over(LEAVES[:size]) == naive_root(LEAVES[:size])


@given(sizes, st.integers(0, 40))
def test_many_leaves_at_once_are_proved_under_one_head(size: int, more: int) -> None:
    new = [leaf_hash(b"%d" % i) for i in range(more)]
    whole = [*LEAVES[:size], *new]
    edge, proofs = grown(LEAVES[:size]).extend(new)
    assert edge == grown(whole)
    assert proofs == [inclusion_proof(size + i, len(whole), asked(whole)) for i in range(more)]


@given(st.data())
def test_every_leaf_of_every_tree_is_proved(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 300))
    index = data.draw(st.integers(0, size - 1))
    proof = inclusion_proof(index, size, asked(LEAVES))
    assert verify_inclusion(LEAVES[index], index, size, proof, naive_root(LEAVES[:size]))


@given(st.data())
def test_every_tree_is_the_beginning_of_every_later_one(data: st.DataObject) -> None:
    n = data.draw(sizes)
    m = data.draw(st.integers(0, n))
    proof = consistency_proof(m, n, asked(LEAVES))
    roots = naive_root(LEAVES[:m]), naive_root(LEAVES[:n])
    assert verify_consistency(m, n, *roots, proof)


def flipped(value: bytes) -> bytes:
    return bytes([value[0] ^ 1]) + value[1:]


def spoilt(proof: Sequence[bytes]) -> list[Sequence[bytes]]:
    """Return proofs that differ from ``proof`` in one thing."""
    changed = [[*proof[:i], flipped(proof[i]), *proof[i + 1 :]] for i in range(len(proof))]
    shorter = [proof[1:], proof[:-1]] if proof else []
    swapped = [[proof[1], proof[0], *proof[2:]]] if len(proof) > 1 else []
    longer = [[*proof, LEAVES[0]], [LEAVES[0], *proof], [*proof, b"short"]]
    return [*changed, *shorter, *swapped, *longer]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 13, 64, 65])
def test_no_other_inclusion_proof_holds(size: int) -> None:
    root = naive_root(LEAVES[:size])
    for index in range(size):
        leaf, proof = LEAVES[index], inclusion_proof(index, size, asked(LEAVES))
        assert verify_inclusion(leaf, index, size, proof, root)
        for other in spoilt(proof):
            assert not verify_inclusion(leaf, index, size, other, root)
        for place in {*range(-1, size + 2)} - {index}:
            assert not verify_inclusion(leaf, place, size, proof, root)
        assert not verify_inclusion(flipped(leaf), index, size, proof, root)
        assert not verify_inclusion(leaf, index, size, proof, flipped(root))
        assert not verify_inclusion(leaf, index, 0, proof, root)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 13, 33])
def test_no_other_consistency_proof_holds(n: int) -> None:
    root_n = naive_root(LEAVES[:n])
    for m in range(n + 1):
        root_m, proof = naive_root(LEAVES[:m]), consistency_proof(m, n, asked(LEAVES))
        assert verify_consistency(m, n, root_m, root_n, proof)
        for other in spoilt(proof):
            assert not verify_consistency(m, n, root_m, root_n, other)
        assert not verify_consistency(m, n, flipped(root_m), root_n, proof)
        assert not verify_consistency(n + 1, n, root_m, root_n, proof)
        assert not verify_consistency(-1, n, root_m, root_n, proof)
        if m:  # the tree without leaves begins any other, whatever its root
            assert not verify_consistency(m, n, root_m, flipped(root_n), proof)
            assert m == n or not verify_consistency(m, n, root_m, root_n, ())
    assert not verify_consistency(0, 0, root_n, root_n, ())


@given(st.integers(1, 300), st.integers(1, 300), st.data())
def test_a_changed_leaf_is_no_beginning(m: int, n: int, data: st.DataObject) -> None:
    m, n = sorted((m, n))
    place = data.draw(st.integers(0, m - 1))
    forged = [*LEAVES[:place], leaf_hash(b"another"), *LEAVES[place + 1 :]]
    proof = consistency_proof(m, n, asked(forged))
    assert not verify_consistency(m, n, naive_root(LEAVES[:m]), naive_root(forged[:n]), proof)


def test_what_a_tree_cannot_have_is_refused() -> None:
    with pytest.raises(ValueError, match="no leaf 3"):
        inclusion_proof(3, 3, asked(LEAVES))
    with pytest.raises(ValueError, match="not the beginning"):
        consistency_proof(4, 3, asked(LEAVES))
    with pytest.raises(ValueError, match="right edge"):
        Frontier.from_bytes(3, EMPTY_ROOT)
