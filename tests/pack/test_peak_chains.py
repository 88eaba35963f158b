"""The chains' graphs on a real runtime: right within the gate, wrong outside it.

Each defect is planted in the weights of one layer, in every number format, and judged by the
manifest's own gate. A skipped layer is one whose matrix is the identity: ReLU leaves its
non-negative input as it is.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest

from npumark.gates.judge import judge
from npumark.gates.metrics import accumulator
from npumark.pack import materialize, peak_files, seeded
from npumark.pack.manifest import Manifest, Variant, Workload, load_manifest
from npumark.pack.peak_files import WeightForm
from npumark.pack.seeded import Chain
from npumark.record.model import Gate
from tests.int8_sums import needs_whole_sums
from workloads.peak import build, graphs

TINY = "peak-16x256x3"
REAL = "peak-512x2048x8"
VARIANTS = ("fp32", "fp16", "int8-u8s8", "int8-s8s8")
Array = npt.NDArray[Any]


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pack")
    manifest = load_manifest()
    materialize.materialize(manifest, materialize.workload_paths(manifest, [TINY]), root=root)
    real = manifest.workloads[REAL].files("int8-u8s8")
    materialize.materialize(manifest, real, root=root)
    return root


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    return load_manifest()


def _session(path: Path, **config: str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1  # other tests run beside this one
    if "profile" in config:
        options.enable_profiling = True
        options.profile_file_prefix = config["profile"]
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _stored(root: Path, workload: Workload, kind: str) -> Array:
    tensor = getattr(workload.eval, kind)[0]
    return np.fromfile(root / tensor.file, tensor.dtype).reshape(tensor.shape)


def _outputs(root: Path, workload: Workload, variant: Variant, graph: Path) -> list[Array]:
    session = _session(graph)
    dtype = variant.inputs[0].dtype
    return [session.run(None, {"x": x.astype(dtype)})[0] for x in _stored(root, workload, "inputs")]


def _judged(root: Path, workload: Workload, outputs: list[Array]) -> Gate:
    references = [_stored(root, workload, "references")]
    measured = accumulator(workload.task, references, (), workload.eval.parameters)
    for i, output in enumerate(outputs):
        measured.add(i, (output,))
    measures, _ = measured.result()
    return judge(measures, workload.gates["standard"])


@pytest.mark.parametrize("variant_id", VARIANTS)
def test_a_chain_passes_its_gate(packs: Path, manifest: Manifest, variant_id: str) -> None:
    needs_whole_sums(variant_id)
    workload = manifest.workloads[TINY]
    variant = workload.variant(variant_id)
    assert variant.validated
    gate = _judged(packs, workload, _outputs(packs, workload, variant, packs / variant.graph))
    assert gate.passed, gate.why
    assert gate.bounds == {"snr_db": 20.0}


@pytest.mark.parametrize("variant_id", ["int8-u8s8", "int8-s8s8"])
def test_int8_runs_as_integer_products_with_relu_folded(
    packs: Path, manifest: Manifest, variant_id: str, tmp_path: Path
) -> None:
    variant = manifest.workloads[TINY].variant(variant_id)
    session = _session(packs / variant.graph, profile=str(tmp_path / "profile"))
    session.run(None, {"x": np.zeros(variant.inputs[0].shape, np.float32)})
    events = json.loads(Path(session.end_profiling()).read_text())
    ran = Counter(
        event["args"]["op_name"]
        for event in events
        if event["cat"] == "Node" and event["name"].endswith("_kernel_time")
    )
    assert ran == {"QLinearMatMul": 3, "QuantizeLinear": 1, "DequantizeLinear": 1}


@pytest.mark.parametrize("chain", [c for c, _ in build.CHAINS if c.width == 256], ids=str)
def test_the_shipped_graphs_are_the_ones_the_builder_writes(chain: Chain, tmp_path: Path) -> None:
    build.write_graphs(chain, tmp_path)
    for encoding in graphs.ENCODINGS:
        name = f"{encoding.id}.onnx"
        shipped = materialize.SHIPPED / chain.workload / name
        assert shipped.read_bytes() == (tmp_path / name).read_bytes()


def test_activation_ranges_start_at_zero_after_relu() -> None:
    chain = Chain(16, 256, 3)
    for encoding, point, entry in ((graphs.ENCODINGS[2], 0, 128), (graphs.ENCODINGS[3], -128, 0)):
        model = graphs.graph(chain, encoding)
        zeros = {
            tensor.name: np.frombuffer(tensor.raw_data, encoding.activation)[0]
            for tensor in model.graph.initializer
            if tensor.name.endswith(".zero") and not tensor.name.startswith("weight")
        }
        assert zeros.pop("x.zero") == entry
        assert set(zeros.values()) == {point}
        assert len(zeros) == chain.layers


Defect = Callable[[Array, Array | None], None]
"""Changes one layer's stored matrix, and its scales where the format has them, in place."""


