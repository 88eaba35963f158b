"""Which engines there are: every registered runtime is asked in a throw-away worker.

What is listed is not what works, so a probe runs a one-node model on each device. A probe
that crashes or hangs is asked again for each provider or kind of device alone, so that the one
at fault costs its own engine and is reported with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from npumark.engines import catalogue
from npumark.engines.catalogue import PROVIDERS, Provider
from npumark.engines.missing_libraries import DRIVER_LACKS, missing
from npumark.engines.ort_plugins import OTHERS
from npumark.engines.registry import BUILT_IN, RUNTIME_TITLES
from npumark.orchestrator.environments import freed, here, minor, other_python, remake
from npumark.orchestrator.interrupts import Interrupts
from npumark.orchestrator.supervisor import Outcome, supervise
from npumark.plain import one_line
from npumark.policy import WorkerLimits
from npumark.worker.protocol import EngineInfo, Job


@dataclass(frozen=True, slots=True)
class Runtime:
    """A registered engine class: its name, ``module:Class`` and the options of its probe.

    Where it lives in an ``environment`` of its own, ``python`` is that one's interpreter,
    ``python_version`` its version, ``packages`` are the versions it holds and ``sha256`` is that
    of its ``environment.json``; they are null and empty for npumark's own. ``package`` is the
    distribution, with its version, that another party's engine comes from, null for built-ins.
    """

    name: str
    ref: str
    options: dict[str, Any] = field(default_factory=dict)
    python: str | None = None
    environment: str | None = None
    packages: dict[str, str] = field(default_factory=dict)
    python_version: str | None = None
    sha256: str | None = None
    package: str | None = None

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
_KINDS = ("CPU", "GPU", "NPU")
_BY_KIND = ("litert", "openvino")
"""The runtimes whose probe can be asked for kinds of device."""


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

    def ask(runtime: Runtime) -> tuple[Runtime, Outcome]:
        outcome = supervise(
            Job("probe", runtime.ref, options=runtime.options),
            limits=limits,
            deadline_s=limits.probe_deadline_s,
            interrupts=interrupts,
            marker=f"{marker}/probe-{runtime.environment or 'own'}-{runtime.name}",
            python=runtime.python,
        )
        return observed(runtime, outcome)

    with interrupts.deferred(), ThreadPoolExecutor(max(1, parallel)) as pool:
        probed = tuple(pool.map(lambda runtime: in_parts(runtime, ask), runtimes))
    interrupts.check()
    return merge(tuple(one for many in probed for one in many))


def observed(runtime: Runtime, outcome: Outcome) -> tuple[Runtime, Outcome]:
    """Return a runtime with the version of Python that really ran it, and its outcome: another
    minor version than its environment was made with does not see the packages in it."""
    now = outcome.result.python if outcome.result else None
    if runtime.python_version is None or now is None:
        return runtime, outcome
    if minor(now) != minor(runtime.python_version):
        why = other_python(runtime.python_version, now)
        outcome = replace(outcome, status="skipped", why=why, result=None, log_tail="")
    return replace(runtime, python_version=now), outcome


def in_parts(
    runtime: Runtime, ask: Callable[[Runtime], tuple[Runtime, Outcome]]
) -> tuple[tuple[Runtime, Outcome], ...]:
    """Ask a runtime, and where its probe broke each part of it alone; return who answered what.

    Where no part answers either, or the first fails in a way that all would (it raises, it
    hangs), it is the runtime itself that fails, and the answer is the one for the whole.
    """
    whole = ask(runtime)
    parts = _parts(runtime) if _fell(whole[1]) else ()
    if len(parts) < 2:
        return (whole,)
    told: list[tuple[Runtime, Outcome]] = []
    for part in parts:
        told.append(ask(replace(runtime, options={**runtime.options, "only": list(part)})))
        last = told[-1][1]
        alike = last.result is not None or last.status == "timeout"
        if last.status == "interrupted" or (len(told) == 1 and _fell(last) and alike):
            return (whole,)
    return tuple(told) if any(out.status == "ok" for _, out in told) else (whole,)


def _fell(outcome: Outcome) -> bool:
    """Say whether a probe broke, other than for a package that is not there."""
    if outcome.status not in ("crashed", "timeout", "no_result"):
        return False
    return not not_installed(outcome.why or "")


def _parts(runtime: Runtime) -> tuple[tuple[str, ...], ...]:
    """Return what a runtime's probe can be asked for alone: values of its option ``only``.

    For ONNX Runtime these are providers, for runtimes with devices of their own kinds of device.
    The providers of other systems are one part: nothing of them is loaded here.
    """
    if runtime.name in _BY_KIND:
        return tuple((kind,) for kind in _KINDS)
    if runtime.name != "ort":
        return ()
    asked = runtime.options.get("only")
    rows = [r for r in PROVIDERS if r.runtime == "ort" and (asked is None or r.id in asked)]
    elsewhere = tuple(row.id for row in rows if here() not in row.platforms)
    parts: list[tuple[str, ...]] = [(row.id,) for row in rows if here() in row.platforms]
    parts += [elsewhere] if elsewhere else []
    return (*parts, (OTHERS,)) if asked is None else tuple(parts)


def merge(probed: tuple[tuple[Runtime, Outcome], ...]) -> tuple[Found, ...]:
    """Return the engines of all probes, in order, each id once.

    Where npumark's own interpreter lacks what an environment has, the environment's word counts.
    The ids of built-in engines (those of the catalogue and what the built-in runtimes answer)
    are theirs: another package's engine of such an id is not available, and says why.
    """
    told = [
        (runtime, _broke(runtime, outcome), _settled(raw, runtime))
        for runtime, outcome in probed
        for raw in _engines(runtime, outcome)
    ]
    ours = {info.id for runtime, _, info in told if runtime.package is None}
    found: dict[str, Found] = {}
    spare: list[Found] = []
    for runtime, failed, info in told:
        first = found.get(info.id)
        if runtime.package is not None and (info.id in ours or _built_in_id(info.id)):
            reason = f"{runtime.package} claims the id {info.id} of a built-in engine"
            spare.append(Found(replace(info, available=False, reason=reason), runtime))
        elif first is None or (runtime.environment and not first.info.available):
            found[info.id] = Found(info, runtime, failed)
        elif runtime.environment is None or info.available:
            reason = f"{_place(first.runtime)} already provides an engine {info.id}"
            spare.append(Found(replace(info, available=False, reason=reason), runtime))
    return (*found.values(), *spare)


def _settled(raw: EngineInfo, runtime: Runtime) -> EngineInfo:
    """Return an engine with what is not its probe's to say: where it lives, whose it is, and the
    runtime's name where the probe gave no id or the engine is another package's."""
    theirs = runtime.package is not None
    return replace(
        raw,
        id=raw.id or runtime.name,
        reason=raw.reason and one_line(raw.reason),
        runtime=runtime.name if theirs else raw.runtime or runtime.name,
        runtime_title=raw.runtime_title or RUNTIME_TITLES.get(runtime.name, runtime.name),
        environment=runtime.environment,
        package=runtime.package,
    )


_BUILT_IN_IDS = {row.engine_id(role) for row in PROVIDERS for role in row.roles}


def _built_in_id(engine_id: str) -> bool:
    return re.sub(r"-[0-9]+$", "", engine_id) in _BUILT_IN_IDS or engine_id in BUILT_IN


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
    brings = missing(reason)
    if brings is not None:
        reason = f"it needs {brings}, {DRIVER_LACKS}"
    if runtime.environment is not None and outcome.status != "ok":
        # Made anew, an environment would lack the same driver.
        lacks = brings is not None or DRIVER_LACKS in reason
        reason = f"{reason}; {(freed if lacks else remake)(runtime.environment)}"
    only = runtime.options.get("only")
    if only:
        asked = _asked_for(runtime, only)
        lines = [info for row, roles in asked for info in _absent(row, roles, reason)]
        if OTHERS in only:
            reason = f"execution providers that npumark does not know: {reason}"
            title = RUNTIME_TITLES[runtime.name]
            lines.append(EngineInfo("ort-others", False, reason, runtime.name, title, None))
        return tuple(lines)
    if runtime.environment is not None:
        return stand_ins(runtime.environment, reason)
    return _own_stand_ins(runtime.name, reason)


def _asked_for(runtime: Runtime, only: list[str]) -> list[tuple[Provider, list[str]]]:
    """Return the providers that a probe was asked for, each with the roles of their engines."""
    found = []
    for row in catalogue.PROVIDERS:
        roles = [r for r in row.roles if row.id in only or r.lstrip("id") in only]
        if row.runtime == runtime.name and roles:
            found.append((row, roles))
    return found


def _own_stand_ins(runtime: str, reason: str) -> tuple[EngineInfo, ...]:
    """Return a line for each engine of a runtime in npumark's own interpreter, none available.

    Those that on this system an environment brings are left to its lines, where others remain.
    A runtime that the catalogue does not know has one line, with its own name.
    """
    rows = [row for row in catalogue.PROVIDERS if row.runtime == runtime]
    own = [row for row in rows if row.environment is None or here() not in row.platforms]
    if not rows:
        return (EngineInfo(runtime, False, reason, runtime, runtime, None),)
    return tuple(info for row in own or rows for info in _absent(row, row.roles, reason))


def stand_ins(environment: str, reason: str) -> tuple[EngineInfo, ...]:
    """Return a line for each engine that an environment brings on this system, none of them
    available."""
    made = catalogue.environment(environment)
    if made is None:
        return ()
    brings = made.roles_on.get(here())
    return tuple(
        replace(info, environment=environment)
        for row in map(catalogue.provider, made.providers)
        if row is not None
        for info in _absent(row, [r for r in row.roles if r in (brings or row.roles)], reason)
    )


def _absent(row: Provider, roles: Sequence[str], reason: str) -> tuple[EngineInfo, ...]:
    """Return the engines of a provider on ``roles`` as not available, each id once."""
    title = RUNTIME_TITLES.get(row.runtime, row.title)
    ids = dict.fromkeys(row.engine_id(role) for role in roles)
    return tuple(EngineInfo(name, False, reason, row.runtime, title, None) for name in ids)


def last_words(log: str) -> str:
    """Return the last line a process wrote by itself: not those that the interpreter added to
    tell where it died."""
    own, _, _ = log.partition("Fatal Python error:")
    lines = [line.strip() for line in own.splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""
