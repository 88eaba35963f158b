"""Environments whose runtime aborts, raises, hangs or does not fit its NumPy: a line each, with
what to do, and the others still run."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from npumark.engines import catalogue
from npumark.engines.catalogue import Environment, Provider
from npumark.engines.registry import Registered
from npumark.orchestrator import survey
from npumark.orchestrator.environments import FILE, Seal, here, packages_in
from npumark.orchestrator.interrupts import Interrupts
from npumark.policy import load_policy

pytestmark = pytest.mark.skipif(os.name != "posix", reason="links packages into an environment")

RUNTIMES = {
    "good": "def facts():\n    return {}\n",
    "aborts": "import os, sys\nsys.stderr.write('cannot find the driver\\n')\nos.abort()\n",
    "raises": "raise ImportError('libdriver.so.3: cannot open shared object file')\n",
    "exits": "raise SystemExit(0)\n",
    "gone": "",
}
HANGS = "import time\nprint('waiting for the driver', flush=True)\ntime.sleep(600)\n"
OLD_NUMPY = """
raise ImportError('''
A module that was compiled using NumPy 1.x cannot be run in NumPy 2.4.6 as it may crash.
''')
"""


@pytest.fixture
def engines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_environment: Callable[[Path], Any]
) -> Callable[..., dict[str, tuple[bool, bool, str]]]:
    """Return a function that surveys environments by name: (available, failed, reason) by id."""
    root = tmp_path / "engines"
    monkeypatch.setenv("NPUMARK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NPUMARK_ENGINES", str(root))
    stub = Registered("stub", "stub_engine:Stub", None)
    # What npumark's own interpreter has is not what these tests are about.
    monkeypatch.setattr(survey, "registered", lambda: (stub,))
    monkeypatch.setattr(survey, "runtimes", lambda _: ((), ()))

    def make(deadline_s: float = 120.0, **sources: str) -> dict[str, tuple[bool, bool, str]]:
        rows, providers = [], []
        for name, source in sources.items():
            apart = make_environment(root / name)
            engine = (apart.site / "stub_engine.py").read_text().replace("stub-cpu", f"stub-{name}")
            apart.write(stub_engine=engine, stub_runtime=source)
            python = Path(apart.python).relative_to(apart.folder).as_posix()
            site = apart.site.relative_to(apart.folder).as_posix()
            seal = Seal(name, ("stub==1",), "3.11", python, site, packages_in(apart.site))
            (apart.folder / FILE).write_bytes(seal.encode())
            if name == "gone":
                (apart.folder / python).unlink()
            rows.append(Environment(name, name, ("stub==1",), (f"s-{name}",), ("stub",), (here(),)))
            providers.append(
                Provider(
                    f"s-{name}", "stub", None, "Stub", "native", None, (), name, (here(),),
                    ("CPU",), {"CPU": ""}, {"CPU": ("fp32",)},
                )
            )  # fmt: skip
        monkeypatch.setattr(catalogue, "ENVIRONMENTS", tuple(rows))
        monkeypatch.setattr(catalogue, "PROVIDERS", tuple(providers))
        policy = load_policy()
        policy = replace(policy, worker=replace(policy.worker, probe_deadline_s=deadline_s))
        found = survey.probe_all(None, policy, Interrupts(), "test")
        return {f.info.id: (f.info.available, f.failed, f.info.reason or "") for f in found.found}

    return make


def test_each_that_fails_is_a_line_with_the_fix_and_the_good_one_works(
    engines: Callable[..., dict[str, tuple[bool, bool, str]]],
) -> None:
    told = engines(**RUNTIMES)
    assert told.pop("stub-good") == (True, False, "")
    assert set(told) == {f"s-{name}" for name in RUNTIMES if name != "good"}
    whys = {
        "aborts": "the worker died: SIGABRT (it last wrote: cannot find the driver)",
        "raises": "ImportError: libdriver.so.3: cannot open shared object file",
        "exits": "SystemExit: 0",
    }
    for name, why in whys.items():
        available, failed, reason = told[f"s-{name}"]
        assert (available, failed) == (False, True)
        fix = f"`npumark engines install {name} --again` makes its environment anew"
        assert reason == f"{why}; {fix}"
    _, failed, reason = told["s-gone"]
    assert failed
    assert reason.startswith("its environment is broken: its interpreter ")
    assert reason.endswith(
        "is gone; `npumark engines install gone --again` makes its environment anew"
    )


def test_a_numpy_that_does_not_fit_is_told_in_a_line(
    engines: Callable[..., dict[str, tuple[bool, bool, str]]],
) -> None:
    (line,) = engines(old=OLD_NUMPY).values()
    assert line[:2] == (False, True)
    assert line[2].startswith("ImportError: A module that was compiled using NumPy 1.x cannot be")
    assert "\n" not in line[2]


def test_one_that_hangs_is_ended_and_told(
    engines: Callable[..., dict[str, tuple[bool, bool, str]]],
) -> None:
    (line,) = engines(deadline_s=5.0, hangs=HANGS).values()
    assert line[:2] == (False, True)
    assert line[2].startswith("its probe hung: no end within 5 s")
    assert line[2].endswith("`npumark engines install hangs --again` makes its environment anew")
