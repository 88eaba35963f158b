"""What is handed to ONNX Runtime for each provider: session configuration and provider options.

What each choice is for:

- ``session.intra_op.allow_spinning`` stays at the runtime's default, on: it is what
  applications get, and no thread of ours competes with the spinning ones during a call.
- ``session.qdq_matmulnbits_accuracy_level`` 1 keeps weight-only graphs weight-only; without it
  their activations are silently quantised to 8 bits on the fly.
- ``session.record_ep_graph_assignment_info`` makes the runtime tell which provider got which
  node: a provider that is listed may have been given none.
- Every provider is told its precision where it has a say in it, and its device by identity.
- Where a provider compiles, its own cache lies in the entry's folder and nowhere else.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from npumark.engines.catalogue import Provider
from npumark.engines.openvino import precision_hint

CONFIG = {
    "session.intra_op.allow_spinning": "1",
    "session.inter_op.allow_spinning": "1",
    "session.qdq_matmulnbits_accuracy_level": "1",
    "session.record_ep_graph_assignment_info": "1",
}

STRICT = "session.disable_cpu_ep_fallback"

QNN_PROFILE = "qnn.csv"
"""Name of QNN's own profile, in the folder of ONNX Runtime's."""

QNN_EMULATED_CHIP = {"soc_model": "60", "htp_arch": "73"}
"""What the emulator on x86 pretends to be; on a device the driver decides."""


def session_config(row: Provider, device: Mapping[str, Any], *, strict: bool) -> dict[str, str]:
    """Return the session's configuration entries.

    ``strict``: the session fails where a node lands on the runtime's own CPU provider. It is
    always on for OpenVINO's NPU, because only that keeps OpenVINO from compiling for its own CPU
    unseen where the NPU's compiler fails.
    """
    config = dict(CONFIG)
    inside = row.id == "ort-openvino" and str(device.get("ov_device", "")).startswith("NPU")
    if (strict or inside) and row.id != "ort-cpu":
        config[STRICT] = "1"
    return config


def provider_options(
    row: Provider,
    device: Mapping[str, Any],
    *,
    encoding: str,
    threads: int,
    cache: Path | None,
    profile: Path | None = None,
) -> dict[str, str]:
    """Return the provider's options.

    ``device`` is what the probe kept of it (see ort_devices.Device.binding), ``encoding`` what
    is asked for, ``cache`` the provider's own folder for compiled models, or null. ``profile``
    is where a session apart writes its profile, null for the timed one: a provider that can
    tell more of what it ran is then asked to.
    """
    options = dict(row.options)
    if device.get("ordinal") is not None:
        options["device_id"] = str(device["ordinal"])
    extra = _EXTRA.get(row.id)
    if extra is not None:
        options.update(extra(device, encoding, threads, cache))
    if profile is not None and row.id in _TELLING:
        options = _TELLING[row.id](options, profile)
    return options


def published(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the options as a record may hold them: paths by their last part alone."""
    return {
        str(key): Path(str(value)).name if Path(str(value)).is_absolute() else str(value)
        for key, value in options.items()
    }


def _ggml(
    device: Mapping[str, Any], encoding: str, threads: int, cache: Path | None
) -> dict[str, str]:
    del device, cache
    # Left alone, FP32 weights are rounded to FP16, and the figure would not be FP32's.
    return {"threads": str(threads), "weights": "f32" if encoding == "fp32" else "f16"}


def _openvino(
    device: Mapping[str, Any], encoding: str, threads: int, cache: Path | None
) -> dict[str, str]:
    del cache
    name = str(device["ov_device"])
    told = [str(c) for c in device.get("capabilities", ())]
    config: dict[str, str] = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": precision_hint(encoding, told),
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
    }
    if name == "NPU":
        # The NPU's compiler takes its precision from the graph and knows none of the CPU's.
        config = {"PERFORMANCE_HINT": "LATENCY"}
    if name == "CPU":
        config["INFERENCE_NUM_THREADS"] = str(threads)
    options = {"load_config": json.dumps({name.split(".")[0]: config}, sort_keys=True)}
    if device.get("route") == "name":
        options["device_type"] = name
    return options


