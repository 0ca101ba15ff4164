"""The index of the largest (or smallest) element along one axis, which becomes an axis of 1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from nmpconv.errors import Unsupported
from nmpconv.fixed import sat
from nmpconv.ir import Graph, Node, Value
from nmpconv.ops.case import FILLS, WIDTHS, by, fed, grid, single
from nmpconv.ops.op import Case, Op, QArray, quant_of

if TYPE_CHECKING:
    from nmpconv.frontend.export import Exporter
    from nmpconv.frontend.onnx import Importer, OnnxNode

AXIS_MAX = 32768  # legal length of the axis: indices fit int16


@dataclass(frozen=True)
class ArgMaxParams:
    """smallest: of the smallest element. last: the last one of several that are equal, instead of the first."""

    axis: int = 0
    smallest: bool = False
    last: bool = False


class ArgMax(Op):
    name = "arg_max"
    Params = ArgMaxParams
    exponents = (0, 0)
    axis_max = AXIS_MAX
    head = True
    restrictions = f"an axis of at most {AXIS_MAX}"
    onnx = ("ArgMax", "ArgMin")

    def lower(self, node: OnnxNode, to: Importer) -> None:
        x = to.value(node.input(0))
        shape = to[x].shape
        axis = node.axis(node.integer("axis", 0), len(shape))
        params = ArgMaxParams(axis, node.op_type == "ArgMin", bool(node.integer("select_last_index", 0)))
        if node.integer("keepdims", 1) == 1:
            to.emit("arg_max", (x,), params, node.outputs[0])
        else:
            to.reshape(to.emit("arg_max", (x,), params), (*shape[:axis], *shape[axis + 1 :]), node.outputs[0])

    def infer(self, params: ArgMaxParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        shape, axis = inputs[0].shape, params.axis
        if shape[axis] > AXIS_MAX:
            raise Unsupported(f"an axis of {shape[axis]}", hint=f"at most {AXIS_MAX}")
        return [(*shape[:axis], 1, *shape[axis + 1 :])]

    def own_exponent(self, node: Node, bits: int) -> int | None:
        return 0

    def fewest_bits(self, params: ArgMaxParams, inputs: Sequence[Value]) -> int:
        return 16 if inputs[0].shape[params.axis] > 128 else 8

    def keeps_batch(self, params: ArgMaxParams, inputs: Sequence[Value], output: Value) -> bool:
        return params.axis % len(output.shape) != 0

    def renamed(self, params: ArgMaxParams, axes: Sequence[int]) -> ArgMaxParams:
        return replace(params, axis=axes[params.axis])

    def reference(self, params: ArgMaxParams, inputs: Sequence[QArray], outputs: Sequence[Value]) -> list[np.ndarray]:
        """y = sat(i) of the largest x[..., i, ...]; e_y = 0, an axis of at most AXIS_MAX."""
        quant = quant_of(outputs[0])
        assert quant.exponent == 0
        x = inputs[0].q.astype(np.int64) * (-1 if params.smallest else 1)
        if params.last:
            index = x.shape[params.axis] - 1 - np.flip(x, params.axis).argmax(axis=params.axis, keepdims=True)
        else:
            index = x.argmax(axis=params.axis, keepdims=True)
        return [sat(index, quant.lo, quant.hi).astype(quant.dtype)]

    def cases(self) -> Iterator[Case]:
        shapes = (
            ((1, 10), 1),
            ((1, 5, 4, 3), 3),
            ((1, 5, 4, 3), 1),
            ((2, 300), 0),
            ((2, 300), 1),
            ((7,), 0),
            ((1, 1), 1),
        )
        for bits, fill, (shape, axis) in product(product(WIDTHS, repeat=2), FILLS, shapes):
            for params in (ArgMaxParams(axis, s, last) for s, last in product((False, True), repeat=2)):
                name = f"{by(shape)}/{axis}/{by(bits)}/{fill}/{'min' if params.smallest else 'max'}"
                x = fed(name, shape, bits[0], -3, fill)
                yield single(self, name + "/last" * params.last, params, [x], grid(bits[1], 0))

    def export(self, node: Node, graph: Graph, to: Exporter) -> None:
        p: ArgMaxParams = node.params
        kind = "ArgMin" if p.smallest else "ArgMax"
        index = to.node(kind, node.inputs, axis=p.axis, keepdims=1, select_last_index=int(p.last))
        to.node("Cast", (index,), node.outputs[0], to=1)
