"""The step ``load_times``: one fresh load and its first call, in a process of their own."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from npumark.engines.base import CacheMemo, LoadRequest
from npumark.errors import EngineError
from npumark.worker.diagnose import Stage
from npumark.worker.evidence import close
from npumark.worker.protocol import Probed
from npumark.worker.timed_loop import require_arrays


def run(stage: Stage) -> Probed:
    """Load once and call once; ``options["cold"]``: with an empty folder for the compiled model.

    What a driver keeps for itself stays as it is, as it would for an application. Raises
    EngineError where the cold folder cannot be made.
    """
    if not stage.options["cold"]:
        return _load(stage, stage.request)
    try:
        stage.folder.mkdir(parents=True, exist_ok=True)
        # Beside the samples: on the disk that the real one lies on.
        empty = tempfile.TemporaryDirectory(
            prefix="cold-", dir=stage.folder, ignore_cleanup_errors=True
        )
    except OSError as fault:
        raise EngineError(f"there is no empty folder to compile into: {fault}") from fault
    with empty as folder:
        request = replace(stage.request, cache_dir=Path(folder), cache_memo=CacheMemo())
        return _load(stage, request)


def _load(stage: Stage, request: LoadRequest) -> Probed:
    began = time.perf_counter_ns()
    session, clock = stage.load(request)
    load_ns = time.perf_counter_ns() - began
    step, buffers, outputs = session.step(), session.inputs(), session.outputs()
    require_arrays(outputs)
    began = clock()
    for buffer, source in zip(buffers, stage.samples[0], strict=True):
        buffer[...] = source
    step()
    for output in outputs:
        np.ndarray.item(output, -1)
    first_call_ns = clock() - began
    del step, buffers, outputs
    use = request.cache_memo.use
    close(session)
    request.cache_memo.settle()
    return Probed(
        {},
        {
            "load_ns": load_ns,
            "first_call_ns": first_call_ns,
            "cache": None if use is None else use.state,
            "cache_why": None if use is None else use.why,
            "compile_ns": None if use is None else use.compile_ns,
        },
    )
