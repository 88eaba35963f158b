"""The sha256 of the native libraries that an engine computes with, taken once, by its probe.

A package's version says what was installed; a library that somebody put in its place says
nothing. The probe runs before anything is timed, and what it finds is part of the engine's
versions: a run that is resumed after a library changed says so, and compiled models of another
library are not found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from npumark.engines.catalogue import Provider

_SUFFIXES = (".so", ".dll", ".dylib", ".pyd")

_RUNTIME = ("onnxruntime.dll", "libonnxruntime.*", "onnxruntime_pybind11_state*")
"""ONNX Runtime itself, in its folder ``capi``: on Linux all of it is the Python module."""

_BUILT_IN = {"ort-dml": ("DirectML.dll",)}
_BENEATH = {
    "ort-ggml": ("*ggml*",),
    "ort-qnn": ("*QnnHtp.*", "*QnnSystem.*", "*HtpPrepare.*"),
    "ort-webgpu": ("*webgpu_dawn*",),
}
_DEVICE_PLUGIN = {"CPU": "cpu", "GPU": "gpu", "iGPU": "gpu", "dGPU": "gpu", "NPU": "npu"}


def digests(folder: Path | None, patterns: Iterable[str]) -> dict[str, str]:
    """Return ``sha256:<hexadecimal>`` by file name of the libraries in ``folder`` that match one
    of ``patterns``. What cannot be read is left out; a folder that is not there holds none."""
    found: dict[str, str] = {}
    for pattern in patterns if folder is not None else ():
        for path in sorted(folder.glob(pattern)) if folder is not None else ():
            if path.name in found or not any(s in path.name for s in _SUFFIXES):
                continue
            try:
                with path.open("rb") as stream:
                    digest = hashlib.file_digest(stream, "sha256").hexdigest()
            except OSError:
                continue
            found[path.name] = f"sha256:{digest}"
    return found


def openvino_libraries(folder: Path | None, role: str) -> dict[str, str]:
    """Return OpenVINO's own library in ``folder``, and its plug-in for devices of ``role``, or of
    that kind (``GPU``)."""
    plugin = f"*openvino_*_{_DEVICE_PLUGIN.get(role, 'cpu')}_plugin*"
    return digests(folder, ("libopenvino.*", "openvino.dll", plugin))


def ort_libraries(
    row: Provider, role: str, plugin: str | None, capi: Path | None
) -> dict[str, str]:
    """Return the libraries of one of ONNX Runtime's providers: the runtime's, the provider's and
    those of the maker's backend beneath it.

    ``plugin`` is the path of a plug-in's library, null for a provider that is built in;
    ``capi`` the runtime's folder of libraries.
    """
    name = str(row.provider_name).removesuffix("ExecutionProvider").lower()
    built_in = (f"*onnxruntime_providers_{name}.*", "*onnxruntime_providers_shared.*")
    beside = capi if plugin is None else Path(plugin).parent
    found = digests(capi, _RUNTIME)
    if plugin is None:
        found |= digests(capi, (*built_in, *_BUILT_IN.get(row.id, ())))
    else:
        found |= digests(beside, (Path(plugin).name,))
    if row.id == "ort-openvino":
        found |= openvino_libraries(beside, role)
    return found | digests(beside, _BENEATH.get(row.id, ()))
