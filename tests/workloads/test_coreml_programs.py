"""The Core ML programs of every workload: what they hold, and what they compute.

Core ML runs on a Mac only. What was written is read back and run by a NumPy interpreter.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npumark.engines.coreml_program import (
    ENCODINGS,
    digest,
    lopsided,
    mil_program,
    model,
    symmetric,
    write_package,
)
from npumark.errors import EngineError, Unsupported
from npumark.pack.manifest import Workload, variant_from
from npumark.pack.program import PROGRAM, Array, Program, Range, read_weights
from npumark.pack.program_file import load_program
from workloads.coreml_build import (
    MEASURES_FILE,
    PART,
    Pack,
    base_manifest,
    encodings,
    judged,
    measure,
    passes,
    with_programs,
)
from workloads.coreml_interpret import Interpreter, load_mil, macs, operations

pytestmark = pytest.mark.filterwarnings(
    # coremltools leaves a temporary folder of its own to the garbage collector.
    "ignore:Implicitly cleaning up:ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)

pytest.importorskip("coremltools", reason="coremltools is not installed: pip install coremltools")

ROOT = Path(__file__).parents[2]
SMALL = "peak-16x256x3"
NETWORKS = (
    "mobilenet_v3_large",
    "resnet50",
    "deeplabv3_mobilenet_v3_large",
    "granite_embedding_30m",
)
SAMPLES = {
    "mobilenet_v3_large": (0, 11),
    "resnet50": (0, 11),
    "deeplabv3_mobilenet_v3_large": (0,),
}
"""Eval samples that stand for a set where running the whole would take minutes."""


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    return Pack(base_manifest(), tmp_path_factory.mktemp("pack"))


@pytest.fixture(autouse=True)
def quiet(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Keep coremltools' progress bars out of the report."""
    yield
    capfd.readouterr()


def opened(pack: Pack, workload: str, form: str = "fp16") -> Program:
    program = load_program(pack.file(f"{workload}/{PROGRAM}"))
    pack.file(program.files[form].path)
    return program


def written(pack: Pack, workload: str, encoding: str) -> Path:
    """Return a package that tests only read: it is written once."""
    folder = pack.root / "written" / workload / encoding
    if not folder.exists():
        program = opened(pack, workload, ENCODINGS[encoding].weights)
        folder.mkdir(parents=True)
        write_package(program, pack.root, encoding, folder)
    (package,) = folder.iterdir()
    return package


# -- structure ----------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["coreml-fp16", "coreml-int8"])
@pytest.mark.parametrize("workload", [SMALL, *NETWORKS])
def test_a_program_multiplies_as_often_as_its_definition(
    pack: Pack, workload: str, encoding: str
) -> None:
    mil = load_mil(written(pack, workload, encoding))
    assert macs(mil) == pack.manifest.workloads[workload].macs


@pytest.mark.parametrize(
    ("workload", "encoding"),
    [
        (SMALL, "coreml-lut4"),
        ("mobilenet_v3_large", "coreml-int8-affine"),
        ("granite_embedding_30m", "coreml-fp16"),
        ("granite_embedding_30m", "coreml-int8"),
    ],
)
def test_inputs_and_outputs_are_those_of_the_manifest(
    pack: Pack, workload: str, encoding: str
) -> None:
    import coremltools
    from coremltools.converters.mil.mil import types

    part = json.loads(PART.read_text())["variants"][workload]
    variant = variant_from(next(v for v in part if v["id"] == encoding))
    package = written(pack, workload, encoding)
    main = load_mil(package).functions["main"]
    kinds = {types.fp16: "float16", types.int32: "int32"}
    inputs = [(x.name, kinds[x.dtype], x.shape) for x in main.inputs.values()]
    assert inputs == [(s.name, s.dtype, s.shape) for s in variant.inputs]
    outputs = {(y.name, kinds[y.dtype], y.shape) for y in main.outputs}
    assert outputs == {(s.name, s.dtype, s.shape) for s in variant.outputs}
    told = coremltools.utils.load_spec(str(package)).description
    numbers = {"float16": 65552, "int32": 131104}
    for features, specs in ((told.input, variant.inputs), (told.output, variant.outputs)):
        found = {f.name: f.type.multiArrayType for f in features}
        assert {n: (t.dataType, tuple(t.shape)) for n, t in found.items()} == {
            s.name: (numbers[s.dtype], s.shape) for s in specs
        }


