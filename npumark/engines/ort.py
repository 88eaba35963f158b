"""ONNX Runtime: one engine per execution provider's device; so far its own CPU provider.

What each choice is for:

- Inputs and outputs are bound once to NumPy arrays of ours (a CPU OrtValue made from an array
  shares its memory), so that a call copies nothing but what the timed loop copies.
- ``session.intra_op.allow_spinning`` stays at the runtime's default, on: it is what
  applications get, and no thread of ours competes with the spinning ones during a call.
- ``session.qdq_matmulnbits_accuracy_level`` 1 keeps weight-only graphs weight-only; without it
  their activations are silently quantised to 8 bits on the fly.
- Only the providers of the engine's row are registered, and the profile must show no other.
"""

from __future__ import annotations

import functools
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from npumark.engines.base import Array, Engine, LoadRequest, Session
from npumark.engines.buffers import aligned
from npumark.engines.one_node import SHAPE, one_node_model
from npumark.engines.ort_profile import Profile, formats, prove, read_profile
from npumark.errors import EngineError, Unsupported, WrongDevice
from npumark.policy import load_policy
from npumark.worker.protocol import EngineInfo, Observed, Placement


@dataclass(frozen=True, slots=True)
class Target:
    """One row of the table of engines: a provider, and what it measures by default."""

    id: str
    role: str
    providers: tuple[str, ...]
    variants: tuple[str, ...]
    extra_variants: tuple[str, ...]


TARGETS = (
    Target(
        id="ort-cpu",
        role="CPU",
        providers=("CPUExecutionProvider",),
        variants=("fp32", "fp16", "w8", "int8-u8s8"),
        # Signed activations become the same kernels, after a conversion at load.
        extra_variants=("int8-s8s8",),
    ),
)

CONFIG = {
    "session.intra_op.allow_spinning": "1",
    "session.inter_op.allow_spinning": "1",
    "session.qdq_matmulnbits_accuracy_level": "1",
}


class OnnxRuntime(Engine):
    """ONNX Runtime, through its public Python API."""

    name = "ort"

    def __init__(self) -> None:
        self._profiles: dict[tuple[str, int | None, int], _Evidence] = {}

    def _prepare(self) -> None:
        import onnxruntime

        # Errors only: what the runtime prints is kept as evidence, not read.
        onnxruntime.set_default_logger_severity(3)

    def _probe(self, options: dict[str, Any]) -> tuple[EngineInfo, ...]:
        del options
        import onnxruntime

        listed = onnxruntime.get_available_providers()
        return tuple(_describe(target, listed) for target in TARGETS)

    def _load(self, request: LoadRequest) -> Session:
        return OrtSession(self, request, _target(request.engine_id))

    def _placement(self, request: LoadRequest, feed: list[Array], runs: int) -> Placement:
        evidence = self.evidence(request, feed, runs)
        own = frozenset(_target(request.engine_id).providers)
        return prove(evidence.profile, own, evidence.assigned)

    def evidence(self, request: LoadRequest, feed: list[Array], runs: int) -> _Evidence:
        """Return the profile of ``runs`` calls of the request's graph; made once per graph."""
        key = (str(request.graph), request.threads, runs)
        if key not in self._profiles:
            self._profiles[key] = _profiled(request, feed, runs)
        return self._profiles[key]


@dataclass(frozen=True, slots=True)
class _Evidence:
    profile: Profile
    assigned: Counter[str] | None


class OrtSession(Session):
    """A session with its inputs and outputs bound to arrays of ours."""

    def __init__(self, engine: OnnxRuntime, request: LoadRequest, target: Target) -> None:
        import onnxruntime

        self._engine, self._request = engine, request
        before = process_threads()
        self._session = _session(request, target)
        self._threads = started(before, process_threads())
        if list(self._session.get_providers()) != list(target.providers):
            raise WrongDevice(
                f"the session runs on {', '.join(self._session.get_providers())} "
                f"instead of {', '.join(target.providers)}"
            )
        self._inputs = tuple(aligned(s.shape, s.dtype) for s in request.inputs)
        self._outputs = tuple(aligned(s.shape, s.dtype) for s in request.outputs)
        binding = self._session.io_binding()
        for spec, array in zip(request.inputs, self._inputs, strict=True):
            binding.bind_ortvalue_input(spec.name, _shared(onnxruntime, array))
        for spec, array in zip(request.outputs, self._outputs, strict=True):
            binding.bind_ortvalue_output(spec.name, _shared(onnxruntime, array))
        self._step: Callable[[], object] = functools.partial(
            self._session.run_with_iobinding, binding
        )

    def inputs(self) -> tuple[Array, ...]:
        return self._inputs

    def outputs(self) -> tuple[Array, ...]:
        return self._outputs

    def step(self) -> Callable[[], object]:
        return self._step

    def observed(self) -> Observed:
        """Return device, precision and threads as the profile of a session apart shows them.

        The timed session is freed first: two copies of the weights need not fit.
        """
        import onnxruntime

        providers = list(self._session.get_providers())
        feed = [array.copy() for array in self._inputs]
        self.close()
        evidence = self._engine.evidence(self._request, feed, load_policy().placement.profile_runs)
        told = formats(evidence.profile, self._request.format)
        threads = evidence.profile.threads or self._threads
        return Observed(
            device=", ".join(providers),
            precision=told.ran,
            precision_why=told.why,
            threads=threads,
            runtime="onnxruntime",
            version=onnxruntime.__version__,
            versions=_owners(),
            details={
                "mac_share": told.share,
                "mac_share_by": told.by,
                "ops": told.counts,
                "requested_threads": self._request.threads,
                "profiled_threads": evidence.profile.threads,
                "started_threads": self._threads,
                "threads_why": _UNTOLD_THREADS if threads is None else None,
                "config": CONFIG,
                "build": _build_commit(onnxruntime.get_build_info()),
            },
        )

    def close(self) -> None:
        self._step = _closed
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


