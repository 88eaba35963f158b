"""Programs as MLX functions, on a stand-in over NumPy: layouts, operations, whole networks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from npumark.engines import mlx_ops
from npumark.engines.mlx_program import NHWC, RECIPES, Builder, Quantised, images
from npumark.errors import EngineError, Unsupported
from npumark.pack.manifest import load_manifest
from npumark.pack.network_weights import write_weights
from npumark.pack.program import PROGRAM, Program, ProgramNode
from npumark.pack.program_file import load_program
from npumark.policy import DATA
from npumark.worker.eval_set import StoredLayout, load_inputs, load_mu, load_references
from tests.engines.fake_mlx import METAL, FakeMlx
from workloads import mlx_build
from workloads.shipped import stored_array

SHIPPED = DATA / "pack"
MOBILENET, ENCODER = "mobilenet_v3_large", "granite_embedding_30m"


@pytest.fixture
def mx(monkeypatch: pytest.MonkeyPatch) -> FakeMlx:
    fake = FakeMlx(gpus=[METAL])
    package = ModuleType("mlx")
    package.core = fake  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlx", package)
    monkeypatch.setitem(sys.modules, "mlx.core", fake)  # type: ignore[arg-type]
    return fake


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that gives a pack with one network's FP16 weights and eval set."""
    root = tmp_path_factory.mktemp("pack")

    def made(workload: str) -> Path:
        folder = root / workload
        if folder.exists():
            return root
        folder.mkdir()
        for path in (SHIPPED / workload).iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
        with (folder / "fp16.weights").open("wb") as out:
            write_weights(root, workload, "fp16", out)
        for tensor in load_manifest().workloads[workload].eval.inputs:
            place = root / tensor.file
            if not place.exists():
                place.parent.mkdir(exist_ok=True)
                place.write_bytes(stored_array(tensor.file, tensor.dtype, tensor.shape).tobytes())
        return root

    return made


def program_of(workload: str) -> Program:
    return load_program(SHIPPED / workload / PROGRAM)


def snr_db(builder: Builder, root: Path, sample: int = 3) -> float:
    """Return how far the first output of one eval sample is from its reference."""
    held = load_manifest().workloads[builder.program.workload].eval
    encoding = next(k for k, r in RECIPES.items() if r == builder.recipe)
    entry = mlx_build.variant(builder.program, encoding, validated=True)
    inputs, outputs = mlx_build.specs(entry["inputs"]), mlx_build.specs(entry["outputs"])
    made = builder.function(inputs, outputs)(*load_inputs(root, held, inputs)[sample])
    found = StoredLayout(made, outputs)[0].astype(np.float64)
    mean = load_mu(root, held)[0]
    wanted = load_references(root, held)[0][sample].astype(np.float64)
    noise = np.sum((found - wanted) ** 2)
    return float(10 * np.log10(np.sum((wanted - mean) ** 2) / noise))


def test_a_vision_network_is_the_definition(mx: FakeMlx, pack: Callable[[str], Path]) -> None:
    root = pack(MOBILENET)
    builder = Builder(program_of(MOBILENET), root, "mlx-fp16")
    assert snr_db(builder, root) > 35
    # A negative control: one gate of squeeze-and-excitation is left out.
    gate = next(n for n in builder.program.nodes if n.op == "hardsigmoid")
    builder.program = without(builder.program, gate.name)
    assert snr_db(builder, root) < 10


def test_an_encoder_is_the_definition_in_one_attention_a_layer(
    mx: FakeMlx, pack: Callable[[str], Path]
) -> None:
    root = pack(ENCODER)
    program = program_of(ENCODER)
    assert len(mlx_ops.find_attention(program)) == 6
    builder = Builder(program, root, "mlx-fp16")
    assert snr_db(builder, root) > 40
    # A negative control: two layers' weights change places.
    one, other = (f"layer{i}.inner.weight" for i in (0, 3))
    held = builder.weights
    held[one], held[other] = held[other], held[one]
    assert snr_db(builder, root) < 10


def without(program: Program, name: str) -> Program:
    """Return a program in which a node hands its input on."""
    gone = next(node for node in program.nodes if node.name == name)
    kept = [
        replace(n, inputs=tuple(gone.inputs[0] if x == name else x for x in n.inputs))
        for n in program.nodes
        if n is not gone
    ]
    return replace(program, nodes=tuple(kept))


