"""The shipped encoder: tokens, weights, graphs, gates, and broken copies that must fail."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest

from npumark.gates.judge import judge
from npumark.gates.metrics import accumulator
from npumark.pack.network_weights import write_weights
from npumark.pack.weight_encoding import FORMATS
from npumark.record.model import Gate
from tests.int8_sums import needs_whole_sums
from workloads.granite_embedding_30m import definition, tokens
from workloads.granite_embedding_30m.defects import DEFECTS
from workloads.onnx_emit import save
from workloads.shipped import SHIPPED, ShippedNetwork, fragment, open_network

VARIANTS = ("fp32", "fp16", "w8", "int8-u8s8")
WORKLOAD = definition.WORKLOAD
FEW = (0, 6, 16, 22)
"""Two texts (one of them short) and their copies: enough for a defect to show."""

Array = npt.NDArray[Any]


@cache
def shipped() -> ShippedNetwork:
    return open_network(definition.build(), definition.PRODUCTS)


@cache
def compact() -> tuple[ShippedNetwork, Array]:
    """The network with only the word vectors that the eval set reads, and its ids renumbered.

    The answers are the same but for the step of the 8-bit table; emitting takes a third of the
    time.
    """
    net = shipped()
    ids, _ = net.arrays("inputs")
    used, renumbered = np.unique(ids, return_inverse=True)
    values = {**net.values, "words.weight": net.values["words.weight"][used]}
    graph = definition.build(vocabulary=len(used))
    return ShippedNetwork(net.entry, graph, values, net.quantisation), renumbered.reshape(ids.shape)


def outputs(graph: Path, ids: Array, samples: Sequence[int]) -> list[list[Array]]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # other tests run beside this one
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    _, mask = shipped().arrays("inputs")
    return [
        [
            np.asarray(y)
            for y in session.run(
                ["embedding", "tokens"],
                {"input_ids": ids[i : i + 1], "attention_mask": mask[i : i + 1]},
            )
        ]
        for i in samples
    ]


def verdict(samples: Sequence[int], made: Sequence[Sequence[Array]], tier: str) -> Gate:
    entry = shipped().entry
    judged = accumulator(
        entry.task,
        [array[list(samples)] for array in shipped().arrays("references")],
        shipped().arrays("mu"),
        {**entry.eval.parameters, "pairs": len(samples) // 2},
    )
    for index, out in enumerate(made):
        judged.add(index, out)
    return judge(judged.result()[0], entry.gates[tier])


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_passes_its_standard_gate(variant: str, tmp_path: Path) -> None:
    needs_whole_sums(variant)
    net, ids = compact()
    graph = save(net.graph, net.values, variant, tmp_path, net.quantisation)
    every = range(net.entry.eval.n)
    gate = verdict(every, outputs(graph, ids, every), "standard")
    assert gate.passed, gate.why
    assert gate.measures["recall_at_1"] == 1.0
    assert net.entry.variant(variant).validated


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("defect", DEFECTS)
def test_every_defect_fails_the_standard_gate(defect: str, variant: str, tmp_path: Path) -> None:
    net, ids = compact()
    broken = DEFECTS[defect](net.graph, net.values, net.quantisation)
    graph = save(broken.graph, broken.values, variant, tmp_path, broken.quantisation)
    gate = verdict(FEW, outputs(graph, ids, FEW), "standard")
    assert None not in gate.measures.values()
    assert not gate.passed, gate.measures


@pytest.mark.parametrize("tier", ["standard", "strict"])
def test_a_repeated_answer_fails_every_gate(tier: str, tmp_path: Path) -> None:
    net, ids = compact()
    graph = save(net.graph, net.values, "fp32", tmp_path, net.quantisation)
    (answer,) = outputs(graph, ids, [0])
    assert not verdict(FEW, [answer] * len(FEW), tier).passed


def test_wrong_states_beside_a_right_embedding_fail(tmp_path: Path) -> None:
    net, ids = compact()
    graph = save(net.graph, net.values, "fp32", tmp_path, net.quantisation)
    rolled = [[y, np.roll(states, 1, axis=1)] for y, states in outputs(graph, ids, FEW)]
    gate = verdict(FEW, rolled, "standard")
    assert not gate.passed
    assert gate.binding is not None
    assert gate.binding.startswith("token_cosine")


@pytest.mark.parametrize("form", FORMATS)
def test_weight_files_hash_to_what_the_manifest_says(form: str) -> None:
    (entry,) = [f for f in fragment()["files"] if f["path"] == f"{WORKLOAD}/{form}.weights"]
    out = io.BytesIO()
    write_weights(SHIPPED, WORKLOAD, form, out)
    assert len(out.getvalue()) == entry["size"]
    assert hashlib.sha256(out.getbuffer()).hexdigest() == entry["sha256"]


def test_counts_equal_the_published_ones() -> None:
    graph = definition.build()
    assert graph.parameters() == definition.PUBLISHED_PARAMETERS == 30_147_456
    pooler = definition.WIDTH * definition.WIDTH + definition.WIDTH
    assert graph.parameters() + pooler == definition.PUBLISHED_WITH_POOLER == 30_295_296
    assert graph.macs() == 1_434_451_968
    assert shipped().entry.params == graph.parameters()
    assert shipped().entry.macs == graph.macs()


def test_weights_are_finite_and_never_subnormal_in_half_precision() -> None:
    for name, value in shipped().values.items():
        assert np.isfinite(value).all(), name
        assert np.abs(value).max() < 65504, name
        assert not ((value != 0) & (np.abs(value) < 2.0**-14)).any(), name


def test_the_shipped_inputs_are_those_of_the_texts() -> None:
    ids, mask = shipped().arrays("inputs")
    made = tokens.evaluation()
    assert np.array_equal(ids, made.ids)
    assert np.array_equal(mask, made.mask)


def test_token_ids_are_valid_and_spread() -> None:
    made = tokens.evaluation()
    inside = made.mask.astype(bool)
    assert (made.ids[~inside] == definition.PADDING).all()
    assert (made.ids[:, 0] == tokens.START).all()
    for ids, length in zip(made.ids, made.lengths, strict=True):
        assert ids[length - 1] == tokens.END
        assert (ids[1 : length - 1] >= tokens.SPECIAL).all()
        assert (ids[1 : length - 1] < definition.VOCABULARY - 1).all()
    assert made.lengths.min() < 16
    assert made.lengths.max() > 80
    assert np.unique(made.ids).size > 400


def test_calibration_and_evaluation_texts_are_disjoint() -> None:
    found = tokens.texts()
    assert len(found["evaluation"]) == len(found["calibration"]) == 16
    assert not set(found["evaluation"]) & set(found["calibration"])
    rows = [tuple(ids) for s in (tokens.evaluation(), tokens.calibration()) for ids in s.ids]
    assert len(set(rows)) == len(rows) == 48


def test_a_copy_changes_a_quarter_of_its_words() -> None:
    passages = [[f"a{i}" for i in range(8)], [f"b{i}" for i in range(3)]]
    first, second = tokens.edited(passages)
    assert first == ["a0", "a1", "b2", "a3", "a4", "a5", "b0", "a7"]
    assert second == ["b0", "b1", "a2"]


def test_long_texts_are_cut_to_fit() -> None:
    made = tokens.encode([["word"] * 500, []])
    assert made.lengths.tolist() == [definition.TOKENS, 2]
    assert made.ids[0, -1] == tokens.END


def test_judged_positions_lie_inside_their_text() -> None:
    _, _, positions = shipped().arrays("references")
    lengths = tokens.evaluation().lengths
    assert (positions >= 0).all()
    assert (positions < lengths[:, None]).all()
    assert (np.diff(positions, axis=1) > 0).all()


def test_only_products_read_eight_bits() -> None:
    model = onnx.load(SHIPPED / WORKLOAD / "int8-u8s8.onnx", load_external_data=False)
    quantised = {n.output[0] for n in model.graph.node if n.op_type == "DequantizeLinear"}
    readers = {n.op_type for n in model.graph.node if quantised & set(n.input)}
    # Tables are dequantised after the gather: their rows are summed in floating point.
    assert readers == {"Gemm", "MatMul", "Add"}
    ranges = shipped().quantisation.activations
    masked = [name for name in ranges if name.endswith((".masked", ".scaled")) or "mask" in name]
    assert masked == []


def test_emission_is_reproducible(tmp_path: Path) -> None:
    net = shipped()
    graph = save(net.graph, net.values, "int8-u8s8", tmp_path, net.quantisation)
    assert graph.read_bytes() == (SHIPPED / WORKLOAD / graph.name).read_bytes()


def test_shipped_files_stay_small() -> None:
    sizes = [path.stat().st_size for path in (SHIPPED / WORKLOAD).iterdir()]
    assert sum(sizes) < 1_200_000
