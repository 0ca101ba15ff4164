"""Quotients of every pair of int8, at every level, with shifts around the bounds of the kernel that multiplies."""

from __future__ import annotations

import numpy as np
import pytest

from nmpconv.file import writer
from nmpconv.graph import reference
from nmpconv.ops import OPS
from nmpconv.ops.common.case import Operand, grid, single
from nmpconv.ops.divide import DivideParams
from nmpconv.passes.memory import plan_memory
from nmpconv.runtime import interpreter

EVERY = np.arange(-128, 128, dtype=np.int8)
SHAPES = (
    ((256, 1), (1, 256)),
    ((1, 256), (256, 1)),
    ((256, 1, 1), (1, 4, 64)),  # short rows, which are put together
)


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("shift", [-30, -21, -20, -19, -8, -1, 0, 1, 8, 22, 23, 24, 30])
@pytest.mark.parametrize("shapes", SHAPES)
def test_every_pair(shapes: tuple[tuple[int, ...], tuple[int, ...]], shift: int, bits: int) -> None:
    exponents = (max(shift, 0), max(-shift, 0))
    operands = [Operand(EVERY.reshape(shape), grid(8, e)) for shape, e in zip(shapes, exponents, strict=True)]
    case = single(OPS["divide"], "every", DivideParams(), operands, grid(bits, 0))
    wanted = reference.run(case.graph, dict(zip(case.graph.inputs, case.feeds, strict=True)))["y"]
    data = writer.to_bytes(plan_memory.run(case.graph), {})
    for level in interpreter.cpus():
        np.testing.assert_array_equal(interpreter.load(data, cpu=level).run(*case.feeds)[0], wanted, err_msg=level)
