"""What is told of environments that could be installed: their sizes, and what else they need."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from npumark.cli.engines import _document
from npumark.engines import catalogue
from npumark.orchestrator.environments import Standing, here
from npumark.orchestrator.survey import Survey
from npumark.report.environments import render_environments
from npumark.report.page import Page
from npumark.worker.protocol import EngineInfo


@pytest.mark.parametrize(
    ("name", "environment", "needs"),
    [
        ("ort-cuda-dgpu", "cuda", "NVIDIA's driver"),
        ("mlx-gpu", "mlx-cuda", "an NVIDIA card and its driver"),
        ("ort-openvino-cpu", "ort-openvino", None),
    ],
)
def test_a_script_learns_what_an_engine_needs_beside_its_environment(
    name: str, environment: str, needs: str | None
) -> None:
    reason = f"not installed; run `npumark engines install {environment}`"
    told: dict[str, Any] = _document(
        EngineInfo(name, False, reason, "x", "X", None), Survey((), (), {})
    )
    assert (told["installed_by"], told["also_needs"]) == (environment, needs)


def test_a_size_that_was_not_measured_is_told_where_it_is_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = tuple(replace(row, platforms=(here(),)) for row in catalogue.ENVIRONMENTS)
    monkeypatch.setattr(catalogue, "ENVIRONMENTS", rows)
    standings = [Standing(row.name, "absent") for row in rows]
    lines = render_environments(standings, {}, "/x", Page()).splitlines()
    sizes = {x.split()[0]: x.split("not installed")[1].strip() for x in lines if "not inst" in x}
    assert sizes["cuda"] == sizes["mlx-cuda"] == "several GB"
    assert sizes["ggml"] == "about 242 MB"
    assert sizes["migraphx"] == "—"


def test_an_environment_whose_providers_are_of_one_maker_names_it() -> None:
    """What runs on a CPU, in an emulator or on any card is made without asking."""
    asked = {row.name: row.maker for row in catalogue.ENVIRONMENTS if row.maker}
    assert asked == {
        "cuda": "NVIDIA",
        "tensorrt-rtx": "NVIDIA",
        "migraphx": "AMD",
        "mlx-cuda": "NVIDIA",
    }