def test_weights_lie_as_the_encoding_says(pack: Pack) -> None:
    def weight_ops(encoding: str) -> Counter[str]:
        main = load_mil(written(pack, "mobilenet_v3_large", encoding)).functions["main"]
        return Counter(
            op.weight.op.op_type for op in main.operations if op.op_type in ("conv", "linear")
        )

    layers = 64
    assert weight_ops("coreml-fp16") == {"const": layers}
    assert weight_ops("coreml-int8") == {"constexpr_affine_dequantize": layers}
    assert weight_ops("coreml-int8-affine") == {"constexpr_affine_dequantize": layers}
    assert weight_ops("coreml-lut4") == {"constexpr_lut_to_dense": layers}


def test_8_bit_layers_lie_between_roundings(pack: Pack) -> None:
    """Every product of a chain reads rounded values, and its result is rounded after ReLU."""
    mil = load_mil(written(pack, SMALL, "coreml-int8"))
    main = mil.functions["main"]
    kinds = [op.op_type for op in operations(mil)]
    assert kinds == [*["quantize", "dequantize", "linear", "relu"] * 3, "quantize", "dequantize"]
    for op in main.operations:
        if op.op_type == "quantize":
            assert str(op.output_dtype.val) == "uint8"
            assert int(op.zero_point.val) in (0, 128)
        if op.op_type == "constexpr_affine_dequantize":
            assert op.quantized_data.val.dtype == np.int8
            assert int(op.zero_point.val) == 0
            assert op.scale.val.shape == (op.quantized_data.val.shape[0],)


def test_an_affine_encoding_keeps_the_calibrated_zero_points(pack: Pack) -> None:
    program = opened(pack, "mobilenet_v3_large")
    main = load_mil(written(pack, program.workload, "coreml-int8-affine"))
    found = {
        int(op.zero_point.val)
        for op in main.functions["main"].operations
        if op.op_type == "quantize"
    }
    assert found <= {r.zero for r in program.activations.values()}
    assert found - {0, 128}


def test_lopsided_ranges_are_those_of_hard_swish_and_gelu(pack: Pack) -> None:
    found = {w.id for w in with_programs(pack.manifest) if lopsided(opened(pack, w.id))}
    assert found == {
        "mobilenet_v3_large",
        "deeplabv3_mobilenet_v3_large",
        "granite_embedding_30m",
    }


def test_an_encoder_rounds_only_what_its_products_read(pack: Pack) -> None:
    main = load_mil(written(pack, "granite_embedding_30m", "coreml-int8"))
    for op in main.functions["main"].operations:
        if op.op_type == "linear":
            assert op.x.op.op_type == "dequantize"
        elif op.op_type in ("matmul", "add", "layer_norm", "softmax"):
            assert op.x.op.op_type != "dequantize"


