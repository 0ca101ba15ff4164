"""A permutation of the axes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nmpconv.base.fixed_point import RANK_MAX
from nmpconv.errors import Invalid, Unsupported
from nmpconv.ir import Graph, Node, Value
from nmpconv.ops.common.case import WIDTHS, fed, grid, single
from nmpconv.ops.common.traits import Rule
from nmpconv.ops.op import Case, Op, QArray

if TYPE_CHECKING:
    from nmpconv.ops.builders import GraphBuilder, OnnxBuilder
    from nmpconv.ops.onnx_node import OnnxNode


@dataclass(frozen=True)
class TransposeParams:
    perm: tuple[int, ...] = ()


class Transpose(Op):
    name = "transpose"
    Params = TransposeParams
    grid = "same"
    onnx = ("Transpose", "DepthToSpace", "SpaceToDepth")
    monotone = True
    head = True

    def lower(self, node: OnnxNode, to: GraphBuilder) -> None:
        if node.op_type != "Transpose":
            return _lower_blocks(node, to)
        x, shape = to.shaped(node.input(0))
        rank = len(shape)
        perm = node.integers("perm") or tuple(reversed(range(rank)))
        if sorted(perm) != list(range(rank)):
            raise Invalid(f"perm {list(perm)}", hint=f"each of 0 to {rank - 1} once")
        if rank > RANK_MAX:  # the value lacks axes of size 1
            left = [i for i in range(rank) if shape[i] > 1]
            moved = to.transpose(x, tuple(left.index(i) for i in perm if i in left))
            to.shape_as(moved, tuple(shape[i] for i in perm), node.outputs[0])
        elif perm == tuple(range(rank)):
            to.rename(node.outputs[0], x)
        else:
            to.transpose(x, perm, node.outputs[0])

    def infer(self, params: TransposeParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        return [tuple(inputs[0].shape[p] for p in params.perm)]

    def rules(self, params: TransposeParams, inputs: Sequence[Value], output: Value) -> Iterator[Rule]:
        yield f"perm {params.perm}", sorted(params.perm) == list(range(len(inputs[0].shape)))

    def keeps_batch(self, params: TransposeParams, inputs: Sequence[Value], output: Value) -> bool:
        return params.perm[0] == 0

    def part(
        self, params: TransposeParams, inputs: Sequence[Value], output: Value, axis: int, size: int
    ) -> tuple[TransposeParams, list[int | None]]:
        return params, [params.perm[axis]]

    def idle(self, params: TransposeParams, x: Value, y: Value) -> bool:
        return params.perm == tuple(range(len(params.perm)))

    def reference(
        self, params: TransposeParams, inputs: Sequence[QArray], outputs: Sequence[Value]
    ) -> list[np.ndarray]:
        """y's axis i is x's axis perm[i]."""
        return [np.ascontiguousarray(inputs[0].q.transpose(params.perm))]

    def cases(self) -> Iterator[Case]:
        for bits in WIDTHS:
            for perm in ((0, 1, 2, 3), (0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 1, 0), (2, 0, 3, 1), (0, 1, 3, 2)):
                name = f"{','.join(map(str, perm))}/int{bits}"
                yield single(self, name, TransposeParams(perm), [fed(name, (1, 3, 4, 5), bits, -3)], grid(bits, -3))
            for rows, columns in ((40, 2), (3, 50), (35, 3), (4, 33), (33, 4), (17, 19)):
                name = f"matrix/{rows}x{columns}/int{bits}"
                yield single(self, name, TransposeParams((1, 0)), [fed(name, (rows, columns), bits, 0)], grid(bits, 0))
            for shape, axes in (((2, 4, 3, 4, 19), (0, 2, 4, 1, 3)), ((3, 9, 2, 17), (1, 3, 0, 2))):
                name = f"apart/{','.join(map(str, axes))}/int{bits}"
                yield single(self, name, TransposeParams(axes), [fed(name, shape, bits, 0)], grid(bits, 0))
            six = fed("six", (2, 3, 1, 4, 2, 3), bits, -3)
            yield single(self, f"six/int{bits}", TransposeParams((5, 3, 0, 2, 4, 1)), [six], grid(bits, -3))

    def export(self, node: Node, graph: Graph, to: OnnxBuilder) -> None:
        to.transpose(node.inputs[0], node.params.perm, node.outputs[0])


def _lower_blocks(node: OnnxNode, to: GraphBuilder) -> None:
    """DepthToSpace and SpaceToDepth as reshape, transpose, reshape in NHWC."""
    b, mode = node.integer("blocksize", 1), node.text("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        raise Unsupported(f"mode {mode}", hint="DCR or CRD")
    x = to.nhwc(node.input(0))
    n, h, w, c = to[x].shape
    if node.op_type == "SpaceToDepth":
        if h % b or w % b:
            raise Unsupported(f"a plane of {h} x {w} does not divide into blocks of {b}")
        split, shape = (n, h // b, b, w // b, b, c), (n, h // b, w // b, b * b * c)
        perm = (0, 1, 3, 2, 4, 5) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    else:
        if c % (b * b):
            raise Unsupported(f"{c} channels do not divide into blocks of {b} x {b}")
        depth, shape = c // (b * b), (n, h * b, w * b, c // (b * b))
        if mode == "DCR":
            split, perm = (n, h, w, b, b, depth), (0, 1, 3, 2, 4, 5)
        else:
            split, perm = (n, h, w, depth, b, b), (0, 1, 4, 2, 5, 3)
    y = to.reshape(to.transpose(to.reshape(x, split), perm), shape)
    to.nchw(y, node.outputs[0], like=node.input(0))
