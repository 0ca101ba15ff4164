"""A strided block: starts, sizes and steps of every axis; a negative step walks backwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from nmpconv.errors import Invalid, Unsupported
from nmpconv.ir import Graph, Node, Value
from nmpconv.ops.common.case import WIDTHS, fed, grid, single
from nmpconv.ops.common.traits import Rule, channels_of
from nmpconv.ops.gather import GatherParams
from nmpconv.ops.op import Case, Op, QArray

if TYPE_CHECKING:
    from nmpconv.ops.builders import GraphBuilder, OnnxBuilder
    from nmpconv.ops.onnx_node import OnnxNode


@dataclass(frozen=True)
class SliceParams:
    starts: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()


class Slice(Op):
    name = "slice"
    Params = SliceParams
    grid = "same"
    onnx = ("Slice", "Split", "Gather")
    monotone = True
    head = True

    def lower(self, node: OnnxNode, to: GraphBuilder) -> None:
        """Split and a Gather of evenly spaced indices are slices too; any other Gather is one."""
        x = to.value(node.input(0))
        shape = to[x].shape
        if node.op_type == "Split":
            _lower_split(node, to, x)
        elif node.op_type == "Gather":
            _lower_gather(node, to, x)
        else:
            _emit(to, x, _ranges(node, to, shape), node.outputs[0])

    def reads(self, params: SliceParams, inputs: Sequence[Value], output: Value) -> list[int]:
        return [output.size]

    def infer(self, params: SliceParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        return [params.sizes]

    def rules(self, params: SliceParams, inputs: Sequence[Value], output: Value) -> Iterator[Rule]:
        p, shape = params, inputs[0].shape
        lists = p.starts, p.steps, p.sizes
        yield f"{[len(field) for field in lists]} numbers", {len(field) for field in lists} == {len(shape)}
        for dim, start, step, size in zip(shape, *lists, strict=True):
            yield "a step of 0", step != 0
            yield f"from {start} by {step}, {size} of {dim}", 0 <= start < dim and 0 <= start + (size - 1) * step < dim

    def keeps_batch(self, params: SliceParams, inputs: Sequence[Value], output: Value) -> bool:
        return params.steps[0] == 1

    def renamed(self, params: SliceParams, axes: Sequence[int]) -> SliceParams:
        back = np.argsort(axes)
        starts, steps, sizes = (tuple(field[i] for i in back) for field in (params.starts, params.steps, params.sizes))
        return SliceParams(starts, steps, sizes)

    def idle(self, params: SliceParams, x: Value, y: Value) -> bool:
        return x.shape == params.sizes and set(params.steps) <= {1}

    def factors(self, params: SliceParams, inputs: Sequence[Value], output: Value) -> Sequence[np.ndarray] | None:
        return [params.starts[-1] + channels_of(output) * params.steps[-1]]

    def reference(self, params: SliceParams, inputs: Sequence[QArray], outputs: Sequence[Value]) -> list[np.ndarray]:
        """y[i] = x[start + step * i] along every axis."""
        x = inputs[0].q
        block = []
        for start, step, size in zip(params.starts, params.steps, outputs[0].shape, strict=True):
            stop = start + step * (size - 1) + (1 if step > 0 else -1)
            block.append(slice(start, stop if stop >= 0 else None, step))
        return [np.ascontiguousarray(x[tuple(block)])]

    def cases(self) -> Iterator[Case]:
        blocks = (
            ("all", (0, 0, 0, 0), (1, 1, 1, 1), (1, 6, 5, 8)),
            ("rows", (0, 2, 0, 0), (1, 1, 1, 1), (1, 3, 5, 8)),
            ("channels", (0, 0, 0, 3), (1, 1, 1, 1), (1, 6, 5, 4)),
            ("columns", (0, 0, 1, 0), (1, 1, 1, 1), (1, 6, 3, 8)),
            ("column", (0, 0, 4, 0), (1, 1, -7, 1), (1, 6, 1, 8)),
            ("steps", (0, 1, 0, 1), (1, 2, 4, 3), (1, 3, 2, 3)),
            ("halves", (0, 0, 0, 0), (1, 1, 1, 2), (1, 6, 5, 4)),
            ("backwards", (0, 5, 4, 7), (1, -1, -2, -3), (1, 6, 3, 3)),
            ("one", (0, 5, 4, 7), (1, -7, 9, 1), (1, 1, 1, 1)),
        )
        for (name, *block), bits in product(blocks, WIDTHS):
            x = fed(name, (1, 6, 5, 8), bits, -3)
            yield single(self, f"{name}/int{bits}", SliceParams(*block), [x], grid(bits, -3))
        x = fed("batch", (4, 3), 8, -3)
        yield single(self, "batch", SliceParams((0, 0), (1, 1), (1, 3)), [x], grid(8, -3))

    def export(self, node: Node, graph: Graph, to: OnnxBuilder) -> None:
        p, shape = node.params, graph[node.inputs[0]].shape
        axes = [i for i, size in enumerate(shape) if (p.starts[i], p.steps[i], p.sizes[i]) != (0, 1, size)]
        starts, steps = [p.starts[i] for i in axes], [p.steps[i] for i in axes]
        # Walking backwards, the end before index 0 is spelled as an index below every axis.
        ends = [p.starts[i] + p.sizes[i] * p.steps[i] for i in axes]
        ends = [end if end >= 0 else -(shape[i] + 1) for i, end in zip(axes, ends, strict=True)]
        operands = [to.const(np.array(part, np.int64)) for part in (starts, ends, axes, steps)]
        to.node("Slice", (node.inputs[0], *operands), node.outputs[0])


def _emit(to: GraphBuilder, x: str, ranges: Sequence[range], output: str) -> str:
    """The block of x that has these indices along each axis; x itself when that is all of it."""
    if all(r == range(size) for r, size in zip(ranges, to[x].shape, strict=True)):
        if output:
            to.rename(output, x)
        return x
    if any(len(r) == 0 for r in ranges):
        if not output:
            raise Unsupported("its result would be empty")
        to.define({output: np.zeros([len(r) for r in ranges], np.float32)})
        return output
    starts, steps, sizes = zip(*((r.start, r.step if len(r) > 1 else 1, len(r)) for r in ranges), strict=True)
    return to.emit("slice", (x,), SliceParams(starts, steps, sizes), output)


def _along(shape: Sequence[int], axis: int, indices: range) -> list[range]:
    return [indices if i == axis else range(size) for i, size in enumerate(shape)]


def _ranges(node: OnnxNode, to: GraphBuilder, shape: Sequence[int]) -> list[range]:
    """Attributes before opset 10, inputs since; bounds count from the end when negative and stop at it when beyond."""
    if node.opset < 10:
        starts, ends = node.integers("starts") or (), node.integers("ends") or ()
        axes, steps = node.integers("axes"), None
    else:
        starts, ends = (to.integers(node.input(i), role) for i, role in ((1, "starts"), (2, "ends")))
        axes = to.integers(node.input(3), "axes") if node.input(3) else None
        steps = to.integers(node.input(4), "steps") if node.input(4) else None
    axes = node.axes(axes or range(len(starts)), len(shape))
    if steps is not None and 0 in steps:
        raise Invalid(f"steps {list(steps)}", hint="not 0")
    ranges = [range(size) for size in shape]
    for start, end, axis, step in zip(starts, ends, axes, steps or (1,) * len(starts), strict=True):
        ranges[axis] = range(shape[axis])[slice(start, end if step > 0 or end >= -shape[axis] else None, step)]
    return ranges


def _lower_split(node: OnnxNode, to: GraphBuilder, x: str) -> None:
    shape = to[x].shape
    axis, count = node.axis(node.integer("axis", 0), len(shape)), len(node.outputs)
    sizes = to.integers(node.input(1), "split") if node.input(1) else node.integers("split")
    if not sizes:
        part = -(-shape[axis] // count)
        sizes = (*(part,) * (count - 1), shape[axis] - part * (count - 1))
    if len(sizes) != count or sum(sizes) != shape[axis]:
        raise Invalid(f"parts {list(sizes)} of {shape[axis]}", hint=f"{count} sizes whose sum is {shape[axis]}")
    start = 0
    for size, output in zip(sizes, node.outputs, strict=True):
        if output:
            _emit(to, x, _along(shape, axis, range(start, start + size)), output)
        start += size


def _lower_gather(node: OnnxNode, to: GraphBuilder, x: str) -> None:
    shape = to[x].shape
    axis = node.axis(node.integer("axis", 0), len(shape))
    indices = to.array(node.input(1), "index")
    flat = [node.axis(int(i), shape[axis], "index") for i in indices.ravel()]
    step = flat[1] - flat[0] if len(flat) > 1 else 1
    output = node.outputs[0] if indices.ndim == 1 else ""
    if step == 0 or flat != [flat[0] + i * step for i in range(len(flat))]:
        block = to.emit("gather", (x,), GatherParams(axis, tuple(flat)), output)
    else:
        stop = flat[-1] + (1 if step > 0 else -1)
        block = _emit(to, x, _along(shape, axis, range(flat[0], stop, step)), output)
    if indices.ndim != 1:
        to.reshape(block, (*shape[:axis], *indices.shape, *shape[axis + 1 :]), node.outputs[0])