def test_an_attention_that_is_read_elsewhere_stays_as_it_is(mx: FakeMlx) -> None:
    program = program_of(ENCODER)
    logits = next(n.name for n in program.nodes if n.op == "scale")
    watched = replace(program, outputs={**program.outputs, "logits": logits})
    assert len(mlx_ops.find_attention(watched)) == 5


def test_packed_weights_are_those_of_dense_layers_and_tables(
    mx: FakeMlx, pack: Callable[[str], Path]
) -> None:
    root = pack(ENCODER)
    program = program_of(ENCODER)
    builder = Builder(program, root, "mlx-w4")
    for name, held in builder.weights.items():
        packed = program.weights[name].kind in ("dense", "table")
        assert isinstance(held, Quantised) == packed, name
    shares = builder.macs_by_type()
    assert set(shares) == {"uint32 x 4 bits", "float16"}
    assert sum(shares.values()) == load_manifest().workloads[ENCODER].macs
    # Unpacked by the build, they stand for the same values.
    before = snr_db(builder, root)
    assert before > 0
    mx.contiguous = np.ascontiguousarray  # type: ignore[attr-defined]
    mlx_build.unpack(builder)
    assert snr_db(builder, root) == pytest.approx(before, abs=1)


@pytest.mark.parametrize("encoding", ["mlx-fp16", "mlx-w4"])
def test_each_weight_is_computed_before_the_next_is_made(
    mx: FakeMlx, pack: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    program = program_of(ENCODER)
    pending: list[int] = []
    make, force = mx.array, mx.eval
    made = 0

    def making(*arguments: Any) -> Any:
        nonlocal made
        made += 1
        return make(*arguments)

    def forcing(*arguments: Any) -> None:
        nonlocal made
        pending.append(made)
        made = 0
        force(*arguments)

    monkeypatch.setattr(mx, "array", making)
    monkeypatch.setattr(mx, "eval", forcing)
    Builder(program, pack(ENCODER), encoding)
    assert pending[: len(program.weights)] == [1] * len(program.weights)


def test_a_convolution_has_no_packed_form(mx: FakeMlx, pack: Callable[[str], Path]) -> None:
    with pytest.raises(Unsupported, match="no convolution by packed weights"):
        Builder(program_of(MOBILENET), pack(MOBILENET), "mlx-w8")
    assert mlx_build.encodings(program_of(MOBILENET)) == ["mlx-fp16", "mlx-bf16"]


def test_macs_are_those_of_the_manifest() -> None:
    manifest = load_manifest()
    for workload in (MOBILENET, "resnet50", "deeplabv3_mobilenet_v3_large"):
        program = program_of(workload)
        builder = Builder.__new__(Builder)
        builder.program, builder.recipe = program, RECIPES["mlx-fp16"]
        builder.weights = dict.fromkeys(program.weights, np.zeros(0, np.float16))
        builder._shapes = program.shapes()
        assert builder.macs_by_type() == {"float16": manifest.workloads[workload].macs}


@pytest.mark.parametrize(
    "workload", [MOBILENET, "resnet50", "deeplabv3_mobilenet_v3_large", ENCODER, "peak-512x2048x8"]
)
def test_the_manifest_holds_what_a_program_gives(workload: str) -> None:
    """All but the verdicts, which a run decided when the pack was built."""
    program = program_of(workload)
    listed = {v.id: v for v in load_manifest().workloads[workload].variants}
    for encoding in mlx_build.encodings(program):
        held = listed[encoding]
        told = mlx_build.variant(program, encoding, validated=held.validated)
        assert (held.graph, list(held.files)) == (told["graph"], told["files"])
        assert held.inputs == mlx_build.specs(told["inputs"])
        assert held.outputs == mlx_build.specs(told["outputs"])


def test_images_are_held_as_convolutions_take_them() -> None:
    program = program_of("deeplabv3_mobilenet_v3_large")
    held, shapes = images(program), program.shapes()
    assert held == {name for name, shape in shapes.items() if len(shape) == 4}
    assert not images(program_of(ENCODER))
    mixed = replace(
        program,
        nodes=(
            *program.nodes,
            ProgramNode("reshape", "flat", ("x",), (1, 3 * 512 * 512), {"shape": (1, -1)}, ()),
            ProgramNode("add", "odd", ("x", "flat"), (1, 3, 512, 512), {}, ()),
        ),
    )
    with pytest.raises(EngineError, match="odd mixes an image"):
        images(mixed)


def test_a_shape_in_the_program_grows_with_the_batch(
    mx: FakeMlx, pack: Callable[[str], Path]
) -> None:
    root = pack(MOBILENET)
    node = ProgramNode("reshape", "flat", ("pool",), (1, 960), {"shape": (1, 960)}, ())
    rows = np.random.default_rng(2).standard_normal((3, 960)).astype(np.float32)
    builder = Builder(program_of(MOBILENET), root, "mlx-fp16", 3)
    assert "pool" in builder.images
    # Images are held NHWC; the program's shape is of NCHW.
    found = builder.node(node, [rows.reshape(3, 1, 1, 960)])
    assert np.array_equal(np.asarray(found), rows)
    with pytest.raises(ValueError, match="cannot reshape"):
        Builder(program_of(MOBILENET), root, "mlx-fp16").node(node, [rows.reshape(3, 1, 1, 960)])


def reference(op: str, x: np.ndarray, shape: Sequence[int], **attrs: Any) -> np.ndarray:
    """Return what ONNX's own evaluator makes of an image NCHW."""
    inputs, tensors = ["x"], []
    if op == "Resize":
        inputs += ["", "", "sizes"]
        tensors.append(helper.make_tensor("sizes", TensorProto.INT64, [4], list(shape)))
    graph = helper.make_graph(
        [helper.make_node(op, inputs, ["y"], **attrs)],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        tensors,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.checker.check_model(model)
    return np.asarray(ReferenceEvaluator(model).run(None, {"x": x})[0])


@pytest.mark.parametrize("size", [(5, 7, 13, 9), (4, 4, 32, 32), (1, 1, 6, 5), (6, 6, 3, 3)])
def test_a_resize_is_bilinear_between_half_pixels(
    mx: FakeMlx, size: tuple[int, int, int, int]
) -> None:
    high, wide, to_high, to_wide = size
    x = np.random.default_rng(1).standard_normal((1, 2, high, wide)).astype(np.float32)
    steps = (mlx_ops.resize_steps(mx, high, to_high), mlx_ops.resize_steps(mx, wide, to_wide))
    found = mlx_ops.resize(mx, x.transpose(NHWC), *steps).transpose(0, 3, 1, 2)
    how = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
    assert np.allclose(found, reference("Resize", x, (1, 2, to_high, to_wide), **how), atol=1e-5)


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(3, 2, 1), (2, 2, 0), (3, 1, 1)])
def test_a_pool_takes_the_largest_and_never_the_padding(
    mx: FakeMlx, kernel: int, stride: int, padding: int
) -> None:
    x = -1 - np.random.default_rng(2).random((1, 3, 9, 8)).astype(np.float32)
    found = mlx_ops.max_pool(mx, x.transpose(NHWC), kernel, stride, padding)
    side = [(n + 2 * padding - kernel) // stride + 1 for n in (9, 8)]
    wanted = reference(
        "MaxPool",
        x,
        (1, 3, *side),
        kernel_shape=[kernel] * 2,
        strides=[stride] * 2,
        pads=[padding] * 4,
    )
    assert np.array_equal(found.transpose(0, 3, 1, 2), wanted)


def test_an_unknown_operation_is_refused(mx: FakeMlx) -> None:
    node = ProgramNode("tan", "odd", ("x",), (1,), {}, ())
    with pytest.raises(EngineError, match="no form of the operation 'tan'"):
        mlx_ops.plain(mx, node, [np.ones(1)], np.float32)


def test_operations_without_a_network_here_are_what_they_say(mx: FakeMlx) -> None:
    mask = np.array([[1, 1, 0]])
    made = mlx_ops.plain(
        mx, ProgramNode("positions", "p", ("m",), (1, 3), {"padding": 1}, ()), [mask], np.float32
    )
    assert made.tolist() == [[2, 3, 1]]
    unit = mlx_ops.plain(
        mx,
        ProgramNode("l2_normalise", "n", ("x",), (1, 2), {}, ()),
        [np.array([[3, 4]], np.float16)],
        np.float16,
    )
    assert np.allclose(unit, [[0.6, 0.8]], atol=1e-3)
