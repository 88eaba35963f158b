"""A workload as a Core ML program: the pack's program and weights, written with coremltools.

Three encodings, all with float16 inputs and outputs (token ids and masks are int32):

- ``coreml-fp16``: float16 weights and activations.
- ``coreml-int8``: 8-bit weights and activations, for the Neural Engine's integer multipliers
  (A17 Pro, M4 and later). Weights are signed, symmetric, one scale per output channel;
  activations have one scale per tensor and are unsigned, with zero point 0 where the tensor has
  no negative values and 128 otherwise. That is what coremltools' own training-time quantiser
  makes by default, and what the models were made with for which Apple's guide shows the gain.
  Pairs of quantise and dequantise stand before the operations that coremltools pairs: products,
  convolutions, sums and pools; everything else stays float16, as do biases.
- ``coreml-int8-affine``: the same, but activations keep their calibrated zero points. It exists
  where a range is lopsided (hard swish reaches down to -0.375 and far up), so that a symmetric one
  leaves half of its steps unused. Which of the two a device runs faster is for it to show.
- ``coreml-lut4``: weights as 4-bit indices into tables (:mod:`npumark.engines.coreml_palette`),
  activations float16.

Written without the converter's rewriting passes, so that what runs is what stands here. The same
pack files give the same program: :func:`digest` leaves out only the random identifiers that the
package's own manifest holds.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from npumark.engines.coreml_palette import palettise
from npumark.errors import EngineError, Unsupported
from npumark.pack.program import (
    MATRICES,
    Array,
    Program,
    ProgramNode,
    Range,
    dequantised,
    read_weights,
)

PACKAGE = "model.mlpackage"


@dataclass(frozen=True, slots=True)
class Encoding:
    """``weights`` is the weight file it is made from; ``target`` the oldest system that reads it,
    by coremltools' name, and ``macos`` by Apple's."""

    id: str
    format: str
    weights: str
    target: str
    macos: str
    eight_bits: bool = False
    affine: bool = False
    palette: bool = False


ENCODINGS = {
    encoding.id: encoding
    for encoding in (
        Encoding("coreml-fp16", "FP16", "fp16", "iOS17", "14"),
        Encoding("coreml-int8", "INT8", "int8", "iOS17", "14", eight_bits=True),
        Encoding("coreml-int8-affine", "INT8", "int8", "iOS17", "14", eight_bits=True, affine=True),
        Encoding("coreml-lut4", "INT4", "fp16", "iOS18", "15", palette=True),
    )
}

EIGHT_BIT_OPS = frozenset({"conv", "dense", "add", "max_pool"})
"""Operations that read quantised activations where the workload's calibration has a range."""

_SMALLEST_STEP = float(np.finfo(np.float16).tiny)
"""Scales are float16; below this they would lose bits, and at zero every weight with them."""

_WASTEFUL = 1.5
"""A symmetric range whose steps are this many times larger has lost a good half bit."""

_SMALLEST_EPSILON = 1e-7
"""What coremltools' converter puts in place of a smaller one, which float16 would make zero."""

_NAME = re.compile(r"[A-Za-z_]\w*")


def write_package(program: Program, root: Path, encoding_id: str, folder: Path) -> Path:
    """Write the package into ``folder`` and return its path; ``root`` is the pack's.

    Raises Unsupported for an encoding that is none of ENCODINGS, PackError where the weights
    cannot be read, EngineError where coremltools refuses the program.
    """
    encoding = ENCODINGS.get(encoding_id)
    if encoding is None:
        raise Unsupported(f"Core ML has no encoding {encoding_id}; it has {', '.join(ENCODINGS)}")
    weights = read_weights(root, program, encoding.weights)
    path = folder / PACKAGE
    model(program, weights, encoding).save(str(path))
    return path


def model(program: Program, weights: Mapping[str, Array], encoding: Encoding) -> Any:
    """Return a coremltools model, not loaded, of a program over the arrays of a weight file."""
    return converted(mil_program(program, weights, encoding), encoding.target)


def converted(mil: Any, target: str) -> Any:
    """Return a coremltools model, not loaded, of a ``mil.Program`` as it is: nothing rewritten."""
    import coremltools

    return coremltools.convert(
        mil,
        convert_to="mlprogram",
        minimum_deployment_target=getattr(coremltools.target, target),
        compute_precision=coremltools.precision.FLOAT32,  # adds no casts; all is float16 already
        pass_pipeline=coremltools.PassPipeline.EMPTY,
        skip_model_load=True,
    )


