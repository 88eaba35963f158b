"""Measures over an eval set: their values, and that nothing wrong yields any."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npumark.gates.accumulate import snr_db
from npumark.gates.classification import kl_divergence
from npumark.gates.measures import MEASURES, REPORTED_ONLY, SNR_CAP_DB
from npumark.gates.metrics import accumulator
from npumark.gates.segmentation import Stretch, mean_iou

Array = npt.NDArray[Any]
RNG = np.random.default_rng(7)

CHAIN = RNG.normal(size=(2, 6, 8)).astype(np.float16)
LOGITS = (4 * RNG.normal(size=(5, 10))).astype(np.float16)
MAPS = (2 * RNG.normal(size=(3, 4, 5, 6))).astype(np.float16)
POOLED = RNG.normal(size=(4, 8)).astype(np.float16)
POOLED[2:] = POOLED[:2] + np.float16(0.1)
STATES = RNG.normal(size=(4, 16, 8)).astype(np.float16)
POSITIONS = np.array([[0, 3], [1, 15], [2, 4], [5, 6]], dtype=np.int32)
CHECKED = np.stack([STATES[i][POSITIONS[i]] for i in range(4)])

Case = tuple[str, list[Array], list[Array], dict[str, float], Callable[[int], list[Array]]]

CASES: dict[str, Case] = {
    "chain": ("chain", [CHAIN], [], {}, lambda i: [CHAIN[i].astype(np.float32)]),
    "classification": (
        "classification",
        [LOGITS],
        [LOGITS.mean(0).astype(np.float32)],
        {"decisive_margin": 1.0},
        lambda i: [LOGITS[i][None].astype(np.float32)],
    ),
    "segmentation": (
        "segmentation",
        [MAPS],
        [MAPS.mean((0, 2, 3), keepdims=True).astype(np.float32)],
        {"decisive_margin": 1.0},
        lambda i: [MAPS[i][None].astype(np.float32)],
    ),
    "embedding": (
        "embedding",
        [POOLED, CHECKED, POSITIONS],
        [POOLED.mean(0).astype(np.float32)],
        {"tokens": 16, "pairs": 2},
        lambda i: [POOLED[i][None].astype(np.float32), STATES[i][None].astype(np.float32)],
    ),
}
every_task = pytest.mark.parametrize("task", list(CASES))


def run(
    case: Case, change: Callable[[int, list[Array]], Sequence[Array]] | None = None
) -> tuple[Mapping[str, float | None], str | None]:
    task, references, mu, parameters, exact = case
    acc = accumulator(task, references, mu, parameters)
    for i in range(len(references[0])):
        outputs = [out.copy() for out in exact(i)]
        acc.add(i, change(i, outputs) if change else outputs)
    return acc.result()


@every_task
def test_an_exact_answer_is_perfect(task: str) -> None:
    measures, why = run(CASES[task])
    assert why is None
    assert measures["snr_db"] == SNR_CAP_DB
    for name, value in measures.items():
        assert value is not None
        if name in MEASURES and name != "snr_db":
            assert MEASURES[name].error(value) == pytest.approx(0, abs=1e-12)
        assert name in MEASURES or name in REPORTED_ONLY


def _plant(value: float) -> Callable[[int, list[Array]], Sequence[Array]]:
    def change(i: int, outputs: list[Array]) -> Sequence[Array]:
        if i == 1:
            outputs[-1].reshape(-1)[[0, -1]] = value
        return outputs

    return change


WRONG: dict[str, tuple[Callable[[int, list[Array]], Sequence[Array]], str]] = {
    "nan": (_plant(math.nan), "2 NaN and 0 infinite"),
    "inf": (_plant(math.inf), "0 NaN and 2 infinite"),
    "opposite infinities": (
        lambda _i, o: [
            np.where(np.arange(x.size).reshape(x.shape) % 2, np.inf, -np.inf) for x in o
        ],
        "0 NaN and",
    ),
    "zero": (lambda _i, o: [np.zeros_like(x) for x in o], "zero everywhere"),
    "no output": (lambda _i, _o: [], "outputs instead of"),
    "empty": (lambda _i, o: [x[..., :0] for x in o], "has shape"),
    "too short": (lambda _i, o: [x[..., :-1] for x in o], "has shape"),
    "transposed": (lambda _i, o: [x.T for x in o], "has shape"),
    "two samples": (lambda _i, o: [np.stack([x, x]) for x in o], "has shape"),
    "integers": (lambda _i, o: [x.astype(np.int32) for x in o], "has type int32"),
    "complex": (lambda _i, o: [x.astype(np.complex64) for x in o], "has type complex64"),
}


@every_task
@pytest.mark.parametrize("wrong", list(WRONG))
def test_anything_wrong_leaves_no_measure(task: str, wrong: str) -> None:
    change, text = WRONG[wrong]
    measures, why = run(CASES[task], change)
    assert why is not None
    assert text in why
    assert measures
    assert set(measures.values()) == {None}


@every_task
def test_missing_repeated_and_foreign_samples_are_refused(task: str) -> None:
    name, references, mu, parameters, exact = CASES[task]
    n = len(references[0])
    acc = accumulator(name, references, mu, parameters)
    for i in range(n - 1):
        acc.add(i, exact(i))
    measures, why = acc.result()
    assert why == f"outputs of 1 of {n} eval inputs are missing"
    assert set(measures.values()) == {None}
    acc.add(0, exact(0))
    assert "sample 0 was not expected" in str(acc.result()[1])
    acc = accumulator(name, references, mu, parameters)
    acc.add(n, exact(0))
    assert f"sample {n} was not expected" in str(acc.result()[1])


@every_task
def test_a_memoised_answer_shows(task: str) -> None:
    exact = CASES[task][4]
    measures, _ = run(CASES[task], lambda _i, _o: exact(0))
    assert measures["snr_db"] is not None
    assert measures["snr_db"] < 6


@every_task
def test_stored_batch_axes_change_nothing(task: str) -> None:
    name, references, mu, parameters, exact = CASES[task]
    noisy = {i: [x + np.float32(0.01) for x in exact(i)] for i in range(len(references[0]))}
    batched: Case = (
        name,
        [r[:, None] for r in references],
        [m.reshape(1, *m.shape) for m in mu],
        parameters,
        exact,
    )
    if task == "embedding":
        batched[1][2] = references[2]
    assert run(batched, lambda i, _o: noisy[i]) == run(CASES[task], lambda i, _o: noisy[i])


@every_task
def test_float16_outputs_are_measured(task: str) -> None:
    measures, why = run(CASES[task], lambda _i, o: [x.astype(np.float16) for x in o])
    assert why is None
    assert measures["snr_db"] == SNR_CAP_DB


def test_snr_is_taken_about_mu_over_the_whole_set() -> None:
    noise = [0.05 * RNG.normal(size=(1, 10)) for _ in range(5)]
    measures, why = run(CASES["classification"], lambda i, o: [o[0] + noise[i]])
    ref, mu = LOGITS.astype(np.float64), LOGITS.mean(0).astype(np.float32)
    tests = np.concatenate([ref[i][None] + noise[i] for i in range(5)])
    signal, error = ((ref - mu) ** 2).sum(), ((ref - tests) ** 2).sum()
    assert why is None
    assert measures["snr_db"] == pytest.approx(10 * math.log10(signal / error), abs=1e-9)
    centred = [(a - mu, b - mu) for a, b in zip(ref, tests, strict=True)]
    cosines = [a @ b / (np.linalg.norm(a) * np.linalg.norm(b)) for a, b in centred]
    assert measures["cosine_mean"] == pytest.approx(np.mean(cosines), abs=1e-12)
    assert measures["cosine_p10"] == pytest.approx(np.percentile(cosines, 10), abs=1e-12)


def test_an_overflowing_error_is_no_number() -> None:
    measures, why = run(CASES["chain"], lambda _i, o: [o[0].astype(np.float64) * 1e200])
    assert measures == {"snr_db": None}
    assert why == "cannot be computed: snr_db"


def test_a_reference_without_signal_proves_nothing() -> None:
    flat = np.ones((2, 4), dtype=np.float16)
    acc = accumulator("chain", [flat], [flat[0]], {})
    for i in range(2):
        acc.add(i, [flat[i].astype(np.float32)])
    assert acc.result() == ({"snr_db": None}, "cannot be computed: snr_db")
    assert snr_db(0.0, 0.0) is None
    assert snr_db(1e-300, 1e300) is None


def test_zeros_pass_where_the_reference_is_zero() -> None:
    refs = np.stack([np.zeros(4), np.ones(4)]).astype(np.float16)
    acc = accumulator("chain", [refs], [], {})
    for i in range(2):
        acc.add(i, [refs[i].astype(np.float32)])
    assert acc.result() == ({"snr_db": SNR_CAP_DB}, None)


def test_flips_count_among_decisive_samples_only() -> None:
    refs = np.array([[3, 0, 0], [0, 0.5, 0], [0, 0, 2]], dtype=np.float16)
    acc = accumulator("classification", [refs], [], {"decisive_margin": 1.0})
    for i in range(3):
        acc.add(i, [np.array([[1.0, 0, 2.0]], dtype=np.float32)])
    measures, _ = acc.result()
    assert measures["decisive"] == 2
    assert measures["flips"] == 1


def test_kl_is_that_of_the_softmax() -> None:
    p = np.log(np.array([0.5, 0.25, 0.25]))
    q = np.log(np.array([0.25, 0.5, 0.25])) + 700
    assert kl_divergence(p, q) == pytest.approx(0.25 * math.log(2))
    assert kl_divergence(p, p + 3) == pytest.approx(0, abs=1e-15)
    assert kl_divergence(np.array([1e4, 0.0]), np.array([0.0, 1e4])) == pytest.approx(1e4)


def test_enlarging_matches_the_definition() -> None:
    x = RNG.normal(size=(4, 3)).astype(np.float32)
    big = Stretch(4, 4)(x)
    for row in range(16):
        at = min(max((row + 0.5) / 4 - 0.5, 0), 3)
        low = int(at)
        high = min(low + 1, 3)
        assert big[row] == pytest.approx(x[low] + (at - low) * (x[high] - x[low]), abs=1e-6)


def test_a_small_reference_is_enlarged_like_the_output() -> None:
    large = np.stack(
        [[Stretch(6, 2)(Stretch(5, 2)(p.astype(np.float32)).T).T for p in m] for m in MAPS]
    )
    parameters = {"decisive_margin": 1.0, "reference_scale": 2}
    noisy = large + (0.1 * RNG.normal(size=large.shape)).astype(np.float32)
    per_class = CASES["segmentation"][2]
    per_pixel = [MAPS.mean(0).astype(np.float32)]
    for mu in (per_class, per_pixel):
        small = accumulator("segmentation", [MAPS], mu, parameters)
        full_mu = [
            np.stack(
                [
                    Stretch(6, 2)(Stretch(5, 2)(plane).T).T
                    for plane in np.broadcast_to(mu[0], (1, 4, 5, 6))[0]
                ]
            )
        ]
        full = accumulator("segmentation", [large], full_mu, {"decisive_margin": 1.0})
        for i in range(3):
            small.add(i, [noisy[i][None]])
            full.add(i, [noisy[i][None]])
        a, b = small.result()[0], full.result()[0]
        assert a.keys() == b.keys()
        for name, value in a.items():
            assert value == pytest.approx(b[name], rel=1e-5)


def test_mean_iou_leaves_rare_classes_out() -> None:
    confusion = np.array([[900, 0, 90], [0, 5, 0], [0, 0, 5]])
    assert mean_iou(confusion) == pytest.approx(900 / 990)
    assert mean_iou(np.zeros((3, 3), dtype=np.int64)) is None


def test_pixels_off_the_margin_are_not_decisive() -> None:
    refs = np.zeros((1, 2, 1, 2), dtype=np.float16)
    refs[0, :, 0, 0] = 3, 0
    refs[0, :, 0, 1] = 0, 0.5
    acc = accumulator("segmentation", [refs], [], {"decisive_margin": 1.0})
    acc.add(0, [np.array([[[[3, 1]], [[0, 0]]]], dtype=np.float32)])
    measures, _ = acc.result()
    assert measures["miou_decisive"] == 1.0
    assert measures["miou"] == pytest.approx(0.25)


def test_swapped_tokens_lower_the_token_cosine_alone() -> None:
    def roll(i: int, o: list[Array]) -> list[Array]:
        return [o[0], np.roll(o[1], 1, axis=1)]

    measures, _ = run(CASES["embedding"], roll)
    assert measures["snr_db"] == SNR_CAP_DB
    assert measures["token_cosine"] is not None
    assert measures["token_cosine"] < 0.9


def test_recall_falls_where_copies_are_mixed_up() -> None:
    exact = CASES["embedding"][4]
    swapped = {0: 0, 1: 1, 2: 3, 3: 2}
    measures, _ = run(CASES["embedding"], lambda i, _o: exact(swapped[i]))
    assert measures["recall_at_1"] == 0.0


@pytest.mark.parametrize(
    ("task", "references", "parameters", "text"),
    [
        ("speech", [LOGITS], {}, "unknown task"),
        ("chain", [], {}, "no reference"),
        ("chain", [CHAIN[:0]], {}, "no reference"),
        ("classification", [LOGITS], {}, "decisive_margin"),
        ("segmentation", [LOGITS], {"decisive_margin": 1}, "must have the shape"),
        ("embedding", [POOLED], {"tokens": 16, "pairs": 2}, "token states"),
        ("embedding", [POOLED, CHECKED[:2], POSITIONS], {"tokens": 16, "pairs": 2}, "differ"),
        ("embedding", [POOLED, CHECKED, POSITIONS], {"tokens": 16, "pairs": 1}, "copies"),
        ("embedding", [POOLED, CHECKED, POSITIONS], {"tokens": 9, "pairs": 2}, "outside"),
    ],
)
def test_an_unusable_eval_set_is_refused(
    task: str, references: list[Array], parameters: dict[str, float], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        accumulator(task, references, [], parameters)


@given(st.floats(1e-3, 10), st.integers(0, 2**32 - 1))
def test_more_noise_never_measures_better(sigma: float, seed: int) -> None:
    noise = np.random.default_rng(seed).normal(size=CHAIN.shape)
    quiet, _ = run(CASES["chain"], lambda i, o: [o[0] + sigma * noise[i]])
    loud, _ = run(CASES["chain"], lambda i, o: [o[0] + 2 * sigma * noise[i]])
    assert quiet["snr_db"] is not None
    assert loud["snr_db"] == pytest.approx(quiet["snr_db"] - 20 * math.log10(2), abs=1e-6)
