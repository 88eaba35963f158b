"""One attempt: verify, load afresh, warm up, time, judge the answers' raw measures, place."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from npumark.engines.base import Array, CacheMemo, Engine, LoadRequest
from npumark.engines.registry import resolve
from npumark.errors import EngineError, PackError
from npumark.gates.accumulate import Accumulator
from npumark.gates.metrics import accumulator
from npumark.pack.manifest import Variant, Workload, variant_from, workload_from
from npumark.policy import load_policy
from npumark.worker import loop_stats
from npumark.worker.accuracy import run_accuracy
from npumark.worker.eval_set import StoredLayout, load_inputs, load_mu, load_references
from npumark.worker.evidence import prove_placement, read_back
from npumark.worker.files import check_files, require_checked
from npumark.worker.memory import peak_rss_bytes
from npumark.worker.oracle import Teaching, script_session
from npumark.worker.protocol import Job, Measurement, Result
from npumark.worker.raw_samples import save_raw
from npumark.worker.timed_loop import run_timed, timer_overhead_ns, warm_up


def measure(job: Job, began_ns: int) -> Result:
    """Carry out a ``measure`` job. ``began_ns`` is when this process began (perf counter).

    Raises PackError and EngineError; what stays undone is then the caller's to report.
    """
    clock = time.perf_counter_ns
    if job.workload is None or job.variant is None or job.timing is None:
        raise EngineError("the job lacks its workload, variant or timing")
    workload, variant = workload_from(job.workload), variant_from(job.variant)
    root = Path(job.pack_root)

    started = clock()
    require_checked((*variant.files, *(f for f in eval_files(workload))), job.files)
    stamps = check_files(root, job.files)
    samples = load_inputs(root, workload.eval, variant.inputs)
    feed = list(samples[workload.eval.canonical])
    judge = _judge(root, workload, variant)
    verified = clock()
    engine = resolve(job.engine_ref)
    engine.prepare()
    imported = clock()

    request = request_of(job, workload, variant)
    session = engine.load(request)
    loaded = clock()
    # Only the engine that is never comparable may see the answers or bring its own clock.
    teaching = Teaching(samples, load_references(root, workload.eval))
    timer = script_session(job.engine_ref, session, teaching)
    step, buffers, outputs = session.step(), session.inputs(), session.outputs()
    require_outputs(outputs, variant)

    warm = warm_up(step, buffers, outputs, samples, job.timing, timer)
    loop = run_timed(
        step,
        buffers,
        outputs,
        samples,
        job.timing,
        seed=job.seed,
        fastest_ns=warm.fastest_ns,
        clock=timer,
    )
    peak_rss = peak_rss_bytes()
    overhead = timer_overhead_ns(timer)
    samples_sha256 = save_raw(loop.durations, job.samples_path)

    accuracy_from = clock()
    check = run_accuracy(
        step,
        buffers,
        outputs,
        samples,
        judge,
        loop.checks,
        shown=StoredLayout(outputs, variant.outputs),
        nondeterministic=session.nondeterministic,
        min_snr_db=job.timing.timed_check_min_snr_db,
    )
    measures, why = judge.result()
    accuracy_to = clock()

    # The runtime's own account of what ran belongs to the proof: reading it may need a
    # profiled run, which the placement then shares. Whoever still held the call would hold the
    # timed session beside it.
    del step, buffers, outputs
    from_cache = session.loaded_from_cache()
    observed, untold = read_back(session, engine.name)
    del session
    placement = prove_placement(engine, request, feed, job.profile_runs, untold)
    placed = clock()
    request.cache_memo.settle()
    return Result(
        status="ok",
        observed=observed,
        placement=placement,
        measurement=Measurement(
            iterations=len(loop.durations),
            timed_ns=int(loop.durations.sum()),
            latency=loop_stats.latency(loop.durations, load_policy().percentiles),
            burst_ips=loop_stats.burst_ips(loop.durations, job.timing.burst_s),
            drift=loop_stats.drift(loop.durations, job.timing.drift_window_s),
            sustained_ips=loop_stats.sustained_ips(loop.durations),
            first_call_ns=warm.first_call_ns,
            warmup_calls=warm.calls,
            warmup_steady=warm.steady,
            import_ns=(started - began_ns) + (imported - verified),
            verify_ns=verified - started,
            load_ns=loaded - imported,
            warmup_ns=warm.total_ns,
            loop_ns=loop.wall_ns,
            accuracy_ns=accuracy_to - accuracy_from,
            placement_ns=placed - accuracy_to,
            timer_overhead_ns=overhead,
            peak_rss_bytes=peak_rss,
            measures=measures,
            accuracy_why=why,
            timed_check=check,
            samples_sha256=samples_sha256,
            loaded_from_cache=from_cache,
        ),
        stamps=stamps,
        cache=request.cache_memo.use,
        cache_stamps=dict(request.cache_memo.stamps),
    )


def eval_files(workload: Workload) -> list[str]:
    ev = workload.eval
    return [t.file for t in (*ev.inputs, *ev.references, *ev.mu)]


def request_of(
    job: Job, workload: Workload, variant: Variant, *, preparing: bool = False
) -> LoadRequest:
    """Return what a job asks its engine to load."""
    return LoadRequest(
        engine_id=job.engine_id,
        workload_id=workload.id,
        graph=Path(job.pack_root) / variant.graph,
        encoding=job.encoding or variant.encoding,
        format=job.format or variant.format,
        inputs=variant.inputs,
        outputs=variant.outputs,
        threads=job.threads,
        options=job.options,
        cache_dir=Path(job.cache_dir) if job.cache_dir else None,
        cache_memo=CacheMemo(dict(job.cache_stamps)),
        preparing=preparing,
    )


def _judge(root: Path, workload: Workload, variant: Variant) -> Accumulator:
    references = load_references(root, workload.eval)
    require_order(workload, variant)
    try:
        return accumulator(
            workload.task, references, load_mu(root, workload.eval), workload.eval.parameters
        )
    except ValueError as fault:
        raise PackError(f"the eval set of {workload.id} is not usable: {fault}") from fault


def require_order(workload: Workload, variant: Variant) -> None:
    """Raise PackError where the outputs of a graph are not in the order of their references.

    A task may judge fewer outputs than the graph has, or need more than their references
    (positions of token states); in what both have, the order must agree.
    """
    pairs = zip(workload.eval.references, variant.outputs, strict=False)
    if any(reference.name != output.name for reference, output in pairs):
        raise PackError(f"{workload.id}/{variant.id} and its references differ in their outputs")


def require_outputs(outputs: Sequence[Array], variant: Variant) -> None:
    """Raise EngineError where the engine bound another number of outputs than the graph has."""
    if len(outputs) != len(variant.outputs):
        raise EngineError(f"the engine bound {len(outputs)} of {len(variant.outputs)} outputs")


def probe(job: Job) -> Result:
    """Carry out a ``probe`` job: which devices of one runtime work here."""
    engine: Engine = resolve(job.engine_ref)
    engine.prepare()
    return Result(status="ok", engines=engine.probe(job.options))
