"""What the probe says of ONNX Runtime's providers in real environments, and what answers then.

Each probe and each measurement is a worker of its own, through the product's own path.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from npumark.orchestrator.supervisor import Outcome
from npumark.pack.manifest import Manifest
from npumark.worker.protocol import EngineInfo, Job
from tests.real.ort_jobs import REF, chain_job, measured, passes

Work = Callable[..., Outcome]

ACME = """
import pathlib
import onnxruntime_ggml


def get_library_path():
    return onnxruntime_ggml.library_path()


def get_ep_name():
    return "AcmeExecutionProvider"
"""


def probed(outcome: Outcome) -> dict[str, EngineInfo]:
    assert outcome.status == "ok", (outcome.why, outcome.log_tail)
    assert outcome.result is not None
    return {info.id: info for info in outcome.result.engines}


@pytest.mark.parametrize(
    ("environment", "provider", "engine", "emulated"),
    [
        ("ggml", "ort-ggml", "ort-ggml-cpu", False),
        ("ort-openvino", "ort-openvino", "ort-openvino-cpu", False),
        ("qnn", "ort-qnn", "ort-qnn-npu", True),
    ],
)
def test_a_plugin_is_registered_and_runs_a_model(
    run_worker: Work, environment: str, provider: str, engine: str, emulated: bool
) -> None:
    infos = probed(run_worker(Job("probe", REF, options={"only": [provider]}), environment))
    info = infos[engine]
    if not info.available:
        pytest.skip(f"{engine} does not run here: {info.reason}")
    assert info.emulated is emulated
    assert info.options["provider"] == provider
    assert info.options["device"]["route"] == "devices"
    assert not info.local_only
    # What of this provider is not here says why, and nothing else is spoken of.
    assert all(name.startswith(f"{provider}-") for name in infos)
    assert all(other.reason for other in infos.values() if not other.available)


def test_an_environments_runtime_is_not_npumarks_own(run_worker: Work) -> None:
    infos = probed(run_worker(Job("probe", REF, options={"only": ["ort-ggml"]}), "ggml"))
    packages = {name for name in infos["ort-ggml-cpu"].versions if ".so" not in name}
    assert packages == {"onnxruntime", "onnxruntime-ggml"}
    assert infos["ort-ggml-cpu"].version == infos["ort-ggml-cpu"].versions["onnxruntime"]


def test_webgpu_without_a_driver_says_so(run_worker: Work, tmp_path: Path) -> None:
    nothing = {"VK_ICD_FILENAMES": str(tmp_path / "none.json"), "LD_LIBRARY_PATH": str(tmp_path)}
    job = Job("probe", REF, options={"only": ["ort-webgpu"]})
    info = probed(run_worker(job, "webgpu", nothing))["ort-webgpu-gpu"]
    assert not info.available
    assert "no Vulkan driver" in str(info.reason)


@pytest.fixture(scope="module")
def acme(engine_environment: Callable[[str], str], tmp_path_factory: Any) -> str:
    """Return an interpreter with a plug-in that no catalogue knows: ggml under another name."""
    owner = engine_environment("ggml")
    root = tmp_path_factory.mktemp("acme")
    subprocess.run([owner, "-m", "venv", "--without-pip", root], check=True)
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    interpreter = next(p for p in (root / "bin/python", root / "Scripts/python.exe") if p.exists())

    def packages(python: str | Path) -> Path:
        told = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True)
        return Path(told.stdout.strip())

    site = packages(interpreter)
    (site / "ggml.pth").write_text(f"{packages(owner)}\n")
    (site / "acme").mkdir()
    (site / "acme" / "__init__.py").write_text(ACME)
    told = site / "acme-1.0.dist-info"
    told.mkdir()
    told.joinpath("METADATA").write_text(
        "Metadata-Version: 2.1\nName: acme\nVersion: 1.0\nRequires-Dist: onnxruntime\n"
    )
    told.joinpath("RECORD").write_text("acme/__init__.py,,\n")
    return str(interpreter)


def test_a_plugin_that_nobody_knows_is_measured(
    run_worker: Work, acme: str, chain_pack: tuple[Manifest, Path]
) -> None:
    infos = probed(run_worker(Job("probe", REF), python=acme))
    info = infos["ort-acme-cpu"]
    assert info.available, info.reason
    assert info.versions["acme"] == "1.0"
    result = measured(run_worker(chain_job(chain_pack, info, "fp32"), python=acme))
    assert passes(chain_pack[0], result)
    assert result.observed is not None
    assert result.observed.device == "AcmeExecutionProvider"
    assert result.placement is not None
    # Nothing says that its calls wait for its work, so the times are not its proof.
    assert (result.placement.verdict, result.placement.share) == ("inferred", 1.0)


def test_a_plugin_that_nobody_knows_and_that_takes_nothing_is_of_the_wrong_device(
    run_worker: Work, acme: str, chain_pack: tuple[Manifest, Path]
) -> None:
    info = probed(run_worker(Job("probe", REF), python=acme))["ort-acme-cpu"]
    outcome = run_worker(chain_job(chain_pack, info, "int8-u8s8"), python=acme)
    assert outcome.status == "wrong_device", (outcome.status, outcome.why)
    assert "given none of the graph's" in str(outcome.why)
