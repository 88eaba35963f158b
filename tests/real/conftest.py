"""Real runtimes in environments of their own, and workers in them through the product's own path.

`python3 tool/dev.py test` installs what this platform has into `.venv-engines`; without it, and
without NPUMARK_ENGINES, these tests skip and say what to install.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from npumark.orchestrator.environments import standing
from npumark.orchestrator.interrupts import Interrupts
from npumark.orchestrator.supervisor import Outcome, supervise
from npumark.pack.manifest import Manifest, load_manifest
from npumark.pack.materialize import materialize, workload_paths
from npumark.paths import ENGINES_VARIABLE, engines_dir
from npumark.policy import load_policy
from npumark.worker.protocol import EngineInfo, Job
from tests.real.ort_jobs import CHAIN, REF

ROOT = Path(__file__).parents[2]
ENGINES = ROOT / ".venv-engines"
SWIFTSHADER = ROOT / ".venv-swiftshader"


def engines_folder() -> Path:
    """Return where environments are looked for: NPUMARK_ENGINES, or this checkout's own."""
    return engines_dir() if os.environ.get(ENGINES_VARIABLE) else ENGINES


@pytest.fixture(scope="session")
def engine_environment() -> Callable[[str], str]:
    """Return the interpreter of an environment by its name, or skip, saying what to install."""

    def find(name: str) -> str:
        found = standing(name, engines_folder())
        if found.installed is None:
            pytest.skip(
                f"needs the environment {name} ({found.why or found.state}): "
                f"`python3 tool/dev.py test` installs it, or "
                f"`NPUMARK_ENGINES={engines_folder()} npumark engines install {name}`"
            )
        return found.installed.python

    return find


@pytest.fixture(scope="session")
def run_worker(
    engine_environment: Callable[[str], str],
) -> Callable[..., Outcome]:
    """Return a function that carries a job out in a worker, as a run does, and returns its end.

    ``environment`` names the one it runs in (it skips without it); null is npumark's own, or
    that of the interpreter ``python``.
    ``environ`` adds variables to the worker's.
    """

    def run(
        job: Job,
        environment: str | None = None,
        environ: dict[str, str] | None = None,
        python: str | None = None,
    ) -> Outcome:
        limits = load_policy().worker
        return supervise(
            job,
            limits=limits,
            deadline_s=limits.attempt_deadline_s,
            interrupts=Interrupts(),
            marker=f"test-{os.getpid()}",
            python=engine_environment(environment) if environment else python,
            environ={**os.environ, **(environ or {})},
        )

    return run


@pytest.fixture(scope="session")
def swiftshader() -> dict[str, str]:
    """Return the variables with which a worker finds Vulkan's software adapter, or skip."""
    adapter = SWIFTSHADER / "vk_swiftshader_icd.json"
    if not adapter.is_file():
        pytest.skip(
            "needs SwiftShader, a Vulkan adapter in software: `python3 tool/dev.py test` fetches "
            "it where Debian's package tools are"
        )
    before = os.environ.get("LD_LIBRARY_PATH")
    return {
        "VK_ICD_FILENAMES": str(adapter),
        # Vulkan's loader comes along, where the system has none.
        "LD_LIBRARY_PATH": f"{SWIFTSHADER}:{before}" if before else str(SWIFTSHADER),
    }


@pytest.fixture(scope="session")
def find_engine(run_worker: Callable[..., Outcome]) -> Callable[..., EngineInfo]:
    """Return a function that finds an engine of a provider of ONNX Runtime in an environment, or
    skips with the probe's reason."""
    asked: dict[tuple[str, str], tuple[EngineInfo, ...]] = {}

    def find(
        environment: str, provider: str, engine: str, environ: dict[str, str] | None = None
    ) -> EngineInfo:
        if (environment, provider) not in asked:
            out = run_worker(Job("probe", REF, options={"only": [provider]}), environment, environ)
            assert out.result is not None, (out.why, out.log_tail)
            asked[environment, provider] = out.result.engines
        (found,) = (e for e in asked[environment, provider] if e.id == engine)
        if not found.available:
            pytest.skip(f"{engine} does not run here: {found.reason}")
        return found

    return find


@pytest.fixture(scope="session")
def chain_pack(tmp_path_factory: pytest.TempPathFactory) -> tuple[Manifest, Path]:
    """Return the manifest, and where the emulators' chain lies with all of its files."""
    manifest = load_manifest()
    root = tmp_path_factory.mktemp("pack")
    materialize(manifest, workload_paths(manifest, [CHAIN]), root=root)
    return manifest, root
