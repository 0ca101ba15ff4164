"""Greater: 1 where one tensor is greater than another, elsewhere 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nmpconv.ops.common.aligned import AlignedParams
from nmpconv.ops.common.comparison import Compare, opposite

if TYPE_CHECKING:
    from nmpconv.ops.builders import GraphBuilder
    from nmpconv.ops.onnx_node import OnnxNode


class Greater(Compare):
    name = "greater"
    kind = "Greater"
    holds = np.greater
    onnx = ("Greater", "Less", "GreaterOrEqual", "LessOrEqual")

    def lower(self, node: OnnxNode, to: GraphBuilder) -> None:
        """a < b is b > a; a >= b is not b > a."""
        a, b = to.aligned(to.value(node.input(0)), to.value(node.input(1)))
        pair = (a, b) if node.op_type in ("Greater", "LessOrEqual") else (b, a)
        if node.op_type in ("Greater", "Less"):
            to.emit("greater", pair, AlignedParams(), node.outputs[0])
        else:
            opposite(to, to.emit("greater", pair, AlignedParams()), node.outputs[0])