def digest(package: Path) -> str:
    """Return the sha256 of what a package computes: its program and its weights."""
    import coremltools

    found = hashlib.sha256()
    spec = coremltools.utils.load_spec(str(package))
    found.update(spec.SerializeToString(deterministic=True))
    for path in sorted(package.rglob("*.bin")):
        with path.open("rb") as stream:
            found.update(hashlib.file_digest(stream, "sha256").digest())
    return found.hexdigest()


def mil_program(program: Program, weights: Mapping[str, Array], encoding: Encoding) -> Any:
    """Return the program in coremltools' own form (a ``mil.Program``)."""
    import coremltools
    from coremltools.converters.mil import mil
    from coremltools.converters.mil.mil import types

    kinds = {"float": types.fp16, "int64": types.int32}
    names = _Names(program, encoding)
    placeholders = {
        names[tensor.name]: mil.Builder.placeholder(tensor.shape, kinds[tensor.dtype])
        for tensor in program.inputs
    }
    target = getattr(coremltools.target, encoding.target)
    made = mil.Program()
    with mil.Function(placeholders, opset_version=target) as function:
        writer = _Writer(mil.Builder, program, weights, encoding, names)
        for tensor in program.inputs:
            writer.tensors[tensor.name] = function.inputs[names[tensor.name]]
        for node in program.nodes:
            writer.write(node)
        function.set_outputs([writer.output(name) for name in program.outputs])
    made.add_function("main", function)
    return made


def symmetric(found: Range) -> Range:
    """Return the narrowest range that contains a calibrated one and is symmetric: zero point 128,
    or 0 where the calibrated one has no negative values."""
    if found.zero == 0:
        return found
    return Range(found.scale * max(found.zero / 128, (255 - found.zero) / 127), 128)


def lopsided(program: Program) -> bool:
    """Say whether a range that a program reads in 8 bits wastes its steps when it is symmetric."""
    read = {
        tensor
        for node in program.nodes
        if node.op in EIGHT_BIT_OPS
        for tensor in node.inputs
        if program.reads_8_bits(node, tensor)
    }
    ranges = [program.activations[tensor] for tensor in read]
    return any(symmetric(r).scale > _WASTEFUL * r.scale for r in ranges)


def rounds_output(program: Program, encoding: Encoding, tensor: str) -> bool:
    """Say whether a published tensor is itself rounded to 8 bits, so that the layer which makes
    it lies between two roundings like every other."""
    return encoding.eight_bits and tensor in program.activations


class _Names(dict[str, str]):
    """Tensor -> a name that Core ML takes; a published tensor has its output's."""

    def __init__(self, program: Program, encoding: Encoding) -> None:
        super().__init__()
        published = {
            tensor: name
            for name, tensor in program.outputs.items()
            if not rounds_output(program, encoding, tensor)
        }
        for tensor in program.shapes():
            name = published.get(tensor, re.sub(r"\W", "_", tensor))
            if not _NAME.fullmatch(name) or name in self.values():
                raise EngineError(f"the tensor {tensor} cannot be named in a Core ML program")
            self[tensor] = name


