"""EPContext graphs of QNN (its emulator) and OpenVINO: written, loaded again, and scrambled.

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

from npumark.engines.model_sidecar import SIDECAR
from npumark.engines.ort_context import CONTEXT
from npumark.gates.judge import judge
from npumark.orchestrator.discover import Found, Runtime
from npumark.orchestrator.jobs import JobMaker
from npumark.orchestrator.supervisor import Outcome
from npumark.pack.manifest import Manifest, load_manifest
from npumark.pack.materialize import materialize, workload_paths
from npumark.policy import load_policy
from npumark.score.planned import Planned
from npumark.worker.protocol import EngineInfo, Job, Result, Stamp

ENGINES = {"qnn": ("ort-qnn", "ort-qnn-npu"), "ort-openvino": ("ort-openvino", "ort-openvino-cpu")}
"""By environment: the provider and the engine. OpenVINO's cache is forced on: it keeps none for a
CPU otherwise."""

CHAIN = "peak-64x256x3"
REF = "npumark.engines.ort:OnnxRuntime"
POLICY = load_policy()

Work = Callable[..., Outcome]


@dataclass
class Bench:
    """One entry; ``found`` is its engine, as the environment's probe tells it."""

    work: Work
    environment: str
    found: EngineInfo
    manifest: Manifest
    pack: Path
    cache: Path
    variant: str
    jobs: JobMaker = field(init=False)

    def __post_init__(self) -> None:
        found = Found(self.found, Runtime("ort", REF))
        self.jobs = JobMaker(
            self.manifest, POLICY, {self.found.id: found}, self.pack, self.cache, "run", True, 1
        )

    @property
    def planned(self) -> Planned:
        graph = self.manifest.workloads[CHAIN].variant(self.variant)
        engine, variant = self.found.id, self.variant
        return Planned(engine, CHAIN, variant, variant, graph.format, "peak", "extra")

    @property
    def folder(self) -> Path:
        return self.jobs.cache_dir(self.planned)

    def file(self, name: str) -> Path:
        (found,) = self.folder.glob(f"models-*/{name}")
        return found

    def run(self, job: Job) -> Result:
        outcome = self.work(job, self.environment)
        assert outcome.status == "ok", (outcome.why, outcome.log_tail)
        assert outcome.result is not None
        return outcome.result

    def prepare(self) -> Result:
        return self.run(self.jobs.prepare(self.planned, {}, {}))

    def measure(self, stamps: dict[str, Stamp] | None) -> Result:
        """Measure in a few calls, with the compiled model's stamps or, with null, without one."""
        job = self.jobs.measure(self.planned, 1, {}, Path(), stamps)
        assert job.timing is not None
        brief = replace(job.timing, loop_s=0.0, min_iterations=1, warmup_max_s=0.0)
        return self.run(replace(job, timing=brief, profile_runs=2, samples_path=None))

    def attempt(self) -> tuple[bool, str]:
        """Load and run the whole eval set; say whether the gate passed, and what was done."""
        result = self.measure({})
        assert result.measurement is not None
        assert result.cache is not None
        assert result.measurement.loaded_from_cache == (result.cache.state == "reused")
        gate = self.manifest.workloads[CHAIN].gates["standard"]
        return judge(result.measurement.measures, gate).passed, result.cache.state


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest, run_worker: Work) -> tuple[str, EngineInfo]:
    """Return an environment and its engine, with its cache on."""
    environment = str(request.param)
    provider, name = ENGINES[environment]
    outcome = run_worker(Job("probe", REF, options={"only": [provider]}), environment)
    assert outcome.result is not None, outcome.why
    found = next((e for e in outcome.result.engines if e.id == name), None)
    if found is None or not found.available:
        pytest.skip(f"{name} does not run here: {found.reason if found else 'it has no device'}")
    assert found.options["cache"] is (environment == "qnn")
    return environment, replace(found, options={**found.options, "cache": True})


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> tuple[Manifest, Path]:
    manifest = load_manifest()
    root = tmp_path_factory.mktemp("pack")
    materialize(manifest, workload_paths(manifest, [CHAIN]), root=root)
    return manifest, root


