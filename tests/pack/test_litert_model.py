import io
import json
import lzma
from pathlib import Path

import numpy as np
import pytest

from npumark.pack import recipes
from npumark.pack.litert_model import Part, pack_structure, parse_structure, write_model
from npumark.pack.manifest import PackFile

WEIGHTS = np.arange(24, dtype="<f2").tobytes() + np.array([0.5, 0.25], "<f4").tobytes()
HEAD = b"head" + bytes(8) + b"tail"
PARTS = (
    Part(4, 48, "float32", (2,)),
    Part(64, 0, "float16", (2, 3, 4), (0, 2, 1)),
)


def made(tmp_path: Path, structure: bytes, weights: bytes = WEIGHTS) -> bytes:
    (tmp_path / "x.head.xz").write_bytes(structure)
    (tmp_path / "x.weights").write_bytes(weights)
    out = io.BytesIO()
    write_model(tmp_path / "x.head.xz", tmp_path / "x.weights", out)
    return out.getvalue()


def test_a_model_is_its_structure_filled_in_and_its_weights_behind_it(tmp_path: Path) -> None:
    raw = made(tmp_path, pack_structure(HEAD, PARTS))
    assert raw[:4] + raw[12:16] == b"headtail"
    assert np.frombuffer(raw[4:12], "<f4").tolist() == [0.5, 0.25]
    assert raw[16:64] == bytes(48)
    moved = np.arange(24, dtype="<f2").reshape(2, 3, 4).transpose(0, 2, 1)
    assert raw[64:] == np.ascontiguousarray(moved).tobytes()


def test_one_structure_has_one_form() -> None:
    raw = pack_structure(HEAD, PARTS)
    head, parts = parse_structure(raw)
    assert pack_structure(bytes(head), parts) == raw


@pytest.mark.parametrize(
    "parts",
    [
        (Part(64, 0, "int8", (4,)), Part(66, 0, "int8", (4,))),
        (Part(14, 0, "int8", (4,)),),
        (Part(64, -4, "int8", (4,)),),
    ],
    ids=["overlapping", "across the end", "before the file"],
)
def test_parts_that_do_not_fit_are_refused(parts: tuple[Part, ...]) -> None:
    with pytest.raises(ValueError, match="not the structure"):
        parse_structure(pack_structure(HEAD, parts))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"not xz",
        pack_structure(HEAD, PARTS)[:-9],
        lzma.compress(b"\xff" * 40),
        lzma.compress((2).to_bytes(8, "little") + b"{}" + HEAD)[:-4],
        lzma.compress((9).to_bytes(8, "little") + json.dumps([[1, 2, 3]]).encode()),
    ],
)
def test_other_bytes_are_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match="not the structure"):
        parse_structure(raw)


def test_weights_that_end_too_early_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        made(tmp_path, pack_structure(HEAD, PARTS), WEIGHTS[:30])


def test_the_recipe_reads_what_the_file_needs(tmp_path: Path) -> None:
    expected = made(tmp_path, pack_structure(HEAD, PARTS))
    needs = ("x.head.xz", "x.weights")
    file = PackFile("x.tflite", len(expected), "", "derived", "litert-model", {}, needs)
    out = io.BytesIO()
    recipes.make(file, recipes.Source(tmp_path, tmp_path), out)
    assert out.getvalue() == expected
