"""Virtual engines: deterministic, scripted, right by default because they read the answers.

They exist so that a whole run, with every way in which an engine can fail, takes milliseconds.
They are marked ``virtual`` and no run with one is ever comparable.
"""

from __future__ import annotations

import gc
import hashlib
import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from npumark.engines.base import Array, Engine, LoadRequest, Session
from npumark.engines.model_cache import ModelCache, Recipe, model_cache
from npumark.engines.virtual_faults import at_load, distort, misbehave
from npumark.engines.virtual_script import DEATHS, REFUSALS, Card, Fault, Script, read_script
from npumark.errors import EngineError
from npumark.worker.protocol import EngineInfo, Observed, Placement

_FINGERPRINT = 256
"""Elements of an input that are looked at to tell which one it is."""


class Virtual(Engine):
    """Options: ``script``, the path of a script (see virtual_script); none, no engines."""

    name = "virtual"
    batches = True
    automatic = "AUTO"

    def _probe(self, options: dict[str, Any]) -> tuple[EngineInfo, ...]:
        if "script" not in options:
            return ()
        script = read_script(Path(options["script"]))
        if script.probe is not None:
            misbehave(script.probe)
        return tuple(
            EngineInfo(
                id=card.id,
                available=card.available,
                reason=card.reason,
                runtime="virtual",
                runtime_title=card.title,
                version=card.version,
                versions=card.versions,
                processor=card.processor,
                variants=tuple(card.variants),
                extra_variants=tuple(card.extra_variants),
                derived_from=card.derived_from,
                options={
                    "script": str(options["script"]),
                    **({"cache": True} if card.compiles is not None else {}),
                },
                emulated=card.emulated,
                virtual=True,
                local_only=card.local_only,
            )
            for card in script.engines.values()
        )

    def _load(self, request: LoadRequest) -> Session:
        script, card = self._card(request)
        attempt = script.next_attempt(
            card.id, request.workload_id, request.encoding, preparing=request.preparing
        )
        faults = card.faults_of(request.workload_id, request.encoding, attempt)
        at_load(faults, None)
        if request.batch != 1:
            at_load(faults, "batch")
        if card.work is not None:
            card.work.bind()
        cache = model_cache(request, {"version": card.version})
        session = VirtualSession(script, card, request, attempt, faults)
        model = _Model(card, request, faults)
        if cache is None:
            if card.compiles is not None:
                model.load(None)
            return session
        session.compiled = cache
        session.model_is_whole = cache.open(Recipe(model.load, compile=model.compile))
        return session

    def _placement(self, request: LoadRequest, feed: list[Array], runs: int) -> Placement:
        del feed, runs
        _, card = self._card(request)
        told = {
            "verdict": "proved",
            "share": 1.0,
            "op_share": 1.0,
            "partitions": 1,
            "evidence": "virtual",
            "why": None,
        }
        return Placement(**{**told, **card.placement})

    def _card(self, request: LoadRequest) -> tuple[Script, Card]:
        script = read_script(Path(request.options.get("script", "")))
        if request.engine_id not in script.engines:
            raise EngineError(f"the script has no engine {request.engine_id}")
        return script, script.engines[request.engine_id]


class _Model:
    """A compiled model: bytes that only this graph gives, of which every one counts."""

    def __init__(self, card: Card, request: LoadRequest, faults: list[Fault]) -> None:
        self._compiles = card.compiles or {}
        self._graph = request.graph
        self._encoding = request.encoding
        self._faults = faults
        self._compiled = False

    def compile(self, folder: Path) -> dict[str, Any]:
        self._make()
        if self._compiles["keeps"]:
            (folder / "model.bin").write_bytes(self._bytes())
        self._compiled = True
        return {"partitions": 1}

    def load(self, folder: Path | None) -> bool:
        """Return whether the model is byte for byte what compiling the graph gives."""
        if folder is None:
            self._make()
            return True
        if not self._compiles["keeps"]:
            return True
        if not self._compiled:
            at_load(self._faults, "reload")
        return (folder / "model.bin").read_bytes() == self._bytes()

    def _make(self) -> None:
        at_load(self._faults, "compile")
        time.sleep(self._compiles["seconds"])

    def _bytes(self) -> bytes:
        seed = hashlib.sha256(self._graph.read_bytes() + self._encoding.encode()).digest()
        return random.Random(seed).randbytes(int(self._compiles["bytes"]))  # noqa: S311


