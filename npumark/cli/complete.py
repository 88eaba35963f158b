"""Words a shell can complete: read from shipped data, never by probing an engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LADDERS = ("default",)
ROLES = ("iGPU", "dGPU", "NPU")

_DERIVED_VARIANTS = ("bf16",)
"""What engines compute from another variant's graph; the pack has no file of its own for it."""

_MANIFEST = Path(__file__).parent.parent / "data" / "manifest.json"


def engines(incomplete: str) -> list[str]:
    """Return engine ids that start with ``incomplete``: those of the catalogue."""
    from npumark.engines.catalogue import PROVIDERS

    found = {row.engine_id(role) for row in PROVIDERS for role in row.roles}
    return sorted(e for e in found if e.startswith(incomplete))


def environments(incomplete: str) -> list[str]:
    """Return the names that start with ``incomplete`` of the environments that can be installed
    on this system."""
    from npumark.engines.catalogue import ENVIRONMENTS
    from npumark.engines.platforms import here

    return [
        row.name
        for row in ENVIRONMENTS
        if row.name.startswith(incomplete) and here() in row.platforms
    ]


def installed(incomplete: str) -> list[str]:
    """Return the names that start with ``incomplete`` of the environments that are there, whole
    or not."""
    from npumark.errors import SetupError
    from npumark.orchestrator.environments import is_ours
    from npumark.paths import engines_dir

    try:
        folder = engines_dir()
        names = sorted(p.name for p in folder.iterdir() if p.name[0] != "." and is_ours(p))
    except (SetupError, OSError):
        names = []  # where nothing can be read, that is the command's to report
    return [name for name in names if name.startswith(incomplete)]


def roles(incomplete: str) -> list[str]:
    """Return the roles whose cards can be summed that start with ``incomplete``, whatever its
    letters' case."""
    return [role for role in ROLES if role.lower().startswith(incomplete.lower())]


def ladders(incomplete: str) -> list[str]:
    """Return the ladders' names that start with ``incomplete``."""
    return [name for name in LADDERS if name.startswith(incomplete)]


def probes(incomplete: str) -> list[str]:
    """Return the names that start with ``incomplete`` of the probes of a diagnostics run."""
    from npumark.diagnose.registry import PROBES

    return [probe.name for probe in PROBES if probe.name.startswith(incomplete)]


def runs(incomplete: str) -> list[str]:
    """Return `last` and the ids of saved runs that start with ``incomplete``."""
    from npumark.errors import SetupError
    from npumark.paths import data_dir

    try:
        folder = data_dir() / "runs"
        saved = sorted((p.name for p in folder.iterdir()), reverse=True) if folder.is_dir() else []
    except (SetupError, OSError):
        saved = []  # where nothing can be kept, that too is the command's to report
    return [name for name in ("last", *saved) if name.startswith(incomplete)]


def workloads(incomplete: str) -> list[str]:
    """Return the ids of the pack's workloads that start with ``incomplete``."""
    return [w["id"] for w in _workloads() if w["id"].startswith(incomplete)]


def variants(incomplete: str) -> list[str]:
    """Return the ids of variants that start with ``incomplete``."""
    found = {*_DERIVED_VARIANTS, *(v["id"] for w in _workloads() for v in w["variants"])}
    return sorted(v for v in found if v.startswith(incomplete))


def _workloads() -> list[dict[str, Any]]:
    try:
        listed = json.loads(_MANIFEST.read_text(encoding="utf-8"))["workloads"]
    except (OSError, ValueError, KeyError):
        return []  # a broken pack is the command's to report, not the shell's
    return list(listed)
