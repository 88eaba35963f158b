from __future__ import annotations

import numpy as np
import pytest

from npumark.gates.metrics import accumulator
from npumark.worker.accuracy import compare, run_accuracy
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


def test_two_outputs_count_by_the_worse() -> None:
    good, bad = np.ones(4), np.ones(4)
    found = compare([good, bad * 1.1], [good, bad])
    assert found.snr_db == pytest.approx(20, abs=0.01)