class VirtualSession(Session):
    """Looks the input up among those it was taught and puts its reference into the outputs."""

    def __init__(
        self, script: Script, card: Card, request: LoadRequest, attempt: int, faults: list[Fault]
    ) -> None:
        self.nondeterministic = card.nondeterministic
        self._card, self._request, self._attempt = card, request, attempt
        self.fake_clock = script.fake_clock
        self._faults = {f.call: f for f in faults if f.call and f.do in (*DEATHS, *REFUSALS)}
        self._due = [f for f in faults if f.after_s is not None and f.do in (*DEATHS, *REFUSALS)]
        self._lies = [f for f in faults if f.do not in (*DEATHS, *REFUSALS)]
        self._inputs = tuple(np.zeros(s.shape, s.dtype) for s in request.inputs)
        extra = 1 if any(f.do == "wrong_shape" for f in self._lies) else 0
        self._outputs = tuple(
            np.zeros((*s.shape[:-1], s.shape[-1] + extra), s.dtype) for s in request.outputs
        )
        draw = script.draw(card.id, request.workload_id, request.encoding, attempt)
        self._gauss = draw.gauss
        factor = card.attempt_factor(request.workload_id, request.encoding, attempt)
        factor *= request.batch
        self._work = None if card.work is None else card.work.times(factor)
        self._base = factor * card.latency_ns(request.workload_id, request.encoding)
        self._base *= max(0.01, 1 + card.attempt_noise * self._gauss(0, 1))
        self._now = 0
        self._loaded_ns = self.clock_ns()
        self._idled_ms = 0.0
        self._calls = 0
        self._known: dict[bytes, int] = {}
        self._references: Sequence[Array] = ()
        self._first: int | None = None
        self._whole = False
        self.compiled: ModelCache | None = None
        self.model_is_whole = True

    def learn(self, samples: Sequence[tuple[Array, ...]], references: Sequence[Array]) -> None:
        """Take the eval set's inputs and right answers."""
        self._references = references
        for whole in (False, True):
            self._whole = whole
            self._known = {self._mark(sample): i for i, sample in enumerate(samples)}
            if len(self._known) == len(samples):
                return
        raise EngineError("two inputs of the eval set are equal")

    def clock_ns(self) -> int:
        """Return the time by this session's clock: the fake one moves only by its calls."""
        return self._now if self.fake_clock else time.perf_counter_ns()

    def inputs(self) -> tuple[Array, ...]:
        return self._inputs

    def outputs(self) -> tuple[Array, ...]:
        return self._outputs

    def step(self) -> Callable[[], object]:
        return self._call

    def loaded_from_cache(self) -> bool | None:
        return None if self.compiled is None else self.compiled.reused

    def close(self) -> None:
        if self.compiled is not None:
            self.compiled.settle()

    def picked(self) -> tuple[str, ...]:
        automatic = self._request.device_choice == "automatic"
        return (self._device,) if automatic else ()

    @property
    def _device(self) -> str:
        return self._card.device or str(self._card.processor.get("name"))

    def observed(self) -> Observed:
        precision = self._card.precision.get(self._request.encoding, self._request.format)
        return Observed(
            device=self._device,
            precision=precision,
            precision_why=None if precision else "the script leaves it unknown",
            threads=self._request.threads,
            runtime="virtual",
            version=self._card.version or "",
            details={"attempt": self._attempt, **self._worked()},
        )

    def _call(self) -> None:
        self._calls += 1
        if self._calls in self._faults:
            misbehave(self._faults[self._calls])
        for fault in self._due:
            if self.clock_ns() - self._loaded_ns >= (fault.after_s or 0.0) * 1e9:
                misbehave(fault)
        if self._work is not None:
            self._work()
        else:
            self._pass(self._latency())
        n = self._request.batch
        try:
            rows = [
                self._known[self._mark([_row(array, i, n) for array in self._inputs])]
                for i in range(n)
            ]
        except KeyError:
            raise EngineError("an input that is not of the eval set") from None
        if self._first is None:
            self._first = rows[0]
        for fault in self._lies:
            stale = fault.do == "memoised_when_timed" and not gc.isenabled()
            if (fault.do == "memoised" or stale) and self._holds(fault):
                rows = [self._first] * n
        for output, reference in zip(self._outputs, self._references, strict=False):
            for i, which in enumerate(rows):
                place = _row(output, i, n)
                if place.size == reference[which].size:
                    place[...] = reference[which].reshape(place.shape)
            if not self.model_is_whole:
                output[...] = -output
            for fault in self._lies:
                if self._holds(fault):
                    distort(fault, output, self._gauss)

    def _holds(self, fault: Fault) -> bool:
        """Say whether a wrong answer is told in this call of this session."""
        if fault.call not in (None, self._calls):
            return False
        if fault.when is None:
            return True
        if fault.when == "batch":
            return self._request.batch != 1
        return (fault.when == "reload") == bool(self.loaded_from_cache())

    def _worked(self) -> dict[str, Any]:
        """Return the work of a call, and the CPUs it can be done on as they are read back."""
        if self._work is None:
            return {}
        cpus = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
        return {"rounds": self._work.rounds, "cpus": cpus}

    def idle(self, seconds: float) -> None:
        """Let time pass on this session's clock without a call."""
        self._pass(round(seconds * 1e9))
        self._idled_ms = seconds * 1e3

    def _pass(self, latency: int) -> None:
        if self.fake_clock:
            self._now += latency
        else:
            time.sleep(latency / 1e9)

    def _latency(self) -> int:
        card, elapsed = self._card, self._now / 1e9
        factor = max(0.01, 1 + card.noise * self._gauss(0, 1)) if card.noise else 1.0
        factor *= 1 + card.drift_per_s * elapsed
        if self._calls == 1:
            factor *= card.first_call_factor
        if card.episodes and elapsed % card.episodes["every_s"] < card.episodes["length_s"]:
            factor *= card.episodes["factor"]
        if card.wake and self._idled_ms >= card.wake["after_ms"]:
            factor *= card.wake["factor"]
        self._idled_ms = 0.0
        return max(1, round(self._base * factor))

    def _mark(self, arrays: Sequence[Array]) -> bytes:
        if self._whole:
            return b"".join(a.tobytes() for a in arrays)
        return b"".join(a.reshape(-1)[:: max(1, a.size // _FINGERPRINT)].tobytes() for a in arrays)


def _row(array: Array, i: int, n: int) -> Array:
    """Return what belongs to one of ``n`` inputs per call."""
    size = len(array) // n
    return array[i * size : (i + 1) * size]
