"""How a session of ONNX Runtime is opened on one device of one provider, and on no other.

A session that was asked for an accelerator and got the CPU is an error here, never a slow
accelerator: the runtime's own retry on the CPU is off, the session must list the provider, and
the runtime must have given it nodes of the graph. A provider may be listed and be given none.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from npumark.engines import vitisai_report
from npumark.engines.base import LoadRequest
from npumark.engines.catalogue import Provider, provider
from npumark.engines.library_files import damage
from npumark.engines.onnx_batch import batched
from npumark.engines.ort_context import open_cached
from npumark.engines.ort_options import provider_options, session_config
from npumark.engines.ort_plugins import Plugin, installed_plugins, register, third_party
from npumark.engines.ort_windows_ml import ready
from npumark.engines.vulkan_adapters import vulkan_adapters
from npumark.errors import EngineError, Unsupported, WrongDevice

CPU = "CPUExecutionProvider"

_WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"
"""The configuration entry that names where the weights of a model in memory lie."""

LISTS_ONLY_OTHERS = frozenset({("ort-webgpu", "name")})
"""Providers and routes of which the runtime lists only what others got."""


def requested_provider(request: LoadRequest) -> Provider:
    """Return the row of the provider that the request's options name; without, the CPU's.

    Raises EngineError for an engine that is not of this runtime.
    """
    options = request.options
    if not options and request.engine_id == "ort-cpu":
        options = {"provider": "ort-cpu"}
    row = provider(str(options.get("provider", "")))
    if row is None and options.get("module"):
        row = third_party(
            str(options["module"]), str(options["provider_name"]), str(options["package"])
        )
    if row is None or row.runtime != "ort":
        raise EngineError(f"ONNX Runtime has no engine {request.engine_id} here")
    return row


def open_session(
    request: LoadRequest,
    row: Provider,
    *,
    profile: Path | None = None,
    fresh: bool = False,
) -> Any:
    """Return an ``onnxruntime.InferenceSession`` of the request's graph on the request's device.

    ``profile`` is the prefix of a profile to write.
    ``fresh``: the graph is compiled anew, whatever compiled model there is.
    Raises Unsupported, WrongDevice or EngineError; the runtime's own exceptions pass.
    """
    if request.threads is None or request.threads < 1:
        raise EngineError("the job names no number of threads")
    device = dict(request.options.get("device") or {"route": "name"})
    bring_provider(row, device)

    def handed(cache: Path | None, profile: Path | None) -> dict[str, str]:
        return provider_options(
            row,
            device,
            encoding=request.encoding,
            threads=request.threads or 1,
            cache=cache,
            profile=profile,
        )

    def build(graph: Path, cache: Path | None, config: Mapping[str, str]) -> Any:
        # Vitis AI is asked only where it compiles: what it may write of a compiled model when it
        # loads it must not take the place of what it wrote when it compiled it.
        tells = row.id == "ort-vitisai" and graph == request.graph
        with vitisai_report.asked() if tells else nullcontext():
            return create(
                str(graph),
                row,
                device,
                handed(cache, profile),
                threads=request.threads or 1,
                profile=profile,
                config=config,
            )

    settings = {
        "provider": row.provider_name,
        "options": handed(None, None),
        "config": session_config(row, device, strict=False),
        "threads": request.threads,
    }
    if request.batch != 1:
        return create(
            batched(request.graph, request.batch),
            row,
            device,
            handed(None, None),
            threads=request.threads,
            config={_WEIGHTS_FOLDER: str(request.graph.parent)},
        )
    if fresh:
        return build(request.graph, None, {})
    return open_cached(
        request,
        row.cache,
        build,
        settings,
        apart=profile is not None,
        told=_TOLD.get(row.id),
        rewrites=REWRITES.get(row.id, ()),
    )


_TOLD = {"ort-vitisai": lambda folder: {vitisai_report.FACT: vitisai_report.to_fact(folder)}}
"""What a provider tells in its folder when it compiles, as facts to keep with the model."""

REWRITES = {"ort-tensorrt": ("*.timing",), "ort-trt-rtx": ("*",)}
"""What a provider writes again as its session ends: TensorRT the times of the kernels it tried,
TensorRT for RTX all it keeps, the kernels that it compiled so far."""


def bring_provider(row: Provider, device: Mapping[str, Any]) -> None:
    """Load what the provider needs beside the runtime, and register the plug-in that the device
    was found through. Raises EngineError where it is gone or broken."""
    import onnxruntime

    if row.id in ("ort-cuda", "ort-tensorrt") and hasattr(onnxruntime, "preload_dlls"):
        # CUDA's libraries come as Python packages, where no loader looks for them.
        onnxruntime.preload_dlls()
    if row.id == "ort-webgpu" and sys.platform.startswith("linux"):
        # Leaves the loader of a driver that brings its own where the provider then finds it.
        vulkan_adapters()
    source = device.get("source")
    if source is None:
        return
    for plugin in _sources(str(source), row):
        if plugin.row.provider_name == row.provider_name:
            fault = register(onnxruntime, plugin)
            if fault is not None:
                raise EngineError(f"{row.title}: {fault}")
            return
    raise EngineError(f"{row.title}: the package that brings it is gone")


def _sources(source: str, row: Provider) -> Iterator[Plugin]:
    if source == "windows-ml":
        found = ready(row.id)
        if found is not None:
            yield found
        return
    yield from installed_plugins(others=False)
    # Looking through every package takes longer, and is seldom needed.
    yield from installed_plugins()


def create(
    model: str | bytes,
    row: Provider,
    device: Mapping[str, Any],
    options: Mapping[str, str],
    *,
    threads: int,
    profile: Path | None = None,
    strict: bool = False,
    config: Mapping[str, str] | None = None,
) -> Any:
    """Open a session of ``model``, a path or the bytes of one; see :func:`open_session`.

    ``strict``: no node may land on the CPU. ``config`` are configuration entries beside those that
    every session has.
    """
    import onnxruntime

    settings = session_options(
        threads, session_config(row, device, strict=strict) | dict(config or {})
    )
    if profile is not None:
        settings.enable_profiling = True
        settings.profile_file_prefix = str(profile)
    providers: list[Any] | None = None
    if device.get("route") == "devices":
        chosen = find_device(onnxruntime.get_ep_devices(), str(row.provider_name), device)
        settings.add_provider_for_devices([chosen], dict(options))
    else:
        # The CPU is not named beside it: the runtime adds it, and refuses to be told twice
        # where it may not be used.
        providers = [(row.provider_name, dict(options)) if options else row.provider_name]
    try:
        session = onnxruntime.InferenceSession(
            model, settings, providers=providers, enable_fallback=0
        )
    except Exception as fault:
        text = " ".join(str(fault).split())[:300]
        if "NOT_IMPLEMENTED" in text:
            raise Unsupported(f"ONNX Runtime has no kernel for this graph: {text}") from fault
        if "fallback to CPU EP has been explicitly disabled" in text:
            raise WrongDevice(
                f"{row.title} leaves a part of this graph to the CPU, which it may not"
            ) from fault
        raise
    try:
        require_provider(session, row, str(device.get("route", "name")))
    except WrongDevice as fault:
        broken = damage(row.packages, row.environment)
        if broken is None:
            raise
        # It stays what it is, work on the wrong device; the sentence names the cause.
        raise WrongDevice(f"{row.title}: {broken}") from fault
    return session


def session_options(threads: int, entries: Mapping[str, str]) -> Any:
    """Return the options that every session is opened with, and the configuration ``entries``."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.inter_op_num_threads = 1
    settings.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    settings.log_severity_level = 3
    for key, value in entries.items():
        settings.add_session_config_entry(key, value)
    return settings


