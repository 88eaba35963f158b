"""A job says all that a worker needs, and survives its journey."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from npumark.orchestrator.discover import Found, Runtime
from npumark.orchestrator.jobs import JobMaker, timing_options
from npumark.pack.manifest import Manifest, load_manifest, workload_from
from npumark.policy import load_policy
from npumark.score.planned import Planned, attempt_seed
from npumark.worker.protocol import EngineInfo, WindowOptions, decode_job

POLICY = load_policy()
INFO = EngineInfo("x-cpu", True, None, "x", "X", "1.0", options={"card": 3})


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    return load_manifest()


def maker(manifest: Manifest, info: EngineInfo = INFO, *, quick: bool = False) -> JobMaker:
    found = Found(info, Runtime("x", "x:Engine"))
    roots = Path("/pack"), Path("/cache")
    return JobMaker(manifest, POLICY, {"x-cpu": found}, *roots, "run", quick, 4)


PLANNED = Planned("x-cpu", "peak-512x2048x8", "fp32", "fp32", "FP32", "peak", "peak")
DERIVED = replace(PLANNED, variant="bf16", declared_format="BF16")


def test_a_job_holds_what_it_reads_with_stamps(manifest: Manifest) -> None:
    made = maker(manifest).measure(PLANNED, 1, {}, Path("/s"))
    job = decode_job(made.encode())
    workload = manifest.workloads[PLANNED.workload]
    assert {f.path for f in job.files} == set(workload.files("fp32"))
    assert all(f.sha256 == manifest.files[f.path].sha256 and f.stamp is None for f in job.files)
    assert workload_from(job.workload or {}) == workload
    assert (job.engine_ref, job.options, job.threads) == ("x:Engine", {"card": 3}, 4)
    assert (job.encoding, job.format) == ("", "")
    stamps = dict.fromkeys(workload.files("fp32"), (1, 2, 3))
    again = maker(manifest).measure(PLANNED, 1, stamps, Path("/s"))
    assert all(f.stamp == (1, 2, 3) for f in again.files)


def test_a_derived_encoding_is_asked_for_by_name(manifest: Manifest) -> None:
    job = maker(manifest).measure(DERIVED, 1, {}, Path("/s"))
    assert (job.encoding, job.format) == ("bf16", "BF16")
    assert job.variant is not None
    assert job.variant["id"] == "fp32"


def test_every_attempt_draws_its_own_checks() -> None:
    seeds = {attempt_seed(run, p, n) for run in "ab" for p in (PLANNED, DERIVED) for n in (1, 2)}
    assert len(seeds) == 8
    assert attempt_seed("a", PLANNED, 1) == attempt_seed("a", PLANNED, 1)


def test_a_window_is_warmed_up_for_as_an_attempt_is_and_draws_nothing(manifest: Manifest) -> None:
    alone = maker(manifest, quick=True).measure(PLANNED, 1, {}, Path("/s"))
    made = maker(manifest, quick=True).window(
        PLANNED, {}, Path("/w"), seconds=POLICY.box.window_s, cpus=(2, 3)
    )
    assert (made.kind, made.seed, made.profile_runs, made.cpus) == ("window", 0, 0, (2, 3))
    assert (made.window, made.samples_path) == (WindowOptions(POLICY.box.window_s), "/w")
    assert made.timing is not None
    assert alone.timing is not None
    assert made.timing.warmup_max_s == alone.timing.warmup_max_s
    assert made.timing.warmup_min_calls == alone.timing.warmup_min_calls
    assert (made.engine_ref, made.workload, made.files) == (
        alone.engine_ref,
        alone.workload,
        alone.files,
    )


def test_before_a_shorter_window_the_warm_up_may_take_less(manifest: Manifest) -> None:
    made = maker(manifest).window(PLANNED, {}, Path("/w"), seconds=POLICY.timing.loop_s / 4)
    assert made.timing is not None
    assert made.timing.warmup_max_s == POLICY.timing.warmup_max_s / 4


HELD = {"models-1/a.blob": (1, 2, 3)}


def test_a_compiled_model_is_named_by_all_that_it_depends_on(manifest: Manifest) -> None:
    base = maker(manifest).cache_dir(PLANNED)
    assert maker(manifest).measure(PLANNED, 2, {}, Path("/s"), {}).cache_dir == str(base)
    runtime = Runtime("x", "x:Engine", python="/py", environment="e", packages={"x": "1"})
    others = [
        maker(manifest).cache_dir(DERIVED),
        maker(manifest).cache_dir(replace(PLANNED, workload="peak-64x256x3")),
        replace(maker(manifest), threads=5).cache_dir(PLANNED),
        replace(maker(manifest), host={"cpu_model": "another"}).cache_dir(PLANNED),
        replace(maker(manifest), drivers={"x-cpu": {"driver": "1"}}).cache_dir(PLANNED),
        *(
            maker(manifest, replace(INFO, **change)).cache_dir(PLANNED)
            for change in (
                {"version": "1.1"},
                {"versions": {"driver": "9"}},
                {"options": {"card": 4}},
                {"processor": {"key": "other"}},
            )
        ),
        *(
            replace(
                maker(manifest), engines={"x-cpu": Found(INFO, replace(runtime, **change))}
            ).cache_dir(PLANNED)
            for change in ({}, {"python": "/other"}, {"packages": {"x": "2"}})
        ),
    ]
    assert len({base, *others}) == len(others) + 1


def test_a_quick_loop_is_shorter() -> None:
    whole, quick = (timing_options(POLICY, PLANNED, quick=q) for q in (False, True))
    assert (whole.loop_s, whole.min_iterations) == (2.0, 10)
    assert (quick.loop_s, quick.min_iterations) == (0.5, 3)


def test_an_engine_without_a_cache_is_given_no_place_for_one(manifest: Manifest) -> None:
    assert not maker(manifest).compiles(PLANNED)
    job = maker(manifest).measure(PLANNED, 1, {}, Path("/s"))
    assert (job.cache_dir, job.cache_stamps) == ("", {})


def test_an_entry_is_prepared_where_its_attempts_will_load(manifest: Manifest) -> None:
    caching = maker(manifest, replace(INFO, options={"cache": True}))
    assert caching.compiles(PLANNED)
    job = decode_job(caching.prepare(PLANNED, {}, HELD, rebuild=True).encode())
    attempt = decode_job(caching.measure(PLANNED, 1, {}, Path("/s"), HELD).encode())
    assert (job.kind, job.rebuild, job.samples_path, job.timing) == ("prepare", True, None, None)
    assert (attempt.kind, attempt.rebuild) == ("measure", False)
    assert job.cache_dir == attempt.cache_dir == str(caching.cache_dir(PLANNED))
    assert job.cache_stamps == attempt.cache_stamps == HELD
    assert job.files == attempt.files
