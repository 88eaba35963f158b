"""Job and result: the two JSON documents that pass between orchestrator and worker.

The job comes on the worker's stdin, as one line; the result goes to an inherited pipe of its own
(its file descriptor, or on Windows its handle, is the worker's first argument). The worker of a
``window`` job first writes READY to that pipe, and then waits for a second line on stdin, which
says when the window begins (see worker.barrier); where stdin ends instead, it ends without a
result. File descriptors 1 and 2 go to a log that is kept as evidence and never parsed. Plain
dataclasses and the standard library: a worker starts often, and must not pay for a schema
library each time.
"""

from __future__ import annotations

from npumark.worker.decoding import MAX_ENGINES, decode_result
from npumark.worker.job import (
    SCHEMA,
    FileCheck,
    Job,
    JobKind,
    Stamp,
    TimingOptions,
    WindowOptions,
    decode_job,
)
from npumark.worker.result import (
    MAX_RESULT_BYTES,
    CacheState,
    CacheUse,
    EngineInfo,
    Latency,
    Measurement,
    Observed,
    Placement,
    Prepared,
    Probed,
    ProbeSamples,
    Result,
    Status,
    TimedCheck,
    Verdict,
    Window,
    WindowCheck,
)

READY = b"\x06"
"""What the worker of a window writes once it is warm: no JSON document begins with it."""

__all__ = [
    "MAX_ENGINES",
    "MAX_RESULT_BYTES",
    "READY",
    "SCHEMA",
    "CacheState",
    "CacheUse",
    "EngineInfo",
    "FileCheck",
    "Job",
    "JobKind",
    "Latency",
    "Measurement",
    "Observed",
    "Placement",
    "Prepared",
    "ProbeSamples",
    "Probed",
    "Result",
    "Stamp",
    "Status",
    "TimedCheck",
    "TimingOptions",
    "Verdict",
    "Window",
    "WindowCheck",
    "WindowOptions",
    "decode_job",
    "decode_result",
]