class _Writer:
    """Writes one node after the other into the function that is open."""

    def __init__(
        self,
        mb: Any,
        program: Program,
        weights: Mapping[str, Array],
        encoding: Encoding,
        names: Mapping[str, str],
    ) -> None:
        self.mb = mb
        self.program = program
        self.weights = weights
        self.encoding = encoding
        self.names = names
        self.tensors: dict[str, Any] = {}
        self.rounded: dict[str, Any] = {}

    def output(self, name: str) -> Any:
        """Return what the program publishes under ``name``."""
        tensor = self.program.outputs[name]
        if self.names[tensor] == name:
            return self.tensors[tensor]
        if rounds_output(self.program, self.encoding, tensor):
            return self.round(tensor, name)
        return self.mb.identity(x=self.tensors[tensor], name=name)

    def write(self, node: ProgramNode) -> None:
        """Write one operation. Raises EngineError for one that has no form in Core ML."""
        xs = [self.source(node, tensor) for tensor in node.inputs]
        write = getattr(self, f"_{node.op}", None)
        if write is None:
            raise EngineError(f"the operation {node.op} has no form in a Core ML program")
        self.tensors[node.name] = write(node, self.names[node.name], *xs)

    def source(self, node: ProgramNode, tensor: str) -> Any:
        """Return a tensor as ``node`` reads it: rounded to 8 bits where both are for that."""
        quantised = self.encoding.eight_bits and node.op in EIGHT_BIT_OPS
        if not (quantised and self.program.reads_8_bits(node, tensor)):
            return self.tensors[tensor]
        if tensor not in self.rounded:
            self.rounded[tensor] = self.round(tensor, f"{self.names[tensor]}__dq")
        return self.rounded[tensor]

    def round(self, tensor: str, name: str) -> Any:
        """Return a tensor through 8 bits and back, under ``name``."""
        found = self.program.activations[tensor]
        found = found if self.encoding.affine else symmetric(found)
        scale = np.float16(max(found.scale, _SMALLEST_STEP))
        zero = np.uint8(found.zero)
        q = self.mb.quantize(
            input=self.tensors[tensor],
            scale=scale,
            zero_point=zero,
            output_dtype="uint8",
            name=f"{self.names[tensor]}__q",
        )
        return self.mb.dequantize(input=q, scale=scale, zero_point=zero, name=name)

    # -- weights --------------------------------------------------------------------------

    def plain(self, name: str) -> Array:
        """Return a weight that stays float16: a bias, a gain, a few rows of a table."""
        weight = self.program.weights[name]
        if self.encoding.weights == "int8":
            return dequantised(self.weights, weight).astype(np.float16)
        return np.asarray(self.weights[name], np.float16)

    def matrix(self, name: str) -> Any:
        """Return a matrix, output channels first, in the encoding's form."""
        weight = self.program.weights[name]
        label = re.sub(r"\W", "_", name)
        if weight.kind not in MATRICES:
            raise EngineError(f"{name} is no matrix")
        if self.encoding.eight_bits:
            return self._eight_bit(weight.kind, name, label)
        value = np.asarray(self.weights[name])
        value = value.T if weight.kind == "dense" else value
        if self.encoding.palette:
            return self._palette(value, label, one_table=weight.kind == "table")
        return self.mb.const(val=np.ascontiguousarray(value, np.float16), name=label)

    def _eight_bit(self, kind: str, name: str, label: str) -> Any:
        data = np.asarray(self.weights[f"{name}.q"])
        scale = np.asarray(self.weights[f"{name}.scale"], np.float32)
        if float(scale.min()) < _SMALLEST_STEP:
            raise EngineError(f"{name} has a scale that float16 cannot hold")
        return self.mb.constexpr_affine_dequantize(
            quantized_data=np.ascontiguousarray(data.T if kind == "dense" else data),
            zero_point=np.int8(0),
            scale=scale.astype(np.float16)[()],
            axis=np.int32(0),
            name=label,
        )

    def _palette(self, value: Array, label: str, *, one_table: bool) -> Any:
        from coremltools.converters.mil.mil import types

        indices, tables = palettise(value.astype(np.float32), one_table=one_table)
        return self.mb.constexpr_lut_to_dense(
            indices=indices.astype(types.np_uint4_dtype), lut=tables, name=label
        )

    # -- operations with weights ----------------------------------------------------------

    def _conv(self, node: ProgramNode, name: str, x: Any) -> Any:
        a = node.attrs
        return self.mb.conv(
            x=x,
            weight=self.matrix(node.weights[0]),
            bias=self.plain(node.weights[1]),
            strides=[a["stride"]] * 2,
            pad_type="custom",
            pad=[a["padding"]] * 4,
            dilations=[a["dilation"]] * 2,
            groups=a["groups"],
            name=name,
        )

    def _dense(self, node: ProgramNode, name: str, x: Any) -> Any:
        bias = {"bias": self.plain(node.weights[1])} if len(node.weights) > 1 else {}
        return self.mb.linear(x=x, weight=self.matrix(node.weights[0]), name=name, **bias)

    def _layernorm(self, node: ProgramNode, name: str, x: Any) -> Any:
        gamma, beta = (self.plain(weight) for weight in node.weights)
        epsilon = np.float16(max(node.attrs["eps"], _SMALLEST_EPSILON))
        return self.mb.layer_norm(
            x=x, axes=[-1], gamma=gamma, beta=beta, epsilon=epsilon, name=name
        )

    def _gather(self, node: ProgramNode, name: str, ids: Any) -> Any:
        table = self.matrix(node.weights[0])
        return self.mb.gather(x=table, indices=ids, axis=0, name=name)

    def _rows(self, node: ProgramNode, name: str) -> Any:
        rows = self.plain(node.weights[0])[list(node.attrs["indices"])]
        return self.mb.const(val=np.ascontiguousarray(rows), name=name)

    # -- operations without weights -------------------------------------------------------

    def _relu(self, _: ProgramNode, name: str, x: Any) -> Any:
        return self.mb.relu(x=x, name=name)

    def _hardsigmoid(self, _: ProgramNode, name: str, x: Any) -> Any:
        return self.mb.sigmoid_hard(x=x, alpha=np.float16(1 / 6), beta=np.float16(0.5), name=name)

    def _hardswish(self, node: ProgramNode, name: str, x: Any) -> Any:
        return self.mb.mul(x=x, y=self._hardsigmoid(node, f"{name}__gate", x), name=name)

    def _gelu(self, _: ProgramNode, name: str, x: Any) -> Any:
        return self.mb.gelu(x=x, mode="EXACT", name=name)

    def _add(self, _: ProgramNode, name: str, a: Any, b: Any) -> Any:
        return self.mb.add(x=a, y=b, name=name)

    def _mul(self, _: ProgramNode, name: str, a: Any, b: Any) -> Any:
        return self.mb.mul(x=a, y=b, name=name)

    def _scale(self, node: ProgramNode, name: str, x: Any) -> Any:
        return self.mb.mul(x=x, y=np.float16(node.attrs["value"]), name=name)

    def _matmul(self, _: ProgramNode, name: str, a: Any, b: Any) -> Any:
        return self.mb.matmul(x=a, y=b, name=name)

    def _softmax(self, _: ProgramNode, name: str, x: Any) -> Any:
        return self.mb.softmax(x=x, axis=-1, name=name)

    def _l2_normalise(self, _: ProgramNode, name: str, x: Any) -> Any:
        length = self.mb.reduce_l2_norm(x=x, axes=[-1], keep_dims=True, name=f"{name}__length")
        return self.mb.real_div(x=x, y=length, name=name)

    def _max_pool(self, node: ProgramNode, name: str, x: Any) -> Any:
        a = node.attrs
        return self.mb.max_pool(
            x=x,
            kernel_sizes=[a["kernel"]] * 2,
            strides=[a["stride"]] * 2,
            pad_type="custom",
            pad=[a["padding"]] * 4,
            name=name,
        )

    def _global_pool(self, _: ProgramNode, name: str, x: Any) -> Any:
        return self.mb.reduce_mean(x=x, axes=[2, 3], keep_dims=True, name=name)

    def _resize(self, node: ProgramNode, name: str, x: Any) -> Any:
        return self.mb.resize_bilinear(
            x=x,
            target_size_height=node.attrs["height"],
            target_size_width=node.attrs["width"],
            sampling_mode="UNALIGN_CORNERS",
            name=name,
        )

    def _concat(self, node: ProgramNode, name: str, *xs: Any) -> Any:
        return self.mb.concat(values=list(xs), axis=node.attrs["axis"], name=name)

    def _reshape(self, node: ProgramNode, name: str, x: Any) -> Any:
        return self.mb.reshape(x=x, shape=list(node.attrs["shape"]), name=name)

    def _transpose(self, node: ProgramNode, name: str, x: Any) -> Any:
        return self.mb.transpose(x=x, perm=list(node.attrs["perm"]), name=name)

    def _select(self, node: ProgramNode, name: str, x: Any) -> Any:
        axis, index, shape = node.attrs["axis"], node.attrs["index"], list(x.shape)
        begin = [index if i == axis else 0 for i in range(len(shape))]
        end = [index + 1 if i == axis else size for i, size in enumerate(shape)]
        squeezed = [i == axis for i in range(len(shape))]
        return self.mb.slice_by_index(x=x, begin=begin, end=end, squeeze_mask=squeezed, name=name)

    def _mask_bias(self, node: ProgramNode, name: str, mask: Any) -> Any:
        kept = self.mb.cast(x=mask, dtype="fp16", name=f"{name}__kept")
        left = self.mb.sub(x=np.float16(1), y=kept, name=f"{name}__left")
        low = self.mb.mul(x=left, y=np.float16(node.attrs["low"]), name=f"{name}__low")
        return self.mb.reshape(x=low, shape=list(node.shape), name=name)

    def _positions(self, node: ProgramNode, name: str, mask: Any) -> Any:
        counted = self.mb.cumsum(x=mask, axis=1, name=f"{name}__counted")
        kept = self.mb.mul(x=counted, y=mask, name=f"{name}__kept")
        return self.mb.add(x=kept, y=np.int32(node.attrs["padding"]), name=name)
