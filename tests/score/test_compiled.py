"""What a record says of compiled models cannot contradict itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from npumark.policy import load_policy
from npumark.record.model import Payload
from npumark.score.recompute import recompute
from tests import synthetic
from tests.synthetic import NPU, engine, payload_of, simulate

POLICY = load_policy()
PACK = synthetic.manifest()
THIRD = engine("toy-npu", "NPU", variants=("fp16",), derived_from={}, package="toy 1.0")
OPENVINO = engine("openvino-npu", "NPU", variants=("fp16",), derived_from={})
Edit = Callable[[dict[str, Any], list[Any]], object]

LATER_NS = 100_000_000_000
PREPARED_NS = 900_000_000


def compiled_of(made: dict[str, Any]) -> dict[str, Any]:
    """Return the entry that was compiled: the first of several attempts."""
    found: dict[str, Any] = next(e for e in made["entries"] if len(e["attempts"]) > 2)
    return found


def document(told: Any = NPU) -> dict[str, Any]:
    """Return a run one entry of which was compiled before its first attempt, and reused since."""
    made: dict[str, Any] = payload_of(simulate(synthetic.steady, (told,))).model_dump(
        mode="json", by_alias=True
    )
    entry = compiled_of(made)
    for each in made["entries"]:
        for attempt in each["attempts"]:
            attempt["started_ns"] += LATER_NS
    for attempt in entry["attempts"]:
        attempt["cache"] = {"state": "reused", "why": None, "compile_ns": None, "bytes": 70}
        attempt["measurement"]["loaded_from_cache"] = True
    made["prepared"] = [
        {
            "engine": entry["engine"],
            "workload": entry["workload"],
            "variant": entry["variant"],
            "before": 1,
            "status": "ok",
            "why": None,
            "state": "built",
            "compile_ns": 500,
            "first_call_ns": 3,
            "load_ns": 20,
            "bytes": 70,
            "started_ns": 5,
            "wall_ns": PREPARED_NS,
        }
    ]
    made["where_time_went_ns"]["compile"] = PREPARED_NS
    return made


def named(made: dict[str, Any]) -> list[str]:
    return [d.path for d in recompute(Payload.model_validate(made), PACK, POLICY)]


@pytest.mark.parametrize("told", [NPU, OPENVINO, THIRD], ids=lambda e: str(e.id))
def test_a_true_record_contradicts_nothing(told: Any) -> None:
    assert named(document(told)) == []


def again(made: dict[str, Any], before: int, **over: Any) -> None:
    """Prepare the entry once more, right before an attempt."""
    due = compiled_of(made)["attempts"][before - 1]["started_ns"]
    for attempt in (a for e in made["entries"] for a in e["attempts"]):
        attempt["started_ns"] += 2 * PREPARED_NS if attempt["started_ns"] >= due else 0
    told = {**made["prepared"][0], "before": before, "started_ns": due}
    made["prepared"].append({**told, **over})
    made["where_time_went_ns"]["compile"] += PREPARED_NS


NOTHING = dict.fromkeys(("state", "bytes", "compile_ns", "first_call_ns", "load_ns"))


@pytest.mark.parametrize(
    ("edit", "path"),
    [
        (lambda d, _: d["prepared"].clear(), "attempts[0].cache"),
        (lambda d, _: d["prepared"][0].update(state="reused"), "prepared[0].state"),
        (
            lambda d, _: d["prepared"][0].update(state="unkept", bytes=None),
            "attempts[0].cache.state",
        ),
        (lambda d, _: d["prepared"][0].update(bytes=None), "prepared[0].bytes"),
        (lambda d, _: d["prepared"][0].update(compile_ns=None), "prepared[0].compile_ns"),
        (lambda d, _: d["prepared"][0].update(status="crashed"), "prepared[0].state"),
        (
            lambda d, _: d["prepared"][0].update(status="crashed", **NOTHING),
            "attempts[0].cache.state",
        ),
        (
            lambda d, _: d["prepared"][0].update(status="timeout", **NOTHING),
            "attempts[0].cache.state",
        ),
        (lambda d, _: again(d, 2, status="no_result", **NOTHING), "attempts[1].cache"),
        (lambda d, _: d["prepared"][0].update(bytes=71), "attempts[0].cache.bytes"),
        (lambda d, _: d["prepared"].append(d["prepared"][0]), "prepared[1].started_ns"),
        (lambda _, a: a[0].update(cache=None), "attempts[0].measurement.loaded"),
        (
            lambda _, a: (
                a[1].update(cache=None),
                a[1]["measurement"].update(loaded_from_cache=False),
            ),
            "attempts[1].cache",
        ),
        (lambda _, a: a[1]["cache"].update(bytes=3), "attempts[1].cache.bytes"),
        (lambda _, a: a[1]["cache"].update(bytes=None), "attempts[1].cache.bytes"),
        (lambda _, a: a[0]["cache"].update(state="unkept"), "attempts[0].cache.bytes"),
        (lambda _, a: a[0]["cache"].update(compile_ns=7), "attempts[0].cache.state"),
        (
            lambda _, a: a[0]["measurement"].update(loaded_from_cache=False),
            "attempts[0].measurement.loaded",
        ),
    ],
)
def test_a_contradiction_is_named(edit: Edit, path: str) -> None:
    made = document()
    edit(made, compiled_of(made)["attempts"])
    found = named(made)
    assert any(path in f for f in found), found


def _made_anew(made: dict[str, Any], attempts: list[Any]) -> None:
    """Attempt 2 threw the model away and compiled it again, to another size."""
    attempts[1]["cache"].update(state="rebuilt", compile_ns=4, bytes=90, why="it was damaged")
    attempts[1]["measurement"]["loaded_from_cache"] = False
    again(made, 3, state="reused", compile_ns=None, first_call_ns=None, bytes=90)
    for attempt in attempts[2:]:
        attempt["cache"]["bytes"] = 90


def _unkept(made: dict[str, Any], attempts: list[Any]) -> None:
    made["prepared"][0].update(state="unkept", bytes=None, load_ns=None, why="no space")
    for attempt in attempts:
        attempt["cache"] = attempt["measurement"]["loaded_from_cache"] = None


def _gave_up(made: dict[str, Any], attempts: list[Any]) -> None:
    _unkept(made, attempts)
    made["prepared"][0].update(status="crashed", **NOTHING)


@pytest.mark.parametrize("edit", [_made_anew, _unkept, _gave_up])
def test_what_really_happens_is_no_contradiction(edit: Edit) -> None:
    made = document()
    edit(made, compiled_of(made)["attempts"])
    assert named(made) == []


def test_a_runtime_that_adds_to_its_files_may_grow_them_but_not_shrink_them() -> None:
    made = document(OPENVINO)
    attempts = compiled_of(made)["attempts"]
    for attempt in attempts[1:]:
        attempt["cache"]["bytes"] = 80
    assert named(made) == []
    attempts[2]["cache"]["bytes"] = 79
    assert [f.partition(".")[2] for f in named(made)] == ["attempts[2].cache.bytes"]


def test_another_partys_engine_may_know_of_a_cache_of_its_own() -> None:
    made = document(THIRD)
    compiled_of(made)["attempts"][0]["cache"] = None
    assert named(made) == []
