"""DequantizeLinear of integers that are an input of the model, or are moved from one. Such an input keeps its integers:
its reals are those, on a grid of scale 1. Other quantized forms: `nmpconv.frontend.integer_operators`."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from nmpconv.errors import Unsupported
from nmpconv.frontend.expand.node_builder import Body
from nmpconv.frontend.importer import Importer
from nmpconv.ir import Given
from nmpconv.ops.onnx_node import OnnxNode

PORTS = ("int8", "uint8", "int16", "uint16")  # types that an input keeps
_MOVES = ("reshape", "transpose", "slice")


def _is_plain(node: OnnxNode, to: Importer) -> bool:
    """Says that the reals of what it reads are the integers themselves."""
    x = node.input(0)
    return not to.is_const(x) and to.grid_of(x) is None and to.is_integer(x)


def dequantize(node: OnnxNode, body: Body) -> None:
    """(x - zero point) * scale."""
    scale = body.to.array(node.input(1), "scale").astype(np.float32)
    zero = body.array(2, "zero point")
    if scale.size != 1 or (zero is not None and zero.size != 1):
        raise Unsupported("scales or zero points per channel", hint="one for the tensor; weights may have more")
    value = body.to.value(node.input(0))
    while (maker := body.to.maker(value)) is not None and maker.op in _MOVES:
        value = maker.inputs[0]
    dtype = helper.tensor_dtype_to_np_dtype(body.element(node.input(0))).name
    if value in body.to.input_shapes and dtype in PORTS:
        body.to.annotate(value, Given(1.0, 0, dtype))
    x = body("Cast", node.input(0), to=TensorProto.FLOAT)
    if zero is not None and zero.any():
        x = body("Sub", x, float(zero.item()))
    body("Mul", x, float(scale.item()), output=node.outputs[0])


FORMS = {"DequantizeLinear": ((_is_plain, dequantize),)}
