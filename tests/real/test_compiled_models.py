"""QNN's compiled models on its emulator: written, loaded again, and scrambled in every way.

Every load is a worker of its own, through the product's own path. A load after damage must give
answers that pass the gate, whatever became of the files.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from npumark.engines.model_cache import SIDECAR
from npumark.engines.ort_context import CONTEXT
from npumark.gates.judge import judge
from npumark.orchestrator.discover import Found, Runtime
from npumark.orchestrator.jobs import JobMaker
from npumark.orchestrator.supervisor import Outcome
from npumark.pack.manifest import Manifest, load_manifest
from npumark.pack.materialize import materialize, workload_paths
from npumark.policy import load_policy
from npumark.score.planned import Planned
from npumark.worker.protocol import EngineInfo, Job, Result

ENGINE = "ort-qnn-npu"
CHAIN = "peak-64x256x3"
REF = "npumark.engines.ort:OnnxRuntime"
POLICY = load_policy()

Work = Callable[..., Outcome]


@dataclass
class Bench:
    """One entry of the emulator; ``found`` is its engine, as the environment's probe tells it."""

    work: Work
    found: EngineInfo
    manifest: Manifest
    pack: Path
    cache: Path
    variant: str
    jobs: JobMaker = field(init=False)

    def __post_init__(self) -> None:
        found = Found(self.found, Runtime("ort", REF))
        self.jobs = JobMaker(
            self.manifest, POLICY, {ENGINE: found}, self.pack, self.cache, "run", True, 1
        )

    @property
    def planned(self) -> Planned:
        graph = self.manifest.workloads[CHAIN].variant(self.variant)
        return Planned(ENGINE, CHAIN, self.variant, self.variant, graph.format, "peak", "extra")

    @property
    def folder(self) -> Path:
        return self.jobs.cache_dir(self.planned)

    def file(self, name: str) -> Path:
        (found,) = self.folder.glob(f"models-*/{name}")
        return found

    def run(self, job: Job) -> Result:
        outcome = self.work(job, "qnn")
        assert outcome.status == "ok", (outcome.why, outcome.log_tail)
        assert outcome.result is not None
        return outcome.result

    def prepare(self) -> Result:
        return self.run(self.jobs.prepare(self.planned, {}, {}))

    def attempt(self, samples: Path) -> tuple[bool, str]:
        """Load and run the whole eval set; say whether the gate passed, and what was done."""
        job = self.jobs.measure(self.planned, 1, {}, samples, {})
        assert job.timing is not None
        brief = replace(job.timing, loop_s=0.0, min_iterations=1, warmup_max_s=0.0)
        result = self.run(replace(job, timing=brief, profile_runs=1, samples_path=None))
        assert result.measurement is not None
        assert result.cache is not None
        assert result.measurement.loaded_from_cache == (result.cache.state == "reused")
        gate = self.manifest.workloads[CHAIN].gates["standard"]
        return judge(result.measurement.measures, gate).passed, result.cache.state


@pytest.fixture(scope="module")
def engine(run_worker: Work) -> EngineInfo:
    outcome = run_worker(Job("probe", REF, options={"only": ["ort-qnn"]}), "qnn")
    assert outcome.result is not None, outcome.why
    (found,) = (e for e in outcome.result.engines if e.id == ENGINE)
    if not found.available:
        pytest.skip(f"QNN's emulator does not run here: {found.reason}")
    assert found.emulated
    assert found.options["cache"] is True
    return found


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> tuple[Manifest, Path]:
    manifest = load_manifest()
    root = tmp_path_factory.mktemp("pack")
    materialize(manifest, workload_paths(manifest, [CHAIN]), root=root)
    return manifest, root


@pytest.fixture
def bench(
    run_worker: Work, engine: EngineInfo, pack: tuple[Manifest, Path], tmp_path: Path
) -> Callable[[str], Bench]:
    def make(variant: str) -> Bench:
        made = Bench(run_worker, engine, *pack, tmp_path / "compiled", variant)
        built = made.prepare()
        assert built.cache is not None
        assert (built.cache.state, built.cache.why) == ("built", None)
        assert built.cache.compile_ns
        return made

    return make


@pytest.mark.parametrize("variant", ["int8-u8s8", "fp16"])
def test_a_compiled_model_is_written_and_loaded_again(
    bench: Callable[[str], Bench], variant: str, tmp_path: Path
) -> None:
    made = bench(variant)
    assert made.file(CONTEXT).stat().st_size < 10_000
    again = made.prepare()
    assert again.cache is not None
    assert again.prepared is not None
    assert (again.cache.state, again.prepared.same_answers) == ("reused", True)
    job = made.jobs.measure(made.planned, 1, {}, tmp_path / "s", again.cache_stamps)
    brief = replace(job, timing=replace(job.timing, loop_s=0.0, min_iterations=1))  # type: ignore[type-var]
    result = made.run(brief)
    assert result.placement is not None
    assert result.observed is not None
    assert (result.placement.verdict, result.placement.share) == ("proved", 1.0)
    # The operators are those of the graph, as they were given out when it was compiled.
    given = result.observed.details["assigned"]["QNNExecutionProvider"]
    assert given["MatMul"] == 3
    assert "EPContext" not in given
    assert result.cache_stamps == again.cache_stamps


def test_a_scrambled_model_gives_the_right_answer(
    bench: Callable[[str], Bench], tmp_path: Path
) -> None:
    made = bench("int8-u8s8")
    draw = np.random.default_rng(7)
    for name in (CONTEXT, "*.bin"):
        size = made.file(name).stat().st_size
        for place in (0, int(draw.integers(1, size - 1)), size - 1):
            raw = bytearray(made.file(name).read_bytes())
            raw[place % len(raw)] ^= int(draw.integers(1, 256))
            made.file(name).write_bytes(raw)
            assert made.attempt(tmp_path) == (True, "rebuilt")
    assert made.attempt(tmp_path) == (True, "reused")


def test_a_truncated_model_gives_the_right_answer(
    bench: Callable[[str], Bench], tmp_path: Path
) -> None:
    made = bench("int8-u8s8")
    for name, keep in ((CONTEXT, 0.5), ("*.bin", 0.9), ("*.bin", 0.0)):
        raw = made.file(name).read_bytes()
        made.file(name).write_bytes(raw[: int(len(raw) * keep)])
        assert made.attempt(tmp_path) == (True, "rebuilt")


def test_a_model_of_another_version_gives_the_right_answer(
    bench: Callable[[str], Bench], tmp_path: Path
) -> None:
    made = bench("int8-u8s8")
    sidecar = (made.folder / SIDECAR).read_text()
    (made.folder / SIDECAR).write_text(sidecar.replace("npumark-compiled/1", "npumark-compiled/0"))
    assert made.attempt(tmp_path) == (True, "rebuilt")
    assert made.attempt(tmp_path) == (True, "reused")


def test_the_model_of_another_graph_gives_the_right_answer(
    bench: Callable[[str], Bench], tmp_path: Path
) -> None:
    """FP16 and INT8 are two graphs with the same names and shapes of tensors."""
    one, two = bench("int8-u8s8"), bench("fp16")
    shutil.copyfile(two.file("*.bin"), one.file("*.bin"))
    assert one.attempt(tmp_path) == (True, "rebuilt")
    shutil.rmtree(one.folder)
    shutil.copytree(two.folder, one.folder)
    assert one.attempt(tmp_path) == (True, "rebuilt")
    assert two.attempt(tmp_path) == (True, "reused")
