"""The photographs behind the vision inputs, and the crops taken from them.

``EVAL_SOURCES.md`` says where each file comes from and under which licence; this module
reads that table, so that the page and the code cannot disagree. A photograph has one use:
``calibration`` (statistics and fitting of the head) or ``evaluation``.
"""

from __future__ import annotations

import bz2
import hashlib
import io
import itertools
import pickletools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

SOURCES = Path(__file__).with_name("EVAL_SOURCES.md")
USES = ("calibration", "evaluation")
HUES = tuple(itertools.permutations(range(3)))
"""Orders of the colour channels."""

Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Photograph:
    """One row of the table of sources."""

    id: str
    use: str
    file: str
    sha256: str
    author: str
    licence: str
    licence_text: str
    obtained_from: str


@dataclass(frozen=True)
class Crop:
    """A square of a photograph: upper left corner and side in source pixels.

    ``hue`` picks one of the six orders of the colour channels; 0 keeps them.
    """

    photograph: str
    left: int
    top: int
    side: int
    mirrored: bool = False
    hue: int = 0


def sources(page: Path = SOURCES) -> list[Photograph]:
    """Read the table of ``EVAL_SOURCES.md``. Raises ValueError on an unknown use."""
    rows: list[Photograph] = []
    for line in page.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|") or len(cells) != 8 or cells[0] in ("id", "---"):
            continue
        rows.append(Photograph(*cells))
        if rows[-1].use not in USES:
            raise ValueError(f"{rows[-1].id}: unknown use {rows[-1].use!r}")
    return rows


def load(folder: Path, photograph: Photograph) -> Pixels:
    """Read one photograph as RGB uint8 [H, W, 3].

    Raises ValueError where the file is not the one that the table names.
    """
    data = (folder / photograph.file).read_bytes()
    if hashlib.sha256(data).hexdigest() != photograph.sha256:
        raise ValueError(f"{photograph.file} is not the file that EVAL_SOURCES.md lists")
    if photograph.file == "face.dat":
        return np.frombuffer(bz2.decompress(data), np.uint8).reshape(768, 1024, 3)
    if photograph.file == "ascent.dat":
        return _pickled_grey(data, 512, 512)
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB"))


def _pickled_grey(data: bytes, height: int, width: int) -> Pixels:
    """Read a pickled list of rows of small integers without executing the pickle."""
    values = [
        int(argument)
        for opcode, argument, _ in pickletools.genops(data)
        if opcode.name in ("BININT1", "BININT", "BININT2", "INT") and argument is not None
    ]
    grey = np.array(values[-height * width :], np.uint8).reshape(height, width)
    return np.repeat(grey[:, :, None], 3, axis=2)


def crops(photograph: str, shape: tuple[int, ...], count: int, seed: int) -> list[Crop]:
    """Return ``count`` squares, each of 45 to 100 % of the shorter side, some mirrored."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    height, width = shape[:2]
    found = []
    for index in range(count):
        share = 0.45 + 0.55 * ((index + rng.random()) / count)
        side = int(min(height, width) * share)
        left = int(rng.integers(0, width - side + 1))
        top = int(rng.integers(0, height - side + 1))
        found.append(Crop(photograph, left, top, side, bool(rng.integers(0, 2))))
    return found


def cut(image: Pixels, crop: Crop, size: int) -> Pixels:
    """Cut a square and resize it (bicubic, antialiased): uint8 [3, size, size]."""
    square = image[crop.top : crop.top + crop.side, crop.left : crop.left + crop.side]
    picture = Image.fromarray(square).resize((size, size), Image.Resampling.BICUBIC)
    pixels = np.asarray(picture)
    if crop.mirrored:
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)[list(HUES[crop.hue])])


@dataclass(frozen=True)
class PictureSet:
    """Crops with their pixels, uint8 [N, 3, size, size], and the source of each."""

    pixels: Pixels
    crops: tuple[Crop, ...]


def gather(
    folder: Path, use: str, size: int, counts: Sequence[int], seed: int, *, hues: bool = False
) -> PictureSet:
    """Cut ``counts[i]`` crops from the i-th photograph of that use, one after the other.

    With ``hues`` the crops go through all orders of the colour channels, so that a handful of
    photographs covers saturated colours that none of them shows.
    """
    chosen = [photograph for photograph in sources() if photograph.use == use]
    if len(chosen) != len(counts):
        raise ValueError(f"{len(chosen)} photographs for {use}, {len(counts)} counts")
    pixels, all_crops = [], []
    for index, (photograph, count) in enumerate(zip(chosen, counts, strict=True)):
        image = load(folder, photograph)
        for number, crop in enumerate(
            crops(photograph.id, image.shape, count, seed * 1000 + index)
        ):
            if hues:
                crop = replace(crop, hue=(number * 5 + index) % len(HUES))
            pixels.append(cut(image, crop, size))
            all_crops.append(crop)
    return PictureSet(np.stack(pixels), tuple(all_crops))
