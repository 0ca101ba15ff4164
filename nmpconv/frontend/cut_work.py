"""How much of a model is left to the host when the graph is cut."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import prod

import onnx

from nmpconv.frontend.node_check import Tensor


def share(nodes: Sequence[onnx.NodeProto], left: Collection[int], tensor: Callable[[str], Tensor]) -> str:
    """Of these nodes, those of the indices ``left``: how many, and how much of the work is theirs."""
    macs = [_macs(node, tensor) for node in nodes]
    work = sum(macs[i] for i in left) / max(sum(macs), 1)
    return f"{len(left)} of {len(nodes)} nodes and {100 * work:.0f} % of the MACs"


def _macs(node: onnx.NodeProto, tensor: Callable[[str], Tensor]) -> int:
    """Of convolutions and matrix products; 0 where shapes are not known."""
    if node.op_type not in ("Conv", "ConvTranspose", "Gemm", "MatMul"):
        return 0
    x, w, y = (tensor(name).shape for name in (node.input[0], node.input[1], node.output[0]))
    if x is None or w is None or y is None:
        return 0
    if node.op_type == "Conv":
        return prod(y) * prod(w[1:])
    if node.op_type == "ConvTranspose":
        return prod(x) * prod(w[1:])
    turned = node.op_type == "Gemm" and any(a.name == "transA" and a.i for a in node.attribute)
    return prod(y) * (x[0] if turned else x[-1]) if x else 0
