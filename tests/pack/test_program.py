"""A program says what its definition says, finds every weight, and is read whole or refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npumark.errors import PackError
from npumark.pack import peak_files, program_file, seeded
from npumark.pack.network_weights import CONSTANTS, read_constants, write_weights
from npumark.pack.program import Program, dequantised, read_weights
from npumark.pack.program_file import load_program, parse_program
from npumark.pack.weight_encoding import int8_scale, int8_values
from npumark.policy import DATA
from workloads import programs_build
from workloads.mobilenet_v3_large import definition as mobilenet
from workloads.peak.graphs import activation_scales
from workloads.shipped import ShippedNetwork, open_network

SHIPPED = DATA / "pack"
CHAIN = seeded.Chain(16, 256, 3)
Edit = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def network() -> ShippedNetwork:
    return open_network(mobilenet.build())


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack with every weight file of the small chain and of MobileNetV3."""
    root = tmp_path_factory.mktemp("pack")
    for form in ("fp32", "fp16", "int8"):
        for workload in (CHAIN.workload, mobilenet.WORKLOAD):
            (root / workload).mkdir(exist_ok=True)
        with (root / CHAIN.workload / f"{form}.weights").open("wb") as out:
            peak_files.write_weights(CHAIN, peak_files.weight_form(form), out)
        (root / mobilenet.WORKLOAD / CONSTANTS).write_bytes(
            (SHIPPED / mobilenet.WORKLOAD / CONSTANTS).read_bytes()
        )
        with (root / mobilenet.WORKLOAD / f"{form}.weights").open("wb") as out:
            write_weights(root, mobilenet.WORKLOAD, form, out)
    return root


def shipped(workload: str) -> Program:
    return load_program(SHIPPED / workload / "program.json")


def test_what_is_shipped_is_what_the_definitions_give(network: ShippedNetwork) -> None:
    for document in (
        *map(programs_build.chain_document, programs_build.CHAINS),
        programs_build.network_document(network),
    ):
        path = SHIPPED / document["workload"] / "program.json"
        assert path.read_bytes() == programs_build.encode(document), path


@pytest.mark.parametrize(
    "workload", ["resnet50", "deeplabv3_mobilenet_v3_large", "granite_embedding_30m"]
)
def test_every_program_finds_its_weights_and_ranges(workload: str) -> None:
    program = shipped(workload)
    shapes = program.shapes()
    for form in ("fp32", "fp16", "int8"):
        sections = program.files[form].sections
        for weight in program.weights.values():
            quantised = form == "int8" and weight.kind in ("conv", "depthwise", "dense", "table")
            assert sections[f"{weight.name}.q" if quantised else weight.name].shape == weight.shape
    assert all(shapes[tensor] for tensor in program.outputs.values())
    read = [n for n in program.nodes if any(program.reads_8_bits(n, x) for x in n.inputs)]
    assert read
    assert {n.op for n in read} <= program.quantised_ops
    for node in read:
        if node.op in ("conv", "dense") and len(node.weights) > 1:
            assert f"{node.weights[1]}.q" in program.files["int8"].sections


def test_weights_are_those_of_the_definition(pack: Path) -> None:
    program = shipped(mobilenet.WORKLOAD)
    found = {form: read_weights(pack, program, form) for form in ("fp32", "fp16", "int8")}
    for tensor, value in read_constants(pack, mobilenet.WORKLOAD).tensors():
        assert np.array_equal(found["fp32"][tensor.name], value)
        assert np.array_equal(found["fp16"][tensor.name], value.astype(np.float16))
        if tensor.kind == "bias":
            continue
        scale = int8_scale(value, tensor.kind)
        levels = int8_values(value, scale, tensor.kind)
        assert np.array_equal(found["int8"][f"{tensor.name}.q"], levels)
        assert np.array_equal(found["int8"][f"{tensor.name}.scale"], scale)
        back = dequantised(found["int8"], program.weights[tensor.name])
        axis = {"dense": 1}.get(tensor.kind, 0)
        step = scale.reshape([-1 if i == axis else 1 for i in range(value.ndim)])
        assert np.all(np.abs(back - value) <= 0.5001 * step)