def test_the_same_pack_gives_the_same_program_in_every_process(pack: Pack, tmp_path: Path) -> None:
    for form in ("int8", "fp16"):
        opened(pack, SMALL, form)
    script = (
        "import sys; from pathlib import Path;"
        "from npumark.engines.coreml_program import *;"
        "from npumark.pack.program_file import load_program;"
        "root, out = map(Path, sys.argv[1:3]);"
        "program = load_program(root / sys.argv[3] / 'program.json');"
        "[print('digest', digest(write_package(program, root, e, out / e))) for e in ENCODINGS]"
    )
    found = []
    for seed in ("1", "2"):
        for encoding in ENCODINGS:
            (tmp_path / seed / encoding).mkdir(parents=True)
        told = subprocess.run(
            [sys.executable, "-c", script, pack.root, tmp_path / seed, SMALL],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        found.append([line for line in told.stdout.splitlines() if line.startswith("digest")])
    # A chain's calibrated ranges are symmetric ones: both 8-bit encodings are one program.
    assert len(set(found[0])) == len(ENCODINGS) - 1
    assert found[0] == found[1]


def test_a_digest_sees_a_weight_and_a_scale(pack: Pack, tmp_path: Path) -> None:
    program = opened(pack, SMALL, "int8")
    weights = read_weights(pack.root, program, "int8")

    def told(program: Program, weights: Mapping[str, Array]) -> str:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.mlpackage"
        model(program, weights, ENCODINGS["coreml-int8"]).save(str(path))
        return digest(path)

    plain = told(program, weights)
    name = next(n for n in weights if n.endswith(".q"))
    changed = weights[name].copy()
    changed[0, 0] ^= 1
    assert told(program, {**weights, name: changed}) != plain
    first = next(iter(program.activations))
    ranges = {**program.activations, first: Range(program.activations[first].scale * 2, 0)}
    assert told(replace(program, activations=ranges), weights) != plain
    assert told(program, weights) == plain


# -- what they compute --------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", list(ENCODINGS))
def test_a_chain_computes_what_its_reference_says(pack: Pack, encoding: str) -> None:
    workload = pack.manifest.workloads[SMALL]
    run = measure(pack, workload, opened(pack, SMALL), ENCODINGS[encoding])
    assert passes(workload, run)
    least = {
        "coreml-fp16": 60.0,
        "coreml-int8": 30.0,
        "coreml-int8-affine": 30.0,
        "coreml-lut4": 20.0,
    }
    assert (run["snr_db"] or 0) >= least[encoding]


@pytest.mark.parametrize("encoding", ["coreml-fp16", "coreml-int8"])
@pytest.mark.parametrize("name", ["mobilenet_v3_large", "resnet50"])
def test_a_network_computes_what_its_reference_says(pack: Pack, name: str, encoding: str) -> None:
    workload = pack.manifest.workloads[name]
    run = measure(pack, workload, opened(pack, name), ENCODINGS[encoding], SAMPLES[name])
    assert passes(workload, run)
    if encoding == "coreml-fp16":
        assert (run["snr_db"] or 0) > 40


@pytest.mark.parametrize(("encoding", "least"), [("coreml-fp16", 45.0), ("coreml-int8", 18.0)])
def test_an_encoder_computes_what_its_reference_says(
    pack: Pack, encoding: str, least: float
) -> None:
    """One text: the measures of the gate need them all, and were taken when the pack was built."""
    workload = pack.manifest.workloads["granite_embedding_30m"]
    (sample, reference) = first_sample(pack, workload)
    package = written(pack, workload.id, encoding)
    name = workload.eval.references[0].name
    found = Interpreter(package).run(sample)[name].astype(np.float64).reshape(reference.shape)
    noise = np.square(found - reference).sum()
    assert 10 * np.log10(np.square(reference).sum() / noise) > least


def first_sample(pack: Pack, workload: Workload) -> tuple[dict[str, Array], Array]:
    """Return the inputs of the first eval sample, and what its first output should be."""
    ev = workload.eval
    feed = {}
    for tensor in ev.inputs:
        raw = np.fromfile(pack.file(tensor.file), tensor.dtype).reshape(tensor.shape)
        feed[tensor.name] = raw[:1].astype(np.int32)
    held = ev.references[0]
    reference = np.fromfile(pack.file(held.file), held.dtype).reshape(held.shape)
    return feed, reference[0].astype(np.float64)


def test_a_segmenter_resizes_and_joins_as_its_reference_does(pack: Pack) -> None:
    name = "deeplabv3_mobilenet_v3_large"
    workload = pack.manifest.workloads[name]
    run = measure(pack, workload, opened(pack, name), ENCODINGS["coreml-fp16"], SAMPLES[name])
    assert passes(workload, run)
    assert (run["snr_db"] or 0) > 33


Defect = Callable[[Program, dict[str, Array]], tuple[Program, dict[str, Array]]]


def _skipped(program: Program, weights: dict[str, Array]) -> tuple[Program, dict[str, Array]]:
    """Let the second product's result be its input: a layer that is not there."""
    first, second = [n for n in program.nodes if n.op == "dense"][:2]
    reader = next(n for n in program.nodes if second.name in n.inputs)
    made = replace(reader, inputs=second.inputs)
    nodes = tuple(made if n is reader else n for n in program.nodes if n is not second)
    assert first.shape == second.shape
    return replace(program, nodes=nodes), weights


def _unclipped(program: Program, weights: dict[str, Array]) -> tuple[Program, dict[str, Array]]:
    """Leave out the first ReLU."""
    relu = next(n for n in program.nodes if n.op == "relu")
    nodes = tuple(
        replace(n, inputs=tuple(relu.inputs[0] if x == relu.name else x for x in n.inputs))
        for n in program.nodes
        if n is not relu
    )
    return replace(program, nodes=nodes), weights


def _changed(change: Callable[[Array], Array]) -> Defect:
    def plant(program: Program, weights: dict[str, Array]) -> tuple[Program, dict[str, Array]]:
        names = [w.name for w in program.weights.values() if w.kind in ("dense", "conv")]
        name = names[len(names) // 2]
        held = name if name in weights else f"{name}.q"
        return program, {**weights, held: change(weights[held])}

    return plant


DEFECTS: dict[str, Defect] = {
    "skipped layer": _skipped,
    "missing relu": _unclipped,
    "zeroed weights": _changed(np.zeros_like),
    "negated weights": _changed(lambda w: -w),
    "rolled channels": _changed(lambda w: np.roll(w, 1, axis=-1)),
    "swapped halves": _changed(lambda w: np.concatenate(np.split(w, 2)[::-1])),
}


def refused(
    pack: Pack, program: Program, package: Path, samples: tuple[int, ...] | None = None
) -> bool:
    """Say whether a package's answers cannot be judged, or fail the gate."""
    workload = pack.manifest.workloads[program.workload]
    try:
        return not passes(workload, judged(pack, workload, program, package, samples))
    except ValueError as fault:
        return "zero everywhere" in str(fault)


@pytest.mark.parametrize("defect", list(DEFECTS))
@pytest.mark.parametrize("encoding", ["coreml-fp16", "coreml-int8"])
def test_the_gate_refuses_a_broken_chain(
    pack: Pack, encoding: str, defect: str, tmp_path: Path
) -> None:
    form = ENCODINGS[encoding].weights
    program = opened(pack, SMALL, form)
    broken, weights = DEFECTS[defect](program, dict(read_weights(pack.root, program, form)))
    path = tmp_path / "broken.mlpackage"
    model(broken, weights, ENCODINGS[encoding]).save(str(path))
    assert refused(pack, program, path)


@pytest.mark.parametrize("defect", ["zeroed weights", "negated weights"])
def test_the_gate_refuses_a_broken_network(pack: Pack, defect: str, tmp_path: Path) -> None:
    name = "mobilenet_v3_large"
    program = opened(pack, name, "int8")
    broken, weights = DEFECTS[defect](program, dict(read_weights(pack.root, program, "int8")))
    path = tmp_path / "broken.mlpackage"
    model(broken, weights, ENCODINGS["coreml-int8"]).save(str(path))
    assert refused(pack, program, path, SAMPLES[name])


# -- ranges -------------------------------------------------------------------------------------


@given(st.floats(1e-6, 50), st.integers(0, 255))
def test_a_symmetric_range_contains_the_calibrated_one(scale: float, zero: int) -> None:
    given, found = Range(scale, zero), symmetric(Range(scale, zero))
    for level in (0, 255):
        value = given.scale * (level - given.zero)
        low, high = found.scale * (0 - found.zero), found.scale * (255 - found.zero)
        assert low * 1.000001 <= value <= high * 1.000001 or value == pytest.approx(0)
    assert found.zero == (0 if zero == 0 else 128)
    assert found.scale <= 2.01 * scale


def test_a_tiny_range_keeps_a_step_that_float16_holds(pack: Pack) -> None:
    program = opened(pack, SMALL, "int8")
    tiny = {name: Range(1e-9, r.zero) for name, r in program.activations.items()}
    weights = read_weights(pack.root, program, "int8")
    mil = mil_program(replace(program, activations=tiny), weights, ENCODINGS["coreml-int8"])
    steps = {
        float(op.scale.val) for op in mil.functions["main"].operations if op.op_type == "quantize"
    }
    assert steps == {float(np.finfo(np.float16).tiny)}


def test_every_weight_scale_is_one_that_float16_holds(pack: Pack) -> None:
    for workload in with_programs(pack.manifest):
        program = opened(pack, workload.id, "int8")
        scales = [
            float(array.min())
            for name, array in read_weights(pack.root, program, "int8").items()
            if name.endswith(".scale")
            and name.removesuffix(".scale") in program.weights
            and program.weights[name.removesuffix(".scale")].kind in ("conv", "depthwise", "dense")
        ]
        assert min(scales) >= float(np.finfo(np.float16).tiny)


# -- refusals -----------------------------------------------------------------------------------


def test_an_unknown_encoding_is_refused(pack: Pack, tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="has no encoding coreml-fp8"):
        write_package(opened(pack, SMALL), pack.root, "coreml-fp8", tmp_path)


def test_an_operation_without_a_form_is_refused(pack: Pack) -> None:
    program = opened(pack, SMALL)
    nodes = (replace(program.nodes[0], op="sort"), *program.nodes[1:])
    weights = read_weights(pack.root, program, "fp16")
    with pytest.raises(EngineError, match="sort has no form"):
        model(replace(program, nodes=nodes), weights, ENCODINGS["coreml-fp16"])


def test_a_weight_scale_that_float16_loses_is_refused(pack: Pack) -> None:
    program = opened(pack, SMALL, "int8")
    weights = dict(read_weights(pack.root, program, "int8"))
    name = next(n for n in weights if n.endswith(".scale"))
    with pytest.raises(EngineError, match="a scale that float16 cannot hold"):
        model(program, {**weights, name: weights[name] * 1e-6}, ENCODINGS["coreml-int8"])


def test_two_tensors_of_one_name_are_refused(pack: Pack) -> None:
    program = opened(pack, SMALL)
    first, second, *rest = program.nodes
    renamed = replace(second, name=first.name.replace(".", "_") + ".x", inputs=(first.name,))
    other = replace(first, name=first.name + "_x")
    third = replace(rest[0], inputs=(renamed.name,))
    broken = replace(program, nodes=(first, other, renamed, third, *rest[1:]))
    with pytest.raises(EngineError, match="cannot be named"):
        model(broken, read_weights(pack.root, program, "fp16"), ENCODINGS["coreml-fp16"])


def test_the_interpreter_refuses_what_it_does_not_know(pack: Pack, tmp_path: Path) -> None:
    import coremltools
    from coremltools.converters.mil import mil
    from coremltools.converters.mil.mil import types

    from npumark.engines.coreml_program import converted

    made = mil.Program()
    x = {"x": mil.Builder.placeholder((2, 2), types.fp16)}
    with mil.Function(x, opset_version=coremltools.target.iOS17) as function:
        function.set_outputs([mil.Builder.atan(x=function.inputs["x"], name="y")])
    made.add_function("main", function)
    path = tmp_path / "atan.mlpackage"
    converted(made, "iOS17").save(str(path))
    with pytest.raises(ValueError, match="no interpretation of atan"):
        Interpreter(path).run({"x": np.zeros((2, 2), np.float16)})


# -- the part of the manifest --------------------------------------------------------------------


def test_every_program_has_its_variants(pack: Pack) -> None:
    part = json.loads(PART.read_text())
    assert part["files"] == []
    assert list(part["variants"]) == [w.id for w in with_programs(pack.manifest)]
    for workload, variants in part["variants"].items():
        program = opened(pack, workload)
        assert [v["id"] for v in variants] == [e.id for e in encodings(program)]
        for doc in variants:
            encoding = ENCODINGS[doc["id"]]
            assert doc["graph"] == f"{workload}/{PROGRAM}"
            assert doc["files"] == [doc["graph"], program.files[encoding.weights].path]
            assert doc["format"] == encoding.format


def test_validated_is_what_the_kept_measures_say(pack: Pack) -> None:
    measured = json.loads(MEASURES_FILE.read_text())
    part = json.loads(PART.read_text())["variants"]
    for name, variants in part.items():
        workload: Workload = pack.manifest.workloads[name]
        for doc in variants:
            assert doc["validated"] == passes(workload, measured[name][doc["id"]])
