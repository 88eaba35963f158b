"""Emits a program as a LiteRT model: a FlatBuffer, and what goes behind it from the weight file.

Variants: ``litert-fp16`` (float16 weights that the graph dequantises, everything else float32)
and ``litert-int8`` (int8 weights per output channel and int8 activations; inputs and outputs
float32). Images are NHWC and convolution weights OHWI, as the format wants them; dense weights
are [out, in]. ReLUs are fused into what they follow. An activation's uint8 range with zero
point z is its int8 range with zero point z - 128: the same numbers.

In ``litert-int8`` a node computes on int8 where the ranges of all it reads and of its result
are known. A dense layer or convolution whose result has none (a head, an encoder's layers)
keeps its int8 weights and reads float32 activations, which the runtime quantises as they come;
everything else that has no range computes in float32.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ai_edge_litert import schema_py_generated as schema

from npumark.pack.program import Program, ProgramNode
from workloads.litert_composed import Composed
from workloads.litert_file import Model
from workloads.litert_tensors import NHWC

VARIANTS = {"litert-fp16": "fp16", "litert-int8": "int8"}
"""Variant -> form of its weight file."""


def emit(program: Program, variant: str) -> Model:
    """Return the model of one variant. Raises KeyError on an unknown variant, ValueError on an
    operation that has no emission here."""
    return _Emitter(program, VARIANTS[variant]).model()


@dataclass
class _Emitter(Composed):
    def model(self) -> Model:
        program = self.program
        inputs = {i.name: self.put_input(i.name, i.dtype) for i in program.inputs}
        for node in program.nodes:
            if node.op == "relu" and node.inputs[0] in self.fused:
                continue
            self.node(replace(node, name=self.fused.get(node.name, node.name)), node.name)
        outputs = {name: self.as_float(tensor) for name, tensor in program.outputs.items()}
        for name, index in outputs.items():
            self.tensors[index].name = name
        return self.finished(inputs, outputs)

    def node(self, node: ProgramNode, own: str) -> None:
        """Emit a node; its result is that of its fused ReLU where ``own`` differs from its name."""
        relu = own != node.name
        if self.quantised(node):
            xs = [self.as_int8(name) for name in node.inputs]
            self.compute(node, xs, self.result(node.name, quantised=True), relu, quantised=True)
        else:
            xs = [self.made[n] if n in self.made else self.as_float(n) for n in node.inputs]
            self.compute(node, xs, self.result(node.name, quantised=False), relu, quantised=False)

    def quantised(self, node: ProgramNode) -> bool:
        """Say whether the node computes on int8: every tensor it touches has a range."""
        if node.op not in (*self.program.quantised_ops, "relu") or node.op == "matmul":
            return False
        known = all(name in self.ranges for name in (*node.inputs, node.name))
        return known and bool(node.inputs)

    def compute(
        self, node: ProgramNode, xs: list[int], y: int, relu: bool, *, quantised: bool
    ) -> None:
        match node.op:
            case "conv" | "dense":
                self.layer(node, xs[0], y, relu, quantised=quantised)
            case "add":
                self.put("ADD", xs, y, "AddOptions", fusedActivationFunction=int(relu))
            case "mul":
                self.put("MUL", xs, y, "MulOptions")
            case "hardsigmoid":
                self.hard_sigmoid(node, xs[0], y, quantised=quantised)
            case "hardswish":
                self.hard_swish(node, xs[0], y, quantised=quantised)
            case "max_pool":
                self.max_pool(node, xs[0], y)
            case "layernorm":
                self.layernorm(node, xs[0], y)
            case "gather" | "rows":
                self.rows(node, xs, y)
            case "select":
                self.select(node, xs[0], y)
            case "mask_bias":
                self.mask_bias(node, xs[0], y)
            case "scale":
                factor = self.number(f"{node.name}.factor", node.attrs["value"])
                self.put("MUL", [xs[0], factor], y, "MulOptions")
            case _:
                self.move(node, xs, y)

    def layer(self, node: ProgramNode, x: int, y: int, relu: bool, *, quantised: bool) -> None:
        """Emit a convolution or dense layer."""
        act = int(relu)
        if quantised:
            operands = [self.int8_weight(node.weights[0]), self.int8_bias(node)]
        else:
            weight = self.int8_weight if self.form == "int8" else self.weight
            operands = [weight(node.weights[0]), -1]
            if len(node.weights) > 1:
                operands[1] = self.weight(node.weights[1])
        if node.op == "dense":
            keep = len(self.shapes[node.name]) > 2
            self.put(
                "FULLY_CONNECTED",
                [x, *operands],
                y,
                "FullyConnectedOptions",
                fusedActivationFunction=act,
                keepNumDims=keep,
            )
            return
        a = node.attrs
        padded, padding = self.padded(node, x)
        common = {
            "padding": padding,
            "strideH": a["stride"],
            "strideW": a["stride"],
            "dilationHFactor": a["dilation"],
            "dilationWFactor": a["dilation"],
            "fusedActivationFunction": act,
        }
        if self.program.weights[node.weights[0]].kind == "depthwise":
            self.put(
                "DEPTHWISE_CONV_2D",
                [padded, *operands],
                y,
                "DepthwiseConv2DOptions",
                depthMultiplier=1,
                **common,
            )
        else:
            self.put("CONV_2D", [padded, *operands], y, "Conv2DOptions", **common)

    def padded(self, node: ProgramNode, x: int) -> tuple[int, int]:
        """Return what a convolution reads and its padding mode.

        SAME puts the odd one out behind, the definition pads both sides alike: where the two
        differ, a PAD of its own makes the definition's.
        """
        a = node.attrs
        if a["padding"] == 0:
            return x, int(schema.Padding.VALID)
        reach = a["dilation"] * (self.program.weights[node.weights[0]].shape[2] - 1) + 1
        extents = self.shapes[node.inputs[0]][1:3]
        same = all(
            max((-(-extent // a["stride"]) - 1) * a["stride"] + reach - extent, 0)
            == 2 * a["padding"]
            for extent in extents
        )
        if same:
            return x, int(schema.Padding.SAME)
        return self.pad(node, x, a["padding"]), int(schema.Padding.VALID)

    def move(self, node: ProgramNode, xs: list[int], y: int) -> None:
        """Emit a node that is one operator of the format."""
        a = node.attrs
        match node.op:
            case "relu":
                self.put("RELU", xs, y)
            case "gelu":
                self.put("GELU", xs, y, "GeluOptions", approximate=False)
            case "softmax":
                self.put("SOFTMAX", xs, y, "SoftmaxOptions", beta=1.0)
            case "matmul":
                self.put("BATCH_MATMUL", xs, y, "BatchMatMulOptions")
            case "global_pool":
                axes = self.whole("height_width", [1, 2])
                self.put("MEAN", [xs[0], axes], y, "ReducerOptions", keepDims=True)
            case "resize":
                size = self.whole(f"{node.name}.size", [a["height"], a["width"]])
                self.put(
                    "RESIZE_BILINEAR",
                    [xs[0], size],
                    y,
                    "ResizeBilinearOptions",
                    halfPixelCenters=True,
                )
            case "concat":
                axis = NHWC.index(a["axis"]) if self.images else a["axis"]
                self.put("CONCATENATION", xs, y, "ConcatenationOptions", axis=axis)
            case "transpose":
                perm = self.whole(f"{node.name}.perm", list(a["perm"]))
                self.put("TRANSPOSE", [xs[0], perm], y, "TransposeOptions")
            case "reshape":
                if self.images and max(self.tensors[xs[0]].shape[1:3]) > 1:
                    raise ValueError(f"{node.name}: pixels lie in another order here")
                self.reshape(node, xs[0], y)
            case _:
                raise ValueError(f"no emission of operation {node.op!r}")