def _qnn(
    device: Mapping[str, Any], encoding: str, threads: int, cache: Path | None
) -> dict[str, str]:
    del encoding, threads, cache
    options = dict(QNN_EMULATED_CHIP) if device.get("emulated") else {}
    if device.get("module"):
        module = importlib.import_module(str(device["module"]))
        options["backend_path"] = str(module.get_qnn_htp_path())
    else:
        options["backend_type"] = "htp"
    return options


def _tensorrt(
    device: Mapping[str, Any], encoding: str, threads: int, cache: Path | None
) -> dict[str, str]:
    del device, threads
    options = {
        "trt_fp16_enable": "1" if encoding.startswith("fp16") else "0",
        "trt_int8_enable": "1" if encoding.startswith("int8") else "0",
    }
    if cache is not None:
        options |= {
            "trt_engine_cache_enable": "1",
            "trt_engine_cache_path": str(cache),
            "trt_timing_cache_enable": "1",
            "trt_timing_cache_path": str(cache),
        }
    return options


def _tensorrt_rtx(
    device: Mapping[str, Any], encoding: str, threads: int, cache: Path | None
) -> dict[str, str]:
    del device, encoding, threads
    return {} if cache is None else {"nv_runtime_cache_path": str(cache)}


def _migraphx(
    device: Mapping[str, Any], encoding: str, threads: int, cache: Path | None
) -> dict[str, str]:
    del device, encoding, threads
    return {} if cache is None else {"migraphx_model_cache_dir": str(cache)}


def _vitisai(
    device: Mapping[str, Any], encoding: str, threads: int, cache: Path | None
) -> dict[str, str]:
    del device, encoding, threads
    return {} if cache is None else _vitisai_folder(cache)


def _vitisai_folder(folder: Path) -> dict[str, str]:
    """Keep what is compiled on disk: by default INT8 models stay in memory, and no report with
    them."""
    return {
        "cache_dir": str(folder),
        "cache_key": "model",
        "enable_cache_file_io_in_mem": "0",
    }


def _coreml(
    device: Mapping[str, Any], encoding: str, threads: int, cache: Path | None
) -> dict[str, str]:
    del encoding, threads
    options = {"MLComputeUnits": str(device["compute_units"])}
    if cache is not None:
        options["ModelCacheDirectory"] = str(cache)
    return options


_EXTRA = {
    "ort-coreml": _coreml,
    "ort-ggml": _ggml,
    "ort-migraphx": _migraphx,
    "ort-openvino": _openvino,
    "ort-qnn": _qnn,
    "ort-tensorrt": _tensorrt,
    "ort-trt-rtx": _tensorrt_rtx,
    "ort-vitisai": _vitisai,
}


def _qnn_telling(options: dict[str, str], profile: Path) -> dict[str, str]:
    return options | {
        "profiling_level": "detailed",
        "profiling_file_path": str(profile.with_name(QNN_PROFILE)),
    }


def _openvino_telling(options: dict[str, str], profile: Path) -> dict[str, str]:
    """Have OpenVINO count the time of each primitive.

    It counts those of a model that was compiled before, too.
    """
    del profile
    config = json.loads(options["load_config"])
    for settings in config.values():
        settings["PERF_COUNT"] = "YES"
    return options | {"load_config": json.dumps(config, sort_keys=True)}


def _vitisai_telling(options: dict[str, str], profile: Path) -> dict[str, str]:
    """Have Vitis AI compile where its report can be read, if there is no compiled model."""
    if "cache_dir" in options:
        return options
    return options | _vitisai_folder(profile.parent)


_TELLING = {
    "ort-openvino": _openvino_telling,
    "ort-qnn": _qnn_telling,
    "ort-vitisai": _vitisai_telling,
}
