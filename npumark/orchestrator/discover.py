"""Which engines there are: every registered runtime is asked in a throw-away worker.

What is listed is not what works, so a probe runs a one-node model on each device. A probe
that crashes or hangs costs its own engine and is reported with its reason.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from npumark.orchestrator.interrupts import Interrupts
from npumark.orchestrator.supervisor import Outcome, supervise
from npumark.policy import WorkerLimits
from npumark.worker.protocol import EngineInfo, Job


@dataclass(frozen=True, slots=True)
class Runtime:
    """A registered engine class: its name, ``module:Class`` and the options of its probe.

    Where it lives in an ``environment`` of its own, ``python`` is that one's interpreter and
    ``packages`` are the versions it holds; they are null and empty for npumark's own.
    """

    name: str
    ref: str
    options: dict[str, Any] = field(default_factory=dict)
    python: str | None = None
    environment: str | None = None
    packages: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Found:
    """One engine as its probe described it, and the runtime it belongs to. ``failed``: it stands
    for a whole runtime that is here and broke, so that its devices are not known."""

    info: EngineInfo
    runtime: Runtime
    failed: bool = False


_NOT_INSTALLED = re.compile(r"No module named '(onnxruntime|openvino)'$")
_ESCAPE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])")


def discover(
    runtimes: tuple[Runtime, ...],
    *,
    limits: WorkerLimits,
    interrupts: Interrupts,
    marker: str,
    parallel: int = 2,
) -> tuple[Found, ...]:
    """Probe ``runtimes`` and return every engine, available or not, in order of registration.

    An engine id that two runtimes claim belongs to the first; the second is reported as
    unavailable. Raises KeyboardInterrupt where a signal came meanwhile.
    """

    def probe(runtime: Runtime) -> Outcome:
        return supervise(
            Job("probe", runtime.ref, options=runtime.options),
            limits=limits,
            deadline_s=limits.probe_deadline_s,
            interrupts=interrupts,
            marker=f"{marker}/probe-{runtime.environment or 'own'}-{runtime.name}",
            python=runtime.python,
        )

    with interrupts.deferred(), ThreadPoolExecutor(max(1, parallel)) as pool:
        outcomes = tuple(pool.map(probe, runtimes))
    interrupts.check()
    return merge(tuple(zip(runtimes, outcomes, strict=True)))


def merge(probed: tuple[tuple[Runtime, Outcome], ...]) -> tuple[Found, ...]:
    """Return the engines of all probes, in order, each id once."""
    found: dict[str, Found] = {}
    spare: list[Found] = []
    for runtime, outcome in probed:
        failed = _broke(outcome)
        for raw in _engines(runtime, outcome):
            info = replace(
                raw,
                reason=raw.reason and one_line(raw.reason),
                environment=runtime.environment,
            )
            first = found.get(info.id)
            if first is None:
                found[info.id] = Found(info, runtime, failed)
            else:
                reason = f"{first.runtime.name} already provides an engine {info.id}"
                spare.append(Found(replace(info, available=False, reason=reason), runtime))
    return (*found.values(), *spare)


def _broke(outcome: Outcome) -> bool:
    """Say whether a runtime that is here failed: one that is not installed has not."""
    if outcome.status in ("ok", "unsupported"):
        return False
    return not _NOT_INSTALLED.search(outcome.why or "")


def one_line(text: str) -> str:
    """Return ``text`` as one line that a terminal can be shown, without control characters."""
    plain = _ESCAPE.sub("", text)
    return " ".join("".join(c if c.isprintable() else " " for c in plain).split())


def _engines(runtime: Runtime, outcome: Outcome) -> tuple[EngineInfo, ...]:
    result = outcome.result
    if result is not None and outcome.status == "ok" and result.engines:
        return result.engines
    reason = outcome.why or (
        "its probe found no device" if outcome.status == "ok" else f"its probe: {outcome.status}"
    )
    if outcome.status == "timeout":
        reason = f"its probe hung: {reason}"
    last = outcome.log_tail.strip().splitlines()
    if result is None and last:
        reason = f"{reason} (it last wrote: {last[-1][:200]})"
    return (EngineInfo(runtime.name, False, reason, runtime.name, runtime.name, None),)
