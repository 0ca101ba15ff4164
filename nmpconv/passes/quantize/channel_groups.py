"""Groups channels of tensors that must be scaled together: a union-find over (tensor, channel).

1. Ops that pass factors on (`Op.factors`: Add and its like, pools, Resize, Relu, spatial Pad, Slice, Gather, Concat,
   flattening Reshape) join the channels of their inputs with those of their outputs. So does Mul, with one of its
   inputs: the other one is a factor, frozen.
2. A saturation at a finite value other than 0 (Relu6) is one number for the tensor, so all its channels are joined.
3. Frozen are graph inputs and outputs, channels that a Concat takes from a constant, and tensors that any op touches
   but those of case 1, convolutions, fully connected layers and ops whose constants take factors up (`Op.takes_up`).
4. Tensors that were chosen by name to keep their own numbers are frozen.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from nmpconv.ir import Graph, Node
from nmpconv.ops import OPS, WEIGHTED


class Channels:
    """ids[tensor] is an int array [C]: the class of each channel; frozen classes are in `frozen`."""

    def __init__(self, graph: Graph, *, kept: Collection[str] = ()) -> None:
        self._graph = graph
        self._producers = graph.producers()
        self._start: dict[str, int] = {}
        total = 0
        for value in graph.activations():
            self._start[value.name] = total
            total += value.shape[-1] if value.shape else 1
        self._parent = list(range(total))
        frozen: list[int] = []
        for name in (*graph.inputs, *graph.outputs, *kept):
            frozen += self._all(name)
        for node in graph.nodes:
            frozen += self._visit(node)
        for value in graph.activations():
            if value.clamp and any(math.isfinite(c) and c != 0 for c in value.clamp):
                self._join_all(self._all(value.name))
        roots = np.array([self._find(i) for i in range(total)])
        self.ids = {name: roots[start : start + self._width(name)] for name, start in self._start.items()}
        self.frozen = np.isin(np.arange(total), roots[frozen])
        self.total = total

    def _width(self, name: str) -> int:
        shape = self._graph[name].shape
        return shape[-1] if shape else 1

    def _all(self, name: str) -> list[int]:
        start = self._start[name]
        return list(range(start, start + self._width(name)))

    def _find(self, i: int) -> int:
        while self._parent[i] != i:
            self._parent[i] = self._parent[self._parent[i]]
            i = self._parent[i]
        return i

    def _join(self, a: int, b: int) -> None:
        a, b = self._find(a), self._find(b)
        self._parent[max(a, b)] = min(a, b)

    def _join_all(self, ids: Sequence[int]) -> None:
        for i in ids[1:]:
            self._join(ids[0], i)

    def _carrier(self, node: Node) -> str | None:
        """The input of a product whose factors the product has: of its shape, and rather not the output of a table."""
        shape = self._graph[node.outputs[0]].shape
        ins = [n for n in node.inputs if not self._graph[n].is_const and self._graph[n].shape == shape]
        if len(set(node.inputs)) == 1 or not ins:
            return None
        return min(ins, key=lambda n: n in self._producers and self._producers[n].op == "lookup")

    def _visit(self, node: Node) -> list[int]:
        """Joins what the node passes on; returns what it freezes."""
        graph, out = self._graph, node.outputs[0]
        ins = [name for name in node.inputs if not graph[name].is_const]
        if node.op in WEIGHTED:
            return []
        if node.op == "mul" and (carrier := self._carrier(node)):
            for a, b in zip(self._all(carrier), self._all(out), strict=True):
                self._join(a, b)
            return [i for name in ins if name != carrier for i in self._all(name)]
        ends = OPS[node.op].takes_up(node.params, graph.ins(node), graph[out])
        if any(ends):
            return [i for name, free in zip((ins[0], out), ends, strict=True) if not free for i in self._all(name)]
        sources = OPS[node.op].factors(node.params, graph.ins(node), graph[out])
        if sources is not None:
            for name, source in zip(ins, sources, strict=True):
                channels = self._all(name)
                for c, a in zip(source, self._all(out), strict=True):
                    if c >= 0:
                        self._join(channels[c], a)
            return [a for a, c in zip(self._all(out), np.max(sources, axis=0), strict=True) if c < 0]
        return [i for name in (*ins, *node.outputs) for i in self._all(name)]