def _skip(matrix: Array, scale: Array | None) -> None:
    matrix[:] = np.eye(len(matrix)) * (1 if scale is None else 127)
    if scale is not None:
        scale[:] = 1 / 127


def _roll(matrix: Array, scale: Array | None) -> None:
    matrix[:] = np.roll(matrix, 1, axis=1)
    if scale is not None:
        scale[:] = np.roll(scale, 1)


def _zero_a_sixteenth(matrix: Array, scale: Array | None) -> None:
    matrix[:, : len(matrix) // 16] = 0


def _double(matrix: Array, scale: Array | None) -> None:
    target = matrix if scale is None else scale
    target *= 2


DEFECTS = (_skip, _roll, _zero_a_sixteenth, _double)


def _planted(
    source: Path, folder: Path, chain: Chain, form: WeightForm, layer: int, defect: Defect
) -> None:
    """Copy a chain's graphs and one weight file to ``folder``, with a defect in one layer."""
    for graph in source.glob("*.onnx"):
        shutil.copy(graph, folder)
    raw = bytearray((source / f"{form}.weights").read_bytes())
    views = {
        placed.name: np.frombuffer(
            raw, placed.dtype, int(np.prod(placed.shape)), placed.offset
        ).reshape(placed.shape)
        for placed in peak_files.layout(chain, form)
    }
    defect(views[f"w{layer}"], views.get(f"w{layer}.scale"))
    (folder / f"{form}.weights").write_bytes(raw)


@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize("defect", DEFECTS)
@pytest.mark.parametrize("variant_id", VARIANTS)
def test_a_defect_fails_the_gate(
    packs: Path,
    manifest: Manifest,
    tmp_path: Path,
    variant_id: str,
    defect: Defect,
    layer: int,
) -> None:
    workload = manifest.workloads[TINY]
    variant = workload.variant(variant_id)
    form = peak_files.weight_form(variant_id.partition("-")[0])
    _planted(packs / TINY, tmp_path, Chain.parse(TINY), form, layer, defect)
    outputs = _outputs(packs, workload, variant, tmp_path / f"{variant_id}.onnx")
    gate = _judged(packs, workload, outputs)
    assert not gate.passed, gate


@pytest.mark.parametrize("defect", [None, *DEFECTS])
def test_a_defect_fails_on_a_real_shape(
    packs: Path, manifest: Manifest, tmp_path: Path, defect: Defect | None
) -> None:
    if defect is None:
        needs_whole_sums("int8-u8s8")
    workload = manifest.workloads[REAL]
    variant = workload.variant("int8-u8s8")
    graph = packs / variant.graph
    if defect is not None:
        _planted(packs / REAL, tmp_path, Chain.parse(REAL), "int8", 4, defect)
        graph = tmp_path / "int8-u8s8.onnx"
    gate = _judged(packs, workload, _outputs(packs, workload, variant, graph))
    assert gate.passed == (defect is None), gate


def test_one_answer_for_both_inputs_fails(packs: Path, manifest: Manifest) -> None:
    workload = manifest.workloads[TINY]
    variant = workload.variant("fp32")
    first, _ = _outputs(packs, workload, variant, packs / variant.graph)
    assert not _judged(packs, workload, [first, first]).passed


def test_a_skipped_layer_leaves_its_input_as_it_is() -> None:
    """The control is what it claims to be."""
    chain = Chain(16, 256, 3)
    x = np.maximum(seeded.inputs(chain, "eval0"), 0)
    matrix = np.zeros((256, 256), np.float32)
    _skip(matrix, None)
    assert np.array_equal(np.maximum(x @ matrix, 0), x)
