"""A worker in an environment of its own: its interpreter, its packages, and of ours one alone."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

import npumark
from npumark.orchestrator.discover import Runtime, discover
from npumark.orchestrator.interrupts import Interrupts
from npumark.orchestrator.supervisor import Outcome, supervise
from npumark.policy import load_policy
from npumark.worker.protocol import Job

pytestmark = pytest.mark.skipif(os.name != "posix", reason="links packages into an environment")

LIMITS = load_policy().worker

EVERY_MODULE = """
import importlib
import pkgutil
import sys

import npumark.engines
import npumark.worker

for package in (npumark.engines, npumark.worker):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)


def facts():
    return {"loaded": sorted({m.partition(".")[0] for m, v in sys.modules.items() if v})}
"""


def probe(apart: Any, **options: Any) -> Outcome:
    return supervise(
        Job("probe", "stub_engine:Stub", options=options),
        limits=LIMITS,
        deadline_s=60.0,
        interrupts=Interrupts(),
        marker="test",
        python=apart.python,
    )


def test_a_worker_runs_in_the_environments_interpreter_and_imports_npumark_alone(
    apart: Any,
) -> None:
    out = probe(apart, only=["stub"])
    assert out.result is not None, out.log_tail
    (info,) = out.result.engines
    assert info.options["only"] == ["stub"]
    assert info.options["python"] == apart.python
    assert info.options["neighbours"] == []
    ours = set(info.options["loaded"]) - set(sys.stdlib_module_names)
    assert ours - {"__main__"} == {"npumark", "numpy", "stub_engine", "stub_runtime"}
    assert str(Path(npumark.__file__).parents[1]) not in info.options["path"]


def test_every_module_of_a_worker_imports_there(apart: Any) -> None:
    """What no stub engine reaches: the modules that measure, prove and read back."""
    apart.write(stub_runtime=EVERY_MODULE)
    out = probe(apart)
    assert out.result is not None, out.log_tail
    assert out.status == "ok", out.why
    foreign = set(out.result.engines[0].options["loaded"]) - set(sys.stdlib_module_names)
    assert foreign <= {"__main__", "npumark", "numpy", "psutil", "stub_engine", "stub_runtime"}


def test_an_engine_tells_its_environment(apart: Any) -> None:
    runtime = Runtime("stub", "stub_engine:Stub", {}, apart.python, "other", {"stub": "1.0"})
    (found,) = discover(
        (runtime,), limits=LIMITS, interrupts=Interrupts(), marker="test", parallel=1
    )
    assert found.info.available, found.info.reason
    assert found.info.environment == "other"
    assert found.runtime.python == apart.python


ABORTS_FOR_ONE = """
import os
import sys

from npumark.engines.base import Engine
from npumark.worker.protocol import EngineInfo


class Stub(Engine):
    name = "openvino"

    def _probe(self, options):
        found = []
        for kind in options.get("only", ["CPU", "GPU", "NPU"]):
            if kind == "GPU":
                sys.stderr.write("the GPU's driver is of another age\\n")
                os.abort()
            processor = {"role": "CPU" if kind == "CPU" else "NPU"}
            id_ = f"openvino-{kind.lower()}"
            found.append(EngineInfo(id_, True, None, "x", "X", "1.0", processor=processor))
        return tuple(found)

    def _load(self, request):
        raise NotImplementedError

    def _placement(self, request, feed, runs):
        raise NotImplementedError
"""


def test_a_driver_that_aborts_the_probe_leaves_the_other_engines(apart: Any) -> None:
    apart.write(stub_engine=ABORTS_FOR_ONE)
    runtime = Runtime("openvino", "stub_engine:Stub", {}, apart.python)
    found = discover((runtime,), limits=LIMITS, interrupts=Interrupts(), marker="test")
    assert [(f.info.id, f.info.available, f.failed) for f in found] == [
        ("openvino-cpu", True, False),
        ("openvino-gpu", False, True),
        ("openvino-npu", True, False),
    ]
    assert found[1].info.reason == (
        "the worker died: SIGABRT (it last wrote: the GPU's driver is of another age)"
    )


def test_a_worker_tells_the_python_that_ran_it(apart: Any) -> None:
    out = probe(apart)
    assert out.result is not None, out.log_tail
    assert out.result.python == sys.version.split()[0]
    apart.write(stub_runtime="raise ImportError('broken')\n")
    broken = probe(apart)
    assert (broken.status, broken.result and broken.result.python) == (
        "crashed",
        sys.version.split()[0],
    )
