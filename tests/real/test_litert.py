"""LiteRT through the product's own worker, and its networks against their gates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

pytest.importorskip("ai_edge_litert", reason="LiteRT is missing: pip install ai-edge-litert")

from npumark.engines.registry import BUILT_IN
from npumark.gates.judge import judge
from npumark.orchestrator.supervisor import Outcome
from npumark.pack import litert_model
from npumark.pack.manifest import Manifest, load_manifest
from npumark.pack.materialize import materialize, workload_paths
from npumark.pack.program_file import parse_program
from npumark.pack.weight_encoding import write_sections
from npumark.policy import load_policy
from npumark.worker.protocol import EngineInfo, FileCheck, Job, TimingOptions
from workloads.defects import planted
from workloads.litert_build import measure, structure_of, variant_entry
from workloads.litert_emit import VARIANTS, emit
from workloads.mobilenet_v3_large import definition as mobilenet
from workloads.onnx_emit import stored
from workloads.programs_build import encode, network_document
from workloads.shipped import open_network

CHAIN = "peak-16x256x3"
NETWORK = mobilenet.WORKLOAD

Work = Callable[..., Outcome]


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> tuple[Manifest, Path]:
    manifest, root = load_manifest(), tmp_path_factory.mktemp("pack")
    wanted = [*workload_paths(manifest, [CHAIN])]
    network = manifest.workloads[NETWORK]
    wanted += [f for variant in VARIANTS for f in network.files(variant)]
    materialize(manifest, wanted, root=root)
    return manifest, root


def short() -> TimingOptions:
    policy = load_policy().timing
    return TimingOptions(
        loop_s=0.05,
        min_iterations=2,
        burst_s=policy.burst_s,
        drift_window_s=policy.drift_window_s,
        warmup_min_calls=1,
        warmup_max_s=0.2,
        warmup_steady_window=policy.warmup_steady_window,
        warmup_steady_cv=policy.warmup_steady_cv,
        timed_checks=policy.timed_checks,
        timed_check_min_snr_db=policy.timed_check_min_snr_db,
    )


def job(pack: tuple[Manifest, Path], engine: EngineInfo, variant: str) -> Job:
    manifest, root = pack
    workload = manifest.workloads[CHAIN]
    files = (manifest.files[path] for path in workload.files(variant))
    return Job(
        kind="measure",
        engine_ref=BUILT_IN["litert"],
        engine_id=engine.id,
        options=engine.options,
        threads=1,
        pack_root=str(root),
        workload=asdict(workload),
        variant=asdict(workload.variant(variant)),
        files=tuple(FileCheck(f.path, f.size, f.sha256, None) for f in files),
        timing=short(),
        profile_runs=3,
    )


def engine(run_worker: Work, name: str, environ: dict[str, str] | None = None) -> EngineInfo:
    outcome = run_worker(Job("probe", BUILT_IN["litert"]), environ=environ)
    assert outcome.result is not None, outcome.why
    return next(e for e in outcome.result.engines if e.id == name)


@pytest.mark.parametrize(("variant", "ran"), [("litert-fp16", "FP32"), ("litert-int8", "INT8")])
def test_the_cpu_measures_a_chain(
    variant: str, ran: str, run_worker: Work, pack: tuple[Manifest, Path]
) -> None:
    outcome = run_worker(job(pack, engine(run_worker, "litert-cpu"), variant))
    assert outcome.result is not None
    assert outcome.result.status == "ok", outcome.log_tail
    result = outcome.result
    assert result.measurement is not None
    assert result.observed is not None
    assert result.placement is not None
    gate = pack[0].workloads[CHAIN].gates["standard"]
    assert judge(result.measurement.measures, gate).passed
    assert result.measurement.timed_check.passed
    assert (result.observed.precision, result.observed.threads) == (ran, 1)
    assert (result.placement.verdict, result.placement.share) == ("proved", 1.0)


@pytest.mark.parametrize(("variant", "ran"), [("litert-fp16", "FP16"), ("litert-int8", None)])
def test_a_gpu_in_software_is_an_emulated_one_that_measures(
    variant: str,
    ran: str | None,
    run_worker: Work,
    swiftshader: dict[str, str],
    pack: tuple[Manifest, Path],
) -> None:
    gpu = engine(run_worker, "litert-gpu", swiftshader)
    if not gpu.available:
        pytest.skip(f"LiteRT takes no GPU here, not even SwiftShader: {gpu.reason}")
    assert gpu.emulated
    # The name is what LiteRT's own log says: Vulkan's list is not asked for it.
    name = gpu.processor["name"]
    assert gpu.processor == {"role": "iGPU", "name": name, "key": f"software-{name}"}
    assert "SwiftShader" in name
    outcome = run_worker(job(pack, gpu, variant), environ=swiftshader)
    assert outcome.result is not None
    assert outcome.result.status == "ok", outcome.log_tail
    result = outcome.result
    assert result.measurement is not None
    assert result.observed is not None
    assert result.placement is not None
    gate = pack[0].workloads[CHAIN].gates["standard"]
    assert judge(result.measurement.measures, gate).passed
    assert result.observed.precision == ran
    assert (result.placement.verdict, result.placement.share) == ("proved", 1.0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_network_passes_its_gate(variant: str, pack: tuple[Manifest, Path]) -> None:
    manifest, root = pack
    workload = manifest.workloads[NETWORK]
    made = workload.variant(variant)
    assert made.validated
    assert judge(measure(workload, made, root), workload.gates["standard"]).passed


@pytest.mark.parametrize("defect", planted(NETWORK))
def test_a_defective_network_fails_it(
    defect: str, pack: tuple[Manifest, Path], tmp_path: Path
) -> None:
    manifest, root = pack
    workload = manifest.workloads[NETWORK]
    shipped = open_network(mobilenet.build())
    broken = planted(NETWORK)[defect](shipped.graph, shipped.values, shipped.quantisation)
    tensors = {*broken.graph.inputs, *(node.name for node in broken.graph.nodes)}
    ranges = {t: r for t, r in shipped.quantisation.activations.items() if t in tensors}
    quantisation = replace(shipped.quantisation, activations=ranges)
    network = replace(shipped, graph=broken.graph, values=broken.values, quantisation=quantisation)
    program = parse_program(encode(network_document(network)))
    folder = tmp_path / NETWORK
    folder.mkdir()
    with (folder / "int8.weights").open("wb") as out:
        write_sections("int8", stored(broken.graph, broken.values, quantisation), out)
    (folder / "head.xz").write_bytes(structure_of(emit(program, "litert-int8")))
    with (folder / "litert-int8.tflite").open("wb") as out:
        litert_model.write_model(folder / "head.xz", folder / "int8.weights", out)
    for tensor in (*workload.eval.inputs, *workload.eval.references, *workload.eval.mu):
        (tmp_path / tensor.file).parent.mkdir(exist_ok=True)
        (tmp_path / tensor.file).symlink_to(root / tensor.file)
    entry = variant_entry(program, "litert-int8")
    assert not judge(measure(workload, entry, tmp_path), workload.gates["standard"]).passed
