"""Nothing is called a problem on computers that have none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.doctor.healthy import MACHINES


@pytest.mark.parametrize("name", MACHINES)
def test_a_healthy_machine_has_no_problem_and_few_notes(
    clinic: Any, tmp_path: Path, name: str
) -> None:
    make, notes, untold = MACHINES[name]
    clinic.host = make(tmp_path / name)
    found = clinic.seen().values()
    assert {one.id: one.sentence for one in found if one.state == "problem"} == {}
    assert {one.id for one in found if one.state == "note"} == notes
    unknown = {one.id for one in found if one.state == "unknown"}
    assert {name for name in unknown if not name.startswith("driver")} == untold
