from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npumark.engines.ort_profile import Kernel, Profile, Span, read_profile
from npumark.engines.ort_timeline import share_of_calls
from tests.real.onnx_chains import quantised_chain

OWN, CPU = "GpuExecutionProvider", "CPUExecutionProvider"


def at(provider: str | None, start: int, microseconds: int) -> Kernel:
    return Kernel("MatMul", provider, Span(start, microseconds), (), ())


def share(*kernels: Kernel, calls: tuple[Span, ...] = (Span(0, 100),)) -> float | None:
    return share_of_calls(Profile(kernels, len(calls), None, calls), OWN)[0]


def test_the_wait_for_its_device_is_the_providers() -> None:
    assert share(at(OWN, 0, 2), at(OWN, 3, 2)) == 1.0
    assert share(at(OWN, 40, 2)) == 1.0


def test_a_stretch_with_anothers_kernel_is_the_others_with_all_its_gaps() -> None:
    # From 2 to 60 the provider waited, the other worked 10 of 58 us, and the device may have too.
    assert share(at(OWN, 0, 2), at(CPU, 30, 10), at(OWN, 60, 2)) == pytest.approx(0.42)
    assert share(at(CPU, 5, 1), at(OWN, 50, 2)) == 0.5
    assert share(at(OWN, 0, 50), at(None, 70, 1)) == 0.5


def test_a_stretch_is_charged_for_a_kernel_too_short_for_the_clock() -> None:
    assert share(at(OWN, 0, 50), at(CPU, 60, 0)) == 0.5
    assert share(at(OWN, 0, 50), at(CPU, 100, 0)) == 0.5


def test_anothers_kernel_during_its_own_is_the_others() -> None:
    # A kernel that holds others (If, Loop), and one that begins before another ends.
    assert share(at(OWN, 0, 100), at(CPU, 20, 30)) == 0.7
    assert share(at(OWN, 0, 60), at(CPU, 40, 40), at(OWN, 80, 20)) == pytest.approx(0.6)


def test_each_call_is_looked_at_alone() -> None:
    calls = (Span(0, 100), Span(101, 100))
    # The second call begins with another's kernel, within the clock's cut of the first's end.
    assert share(at(OWN, 0, 100), at(CPU, 102, 10), at(OWN, 151, 50), calls=calls) == 0.75
    assert share(at(OWN, 0, 100), at(CPU, 110, 10), calls=calls) == 0.5


def test_what_the_profile_does_not_tell_is_null_and_says_why() -> None:
    assert share_of_calls(Profile((at(OWN, 0, 1),), 1, None), OWN) == (
        None,
        "the profile does not say how long the calls lasted",
    )
    for start in (-1, 103):
        told = share_of_calls(Profile((at(CPU, start, 9),), 1, None, (Span(0, 100),)), OWN)
        assert told == (None, "the profile has kernels outside of the calls that it holds")


timelines = st.lists(
    st.tuples(st.sampled_from([OWN, CPU, None]), st.integers(0, 30), st.integers(0, 30)),
    min_size=1,
    max_size=12,
)


@given(timelines, st.integers(1, 40))
def test_the_share_never_exceeds_what_others_left(
    told: list[tuple[str | None, int, int]], tail: int
) -> None:
    now, kernels = 0, []
    for provider, gap, length in told:
        kernels.append(at(provider, now + gap, length))
        now += gap + length
    calls = (Span(0, now + tail),)
    found = share(*kernels, calls=calls)
    others = sum(k.microseconds for k in kernels if k.provider != OWN)
    assert found is not None
    assert 0 <= found <= 1 - others / calls[0].microseconds
    elsewhere = [at(CPU, k.span.start, k.microseconds) for k in kernels]
    assert share(*elsewhere, calls=calls) == 0
    # Gaps between kernels of others, and around them, are credited to nobody but these.
    if OWN not in {k.provider for k in kernels}:
        assert found == 0


def test_a_real_run_on_another_provider_leaves_nothing(tmp_path: Path) -> None:
    model = tmp_path / "graph.onnx"
    model.write_bytes(quantised_chain().SerializeToString())
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    session = onnxruntime.InferenceSession(model, options, providers=[CPU])
    (x,) = session.get_inputs()
    for _ in range(3):
        session.run(None, {x.name: np.zeros(x.shape, np.float32)})
    profile = read_profile(Path(session.end_profiling()), 3)
    kernels = sum(k.microseconds for k in profile.kernels)
    assert 0 < kernels < sum(call.microseconds for call in profile.calls)
    assert share_of_calls(profile, OWN) == (0.0, None)
    assert share_of_calls(profile, CPU) == (1.0, None)
