"""Batches, automatic devices and compiled models, diagnosed whole on virtual engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from npumark.diagnose.document import ProbeFinding, read_document
from npumark.diagnose.reading import differences
from npumark.diagnose.registry import PROBES
from npumark.orchestrator.diagnose_request import DiagnoseRequest
from npumark.orchestrator.diagnosing import execute

Card = Callable[..., dict[str, Any]]
Diagnose = Callable[..., ProbeFinding]

RULES = {"diagnose.loop_s": "0.05", "level_s": "0.02", "batches": "[1, 2, 4]", "cold_loads": "2"}


@pytest.fixture
def diagnose(bench: Any) -> Diagnose:
    bench.rules.update(RULES)

    def run(card: dict[str, Any], probe: str) -> ProbeFinding:
        request = DiagnoseRequest(
            virtual=bench.script(card),
            manifest=bench.manifest,
            skip_preconditions=True,
            probes=(probe,),
        )
        outcome = execute(request, lambda _: None, policy=bench.policy)
        payload = read_document(outcome.path).payload
        assert differences(payload, outcome.path.parent, PROBES) == []
        (target,) = payload.targets
        (found,) = target.findings
        return found

    return run


def test_inputs_of_a_batch_take_as_long_as_alone(diagnose: Diagnose, make_card: Card) -> None:
    found = diagnose(make_card(), "batching")
    assert [(row["batch"], row["ips"]) for row in found.rows] == [(1, 500), (2, 500), (4, 500)]
    assert [row["median_ns"] for row in found.rows] == [2_000_000, 4_000_000, 8_000_000]
    assert [(r.name, r.value) for r in found.ratios] == [("batching_gain", 1.0)]


def test_a_batch_that_answers_otherwise_has_no_rate(diagnose: Diagnose, make_card: Card) -> None:
    card = make_card(faults=[{"do": "roll", "when": "batch"}])
    found = diagnose(card, "batching")
    assert (found.status, found.rows) == ("failed", [])
    assert found.why is not None
    assert found.why.startswith("batch 2 answers differently: row 1 agrees")


def test_a_network_that_allows_no_batch_says_so(diagnose: Diagnose, make_card: Card) -> None:
    card = make_card(faults=[{"do": "unsupported", "when": "batch"}])
    found = diagnose(card, "batching")
    assert found.status == "not_applicable"
    assert found.why == "not allowed: the virtual engine does not run this variant"


def test_what_was_picked_is_told_beside_what_it_gives(diagnose: Diagnose, make_card: Card) -> None:
    found = diagnose(make_card(), "auto_scheduler")
    assert found.rows[1]["choice"] == "AUTO"
    assert found.rows[1]["picked"]
    assert {r.name for r in found.ratios} == {"auto_rate", "auto_load"}
    assert found.ratios[0].value == 1.0


def test_cold_loads_compile_and_warm_ones_do_not(diagnose: Diagnose, make_card: Card) -> None:
    found = diagnose(make_card(compiles={"bytes": 4096, "seconds": 0.2}), "compile_cache")
    assert [(row["load"], row["loads"]) for row in found.rows] == [("cold", 2), ("warm", 2)]
    assert [s.facts["cache"] for s in found.steps] == ["built", "reused"] * 2
    # Compiling sleeps for 0.2 s; a load of the compiled model reads 4 kB.
    assert found.rows[0]["load_ns"] >= 200_000_000
    assert found.ratios[0].value > 1


def test_an_engine_that_compiles_at_every_load_has_no_cache_to_probe(
    diagnose: Diagnose, make_card: Card
) -> None:
    found = diagnose(make_card(), "compile_cache")
    assert (found.status, found.steps) == ("not_applicable", [])
    assert found.why is not None
    assert found.why.startswith("this engine keeps no compiled model")
