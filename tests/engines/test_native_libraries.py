"""The libraries that an engine computes with are known by their bytes, not by their package."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from npumark.engines.catalogue import Provider, provider
from npumark.engines.native_libraries import digests, openvino_libraries, ort_libraries


def leave(folder: Path, *names: str) -> None:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_bytes(name.encode())


def row(identifier: str) -> Provider:
    found = provider(identifier)
    assert found is not None
    return found


def test_a_replaced_library_shows(tmp_path: Path) -> None:
    leave(tmp_path, "libLiteRt.so")
    before = digests(tmp_path, ("libLiteRt.*",))
    assert before == {"libLiteRt.so": f"sha256:{hashlib.sha256(b'libLiteRt.so').hexdigest()}"}
    (tmp_path / "libLiteRt.so").write_bytes(b"another")
    assert digests(tmp_path, ("libLiteRt.*",)) != before


def test_what_is_no_library_or_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    leave(tmp_path, "libqnn.txt")
    (tmp_path / "libqnn.so").symlink_to(tmp_path / "gone")
    (tmp_path / "libqnn.dll").mkdir()
    assert digests(tmp_path, ("libqnn.*",)) == {}
    assert digests(tmp_path / "nowhere", ("*",)) == {}
    assert digests(None, ("*",)) == {}


@pytest.mark.parametrize(
    ("identifier", "role", "plugin", "names"),
    [
        ("ort-cpu", "CPU", None, {"onnxruntime_pybind11_state.so"}),
        (
            "ort-cuda",
            "dGPU",
            None,
            {
                "onnxruntime_pybind11_state.so",
                "libonnxruntime_providers_shared.so",
                "libonnxruntime_providers_cuda.so",
            },
        ),
        (
            "ort-qnn",
            "NPU",
            "libonnxruntime_providers_qnn.so",
            {
                "onnxruntime_pybind11_state.so",
                "libonnxruntime_providers_qnn.so",
                "libQnnHtp.so",
                "libQnnSystem.so",
            },
        ),
        (
            "ort-openvino",
            "NPU",
            "libonnxruntime_providers_openvino_plugin.so",
            {
                "onnxruntime_pybind11_state.so",
                "libonnxruntime_providers_openvino_plugin.so",
                "libopenvino.so.2641",
                "libopenvino_intel_npu_plugin.so",
            },
        ),
    ],
)
def test_a_providers_libraries_are_its_own_and_its_backends(
    tmp_path: Path, identifier: str, role: str, plugin: str | None, names: set[str]
) -> None:
    capi, package = tmp_path / "capi", tmp_path / "package"
    leave(
        capi,
        "onnxruntime_pybind11_state.so",
        *("libonnxruntime_providers_shared.so", "libonnxruntime_providers_cuda.so")
        if identifier == "ort-cuda"
        else (),
        "libonnxruntime_providers_tensorrt.so",
    )
    leave(
        package,
        *("libonnxruntime_providers_qnn.so", "libQnnHtp.so", "libQnnSystem.so", "libQnnGpu.so"),
        *("libonnxruntime_providers_openvino_plugin.so", "libopenvino.so.2641"),
        *("libopenvino_intel_cpu_plugin.so", "libopenvino_intel_npu_plugin.so"),
    )
    library = None if plugin is None else str(package / plugin)
    assert set(ort_libraries(row(identifier), role, library, capi)) == names


def test_openvinos_are_its_own_and_the_devices(tmp_path: Path) -> None:
    leave(tmp_path, "libopenvino.so.2641", "libopenvino_c.so.2641")
    leave(tmp_path, "libopenvino_arm_cpu_plugin.so", "libopenvino_intel_gpu_plugin.so")
    assert set(openvino_libraries(tmp_path, "CPU")) == {
        "libopenvino.so.2641",
        "libopenvino_arm_cpu_plugin.so",
    }
    assert "libopenvino_intel_gpu_plugin.so" in openvino_libraries(tmp_path, "GPU")
