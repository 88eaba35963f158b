"""Every environment that is installed for the tests answers a probe, in its own interpreter."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from npumark.engines import catalogue
from npumark.engines.registry import registered
from npumark.orchestrator.environments import runs_here
from npumark.orchestrator.supervisor import Outcome
from npumark.worker.protocol import Job

NAMES = ("ggml", "ort-openvino", "qnn", "webgpu", "mlx")
"""Those that `tool/dev.py test` installs: they need no hardware of their own."""

HERE = [row.name for row in catalogue.ENVIRONMENTS if row.name in NAMES and runs_here(row)]


@pytest.mark.parametrize("name", HERE)
def test_an_installed_environment_answers(
    name: str, run_worker: Callable[..., Outcome], engine_environment: Callable[[str], str]
) -> None:
    row = catalogue.environment(name)
    assert row is not None
    engine_environment(name)
    refs = {entry.name: entry.ref for entry in registered()}
    for runtime in row.runtimes:
        job = Job("probe", refs[runtime], options={"only": list(row.providers)})
        out = run_worker(job, name)
        assert out.status in ("ok", "unsupported"), (out.why, out.log_tail)
