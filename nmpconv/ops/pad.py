"""Constant padding: inputs x and a scalar constant value [1]; pads are (before, after) of each axis in turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nmpconv.base.fixed_point import quantize
from nmpconv.errors import Invalid, Unsupported
from nmpconv.ir import Graph, Node, Value
from nmpconv.ops.common.case import WIDTHS, constant, fed, grid, single
from nmpconv.ops.common.constant import with_constant
from nmpconv.ops.common.traits import Rule, channels_of, computed, unfit
from nmpconv.ops.gather import take
from nmpconv.ops.op import Case, Op, QArray, quant_of

if TYPE_CHECKING:
    from nmpconv.ops.builders import GraphBuilder, OnnxBuilder
    from nmpconv.ops.onnx_node import OnnxNode


LOWEST = np.finfo(np.float32).min  # stands for -inf until a MaxPool has taken the border


@dataclass(frozen=True)
class PadParams:
    pads: tuple[int, ...] = ()


class Pad(Op):
    name = "pad"
    Params = PadParams
    grid = "same"
    onnx = ("Pad",)
    monotone = True
    border = 1
    constants = (1, 1)

    def lower(self, node: OnnxNode, to: GraphBuilder) -> None:
        """Pads and value are attributes before opset 11, inputs since. Other modes than constant are gathers.

        -inf is for MaxPool only, which makes it padding of its own.
        """
        mode = node.text("mode", "constant")
        if mode not in ("constant", "reflect", "edge", "wrap"):
            raise Unsupported(f"mode {mode}", hint="constant, reflect, edge or wrap")
        x = to.value(node.input(0))
        rank = len(to[x].shape)
        if node.opset < 11:
            pads, value = node.integers("pads") or (), np.float32(node.number("value", 0.0, finite=False))
        else:
            pads = to.integers(node.input(1), "pads")
            value = to.array(node.input(2), "value").reshape(()) if node.input(2) else np.float32(0)
        axes = node.axes(to.integers(node.input(3), "axes") if node.input(3) else range(rank), rank)
        if len(pads) != 2 * len(axes):
            raise Invalid(f"{len(pads)} pads for {len(axes)} axes", hint=f"{2 * len(axes)}")
        if min(pads, default=0) < 0:
            raise Unsupported(f"negative pads {list(pads)}", hint="Slice")
        if not any(pads):
            return to.rename(node.outputs[0], x)
        padding = [0] * (2 * rank)
        for i, axis in enumerate(axes):
            padding[axis * 2], padding[axis * 2 + 1] = pads[i], pads[len(axes) + i]
        if mode != "constant":
            sides = list(zip(to[x].shape, padding[::2], padding[1::2], strict=True))
            if mode == "reflect" and any(size < 2 and before + after for size, before, after in sides):
                raise Invalid(f"reflection of {list(to[x].shape)} by {padding}", hint="axes of at least 2 elements")
            indices = [np.pad(np.arange(size), side, mode=mode).tolist() for size, *side in sides]  # type: ignore[call-overload]
            take(to, x, indices, node.outputs[0])
            return
        name = node.input(2)
        if value == -np.inf and to.only_read_by(node.outputs[0], "MaxPool"):
            name, value = "", LOWEST
        if not np.isfinite(value):
            raise Unsupported(f"padding with {value}", hint="a finite value, or -inf before MaxPool or Softmax only")
        to.emit("pad", (x, to.const(value.reshape(1), name)), PadParams(tuple(padding)), node.outputs[0])

    def infer(self, params: PadParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        pads = params.pads
        return [tuple(d + pads[2 * i] + pads[2 * i + 1] for i, d in enumerate(inputs[0].shape))]

    def rules(self, params: PadParams, inputs: Sequence[Value], output: Value) -> Iterator[Rule]:
        yield f"{len(params.pads)} pads", len(params.pads) == 2 * len(inputs[0].shape)
        yield f"pads {params.pads}", min(params.pads, default=0) >= 0

    def misfit(self, params: PadParams, inputs: Sequence[Value]) -> str:
        fits = len(inputs) == 2 and inputs[1].shape == (1,)
        return computed(inputs) if fits else unfit(self.name, inputs)

    def renamed(self, params: PadParams, axes: Sequence[int]) -> PadParams:
        return PadParams(tuple(pad for i in np.argsort(axes) for pad in params.pads[2 * i : 2 * i + 2]))

    def idle(self, params: PadParams, x: Value, y: Value) -> bool:
        return not any(params.pads)

    def quantize(self, node: Node, graph: Graph) -> tuple[Node, list[Value]]:
        """The padding value on the grid that x shares with y; it may lie beyond what a fused activation left of x."""
        _, value = graph.ins(node)
        quant = quant_of(graph[node.outputs[0]])
        assert value.data is not None
        return with_constant(node, "value", quantize(value.data, quant.exponent, quant.lo, quant.hi), quant)

    def factors(self, params: PadParams, inputs: Sequence[Value], output: Value) -> Sequence[np.ndarray] | None:
        """Borders of 0 around the channels."""
        return None if np.any(inputs[1].data) or any(params.pads[-2:]) else [channels_of(output)]

    def reference(self, params: PadParams, inputs: Sequence[QArray], outputs: Sequence[Value]) -> list[np.ndarray]:
        """x inside a border of the value."""
        x, value = inputs
        pads = list(zip(params.pads[::2], params.pads[1::2], strict=True))
        return [np.pad(x.q, pads, constant_values=value.q[0])]

    def cases(self) -> Iterator[Case]:
        for bits in WIDTHS:
            for pads in ((0, 0, 1, 2, 3, 0, 0, 0), (0, 0, 0, 0, 0, 0, 2, 3), (1, 1, 2, 2, 3, 3, 4, 4), (0,) * 8):
                name = f"{','.join(map(str, pads))}/int{bits}"
                operands = [fed(name, (1, 3, 2, 4), bits, -3), constant(name + "value", (1,), bits, -3)]
                yield single(self, name, PadParams(pads), operands, grid(bits, -3))
            single_channel = [fed("column", (1, 3, 2, 1), bits, -3), constant("value", (1,), bits, -3)]
            yield single(self, f"column/int{bits}", PadParams((0, 0, 0, 0, 0, 1, 0, 2)), single_channel, grid(bits, -3))
            line = [fed("line", (5,), bits, -3), constant("value", (1,), bits, -3, fill="lowest")]
            yield single(self, f"line/int{bits}", PadParams((0, 3)), line, grid(bits, -3))

    def export(self, node: Node, graph: Graph, to: OnnxBuilder) -> None:
        x, value = node.inputs
        scalar = graph[value].data
        assert scalar is not None
        pads = node.params.pads
        to.node("Pad", (x, to.const([*pads[::2], *pads[1::2]]), to.const(scalar.reshape(()))), node.outputs[0])
