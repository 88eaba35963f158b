"""ONNX Runtime: one engine for each device of each execution provider.

What each choice is for:

- Inputs and outputs are bound to NumPy arrays of ours (ort_binding): a CPU OrtValue made from an
  array shares its memory, so a call copies nothing but what a device of its own memory needs.
- What a provider is told is in ort_options, how it is bound to a device in ort_session, what a
  probe finds in ort_probe.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import psutil

from npumark.engines.base import Array, Engine, LoadRequest, Session
from npumark.engines.buffers import aligned
from npumark.engines.catalogue import Provider
from npumark.engines.ort_automatic import POLICY, open_automatic, picked
from npumark.engines.ort_binding import Binding
from npumark.engines.ort_evidence import Evidence, assigned_counts, collect, prove
from npumark.engines.ort_numbers import (
    ask_provider,
    ask_provider_for_integers,
    read_numbers,
    summary,
)
from npumark.engines.ort_options import published, session_config
from npumark.engines.ort_probe import probe_engines
from npumark.engines.ort_session import open_session, requested_provider
from npumark.engines.ort_wheels import installed_wheels
from npumark.policy import load_policy
from npumark.worker.protocol import EngineInfo, Observed, Placement


class OnnxRuntime(Engine):
    """ONNX Runtime, through its public Python API."""

    name = "ort"
    batches = True
    automatic = POLICY

    def __init__(self) -> None:
        self._evidence: dict[tuple[str, str, int | None, int], Evidence] = {}

    def _prepare(self) -> None:
        import onnxruntime

        # Errors only: what the runtime prints is kept as evidence, not read.
        onnxruntime.set_default_logger_severity(3)

    def _probe(self, options: dict[str, Any]) -> tuple[EngineInfo, ...]:
        only = options.get("only")
        return probe_engines(None if only is None else [str(name) for name in only])

    def _load(self, request: LoadRequest) -> Session:
        return OrtSession(self, request, requested_provider(request))

    def _placement(self, request: LoadRequest, feed: list[Array], runs: int) -> Placement:
        evidence = self.evidence(request, feed, runs)
        return prove(evidence, requested_provider(request), request.options.get("device") or {})

    def evidence(self, request: LoadRequest, feed: list[Array], runs: int) -> Evidence:
        """Return what ``runs`` calls of the request's graph show; made once per graph."""
        key = (str(request.graph), request.encoding, request.threads, runs)
        if key not in self._evidence:
            self._evidence[key] = collect(request, requested_provider(request), feed, runs)
        return self._evidence[key]


class OrtSession(Session):
    """A session with its inputs and outputs bound to arrays of ours."""

    def __init__(self, engine: OnnxRuntime, request: LoadRequest, row: Provider) -> None:
        import onnxruntime

        self._engine, self._request, self._row = engine, request, row
        before = process_threads()
        self._automatic = request.device_choice == "automatic"
        opened = open_automatic if self._automatic else open_session
        self._session: Any = opened(request, row)
        self._threads = started(before, process_threads())
        self._inputs = tuple(aligned(s.shape, s.dtype) for s in request.inputs)
        self._outputs = tuple(aligned(s.shape, s.dtype) for s in request.outputs)
        self._binding = Binding(
            onnxruntime,
            self._session,
            [(s.name, array) for s, array in zip(request.inputs, self._inputs, strict=True)],
            [(s.name, array) for s, array in zip(request.outputs, self._outputs, strict=True)],
        )

    def inputs(self) -> tuple[Array, ...]:
        return self._inputs

    def outputs(self) -> tuple[Array, ...]:
        return self._outputs

    def step(self) -> Callable[[], object]:
        return self._binding.step

    def loaded_from_cache(self) -> bool | None:
        return self._request.cache_memo.reused()

    def picked(self) -> tuple[str, ...]:
        return picked(self._session) if self._automatic else ()

    def observed(self) -> Observed:
        """Return device, precision and threads as the profile of a session apart shows them.

        The timed session is freed first: two copies of the weights need not fit.
        """
        import onnxruntime

        providers = list(self._session.get_providers())
        handed = dict(self._session.get_provider_options()).get(str(self._row.provider_name))
        entries = session_config(self._row, self._request.options.get("device") or {}, strict=False)
        feed = [array.copy() for array in self._inputs]
        self.close()
        evidence = self._engine.evidence(self._request, feed, load_policy().placement.profile_runs)
        numbers = read_numbers(
            evidence,
            self._row,
            self._request.format,
            functools.partial(ask_provider, self._request, self._row),
            functools.partial(ask_provider_for_integers, self._request, self._row),
        )
        told = numbers.formats
        threads = evidence.profile.threads or self._threads
        wheels = installed_wheels()
        return Observed(
            device=providers[0],
            precision=told.ran,
            precision_why=told.why,
            threads=threads,
            runtime="onnxruntime",
            version=onnxruntime.__version__,
            versions=wheels.versions(),
            details={
                "mac_share": told.share,
                "mac_share_by": told.by,
                "ops": told.counts,
                "number_probe": summary(numbers),
                "assigned": assigned_counts(evidence.assigned),
                "requested_threads": self._request.threads,
                "profiled_threads": evidence.profile.threads,
                "started_threads": self._threads,
                "threads_why": _UNTOLD_THREADS if threads is None else None,
                "providers": providers,
                "inputs_copied_in_call": list(self._binding.rebound),
                "provider_options": published(handed or {}),
                "config": entries,
                "build": _build_commit(onnxruntime.get_build_info()),
                "wheel": wheels.imported,
                "library_sha256": wheels.library_sha256,
                "shadowing": wheels.shadowing(),
            },
        )

    def close(self) -> None:
        self._binding.close()
        self._session = None


_UNTOLD_THREADS = "neither the profile nor the process's own threads tell how many computed"


def process_threads() -> int | None:
    """Return how many threads this process has, null where the system does not say."""
    try:
        return int(psutil.Process().num_threads())
    except (psutil.Error, OSError, NotImplementedError):
        return None


def started(before: int | None, after: int | None) -> int | None:
    """Return how many threads a session computes on: those that it started, and its caller's.

    Null where a count is missing, or where threads ended meanwhile and the two do not compare.
    A pool of one thread starts none, and the profile does not name it.
    """
    if before is None or after is None or after < before:
        return None
    return 1 + after - before


def _build_commit(info: str) -> str | None:
    for part in info.split(","):
        key, _, value = part.strip().partition("=")
        if key == "git-commit-id":
            return value
    return None
