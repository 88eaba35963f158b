"""The environment a worker starts with: what could bend a measurement is taken out and named.

A stray ``OMP_NUM_THREADS`` changes what an engine does without anybody having asked for it,
and ``PYTHON*`` variables change what a worker even imports. They are removed, and the record
says which were set. Variables that choose devices (``CUDA_VISIBLE_DEVICES`` …) are the user's
own selection and stay; those a reader should know of are recorded.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Mapping
from pathlib import Path

import npumark

MARKER = "NPUMARK_WORKER"
"""Names the attempt a process belongs to: inherited, so that it finds escaped descendants."""

_REMOVED_PREFIXES = (
    "PYTHON",
    "OMP_",
    "GOMP_",
    "KMP_",
    "MKL_",
    "OPENBLAS_",
    "VECLIB_",
    "BLIS_",
    "MLX_",
)
_REMOVED = frozenset(
    {"GOTO_NUM_THREADS", "NUMEXPR_NUM_THREADS", "TBB_NUM_THREADS", "NUMEXPR_MAX_THREADS"}
)
_NOTED_PREFIXES = (
    # Runtimes and the libraries that compute for them.
    "ORT_",
    "ORTTENSORRT_",
    "OV_",
    "OPENVINO_",
    "ONEDNN_",
    "DNNL_",
    "TBB_",
    "XNNPACK_",
    "TFLITE_",
    "LITERT_",
    "GGML_",
    "COREML_",
    "DAWN_",
    "TINT_",
    "WEBGPU_",
    # Devices, their drivers and the layers that lie over them.
    "CUDA_",
    "CUBLAS_",
    "CUDNN_",
    "NVIDIA_",
    "TENSORRT_",
    "TRT_",
    "HIP_",
    "HSA_",
    "ROCR_",
    "ROCM_",
    "ROCBLAS_",
    "MIOPEN_",
    "MIGRAPHX_",
    "AMD_",
    "GPU_",
    "ZE_",
    "ZES_",
    "SYCL_",
    "ONEAPI_",
    "NEO_",
    "IGC_",
    "NPU_",
    "INTEL_NPU_",
    "OCL_",
    "OPENCL_",
    "QNN_",
    "ADSP_",
    "XLNX_",
    "XRT_",
    "VITISAI_",
    "VAIP_",
    "DML_",
    "D3D12_",
    "DXGI_",
    "MTL_",
    "METAL_",
    "VK_",
    "MESA_",
    "LP_",
    "RADV_",
    "ANV_",
    "LIBGL_",
    "GALLIUM_",
    # Memory, and what the loader brings in.
    "MALLOC_",
    "GLIBC_",
    "LD_",
    "DYLD_",
)
_NOTED = frozenset({"DRI_PRIME"})
_NOTED_PARTS = ("TF32", "FORCE_FP32", "FORCE_FP16")
"""What a name may hold anywhere: another number format than the one that was asked for."""

_FIXED = {
    "PYTHONHASHSEED": "0",
    "PYTHONUTF8": "1",
    # Card numbers in bus order, as the tools that name cards count them.
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
}


def worker_environment(
    base: Mapping[str, str], marker: str, *, apart: bool = False
) -> dict[str, str]:
    """Return the environment of a worker that ``marker`` names, made from ``base``.

    ``apart``: its interpreter is that of an environment of its own, and imports nothing from
    this one's folders (``worker.launch`` brings npumark alone).
    """
    env = {k: v for k, v in base.items() if not _is_removed(k)}
    env.update(_FIXED)
    env[MARKER] = marker
    # An interpreter's own note to a child, which an environment's would take for itself.
    env.pop("__PYVENV_LAUNCHER__", None)
    root = None if apart else _package_root()
    if root is not None:
        env["PYTHONPATH"] = root
    return env


def environment_facts(base: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the names of the variables that were ``removed`` and those kept but ``noted``.

    Names only: a value may hold a user's paths.
    """
    return {
        "removed": sorted(k for k in base if _is_removed(k)),
        "noted": sorted(k for k in base if _is_noted(k)),
    }


def _is_removed(name: str) -> bool:
    upper = name.upper()
    return upper in _REMOVED or upper.startswith(_REMOVED_PREFIXES)


def _is_noted(name: str) -> bool:
    upper = name.upper()
    return not _is_removed(name) and (
        upper in _NOTED
        or upper.startswith(_NOTED_PREFIXES)
        or any(part in upper for part in _NOTED_PARTS)
    )


def _package_root() -> str | None:
    """Return the folder this package lies in, or None where it is one of the interpreter's own.

    What npumark needs may lie beside it (``pip install --target``), and a worker needs it too.
    """
    root = Path(npumark.__file__).resolve().parent.parent
    installed = {Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib")}
    return None if root in installed else str(root)
