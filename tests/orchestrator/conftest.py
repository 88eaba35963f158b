"""An environment of its own, made without a network: an interpreter, NumPy, psutil and stubs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import distribution
from pathlib import Path

import pytest

from npumark.machine.host import THIS, Host

STUB = """
from npumark.engines.base import Engine
from npumark.worker.protocol import EngineInfo


class Stub(Engine):
    name = "stub"

    def _prepare(self):
        import stub_runtime

    def _probe(self, options):
        import stub_runtime

        return (
            EngineInfo(
                "stub-cpu", True, None, "stub", "Stub", "1.0",
                processor={"key": "cpu", "role": "CPU", "name": "CPU"},
                variants=("fp32",), options={**options, **stub_runtime.facts()},
            ),
        )

    def _load(self, request):
        raise NotImplementedError

    def _placement(self, request, feed, runs):
        raise NotImplementedError
"""

RUNTIME = """
import importlib.util
import sys


def facts():
    return {
        "python": sys.executable,
        "loaded": sorted({m.partition(".")[0] for m, v in sys.modules.items() if v}),
        "path": sys.path,
        "neighbours": [
            name
            for name in ("pydantic", "platformdirs", "filelock", "rich", "workloads")
            if importlib.util.find_spec(name)
        ],
    }
"""


@dataclass(frozen=True)
class Apart:
    """A folder with an interpreter of its own; ``site`` is where its packages lie."""

    folder: Path
    python: str
    site: Path

    def write(self, **modules: str) -> None:
        """Put modules into it, by name."""
        for name, source in modules.items():
            (self.site / f"{name}.py").write_text(source)


def link_basics(folder: Path) -> None:
    """Put links to NumPy and psutil into ``folder``: what a worker needs, and nothing else."""
    for name in ("numpy", "psutil"):
        files = distribution(name).files or ()
        for top in sorted({file.parts[0] for file in files} - {".."}):
            source = Path(str(distribution(name).locate_file(top)))
            (folder / top).symlink_to(source, target_is_directory=source.is_dir())


def make_apart(folder: Path) -> Apart:
    """Make an environment at ``folder`` that holds the stub engine and links to NumPy, psutil."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(folder)], check=True
    )
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = folder / "lib" / version / "site-packages"
    link_basics(site)
    apart = Apart(folder, str(folder / "bin" / "python"), site)
    apart.write(stub_engine=STUB, stub_runtime=RUNTIME)
    return apart


@pytest.fixture
def apart(tmp_path: Path) -> Apart:
    return make_apart(tmp_path / "apart")


@pytest.fixture
def basics(tmp_path: Path) -> Path:
    """Return a folder that holds NumPy and psutil alone."""
    folder = tmp_path / "basics"
    folder.mkdir()
    link_basics(folder)
    return folder


@pytest.fixture
def make_environment() -> Callable[[Path], Apart]:
    return make_apart


@dataclass(frozen=True)
class Machine:
    """A Linux machine whose files are those that were written below ``root``."""

    root: Path

    def write(self, absolute: str, text: str | int) -> None:
        path = self.host.path(absolute)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n", "utf-8")

    @property
    def host(self) -> Host:
        return replace(THIS, system="linux", root=self.root)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "machine")
