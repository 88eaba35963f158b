"""Discovery: every probe's fate is told, and one that fails costs only its own engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from npumark.engines import catalogue
from npumark.engines.ort_plugins import OTHERS
from npumark.engines.registry import BUILT_IN
from npumark.orchestrator import discover
from npumark.orchestrator.discover import Found, Runtime, in_parts, merge, observed
from npumark.orchestrator.environments import standing
from npumark.orchestrator.supervisor import Outcome
from npumark.orchestrator.survey import with_environments
from npumark.worker.protocol import EngineInfo, Result, Status


def outcome(status: Status, why: str | None, result: Result | None, log: str = "") -> Outcome:
    return Outcome(status, why, result, 0, 0, 0, log)


def engine(name: str, reason: str | None = None) -> EngineInfo:
    return EngineInfo(name, reason is None, reason, "x", "X", "1.0")


def one(runtime: str, out: Outcome) -> Found:
    (found,) = merge(((Runtime(runtime, f"{runtime}:Engine"), out),))
    return found


def test_engines_are_listed_in_order_with_their_runtime() -> None:
    good = Result("ok", engines=(engine("x-cpu"), engine("x-gpu", "no driver")))
    found = merge(
        (
            (Runtime("x", "x:E"), outcome("ok", None, good)),
            (Runtime("y", "y:E"), outcome("crashed", "the worker died: SIGSEGV", None)),
        )
    )
    assert [(f.info.id, f.info.available, f.runtime.name) for f in found] == [
        ("x-cpu", True, "x"),
        ("x-gpu", False, "x"),
        ("y", False, "y"),
    ]
    assert found[1].info.reason == "no driver"
    assert found[2].info.reason == "the worker died: SIGSEGV"


def test_a_failed_probe_says_why() -> None:
    unsupported = Result("unsupported", "openvino is not installed")
    found = one("x", outcome("unsupported", unsupported.why, unsupported))
    assert found.info.reason == "openvino is not installed"
    hung = one("x", outcome("timeout", "no end within 60 s", None, "a\nloading driver\n"))
    assert hung.info.reason == (
        "its probe hung: no end within 60 s (it last wrote: loading driver)"
    )
    empty = one("x", outcome("ok", None, Result("ok")))
    assert empty.info.reason == "its probe found no device"


def lines(runtime: str, why: str, *, environment: str | None = None) -> list[tuple[str, str]]:
    options = {"only": ["mlx"]} if environment == "mlx" else {}
    asked = Runtime(runtime, "x:E", options, environment=environment)
    status: Status = "unsupported" if environment is None else "crashed"
    found = merge(((asked, outcome(status, why, None)),))
    assert not any(f.info.available for f in found)
    return [(f.info.id, f.info.reason or "") for f in found]


def test_a_runtime_without_a_device_has_a_line_for_each_of_its_engines() -> None:
    why = "Core ML needs macOS"
    assert lines("coreml", why) == [
        ("coreml-ane", why),
        ("coreml-gpu", why),
        ("coreml-cpu", why),
    ]
    assert [name for name, _ in lines("openvino", why)] == [
        "openvino-cpu",
        "openvino-gpu",
        "openvino-npu",
    ]
    assert {name for name, _ in lines("mlx", why)} == {"mlx-gpu", "mlx-cpu"}
    broken = lines("mlx", "the worker died", environment="mlx")
    assert {name for name, _ in broken} == {"mlx-gpu", "mlx-cpu"}
    assert lines("theirs", why) == [("theirs", why)]


def test_what_an_environment_would_bring_is_not_said_to_fail_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(discover, "here", lambda: "linux-x86_64")
    named = {name for name, _ in lines("ort", "it is not whole")}
    assert {"ort-cpu", "ort-coreml-ane", "ort-dml-gpu"} <= named
    assert not {name for name in named if name.startswith(("ort-qnn", "ort-webgpu", "ort-cuda"))}


def test_an_id_belongs_to_the_first_that_claims_it() -> None:
    both = tuple(
        (Runtime(name, f"{name}:E"), outcome("ok", None, Result("ok", engines=(engine("x-cpu"),))))
        for name in ("first", "second")
    )
    kept, refused = merge(both)
    assert (kept.info.available, kept.runtime.name) == (True, "first")
    assert not refused.info.available
    assert refused.info.reason == "first already provides an engine x-cpu"


@pytest.mark.parametrize("name", ["ort-cpu", "ort-qnn-npu", "ort-dml-gpu-2", "ort", "ort-new-npu"])
@pytest.mark.parametrize("first", [True, False])
def test_a_built_in_id_is_no_one_elses(name: str, first: bool) -> None:
    """Those of the catalogue, whether or not the engine is here, and what built-ins answer."""
    stranger = Runtime("aaa", "aaa:E", package="liar 1.0")
    theirs = (
        stranger,
        outcome("ok", None, Result("ok", engines=(engine(name), engine("aaa-cpu")))),
    )
    ours = (
        Runtime("ort", BUILT_IN["ort"]),
        outcome("ok", None, Result("ok", engines=(engine("ort-cpu"), engine("ort-new-npu")))),
    )
    found = merge((theirs, ours) if first else (ours, theirs))
    usable = {f.info.id: f.runtime.name for f in found if f.info.available}
    assert usable == {"ort-cpu": "ort", "ort-new-npu": "ort", "aaa-cpu": "aaa"}
    (refused,) = [f.info for f in found if not f.info.available]
    assert refused.id == name
    assert refused.reason == f"liar 1.0 claims the id {name} of a built-in engine"


def test_an_environments_engine_keeps_its_id() -> None:
    theirs = Runtime("aaa", "aaa:E", package="liar 1.0")
    ours = Runtime("ort", BUILT_IN["ort"], environment="qnn", python="python")
    answer = outcome("ok", None, Result("ok", engines=(engine("ort-qnn-npu"),)))
    found = merge(((theirs, answer), (ours, answer)))
    assert [(f.runtime.name, f.info.available) for f in found] == [("ort", True), ("aaa", False)]


def test_whose_an_engine_is_is_not_its_own_to_say() -> None:
    told = replace(engine("x-npu"), runtime="ort", package=None, environment="qnn")
    answer = outcome("ok", None, Result("ok", engines=(told,)))
    (found,) = merge(((Runtime("x", "x:E", package="liar 1.0"), answer),))
    assert (found.info.package, found.info.runtime) == ("liar 1.0", "x")
    assert found.info.environment is None
    (own,) = merge(
        (
            (
                Runtime("x", "x:E"),
                outcome("ok", None, Result("ok", engines=(replace(told, package="p"),))),
            ),
        )
    )
    assert own.info.package is None


def test_an_answer_without_an_id_goes_by_its_runtimes_name() -> None:
    bad = EngineInfo("", False, "its probe answered nonsense: the id None", "", "", None)
    named, good = merge(
        ((Runtime("x", "x:E"), outcome("ok", None, Result("ok", engines=(bad, engine("x-cpu"))))),)
    )
    assert (named.info.id, named.info.runtime_title) == ("x", "x")
    assert good.info.available


def test_a_runtime_that_broke_is_told_from_one_that_is_not_here() -> None:
    assert one("x", outcome("crashed", "AttributeError: no attribute", None)).failed
    assert one("x", outcome("no_result", "the worker ended without a result", None)).failed
    assert one("x", outcome("timeout", "no end within 60 s", None)).failed
    assert not one("x", outcome("ok", None, Result("ok"))).failed
    assert not one("x", outcome("unsupported", "it is not for this system", None)).failed
    missing = "ModuleNotFoundError: No module named 'openvino'"
    assert not one("x", outcome("crashed", missing, None)).failed


def test_a_reason_has_no_control_characters() -> None:
    odd = one("x", outcome("crashed", "\x1b[31mred\x1b[0m\x07\n text\u202e\x9b", None))
    assert odd.info.reason == "red text"
    listed = Result("ok", engines=(engine("x-gpu", "no \x1b[1mdriver"),))
    assert one("x", outcome("ok", None, listed)).info.reason == "no driver"


def answers(
    runtime: Runtime, broken: Callable[[list[str] | None], Outcome | None]
) -> tuple[list[list[str] | None], dict[str, Found]]:
    """Return what a runtime was asked for, one after another, and what was found.

    ``broken`` says how a probe for these ends, null where it answers with an engine each.
    """
    asked: list[list[str] | None] = []

    def ask(part: Runtime) -> tuple[Runtime, Outcome]:
        only = part.options.get("only")
        asked.append(only)
        engines = tuple(engine(f"{name}-engine") for name in only or ())
        return part, broken(only) or outcome("ok", None, Result("ok", engines=engines))

    return asked, {f.info.id: f for f in merge(in_parts(runtime, ask))}


DEAD = outcome("crashed", "the worker died: SIGSEGV", None, "loading the driver\n")
HUNG = outcome("timeout", "no end within 60 s", None)
RAISED = outcome("crashed", "ImportError: libx.so", Result("crashed", "ImportError: libx.so"))


def test_a_device_that_brings_the_probe_down_costs_its_own_engine_alone() -> None:
    runtime = Runtime("openvino", "x:E")
    asked, found = answers(runtime, lambda only: DEAD if only in (None, ["GPU"]) else None)
    assert asked == [None, ["CPU"], ["GPU"], ["NPU"]]
    assert list(found) == ["CPU-engine", "openvino-gpu", "NPU-engine"]
    gpu = found["openvino-gpu"]
    assert gpu.info.reason == "the worker died: SIGSEGV (it last wrote: loading the driver)"
    assert gpu.failed
    assert not found["CPU-engine"].failed


def test_a_plug_in_that_hangs_costs_its_own_engine_alone() -> None:
    hangs = catalogue.provider("ort-webgpu")
    assert hangs is not None
    runtime = Runtime("ort", "x:E")
    asked, found = answers(runtime, lambda only: HUNG if only in (None, [hangs.id]) else None)
    assert asked[:2] == [None, ["ort-cpu"]]
    assert asked[-1] == [OTHERS]
    named = [name for only in asked[1:-1] for name in only or ()]
    assert sorted(named) == sorted(row.id for row in catalogue.PROVIDERS if row.runtime == "ort")
    failed = {name: f.info.reason for name, f in found.items() if f.failed}
    assert failed == {"ort-webgpu-gpu": "its probe hung: no end within 60 s"}
    assert found["ort-cpu-engine"].info.available


def test_a_plug_in_that_the_catalogue_does_not_know_is_told_of_too() -> None:
    _, found = answers(
        Runtime("ort", "x:E"), lambda only: DEAD if only in (None, [OTHERS]) else None
    )
    (line,) = [f for f in found.values() if f.failed]
    assert line.info.id == "ort-others"
    assert "providers that npumark does not know: the worker died: SIGSEGV" in str(line.info.reason)


@pytest.mark.parametrize("fate", [HUNG, RAISED])
def test_a_runtime_that_fails_by_itself_is_not_asked_for_every_part(fate: Outcome) -> None:
    whole = merge(((Runtime("ort", "x:E"), fate),))
    asked, found = answers(Runtime("ort", "x:E"), lambda _: fate)
    assert asked == [None, ["ort-cpu"]]
    assert list(found.values()) == list(whole)


def test_a_runtime_that_dies_in_every_part_is_told_once() -> None:
    whole = merge(((Runtime("litert", "x:E"), DEAD),))
    asked, found = answers(Runtime("litert", "x:E"), lambda _: DEAD)
    assert len(asked) == 4
    assert list(found.values()) == list(whole)


@pytest.mark.parametrize(
    "fate",
    [
        outcome("crashed", "ModuleNotFoundError: No module named 'openvino'", None),
        outcome("unsupported", "not for this system", None),
        outcome("interrupted", "stopped by the user", None),
    ],
)
def test_what_is_not_here_or_was_stopped_is_asked_once(fate: Outcome) -> None:
    asked, _ = answers(Runtime("openvino", "x:E"), lambda _: fate)
    assert asked == [None]


def test_an_environments_providers_are_asked_for_alone_too() -> None:
    runtime = Runtime("ort", "x:E", {"only": ["ort-cuda", "ort-tensorrt"]}, "/p", "cuda")
    bad = ["ort-tensorrt"]
    asked, found = answers(runtime, lambda only: DEAD if bad[0] in (only or ()) else None)
    assert asked == [["ort-cuda", "ort-tensorrt"], ["ort-cuda"], ["ort-tensorrt"]]
    assert found["ort-cuda-engine"].info.available
    line = found["ort-tensorrt-dgpu"]
    assert "`npumark engines install cuda --again`" in str(line.info.reason)
    one = replace(runtime, options={"only": bad})
    assert answers(one, lambda _: DEAD)[0] == [bad]  # it is alone already


def test_the_python_that_ran_is_what_is_told() -> None:
    runtime = Runtime("ort", "x:E", {"only": ["ort-ggml"]}, "/p", "ggml", {}, "3.11.7", "0" * 64)
    ran = outcome("ok", None, Result("ok", engines=(engine("ort-ggml-cpu"),), python="3.11.9"))
    (found,) = merge((observed(runtime, ran),))
    assert found.info.available
    held = found.runtime.held()
    assert held is not None
    assert held["python"] == "3.11.9"


def test_another_minor_python_than_the_packages_are_for_is_the_reason() -> None:
    """The packages are in the folder of another version: what the probe misses is no news."""
    runtime = Runtime("ort", "x:E", {"only": ["ort-ggml"]}, "/p", "ggml", {}, "3.11.7", "0" * 64)
    why = "ModuleNotFoundError: No module named 'numpy'"
    ran = outcome("crashed", why, Result("crashed", why, python="3.12.1"), "Traceback\n")
    (found,) = merge((observed(runtime, ran),))
    assert (found.info.available, found.failed) == (False, True)
    assert found.info.reason == (
        "its interpreter is now Python 3.12.1, and its packages are for Python 3.11.7; "
        "`npumark engines install ggml --again` makes its environment anew"
    )


@pytest.mark.parametrize(
    "why",
    [
        "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory",
        "MLX cannot be loaded: it needs NVIDIA's driver, which is not here",
    ],
)
def test_an_environment_that_lacks_a_driver_is_not_to_be_made_anew(
    why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in ("discover", "survey", "environments"):
        monkeypatch.setattr(f"npumark.orchestrator.{module}.here", lambda: "linux-x86_64")
    runtime = Runtime("mlx", "x:E", {}, "/p", "mlx-cuda", {}, "3.11.7", "0" * 64)
    (line,) = merge(((runtime, outcome("crashed", why, None)),))
    assert (line.info.id, line.failed) == ("mlx-gpu", True)
    assert str(line.info.reason).endswith(
        "it needs NVIDIA's driver, which is not here; install that, or free the space with "
        "`npumark engines remove mlx-cuda`"
    )
    # What it does not bring is to be had from the environment that does.
    told = {
        f.info.id: f.info.reason for f in with_environments((line,), (standing("mlx", tmp_path),))
    }
    assert told["mlx-cpu"] == "not installed; run `npumark engines install mlx`"
