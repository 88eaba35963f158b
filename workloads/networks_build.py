"""Builds the scored networks' part of the pack: ``tool/build_pack.py networks``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from npumark.policy import DATA
from workloads import vision
from workloads.gate_rules import Run
from workloads.granite_embedding_30m.build import encoder
from workloads.package import Network, Part, ship

FRAGMENT = DATA / "manifest.networks.json"
SHIPPED = DATA / "pack"
MEASURES_FILE = Path(__file__).with_name("MEASURES.json")

GROUPS: dict[str, Callable[[Path], list[Network]]] = {
    "classifiers": vision.classifiers,
    "segmenter": lambda folder: [vision.segmenter(folder)],
    "encoder": lambda _: [encoder()],
}
"""What can be rebuilt alone; the classifiers share their pictures. All but the encoder, whose
texts lie beside it, read the folder of photographs."""


ORDER = (
    "mobilenet_v3_large",
    "resnet50",
    "deeplabv3_mobilenet_v3_large",
    "granite_embedding_30m",
)
"""The scored networks in the methodology's order."""


def main(argv: Sequence[str] | None = None) -> int:
    """Rebuild graphs, constants, inputs, references, gates and the manifest fragment."""
    parser = argparse.ArgumentParser(prog="build_pack.py networks", description=__doc__)
    parser.add_argument(
        "--photographs",
        type=Path,
        required=True,
        help="folder with the files that workloads/EVAL_SOURCES.md lists",
    )
    parser.add_argument(
        "--only",
        choices=GROUPS,
        action="append",
        help="rebuild this group and keep the others as they are (may be repeated)",
    )
    args = parser.parse_args(argv)
    part, measured = Part(), {}
    for group in args.only or GROUPS:
        for network in GROUPS[group](args.photographs):
            print(f"{network.workload}: measuring", flush=True)
            measured[network.workload] = ship(network, SHIPPED, part)
            for name, run in measured[network.workload].items():
                print(f"  {name}: {_line(run)}", flush=True)
    document = part.document()
    if args.only:
        document = updated(_read(FRAGMENT), document)
        measured = _read(MEASURES_FILE) | measured
    _write(FRAGMENT, document)
    _write(MEASURES_FILE, dict(sorted(measured.items())))
    return 0


def updated(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return a fragment in which rebuilt workloads, and what they alone read, are replaced."""
    rebuilt = {workload["id"]: workload for workload in new["workloads"]}
    kept = {w["id"]: w for w in old.get("workloads", [])}
    replaced = set()
    for name in rebuilt.keys() & kept.keys():
        evaluated = kept[name]["eval"]
        replaced |= {tensor["file"] for tensor in evaluated["inputs"]}
    files = {
        file["path"]: file
        for file in old.get("files", [])
        if file["path"].partition("/")[0] not in rebuilt
        and file["path"].removesuffix(".xz") not in replaced
    }
    files |= {file["path"]: file for file in new["files"]}
    workloads = sorted((kept | rebuilt).values(), key=lambda w: ORDER.index(w["id"]))
    return {"files": list(files.values()), "workloads": workloads}


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def _write(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _line(run: Run) -> str:
    return ", ".join(f"{k} {v:.5g}" for k, v in run.items() if v is not None)
