"""Leaves out channels that no result depends on. Bit-exact for every input, so it needs no data.

A channel is not needed where each convolution or fully connected layer that reads it has only zeros as its weights, or
where `intervals` proves that it is always 0, as the padding is. Ops that work channel by channel (depthwise
convolutions, pooling, element by element) join their tensors: a channel goes from all of them or stays in all.

1. What is left of a channel axis is rounded up to a multiple of UNIT, for kernels read that many bytes at a time.
2. Fewer channels may leave more weights zero further up: repeated until nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from nmpconv.ir import Graph, Node, Value
from nmpconv.ops import OPS, WEIGHTED
from nmpconv.ops.common.weighted import groups_of
from nmpconv.passes.quantize import intervals
from nmpconv.passes.quantize.intervals import Interval
from nmpconv.passes.quantize.matrix_form import pad_of
from nmpconv.passes.rewrite import Editor

UNIT = 4


def run(graph: Graph) -> Graph:
    while (slimmer := _once(graph)) is not graph:
        graph = slimmer
    return graph


def _once(graph: Graph) -> Graph:
    ranges = intervals.run(graph)
    groups, users = _groups(graph), graph.consumers()
    editor = Editor(graph)
    changed = False
    for names in groups:
        keep = _rounded(_needed(graph, users, names, ranges))
        if not keep.all():
            changed = True
            _keep(editor, names, np.flatnonzero(keep))
    return editor.finish() if changed else graph


def _groups(graph: Graph) -> list[list[str]]:
    """Activations that lose their channels together, those that can lose none left out."""
    names = [value.name for value in graph.activations()]
    first = {name: name for name in names}  # a step towards the first one of its group
    last = {name: name for name in names}  # of a group, by its first one
    after: dict[str, str] = {}  # the next one of the group

    def group_of(name: str) -> str:
        while first[name] != name:
            first[name] = name = first[first[name]]
        return name

    fixed = {*graph.inputs, *graph.outputs}
    for node in graph.nodes:
        out = node.outputs[0]
        joined = [name for name in node.inputs if not graph[name].is_const]
        if _is_dense(node):
            continue
        if not _by_channel(node, graph):
            fixed.update((out, *joined))
            continue
        for name in joined:
            if (left := group_of(out)) != (right := group_of(name)):
                first[right] = left
                after[last[left]] = right
                last[left] = last[right]
    groups = []
    for name in dict.fromkeys(map(group_of, names)):
        group = [name]
        while group[-1] in after:
            group.append(after[group[-1]])
        groups.append(group)
    return [group for group in groups if fixed.isdisjoint(group)]


def _is_dense(node: Node) -> bool:
    return node.op in WEIGHTED and groups_of(node) == 1


def _by_channel(node: Node, graph: Graph) -> bool:
    """Checks that a channel goes from the op's tensors together; constant operands have channels that would stay."""
    op, inputs = OPS[node.op], graph.ins(node)
    if op.joins and any(value.is_const for value in inputs):
        return False
    return op.by_channel(node.params, inputs, graph[node.outputs[0]])


def _needed(
    graph: Graph, users: Mapping[str, Sequence[Node]], names: Iterable[str], ranges: dict[str, Interval]
) -> np.ndarray:
    """The channels that some layer with weights reads: bool [C]."""
    needed = [np.zeros(len(ranges[name].lo), bool) for name in names]
    for mask, name in zip(needed, names, strict=True):
        for node in users[name]:
            if _is_dense(node):
                mask |= _read(graph, node, ranges[name])
    return np.asarray(np.logical_or.reduce(needed))


def _read(graph: Graph, node: Node, x: Interval) -> np.ndarray:
    w = graph[node.inputs[1]].data
    assert w is not None
    weighs = (w.reshape(-1, w.shape[-1]) != 0).any(axis=0)
    zero = x.constant & (x.lo == 0)
    if (pad := pad_of(graph, node)) is not None:
        zero &= pad == 0
    return np.asarray(weighs & ~zero)


def _rounded(keep: np.ndarray) -> np.ndarray:
    """Case 1; the first of those that could go stay."""
    keep = keep.copy()
    count = max(-(-int(keep.sum()) // UNIT) * UNIT, UNIT)
    spare = np.flatnonzero(~keep)
    keep[spare[: count - int(keep.sum())]] = True
    return keep


def _keep(editor: Editor, names: Iterable[str], channels: np.ndarray) -> None:
    for name in names:
        value = editor[name]
        editor.put(replace(value, shape=(*value.shape[:-1], len(channels))))
    for name in names:
        producer = editor.producer(name)
        assert producer is not None
        if producer.op in WEIGHTED:
            editor.set(_fewer_outputs(editor, producer, channels))
        if not _is_dense(producer):
            maker = editor.now(producer)
            editor.set(replace(maker, params=OPS[maker.op].with_channels(maker.params, len(channels))))
        for node in editor.users(name):
            if _is_dense(node):
                editor.set(_fewer_inputs(editor, node, channels))


def _fewer_outputs(editor: Editor, node: Node, channels: np.ndarray) -> Node:
    """Drops channels of the op with weights that makes them; a depthwise one reads as many."""
    x, w, b, *pad = node.inputs
    if not _is_dense(node):
        pad = [_slice(editor, name, channels, 0) for name in pad]
    return replace(node, inputs=(x, _slice(editor, w, channels, 0), _slice(editor, b, channels, 0), *pad))


def _fewer_inputs(editor: Editor, node: Node, channels: np.ndarray) -> Node:
    x, w, b, *pad = node.inputs
    inputs = (x, _slice(editor, w, channels, -1), b, *(_slice(editor, name, channels, 0) for name in pad))
    return replace(node, inputs=inputs)


def _slice(editor: Editor, name: str, channels: np.ndarray, axis: int) -> str:
    """A constant's part; another user keeps the whole one."""
    value = editor[name]
    assert value.data is not None
    quant = value.quant
    data = np.ascontiguousarray(value.data.take(channels, axis))
    if quant is not None and quant.axis is not None and quant.axis == axis % value.data.ndim:
        quant = replace(quant, exponents=tuple(quant.exponents[c] for c in channels))
    name = name if len(editor.users(name)) == 1 else editor.fresh(name)
    return editor.put(Value(name, data.shape, value.dtype, data=data, quant=quant, observed=value.observed))
