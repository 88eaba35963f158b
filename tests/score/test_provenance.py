"""A record cannot be relabelled: what it says it is must agree with the manifest and itself."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from npumark.policy import load_policy
from npumark.record.model import Payload
from npumark.score.provenance import provenance
from tests import synthetic
from tests.synthetic import CPU, NPU, payload_of, simulate

POLICY = load_policy()
PACK = synthetic.manifest()
DOCUMENT = payload_of(simulate(synthetic.steady, (CPU, NPU))).model_dump(mode="json", by_alias=True)
ENTRY = next(i for i, e in enumerate(DOCUMENT["entries"]) if e["engine"] == CPU.id)


def named(document: dict[str, Any]) -> list[str]:
    return [d.path for d in provenance(Payload.model_validate(document), PACK, POLICY)]


def changed(*path: Any, to: Any) -> dict[str, Any]:
    document = copy.deepcopy(DOCUMENT)
    inner: Any = document
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = to
    return document


def test_a_true_record_contradicts_nothing() -> None:
    assert named(DOCUMENT) == []


@pytest.mark.parametrize("field", ["name", "version", "edition", "basis"])
def test_another_series_is_named(field: str) -> None:
    assert named(changed("suite", field, to="trained")) == [f"suite.{field}"]


def test_a_verified_suite_has_no_reason_not_to_be() -> None:
    assert named(changed("suite", "why_not", to="because")) == ["suite.why_not"]


@pytest.mark.parametrize("role", ["dGPU", "NPU"])
def test_a_processor_of_another_role_than_its_engines_is_named(role: str) -> None:
    i = next(i for i, p in enumerate(DOCUMENT["processors"]) if p["role"] == "CPU")
    assert "engines[0].processor" in named(changed("processors", i, "role", to=role))


def test_an_attempt_of_another_runtime_version_is_named() -> None:
    path = ("entries", ENTRY, "attempts", 0, "observed", "version")
    assert named(changed(*path, to="9.9")) == [f"entries[{ENTRY}].attempts[0].observed.version"]


def test_a_version_may_change_where_a_resumption_says_so() -> None:
    path = ("entries", ENTRY, "attempts", 0, "observed", "version")
    document = changed(*path, to="9.9")
    document["resumed"] = [{"at_ns": 1, "changed": [f"engine {CPU.id}"]}]
    assert named(document) == []


def test_an_invented_encoding_is_named() -> None:
    i = next(i for i, e in enumerate(DOCUMENT["entries"]) if e["variant"] == "int8-u8s8")
    assert named(changed("entries", i, "variant", to="int8-u8s8x")) == [f"entries[{i}].variant"]


def test_an_emulator_that_nobody_asked_for_is_named() -> None:
    document = changed("engines", 0, "emulated", to=True)
    processor = document["engines"][0]["processor"] = "cpu-emulated"
    document["processors"][0] |= {"id": processor, "details": {"emulated": True}}
    assert named(document) == ["plan.include_emulated"]
    document["plan"]["include_emulated"] = True
    assert named(document) == []


@pytest.mark.parametrize(
    ("name", "value", "violation"),
    [
        ("cpu_busy", 0.5, False),
        ("cpu_busy", 0.01, True),
        ("load_beside_measuring", 0.5, False),
        ("memory", {"available_bytes": 1, "needed_bytes": 2}, False),
        ("memory", {"available_bytes": 2, "needed_bytes": 1}, True),
        ("thermal", None, True),
    ],
)
def test_a_verdict_that_its_value_does_not_give_is_named(
    name: str, value: Any, violation: bool
) -> None:
    check = {"value": value, "why": None, "violation": violation}
    assert f"environment.checks.{name}.violation" in named(
        changed("environment", "checks", name, to=check)
    )
