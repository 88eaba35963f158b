"""Builds the scored networks' part of the pack: ``tool/build_pack.py networks``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from npumark.policy import DATA
from workloads import vision
from workloads.granite_embedding_30m.build import encoder
from workloads.package import Network, Part, ship

FRAGMENT = DATA / "manifest.networks.json"
SHIPPED = DATA / "pack"
MEASURES_FILE = Path(__file__).with_name("MEASURES.json")


def networks(folder: Path) -> list[Network]:
    """Build every scored network; the vision networks from the photographs in ``folder``."""
    return [*vision.classifiers(folder), vision.segmenter(folder), encoder()]


def main(argv: Sequence[str] | None = None) -> int:
    """Rebuild graphs, constants, inputs, references, gates and the manifest fragment."""
    parser = argparse.ArgumentParser(prog="build_pack.py networks", description=__doc__)
    parser.add_argument(
        "--photographs",
        type=Path,
        required=True,
        help="folder with the files that workloads/EVAL_SOURCES.md lists",
    )
    folder = parser.parse_args(argv).photographs
    part = Part()
    measured = {}
    for network in networks(folder):
        print(f"{network.workload}: measuring", flush=True)
        measured[network.workload] = ship(network, SHIPPED, part)
        for name, run in measured[network.workload].items():
            print(f"  {name}: {_line(run)}", flush=True)
    text = json.dumps(part.document(), indent=1, ensure_ascii=False) + "\n"
    FRAGMENT.write_text(text, encoding="utf-8")
    MEASURES_FILE.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    return 0


def _line(run: object) -> str:
    assert isinstance(run, dict)
    return ", ".join(f"{k} {v:.5g}" for k, v in run.items() if v is not None)
