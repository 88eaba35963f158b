"""Which engines there are: every registered runtime is asked in a throw-away worker.

What is listed is not what works, so a probe runs a one-node model on each device. A probe
that crashes or hangs costs its own engine and is reported with its reason.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from npumark.engines import catalogue
from npumark.engines.catalogue import PROVIDERS
from npumark.engines.registry import RUNTIME_TITLES
from npumark.orchestrator.environments import remake
from npumark.orchestrator.interrupts import Interrupts
from npumark.orchestrator.supervisor import Outcome, supervise
from npumark.policy import WorkerLimits
from npumark.worker.protocol import EngineInfo, Job


@dataclass(frozen=True, slots=True)
class Runtime:
    """A registered engine class: its name, ``module:Class`` and the options of its probe.

    Where it lives in an ``environment`` of its own, ``python`` is that one's interpreter,
    ``python_version`` its version, ``packages`` are the versions it holds and ``sha256`` is that
    of its ``environment.json``; they are null and empty for npumark's own.
    """

    name: str
    ref: str
    options: dict[str, Any] = field(default_factory=dict)
    python: str | None = None
    environment: str | None = None
    packages: dict[str, str] = field(default_factory=dict)
    python_version: str | None = None
    sha256: str | None = None

    def held(self) -> dict[str, Any] | None:
        """Return what its environment holds, as a record tells it; null for npumark's own."""
        if self.environment is None:
            return None
        return {
            "name": self.environment,
            "python": self.python_version,
            "packages": self.packages,
            "sha256": self.sha256,
        }


@dataclass(frozen=True, slots=True)
class Found:
    """One engine as its probe described it, and the runtime it belongs to. ``failed``: it stands
    for a whole runtime that is here and broke, so that its devices are not known."""

    info: EngineInfo
    runtime: Runtime
    failed: bool = False


_RUNTIMES = {"onnxruntime", *(row.module for row in PROVIDERS if row.module)}
_NOT_INSTALLED = re.compile(rf"No module named '({'|'.join(sorted(_RUNTIMES))})(\.\w+)*'")
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
    """Return the engines of all probes, in order, each id once.

    Where npumark's own interpreter lacks what an environment has, the environment's word counts.
    """
    found: dict[str, Found] = {}
    spare: list[Found] = []
    for runtime, outcome in probed:
        failed = _broke(runtime, outcome)
        for raw in _engines(runtime, outcome):
            info = replace(
                raw,
                reason=raw.reason and one_line(raw.reason),
                environment=runtime.environment,
            )
            first = found.get(info.id)
            if first is None or (runtime.environment and not first.info.available):
                found[info.id] = Found(info, runtime, failed)
            elif runtime.environment is None or info.available:
                reason = f"{_place(first.runtime)} already provides an engine {info.id}"
                spare.append(Found(replace(info, available=False, reason=reason), runtime))
    return (*found.values(), *spare)


def _place(runtime: Runtime) -> str:
    if runtime.environment is None:
        return runtime.name
    return f"the environment {runtime.environment}"


def _broke(runtime: Runtime, outcome: Outcome) -> bool:
    """Say whether a runtime that is here failed: one that is not installed has not, unless an
    environment was made for it."""
    if outcome.status in ("ok", "unsupported"):
        return False
    return runtime.environment is not None or not not_installed(outcome.why or "")


def not_installed(why: str) -> bool:
    """Say whether a probe found that its runtime's package is not there."""
    return _NOT_INSTALLED.search(why) is not None


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
    words = last_words(outcome.log_tail)
    if result is None and words:
        reason = f"{reason} (it last wrote: {words})"
    if runtime.environment is None:
        return (EngineInfo(runtime.name, False, reason, runtime.name, runtime.name, None),)
    if outcome.status != "ok":
        reason = f"{reason}; {remake(runtime.environment)}"
    return stand_ins(runtime.environment, reason)


def stand_ins(environment: str, reason: str) -> tuple[EngineInfo, ...]:
    """Return a line for each provider that an environment is for, none of them available.

    It has the id of the provider's engine, or where there would be several what their ids begin
    with.
    """
    row = catalogue.environment(environment)
    rows = [catalogue.provider(name) for name in row.providers] if row else []
    return tuple(
        EngineInfo(
            ids.pop() if len(ids) == 1 else provider.id,
            False,
            reason,
            provider.runtime,
            RUNTIME_TITLES.get(provider.runtime, provider.title),
            None,
            environment=environment,
        )
        for provider in rows
        if provider is not None
        for ids in ({provider.engine_id(role) for role in provider.roles},)
    )


def last_words(log: str) -> str:
    """Return the last line a process wrote by itself: not those that the interpreter added to
    tell where it died."""
    own, _, _ = log.partition("Fatal Python error:")
    lines = [line.strip() for line in own.splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""