def _forward(program: Program, weights: dict[str, Any], x: Any) -> Any:
    tensors = {"x": x}
    for node in program.nodes:
        y = tensors[node.inputs[0]]
        tensors[node.name] = (
            y @ weights[node.weights[0]] if node.op == "dense" else np.maximum(y, 0)
        )
    return tensors[program.outputs["y"]]


def test_a_chain_computed_from_its_program_is_the_reference(pack: Path) -> None:
    program = shipped(CHAIN.workload)
    weights = {k: v.astype(np.float64) for k, v in read_weights(pack, program, "fp32").items()}
    x = seeded.inputs(CHAIN, "eval0").astype(np.float64)
    reference = seeded.references(CHAIN, ("eval0",))
    wanted = np.asarray(next(iter(reference)), np.float64)
    error = _forward(program, weights, x) - wanted
    assert np.sum(error**2) < 1e-6 * np.sum(wanted**2)
    # Two layers that change places make another network.
    weights["mm0.weight"], weights["mm1.weight"] = weights["mm1.weight"], weights["mm0.weight"]
    other = _forward(program, weights, x) - wanted
    assert np.sum(other**2) > 0.1 * np.sum(wanted**2)


def test_a_chain_keeps_the_ranges_of_its_onnx_graphs() -> None:
    program = shipped(CHAIN.workload)
    told = [program.activations[t] for t in ("x", "relu0", "relu1", "relu2")]
    assert [np.float32(r.scale) for r in told] == list(activation_scales(CHAIN))
    assert [r.zero for r in told] == [128, 0, 0, 0]


def test_a_short_or_missing_weight_file_is_refused(pack: Path, tmp_path: Path) -> None:
    program = shipped(CHAIN.workload)
    with pytest.raises(PackError, match=r"fp32\.weights cannot be read"):
        read_weights(tmp_path, program, "fp32")
    place = tmp_path / CHAIN.workload / "fp32.weights"
    place.parent.mkdir()
    place.write_bytes((pack / CHAIN.workload / "fp32.weights").read_bytes()[:-4])
    with pytest.raises(PackError, match=r"ends before mm2\.weight"):
        read_weights(tmp_path, program, "fp32")
    with pytest.raises(PackError, match="no weights in int4"):
        read_weights(tmp_path, program, "int4")


