"""Turns an integer graph over a window of frames into a step: it takes the next few frames, computes what they change,
and keeps what it needs of earlier ones in states. An axis of an input is time; a frame is an index of it.

Call m reads frames [m * hop, (m + 1) * hop). After as many calls as hops fill the window, the outputs are those of the
whole graph on these frames, bit for bit. Along an axis of outputs they are the frames that are new; where windows have
no padding in front, the first ones are of times before the stream, and every later window is as good as the first.

1. An op that computes frames apart from each other computes the new ones.
2. A window that slides over frames (convolution, pooling) sees the last frames, a state, and the new ones. Padding in
   front is what the state starts with. A window whose frames come late delays its results.
3. If operands are delayed differently, a state buffers the earlier one.
4. A slice that cuts frames off in front makes the others later; padding at the end of time has to be cut off.
5. Any other op needs all frames: they are kept in a state, and from there on the graph is computed as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

from nmpconv.base.fixed_point import INT_MIN
from nmpconv.base.stream_spec import Stream, parse
from nmpconv.errors import Unsupported, UsageError
from nmpconv.ir import Graph, Node, State, Value
from nmpconv.ops import OPS
from nmpconv.ops.common.window import is_padded
from nmpconv.ops.concat import ConcatParams
from nmpconv.ops.op import quant_of
from nmpconv.ops.slice import SliceParams

SIDES = {1: ("h", "top", "bottom"), 2: ("w", "left", "right")}  # axis of [N,H,W,C]: names of parameters


class Timed(NamedTuple):
    """Time of a tensor in the whole graph: the axis of time, and its frames; how many of them do not depend on padding
    at the end, and which node padded there. In a step: how many are new, and how many calls' frames came before frame
    0."""

    axis: int
    frames: int
    known: int
    padded: str
    new: int
    late: int


class Sliding(NamedTuple):
    """A window along time, from frame i * stride - before on; start: what padding in front of time holds."""

    axis: int
    extent: int
    stride: int
    before: int
    start: int
    params: Any  # without padding along time


Rule = Callable[[Node, Graph, int], "int | Sliding | None"]


def run(graph: Graph, text: str | None) -> Graph:
    """The step, or the graph itself without a text. text: see `streams.parse`.

    Raises UsageError for a stream that the inputs do not have, Unsupported for what cannot be streamed.
    """
    stream = checked(graph, text)
    return graph if stream is None else _Step(graph, stream).graph()


def checked(graph: Graph, text: str | None) -> Stream | None:
    """With the input's name. graph: of any stage, of a whole window. Raises UsageError."""
    if text is None:
        return None
    stream = parse(text)
    fed = [name for name in graph.inputs if name not in graph.states]
    name = stream.input or (fed[0] if len(fed) == 1 else "")
    if name not in fed:
        raise UsageError(f"the model's inputs are {', '.join(fed)}", where="--stream", hint="give input=NAME of one")
    if name in graph.pixels:
        raise UsageError(f"input {name!r} takes images, which are no frames", where="--stream", hint="give arrays")
    shape = graph[name].shape
    if not 0 <= stream.axis < len(shape):
        axes = f"0 to {len(shape) - 1}"
        raise UsageError(f"input {name!r} has no axis {stream.axis}", where="--stream", hint=axes, allowed=axes)
    frames = shape[stream.axis]
    hops = [n for n in range(1, frames + 1) if frames % n == 0]
    if stream.hop not in hops:
        raise UsageError(
            f"a window of {frames} frames is no whole number of hops of {stream.hop}",
            where="--stream",
            hint=f"hop={', '.join(map(str, hops[:8]))}",
        )
    return replace(stream, input=name)


