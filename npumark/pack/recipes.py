"""Recipes: how each file of a pack is made, by the name that the manifest gives.

A recipe streams a file's bytes into a sink and reads nothing but what the file ``needs`` and
the manifest's arguments say. It neither opens nor checks its own output.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from npumark.errors import PackError
from npumark.pack.manifest import PackFile


@dataclass(frozen=True, slots=True)
class Source:
    """Where a recipe reads: the pack's ``root``, and ``shipped`` for files that come with it."""

    root: Path
    shipped: Path


Recipe = Callable[[PackFile, Source, BinaryIO], None]

_BLOCK = 1 << 20

_SENSELESS = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    EOFError,
)
"""What a foreign manifest's arguments or a damaged source make a recipe raise."""


def make(file: PackFile, source: Source, out: BinaryIO) -> None:
    """Stream one pack file into ``out``.

    Raises PackError naming the file where its recipe is unknown, its arguments make no sense
    or what it is made from is missing or damaged.
    """
    name = "copy" if file.origin == "shipped" else file.recipe
    recipe = RECIPES.get(name or "")
    if recipe is None:
        known = ", ".join(sorted(RECIPES))
        raise PackError(
            f"the manifest makes {file.path} by an unknown recipe, {name!r}",
            f"This npumark knows: {known}. Use the version that the manifest was made for.",
            path=file.path,
        )
    try:
        recipe(file, source, out)
    except _SENSELESS as fault:
        raise PackError(
            f"{file.path} cannot be made: {fault}",
            "Reinstall npumark to restore what it is made from.",
            path=file.path,
        ) from fault


def working_bytes(file: PackFile) -> int:
    """Return the memory that making a file takes at the most, near enough to refuse what cannot
    fit: that of a chain by its shape, that of any other file its size. Arguments that make no
    sense are told when the file is made."""
    if not (file.recipe or "").startswith("peak-"):
        return 0 if file.origin == "shipped" else file.size
    from npumark.pack import peak_files, seeded

    try:
        chain = seeded.Chain.parse(file.args["workload"])
        names = file.args["names"] if file.recipe == "peak-references" else None
        return peak_files.working_bytes(chain, None if names is None else len(names))
    except _SENSELESS:
        return file.size


def _copy(file: PackFile, source: Source, out: BinaryIO) -> None:
    shipped_path = source.shipped / file.path
    if not shipped_path.is_file():
        raise PackError(
            f"{file.path} is missing from this installation",
            "Reinstall npumark to restore it.",
            path=file.path,
        )
    with shipped_path.open("rb") as shipped:
        while block := shipped.read(_BLOCK):
            out.write(block)


def _peak_weights(file: PackFile, _: Source, out: BinaryIO) -> None:
    from npumark.pack import peak_files, seeded

    chain = seeded.Chain.parse(file.args["workload"])
    peak_files.write_weights(chain, peak_files.weight_form(file.args["form"]), out)


def _peak_inputs(file: PackFile, _: Source, out: BinaryIO) -> None:
    from npumark.pack import peak_files, seeded

    peak_files.write_inputs(seeded.Chain.parse(file.args["workload"]), file.args["names"], out)


def _peak_references(file: PackFile, _: Source, out: BinaryIO) -> None:
    from npumark.pack import peak_files, seeded

    peak_files.write_references(seeded.Chain.parse(file.args["workload"]), file.args["names"], out)


def _network_weights(file: PackFile, source: Source, out: BinaryIO) -> None:
    from npumark.pack import network_weights

    network_weights.write_weights(source.root, file.args["workload"], file.args["form"], out)


def _unpack_u8(file: PackFile, source: Source, out: BinaryIO) -> None:
    from npumark.pack import pixels

    packed = (source.root / file.needs[0]).read_bytes()
    out.write(pixels.decode_u8(packed, tuple(file.args["shape"])))


def _litert_model(file: PackFile, source: Source, out: BinaryIO) -> None:
    from npumark.pack import litert_model

    structure, weights = (source.root / need for need in file.needs)
    litert_model.write_model(structure, weights, out)


RECIPES: dict[str, Recipe] = {
    "copy": _copy,
    "peak-weights": _peak_weights,
    "peak-inputs": _peak_inputs,
    "peak-references": _peak_references,
    "network-weights": _network_weights,
    "unpack-u8": _unpack_u8,
    "litert-model": _litert_model,
}
