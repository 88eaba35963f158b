"""A model of OpenVINO's for one input per call, made one for several.

OpenVINO's own reshape stops at shapes that the graph holds as constants, as the pack's do: those
are multiplied first, where what comes from the inputs is brought to them. The runtime then infers
every other shape, and refuses what does not fit.
"""

from __future__ import annotations

from typing import Any

_TAKE_SHAPES = ("Reshape", "Interpolate")
"""Operators whose second operand is a shape with the batch in it."""


def batched(model: Any, n: int) -> Any:
    """Return an ``openvino.Model`` with the leading dimension of its inputs multiplied by ``n``.

    The model is changed in place. Raises what the runtime raises where its shapes do not allow it.
    """
    import openvino

    live: set[str] = set()
    for operator in model.get_ordered_ops():
        name, kind = operator.get_name(), operator.get_type_name()
        sources = [port.get_source_output().get_node() for port in operator.inputs()]
        if kind == "Parameter":
            live.add(name)
        # What is computed of shapes follows them by itself.
        if kind == "ShapeOf" or live.isdisjoint(source.get_name() for source in sources):
            continue
        live.add(name)
        if kind not in _TAKE_SHAPES or sources[0].get_name() not in live:
            continue
        if sources[1].get_type_name() != "Constant":
            continue
        shape = sources[1].data.copy()
        # An Interpolate may take factors in place of sizes.
        if shape.dtype.kind == "i" and shape.size and shape[0] > 0:
            shape[0] *= n
            operator.input(1).replace_source_output(openvino.op.Constant(shape).output(0))
    for parameter in model.get_parameters():
        first, *rest = parameter.get_partial_shape().to_shape()
        parameter.set_partial_shape(openvino.PartialShape([first * n, *rest]))
    model.validate_nodes_and_infer_types()
    return model
