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

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import flatbuffers
import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema

from npumark.pack.litert_model import ALIGNMENT, Part
from npumark.pack.program import Program, ProgramNode, Range, Section

VARIANTS = {"litert-fp16": "fp16", "litert-int8": "int8"}
"""Variant -> form of its weight file."""

SIGNATURE = "serving_default"
NHWC = (0, 2, 3, 1)

_FLOAT = schema.TensorType.FLOAT32
_HALF = schema.TensorType.FLOAT16
_INT32 = schema.TensorType.INT32
_INT8 = schema.TensorType.INT8

_LAYOUT = {"conv": NHWC, "depthwise": (1, 2, 3, 0), "dense": (1, 0)}
"""Kind of weight -> permutation from the definition's layout to the model's."""
_CHANNEL = {"conv": 0, "depthwise": 3, "dense": 0}
"""Kind of weight -> axis of its scales in the model's layout."""

_KEEPS_RANGE = ("max_pool", "reshape", "resize", "transpose")
_FUSES = ("conv", "dense", "add")
_SCALE_SLOT = 8
"""Where the table QuantizationParameters has its vector of scales."""

_LEVELS = 255
"""Steps of an 8-bit range."""

_UNPLACED = 1 << 40
"""Stands for an offset that is known only when the FlatBuffer's length is."""


@dataclass(frozen=True)
class Model:
    """``flatbuffer`` with ``parts`` to fill in and to append; see npumark.pack.litert_model."""

    flatbuffer: bytes
    parts: tuple[Part, ...]


def emit(program: Program, variant: str) -> Model:
    """Return the model of one variant. Raises KeyError on an unknown variant, ValueError on an
    operation that has no emission here."""
    return _Emitter(program, VARIANTS[variant]).model()


def image_perm(program: Program, shape: Sequence[int]) -> tuple[int, ...]:
    """Return how the model's tensor of ``shape`` (the program's) comes from the program's."""
    images = any(node.op == "conv" for node in program.nodes)
    return NHWC if images and len(shape) == 4 else ()


def int8_ranges(program: Program) -> dict[str, Range]:
    """Return the activations' ranges as this format can have them.

    Joined tensors share one range, that of the join, and so do a tensor and its moved copy.
    """
    ranges = dict(program.activations)
    made = {node.name: node for node in program.nodes}
    for node in reversed(program.nodes):
        if node.op == "concat" and node.name in ranges:
            for name in node.inputs:
                _give(ranges, made, name, ranges[node.name])
    for node in program.nodes:
        if node.op in _KEEPS_RANGE and {node.name, node.inputs[0]} <= ranges.keys():
            ranges[node.name] = ranges[node.inputs[0]]
    return ranges


def _give(
    ranges: dict[str, Range], made: Mapping[str, ProgramNode], name: str, given: Range
) -> None:
    ranges[name] = given
    if name in made and made[name].op in _KEEPS_RANGE:
        _give(ranges, made, made[name].inputs[0], given)


