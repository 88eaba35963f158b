"""A home of its own for every test, and the smallest chain's pack in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from npumark.pack import materialize
from npumark.pack.manifest import Manifest, load_manifest

TINY = "peak-16x256x3"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NPUMARK_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def manifest(home: Path) -> Manifest:
    return load_manifest()


@pytest.fixture
def tiny(manifest: Manifest) -> tuple[str, ...]:
    """The paths of the tiny chain's files."""
    return materialize.workload_paths(manifest, [TINY])


@pytest.fixture
def root(manifest: Manifest, tiny: tuple[str, ...]) -> Path:
    """The pack, holding the tiny chain."""
    return materialize.materialize(manifest, tiny)
