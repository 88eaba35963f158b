"""ONNX Runtime's providers in their own environments: where they ran, and in which format.

Every measurement is a worker of its own, through the product's own path.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from npumark.gates.judge import judge
from npumark.orchestrator.supervisor import Outcome
from npumark.pack.manifest import Manifest, load_manifest
from npumark.pack.materialize import materialize, workload_paths
from npumark.policy import load_policy
from npumark.worker.protocol import EngineInfo, FileCheck, Job, Result, TimingOptions
from tests.real.onnx_chains import quantised_chain, write_pack

REF = "npumark.engines.ort:OnnxRuntime"
CHAIN = "peak-64x256x3"
POLICY = load_policy()

BRIEF = TimingOptions(
    loop_s=0.0,
    min_iterations=3,
    burst_s=0.01,
    drift_window_s=0.005,
    warmup_min_calls=1,
    warmup_max_s=0.0,
    warmup_steady_window=3,
    warmup_steady_cv=0.05,
    timed_checks=2,
    timed_check_min_snr_db=60.0,
)

Work = Callable[..., Outcome]
Find = Callable[..., EngineInfo]


@pytest.fixture(scope="module")
def find(run_worker: Work) -> Find:
    """Return the engine of a provider in an environment, or skip with the probe's reason."""
    asked: dict[str, tuple[EngineInfo, ...]] = {}

    def ask(environment: str, provider: str, engine: str, environ: Any = None) -> EngineInfo:
        if environment not in asked:
            job = Job("probe", REF, options={"only": [provider]})
            out = run_worker(job, environment, environ)
            assert out.result is not None, (out.why, out.log_tail)
            asked[environment] = out.result.engines
        (found,) = (e for e in asked[environment] if e.id == engine)
        if not found.available:
            pytest.skip(f"{engine} does not run here: {found.reason}")
        return found

    return ask


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> tuple[Manifest, Path]:
    manifest = load_manifest()
    root = tmp_path_factory.mktemp("pack")
    materialize(manifest, workload_paths(manifest, [CHAIN]), root=root)
    return manifest, root


def chain_job(
    pack: tuple[Manifest, Path], engine: EngineInfo, variant: str, encoding: str = ""
) -> Job:
    manifest, root = pack
    workload = manifest.workloads[CHAIN]
    files = (manifest.files[path] for path in workload.files(variant))
    return Job(
        kind="measure",
        engine_ref=REF,
        engine_id=engine.id,
        options={**engine.options, "cache": False},
        threads=1,
        pack_root=str(root),
        workload=asdict(workload),
        variant=asdict(workload.variant(variant)),
        encoding=encoding,
        format=encoding.upper(),
        files=tuple(FileCheck(f.path, f.size, f.sha256, None) for f in files),
        timing=BRIEF,
        seed=1,
        profile_runs=POLICY.placement.profile_runs,
    )


def own_job(root: Path, engine: EngineInfo, workload: dict[str, Any], **options: Any) -> Job:
    """Return a job that measures a workload of write_pack's."""
    raw = {name: (root / name).read_bytes() for name in ("graph.onnx", "x.bin", "y.bin")}
    checks = [FileCheck(n, len(r), hashlib.sha256(r).hexdigest(), None) for n, r in raw.items()]
    return Job(
        kind="measure",
        engine_ref=REF,
        engine_id=engine.id,
        options={**engine.options, "cache": False, **options},
        threads=1,
        pack_root=str(root),
        workload=workload,
        variant=workload["variants"][0],
        files=tuple(checks),
        timing=BRIEF,
        seed=1,
        profile_runs=3,
    )


def measured(outcome: Outcome) -> Result:
    assert outcome.status == "ok", (outcome.status, outcome.why, outcome.log_tail)
    assert outcome.result is not None
    assert outcome.result.measurement is not None
    return outcome.result


def passes(manifest: Manifest, result: Result) -> bool:
    assert result.measurement is not None
    return judge(result.measurement.measures, manifest.workloads[CHAIN].gates["standard"]).passed


@pytest.mark.parametrize(
    ("variant", "ran"),
    [
        ("int8-u8s8", "INT8"),
        ("int8-s8s8", "INT8"),
        ("int8-a16w8", "INT8"),
        ("fp16", "FP16"),
        ("fp32", "FP16"),
    ],
)
def test_qnn_is_proved_and_named_by_what_it_computed(
    run_worker: Work, find: Find, pack: tuple[Manifest, Path], variant: str, ran: str
) -> None:
    engine = find("qnn", "ort-qnn", "ort-qnn-npu")
    result = measured(run_worker(chain_job(pack, engine, variant), "qnn"))
    assert result.observed is not None
    assert result.placement is not None
    assert (result.observed.precision, result.observed.precision_why) == (ran, None)
    assert result.placement.verdict == "proved"
    assert result.placement.share is not None
    assert result.placement.share >= POLICY.placement.peak_min_share
    assert "QNN's detailed profile" in result.placement.evidence
    assert passes(pack[0], result)


def test_an_operator_that_qnn_does_not_take_shows_in_the_share(
    run_worker: Work, find: Find, tmp_path: Path
) -> None:
    engine = find("qnn", "ort-qnn", "ort-qnn-npu")
    workload = write_pack(tmp_path, quantised_chain(inserted="Hardmax"))
    result = measured(run_worker(own_job(tmp_path, engine, workload), "qnn"))
    assert result.placement is not None
    assert result.observed is not None
    assert result.placement.verdict == "proved"
    assert result.placement.share is not None
    assert 0 < result.placement.share < 1
    # Hardmax, and the weights that a product without quantised results reads, of 18 operators.
    assert result.placement.op_share == pytest.approx(16 / 18)
    assert result.placement.partitions == 2
    assigned = result.observed.details["assigned"]
    assert assigned["CPUExecutionProvider"] == {"DequantizeLinear": 1, "Hardmax": 1}
    assert result.observed.details["mac_share"] == pytest.approx({"INT8": 2 / 3, "FP16": 1 / 3})


