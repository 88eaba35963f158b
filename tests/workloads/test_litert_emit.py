"""LiteRT models compute what the definition says, and what is shipped is what is emitted."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

pytest.importorskip("ai_edge_litert", reason="LiteRT is missing: pip install ai-edge-litert")

from ai_edge_litert import schema_py_generated as schema

from npumark.engines.base import LoadRequest
from npumark.engines.litert import LiteRt
from npumark.pack import litert_model
from npumark.pack.manifest import load_manifest
from npumark.pack.program import PROGRAM, Program, Range
from npumark.pack.program_file import load_program, parse_program
from npumark.pack.weight_encoding import sections, write_sections
from npumark.policy import DATA
from workloads.graph import Graph
from workloads.litert_build import structure_of, variant_entry
from workloads.litert_emit import VARIANTS, emit
from workloads.litert_tensors import int8_ranges
from workloads.onnx_emit import Quantisation, save, stored
from workloads.programs_build import _weight_file, document, encode

SHIPPED = DATA / "pack"
WORKLOADS = sorted(path.parent.name for path in SHIPPED.glob(f"*/{PROGRAM}"))


def operators(flatbuffer: bytes) -> list[tuple[str, list[list[int]], list[int]]]:
    """Return (operator, shapes of its inputs, shape of its output) of a model."""
    names = {v: k for k, v in vars(schema.BuiltinOperator).items() if isinstance(v, int)}
    model = schema.Model.GetRootAs(flatbuffer)
    graph = model.Subgraphs(0)

    def shape(index: int) -> list[int]:
        return (
            []
            if index < 0
            else [int(n) for n in np.atleast_1d(graph.Tensors(index).ShapeAsNumpy())]
        )

    found = []
    for at in range(graph.OperatorsLength()):
        op = graph.Operators(at)
        name = names[model.OperatorCodes(op.OpcodeIndex()).BuiltinCode()]
        inputs = [shape(i) for i in op.InputsAsNumpy()]
        found.append((name, inputs, shape(op.Outputs(0))))
    return found


def macs(flatbuffer: bytes) -> int:
    """Return the multiply-accumulates of a model's products, from its shapes alone."""
    total = 0
    for name, inputs, output in operators(flatbuffer):
        outputs = int(np.prod(output))
        if name == "CONV_2D":
            total += outputs * int(np.prod(inputs[1][1:]))
        elif name == "DEPTHWISE_CONV_2D":
            total += outputs * int(np.prod(inputs[1][1:3]))
        elif name in ("FULLY_CONNECTED", "BATCH_MATMUL"):
            total += outputs * inputs[0][-1]
    return total


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_shipped_structure_is_the_emitted_one(workload: str, variant: str) -> None:
    model = emit(load_program(SHIPPED / workload / PROGRAM), variant)
    kept = (SHIPPED / workload / f"{variant}.head.xz").read_bytes()
    head, parts = litert_model.parse_structure(kept)
    assert bytes(head) == model.flatbuffer
    assert tuple(parts) == model.parts
    assert macs(model.flatbuffer) == load_manifest().workloads[workload].macs


def network() -> tuple[Graph, dict[str, Any]]:
    """Return a network with every operation of the vision networks, and its weights."""
    g = Graph("small")
    x = g.input("x", (1, 3, 17, 18))
    x = g.activation(g.conv(x, "stem", 8, 3, stride=2), "stem_act", "hardswish")
    with g.block("gated", x):
        y = g.conv(x, "wide", 16, 1)
        y = g.activation(y, "wide_relu", "relu")
        y = g.conv(y, "depthwise", 16, 5, stride=2, groups=16)
        y = g.activation(y, "depthwise_act", "hardswish")
        z = g.global_pool(y, "gate.pool")
        z = g.activation(g.conv(z, "gate.squeeze", 8, 1, norm=False), "gate.relu", "relu")
        z = g.activation(g.conv(z, "gate.excite", 16, 1, norm=False), "gate.sigmoid", "hardsigmoid")
        y = g.mul(y, z, "gate.mul")
    _, _, height, width = g.shapes[y]
    left = g.activation(g.conv(y, "left", 8, 3, dilation=2), "left_relu", "relu")
    right = g.activation(g.conv(g.global_pool(y, "pool"), "right", 8, 1), "right_relu", "relu")
    right = g.resize(right, "right_up", height, width)
    y = g.concat([left, right], "joined", 1)
    y = g.activation(g.add(g.conv(y, "branch", 16, 1), y, "sum"), "sum_relu", "relu")
    y = g.max_pool(y, "pooled", 3, 2, 1)
    y = g.resize(g.conv(y, "head", 5, 1, norm=False), "up", 6, 7)
    g.output("map", y)
    return g, values_of(g)