def require_provider(session: Any, row: Provider, route: str) -> None:
    """Raise WrongDevice where the session does not run on the row's provider at all."""
    listed = [str(name) for name in session.get_providers()]
    if row.provider_name == CPU:
        if listed != [CPU]:
            raise WrongDevice(f"the session runs on {', '.join(listed)} instead of {CPU}")
        return
    if row.provider_name not in listed:
        raise WrongDevice(f"the session runs on {', '.join(listed)} instead of {row.provider_name}")
    counts = assigned_nodes(session)
    if counts is None or (row.id, route) in LISTS_ONLY_OTHERS or counts[str(row.provider_name)]:
        return
    elsewhere = ", ".join(f"{n} on {name or 'none'}" for name, n in sorted(counts.items()))
    raise WrongDevice(
        f"{row.provider_name} is listed but was given none of the graph's "
        f"{sum(counts.values())} nodes ({elsewhere})"
    )


def assigned_nodes(session: Any) -> Counter[str] | None:
    """Return how many nodes the runtime assigned to each provider; null where it won't say."""
    try:
        told = session.get_provider_graph_assignment_info()
    except Exception:  # noqa: BLE001 - absent before 1.24, and raises where not recorded
        return None
    counts: Counter[str] = Counter()
    for part in told:
        counts[part.ep_name] += len(part.get_nodes())
    return counts or None


def find_device(devices: list[Any], provider_name: str, wanted: Mapping[str, Any]) -> Any:
    """Return the runtime's device that ``wanted`` identifies (see ort_devices.Device.binding).

    Raises EngineError where it is gone.
    """
    found = [
        device
        for device in devices
        if device.ep_name == provider_name and identity(device) == wanted.get("identity")
    ]
    if not found:
        raise EngineError(f"{provider_name} no longer lists the device that the probe found")
    # Twins that state nothing to tell them by keep their order.
    return found[min(int(wanted.get("twin", 0)), len(found) - 1)]


def identity(device: Any) -> dict[str, Any]:
    """Return what tells an ``OrtEpDevice`` from others of its provider, JSON's types only."""
    hardware, told = device.device, dict(device.ep_metadata)
    metadata = dict(hardware.metadata)
    found: dict[str, Any] = {
        "type": hardware_type(device),
        "vendor_id": int(hardware.vendor_id),
        "device_id": int(hardware.device_id),
    }
    for key in ("pci_bus_id", "LUID", "card_idx"):
        if metadata.get(key):
            found[key] = str(metadata[key])
    if told.get("ov_device"):
        found["ov_device"] = str(told["ov_device"])
    return found


def hardware_type(device: Any) -> str:
    """Return CPU, GPU or NPU."""
    kind = device.device.type
    return str(getattr(kind, "name", kind)).rsplit(".", 1)[-1]