class _Step:
    """The step of a graph, node by node. A tensor with new frames keeps its name."""

    def __init__(self, graph: Graph, stream: Stream) -> None:
        frames = graph[stream.input].shape[stream.axis]
        self.whole = graph
        self.calls = frames // stream.hop
        self.timed = {stream.input: Timed(stream.axis, frames, frames, "", stream.hop, 0)}
        self.windows: dict[str, str] = {}  # all frames of a tensor, by its name
        self.nodes: list[Node] = []
        self.values: dict[str, Value] = {name: value for name, value in graph.values.items() if value.is_const}
        self.inputs, self.outputs = list(graph.inputs), list(graph.outputs)
        self.states = dict(graph.states)
        for name in graph.inputs:
            self.values[name] = self._resized(graph[name], name, stream.hop) if name in self.timed else graph[name]
        for node in graph.nodes:
            self._node(node)

    def graph(self) -> Graph:
        for name in self.whole.outputs:
            if name in self.timed:
                self._refuse_padding(name)
        shapes = {
            name: shape if name not in self.timed else self.values[name].shape
            for name, shape in self.whole.source_shapes.items()
            if name not in self.timed or shape == self.whole[name].shape
        }
        return replace(
            self.whole,
            inputs=tuple(self.inputs),
            outputs=tuple(self.outputs),
            nodes=tuple(self.nodes),
            values=self.values,
            states=self.states,
            source_shapes=shapes,
        )

    def _node(self, node: Node) -> None:
        if not any(name in self.timed for name in node.inputs):
            self._emit(node, {name: self.whole[name] for name in node.outputs})
            return
        how = self._how(node)
        if isinstance(how, Sliding):
            self._slide(node, how)
        elif how is None:
            inputs = tuple(self._window(name) if name in self.timed else name for name in node.inputs)
            self._emit(replace(node, inputs=inputs), {name: self.whole[name] for name in node.outputs})
        elif _is_crop(node, self.whole, how):
            self._crop(node, how)
        else:
            self._apart(node, how)

    def _how(self, node: Node) -> int | Sliding | None:
        """The axis of time of the output, where frames are computed apart; or the window; None: all are needed."""
        elementwise = OPS[node.op].elementwise
        rule = _elementwise if elementwise else RULES.get(node.op)
        axes = {self.timed[name].axis - len(self.whole[name].shape) for name in node.inputs if name in self.timed}
        if rule is None or len(axes) != 1:
            return None
        first = next(name for name in node.inputs if name in self.timed)
        others = [v for v in self.whole.ins(node) if v.name not in self.timed and not v.is_const]
        if others and not (elementwise and all(_size(v, *axes) == 1 for v in others)):
            return None
        rank = len(self.whole[node.outputs[0] if elementwise else first].shape)
        return rule(node, self.whole, rank + axes.pop())

    # -- the cases --------------------------------------------------------------------------------------------------

    def _apart(self, node: Node, axis: int) -> None:
        """Cases 1 and 3."""
        timed = [self.timed[name] for name in node.inputs if name in self.timed]
        late, new = max(t.late for t in timed), timed[0].new
        if any(t.new != new for t in timed):
            raise Unsupported(_about(node, "its operands have different numbers of frames"), hint="one rate for both")
        inputs = tuple(self._wait(name, late) if name in self.timed else name for name in node.inputs)
        (out,) = node.outputs
        least = min(timed, key=lambda t: t.known)
        self.timed[out] = Timed(axis, self.whole[out].shape[axis], least.known, least.padded, new, late)
        params = node.params
        for field in ("shape", "sizes"):
            if hasattr(params, field):
                params = replace(params, **{field: _with(getattr(params, field), axis, new)})
        self._emit(replace(node, inputs=inputs, params=params), {out: self._resized(self.whole[out], out, new)})

    def _slide(self, node: Node, window: Sliding) -> None:
        """Case 2."""
        x, (out,) = node.inputs[0], node.outputs
        t, stride = self.timed[x], window.stride
        if window.before and t.late:
            raise Unsupported(
                _about(node, "it pads the front of time behind a window or slice that does not"),
                hint="pad in front of every window (causal), or of none",
            )
        if t.new % stride:
            hint = f"hop={stride}, or a multiple of it, for each stride of time in front of it, multiplied"
            raise Unsupported(_about(node, f"it has a stride of {stride} frames, a call brings {t.new}"), hint=hint)
        least, late = max(window.extent - stride, 0), 0
        while (past := window.before - t.late + late * stride) < least:
            late += 1
        frames, new = self.whole[out].shape[window.axis], t.new // stride
        known = min(max((t.known + window.before - window.extent) // stride + 1, 0), frames)
        padded = t.padded or (node.name if known < frames else "")
        self.timed[out] = Timed(window.axis, frames, known, padded, new, late)
        seen = self._frames(x, past, 0, (new - 1) * stride + window.extent, window.start)
        others = node.inputs[1 : None if is_padded(window.params) else OPS[node.op].border]
        step = replace(node, inputs=(seen, *others), params=window.params)
        self._emit(step, {out: self._resized(self.whole[out], out, new)})

    def _crop(self, node: Node, axis: int) -> None:
        """Case 4."""
        x, (out,) = node.inputs[0], node.outputs
        t, start, size = self.timed[x], node.params.starts[axis], node.params.sizes[axis]
        self.timed[out] = Timed(axis, size, min(max(t.known - start, 0), size), t.padded, t.new, t.late + start)
        params = replace(node.params, starts=_with(node.params.starts, axis, 0))
        params = replace(params, sizes=_with(params.sizes, axis, t.new))
        self._emit(replace(node, params=params), {out: self._resized(self.whole[out], out, t.new)})

    def _window(self, name: str) -> str:
        """Case 5: all frames of the tensor as the whole graph has them, once the window is full."""
        t = self.timed[name]
        if name not in self.windows:
            self._refuse_padding(name)
            skipped = t.new * self.calls - t.frames - t.late
            if skipped < 0:
                raise Unsupported(f"'{name}' is complete only {-skipped} frames after the window's end", where=name)
            self.windows[name] = self._frames(name, t.frames + skipped - t.new, 0, t.frames, 0)
        return self.windows[name]

    def _wait(self, name: str, late: int) -> str:
        t = self.timed[name]
        return name if t.late == late else self._frames(name, late - t.late, 0, t.new, 0)

    def _refuse_padding(self, name: str) -> None:
        t = self.timed[name]
        if t.known < t.frames:
            raise Unsupported(
                f"'{t.padded}' pads the end of time, which a stream does not have; '{name}' depends on that",
                where=t.padded,
                hint="put the padding in front (causal), leave it out, or cut what depends on it off",
            )

    # -- building ---------------------------------------------------------------------------------------------------

    def _frames(self, name: str, past: int, first: int, count: int, start: int) -> str:
        """So many frames, from ``first`` on, of the last ``past`` frames and the new ones.

        start: the integer that frames before the stream hold.
        """
        t, value = self.timed[name], self.values[name]
        joined = name
        if past < 0:
            first, past = first - past, 0
        if past > 0:
            joined = self._joined(name, past, start)
        if (first, count) == (0, past + t.new):
            return joined
        return self._slice(joined, t.axis, first, count, self._fresh(f"{name}.seen"), value)

    def _joined(self, name: str, past: int, start: int) -> str:
        """The last frames and the new ones. The last of these are the state's in the next call."""
        t, value = self.timed[name], self._open(self.values[name], start)
        state, last, joined = (self._fresh(f"{name}.{role}") for role in ("past", "kept", "joined"))
        self.values[state] = self._resized(value, state, past, t.axis)
        self.inputs.append(state)
        extended = self._resized(value, joined, past + t.new, t.axis)
        self._emit(Node("concat", joined, (state, name), (joined,), ConcatParams(axis=t.axis)), {joined: extended})
        self._slice(joined, t.axis, t.new, past, last, value)
        self.outputs.append(last)
        self.states[state] = State(last, start)
        return joined

    def _slice(self, name: str, axis: int, first: int, count: int, out: str, value: Value) -> str:
        sliced = self._resized(value, out, count, axis)
        starts = _with((0,) * len(sliced.shape), axis, first)
        params = SliceParams(starts, (1,) * len(sliced.shape), sliced.shape)
        self._emit(Node("slice", out, (name,), (out,), params), {out: sliced})
        return out

    def _resized(self, value: Value, name: str, frames: int, axis: int | None = None) -> Value:
        """A tensor like this one with so many frames; of a graph's value, along its own axis of time."""
        along = self.timed[name].axis if axis is None else axis
        resized = replace(value, name=name, shape=_with(value.shape, along, frames))
        return resized if axis is None else replace(resized, clamp=None)

    @staticmethod
    def _open(value: Value, start: int) -> Value:
        """With the start in its clip range, which data movement does not look at."""
        quant = quant_of(value)
        return replace(value, quant=replace(quant, lo=min(quant.lo, start), hi=max(quant.hi, start)))

    def _fresh(self, name: str) -> str:
        taken = {*self.whole.values, *self.values, *(node.name for node in self.whole.nodes)}
        count, unique = 1, name
        while unique in taken:
            count, unique = count + 1, f"{name}{count + 1}"
        return unique

    def _emit(self, node: Node, outputs: dict[str, Value]) -> None:
        self.nodes.append(node)
        self.values.update(outputs)


# -- how ops go along time: the axis of the output, a window, or None where all frames are needed ----------------------


def _elementwise(node: Node, graph: Graph, axis: int) -> int | None:
    """axis: of the output. Constants, tables excepted, are the same for all frames."""
    behind = axis - len(graph[node.outputs[0]].shape)
    fixed = [value for value in graph.ins(node) if value.is_const and node.op != "lookup"]
    return axis if all(_size(value, behind) == 1 for value in fixed) else None


def _rows(node: Node, graph: Graph, axis: int) -> int | None:
    """A fully connected layer."""
    return axis if axis < len(graph[node.inputs[0]].shape) - 1 else None


def _but_its_own(node: Node, graph: Graph, axis: int) -> int | None:
    """Axis of time for ops that work along one axis, or several."""
    own = getattr(node.params, "axes", None) or (node.params.axis,)
    fixed = [value for value in graph.ins(node)[1:] if value.is_const and len(value.shape) > 1]
    return axis if axis not in own and all(value.shape[axis] == 1 for value in fixed) else None


def _concat(node: Node, graph: Graph, axis: int) -> int | None:
    return None if axis == node.params.axis or any(value.is_const for value in graph.ins(node)) else axis


def _reshape(node: Node, graph: Graph, axis: int) -> int | None:
    """The axis of as many frames with as many elements in front of it."""
    old, new = graph[node.inputs[0]].shape, graph[node.outputs[0]].shape
    alike = (i for i, size in enumerate(new) if size == old[axis] > 1 and prod(new[:i]) == prod(old[:axis]))
    return next(alike, None)


def _transpose(node: Node, graph: Graph, axis: int) -> int:
    return int(node.params.perm.index(axis))


def _slice(node: Node, graph: Graph, axis: int) -> int | None:
    """All frames, or all but some in front and at the end."""
    return axis if node.params.steps[axis] == 1 or graph[node.inputs[0]].shape[axis] == 1 else None


def _is_crop(node: Node, graph: Graph, axis: int) -> bool:
    return node.op == "slice" and node.params.sizes[axis] != graph[node.inputs[0]].shape[axis]


def _pad(node: Node, graph: Graph, axis: int) -> int:
    pads = node.params.pads
    if not any(pads[2 * axis : 2 * axis + 2]):
        return axis
    raise Unsupported(_about(node, "it pads time by itself"), hint="pad in the convolution or pool that reads it")


def _conv(node: Node, graph: Graph, axis: int) -> Sliding | None:
    """One with a single result is better computed on the whole window."""
    if axis not in SIDES or graph[node.outputs[0]].shape[axis] == 1:
        return None
    start = 0
    border = node.inputs[3:4]
    if border:
        data = graph[border[0]].data
        assert data is not None
        start = int(data.ravel()[0])
        if getattr(node.params, f"pad_{SIDES[axis][1]}") and (data != start).any():
            raise Unsupported(_about(node, "its padding differs by channel"), hint="a stream has one start for all")
    return _sliding(node, axis, graph[node.inputs[1]].shape[axis], start)


def _pool(node: Node, graph: Graph, axis: int) -> Sliding | None:
    """A pool of everything is no sliding window."""
    if axis not in SIDES or graph[node.outputs[0]].shape[axis] == 1:
        return None
    side, front, end = SIDES[axis]
    padded = any(getattr(node.params, f"pad_{at}") for at in (front, end))
    if padded and not OPS[node.op].grid == "same":
        raise Unsupported(_about(node, "a mean whose windows begin or end in padding"), hint="pool without padding")
    bits = quant_of(graph[node.inputs[0]]).bits
    return _sliding(node, axis, getattr(node.params, f"kernel_{side}"), INT_MIN[bits])


def _sliding(node: Node, axis: int, kernel: int, start: int) -> Sliding:
    side, front, end = SIDES[axis]
    p = node.params
    extent = (kernel - 1) * getattr(p, f"dilation_{side}", 1) + 1
    inside = replace(p, **{f"pad_{front}": 0, f"pad_{end}": 0})
    return Sliding(axis, extent, getattr(p, f"stride_{side}"), getattr(p, f"pad_{front}"), start, inside)


RULES: dict[str, Rule] = {
    "conv2d": _conv,
    "average_pool": _pool,
    "max_pool": _pool,
    "pad": _pad,
    "slice": _slice,
    "reshape": _reshape,
    "transpose": _transpose,
    "concat": _concat,
    "fully_connected": _rows,
    "softmax": _but_its_own,
    "normalize": _but_its_own,
    "arg_max": _but_its_own,
    "gather": _but_its_own,
}


def _size(value: Value, behind: int) -> int:
    """Length of the axis, counted from the last one (-1); 1 where there is none."""
    return value.shape[behind] if -behind <= len(value.shape) else 1


def _with(items: Sequence[int], at: int, item: int) -> tuple[int, ...]:
    return (*items[:at], item, *items[at + 1 :])


def _about(node: Node, problem: str) -> str:
    return f"{node.op} '{node.name}' cannot be streamed: {problem}"