def encoder() -> tuple[Graph, dict[str, Any]]:
    """Return a network with every operation of the encoder, and its weights."""
    g = Graph("encoder")
    ids = g.input("ids", (1, 6), "int64")
    mask = g.input("mask", (1, 6), "int64")
    bias = g.mask_bias(mask, "bias", -10_000.0)
    x = g.add(g.gather(ids, "words", 20, 16), g.rows("places", 12, 16, range(2, 8)), "placed")
    x = g.layernorm(g.add(x, g.rows("kinds", 2, 16, [0]), "embedded"), "norm", 1e-12)
    heads, scores = {}, (1, 6, 2, 8)
    for role, perm in (("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1)), ("v", (0, 2, 1, 3))):
        y = g.reshape(g.dense(x, role, 16), f"{role}.heads", scores)
        heads[role] = g.transpose(y, f"{role}.split", perm)
    y = g.add(g.scale(g.matmul(heads["q"], heads["k"], "qk"), "scaled", 0.35), bias, "masked")
    y = g.matmul(g.softmax(y, "shares"), heads["v"], "mixed")
    y = g.reshape(g.transpose(y, "together", (0, 2, 1, 3)), "flat", (1, 6, 16))
    x = g.add(g.dense(y, "out", 16), x, "residual")
    x = g.dense(g.activation(g.dense(x, "inner", 32), "gelu", "gelu"), "outer", 16)
    g.output("first", g.select(x, "pooled", 1, 0))
    g.output("all", x)
    return g, values_of(g)


def values_of(g: Graph) -> dict[str, Any]:
    draw = np.random.default_rng(5)
    return {
        w.name: (
            draw.standard_normal(w.shape) / np.sqrt(max(1, w.size // w.shape[0]))
            + (w.kind == "gamma")
        ).astype(np.float32)
        for w in g.weights.values()
    }


def program_of(g: Graph, values: dict[str, Any], ranges: Quantisation, folder: Path) -> Program:
    """Write the graph's weight files into ``folder`` and return its program."""
    files = {}
    for form in ("fp16", "int8"):
        with (folder / f"{form}.weights").open("wb") as out:
            write_sections(form, stored(g, values, ranges), out)
        files[form] = _weight_file(
            g.workload,
            form,
            (
                (s.name, s.array.dtype, s.array.shape, offset)
                for s, offset in sections(form, stored(g, values, ranges))
            ),
        )
    return parse_program(encode(document(g, ranges) | {"files": files}))


def run(program: Program, variant: str, feed: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Run one variant's model on the CPU; outputs in the definition's layout."""
    (folder / "head.xz").write_bytes(structure_of(emit(program, variant)))
    made = io.BytesIO()
    litert_model.write_model(folder / "head.xz", folder / f"{VARIANTS[variant]}.weights", made)
    path = folder / f"{variant}.tflite"
    path.write_bytes(made.getvalue())
    entry = variant_entry(program, variant)
    session = LiteRt().load(
        LoadRequest(
            engine_id="litert-cpu",
            workload_id=program.workload,
            graph=path,
            encoding=variant,
            format=entry.format,
            inputs=entry.inputs,
            outputs=entry.outputs,
            threads=1,
            options={},
            cache_dir=None,
        )
    )
    for spec, buffer in zip(entry.inputs, session.inputs(), strict=True):
        value = feed[spec.name]
        buffer[...] = value.transpose(spec.perm) if spec.perm else value
    session.step()()
    found = {
        spec.name: out.transpose(spec.stored_perm) if spec.perm else out
        for spec, out in zip(entry.outputs, session.outputs(), strict=True)
    }
    return {name: out.copy() for name, out in found.items()}


def reference(
    g: Graph, values: dict[str, Any], variant: str, ranges: Quantisation, feed: Any, folder: Path
) -> dict[str, Any]:
    """Run the definition's ONNX form."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    path = save(g, values, variant, folder, ranges)
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = list(g.outputs)
    return dict(zip(names, session.run(names, feed), strict=True))


def snr_db(found: Any, wanted: Any) -> float:
    noise = np.square(found.astype(np.float64) - wanted).sum()
    return float(10 * np.log10(np.square(wanted.astype(np.float64)).sum() / noise))


def affine(low: float, high: float) -> tuple[float, int]:
    scale = float(np.float32((high - low) / 255)) or 1.0
    return scale, round(-low / scale)


def observed_ranges(g: Graph, values: dict[str, Any], feed: Any, folder: Path) -> Quantisation:
    """Return ranges of every tensor that the shipped networks have one of, from one input."""
    skipped = {n.inputs[0] for n in g.nodes if n.op == "relu"} | {"head", "up"}
    whole = g.with_nodes(g.nodes)
    whole.outputs.clear()
    for node in g.nodes:
        whole.outputs[f"seen.{node.name}"] = node.name
    seen = reference(whole, values, "fp32", Quantisation(), feed, folder)
    ranges = {"x": affine(float(feed["x"].min()), float(feed["x"].max()))}
    for node in g.nodes:
        if node.name not in skipped:
            value = seen[f"seen.{node.name}"]
            ranges[node.name] = affine(min(0.0, float(value.min())), max(0.0, float(value.max())))
    return Quantisation(ranges)


@pytest.fixture
def picture() -> dict[str, Any]:
    return {"x": np.random.default_rng(2).standard_normal((1, 3, 17, 18)).astype(np.float32)}


def test_a_vision_network_computes_the_same(picture: dict[str, Any], tmp_path: Path) -> None:
    g, values = network()
    wanted = reference(g, values, "fp32", Quantisation(), picture, tmp_path)
    program = program_of(g, values, Quantisation(), tmp_path)
    found = run(program, "litert-fp16", picture, tmp_path)
    assert found["map"].shape == g.shapes["up"]
    assert snr_db(found["map"], wanted["map"]) > 55


def test_a_vision_network_computes_the_same_in_8_bits(
    picture: dict[str, Any], tmp_path: Path
) -> None:
    g, values = network()
    ranges = observed_ranges(g, values, picture, tmp_path)
    wanted = reference(g, values, "fp32", Quantisation(), picture, tmp_path)
    program = program_of(g, values, ranges, tmp_path)
    found = run(program, "litert-int8", picture, tmp_path)
    assert snr_db(found["map"], wanted["map"]) > 20


@pytest.mark.parametrize(("variant", "least_db"), [("litert-fp16", 55), ("litert-int8", 25)])
def test_an_encoder_computes_the_same(variant: str, least_db: float, tmp_path: Path) -> None:
    g, values = encoder()
    ids = np.array([[3, 7, 1, 19, 0, 0]], np.int64)
    feed = {"ids": ids, "mask": (ids > 0).astype(np.int64)}
    wanted = reference(g, values, "fp32", Quantisation(), feed, tmp_path)
    program = program_of(g, values, Quantisation({}, frozenset({"dense"})), tmp_path)
    found = run(program, variant, feed, tmp_path)
    assert all(snr_db(found[name], wanted[name]) > least_db for name in wanted)


def test_joined_tensors_share_the_range_of_the_join() -> None:
    program = load_program(SHIPPED / "deeplabv3_mobilenet_v3_large" / PROGRAM)
    ranges = int8_ranges(program)
    shared = {"aspp.point_relu", "aspp.rate12_relu", "aspp.pooled_up", "aspp.pooled_relu"}
    assert {ranges[name] for name in shared} == {program.activations["aspp.concat"]}
    assert ranges["block0.add"] == program.activations["block0.add"]


def test_padding_that_could_win_is_refused(tmp_path: Path) -> None:
    g = Graph("pool")
    x = g.conv(g.input("x", (1, 2, 6, 6)), "c", 2, 1)
    g.output("y", g.max_pool(x, "p", 3, 2, 1))
    program = program_of(g, values_of(g), Quantisation(), tmp_path)
    with pytest.raises(ValueError, match="may win"):
        emit(program, "litert-fp16")


def test_a_gate_whose_range_does_not_clip_is_refused(tmp_path: Path) -> None:
    g = Graph("gate")
    x = g.conv(g.input("x", (1, 2, 6, 6)), "c", 2, 1)
    g.output("y", g.activation(x, "h", "hardsigmoid"))
    ranges = {"x": (0.1, 128), "c": (0.1, 128), "h": (1 / 255, 3)}
    program = program_of(g, values_of(g), Quantisation(ranges), tmp_path)
    assert program.activations["h"] == Range(1 / 255, 3)
    with pytest.raises(ValueError, match="does not clip"):
        emit(program, "litert-int8")