@pytest.fixture
def bench(
    run_worker: Work, engine: tuple[str, EngineInfo], pack: tuple[Manifest, Path], tmp_path: Path
) -> Callable[[str], Bench]:
    def make(variant: str) -> Bench:
        made = Bench(run_worker, *engine, *pack, tmp_path / "compiled", variant)
        built = made.prepare()
        assert built.cache is not None
        assert (built.cache.state, built.cache.why) == ("built", None)
        assert built.cache.compile_ns
        return made

    return make


@pytest.mark.parametrize("variant", ["int8-u8s8", "fp16"])
def test_a_compiled_model_is_written_and_loaded_again(
    bench: Callable[[str], Bench], variant: str
) -> None:
    made = bench(variant)
    assert made.file(CONTEXT).stat().st_size < 10_000
    again = made.prepare()
    assert again.cache is not None
    assert again.prepared is not None
    assert (again.cache.state, again.prepared.same_answers) == ("reused", True)
    result = made.measure(again.cache_stamps)
    assert result.placement is not None
    assert result.observed is not None
    assert (result.placement.verdict, result.placement.share) == ("proved", 1.0)
    assert result.cache_stamps == again.cache_stamps
    # The operators are those of the graph, as they were given out when it was compiled.
    (given,) = result.observed.details["assigned"].values()
    assert given["MatMul"] == 3
    assert "EPContext" not in given
    # What is told of a compiled model is what is told of the graph itself.
    alone = made.measure(None)
    assert alone.observed is not None
    assert alone.cache is None
    assert result.placement == alone.placement
    assert result.observed.precision is not None
    assert result.observed.precision == alone.observed.precision


def test_a_scrambled_model_gives_the_right_answer(
    bench: Callable[[str], Bench],
) -> None:
    made = bench("int8-u8s8")
    draw = np.random.default_rng(7)
    for name in (CONTEXT, "*.bin"):
        size = made.file(name).stat().st_size
        for place in (0, int(draw.integers(1, size - 1)), size - 1):
            raw = bytearray(made.file(name).read_bytes())
            raw[place % len(raw)] ^= int(draw.integers(1, 256))
            made.file(name).write_bytes(raw)
            assert made.attempt() == (True, "rebuilt")
    assert made.attempt() == (True, "reused")


def test_a_truncated_model_gives_the_right_answer(
    bench: Callable[[str], Bench],
) -> None:
    made = bench("int8-u8s8")
    for name, keep in ((CONTEXT, 0.5), ("*.bin", 0.9), ("*.bin", 0.0)):
        raw = made.file(name).read_bytes()
        made.file(name).write_bytes(raw[: int(len(raw) * keep)])
        assert made.attempt() == (True, "rebuilt")


def test_a_model_of_another_version_gives_the_right_answer(
    bench: Callable[[str], Bench],
) -> None:
    made = bench("int8-u8s8")
    sidecar = (made.folder / SIDECAR).read_text()
    (made.folder / SIDECAR).write_text(sidecar.replace("npumark-compiled/1", "npumark-compiled/0"))
    assert made.attempt() == (True, "rebuilt")
    assert made.attempt() == (True, "reused")


def test_the_model_of_another_graph_gives_the_right_answer(
    bench: Callable[[str], Bench],
) -> None:
    """FP16 and INT8 are two graphs with the same names and shapes of tensors."""
    one, two = bench("int8-u8s8"), bench("fp16")
    shutil.copyfile(two.file("*.bin"), one.file("*.bin"))
    assert one.attempt() == (True, "rebuilt")
    shutil.rmtree(one.folder)
    shutil.copytree(two.folder, one.folder)
    assert one.attempt() == (True, "rebuilt")
    assert two.attempt() == (True, "reused")
