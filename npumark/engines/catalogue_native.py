"""The runtimes that are reached without ONNX Runtime (see catalogue_rows for what a row holds)."""

from __future__ import annotations

from npumark.engines.catalogue_rows import EMULATED, GPU, LINUX, MACOS, MEASURED, Provider

_COREML = ("NPU", "iGPU", "dGPU", "CPU")

NATIVE_PROVIDERS: tuple[Provider, ...] = (
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
        id_suffixes={"CPU": "cpu", "NPU": "npu", **GPU},
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
        states={"CPU": MEASURED},
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
        id_suffixes={"CPU": "cpu", **GPU, "NPU": "npu"},
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
        cache="folder",
        needs="on Linux a Vulkan driver for the GPU; for an NPU its maker's runtime",
        traps=(
            "the shortcut for the accelerator uses one thread",
            "an operator that the CPU's delegate does not take runs on one thread",
            "a model that an NPU's driver leaves to the CPU is called fully accelerated",
            (
                "which adapter a GPU engine takes is told in the log alone, and cannot be chosen: "
                "the option for a preferred one is read by nothing"
            ),
        ),
        states={"CPU": MEASURED, "iGPU": EMULATED, "dGPU": EMULATED},
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
        id_suffixes={"CPU": "cpu", **GPU},
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
            (
                "under Linux a CPU has one slow thread: it is measured only where it is named, "
                "then in every variant, and neither --all-variants nor --variant brings it in"
            ),
            "convolutions have no form with packed weights; networks of them run in FP16 and BF16",
        ),
        states={"CPU": MEASURED},
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
        id_suffixes={"NPU": "ane", "CPU": "cpu", **GPU},
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
