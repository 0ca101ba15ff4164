"""Base of element-wise ops of two operands with numpy broadcasting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nmpconv.ir import Value
from nmpconv.ops.common.traits import same_rank
from nmpconv.ops.op import Op


class Broadcast(Op):
    in_place = True
    operands = 2
    elementwise = True
    joins = True

    def infer(self, params: Any, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        return [np.broadcast_shapes(*(x.shape for x in inputs))]

    def keeps_batch(self, params: Any, inputs: Sequence[Value], output: Value) -> bool:
        return same_rank(inputs, output)