def test_weights_that_the_cpu_unpacks_for_qnn_are_computed_in_fp16(
    run_worker: Work, find: Find, tmp_path: Path
) -> None:
    engine = find("qnn", "ort-qnn", "ort-qnn-npu")
    workload = write_pack(tmp_path, quantised_chain(activation="int8"))
    result = measured(run_worker(own_job(tmp_path, engine, workload), "qnn"))
    assert result.observed is not None
    assert result.observed.precision == "FP16"
    probe = result.observed.details["number_probe"]
    assert probe["float32"]["family"] == "FP16"
    assigned = result.observed.details["assigned"]
    assert assigned["CPUExecutionProvider"] == {"DequantizeLinear": 3}


def test_qnn_asked_for_by_name_is_of_the_wrong_device(
    run_worker: Work, find: Find, pack: tuple[Manifest, Path]
) -> None:
    engine = find("qnn", "ort-qnn", "ort-qnn-npu")
    job = chain_job(pack, engine, "int8-u8s8")
    device = {**job.options["device"], "route": "name"}
    job.options["device"] = device
    out = run_worker(job, "qnn")
    assert out.status == "wrong_device", (out.why, out.log_tail)
    assert out.result is not None
    assert out.result.measurement is None


@pytest.fixture(scope="module")
def without_backend(
    engine_environment: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> str:
    """Return an interpreter that has all of the environment qnn but its backend library."""
    intact = engine_environment("qnn")
    folder = tmp_path_factory.mktemp("moved-away")
    subprocess.run([intact, "-m", "venv", "--without-pip", str(folder)], check=True)
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"

    def packages(python: str) -> Path:
        told = subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True)
        return Path(told.stdout.strip())

    python = str(folder / "bin" / "python")
    ours = packages(python)
    for entry in packages(intact).iterdir():
        if entry.name != "onnxruntime_qnn":
            (ours / entry.name).symlink_to(entry)
            continue
        for file in entry.rglob("*"):
            copy = ours / file.relative_to(entry.parent)
            if file.is_file() and not file.name.startswith("libQnnHtp"):
                copy.parent.mkdir(parents=True, exist_ok=True)
                os.link(file, copy)
    return python


def test_qnn_without_its_backend_library_is_of_the_wrong_device(
    run_worker: Work, find: Find, pack: tuple[Manifest, Path], without_backend: str
) -> None:
    engine = find("qnn", "ort-qnn", "ort-qnn-npu")
    out = run_worker(chain_job(pack, engine, "int8-u8s8"), python=without_backend)
    assert out.status == "wrong_device", (out.status, out.why, out.log_tail)
    assert out.result is not None
    assert out.result.measurement is None
    probed = run_worker(Job("probe", REF, options={"only": ["ort-qnn"]}), python=without_backend)
    assert probed.result is not None
    (told,) = probed.result.engines
    assert not told.available
    assert told.reason


@pytest.mark.parametrize(("variant", "ran"), [("fp32", "FP32"), ("fp16", "FP16")])
def test_ggml_is_named_by_what_it_computed(
    run_worker: Work, find: Find, pack: tuple[Manifest, Path], variant: str, ran: str
) -> None:
    engine = find("ggml", "ort-ggml", "ort-ggml-cpu")
    result = measured(run_worker(chain_job(pack, engine, variant), "ggml"))
    assert result.observed is not None
    assert result.placement is not None
    assert (result.observed.precision, result.placement.verdict) == (ran, "proved")
    assert (result.placement.share, result.placement.op_share) == (1.0, 1.0)
    assert result.observed.details["number_probe"]
    assert passes(pack[0], result)


def test_ggml_that_takes_nothing_is_of_the_wrong_device(
    run_worker: Work, find: Find, pack: tuple[Manifest, Path]
) -> None:
    engine = find("ggml", "ort-ggml", "ort-ggml-cpu")
    out = run_worker(chain_job(pack, engine, "int8-u8s8"), "ggml")
    assert out.status == "wrong_device", (out.status, out.why)
    assert out.why is not None
    assert "given none of the graph's 17 nodes" in out.why


@pytest.mark.parametrize(
    ("variant", "encoding", "ran"),
    [
        ("fp32", "", "FP32"),
        ("fp32", "bf16", "BF16"),
        ("int8-u8s8", "", "INT8"),
        ("int8-s8s8", "", "INT8"),
        ("int8-a16w8", "", "FP32"),  # OpenVINO drops 16-bit ranges
    ],
)
def test_openvino_as_a_provider_is_named_by_its_primitives(
    run_worker: Work,
    find: Find,
    pack: tuple[Manifest, Path],
    variant: str,
    encoding: str,
    ran: str,
) -> None:
    engine = find("ort-openvino", "ort-openvino", "ort-openvino-cpu")
    if encoding == "bf16" and "BF16" not in engine.options["device"]["capabilities"]:
        pytest.skip("this processor has no BF16")
    job = chain_job(pack, engine, variant, encoding)
    result = measured(run_worker(job, "ort-openvino"))
    assert result.observed is not None
    assert result.placement is not None
    assert result.observed.precision == ran
    assert (result.placement.verdict, result.placement.share) == ("proved", 1.0)
    assert all("_" in primitive for primitive in result.observed.details["ops"])
    assert passes(pack[0], result)
