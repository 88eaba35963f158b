"""A worker's life on virtual engines: in this process where it survives, in one of its own
where it does not."""

from __future__ import annotations

import functools
import gc
import hashlib
import os
import subprocess
import sys
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npumark.engines.virtual import VirtualSession
from npumark.errors import EngineError, WrongDevice
from npumark.gates.draw import drawn
from npumark.worker.__main__ import _encode, carry_out
from npumark.worker.evidence import sound
from npumark.worker.protocol import Job, Placement, Result, decode_result


def spawn(job: Job) -> tuple[int, bytes, bytes]:
    """Run a real worker; return exit status, what came through the pipe, and its stderr."""
    read, write = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-m", "npumark.worker", str(write)],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=(write,),
        cwd=Path(__file__).parents[2],
    ) as child:
        os.close(write)
        _, errors = child.communicate(job.encode(), timeout=60)
    with os.fdopen(read, "rb") as stream:
        return child.returncode, stream.read(), errors


def test_raw_samples_that_cannot_be_kept_cost_no_measurement(tiny: Any, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    result = tiny.run(samples_path=str(blocked / "samples" / "1.i64"))
    assert result.status == "ok"
    assert result.measurement is not None
    assert result.measurement.samples_sha256 is None


def test_a_folder_of_raw_samples_that_is_gone_is_made_again(tiny: Any, tmp_path: Path) -> None:
    path = tmp_path / "gone" / "1.i64"
    result = tiny.run(samples_path=str(path))
    assert result.measurement is not None
    raw = path.read_bytes()
    assert result.measurement.samples_sha256 == hashlib.sha256(raw).hexdigest()


def test_nobody_holds_the_call_when_the_runtime_is_asked_what_ran(
    tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine frees its timed session then: two copies of the weights need not fit."""
    calls: list[weakref.ref[Any]] = []
    held: list[bool] = []
    step, observed = VirtualSession.step, VirtualSession.observed

    def stepping(self: VirtualSession) -> Any:
        call = functools.partial(step(self))
        calls.append(weakref.ref(call))
        return call

    def observing(self: VirtualSession) -> Any:
        gc.collect()
        held.extend(call() is not None for call in calls)
        return observed(self)

    monkeypatch.setattr(VirtualSession, "step", stepping)
    monkeypatch.setattr(VirtualSession, "observed", observing)
    assert tiny.run().status == "ok"
    assert held == [False]


def test_an_attempt_tells_what_it_measured(tiny: Any) -> None:
    samples = tiny.root / "samples.bin"
    result = tiny.run(samples_path=str(samples))
    assert result.status == "ok"
    m = result.measurement
    assert m.iterations == 50
    assert m.timed_ns == 50_000_000
    assert m.latency.median == 1_000_000
    assert m.latency.p999 is None
    assert m.drift == 0
    assert m.burst_ips == m.sustained_ips == 1000
    assert m.measures == {"snr_db": 200.0}
    assert m.timed_check.passed
    assert m.timed_check.iterations == drawn(11, 4, 3, 50)
    assert result.placement.verdict == "proved"
    assert result.observed.precision == "FP32"
    assert set(result.stamps) == {"graph.onnx", "x.bin", "y.bin"}
    raw = samples.read_bytes()
    assert np.frombuffer(raw, "<i8").tolist() == [1_000_000] * 50
    assert m.samples_sha256 == hashlib.sha256(raw).hexdigest()
    assert [p.name for p in tiny.root.glob("*.tmp")] == []


def test_the_same_seed_gives_the_same_attempt(tiny: Any) -> None:
    tiny.script(
        noise=0.05, drift_per_s=1.0, episodes={"every_s": 0.02, "length_s": 0.004, "factor": 3}
    )
    first = tiny.run().measurement
    for path in (tiny.root / "script.attempts").iterdir():
        path.unlink()
    again = tiny.run().measurement
    assert first.timed_ns == again.timed_ns
    assert first.latency == again.latency
    third = tiny.run().measurement
    assert third.timed_ns != first.timed_ns


def test_a_worker_of_its_own_delivers_the_same(tiny: Any) -> None:
    inside = tiny.run()
    code, raw, _ = spawn(tiny.job())
    outside = decode_result(raw)
    assert code == 0
    assert outside.measurement.timed_ns == inside.measurement.timed_ns
    assert outside.measurement.peak_rss_bytes is None or outside.measurement.peak_rss_bytes > 1e6
    assert outside.measurement.import_ns > 0


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ({"do": "abort"}, -6),
        ({"do": "segfault"}, -11),
        ({"do": "segfault", "call": 6}, -11),
        ({"do": "kill"}, -9),
        ({"do": "exit", "code": 3}, 3),
        ({"do": "exit"}, 0),
    ],
    ids=str,
)
def test_deaths_leave_no_result(tiny: Any, fault: dict[str, Any], expected: int) -> None:
    tiny.script(fault)
    code, raw, _ = spawn(tiny.job())
    assert code == expected
    assert raw == b""


@pytest.mark.parametrize("do", ["half_json", "garbage"])
def test_a_result_that_is_not_whole_does_not_decode(tiny: Any, do: str) -> None:
    tiny.script({"do": do, "call": 4})
    code, raw, _ = spawn(tiny.job())
    assert code == 0
    assert raw
    with pytest.raises(ValueError):
        decode_result(raw)


def test_a_flood_on_stderr_does_not_touch_the_result(tiny: Any) -> None:
    tiny.script({"do": "stderr_flood", "bytes": 1 << 20})
    code, raw, errors = spawn(tiny.job())
    assert code == 0
    assert decode_result(raw).status == "ok"
    assert len(errors) >= 1 << 20


def test_a_hang_hangs(tiny: Any) -> None:
    tiny.script({"do": "hang"})
    read, write = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-m", "npumark.worker", str(write)],
        stdin=subprocess.PIPE,
        pass_fds=(write,),
        cwd=Path(__file__).parents[2],
    ) as child:
        os.close(write)
        with pytest.raises(subprocess.TimeoutExpired):
            child.communicate(tiny.job().encode(), timeout=1.5)
        child.kill()
    os.close(read)


@pytest.mark.parametrize(
    ("do", "status", "why"),
    [
        ("unsupported", "unsupported", "does not run this variant"),
        ("wrong_device", "wrong_device", "ran on the CPU"),
        ("raise", "crashed", "RuntimeError: a virtual fault of two lines"),
        ("out_of_memory", "crashed", "the runtime ran out of memory"),
    ],
)
def test_refusals_have_their_own_status_and_one_line(
    tiny: Any, do: str, status: str, why: str
) -> None:
    result = tiny.run({"do": do})
    assert result.status == status
    assert why in result.why
    assert "\n" not in result.why
    assert result.measurement is None


def test_a_fault_in_the_middle_of_the_loop_is_a_crash(tiny: Any) -> None:
    result = tiny.run({"do": "raise", "call": 20})
    assert result.status == "crashed"
    assert "a virtual fault" in result.why


def test_a_fault_may_be_planted_in_one_attempt(tiny: Any) -> None:
    tiny.script({"do": "raise", "attempts": [2]})
    assert [carry_out(tiny.job(), 0).status for _ in range(3)] == ["ok", "crashed", "ok"]


@pytest.mark.parametrize("do", ["nan", "nan_one", "inf", "zeros", "wrong_shape"])
def test_answers_that_are_none_have_no_measures(tiny: Any, do: str) -> None:
    m = tiny.run({"do": do}).measurement
    assert m.measures == {"snr_db": None}
    assert m.accuracy_why


@pytest.mark.parametrize(
    ("fault", "at_most"),
    [
        ({"do": "scale", "factor": 2.0}, 0.1),
        ({"do": "roll"}, 6),
        ({"do": "memoised"}, 6),
        ({"do": "noise", "snr_db": 15.0}, 20),
    ],
)
def test_wrong_answers_measure_badly(tiny: Any, fault: dict[str, Any], at_most: float) -> None:
    m = tiny.run(fault).measurement
    assert m.measures["snr_db"] < at_most


def test_clipping_in_float16_is_found(tiny: Any) -> None:
    m = tiny.run({"do": "fp16_clip", "gain": 1e5}).measurement
    assert m.measures == {"snr_db": None}
    assert "infinite" in m.accuracy_why


@pytest.mark.parametrize("seed", range(8))
def test_a_memoised_answer_in_the_timed_loop_alone_is_caught(tiny: Any, seed: int) -> None:
    m = tiny.run({"do": "memoised_when_timed"}, seed=seed).measurement
    assert m.measures == {"snr_db": 200.0}
    assert not m.timed_check.passed
    assert not m.timed_check.bit_identical


def test_jitter_passes_only_from_an_engine_that_declares_it(tiny: Any) -> None:
    tiny.script({"do": "jitter"})
    assert not carry_out(tiny.job(), 0).measurement.timed_check.passed
    tiny.script({"do": "jitter"}, nondeterministic=True)
    check = carry_out(tiny.job(), 0).measurement.timed_check
    assert check.passed
    assert check.nondeterministic
    assert not check.bit_identical


@pytest.mark.parametrize(
    ("told", "verdict"),
    [
        ({"verdict": "unproved", "share": None, "why": "asynchronous"}, "unproved"),
        ({"share": 0.4}, "proved"),
        ({"share": None}, "unproved"),
        ({"share": 1.5}, "unproved"),
        ({"share": -0.1}, "unproved"),
        ({"share": "1.0"}, "unproved"),
        ({"share": True}, "unproved"),
        ({"verdict": "certain"}, "unproved"),
        ({"partitions": -3}, "unproved"),
        ({"partitions": "two"}, "unproved"),
        ({"evidence": 7}, "unproved"),
    ],
)
def test_only_a_sound_placement_is_believed(tiny: Any, told: dict[str, Any], verdict: str) -> None:
    tiny.script(placement=told)
    placement = carry_out(tiny.job(), 0).placement
    assert placement.verdict == verdict
    if verdict == "unproved":
        assert placement.share is None
        assert placement.why


@pytest.mark.parametrize(
    "told",
    [
        None,
        {"verdict": "proved", "share": 1.0},
        Placement("proved", np.float32(1.0), None, None, "profile"),  # type: ignore[arg-type]
        Placement("proved", float("nan"), None, None, "profile"),
        Placement([], 1.0, None, None, "profile"),  # type: ignore[arg-type]
        Placement("proved", 1.0, None, 1, None),  # type: ignore[arg-type]
        Placement("proved", 10**400, None, 1, "profile"),
    ],
)
def test_a_proof_that_is_none_is_told_in_words(told: Any) -> None:
    found = sound(told)
    assert (found.verdict, found.share) == ("unproved", None)
    assert found.why
    assert sound(Placement("proved", "1.0", None, None, "x")).why == (  # type: ignore[arg-type]
        "the engine reported a share of '1.0', not a number between 0 and 1"
    )
    decode_result(Result("ok", placement=found).encode())
    good = Placement("proved", np.float64(1.0), 1.0, 1, "a \x1b[31mprofile")
    assert sound(good) == replace(good, evidence="a profile")


def test_a_proof_that_ends_the_program_is_none(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("npumark.engines.virtual.Virtual._placement", lambda *_: sys.exit("bye"))
    result = tiny.run()
    assert result.status == "ok"
    assert result.placement.why == "SystemExit: bye"


def test_a_placement_that_was_not_asked_for_is_unproved(tiny: Any) -> None:
    assert tiny.run(profile_runs=0).placement.verdict == "unproved"


def test_what_ran_is_told_apart_from_what_was_asked_for(tiny: Any) -> None:
    tiny.script(precision={"bf16": "BF16", "fp32": None}, device="CPU")
    asked = carry_out(tiny.job(encoding="bf16", format="BF16"), 0).observed
    assert (asked.precision, asked.device) == ("BF16", "CPU")
    unknown = carry_out(tiny.job(), 0).observed
    assert unknown.precision is None
    assert unknown.precision_why


class TestEvidenceThatCannotBeRead:
    """The measurement is finished by then, and stands."""

    @pytest.mark.parametrize(
        ("fault", "why"),
        [
            (EngineError("the runtime's profile is too large to be read"), "is too large"),
            (OSError(28, "No space left on device"), "No space left"),
            (MemoryError(), "out of memory"),
            (RuntimeError("two\nlines"), "RuntimeError: two lines"),
        ],
        ids=lambda x: type(x).__name__,
    )
    def test_it_leaves_what_ran_unknown(
        self, tiny: Any, monkeypatch: pytest.MonkeyPatch, fault: Exception, why: str
    ) -> None:
        def fail(_: object) -> None:
            raise fault

        monkeypatch.setattr("npumark.engines.virtual.VirtualSession.observed", fail)
        result = decode_result(tiny.run().encode())
        assert result.status == "ok"
        assert result.measurement.iterations == 50
        told = result.observed
        assert (told.precision, told.device, told.threads, told.version) == (None,) * 4
        assert why in told.precision_why
        assert result.placement.verdict == "unproved"
        assert result.placement.share is None
        assert why in result.placement.why

    def test_it_does_not_hide_work_that_ran_elsewhere(
        self, tiny: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(_: object) -> None:
            raise WrongDevice("executed on the CPU")

        monkeypatch.setattr("npumark.engines.virtual.VirtualSession.observed", fail)
        assert tiny.run().status == "wrong_device"

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("threads", -1),
            ("threads", True),
            ("versions", {"a": 3}),
            ("precision", 4),
            ("runtime", None),
        ],
    )
    def test_an_account_of_the_wrong_type_leaves_what_ran_unknown(
        self, tiny: Any, monkeypatch: pytest.MonkeyPatch, field: str, value: Any
    ) -> None:
        told = VirtualSession.observed
        monkeypatch.setattr(
            VirtualSession, "observed", lambda self: replace(told(self), **{field: value})
        )
        result = decode_result(tiny.run().encode())
        assert result.status == "ok"
        assert result.observed.precision is None
        assert field in result.observed.precision_why

    def test_its_words_have_no_control_characters(
        self, tiny: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        told = VirtualSession.observed
        monkeypatch.setattr(
            VirtualSession,
            "observed",
            lambda self: replace(
                told(self), precision="\x1b[31mFP32\x07", versions={"a\n": "1\x9b"}
            ),
        )
        observed = tiny.run().observed
        assert (observed.precision, observed.versions) == ("FP32", {"a": "1"})

    @pytest.mark.parametrize(
        "details",
        [{"x": "\ud800"}, "none", {"x": float("nan")}, {"x": object()}, {"x": "y" * (5 << 20)}],
    )
    def test_details_that_a_record_cannot_hold_are_left_out(
        self, tiny: Any, monkeypatch: pytest.MonkeyPatch, details: Any
    ) -> None:
        told = VirtualSession.observed
        monkeypatch.setattr(
            VirtualSession, "observed", lambda self: replace(told(self), details=details)
        )
        result = decode_result(_encode(tiny.run()))
        assert result.status == "ok"
        assert result.observed.precision == "FP32"
        assert list(result.observed.details) == ["why"]
        assert result.placement.verdict == "proved"

    def test_a_session_that_fails_at_closing_costs_nothing(
        self, tiny: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(_: object) -> None:
            raise RuntimeError

        monkeypatch.setattr("npumark.engines.virtual.VirtualSession.close", fail)
        result = tiny.run()
        assert result.status == "ok"
        assert result.observed.precision == "FP32"
        assert result.placement.verdict == "proved"


def test_a_changed_file_is_a_pack_error_that_names_it(tiny: Any) -> None:
    job = tiny.job()
    (tiny.root / "x.bin").write_bytes(b"\1" * (tiny.root / "x.bin").stat().st_size)
    tiny.script()
    result = carry_out(job, 0)
    assert result.status == "pack_error"
    assert result.why.startswith("x.bin ")


def test_a_file_that_the_job_does_not_check_is_a_pack_error(tiny: Any) -> None:
    result = tiny.run(files=tiny.job().files[:2])
    assert result.status == "pack_error"
    assert "y.bin" in result.why


def test_references_of_other_outputs_are_a_pack_error(tiny: Any) -> None:
    tiny.script()
    tiny.workload["eval"]["references"][0]["name"] = "z"
    result = carry_out(tiny.job(), 0)
    assert result.status == "pack_error"
    assert "differ in their outputs" in result.why


def test_an_engine_that_does_not_exist_is_a_crash_with_a_reason(tiny: Any) -> None:
    result = tiny.run(engine_ref="npumark.engines.nowhere:Engine")
    assert result.status == "crashed"
    assert "cannot be imported" in result.why


def test_no_other_engine_is_given_the_answers(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from npumark.engines import virtual

    class Impostor(virtual.Virtual):
        pass

    monkeypatch.setattr(virtual, "Impostor", Impostor, raising=False)
    result = tiny.run(engine_ref="npumark.engines.virtual:Impostor")
    # Untaught, it knows no input: it can neither answer nor bring its own clock.
    assert result.status == "crashed"
    assert "not of the eval set" in result.why


def test_a_probe_lists_the_engines_of_the_script(tiny: Any) -> None:
    tiny.script(available=False, reason="no driver")
    (info,) = tiny.run(kind="probe").engines
    assert info.virtual
    assert not info.available
    assert info.reason == "no driver"
    assert tiny.run(kind="probe", options={}).engines == ()


def test_a_script_with_a_slip_says_what_is_wrong(tiny: Any) -> None:
    tiny.script(latencyus={})
    result = tiny.run(kind="probe")
    assert result.status == "crashed"
    assert "latencyus" in result.why
    tiny.script({"do": "explode"})
    assert "explode" in tiny.run(kind="probe").why


def test_overhead_is_measured_on_the_engine_itself(tiny: Any) -> None:
    harness = tiny.run(kind="overhead").harness
    assert harness == {"call": 1_000_000, "bare_call": 1_000_000, "added": 0, "timer": 0}


def test_what_json_cannot_hold_is_a_crash_and_not_a_lost_result(tiny: Any) -> None:
    result = tiny.run()
    odd = replace(result, observed=replace(result.observed, details={"x": float("nan")}))
    assert decode_result(_encode(odd)).status == "crashed"


def test_a_job_of_another_version_is_no_job(tiny: Any) -> None:
    tiny.script()
    read, write = os.pipe()
    child = subprocess.run(
        [sys.executable, "-m", "npumark.worker", str(write)],
        input=b'{"schema": "npumark-worker/0"}',
        pass_fds=(write,),
        capture_output=True,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    os.close(write)
    os.close(read)
    assert child.returncode == 2
    assert b"not a job" in child.stderr
