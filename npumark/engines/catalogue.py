"""Every way this tool knows to reach a processor: runtimes, their providers, their environments.

Pure data. The engines read it to know what to hand to a runtime and what to measure on it; the
page that lists the engines is generated from it. What each row claims was measured, is emulated
or has not yet run on the hardware, and ``state`` says which.

Platforms are ``linux-x86_64``, ``linux-aarch64``, ``windows-amd64``, ``windows-arm64``,
``macos-arm64`` and ``macos-x86_64``. Roles are CPU, iGPU, dGPU and NPU. Variants are encodings
of graphs (``fp32``, ``fp16``, ``bf16``, ``w8``, ``int8-u8s8`` …).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["built-in", "plug-in", "native"]

Cache = Literal["ep-context", "folder", "none"]
"""How compiled models are kept: as an EPContext graph, in a folder that the runtime fills, or
not at all (the runtime has no such thing, or compiles in well under a second)."""

LINUX = ("linux-x86_64", "linux-aarch64")
WINDOWS = ("windows-amd64", "windows-arm64")
MACOS = ("macos-arm64", "macos-x86_64")
EVERYWHERE = (*LINUX, *WINDOWS, *MACOS)


@dataclass(frozen=True, slots=True)
class Provider:
    """One way to a kind of processor.

    ``id`` begins the ids of its engines; ``id_suffixes`` gives, by role, what follows it (empty:
    nothing). ``provider_name`` is ONNX Runtime's own, null for a runtime of another kind.
    ``module`` is the Python package of a plug-in. ``environment`` names the environment that
    installs it, null where the default installation has it or where only the maker's installer
    brings it. ``options`` are handed over as they are, always; what depends on a device or a
    cache is added by the engine. ``asynchronous``: a call may return before the work is done,
    so it is timed until the outputs are read. ``makers`` are those whose GPUs and NPUs it
    drives, as processors are named (machine.card.VENDORS); empty: any.
    """

    id: str
    runtime: str
    provider_name: str | None
    title: str
    kind: Kind
    module: str | None
    packages: tuple[str, ...]
    environment: str | None
    platforms: tuple[str, ...]
    roles: tuple[str, ...]
    id_suffixes: Mapping[str, str]
    variants_by_role: Mapping[str, tuple[str, ...]]
    extra_variants_by_role: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    derived_from: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    accelerates: str = ""
    cache: Cache = "none"
    placement: str = ""
    asynchronous: bool = False
    local_only: bool = False
    makers: tuple[str, ...] = ()
    needs: str = ""
    traps: tuple[str, ...] = ()
    state: str = "not yet run on hardware"

    def engine_id(self, role: str, number: int | None = None) -> str:
        """Return the id of its engine on a device of ``role``, numbered where there are several."""
        suffix = self.id_suffixes[role]
        parts = (self.id, suffix, "" if number is None else str(number))
        return "-".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Environment:
    """A set of pinned packages that live together in an interpreter of their own.

    ``providers`` are the catalogue ids that it serves, ``runtimes`` the engine entry points that
    are asked in it. ``megabytes`` is what it took on the disk where it was tried (Linux on
    x86-64), null where it was not.
    """

    name: str
    title: str
    requirements: tuple[str, ...]
    providers: tuple[str, ...]
    runtimes: tuple[str, ...]
    platforms: tuple[str, ...]
    note: str = ""
    megabytes: int | None = None


_FLOATS = ("fp32", "fp16")
_GPU = {"iGPU": "gpu", "dGPU": "gpu"}
_COREML = ("NPU", "iGPU", "dGPU", "CPU")

_QUEUED = (
    "graph assignment; time of the calls less every stretch in which another provider's kernel "
    "ran, because its own kernels' times are of queueing"
)

PROVIDERS: tuple[Provider, ...] = (
    Provider(
        id="ort-cpu",
        runtime="ort",
        provider_name="CPUExecutionProvider",
        title="ONNX Runtime CPU",
        kind="built-in",
        module=None,
        packages=("onnxruntime",),
        environment=None,
        platforms=EVERYWHERE,
        roles=("CPU",),
        id_suffixes={"CPU": ""},
        variants_by_role={"CPU": ("fp32", "fp16", "w8", "int8-u8s8")},
        # Signed activations become the same kernels, after a conversion at load.
        extra_variants_by_role={"CPU": ("int8-s8s8",)},
        accelerates="FP32 and A8W8 with unsigned activations; FP16 is computed in FP32",
        placement="profile: kernel time by provider; graph assignment for the share of operators",
        traps=(
            "an FP16 graph is computed in FP32 through inserted casts",
            "signed activations with zero point 0 after a Relu are not fused and stay in FP32",
            "16-bit activations become Q/DQ pairs around an 8-bit weight kernel",
        ),
        state="measured on Intel and AMD processors under Linux",
    ),
    Provider(
        id="ort-ggml",
        runtime="ort",
        provider_name="ggml",
        title="ONNX Runtime with ggml",
        kind="plug-in",
        module="onnxruntime_ggml",
        packages=("onnxruntime-ggml",),
        environment="ggml",
        platforms=("linux-x86_64", "macos-arm64"),
        roles=("CPU",),
        id_suffixes={"CPU": "cpu"},
        variants_by_role={"CPU": _FLOATS},
        options={"device": "cpu"},
        accelerates="FP32, and FP16 with sums in FP32, on a CPU",
        placement="graph assignment and profile",
        traps=(
            "takes a whole graph or nothing, and is still listed where it took nothing",
            "left to itself it multiplies an FP32 graph in FP16; it is told not to",
        ),
        state="measured on Intel and AMD processors under Linux",
    ),
    Provider(
        id="ort-openvino",
        runtime="ort",
        provider_name="OpenVINOExecutionProvider",
        title="ONNX Runtime with OpenVINO",
        kind="plug-in",
        module="onnxruntime_ep_openvino",
        packages=("onnxruntime-ep-openvino", "onnxruntime-openvino"),
        environment="ort-openvino",
        platforms=("linux-x86_64", "windows-amd64"),
        roles=("CPU", "iGPU", "dGPU", "NPU"),
        id_suffixes={"CPU": "cpu", "NPU": "npu", **_GPU},
        variants_by_role={
            "CPU": ("fp32", "fp16", "w8", "int8-u8s8", "int8-s8s8", "bf16"),
            "iGPU": ("fp32", "fp16", "w8", "int8-u8s8", "int8-s8s8"),
            "dGPU": ("fp32", "fp16", "w8", "int8-u8s8", "int8-s8s8"),
            "NPU": ("fp16", "w8", "int8-u8s8", "int8-s8s8"),
        },
        extra_variants_by_role={"NPU": ("int8-a16w8",)},
        derived_from={"bf16": "fp32"},
        makers=("Intel",),
        accelerates="FP32, BF16 and INT8 on a CPU; FP16 and INT8 on GPUs and NPUs",
        cache="ep-context",
        placement="graph assignment, profile, and the primitives that OpenVINO names in it: on a "
        "GPU or NPU those named as its plug-in names them, in a model compiled for this alone",
        needs="Intel's driver for the GPU or NPU",
        traps=(
            "takes only processors whose maker is Intel",
            "asked for by name after registration it silently yields the CPU",
            "keeps inputs in memory of its own: one that is bound once is never read again",
            "can fall back to a CPU inside itself while the graph assignment says all is its own",
            "AUTO, HETERO and MULTI choose among devices; they are never used",
        ),
        state="measured on an Intel processor under Linux; GPU and NPU not yet run on hardware",
    ),
    Provider(
        id="ort-qnn",
        runtime="ort",
        provider_name="QNNExecutionProvider",
        title="ONNX Runtime with QNN",
        kind="plug-in",
        module="onnxruntime_qnn",
        packages=("onnxruntime-qnn",),
        environment="qnn",
        platforms=("windows-arm64", "linux-aarch64", "linux-x86_64", "windows-amd64"),
        roles=("NPU",),
        id_suffixes={"NPU": "npu"},
        variants_by_role={"NPU": ("fp16", "int8-u8s8", "int8-a16w8")},
        extra_variants_by_role={"NPU": ("fp32", "w8", "int8-s8s8")},
        options={"offload_graph_io_quantization": "0", "enable_htp_fp16_precision": "1"},
        makers=("Qualcomm",),
        accelerates="A8W8 and A16W8 with unsigned activations, FP16; FP32 is computed in FP16",
        cache="ep-context",
        placement="graph assignment and profile; QNN's detailed profile must show an accelerator's "
        "cycles for every execution",
        needs="Qualcomm's NPU driver on the device; elsewhere an emulator, labelled so",
        traps=(
            "a backend path that does not exist is only logged, and the CPU runs all",
            "asked for by name after registration it silently yields the CPU",
            "signed activations around zero over weights scaled per channel are computed in FP16",
            "weights alone in 8 bits are unpacked on the CPU and multiplied in FP16",
        ),
        state="emulated (HTP emulator on x86); not yet run on hardware",
    ),
    Provider(
        id="ort-webgpu",
        runtime="ort",
        provider_name="WebGpuExecutionProvider",
        title="ONNX Runtime with WebGPU",
        kind="plug-in",
        module="onnxruntime_ep_webgpu",
        packages=("onnxruntime-ep-webgpu", "onnxruntime-webgpu"),
        environment="webgpu",
        platforms=("linux-x86_64", "windows-amd64", "windows-arm64", "macos-arm64"),
        roles=("iGPU", "dGPU"),
        id_suffixes=_GPU,
        variants_by_role={"iGPU": ("fp32", "fp16", "w8"), "dGPU": ("fp32", "fp16", "w8")},
        extra_variants_by_role={"iGPU": ("int8-u8s8",), "dGPU": ("int8-u8s8",)},
        accelerates="FP32, and FP16 where the adapter has 16-bit shaders",
        placement=_QUEUED,
        asynchronous=True,
        needs="a Vulkan, Metal or Direct3D 12 driver",
        traps=(
            "with an output kept on the device a call returns before the work is done",
            "without an adapter the session silently falls back to the CPU",
            "Q/DQ graphs are unpacked and multiplied in FP32; QuantizeLinear runs on the CPU",
            "an adapter without 16-bit shaders fails at the first call, not at the load",
        ),
        state="emulated (a software adapter); not yet run on hardware",
    ),
    Provider(
        id="ort-cuda",
        runtime="ort",
        provider_name="CUDAExecutionProvider",
        title="ONNX Runtime with CUDA",
        kind="built-in",
        module=None,
        packages=("onnxruntime-gpu",),
        environment="cuda",
        platforms=("linux-x86_64", "windows-amd64"),
        roles=("dGPU",),
        id_suffixes={"dGPU": "dgpu"},
        variants_by_role={"dGPU": ("fp32", "fp16", "w8")},
        extra_variants_by_role={"dGPU": ("int8-u8s8", "int8-s8s8")},
        options={
            "use_tf32": "0",
            "cudnn_conv_algo_search": "EXHAUSTIVE",
            "arena_extend_strategy": "kSameAsRequested",
        },
        makers=("NVIDIA",),
        accelerates="FP32 (TF32 switched off) and FP16",
        placement=_QUEUED,
        asynchronous=True,
        needs="NVIDIA's driver",
        traps=(
            "TF32 is on by default, and would be shown as FP32",
            "listed as available where no driver or library is found",
            "Q/DQ graphs are unpacked and multiplied in floating point",
        ),
    ),
    Provider(
        id="ort-tensorrt",
        runtime="ort",
        provider_name="TensorrtExecutionProvider",
        title="ONNX Runtime with TensorRT",
        kind="built-in",
        module=None,
        packages=("onnxruntime-gpu",),
        environment="cuda",
        platforms=("linux-x86_64", "windows-amd64"),
        roles=("dGPU",),
        id_suffixes={"dGPU": "dgpu"},
        variants_by_role={"dGPU": ("fp32", "fp16", "int8-s8s8")},
        extra_variants_by_role={"dGPU": ("w8", "int8-u8s8")},
        options={"trt_detailed_build_log": "0"},
        makers=("NVIDIA",),
        accelerates="FP32, FP16 and signed INT8 with zero point 0",
        cache="folder",
        placement=_QUEUED,
        asynchronous=True,
        needs="NVIDIA's driver, and TensorRT 10 from NVIDIA where the system finds libraries",
        traps=(
            "what TensorRT does not take goes to whichever provider comes next",
            "unsigned activations are refused or run elsewhere",
        ),
    ),
    Provider(
        id="ort-trt-rtx",
        runtime="ort",
        provider_name="NvTensorRTRTXExecutionProvider",
        title="ONNX Runtime with TensorRT for RTX",
        kind="plug-in",
        module="onnxruntime_ep_nv_tensorrt_rtx",
        packages=("onnxruntime-ep-nv-tensorrt-rtx",),
        environment="tensorrt-rtx",
        platforms=("linux-x86_64", "windows-amd64"),
        roles=("dGPU",),
        id_suffixes={"dGPU": "dgpu"},
        variants_by_role={"dGPU": ("fp32", "fp16", "int8-s8s8")},
        extra_variants_by_role={"dGPU": ("w8", "int8-u8s8")},
        makers=("NVIDIA",),
        accelerates="FP32, FP16 and INT8 on RTX cards",
        cache="folder",
        placement=_QUEUED,
        asynchronous=True,
        local_only=True,
        needs="NVIDIA's driver and an RTX card",
        traps=(
            "its results stay local: they are shown and left out of what is published",
            "cannot share a session with TensorRT's own provider",
        ),
    ),
    Provider(
        id="ort-dml",
        runtime="ort",
        provider_name="DmlExecutionProvider",
        title="ONNX Runtime with DirectML",
        kind="built-in",
        module=None,
        packages=("onnxruntime-directml", "onnxruntime-windowsml"),
        environment="directml",
        platforms=WINDOWS,
        roles=("iGPU", "dGPU", "NPU"),
        id_suffixes={"NPU": "npu", **_GPU},
        variants_by_role={
            "iGPU": ("fp32", "fp16", "int8-u8s8"),
            "dGPU": ("fp32", "fp16", "int8-u8s8"),
            "NPU": ("fp16", "int8-u8s8"),
        },
        extra_variants_by_role={
            "iGPU": ("w8", "int8-s8s8"),
            "dGPU": ("w8", "int8-s8s8"),
            "NPU": ("int8-s8s8",),
        },
        accelerates="FP32, FP16 and INT8 where the driver has it",
        placement=_QUEUED,
        asynchronous=True,
        needs="a Direct3D 12 driver",
        traps=(
            "adapter numbers follow another order than other tools'",
            "the adapter may be a software renderer, which is then labelled emulated",
            "shares a session with no provider but the CPU's",
        ),
    ),
    Provider(
        id="ort-migraphx",
        runtime="ort",
        provider_name="MIGraphXExecutionProvider",
        title="ONNX Runtime with MIGraphX",
        kind="built-in",
        module=None,
        packages=("onnxruntime-migraphx",),
        environment="migraphx",
        platforms=("linux-x86_64", "windows-amd64"),
        roles=("iGPU", "dGPU"),
        id_suffixes={"iGPU": "igpu", "dGPU": "dgpu"},
        variants_by_role=dict.fromkeys(("iGPU", "dGPU"), ("fp32", "fp16", "int8-s8s8")),
        extra_variants_by_role=dict.fromkeys(("iGPU", "dGPU"), ("w8", "int8-u8s8")),
        makers=("AMD",),
        accelerates="FP32, FP16 and signed INT8 on AMD cards",
        cache="folder",
        placement=_QUEUED,
        asynchronous=True,
        needs="AMD's ROCm driver and libraries",
        traps=("compiles for long; without a cache every load compiles again",),
    ),
    Provider(
        id="ort-vitisai",
        runtime="ort",
        provider_name="VitisAIExecutionProvider",
        title="ONNX Runtime with Vitis AI",
        kind="built-in",
        module=None,
        packages=(),
        environment=None,
        platforms=("windows-amd64", "linux-x86_64"),
        roles=("NPU",),
        id_suffixes={"NPU": "npu"},
        variants_by_role={"NPU": ("int8-u8s8", "bf16")},
        extra_variants_by_role={"NPU": ("int8-s8s8", "int8-a16w8", "fp16")},
        derived_from={"bf16": "fp32"},
        makers=("AMD",),
        accelerates="A8W8 and BF16 on AMD's NPUs",
        cache="ep-context",
        placement="graph assignment and profile; Vitis AI's operator assignment report, and the "
        "time of the operators that it runs on the CPU itself; concluded where that time cannot be "
        "told apart",
        needs="AMD's Ryzen AI software, or Windows ML",
        traps=(
            "a driver or target that does not match leaves every operator on the CPU, silently",
            "operators that it runs on the CPU itself are listed as the provider's all the same",
            "graphs with few convolutions may be left to the CPU",
        ),
    ),
    Provider(
        id="ort-coreml",
        runtime="ort",
        provider_name="CoreMLExecutionProvider",
        title="ONNX Runtime with Core ML",
        kind="built-in",
        module=None,
        packages=("onnxruntime",),
        environment=None,
        platforms=MACOS,
        roles=("NPU", "iGPU", "CPU"),
        id_suffixes={"NPU": "ane", "iGPU": "gpu", "CPU": "cpu"},
        variants_by_role={"NPU": ("fp16",), "iGPU": _FLOATS, "CPU": _FLOATS},
        extra_variants_by_role={"NPU": ("fp32",)},
        options={"ModelFormat": "MLProgram", "RequireStaticInputShapes": "1"},
        makers=("Apple",),
        accelerates="FP16 on the Neural Engine; FP32 and FP16 on the GPU and the CPU",
        cache="folder",
        placement="graph assignment and profile; concluded, as Core ML chooses a device inside it "
        "and the provider only logs its plan: the engines coreml-ane and coreml-gpu are those that "
        "count there",
        traps=(
            "the compute units are an upper bound: Core ML may still choose the CPU",
            "ProfileComputePlan writes the planned devices to the log and returns them to nobody",
        ),
    ),
    Provider(
        id="ort-mlx",
        runtime="ort",
        provider_name="MLXExecutionProvider",
        title="ONNX Runtime with MLX",
        kind="plug-in",
        module="onnxruntime_ep_mlx",
        packages=("onnxruntime-ep-mlx",),
        environment="ort-mlx",
        platforms=("macos-arm64",),
        roles=("iGPU",),
        id_suffixes={"iGPU": "gpu"},
        variants_by_role={"iGPU": _FLOATS},
        extra_variants_by_role={"iGPU": ("w8",)},
        makers=("Apple",),
        accelerates="FP32 and FP16 on Apple's GPU",
        placement=_QUEUED,
        asynchronous=True,
    ),
    Provider(
        id="openvino",
        runtime="openvino",
        provider_name=None,
        title="OpenVINO",
        kind="native",
        module="openvino",
        packages=("openvino",),
        environment=None,
        platforms=(*LINUX, "windows-amd64", *MACOS),
        roles=("CPU", "iGPU", "dGPU", "NPU"),
        id_suffixes={"CPU": "cpu", "NPU": "npu", **_GPU},
        variants_by_role={
            "CPU": ("fp32", "fp16", "w8", "int8-u8s8", "int8-s8s8", "bf16"),
            "iGPU": ("fp32", "fp16", "w8", "int8-u8s8", "int8-s8s8"),
            "dGPU": ("fp32", "fp16", "w8", "int8-u8s8", "int8-s8s8"),
            "NPU": ("fp16", "w8", "int8-u8s8", "int8-s8s8"),
        },
        derived_from={"bf16": "fp32"},
        makers=("Intel",),
        accelerates="FP32, BF16 and INT8 on a CPU; FP16 and INT8 on GPUs and NPUs",
        cache="folder",
        placement="EXECUTION_DEVICES, and time per layer from PERF_COUNT",
        needs="Intel's driver for the GPU or NPU",
        traps=(
            "computes FP32 graphs in BF16 unless told otherwise",
            "a request for FP16 on a CPU without it becomes BF16",
            "quantises activations of weight-only graphs unless told otherwise",
        ),
        state="measured on Intel and AMD processors under Linux; GPU and NPU not yet run on "
        "hardware",
    ),
    Provider(
        id="litert",
        runtime="litert",
        provider_name=None,
        title="LiteRT",
        kind="native",
        module="ai_edge_litert",
        packages=("ai-edge-litert",),
        environment=None,
        platforms=(*LINUX, "windows-amd64", "macos-arm64"),
        roles=("CPU", "iGPU", "dGPU", "NPU"),
        id_suffixes={"CPU": "cpu", **_GPU, "NPU": "npu"},
        variants_by_role={
            "CPU": ("litert-fp16", "litert-int8"),
            **dict.fromkeys(("iGPU", "dGPU"), ("litert-fp16",)),
            "NPU": ("litert-int8", "litert-fp16"),
        },
        extra_variants_by_role=dict.fromkeys(("iGPU", "dGPU"), ("litert-int8",)),
        accelerates="A8W8 and FP32 on a CPU, where FP16 models are computed in FP32; FP16 and "
        "FP32 on a GPU",
        placement="on a CPU the kernels that a profile names; on a GPU or NPU the runtime's "
        "word that it took every operator",
        needs="on Linux a Vulkan driver for the GPU; for an NPU its maker's runtime",
        traps=(
            "the shortcut for the accelerator uses one thread",
            "an operator that the CPU's delegate does not take runs on one thread",
            "a model that an NPU's driver leaves to the CPU is called fully accelerated",
            "the adapter that a GPU engine took is told in the log alone",
        ),
        state="CPU measured on an Intel processor under Linux; GPU emulated",
    ),
    Provider(
        id="mlx",
        runtime="mlx",
        provider_name=None,
        title="MLX",
        kind="native",
        module="mlx",
        packages=("mlx",),
        environment="mlx",
        platforms=("macos-arm64", *LINUX),
        roles=("iGPU", "dGPU", "CPU"),
        id_suffixes={"CPU": "cpu", **_GPU},
        variants_by_role={
            **dict.fromkeys(("iGPU", "dGPU"), ("mlx-fp16", "mlx-bf16", "mlx-w8")),
            "CPU": ("mlx-fp16",),
        },
        extra_variants_by_role={
            **dict.fromkeys(("iGPU", "dGPU"), ("mlx-w4",)),
            "CPU": ("mlx-bf16", "mlx-w8", "mlx-w4"),
        },
        makers=("Apple",),
        accelerates="FP16 and BF16 on GPUs; weights alone in 8 or 4 bits, multiplied in FP16",
        placement="a function runs on its stream's device as a whole: an operation that the "
        "device lacks raises, and none is moved elsewhere",
        asynchronous=True,
        traps=(
            "evaluation is lazy: a call that does not force it computes nothing",
            "on a card with memory of its own, viewing an output is what copies it to the host",
            "under Linux a CPU has one slow thread: it is measured only when asked for by name",
            "convolutions have no form with packed weights; networks of them run in FP16 and BF16",
        ),
        state="run on Intel and AMD processors under Linux; Apple's GPUs and CUDA not yet run on "
        "hardware",
    ),
    Provider(
        id="coreml",
        runtime="coreml",
        provider_name=None,
        title="Core ML",
        kind="native",
        module="coremltools",
        packages=("coremltools", "pyobjc-framework-CoreML"),
        environment=None,
        platforms=MACOS,
        roles=("NPU", "iGPU", "dGPU", "CPU"),
        id_suffixes={"NPU": "ane", "CPU": "cpu", **_GPU},
        variants_by_role=dict.fromkeys(
            _COREML, ("coreml-fp16", "coreml-int8", "coreml-int8-affine")
        ),
        extra_variants_by_role=dict.fromkeys(_COREML, ("coreml-lut4",)),
        makers=("Apple",),
        accelerates="FP16, A8W8 and 4-bit palettes on the Neural Engine",
        cache="folder",
        placement="the compute plan: preferred device of each operation, by estimated cost",
        needs="macOS 14, for 4-bit palettes macOS 15, for the compute plan macOS 14.4",
        traps=(
            (
                "the compute units that are asked for are an upper bound: a program for the Neural "
                "Engine may run on the CPU"
            ),
            "a device that supports an operation is not the one that runs it",
            (
                "8-bit activations are slower on CPU and GPU, which unpack them at run time; int8 "
                "multipliers came with A17 Pro and M4"
            ),
            "which number format multiplied is not told",
        ),
    ),
)

_BASICS = ("numpy==2.4.6", "psutil==7.2.2")
"""What a worker needs beside its runtime; an environment pins it, as it pins all else."""


ENVIRONMENTS: tuple[Environment, ...] = (
    Environment(
        name="ggml",
        title="ONNX Runtime with the ggml plug-in",
        requirements=("onnxruntime==1.30.0", "onnxruntime-ggml==0.2.0", *_BASICS),
        providers=("ort-ggml",),
        runtimes=("ort",),
        platforms=("linux-x86_64", "macos-arm64"),
        megabytes=242,
    ),
    Environment(
        name="ort-openvino",
        title="ONNX Runtime with the OpenVINO plug-in",
        requirements=("onnxruntime==1.31.1", "onnxruntime-ep-openvino==1.8.1", *_BASICS),
        providers=("ort-openvino",),
        runtimes=("ort",),
        platforms=("linux-x86_64", "windows-amd64"),
        note="Intel processors, GPUs and NPUs",
        megabytes=332,
    ),
    Environment(
        name="qnn",
        title="ONNX Runtime with the QNN plug-in",
        requirements=("onnxruntime==1.31.1", "onnxruntime-qnn==2.7.0", *_BASICS),
        providers=("ort-qnn",),
        runtimes=("ort",),
        platforms=("windows-arm64", "linux-aarch64", "linux-x86_64", "windows-amd64"),
        note="Qualcomm NPUs; on x86 processors under Linux an emulator",
        megabytes=505,
    ),
    Environment(
        name="webgpu",
        title="ONNX Runtime built with WebGPU",
        requirements=("onnxruntime-webgpu==1.27.0", *_BASICS),
        providers=("ort-webgpu",),
        runtimes=("ort",),
        platforms=("linux-x86_64", "windows-amd64", "macos-arm64"),
        note="any GPU with a Vulkan, Metal or Direct3D 12 driver; software adapters are emulated",
        megabytes=173,
    ),
    Environment(
        name="webgpu-plugin",
        title="ONNX Runtime with the WebGPU plug-in",
        requirements=("onnxruntime==1.31.1", "onnxruntime-ep-webgpu==0.4.0", *_BASICS),
        providers=("ort-webgpu",),
        runtimes=("ort",),
        platforms=("linux-x86_64", "windows-amd64", "windows-arm64", "macos-arm64"),
        note="needs a GPU that the operating system lists",
    ),
    Environment(
        name="cuda",
        title="ONNX Runtime with CUDA and TensorRT",
        requirements=("onnxruntime-gpu[cuda,cudnn]==1.31.1", *_BASICS),
        providers=("ort-cuda", "ort-tensorrt"),
        runtimes=("ort",),
        platforms=("linux-x86_64", "windows-amd64"),
        note="NVIDIA cards; the CUDA libraries are several GB",
    ),
    Environment(
        name="tensorrt-rtx",
        title="ONNX Runtime with TensorRT for RTX",
        requirements=(
            "onnxruntime==1.31.1",
            "onnxruntime-ep-nv-tensorrt-rtx-cu13==0.5.0",
            *_BASICS,
        ),
        providers=("ort-trt-rtx",),
        runtimes=("ort",),
        platforms=("linux-x86_64", "windows-amd64"),
        note="RTX cards; its results stay on this computer",
    ),
    Environment(
        name="directml",
        title="ONNX Runtime with DirectML",
        requirements=("onnxruntime-directml==1.24.4", *_BASICS),
        providers=("ort-dml",),
        runtimes=("ort",),
        platforms=("windows-amd64",),
    ),
    Environment(
        name="windowsml",
        title="Windows ML",
        requirements=("windowsml[with-ort]==2.5.96", *_BASICS),
        providers=(
            "ort-dml",
            "ort-qnn",
            "ort-openvino",
            "ort-vitisai",
            "ort-trt-rtx",
            "ort-migraphx",
        ),
        runtimes=("ort",),
        platforms=WINDOWS,
        note="the execution providers that Windows itself delivers",
    ),
    Environment(
        name="migraphx",
        title="ONNX Runtime with MIGraphX",
        requirements=("onnxruntime-migraphx==1.27.1", *_BASICS),
        providers=("ort-migraphx",),
        runtimes=("ort",),
        platforms=("linux-x86_64",),
        note="AMD cards; needs ROCm installed",
    ),
    Environment(
        name="ort-mlx",
        title="ONNX Runtime with the MLX plug-in",
        requirements=("onnxruntime==1.31.1", "onnxruntime-ep-mlx==0.31.0", *_BASICS),
        providers=("ort-mlx",),
        runtimes=("ort",),
        platforms=("macos-arm64",),
    ),
    Environment(
        name="mlx",
        title="MLX",
        requirements=(
            "mlx[cpu]==0.32.4; sys_platform == 'linux'",
            "mlx==0.32.4; sys_platform == 'darwin'",
            *_BASICS,
        ),
        providers=("mlx",),
        runtimes=("mlx",),
        platforms=("macos-arm64", *LINUX),
        note="under Linux on the CPU alone, and slowly; for NVIDIA cards there is mlx-cuda",
        megabytes=132,
    ),
    Environment(
        name="mlx-cuda",
        title="MLX with CUDA",
        requirements=("mlx[cuda13]==0.32.4", *_BASICS),
        providers=("mlx",),
        runtimes=("mlx",),
        platforms=LINUX,
        note="NVIDIA cards; the CUDA libraries are several GB",
    ),
)


def provider(identifier: str) -> Provider | None:
    """Return the row with this id, or null."""
    return next((row for row in PROVIDERS if row.id == identifier), None)


def environment(name: str) -> Environment | None:
    """Return the environment of this name, or null."""
    return next((row for row in ENVIRONMENTS if row.name == name), None)
