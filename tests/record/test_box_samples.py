"""What a record says of a window is derived again from the raw begin and end of each call."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from npumark.engines.virtual_box import make_box
from npumark.errors import IntegrityError
from npumark.record.box import BoxWindow
from npumark.record.box_samples import calls_of, window_differences, windows
from npumark.record.files import seal
from npumark.record.model import Record
from npumark.record.samples import check_samples, encode_samples
from npumark.worker.window_loop import cut
from tests import synthetic, synthetic_box
from tests.synthetic import payload_of, simulate

WINDOW_NS = 1000
CALLS = [(3, 400), (400, 900), (905, 1100)]


def window(**over: object) -> BoxWindow:
    made = synthetic_box.window_of(0.3, synthetic_box.Shown(), synthetic.manifest(), "peak-s")
    facts = {"late_ns": 3, "inside": 2, "straddling": [(905, 1100)], "calls": 3, **over}
    return made.model_copy(update=facts)


def test_a_window_agrees_with_its_calls() -> None:
    assert list(window_differences(window(), WINDOW_NS, CALLS)) == []


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("late_ns", 4, "late_ns is 4, the samples give 3"),
        ("inside", 3, "inside is 3, the samples give 2"),
        ("straddling", [], "straddling is [], the samples give [(905, 1100)]"),
        ("calls", 4, "calls is 4, the samples give 3"),
    ],
)
def test_what_the_calls_do_not_give_is_named(field: str, value: object, says: str) -> None:
    assert list(window_differences(window(**{field: value}), WINDOW_NS, CALLS)) == [says]


@pytest.mark.parametrize("seed", range(20))
def test_both_ways_of_cutting_a_window_agree(seed: int) -> None:
    """The worker's arrays and this module's plain loop, on the same calls."""
    box = make_box(8, seed)
    for own in box.calls(10**9, np.random.default_rng(seed)):
        lie = cut(own, 10**9)
        seen = window(
            late_ns=int(own[0, 0]),
            inside=lie.inside,
            straddling=list(lie.straddling),
            calls=len(own),
        )
        calls = calls_of(own.ravel().tolist())
        assert list(window_differences(seen, 10**9, calls)) == []


@pytest.mark.parametrize("times", [[1, 2, 3], [5, 4], [0, 10, 9, 20]])
def test_what_are_no_calls_one_after_the_other_is_refused(times: list[int]) -> None:
    with pytest.raises(IntegrityError, match="raw samples holds"):
        calls_of(times)


def _boxed(folder: Path) -> Record:
    """Return a record of two cards whose first window has kept its calls in ``folder``."""
    payload = payload_of(
        synthetic_box.with_box(simulate(engines=synthetic_box.cards(2))),
    )
    _, attempt, _, seen = next(windows(payload))
    each = (attempt.window_ns - seen.late_ns) // seen.calls
    calls = [(seen.late_ns + i * each, seen.late_ns + (i + 1) * each) for i in range(seen.inside)]
    calls += [(calls[-1][1], end) for _, end in seen.straddling]
    raw = encode_samples([ns for call in calls for ns in call])
    (folder / "any-name.i64").write_bytes(raw)
    kept = seen.model_copy(
        update={
            "straddling": calls[seen.inside :],
            "samples_sha256": hashlib.sha256(raw).hexdigest(),
        }
    )
    document = payload.model_dump(mode="json", by_alias=True)
    place = document["box"]["roles"][0]["attempts"][0]["cards"][0]
    place["window"] = kept.model_dump(mode="json")
    return seal(type(payload).model_validate(document))


def test_a_box_agrees_with_its_raw_calls_and_a_changed_file_is_named(tmp_path: Path) -> None:
    record = _boxed(tmp_path)
    assert check_samples(record, tmp_path) == []
    (tmp_path / "any-name.i64").write_bytes(b"\0" * 16)
    (fault,) = check_samples(record, tmp_path)
    assert fault.startswith("all dGPU cards at once, attempt 1, dgpu-1: no file in")
