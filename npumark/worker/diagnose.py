"""A ``diagnose`` job: verify the files, import the runtime, carry out one step of a probe.

Each kind of step is a module of ``worker.steps`` with a function ``run(stage)``; it is imported
only where it is asked for.
"""

from __future__ import annotations

import hashlib
import importlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from npumark.engines.base import Array, Engine, LoadRequest, Session
from npumark.engines.registry import resolve
from npumark.errors import EngineError
from npumark.pack.manifest import Variant, Workload, variant_from, workload_from
from npumark.worker.eval_set import load_inputs, load_references
from npumark.worker.files import check_files, require_checked
from npumark.worker.measure import eval_files, request_of
from npumark.worker.oracle import Teaching, script_session
from npumark.worker.protocol import Job, Probed, ProbeSamples, Result, TimingOptions
from npumark.worker.timed_loop import Clock

Samples = npt.NDArray[np.int64]

KINDS = ("single", "threads", "batch", "idle", "sustained", "auto", "load_times")
"""What a worker can be asked for; ``processes`` is several ``window`` jobs."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What a step works with. ``samples`` are the eval set's inputs, each a tuple of arrays;
    ``options`` is the job's ``probe``. ``folder`` takes raw samples (see ``save``)."""

    job: Job
    workload: Workload
    variant: Variant
    engine: Engine
    request: LoadRequest
    samples: list[tuple[Array, ...]]
    timing: TimingOptions
    options: dict[str, Any]
    folder: Path

    def load(self, request: LoadRequest | None = None) -> tuple[Session, Clock]:
        """Load the variant afresh; return the session and the clock that times its calls: the
        performance counter, or a virtual engine's own."""
        session = self.engine.load(request or self.request)
        references = load_references(Path(self.job.pack_root), self.workload.eval)
        clock = script_session(self.job.engine_ref, session, Teaching(self.samples, references))
        return session, clock

    def save(self, name: str, values: Samples) -> ProbeSamples:
        """Write raw samples, [n] or [n, 2] int64, and return what tells of them.

        Raises EngineError where they cannot be kept: a ratio without its samples is none.
        """
        raw = np.ascontiguousarray(values).astype("<i8").tobytes()
        path = self.folder / f"{name}.i64"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as stream:
                stream.write(raw)
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as fault:
            raise EngineError(f"the raw samples cannot be kept: {fault}") from fault
        columns = 1 if values.ndim == 1 else int(values.shape[1])
        return ProbeSamples(path.name, hashlib.sha256(raw).hexdigest(), len(values), columns)


def diagnose(job: Job) -> Result:
    """Carry out a ``diagnose`` job. Raises PackError, Unsupported and EngineError."""
    kind = str(job.probe.get("kind"))
    if job.workload is None or job.variant is None or job.timing is None or not job.samples_path:
        raise EngineError("the job lacks its workload, variant, timing or folder")
    if kind not in KINDS:
        raise EngineError(f"there is no step {kind!r}")
    step = importlib.import_module(f"npumark.worker.steps.{kind}")
    workload, variant = workload_from(job.workload), variant_from(job.variant)
    root = Path(job.pack_root)
    require_checked((*variant.files, *eval_files(workload)), job.files)
    stamps = check_files(root, job.files)
    samples = load_inputs(root, workload.eval, variant.inputs)
    engine = resolve(job.engine_ref)
    engine.prepare()
    request = request_of(job, workload, variant)
    stage = Stage(
        job=job,
        workload=workload,
        variant=variant,
        engine=engine,
        request=request,
        samples=samples,
        timing=job.timing,
        options={k: v for k, v in job.probe.items() if k != "kind"},
        folder=Path(job.samples_path),
    )
    probed: Probed = step.run(stage)
    request.cache_memo.settle()
    return Result("ok", probed=probed, stamps=stamps)
