"""One answer given to every input fails the standard gate of every workload, in every variant."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from npumark.gates.judge import judge
from npumark.gates.metrics import accumulator
from npumark.gates.segmentation import Stretch
from npumark.pack import seeded
from npumark.pack.manifest import Workload, load_manifest
from workloads.shipped import stored_array

Array = npt.NDArray[Any]

MANIFEST = load_manifest()
NETWORKS = [w for w in MANIFEST.workloads.values() if w.kind == "network"]


def answers(workload: Workload) -> list[list[Array]]:
    """Return the right outputs of every sample, as the graph shapes them."""
    names = {o.name for o in workload.variants[0].outputs}
    stored = [
        stored_array(t.file, t.dtype, t.shape) for t in workload.eval.references if t.name in names
    ]
    if "tokens" in {t.name for t in workload.eval.references}:
        return [_with_all_tokens(workload, i) for i in range(workload.eval.n)]
    factor = int(workload.eval.parameters.get("reference_scale", 1))
    return [[_enlarged(a[i], factor)[None] for a in stored] for i in range(workload.eval.n)]


def _enlarged(x: Array, factor: int) -> Array:
    x = x.astype(np.float32)
    if factor == 1:
        return x
    rows, columns = Stretch(x.shape[1], factor), Stretch(x.shape[2], factor)
    return np.stack([rows(columns(np.ascontiguousarray(plane.T)).T) for plane in x])


def _with_all_tokens(workload: Workload, i: int) -> list[Array]:
    """Put the stored token states where they belong; the gate reads no others."""
    by_name = {t.name: stored_array(t.file, t.dtype, t.shape) for t in workload.eval.references}
    outputs = []
    for spec in workload.variants[0].outputs:
        out = np.full(spec.shape, 0.5, np.float32)
        if spec.name == "tokens":
            out[0, by_name["positions"][i]] = by_name["tokens"][i]
        else:
            out[0] = by_name[spec.name][i]
        outputs.append(out)
    return outputs


def verdict(workload: Workload, given: list[list[Array]]) -> tuple[bool, str | None]:
    judged = accumulator(
        workload.task,
        [stored_array(t.file, t.dtype, t.shape) for t in workload.eval.references],
        [stored_array(t.file, t.dtype, t.shape) for t in workload.eval.mu],
        workload.eval.parameters,
    )
    for i, outputs in enumerate(given):
        judged.add(i, outputs)
    measures, why = judged.result()
    assert why is None
    gate = judge(measures, workload.gates["standard"])
    return gate.passed, gate.why


@pytest.mark.parametrize("workload", NETWORKS, ids=lambda w: w.id)
def test_a_memoised_answer_fails_on_every_network(workload: Workload) -> None:
    right = answers(workload)
    assert verdict(workload, right)[0]
    for kept in (0, workload.eval.n // 2, workload.eval.n - 1):
        assert not verdict(workload, [right[kept]] * workload.eval.n)[0]


def test_a_memoised_answer_fails_on_the_peak_chain() -> None:
    workload = MANIFEST.workloads["peak-512x2048x8"]
    chain = seeded.Chain.parse(workload.id)
    references = list(seeded.references(chain, ("eval0", "eval1")))
    for given in ([0, 1], [0, 0], [1, 1]):
        judged = accumulator("chain", [np.stack(references)], [], {})
        for i, answer in enumerate(given):
            judged.add(i, [references[answer]])
        measures, _ = judged.result()
        assert judge(measures, workload.gates["standard"]).passed is (given == [0, 1])
