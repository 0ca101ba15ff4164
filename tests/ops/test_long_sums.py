"""Long sums of the largest numbers: tiles empty their 32 bits on the way."""

from __future__ import annotations

import numpy as np
import pytest

from nmpconv.file.writer import to_bytes
from nmpconv.graph.reference import run as run_reference
from nmpconv.ops import OPS
from nmpconv.ops.common.case import Operand, grid, single
from nmpconv.passes.memory import plan_memory
from nmpconv.runtime import interpreter

K = 5000  # more than 255 groups of a tile, of any width
CPUS = interpreter.cpus()


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("bits", [8, 16])
def test_largest_sums(cpu: str, bits: int) -> None:
    x = np.full((5, K), -(1 << (bits - 1)), f"int{bits}")
    x[1] += 1
    x[2, ::2] = 3
    w = np.full((3, K), -128, np.int8)
    w[1], w[2, 5:] = 127, 1
    y = grid(16, bits + 10)
    b = Operand(np.array([7, -9, 0], np.int16), y, const=True)
    operands = [Operand(x, grid(bits, 0)), Operand(w, grid(8, 0), const=True), b]
    op = OPS["fully_connected"]
    graph = plan_memory.run(single(op, "long", op.Params(), operands, y).graph)
    net = interpreter.load(to_bytes(graph, {}), cpu=cpu)
    np.testing.assert_array_equal(net.run(x)[0], run_reference(graph, {"x0": x})["y"])
