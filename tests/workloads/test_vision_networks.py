"""The shipped vision networks: weights, graphs, gates, and broken copies that must fail."""

from __future__ import annotations

import hashlib
import io
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest

from npumark.gates.judge import judge
from npumark.pack.network_weights import write_weights
from npumark.pack.weight_encoding import FORMATS
from npumark.record.model import Gate
from tests.int8_sums import needs_whole_sums
from workloads.defects import DEFECTS, OWN_DEFECTS, Broken, Defect
from workloads.onnx_emit import save
from workloads.shipped import SHIPPED, fragment

from .vision_networks import DEFINITIONS, VARIANTS, network, run

FP16_SMALLEST_NORMAL = 2.0**-14


@pytest.fixture(scope="module", params=DEFINITIONS)
def workload(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def every(n: int, count: int) -> list[int]:
    return sorted({i * n // count for i in range(count)})


@pytest.mark.parametrize("form", FORMATS)
def test_weight_files_hash_to_what_the_manifest_says(workload: str, form: str) -> None:
    (entry,) = [f for f in fragment()["files"] if f["path"] == f"{workload}/{form}.weights"]
    out = io.BytesIO()
    write_weights(SHIPPED, workload, form, out)
    assert len(out.getvalue()) == entry["size"]
    assert hashlib.sha256(out.getvalue()).hexdigest() == entry["sha256"]


def test_weights_are_finite_and_almost_never_subnormal_in_half_precision(workload: str) -> None:
    for name, value in network(workload).values.items():
        assert np.isfinite(value).all(), name
        assert np.abs(value).max() < 65504, name
        small = (value != 0) & (np.abs(value) < FP16_SMALLEST_NORMAL)
        assert np.mean(small) < 0.01, name


def test_counts_in_the_manifest_are_those_of_the_definition(workload: str) -> None:
    net = network(workload)
    module = DEFINITIONS[workload]
    assert net.entry.macs == net.graph.macs()
    assert net.entry.params == module.PUBLISHED_PARAMETERS


def test_emission_is_reproducible(workload: str, tmp_path: Path) -> None:
    net = network(workload)
    for variant in ("fp32", "int8-u8s8"):
        graph = save(net.graph, net.values, variant, tmp_path, net.quantisation)
        assert graph.read_bytes() == (SHIPPED / workload / graph.name).read_bytes()


def test_shipped_files_stay_small(workload: str) -> None:
    for path in (SHIPPED / workload).iterdir():
        assert path.stat().st_size < 3_000_000, path
        if path.suffix == ".onnx":
            # These hold their biases themselves; other graphs find them in a weights file.
            own = path.stem in ("int8-a16w8", "int8-sym")
            bound = 300_000 if own else 150_000
            assert path.stat().st_size < bound, path


def test_quantised_graphs_keep_zero_points_at_zero_after_relu(workload: str) -> None:
    net = network(workload)
    relus = [node.name for node in net.graph.nodes if node.op == "relu"]
    assert relus
    assert {net.quantisation.activations[name][1] for name in relus} == {0}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_passes_its_standard_gate(
    workload: str, variant: str, tmp_path: Path
) -> None:
    needs_whole_sums(variant)
    net = network(workload)
    graph = save(net.graph, net.values, variant, tmp_path, net.quantisation)
    samples = list(range(net.entry.eval.n))
    verdict = judge(net.measure(samples, run(net, graph, variant, samples)), net.gate("standard"))
    assert verdict.passed, verdict.why
    assert net.entry.variant(variant).validated


def test_classifiers_have_enough_decisive_samples() -> None:
    for workload in ("mobilenet_v3_large", "resnet50"):
        (logits,) = network(workload).arrays("references")
        ordered = np.sort(logits.astype(np.float32), axis=1)
        assert (ordered[:, -1] - ordered[:, -2] >= 1).sum() >= 24
        assert len(set(logits.argmax(axis=1).tolist())) >= 4


def judged_on_few(workload: str, variant: str, broken: Broken, few: int) -> Gate:
    """Return the standard gate's verdict over a handful of evaluation samples."""
    net = network(workload)
    samples = every(net.entry.eval.n, few)
    with tempfile.TemporaryDirectory() as folder:
        graph = save(broken.graph, broken.values, variant, Path(folder), broken.quantisation)
        outputs = run(net, graph, variant, samples)
    return judge(net.measure(samples, outputs), net.gate("standard"))


@cache
def judged_whole(workload: str, variant: str, few: int) -> Gate:
    net = network(workload)
    whole = Broken(net.graph, net.values, net.quantisation)
    return judged_on_few(workload, variant, whole, few)


def refused(workload: str, variant: str, defect: Defect, few: int = 2) -> None:
    """Assert that a defect fails on samples on which the whole network passes."""
    needs_whole_sums(variant)
    whole = judged_whole(workload, variant, few)
    assert whole.passed, whole.why
    net = network(workload)
    broken = defect(net.graph, net.values, net.quantisation)
    verdict = judged_on_few(workload, variant, broken, few)
    assert not verdict.passed, verdict.measures


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("defect", DEFECTS)
def test_every_defect_fails_the_standard_gate(workload: str, defect: str, variant: str) -> None:
    refused(workload, variant, DEFECTS[defect])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("owner", "defect"), [(owner, name) for owner, own in OWN_DEFECTS.items() for name in own]
)
def test_every_defect_of_its_own_fails_the_standard_gate(
    owner: str, defect: str, variant: str
) -> None:
    refused(owner, variant, OWN_DEFECTS[owner][defect], few=4)


def test_a_repeated_answer_fails_every_gate(workload: str) -> None:
    net = network(workload)
    samples = every(net.entry.eval.n, 6)
    (reference,) = net.arrays("references")
    scale = int(net.entry.eval.parameters.get("reference_scale", 1))
    answer = reference[:1].astype(np.float32)
    if scale > 1:
        answer = answer.repeat(scale, axis=2).repeat(scale, axis=3)
    measures = net.measure(samples, [[answer]] * len(samples))
    for tier in ("standard", "strict"):
        assert not judge(measures, net.gate(tier)).passed


def test_graphs_are_valid_onnx_and_keep_their_weights_outside(workload: str) -> None:
    for variant in VARIANTS:
        model = onnx.load(SHIPPED / workload / f"{variant}.onnx", load_external_data=False)
        assert model.ir_version == 8
        assert [o.version for o in model.opset_import] == [17]
        external = [t for t in model.graph.initializer if t.data_location == t.EXTERNAL]
        inline = [t for t in model.graph.initializer if t.data_location != t.EXTERNAL]
        assert external
        assert all(np.prod(t.dims) <= 8 for t in inline)
