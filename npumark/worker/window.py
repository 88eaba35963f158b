"""A ``window`` job: load, warm up, wait for the others, call until the shared window has passed.

Where the work ran is not proved again: the solo attempts of the same configuration did that.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from npumark.engines.registry import resolve
from npumark.errors import EngineError, PackError
from npumark.gates.accumulate import Accumulator
from npumark.gates.metrics import accumulator
from npumark.pack.manifest import Variant, Workload, variant_from, workload_from
from npumark.worker.affinity import bound
from npumark.worker.barrier import Barrier
from npumark.worker.eval_set import StoredLayout, load_inputs, load_mu, load_references
from npumark.worker.evidence import close
from npumark.worker.files import check_files, require_checked
from npumark.worker.measure import eval_files, request_of, require_order, require_outputs
from npumark.worker.memory import peak_rss_bytes
from npumark.worker.oracle import Teaching, script_session
from npumark.worker.protocol import Job, Result, Window, WindowCheck
from npumark.worker.raw_samples import save_raw
from npumark.worker.timed_loop import Array, Check, require_arrays, warm_up
from npumark.worker.window_loop import cut, run_window_loop


def run_window(job: Job, barrier: Barrier) -> Result:
    """Carry out a ``window`` job. Raises PackError, EngineError and what ``barrier`` raises.

    A virtual engine with a fake clock has the window on that clock, from the release on.
    """
    if job.workload is None or job.variant is None or job.timing is None or job.window is None:
        raise EngineError("the job lacks its workload, variant, timing or window")
    workload, variant = workload_from(job.workload), variant_from(job.variant)
    root = Path(job.pack_root)
    require_checked((*variant.files, *eval_files(workload)), job.files)
    judge = _judge(root, workload, variant)
    stamps = check_files(root, job.files)
    samples = load_inputs(root, workload.eval, variant.inputs)
    engine = resolve(job.engine_ref)
    engine.prepare()

    request = request_of(job, workload, variant)
    began = time.perf_counter_ns()
    session = engine.load(request)
    load_ns = time.perf_counter_ns() - began
    teaching = Teaching(samples, load_references(root, workload.eval))
    clock = script_session(job.engine_ref, session, teaching)
    step, buffers, outputs = session.step(), session.inputs(), session.outputs()
    require_outputs(outputs, variant)

    def start() -> int:
        start_ns = barrier()
        return start_ns if clock is time.perf_counter_ns else clock()

    warm = warm_up(step, buffers, outputs, samples, job.timing, clock)
    window_ns = round(job.window.seconds * 1e9)
    pairs = run_window_loop(
        step,
        buffers,
        outputs,
        samples,
        window_ns=window_ns,
        fastest_ns=warm.fastest_ns,
        clock=clock,
        start=start,
    )
    last = _last_answer(len(pairs), len(samples), outputs)
    peak_rss = peak_rss_bytes()
    del step, buffers, outputs
    close(session)
    del session
    lie = cut(pairs, window_ns)
    level, why = judge.alone(last.sample, StoredLayout(last.outputs, variant.outputs))
    request.cache_memo.settle()
    return Result(
        status="ok",
        window=Window(
            late_ns=int(pairs[0, 0]),
            inside=lie.inside,
            straddling=lie.straddling,
            calls=len(pairs),
            check=WindowCheck(last.iteration, last.sample, level, why),
            load_ns=load_ns,
            warmup_ns=warm.total_ns,
            samples_sha256=save_raw(pairs, job.samples_path),
            cpus=bound(),
            peak_rss_bytes=peak_rss,
        ),
        stamps=stamps,
        cache=request.cache_memo.use,
        cache_stamps=dict(request.cache_memo.stamps),
    )


def _last_answer(calls: int, inputs: int, outputs: Sequence[Array]) -> Check:
    """Return what the last of ``calls`` answered: the bound outputs hold it until another call.

    Raises EngineError where an output is no plain array.
    """
    require_arrays(outputs)
    copies = tuple(np.copy(output, order="K") for output in outputs)
    return Check(calls - 1, (calls - 1) % inputs, copies)


def _judge(root: Path, workload: Workload, variant: Variant) -> Accumulator:
    """Return what judges the last call's first output: by its SNR against the reference of its
    input, whatever the task, as the peak's gate has it (an exact match is SNR_CAP_DB)."""
    require_order(workload, variant)
    try:
        return accumulator(
            workload.task,
            load_references(root, workload.eval),
            load_mu(root, workload.eval),
            workload.eval.parameters,
        )
    except ValueError as fault:
        raise PackError(f"the eval set of {workload.id} is not usable: {fault}") from fault
