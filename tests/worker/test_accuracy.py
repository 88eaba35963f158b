from __future__ import annotations

import numpy as np
import pytest

from npumark.errors import EngineError
from npumark.gates.measures import SNR_CAP_DB
from npumark.gates.metrics import accumulator
from npumark.pack.manifest import TensorSpec
from npumark.worker.accuracy import compare, run_accuracy
from npumark.worker.eval_set import StoredLayout
from npumark.worker.protocol import TimedCheck
from npumark.worker.timed_loop import Check

SAMPLES = [(np.full(4, float(i + 1)),) for i in range(3)]
REFERENCES = np.stack([s[0] * 2 for s in SAMPLES])


def check(timed: list[np.ndarray], *, nondeterministic: bool = False) -> TimedCheck:
    buffer, output = np.zeros(4), np.zeros(4)
    return run_accuracy(
        lambda: np.multiply(buffer, 2, out=output),
        [buffer],
        [output],
        SAMPLES,
        accumulator("chain", [REFERENCES], [], {}),
        [Check(10 + i, i, (out,)) for i, out in enumerate(timed)],
        nondeterministic=nondeterministic,
        min_snr_db=60.0,
    )


def test_the_same_bits_pass() -> None:
    found = check(list(REFERENCES))
    assert found.passed
    assert found.bit_identical
    assert found.min_snr_db is None
    assert found.iterations == (10, 11, 12)


def test_one_bit_fails_a_deterministic_engine_and_not_a_nondeterministic_one() -> None:
    odd = [np.nextafter(r, np.inf) for r in REFERENCES]
    assert not check(odd).passed
    found = check(odd, nondeterministic=True)
    assert found.passed
    assert not found.bit_identical
    assert found.min_snr_db is not None
    assert found.min_snr_db > 60


def test_answers_of_another_input_fail_both() -> None:
    stale = [REFERENCES[0]] * 3
    assert not check(stale).passed
    assert not check(stale, nondeterministic=True).passed


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_passes_nothing(bad: float) -> None:
    odd = [r.copy() for r in REFERENCES]
    odd[1][2] = bad
    found = check(odd, nondeterministic=True)
    assert not found.passed
    assert found.min_snr_db is None


def test_nothing_checked_is_nothing_passed() -> None:
    assert not check([]).passed
    assert not check([], nondeterministic=True).passed


def test_zeros_against_noise_have_no_ratio() -> None:
    assert compare([np.ones(3)], [np.zeros(3)]).snr_db is None
    assert compare([np.zeros(3)], [np.zeros(3)]).identical
    assert not compare([np.zeros(3)], [-np.zeros(3)]).identical


def test_one_last_bit_is_no_more_than_an_exact_answer() -> None:
    whole = np.ones((512, 2048), np.float32)
    whole[0, 0] = 0.1
    off = whole.copy()
    off[0, 0] = np.nextafter(np.float32(0.1), np.float32(1))
    found = compare([off], [whole])
    assert (found.identical, found.snr_db) == (False, SNR_CAP_DB)


def test_two_outputs_count_by_the_worse() -> None:
    good, bad = np.ones(4), np.ones(4)
    found = compare([good, bad * 1.1], [good, bad])
    assert found.snr_db == pytest.approx(20, abs=0.01)


@pytest.mark.parametrize(("perm", "snr_db"), [((0, 2, 1), 200.0), ((), None)])
def test_the_judge_sees_the_stored_layout(perm: tuple[int, ...], snr_db: float | None) -> None:
    stored = np.arange(1.0, 13.0).reshape(1, 1, 4, 3)
    graph = np.ascontiguousarray(stored[0].transpose(0, 2, 1))
    buffer, output = np.zeros_like(graph), np.zeros_like(graph)
    judge = accumulator("chain", [stored], [], {})
    found = run_accuracy(
        lambda: np.copyto(output, buffer),
        [buffer],
        [output],
        [(graph,)],
        judge,
        [Check(0, 0, (graph,))],
        shown=StoredLayout([output], (TensorSpec("y", "float64", graph.shape, perm),)),
        nondeterministic=False,
        min_snr_db=60.0,
    )
    assert found.passed, "timed outputs are compared as the engine left them"
    assert judge.result()[0]["snr_db"] == snr_db


def test_an_output_that_turns_out_to_be_no_array_is_refused() -> None:
    with pytest.raises(EngineError, match="output 0 is a builtins"):
        run_accuracy(
            lambda: None,
            [np.zeros(4)],
            [(1.0,)],  # type: ignore[list-item]
            SAMPLES,
            accumulator("chain", [REFERENCES], [], {}),
            [],
            nondeterministic=False,
            min_snr_db=60.0,
        )
