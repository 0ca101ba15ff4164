"""DequantizeLinear of integers that are an input of the model. Other quantized forms:
`nmpconv.frontend.integer_operators`."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from nmpconv.errors import Unsupported
from nmpconv.frontend.expand.node_builder import Body
from nmpconv.frontend.importer import Importer
from nmpconv.frontend.node import OnnxNode


def _is_of_input(node: OnnxNode, to: Importer) -> bool:
    return node.input(0) in to.input_shapes


def dequantize(node: OnnxNode, body: Body) -> None:
    """(x - zero point) * scale."""
    scale = body.to.array(node.input(1), "scale").astype(np.float32)
    zero = body.array(2, "zero point")
    if scale.size != 1 or (zero is not None and zero.size != 1):
        raise Unsupported("scales or zero points per channel", hint="one for the tensor; weights may have more")
    x = body("Cast", node.input(0), to=TensorProto.FLOAT)
    if zero is not None and zero.any():
        x = body("Sub", x, float(zero.item()))
    body("Mul", x, float(scale.item()), output=node.outputs[0])


FORMS = {"DequantizeLinear": ((_is_of_input, dequantize),)}
