"""Discovery: every probe's fate is told, and one that fails costs only its own engine."""

from __future__ import annotations

from npumark.orchestrator.discover import Found, Runtime, merge
from npumark.orchestrator.supervisor import Outcome
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


def test_an_id_belongs_to_the_first_that_claims_it() -> None:
    both = tuple(
        (Runtime(name, f"{name}:E"), outcome("ok", None, Result("ok", engines=(engine("x-cpu"),))))
        for name in ("first", "second")
    )
    kept, refused = merge(both)
    assert (kept.info.available, kept.runtime.name) == (True, "first")
    assert not refused.info.available
    assert refused.info.reason == "first already provides an engine x-cpu"


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
