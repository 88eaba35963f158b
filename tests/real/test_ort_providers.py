"""ONNX Runtime's providers in their own environments: where they ran, and in which format.

Every measurement is a worker of its own, through the product's own path.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from npumark.orchestrator.supervisor import Outcome
from npumark.pack.manifest import Manifest
from npumark.worker.protocol import EngineInfo, Job
from tests.real.onnx_chains import quantised_chain, write_pack
from tests.real.ort_jobs import POLICY, REF, chain_job, measured, own_job, passes

Work = Callable[..., Outcome]
Find = Callable[..., EngineInfo]


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
    run_worker: Work, find_engine: Find, chain_pack: tuple[Manifest, Path], variant: str, ran: str
) -> None:
    engine = find_engine("qnn", "ort-qnn", "ort-qnn-npu")
    result = measured(run_worker(chain_job(chain_pack, engine, variant), "qnn"))
    assert result.observed is not None
    assert result.placement is not None
    assert (result.observed.precision, result.observed.precision_why) == (ran, None)
    assert result.placement.verdict == "proved"
    assert result.placement.share is not None
    assert result.placement.share >= POLICY.placement.peak_min_share
    assert "QNN's detailed profile" in result.placement.evidence
    assert passes(chain_pack[0], result)


def test_an_operator_that_qnn_does_not_take_shows_in_the_share(
    run_worker: Work, find_engine: Find, tmp_path: Path
) -> None:
    engine = find_engine("qnn", "ort-qnn", "ort-qnn-npu")
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
    run_worker: Work, find_engine: Find, tmp_path: Path
) -> None:
    engine = find_engine("qnn", "ort-qnn", "ort-qnn-npu")
    workload = write_pack(tmp_path, quantised_chain(activation="int8"))
    result = measured(run_worker(own_job(tmp_path, engine, workload), "qnn"))
    assert result.observed is not None
    assert result.observed.precision == "FP16"
    probe = result.observed.details["number_probe"]
    assert probe["float32"]["family"] == "FP16"
    assigned = result.observed.details["assigned"]
    assert assigned["CPUExecutionProvider"] == {"DequantizeLinear": 3}


def test_qnn_asked_for_by_name_is_of_the_wrong_device(
    run_worker: Work, find_engine: Find, chain_pack: tuple[Manifest, Path]
) -> None:
    engine = find_engine("qnn", "ort-qnn", "ort-qnn-npu")
    job = chain_job(chain_pack, engine, "int8-u8s8")
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
    run_worker: Work, find_engine: Find, chain_pack: tuple[Manifest, Path], without_backend: str
) -> None:
    engine = find_engine("qnn", "ort-qnn", "ort-qnn-npu")
    out = run_worker(chain_job(chain_pack, engine, "int8-u8s8"), python=without_backend)
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
    run_worker: Work, find_engine: Find, chain_pack: tuple[Manifest, Path], variant: str, ran: str
) -> None:
    engine = find_engine("ggml", "ort-ggml", "ort-ggml-cpu")
    result = measured(run_worker(chain_job(chain_pack, engine, variant), "ggml"))
    assert result.observed is not None
    assert result.placement is not None
    assert (result.observed.precision, result.placement.verdict) == (ran, "proved")
    assert (result.placement.share, result.placement.op_share) == (1.0, 1.0)
    assert result.observed.details["number_probe"]
    assert passes(chain_pack[0], result)


def test_ggml_that_takes_nothing_is_of_the_wrong_device(
    run_worker: Work, find_engine: Find, chain_pack: tuple[Manifest, Path]
) -> None:
    engine = find_engine("ggml", "ort-ggml", "ort-ggml-cpu")
    out = run_worker(chain_job(chain_pack, engine, "int8-u8s8"), "ggml")
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
    find_engine: Find,
    chain_pack: tuple[Manifest, Path],
    variant: str,
    encoding: str,
    ran: str,
) -> None:
    engine = find_engine("ort-openvino", "ort-openvino", "ort-openvino-cpu")
    if encoding == "bf16" and "BF16" not in engine.options["device"]["capabilities"]:
        pytest.skip("this processor has no BF16")
    job = chain_job(chain_pack, engine, variant, encoding)
    result = measured(run_worker(job, "ort-openvino"))
    assert result.observed is not None
    assert result.placement is not None
    assert result.observed.precision == ran
    assert (result.placement.verdict, result.placement.share) == ("proved", 1.0)
    assert all("_" in primitive for primitive in result.observed.details["ops"])
    assert passes(chain_pack[0], result)
