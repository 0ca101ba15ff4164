"""Rounding as float32 does it: what is added and taken away again leaves no finer digits, as (x + 12582912) - 12582912.

In exact numbers that is x, which integers would compute.
"""

from __future__ import annotations

from math import frexp, ldexp

import numpy as np
from onnx import TensorProto

from nmpconv.frontend.expand.node_builder import Body
from nmpconv.frontend.importer import Importer
from nmpconv.ops import OPS
from nmpconv.ops.onnx_node import OnnxNode

DIGITS = 24  # of float32
COARSE = 2.0**-7  # steps that are finer are an accident of large constants


def _shift(node: OnnxNode, to: Importer) -> tuple[str, np.ndarray]:
    """Returns the computed operand, and the constant of one number that is added to it; 0 where there is none."""
    for index, name in enumerate(node.inputs):
        if to.is_const(name) and to.constants[name].size == 1 and not to.is_const(node.inputs[1 - index]):
            constant = to.constants[name].astype(np.float32)
            return node.inputs[1 - index], -constant if node.op_type == "Sub" and index == 1 else constant
    return "", np.zeros((), np.float32)


def _step(node: OnnxNode, to: Importer) -> float:
    """Returns the step of the rounding; 0 where it is none. The constant is half way between powers of two."""
    if node.op_type == "Sub" and to.is_const(node.inputs[0]):
        return 0.0
    x, constant = _shift(node, to)
    number = float(constant.item())
    fraction, exponent = frexp(abs(number))
    step = ldexp(1.0, exponent - DIGITS)
    if fraction != 0.75 or step < COARSE or to.tensor(x).element != TensorProto.FLOAT:
        return 0.0
    maker = to.maker(to.value(x))
    if maker is None or len(maker.inputs) != 2:
        return 0.0
    for place in (0, 1):
        low, high = to.reach(maker.inputs[1 - place])
        maps = OPS[maker.op].affine(place, np.array(low)) if low == high else None
        if maps is not None and maps[0] == 1 and maps[1] == -number:
            return step
    return 0.0


def rounded(node: OnnxNode, body: Body) -> None:
    """Round, in steps; `passes.float.constant_chains` takes both constants away."""
    x, constant = _shift(node, body.to)
    step, exact = _step(node, body.to), body("Sum", x, constant)  # of the larger rank
    if step == 1:
        body("Round", exact, output=node.outputs[0])
    else:
        body("Mul", body("Round", body("Mul", exact, 1 / step)), step, output=node.outputs[0])


def _rounds(node: OnnxNode, to: Importer) -> bool:
    return _step(node, to) > 0


FORMS = {"Add": ((_rounds, rounded),), "Sub": ((_rounds, rounded),)}