def _session(request: LoadRequest, target: Target, prefix: Path | None = None) -> Any:
    import onnxruntime

    if request.threads is None or request.threads < 1:
        raise EngineError("the job names no number of threads")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = request.threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    for key, value in CONFIG.items():
        options.add_session_config_entry(key, value)
    if prefix is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(prefix)
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    try:
        return onnxruntime.InferenceSession(
            str(request.graph), options, providers=list(target.providers)
        )
    except Exception as fault:
        if "NOT_IMPLEMENTED" in str(fault):
            text = " ".join(str(fault).split())[:300]
            raise Unsupported(f"ONNX Runtime has no kernel for this graph: {text}") from fault
        raise


def _profiled(request: LoadRequest, feed: list[Array], runs: int) -> _Evidence:
    target = _target(request.engine_id)
    with tempfile.TemporaryDirectory(prefix="npumark-", ignore_cleanup_errors=True) as folder:
        session = _session(request, target, Path(folder) / "profile")
        values = {spec.name: array for spec, array in zip(request.inputs, feed, strict=True)}
        for _ in range(runs):
            session.run(None, values)
        path = Path(session.end_profiling())
        return _Evidence(read_profile(path, runs), _assigned(session))


def _assigned(session: Any) -> Counter[str] | None:
    """Return how many nodes the runtime assigned to each provider; null where it won't say."""
    try:
        told = session.get_provider_graph_assignment_info()
    except Exception:  # noqa: BLE001 - absent before 1.24, and raises where not recorded
        return None
    counts: Counter[str] = Counter()
    for part in told:
        counts[part.ep_name] += len(part.get_nodes())
    return counts or None


def _describe(target: Target, listed: list[str]) -> EngineInfo:
    import onnxruntime

    reason = None
    missing = [p for p in target.providers if p not in listed]
    if missing:
        reason = f"this build of ONNX Runtime has no {', '.join(missing)}"
    else:
        try:
            _try_one_node(target)
        except Exception as fault:  # noqa: BLE001 - a device that fails is reported, not raised
            reason = " ".join(f"a one-node model fails: {fault}".split())[:300]
    return EngineInfo(
        id=target.id,
        available=reason is None,
        reason=reason,
        runtime="ort",
        runtime_title="ONNX Runtime",
        version=onnxruntime.__version__,
        versions=_owners(),
        # The CPU's name is the machine's to tell; this runtime knows only its vendor.
        processor={"key": "cpu", "role": target.role, "name": None},
        variants=target.variants,
        extra_variants=target.extra_variants,
    )


def _try_one_node(target: Target) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        one_node_model(), options, providers=list(target.providers)
    )
    if list(session.get_providers()) != list(target.providers):
        raise WrongDevice(f"it landed on {', '.join(session.get_providers())}")
    x = np.linspace(-1, 1, num=SHAPE[1], dtype=np.float32).reshape(SHAPE)
    (y,) = session.run(None, {"x": x})
    if not np.array_equal(y, np.maximum(x, 0)):
        raise EngineError("it gives a wrong answer")


def _target(engine_id: str) -> Target:
    for target in TARGETS:
        if target.id == engine_id:
            return target
    raise EngineError(f"ONNX Runtime has no engine {engine_id} here")


def _owners() -> dict[str, str]:
    """Return every installed package that holds an ``onnxruntime``: two shadow each other."""
    found = {}
    for package in distributions():
        name = (package.metadata["Name"] or "").lower().replace("_", "-")
        if name == "onnxruntime" or name.startswith("onnxruntime-"):
            found[name] = package.version
    return found


def _build_commit(info: str) -> str | None:
    for part in info.split(","):
        key, _, value = part.strip().partition("=")
        if key == "git-commit-id":
            return value
    return None


def _shared(onnxruntime: Any, array: Array) -> Any:
    value = onnxruntime.OrtValue.ortvalue_from_numpy(array)
    if value.data_ptr() != array.ctypes.data:
        # A runtime that copies here would fill a buffer that nobody reads.
        raise EngineError("ONNX Runtime does not share the memory of a bound array")
    return value


def _closed() -> None:
    raise EngineError("the session is closed")