@dataclass
class _Emitter:
    program: Program
    form: str
    tensors: list[Any] = field(default_factory=list)
    operators: list[Any] = field(default_factory=list)
    codes: dict[tuple[int, int], int] = field(default_factory=dict)
    buffers: list[Any] = field(default_factory=lambda: [schema.BufferT()])
    outside: dict[int, Part] = field(default_factory=dict)
    scales: dict[int, Section] = field(default_factory=dict)
    made: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        program = self.program
        self.sections = program.files[self.form].sections
        self.ranges = int8_ranges(program) if self.form == "int8" else {}
        self.shapes = {
            name: _permuted(shape, image_perm(program, shape))
            for name, shape in program.shapes().items()
        }
        self.images = any(node.op == "conv" for node in program.nodes)
        readers = Counter(name for node in program.nodes for name in node.inputs)
        published = set(program.outputs.values())
        by_name = {node.name: node for node in program.nodes}
        self.fused = {
            node.inputs[0]: node.name
            for node in program.nodes
            if node.op == "relu"
            and by_name.get(node.inputs[0], node).op in _FUSES
            and readers[node.inputs[0]] == 1
            and node.inputs[0] not in published
        }
        """Tensor that only a ReLU reads -> that ReLU."""

    # -- the model ------------------------------------------------------------------------

    def model(self) -> Model:
        program = self.program
        inputs = [self.put_input(i.name, i.dtype) for i in program.inputs]
        for node in program.nodes:
            if node.op == "relu" and node.inputs[0] in self.fused:
                continue
            self.node(replace(node, name=self.fused.get(node.name, node.name)), node.name)
        outputs = [self.as_float(tensor) for tensor in program.outputs.values()]
        for name, index in zip(program.outputs, outputs, strict=True):
            self.tensors[index].name = name
        graph = schema.SubGraphT()
        graph.name, graph.tensors, graph.operators = "main", self.tensors, self.operators
        graph.inputs, graph.outputs = inputs, outputs
        signature = schema.SignatureDefT()
        signature.signatureKey, signature.subgraphIndex = SIGNATURE, 0
        signature.inputs = _tensor_map([i.name for i in program.inputs], inputs)
        signature.outputs = _tensor_map(list(program.outputs), outputs)
        model = schema.ModelT()
        model.version, model.description = 3, "npumark"
        model.operatorCodes = [_operator_code(*code) for code in self.codes]
        model.subgraphs, model.buffers, model.signatureDefs = [graph], self.buffers, [signature]
        return self.placed(model)

    def placed(self, model: Any) -> Model:
        """Give every outside buffer its place, and find where the scales lie."""
        end = -(-len(_packed(model)) // ALIGNMENT) * ALIGNMENT
        parts = []
        for index, part in self.outside.items():
            model.buffers[index].offset, model.buffers[index].size = end, part.size
            parts.append(replace(part, at=end))
            end = -(-(end + part.size) // ALIGNMENT) * ALIGNMENT
        raw = _packed(model)
        graph = schema.Model.GetRootAs(raw).Subgraphs(0)
        for tensor, section in self.scales.items():
            at = _scale_position(graph.Tensors(tensor).Quantization())
            parts.append(Part(at, section.offset, "float32", section.shape))
        return Model(raw, tuple(sorted(parts, key=lambda part: part.at)))

    # -- tensors --------------------------------------------------------------------------

    def put_input(self, name: str, kind: str) -> int:
        dtype = _FLOAT if kind == "float" else _INT32
        self.made[name] = self.tensor(name, self.shapes[name], dtype)
        return self.made[name]

    def tensor(
        self,
        name: str,
        shape: Sequence[int],
        dtype: int,
        *,
        given: Range | None = None,
        buffer: int = 0,
    ) -> int:
        made = schema.TensorT()
        made.name, made.shape, made.type, made.buffer = name, list(shape), dtype, buffer
        if given is not None:
            made.quantization = _quantization([given.scale], [given.zero - 128], 0)
        self.tensors.append(made)
        return len(self.tensors) - 1

    def constant(self, name: str, array: npt.NDArray[Any], *, scale: float | None = None) -> int:
        """Put a small array into the FlatBuffer itself; its name tells equal ones apart."""
        key = f"const:{name}"
        if key not in self.made:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
            self.buffers.append(buffer)
            dtype = {"f": _FLOAT, "i": _INT32 if array.itemsize == 4 else _INT8}[array.dtype.kind]
            given = Range(scale, 128) if scale is not None else None
            self.made[key] = self.tensor(
                name, array.shape, dtype, given=given, buffer=len(self.buffers) - 1
            )
        return self.made[key]

    def whole(self, name: str, values: Sequence[int]) -> int:
        return self.constant(name, np.array(values, np.int32))

    def number(self, name: str, value: float) -> int:
        return self.constant(name, np.array(value, np.float32))

    def stored(self, section: Section, name: str, perm: tuple[int, ...] = (), **kw: Any) -> int:
        """Refer to an array of the weight file, in the model's layout."""
        dtype = {"float32": _FLOAT, "float16": _HALF, "int8": _INT8, "int32": _INT32}
        buffer = schema.BufferT()
        buffer.offset = buffer.size = _UNPLACED
        self.buffers.append(buffer)
        index = len(self.buffers) - 1
        self.outside[index] = Part(0, section.offset, section.dtype, section.shape, perm)
        shape = kw.pop("shape", None) or _permuted(section.shape, perm)
        return self.tensor(name, shape, dtype[section.dtype], buffer=index, **kw)

    def scaled(self, tensor: int, scale: Section, axis: int) -> int:
        """Give a stored tensor the scales of its channels, which the weight file holds."""
        count = math.prod(scale.shape)
        self.tensors[tensor].quantization = _quantization([1.0] * count, [0] * count, axis)
        self.scales[tensor] = scale
        return tensor

    def as_float(self, name: str) -> int:
        """Return the float form of an activation, dequantised where it has only the other."""
        if name not in self.made:
            self.made[name] = self.tensor(name, self.shapes[name], _FLOAT)
            self.put("DEQUANTIZE", [self.made[f"{name}.q"]], self.made[name])
        return self.made[name]

    def as_int8(self, name: str) -> int:
        if f"{name}.q" not in self.made:
            result = self.result(name, quantised=True)
            self.put("QUANTIZE", [self.made[name]], result)
        return self.made[f"{name}.q"]

    def result(self, name: str, *, quantised: bool) -> int:
        """Make the tensor of a node's result."""
        key = f"{name}.q" if quantised else name
        given = self.ranges[name] if quantised else None
        dtype = _INT8 if quantised else _FLOAT
        self.made[key] = self.tensor(key, self.shapes[name], dtype, given=given)
        return self.made[key]

    def step(self, name: str, shape: Sequence[int]) -> int:
        """Make a float tensor between the operators of one node."""
        return self.tensor(name, shape, _FLOAT)

    # -- operators ------------------------------------------------------------------------

    def put(
        self, op: str, inputs: Sequence[int], output: int, options: str = "", **values: Any
    ) -> int:
        """Add an operator; ``options`` names its table, ``values`` are that table's fields."""
        made = schema.OperatorT()
        code = (getattr(schema.BuiltinOperator, op), _VERSIONS.get(op, 1))
        made.opcodeIndex = self.codes.setdefault(code, len(self.codes))
        made.inputs, made.outputs = list(inputs), [output]
        if options:
            made.builtinOptionsType = getattr(schema.BuiltinOptions, options)
            made.builtinOptions = getattr(schema, f"{options}T")()
            for key, value in values.items():
                setattr(made.builtinOptions, key, value)
        self.operators.append(made)
        return output

    # -- weights --------------------------------------------------------------------------

    def weight(self, name: str) -> int:
        """Return a weight as float32 operators read it, dequantised from float16."""
        kind = self.program.weights[name].kind
        perm = _LAYOUT.get(kind, ())
        key = f"weight:{name}"
        if key not in self.made:
            if self.form == "fp16":
                half = self.stored(self.sections[name], f"{name}.half", perm)
                self.made[key] = self.step(name, self.tensors[half].shape)
                self.put("DEQUANTIZE", [half], self.made[key])
            else:
                self.made[key] = self.stored(self.sections[name], name, perm)
        return self.made[key]

    def int8_weight(self, name: str) -> int:
        kind = self.program.weights[name].kind
        stored = self.stored(self.sections[f"{name}.q"], name, _LAYOUT[kind])
        return self.scaled(stored, self.sections[f"{name}.scale"], _CHANNEL[kind])

    def int8_bias(self, node: ProgramNode) -> int:
        """Return the int32 bias of a layer, -1 where it has none."""
        if len(node.weights) < 2:
            return -1
        name = node.weights[1]
        stored = self.stored(self.sections[f"{name}.q"], name)
        return self.scaled(stored, self.sections[f"{name}.scale"], 0)

    # -- nodes ----------------------------------------------------------------------------

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

    def pad(self, node: ProgramNode, x: int, by: int) -> int:
        """Surround an image with zeros."""
        source = self.tensors[x]
        batch, height, width, channels = source.shape
        shape = (batch, height + 2 * by, width + 2 * by, channels)
        wide = self.tensor(f"{node.name}.padded", shape, source.type)
        self.tensors[wide].quantization = source.quantization
        margins = np.array([[0, 0], [by, by], [by, by], [0, 0]], np.int32)
        return self.put("PAD", [x, self.constant(f"margins{by}", margins)], wide, "PadOptions")

    def max_pool(self, node: ProgramNode, x: int, y: int) -> None:
        """Emit a maximum over a window; margins of zeros never win over a ReLU's output."""
        a = node.attrs
        if a["padding"]:
            source = next(n for n in self.program.nodes if n.name == node.inputs[0])
            if source.op != "relu":
                raise ValueError(f"{node.name}: padding with zeros may win here")
            x = self.pad(node, x, a["padding"])
        self.put(
            "MAX_POOL_2D",
            [x],
            y,
            "Pool2DOptions",
            padding=int(schema.Padding.VALID),
            strideH=a["stride"],
            strideW=a["stride"],
            filterHeight=a["kernel"],
            filterWidth=a["kernel"],
        )

    def hard_sigmoid(self, node: ProgramNode, x: int, y: int, *, quantised: bool) -> None:
        """Emit relu6(x + 3) / 6."""
        if quantised:
            self.int8_gate(node, self.int8_sixth(node, x), y, self.ranges[node.name])
            return
        inner = self.step(f"{node.name}.relu6", self.shapes[node.name])
        relu6 = int(schema.ActivationFunctionType.RELU6)
        three = self.number("three", 3.0)
        self.put("ADD", [x, three], inner, "AddOptions", fusedActivationFunction=relu6)
        self.put("MUL", [inner, self.number("sixth", 1 / 6)], y, "MulOptions")

    def hard_swish(self, node: ProgramNode, x: int, y: int, *, quantised: bool) -> None:
        """Emit x times its hard sigmoid: in int8 step by step, for the delegate of the CPU has no
        int8 form of the operator, and what it leaves runs on one thread."""
        if not quantised:
            self.put("HARD_SWISH", [x], y, "HardSwishOptions")
            return
        given = Range(1 / _LEVELS, 0)
        gate = self.tensor(f"{node.name}.gate.q", self.shapes[node.name], _INT8, given=given)
        self.int8_gate(node, self.int8_sixth(node, x), gate, given)
        self.put("MUL", [x, gate], y, "MulOptions")

    def int8_sixth(self, node: ProgramNode, x: int) -> int:
        """Return x / 6: the same integers, a sixth of their scale."""
        given = self.ranges[node.inputs[0]]
        sixth = self.constant("sixth.q", np.array(127, np.int8), scale=1 / 6 / 127)
        shape, own = self.shapes[node.name], replace(given, scale=given.scale / 6)
        made = self.tensor(f"{node.name}.sixth.q", shape, _INT8, given=own)
        return self.put("MUL", [x, sixth], made, "MulOptions")

    def int8_gate(self, node: ProgramNode, sixth: int, y: int, given: Range) -> None:
        """Emit x / 6 + 1 / 2, which the ends of the 8-bit range clip to [0, 1]."""
        if given.zero != 0 or given.scale * _LEVELS > 1.0001:
            raise ValueError(f"{node.name}: its range does not clip for it")
        half = self.constant("half.q", np.array(127, np.int8), scale=1 / 2 / 127)
        self.put("ADD", [sixth, half], y, "AddOptions")

    def layernorm(self, node: ProgramNode, x: int, y: int) -> None:
        name, shape = node.name, self.shapes[node.name]
        row = (*shape[:-1], 1)
        last = self.whole("last", [-1])
        mean = self.step(f"{name}.mean", row)
        self.put("MEAN", [x, last], mean, "ReducerOptions", keepDims=True)
        centred = self.step(f"{name}.centred", shape)
        self.put("SUB", [x, mean], centred, "SubOptions")
        squares = self.step(f"{name}.squares", shape)
        self.put("MUL", [centred, centred], squares, "MulOptions")
        variance = self.step(f"{name}.variance", row)
        self.put("MEAN", [squares, last], variance, "ReducerOptions", keepDims=True)
        shifted = self.step(f"{name}.shifted", row)
        epsilon = self.number(f"epsilon{node.attrs['eps']}", node.attrs["eps"])
        self.put("ADD", [variance, epsilon], shifted, "AddOptions")
        inverse = self.step(f"{name}.inverse", row)
        self.put("RSQRT", [shifted], inverse)
        normal = self.step(f"{name}.normal", shape)
        self.put("MUL", [centred, inverse], normal, "MulOptions")
        wide = self.step(f"{name}.scaled", shape)
        self.put("MUL", [normal, self.weight(node.weights[0])], wide, "MulOptions")
        self.put("ADD", [wide, self.weight(node.weights[1])], y, "AddOptions")

    def rows(self, node: ProgramNode, xs: list[int], y: int) -> None:
        """Take rows of a table: chosen by a tensor, or a run of them that is a constant."""
        name = node.weights[0]
        table = self.sections[f"{name}.q" if self.form == "int8" else name]
        kept = self.tensors[y].shape
        if node.op == "rows":
            stored = self.stored(_run_of(table, node), f"{node.name}.rows")
        else:
            stored = self.stored(table, name)
            dtype = self.tensors[stored].type
            chosen = self.tensor(f"{node.name}.rows", kept, dtype)
            self.put("GATHER", [stored, xs[0]], chosen, "GatherOptions", axis=0)
        rows = stored if node.op == "rows" else chosen
        if self.form == "int8":
            for tensor in {stored, rows}:
                self.scaled(tensor, self.sections[f"{name}.scale"], 0)
        self.put("DEQUANTIZE", [rows], y)

    def select(self, node: ProgramNode, x: int, y: int) -> None:
        shape = list(self.tensors[x].shape)
        begin = [0] * len(shape)
        begin[node.attrs["axis"]], shape[node.attrs["axis"]] = node.attrs["index"], 1
        one = self.step(f"{node.name}.one", shape)
        operands = [
            x,
            self.whole(f"{node.name}.begin", begin),
            self.whole(f"{node.name}.size", shape),
        ]
        self.put("SLICE", operands, one, "SliceOptions")
        self.reshape(node, one, y)

    def mask_bias(self, node: ProgramNode, mask: int, y: int) -> None:
        name, shape = node.name, self.tensors[mask].shape
        real = self.step(f"{name}.real", shape)
        self.put("CAST", [mask], real, "CastOptions", inDataType=_INT32, outDataType=_FLOAT)
        off = self.step(f"{name}.off", shape)
        self.put("SUB", [self.number("one", 1.0), real], off, "SubOptions")
        low = self.step(f"{name}.low", shape)
        factor = self.number(f"{name}.factor", node.attrs["low"])
        self.put("MUL", [off, factor], low, "MulOptions")
        self.reshape(node, low, y)

    def reshape(self, node: ProgramNode, x: int, y: int) -> None:
        shape = list(self.tensors[y].shape)
        self.put(
            "RESHAPE",
            [x, self.whole(f"{node.name}.shape", shape)],
            y,
            "ReshapeOptions",
            newShape=shape,
        )

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


_VERSIONS = {
    "ADD": 2,
    "CONCATENATION": 2,
    "CONV_2D": 5,
    "DEPTHWISE_CONV_2D": 6,
    "DEQUANTIZE": 3,
    "FULLY_CONNECTED": 9,
    "GATHER": 2,
    "MAX_POOL_2D": 2,
    "MEAN": 2,
    "MUL": 2,
    "PAD": 2,
    "RESIZE_BILINEAR": 3,
    "SLICE": 2,
    "SUB": 2,
}
"""Operator -> version of its semantics, where that is not the first."""


def _permuted(shape: Sequence[int], perm: Sequence[int]) -> tuple[int, ...]:
    return tuple(shape[axis] for axis in perm) if perm else tuple(shape)


def _run_of(table: Section, node: ProgramNode) -> Section:
    """Return the consecutive rows of a table that a node takes."""
    first, *_ = indices = node.attrs["indices"]
    if list(indices) != list(range(first, first + len(indices))):
        raise ValueError(f"{node.name}: its rows are not consecutive")
    _, width = table.shape
    offset = table.offset + first * width * np.dtype(table.dtype).itemsize
    return replace(table, shape=(len(indices), width), offset=offset)


def _quantization(scales: list[float], zeros: list[int], axis: int) -> Any:
    made = schema.QuantizationParametersT()
    made.scale, made.zeroPoint, made.quantizedDimension = scales, zeros, axis
    return made


def _operator_code(code: int, version: int) -> Any:
    made = schema.OperatorCodeT()
    made.builtinCode, made.version = code, version
    # The field that readers of the first format know holds 127 for everything later.
    made.deprecatedBuiltinCode = min(code, 127)
    return made


def _tensor_map(names: Sequence[str], indices: Sequence[int]) -> list[Any]:
    maps = []
    for name, index in zip(names, indices, strict=True):
        made = schema.TensorMapT()
        made.name, made.tensorIndex = name, index
        maps.append(made)
    return maps


def _packed(model: Any) -> bytes:
    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _scale_position(quantization: Any) -> int:
    """Return where the vector of scales begins, in bytes from the FlatBuffer's start."""
    table = quantization._tab  # noqa: SLF001 - the generated readers offer values, not places
    return int(table.Vector(table.Offset(_SCALE_SLOT)))
