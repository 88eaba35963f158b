"""Build the pack: ``peak``, ``networks``, the other formats, then ``merge`` (``merge --check``).

``peak`` and ``networks`` write graphs and constants under ``npumark/data/pack/`` and their part
of the manifest beside it: ``{"files", "workloads"}``. ``programs``, ``litert``, ``mlx``,
``coreml``, ``a16w8`` and ``sym`` add the same workloads in further formats; their parts are
``{"files", "variants": {workload: [...]}}``. ``gates`` derives the networks' gates again from the
measures that were kept. ``merge`` joins the parts into ``npumark/data/manifest.json`` and pins
its hash in ``npumark/pack/pin.py``; with ``--check`` it changes nothing and fails where that
would, or where a shipped file is not what the manifest says.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from npumark.pack.manifest import parse_manifest  # noqa: E402
from npumark.pack.pin import SUITE_NAME, SUITE_VERSION  # noqa: E402
from npumark.policy import DATA  # noqa: E402

FORMATS = {
    "programs": "the networks and chains in the form that programs are made from at run time",
    "litert": "LiteRT models",
    "mlx": "MLX functions",
    "coreml": "Core ML programs",
    "a16w8": "ONNX graphs with 16-bit activations",
    "sym": "ONNX graphs with 8-bit activations about zero",
}
"""Part -> what it adds; each is built by ``main`` of ``workloads.<part>_build``."""

PARTS = ("peak", "networks", *FORMATS)
"""In the order of the manifest: a workload's variants follow it."""

PIN = ROOT / "npumark" / "pack" / "pin.py"
SHIPPED = DATA / "pack"

_BASIS = "NPUMark methodology 3.2"
_EDITION = "seeded"
_PINNED = re.compile(r'(PINNED_MANIFEST_SHA256: Final = )("0" \* 64|"[0-9a-f]{64}")')


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("peak", help="the peak chains")
    commands.add_parser("networks", help="the scored networks", add_help=False)
    commands.add_parser("gates", help="the networks' gates, from the measures that were kept")
    for part, adds in FORMATS.items():
        commands.add_parser(part, help=adds, add_help=False)
    merge = commands.add_parser("merge", help="join the parts and pin the manifest")
    merge.add_argument("--check", action="store_true", help="change nothing; fail where it would")
    args, rest = parser.parse_known_args(argv)
    if args.command == "networks":
        from workloads.networks_build import main as build_networks

        return build_networks(rest)
    if args.command == "gates":
        from workloads.regate import main as regate

        return regate()
    if args.command in FORMATS:
        return int(importlib.import_module(f"workloads.{args.command}_build").main(rest))
    if rest:
        parser.error(f"unknown arguments: {' '.join(rest)}")
    if args.command == "peak":
        return _peak()
    return _merge(check=args.check)


def part_path(part: str) -> Path:
    """Return where one part of the manifest lies."""
    return DATA / f"manifest.{part}.json"


def encode(doc: dict[str, Any]) -> bytes:
    """Return a manifest document's bytes: one layout, so that its hash is a function of it."""
    return (json.dumps(doc, indent=1, ensure_ascii=False) + "\n").encode()


def merged(parts: Sequence[dict[str, Any]]) -> bytes:
    """Return the manifest that joins ``parts``: files by path, workloads in the parts' order.

    Variants that a part adds to a workload follow those before it. Raises ValueError where two
    parts disagree about a file, define one workload or variant twice, or add to a workload
    that none before defined.
    """
    files: dict[str, dict[str, Any]] = {}
    workloads: dict[str, dict[str, Any]] = {}
    for part in parts:
        for file in part["files"]:
            if files.setdefault(file["path"], file) != file:
                raise ValueError(f"two parts disagree about {file['path']}")
        for workload in part.get("workloads", ()):
            if workload["id"] in workloads:
                raise ValueError(f"two parts define {workload['id']}")
            workloads[workload["id"]] = {**workload, "variants": list(workload["variants"])}
        for name, variants in part.get("variants", {}).items():
            if name not in workloads:
                raise ValueError(f"a part adds variants to {name}, which none before it defines")
            known = workloads[name]["variants"]
            for variant in variants:
                if any(variant["id"] == other["id"] for other in known):
                    raise ValueError(f"two parts define {name}/{variant['id']}")
                known.append(variant)
    suite = {
        "name": SUITE_NAME,
        "version": SUITE_VERSION,
        "edition": _EDITION,
        "basis": _BASIS,
    }
    return encode(
        {
            "suite": suite,
            "files": [files[path] for path in sorted(files)],
            "workloads": list(workloads.values()),
        }
    )


def stale_shipped(raw: bytes, shipped: Path) -> list[str]:
    """Return the shipped files that are missing or differ from what a manifest says of them."""
    stale = []
    for file in parse_manifest(raw).files.values():
        if file.origin == "shipped":
            path = shipped / file.path
            if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != file.sha256:
                stale.append(file.path)
    return stale


def _peak() -> int:
    from workloads.peak.build import build

    part_path("peak").write_bytes(encode(build(SHIPPED)))
    return 0


def _merge(*, check: bool) -> int:
    parts = [json.loads(part_path(p).read_bytes()) for p in PARTS if part_path(p).exists()]
    raw = merged(parts)
    digest = hashlib.sha256(raw).hexdigest()
    source = PIN.read_text()
    pinned = _PINNED.sub(rf'\g<1>"{digest}"', source)
    manifest = DATA / "manifest.json"
    complaints = [f"{path} is not what the manifest says" for path in stale_shipped(raw, SHIPPED)]
    if check:
        if not manifest.exists() or manifest.read_bytes() != raw:
            complaints.append("manifest.json is not the join of its parts")
        if digest not in source:
            complaints.append("pin.py pins another manifest")
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    if complaints:
        return 1
    if not check:
        manifest.write_bytes(raw)
        PIN.write_text(pinned)
    print(f"{SUITE_NAME} {SUITE_VERSION}: {digest}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
