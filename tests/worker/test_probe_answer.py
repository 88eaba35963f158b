"""What probes answer: one that cannot be believed costs its own engine, and says why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from npumark.worker.protocol import MAX_ENGINES, EngineInfo, Result, decode_result

GOOD = EngineInfo(
    "x-npu",
    True,
    None,
    "x",
    "X",
    "1.0",
    processor={"key": "n0", "role": "NPU", "name": "N", "details": {"cores": 2}},
    variants=("fp32",),
)
CPU = {"key": "cpu", "role": "CPU", "name": None}


def answered(*engines: Any) -> tuple[EngineInfo, ...]:
    return decode_result(Result("ok", engines=engines).encode()).engines


def test_a_sound_answer_comes_through_as_it_is() -> None:
    missing = EngineInfo("x-gpu", False, "no driver", "x", "X", None)
    assert answered(GOOD, missing) == (GOOD, missing)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"processor": {"role": "TPU"}}, "the processor's role is 'TPU', not one of CPU, iGPU"),
        ({"processor": {}}, "the processor's role is None"),
        ({"processor": None}, "processor is None, not a table"),
        ({"processor": ["cpu"]}, "processor is ['cpu'], not a table"),
        ({"processor": {**CPU, "key": ["a"]}}, "the processor's key is ['a'], not text"),
        ({"processor": {**CPU, "details": [1]}}, "details are [1], not a table"),
        ({"processor": {**CPU, "details": {"a": "x" * 300_000}}}, "details take 3000"),
        ({"processor": {**CPU, "details": {"a": "\ud800"}}}, "details hold what is no text"),
        ({"variants": ("fp32", 1, None)}, "variants is ['fp32', 1, None], not a list of texts"),
        ({"available": "yes"}, "available is 'yes', not true or false"),
        ({"version": 5}, "version is 5, not text or null"),
        ({"versions": {"a": 1}}, "versions is {'a': 1}, not a table of texts"),
        ({"versions": ["a"]}, "versions is ['a'], not a table of texts"),
        ({"available": False, "reason": 5}, "reason is 5, not text or null"),
        ({"options": [1]}, "options is [1], not a table"),
        ({"emulated": 1}, "emulated is 1, not true or false"),
    ],
)
def test_one_bad_answer_is_one_line_and_the_others_stay(change: dict[str, Any], why: str) -> None:
    bad, good = answered(replace(GOOD, id="x-odd", **change), GOOD)
    assert good == GOOD
    assert (bad.id, bad.available, bad.processor) == ("x-odd", False, {})
    assert bad.reason is not None
    assert bad.reason.startswith("its probe answered nonsense: ")
    assert why in bad.reason


@pytest.mark.parametrize(
    "name", [None, 7, "", "../../evil\x1b[31m/x", "X-CPU", "x cpu", "x_cpu", "x\n", "x" * 65]
)
def test_an_id_that_cannot_be_one_is_not_used(name: Any) -> None:
    (bad,) = answered(replace(GOOD, id=name))
    assert (bad.id, bad.available) == ("", False)
    assert bad.reason is not None
    assert "is not made of a-z, 0-9, dots and dashes" in bad.reason
    assert bad.reason.isprintable()
    assert len(bad.reason) < 200


@pytest.mark.parametrize("answer", [{"id": "x"}, "x", None, 3, [GOOD.id]])
def test_what_is_no_engine_at_all_is_told_too(answer: Any) -> None:
    bad, good = answered(answer, GOOD)
    assert good == GOOD
    assert not bad.available
    assert "nonsense" in (bad.reason or "")


def test_no_list_and_an_endless_list() -> None:
    (bad,) = decode_result(Result("ok", engines=None).encode()).engines  # type: ignore[arg-type]
    assert not bad.available
    assert len(answered(*[GOOD] * (MAX_ENGINES + 1))) == MAX_ENGINES


def test_texts_come_in_without_control_characters() -> None:
    (found,) = answered(
        replace(
            GOOD,
            runtime_title="X\x07",
            version="1.0\n",
            versions={"a\x9b": "\x1b[31m2"},
            note="so\u202eit",
            processor={"role": "NPU", "name": "\x1b]0;title\x07Fast\x1b[0m NPU"},
        )
    )
    assert (found.runtime_title, found.version, found.versions) == ("X", "1.0", {"a": "2"})
    assert found.note == "so it"
    assert found.processor["name"] == "Fast NPU"
