"""Every way a pack can be wrong: named, rebuilt once if it can be, else never comparable."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from npumark.errors import PackError
from npumark.pack import inspection, materialize, pin, verify
from npumark.pack.manifest import Manifest, PackFile, load_manifest, parse_manifest
from npumark.policy import DATA

Damage = Callable[[Path], None]
WEIGHTS = "peak-16x256x3/fp32.weights"
GRAPH = "peak-16x256x3/fp32.onnx"


def test_a_whole_pack_verifies_and_is_stamped(
    manifest: Manifest, root: Path, tiny: tuple[str, ...]
) -> None:
    result = verify.ensure(manifest, tiny)
    assert (result.verified, result.why_not, result.rebuilt) == (True, None, ())
    assert set(result.stamps) == set(tiny)
    status = (root / WEIGHTS).stat()
    assert result.stamps[WEIGHTS] == (status.st_size, status.st_mtime_ns, status.st_ino)
    assert verify.verify_files(manifest, root, tiny) == result.stamps


def _flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def _zero_block(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[4096:8192] = bytes(4096)
    path.write_bytes(raw)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def _remove(path: Path) -> None:
    path.unlink()


def _link(link: Path, target: Path) -> None:
    try:
        link.symlink_to(target)
    except OSError:
        pytest.skip("this account may not make links")


def _link_out(path: Path) -> None:
    outside = path.parents[4] / "outside"
    path.rename(outside)
    _link(path, outside)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path) -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("this system has no named pipes")
    path.unlink()
    os.mkfifo(path)


DAMAGE = [
    (_flip, "changed", "other bytes"),
    (_zero_block, "changed", "other bytes"),
    (_cut, "truncated", "cut short"),
    (_lengthen, "longer", "too long"),
    (_remove, "missing", "is missing"),
    (_link_out, "link", "link that leads out"),
    (_pipe, "unreadable", "not a plain file"),
]


@pytest.mark.parametrize(("damage", "kind", "words"), DAMAGE)
def test_damage_is_named_and_rebuilt_once(
    manifest: Manifest, root: Path, tiny: tuple[str, ...], damage: Damage, kind: str, words: str
) -> None:
    damage(root / WEIGHTS)
    with pytest.raises(PackError, match=words) as caught:
        verify.verify_files(manifest, root, tiny)
    assert caught.value.path == WEIGHTS
    assert WEIGHTS in caught.value.message
    assert caught.value.exit_code == 5

    result = verify.ensure(manifest, tiny)
    assert result.verified
    assert [f.kind for f in result.rebuilt] == ([] if kind == "missing" else [kind])
    assert verify.verify_files(manifest, root, tiny) == result.stamps


def test_a_folder_in_a_files_place_is_named(manifest: Manifest, root: Path) -> None:
    _folder(root / WEIGHTS)
    found = inspection.inspect(manifest, root, [WEIGHTS])
    assert found.faults[WEIGHTS].kind == "unreadable"


def test_swapped_files_of_equal_size_are_named(
    manifest: Manifest, root: Path, tiny: tuple[str, ...]
) -> None:
    one, other = root / "peak-16x256x3/int8-u8s8.onnx", root / "peak-16x256x3/int8-s8s8.onnx"
    assert one.stat().st_size == other.stat().st_size
    spare = root / "spare"
    one.rename(spare)
    other.rename(one)
    spare.rename(other)
    found = inspection.inspect(manifest, root, tiny)
    assert {f.kind for f in found.faults.values()} == {"swapped"}
    assert "holds the contents of peak-16x256x3/int8-s8s8.onnx" in (
        found.faults["peak-16x256x3/int8-u8s8.onnx"].text
    )
    assert verify.ensure(manifest, tiny).verified


def test_a_folder_that_leads_out_is_refused_and_never_written_through(
    manifest: Manifest, root: Path, tiny: tuple[str, ...], tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    (root / "peak-16x256x3").rename(outside)
    _link(root / "peak-16x256x3", outside)
    (outside / "fp32.weights").write_bytes(b"mine")
    with pytest.raises(PackError, match="leads out of the pack"):
        materialize.materialize(manifest, tiny)
    assert (outside / "fp32.weights").read_bytes() == b"mine"


def test_a_file_that_changes_while_it_is_read_is_a_fault(
    manifest: Manifest, root: Path, tiny: tuple[str, ...]
) -> None:
    def touch(_: object) -> None:
        os.utime(root / WEIGHTS, ns=(1, 1))

    found = inspection.inspect(manifest, root, [WEIGHTS], touch)
    assert found.faults[WEIGHTS].kind == "unstable"


def test_extra_files_and_links_are_reported(manifest: Manifest, root: Path) -> None:
    (root / "peak-16x256x3" / "note.txt").write_text("mine")
    _link(root / "away", root.parent)
    assert inspection.extra_files(manifest, root) == ("away", "peak-16x256x3/note.txt")


def test_a_path_the_manifest_lacks_is_refused(manifest: Manifest, root: Path) -> None:
    with pytest.raises(PackError, match="no file 'nothing'"):
        inspection.inspect(manifest, root, ["nothing"])


def test_an_edited_file_that_cannot_be_rebuilt_runs_and_is_not_comparable(
    manifest: Manifest, root: Path, tiny: tuple[str, ...], tmp_path: Path
) -> None:
    shipped = tmp_path / "shipped"
    shutil.copytree(DATA / "pack" / "peak-16x256x3", shipped / "peak-16x256x3")
    edited = (shipped / GRAPH).read_bytes() + b"\0"
    (shipped / GRAPH).write_bytes(edited)
    (root / GRAPH).write_bytes(edited)
    result = verify.ensure(manifest, tiny, shipped=shipped)
    assert not result.verified
    assert result.why_not
    assert GRAPH in result.why_not
    assert "cannot be rebuilt" in result.why_not
    assert (root / GRAPH).read_bytes() == edited
    assert result.stamps[GRAPH][0] == len(edited)

    (root / GRAPH).unlink()  # a first run with an edited installation
    result = verify.ensure(manifest, tiny, shipped=shipped)
    assert not result.verified
    assert (root / GRAPH).read_bytes() == edited
    assert GRAPH in result.stamps
    with pytest.raises(PackError, match=r"fp32\.onnx"):
        materialize.materialize(manifest, tiny, shipped=shipped)


def test_what_cannot_be_read_at_all_has_no_stamp(
    manifest: Manifest, root: Path, tiny: tuple[str, ...], tmp_path: Path
) -> None:
    (root / GRAPH).unlink()
    result = verify.ensure(manifest, tiny, shipped=tmp_path / "nowhere")
    assert not result.verified
    assert GRAPH not in result.stamps
    assert "missing from this installation" in result.faults[GRAPH]
    assert set(result.stamps) == set(tiny) - {GRAPH}


def test_an_edited_manifest_runs_and_is_not_comparable(
    manifest: Manifest, tiny: tuple[str, ...]
) -> None:
    raw = (DATA / "manifest.json").read_bytes()
    edited = parse_manifest(raw.replace(b'"snr_db": 20.0', b'"snr_db": 10.0'))
    assert pin.is_pinned(manifest)
    assert not pin.is_pinned(edited)
    result = verify.ensure(edited, tiny)
    assert not result.verified
    assert result.why_not
    assert "not the one" in result.why_not
    assert set(result.stamps) == set(tiny)
    assert result.root != verify.ensure(manifest, tiny).root


def test_a_manifest_that_is_none_is_one_sentence() -> None:
    for raw in (b"", b"[]", b'{"suite": {}}', b'{"suite": {}, "files": 3, "workloads": []}'):
        with pytest.raises(PackError, match="cannot be read"):
            parse_manifest(raw)


def test_a_wrong_hash_in_the_manifest_names_the_file(manifest: Manifest, home: Path) -> None:
    foreign = _with(manifest, WEIGHTS, sha256="0" * 64)
    with pytest.raises(PackError, match="comes out with sha256") as caught:
        materialize.materialize(foreign, [WEIGHTS])
    assert caught.value.path == WEIGHTS
    assert not list(home.rglob("*.weights"))


def test_an_unknown_recipe_is_named_with_the_known_ones(manifest: Manifest) -> None:
    foreign = _with(manifest, WEIGHTS, recipe="alchemy")
    with pytest.raises(PackError, match="'alchemy'"):
        materialize.materialize(foreign, [WEIGHTS])
    assert not verify.ensure(foreign, [WEIGHTS]).verified


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"workload": "peak-none", "form": "fp32"},
        {"workload": "peak-16x256x3", "form": "int3"},
        {"workload": 5, "form": "fp32"},
    ],
)
def test_senseless_arguments_are_named(manifest: Manifest, args: dict[str, object]) -> None:
    foreign = _with(manifest, WEIGHTS, args=args)
    with pytest.raises(PackError, match=r"fp32\.weights cannot be made"):
        materialize.materialize(foreign, [WEIGHTS])


def test_a_recipe_that_runs_over_is_stopped(manifest: Manifest, home: Path) -> None:
    foreign = _with(manifest, WEIGHTS, size=1000)
    with pytest.raises(PackError, match="longer than the manifest's 1000 bytes"):
        materialize.materialize(foreign, [WEIGHTS])
    assert [p for p in home.rglob("*") if p.is_file() and p.suffix != ".lock"] == []


def test_a_file_made_from_itself_is_refused(manifest: Manifest) -> None:
    foreign = _with(manifest, WEIGHTS, needs=(WEIGHTS,))
    with pytest.raises(PackError, match="made from itself"):
        materialize.materialize(foreign, [WEIGHTS])


def test_the_shipped_manifest_is_the_pinned_one() -> None:
    assert pin.is_pinned(load_manifest())


def _with(manifest: Manifest, path: str, **changes: object) -> Manifest:
    changed: PackFile = dataclasses.replace(manifest.files[path], **changes)  # type: ignore[arg-type]
    return dataclasses.replace(manifest, files={**manifest.files, path: changed})
