"""Powers with other exponents than one constant number, and what is left of divisions."""

from __future__ import annotations

import numpy as np

from nmpconv.errors import Unsupported
from nmpconv.frontend.expand.node_builder import Body
from nmpconv.frontend.importer import Importer
from nmpconv.ops.onnx_node import OnnxNode

LEAST = 2.0**-40  # stands for 0, which has no logarithm
FEW = 8  # constant exponents of which each becomes a power of its own


def _is_several(node: OnnxNode, to: Importer) -> bool:
    return not to.is_const(node.input(1)) or to.constants[node.input(1)].size != 1


def power(node: OnnxNode, body: Body) -> None:
    """A few constant exponents: each power where it is asked for. Else exp(y * log(x)), which is right for x > 0."""
    base, exponent = node.input(0), node.input(1)
    out = node.outputs[0]
    if body.to.is_const(base):
        if (body.to.constants[base] <= 0).any():
            raise Unsupported("a constant base that is not positive", hint="a positive one")
        body("Exp", body("Mul", exponent, np.log(body.to.constants[base]).astype(np.float32)), output=out)
        return
    if not body.to.is_const(exponent):
        body("Exp", body("Mul", body("Cast", exponent, to=body.element(base)), _log(body, base)), output=out)
        return
    exponents = body.to.constants[exponent].astype(np.float32)
    distinct = np.unique(exponents)
    if len(distinct) > FEW:
        body("Exp", body("Mul", _log(body, base), exponents), output=out)
        return
    body("Sum", *(_masked(body, base, e, (exponents == e).astype(np.float32)) for e in distinct), output=out)


def _masked(body: Body, base: str, exponent: float, mask: np.ndarray) -> str:
    """The power where the mask is 1, else 0; where it is 0, 1 is the base: others may have no such power."""
    there = body("Add", body("Mul", base, mask), 1 - mask)
    return body("Mul", body("Pow", there, float(exponent)), mask)


def _log(body: Body, base: str) -> str:
    return body("Log", body("Max", base, LEAST))


def _is_quotient(node: OnnxNode, to: Importer) -> bool:
    return not node.integer("fmod", 0) or to.is_integer(node.input(0)) or _is_several(node, to)


def modulo(node: OnnxNode, body: Body) -> None:
    """x - m * floor(x / m), which has the sign of m; with fmod that of x: of magnitudes, and then the sign."""
    x, m = node.input(0), node.input(1)
    if body.to.is_integer(x):  # of numbers that are not negative, the two are one
        body("Sub", x, body("Mul", body("Div", x, m), m), output=node.outputs[0])
        return
    if not node.integer("fmod", 0):
        whole = body("Floor", body("Div", x, m))
        body("Sub", x, body("Mul", whole, m), output=node.outputs[0])
        return
    big, small = body("Abs", x), body("Abs", m)
    left = body("Sub", big, body("Mul", body("Floor", body("Div", big, small)), small))
    body("Mul", left, body("Sign", x), output=node.outputs[0])


FORMS = {"Mod": ((_is_quotient, modulo),), "Pow": ((_is_several, power),)}
