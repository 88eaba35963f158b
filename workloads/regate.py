"""Derives the gates of the shipped networks again from the measures that were kept.

For a changed rule or margin: neither PyTorch nor the photographs are needed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from npumark.policy import DATA, GateRules, load_policy
from workloads.gate_rules import derive_gates

FRAGMENT = DATA / "manifest.networks.json"
MEASURES_FILE = Path(__file__).with_name("MEASURES.json")


def regated(document: dict[str, Any], measures: dict[str, Any], rules: GateRules) -> dict[str, Any]:
    """Return a fragment with the gates that ``measures`` (workload -> run -> measure) give."""
    workloads = []
    for workload in document["workloads"]:
        gates = derive_gates(workload["task"], measures[workload["id"]], rules)
        told = {tier: {"basis": g.basis, "bounds": g.bounds} for tier, g in gates.items()}
        workloads.append({**workload, "gates": told})
    return {**document, "workloads": workloads}


def main() -> int:
    """Rewrite the networks' part of the manifest."""
    document = regated(_read(FRAGMENT), _read(MEASURES_FILE), load_policy().gates)
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    FRAGMENT.write_text(text, encoding="utf-8")
    return 0


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8")))