@pytest.mark.parametrize(
    "edit",
    [
        lambda d: d.update(schema="npumark-program/9"),
        lambda d: d.pop("nodes"),
        lambda d: d["inputs"][0].update(dtype="float64"),
        lambda d: d["inputs"][0].update(shape=[16, 0]),
        lambda d: d["inputs"][0].update(shape=[1 << 30, 1 << 30]),
        lambda d: d["inputs"].append(d["inputs"][0]),
        lambda d: d["weights"][0].update(kind="magic"),
        lambda d: d["weights"].append(d["weights"][0]),
        lambda d: d["nodes"][0].update(op="system"),
        lambda d: d["nodes"][0].update(inputs=["relu2"]),
        lambda d: d["nodes"][0].update(inputs=["x", "x"]),
        lambda d: d["nodes"][0].update(attrs={"axis": 1}),
        lambda d: d["nodes"][0].update(weights=[]),
        lambda d: d["nodes"][0].update(weights=["mm0.weight", "mm1.weight"]),
        lambda d: d["nodes"][0].update(weights=["nothing"]),
        lambda d: d["nodes"][1].update(weights=["mm0.weight"]),
        lambda d: d["nodes"].append(d["nodes"][0]),
        lambda d: d["nodes"][0].update(shape="16"),
        lambda d: d["nodes"][0].update(name=""),
        lambda d: d["outputs"][0].update(tensor="nothing"),
        lambda d: d.update(outputs=[]),
        lambda d: d["outputs"].append(d["outputs"][0]),
        lambda d: d["activations"]["x"].update(scale=float("nan")),
        lambda d: d["activations"]["x"].update(scale=0),
        lambda d: d["activations"]["x"].update(zero=256),
        lambda d: d["activations"].update(nothing={"scale": 1.0, "zero": 0}),
        lambda d: d.update(quantised_ops=["system"]),
        lambda d: d["files"]["fp32"].update(path="../fp32.weights"),
        lambda d: d["files"]["fp32"].update(path="/fp32.weights"),
        lambda d: d["files"]["fp32"]["sections"][0].update(dtype="object"),
        lambda d: d["files"]["fp32"]["sections"][0].update(offset=-1),
        lambda d: d["files"]["fp32"]["sections"].append(d["files"]["fp32"]["sections"][0]),
        lambda d: d.update(files=[]),
        lambda d: d["files"]["fp32"]["sections"][0].update(offset=1 << 39),
        lambda d: d["files"]["fp32"]["sections"][0].update(shape=[1 << 39]),
        lambda d: d["files"]["fp32"]["sections"][0].update(shape=[1 << 20, 1 << 19]),
        lambda d: d["nodes"][0].update(shape=[1] * 9),
    ],
)
def test_nonsense_is_refused_in_a_sentence(edit: Edit) -> None:
    doc = json.loads((SHIPPED / CHAIN.workload / "program.json").read_bytes())
    assert parse_program(json.dumps(doc).encode()) == shipped(CHAIN.workload)
    edit(doc)
    with pytest.raises(PackError) as told:
        parse_program(json.dumps(doc).encode())
    assert "\n" not in told.value.message
    assert "Error(" not in told.value.message


def _shapes(doc: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one of each thing in a program that has a shape."""
    section = doc["files"]["fp32"]["sections"][0]
    return [doc["inputs"][0], doc["weights"][0], doc["nodes"][0], section]


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("size", [(1 << 39) - 1, 10**4000])
def test_a_shape_of_any_length_costs_no_arithmetic(
    place: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document of the largest size that is read, all of it one shape."""
    products: list[int] = []
    sizes: list[object] = []
    prod, whole = math.prod, program_file._whole

    def counted_prod(shape: tuple[int, ...]) -> int:
        products.append(len(shape))
        return prod(shape)

    def counted_whole(what: str, value: object) -> int:
        sizes.append(value)
        return whole(what, value)

    monkeypatch.setattr(program_file, "_whole", counted_whole)
    monkeypatch.setattr(math, "prod", counted_prod)
    doc = json.loads((SHIPPED / CHAIN.workload / "program.json").read_bytes())
    _shapes(doc)[place]["shape"] = ["?"]
    count = (program_file.MAX_PROGRAM_BYTES - 100_000) // (len(str(size)) + 1)
    raw = json.dumps(doc).replace('["?"]', f"[{','.join([str(size)] * count)}]").encode()
    assert 7_000_000 < len(raw) <= program_file.MAX_PROGRAM_BYTES
    with pytest.raises(PackError, match=rf"has {count} axes, and may have 8"):
        parse_program(raw)
    assert max(products, default=0) <= 4
    assert len(sizes) < 100


@pytest.mark.parametrize("raw", [b"", b"[" * 200_000, b"[]", b"null", b"\xff"])
def test_what_is_no_program_is_refused(raw: bytes) -> None:
    with pytest.raises(PackError):
        parse_program(raw)


def test_a_file_without_end_is_not_read_to_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(program_file, "MAX_PROGRAM_BYTES", 100)
    path = tmp_path / "program.json"
    path.write_bytes(b" " * 1000)
    with pytest.raises(PackError, match="larger than"):
        load_program(path)
    with pytest.raises(PackError, match="nothing cannot be read"):
        load_program(tmp_path / "nothing")
