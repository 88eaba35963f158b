"""ONNX Runtime left to choose its providers by itself, as diagnostics look at it.

The runtime picks among the providers that this process has: those of its own package, and the
plug-in that the engine was found through. No figure ever comes from such a session.
"""

from __future__ import annotations

from typing import Any

from npumark.engines.base import LoadRequest
from npumark.engines.catalogue import Provider
from npumark.engines.ort_options import session_config
from npumark.engines.ort_session import assigned_nodes, bring_provider, session_options
from npumark.errors import EngineError, Unsupported

POLICY = "MAX_PERFORMANCE"


def open_automatic(request: LoadRequest, row: Provider) -> Any:
    """Return a session of the request's graph on the providers that the runtime picks.

    ``row`` is the engine's own provider, which it may or may not pick. Raises Unsupported where
    this version makes no choice by itself, EngineError where what it picks does not load.
    """
    import onnxruntime

    if request.threads is None or request.threads < 1:
        raise EngineError("the job names no number of threads")
    policies = getattr(onnxruntime, "OrtExecutionProviderDevicePolicy", None)
    if policies is None or not hasattr(onnxruntime.SessionOptions, "set_provider_selection_policy"):
        raise Unsupported(
            f"ONNX Runtime {onnxruntime.__version__} does not choose providers by itself"
        )
    device = dict(request.options.get("device") or {"route": "name"})
    bring_provider(row, device)
    settings = session_options(request.threads, session_config(row, device, strict=False))
    settings.set_provider_selection_policy(getattr(policies, POLICY))
    try:
        return onnxruntime.InferenceSession(str(request.graph), settings, enable_fallback=0)
    except Exception as fault:
        text = " ".join(str(fault).split())[:300]
        raise EngineError(f"ONNX Runtime cannot load on what it picks: {text}") from fault


def picked(session: Any) -> tuple[str, ...]:
    """Return the providers that were given nodes, those with the most first. Raises EngineError
    where the runtime does not tell: the session lists providers that have none, too."""
    counts = assigned_nodes(session)
    if counts is None:
        raise EngineError("this ONNX Runtime does not tell which providers it gave nodes to")
    return tuple(name for name, _ in counts.most_common())
