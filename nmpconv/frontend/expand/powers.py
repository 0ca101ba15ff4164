"""Powers with other exponents than one constant number."""

from __future__ import annotations

import numpy as np

from nmpconv.frontend.expand.body import Body
from nmpconv.frontend.importer import Importer
from nmpconv.frontend.node import OnnxNode

FEW = 8  # constant exponents of which each becomes a power of its own


def _is_several(node: OnnxNode, to: Importer) -> bool:
    return not to.is_const(node.input(1)) or to.constants[node.input(1)].size != 1


def power(node: OnnxNode, body: Body) -> None:
    """A few constant exponents: each power where it is asked for. Else exp(y * log(x)), which is right for x > 0."""
    base, exponent = node.input(0), node.input(1)
    out = node.outputs[0]
    if body.to.is_const(base):
        body("Exp", body("Mul", exponent, np.log(_positive(body.to.constants[base]))), output=out)
        return
    if not body.to.is_const(exponent):
        body("Exp", body("Mul", body("Cast", exponent, to=body.element(base)), body("Log", base)), output=out)
        return
    exponents = body.to.constants[exponent].astype(np.float32)
    distinct = np.unique(exponents)
    if len(distinct) > FEW:
        body("Exp", body("Mul", body("Log", base), exponents), output=out)
        return
    parts = [body("Mul", body("Pow", base, float(e)), (exponents == e).astype(np.float32)) for e in distinct]
    body("Sum", *parts, output=out)


def _positive(base: np.ndarray) -> np.ndarray:
    """Numbers that have a logarithm; that of 0 is one whose powers are 0."""
    return np.maximum(base, 2.0**-80).astype(np.float32)


FORMS = {"Pow": ((_is_several, power),)}
