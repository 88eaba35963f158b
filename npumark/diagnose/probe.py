"""What a diagnostics probe is: steps for workers, and a pure reading of what they saw."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from npumark.policy import DiagnoseRules
from npumark.worker.protocol import Status

Samples = npt.NDArray[np.int64]

StepKind = Literal[
    "single", "threads", "processes", "batch", "idle", "sustained", "auto", "load_times"
]
"""``single`` is the attempt that all others are compared with. What each kind takes and leaves is
told in worker.diagnose, ``processes`` (several workers in one window) in orchestrator.diagnosing.
"""

Beside = Literal["cpu", "memory"]


@dataclass(frozen=True, slots=True)
class Target:
    """One engine and network, on the variant that is probed. ``runtime`` is the engine's
    (``ort``, ``openvino``, ``coreml`` …), ``role`` its processor's; ``compiles`` says that the
    engine keeps compiled models; ``cores`` how many CPUs this program may use, ``card``
    the bus address of its processor where it has a known one, as sensors name cards."""

    engine: str
    runtime: str
    role: str
    workload: str
    variant: str
    compiles: bool
    cores: int
    card: str | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to measure. ``name`` is unique within its probe; ``options`` go to the worker
    (``Job.probe`` is ``{"kind": kind, **options}``). ``beside`` is a load that other processes
    put on the machine meanwhile. ``seconds`` is about how long it times, for the view."""

    name: str
    kind: StepKind
    options: dict[str, Any] = field(default_factory=dict)
    beside: Beside | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What a step came to. ``samples`` are int64 nanoseconds: [n] durations, or [n, 2] begin and
    end of each call ([n, 3]: of each block, and its calls) on one clock, from the step's first
    call on; ``facts`` what is no samples; ``sensors`` the readings taken beside it (``at_ns`` from
    the first call too). Empty where ``status`` is not ``ok``."""

    step: Step
    status: Status
    why: str | None
    samples: dict[str, Samples]
    facts: dict[str, Any]
    sensors: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Ratio:
    """A figure that says how much something costs or brings, against ``probe_ips`` or what the
    probe names. ``of`` says in words what is divided by what."""

    name: str
    value: float
    of: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A probe's answer. ``rows`` is its table, ``columns`` the rows' keys in order, with their
    titles; ``bars`` names the column that the chart draws, null for none. ``ratios`` are what the
    probe is about; ``finding`` and ``advice`` are one sentence each. Where a probe could not run,
    or has nothing to say for this engine, ``status`` is not ``ok`` and ``why`` says why."""

    status: Literal["ok", "not_applicable", "failed"]
    why: str | None
    columns: tuple[tuple[str, str], ...]
    rows: tuple[dict[str, Any], ...]
    bars: str | None
    ratios: tuple[Ratio, ...]
    finding: str | None
    advice: str | None


@dataclass(frozen=True, slots=True)
class Probe:
    """``deep``: only with ``--deep``. ``steps`` says what to measure on a target (none: it does
    not apply there, and ``finding`` is asked all the same, with nothing seen). ``finding`` reads
    what was seen, by step name; ``single`` is the baseline attempt, always there."""

    name: str
    title: str
    deep: bool
    steps: Callable[[Target, DiagnoseRules], tuple[Step, ...]]
    finding: Callable[[Target, Seen, Mapping[str, Seen], DiagnoseRules], Finding]


def rate(durations: Samples) -> float:
    """Return calls per second of [n] durations or [n, 2] calls: calls over the time that they
    took (durations), or over the time from the first begin to the last end (calls).

    Raises ValueError where there is none, or no time passed.
    """
    if not len(durations):
        raise ValueError("no call was timed")
    if durations.ndim == 1:
        spent = int(durations.sum())
    else:
        spent = int(durations[:, 1].max() - durations[:, 0].min())
    if spent <= 0:
        raise ValueError("no time passed")
    return len(durations) / (spent / 1e9)
