"""Before a compiling engine's first attempt: compile, load, call once, say whether that holds.

The first such worker compiles and leaves the answers of one input beside the model; a second
one, a fresh process, loads what was compiled and compares its own answers with them. What
crashes, falls silent or answers otherwise when it is loaded again shows here, not in a figure.
"""

from __future__ import annotations

import sys
import time
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from npumark.engines.base import Array, LoadRequest
from npumark.engines.model_cache import ModelCache
from npumark.engines.registry import resolve
from npumark.errors import EngineError
from npumark.pack.manifest import variant_from, workload_from
from npumark.worker.accuracy import LEAST_AGREEMENT_DB
from npumark.worker.eval_set import load_inputs, load_references
from npumark.worker.files import check_files, require_checked
from npumark.worker.measure import request_of
from npumark.worker.oracle import Teaching, script_session
from npumark.worker.protocol import Job, Prepared, Result
from npumark.worker.timed_loop import require_arrays

ANSWERS = "answers.npz"


def prepare(job: Job) -> Result:
    """Carry out a ``prepare`` job. Raises PackError and EngineError."""
    if job.workload is None or job.variant is None:
        raise EngineError("the job lacks its workload or variant")
    workload, variant = workload_from(job.workload), variant_from(job.variant)
    root = Path(job.pack_root)
    inputs = [tensor.file for tensor in workload.eval.inputs]
    require_checked((*variant.files, *inputs), job.files)
    stamps = check_files(root, job.files)
    samples = load_inputs(root, workload.eval, variant.inputs)
    engine = resolve(job.engine_ref)
    engine.prepare()
    request = request_of(job, workload, variant, preparing=True)
    if job.rebuild and request.cache_dir is not None:
        _throw_away(request.cache_dir)

    clock = time.perf_counter_ns
    began = clock()
    session = engine.load(request)
    loaded = clock()
    script_session(job.engine_ref, session, Teaching(samples, load_references(root, workload.eval)))
    for buffer, value in zip(session.inputs(), samples[workload.eval.canonical], strict=True):
        buffer[...] = value
    step, outputs = session.step(), session.outputs()
    require_arrays(outputs)
    called = clock()
    step()
    for output in outputs:
        np.ndarray.item(output, -1)  # as in the timed loop: what is left to do is done now
    ended = clock()
    same = _compared(request, outputs)
    del step, outputs
    session.close()
    request.cache_memo.settle()
    return Result(
        status="ok",
        stamps=stamps,
        cache=request.cache_memo.use,
        cache_stamps=dict(request.cache_memo.stamps),
        prepared=Prepared(loaded - began, ended - called, same),
    )


def _throw_away(folder: Path) -> None:
    try:
        ModelCache(folder, alone=True).discard()
    except OSError as fault:
        # Then nothing can be built either, and the session says that it keeps none.
        print(f"the compiled model cannot be thrown away: {fault}", file=sys.stderr)


def _compared(request: LoadRequest, outputs: Sequence[Array]) -> bool | None:
    """Leave the answers of a model that was just compiled; compare those of one loaded again."""
    use, folder = request.cache_memo.use, request.cache_dir
    if use is None or folder is None:
        return None
    path = folder / ANSWERS
    if use.state in ("built", "rebuilt"):
        with suppress(OSError), path.open("wb") as written:
            np.savez(written, *outputs)
        return None
    try:
        with path.open("rb") as stream, np.load(stream) as stored:
            before = [stored[name] for name in stored.files]
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile):
        return None  # there is nothing to compare with
    with suppress(OSError):
        path.unlink()
    return agree(before, outputs)


def agree(before: Sequence[Array], after: Sequence[Array]) -> bool:
    """Say whether two sets of outputs are the same but for their last bits."""
    if len(before) != len(after):
        return False
    return all(_agree(a, b) for a, b in zip(before, after, strict=True))


def _agree(before: Array, after: Array) -> bool:
    if before.shape != after.shape or before.dtype != after.dtype:
        return False
    # What is no number is the same answer in the same place; distances are of numbers alone.
    finite = np.isfinite(before)
    if not np.array_equal(before[~finite], after[~finite], equal_nan=True):
        return False
    signal, other = before[finite].astype(np.float64), after[finite].astype(np.float64)
    if not np.isfinite(other).all():
        return False
    power = float(np.square(signal - other).sum())
    return power * 10 ** (LEAST_AGREEMENT_DB / 10) <= float(np.square(signal).sum())
