"""Lower bound of the RAM of a graph in which some tensors are wider: only their buffers are looked at again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

import numpy as np

from nmpconv.ir import Graph
from nmpconv.passes.memory.placement import Buffer
from nmpconv.passes.memory.plan_memory import Sharing, buffers_of


class Bounds:
    """graph: with the widths that others are compared with."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._sharing = graph, Sharing.of(graph)

    def fits(self, wide: Graph, nodes: Collection[int], room: int) -> bool:
        """Checks that the lower bound without bands is at most room. wide: the graph with other widths of tensors of
        these nodes, by index."""
        sharing = self._sharing.with_changed(wide, nodes)
        names = {
            name for i in nodes for name in (*wide.nodes[i].inputs, *wide.nodes[i].outputs) if not wide[name].is_const
        }
        variants = (self._placed, self._plain) if any(sharing.placed) else (self._plain,)
        return any(variant.bound(wide, sharing, names) <= room for variant in variants)

    @cached_property
    def _placed(self) -> _Variant:
        return _Variant(self._graph, self._sharing, placed=True)

    @cached_property
    def _plain(self) -> _Variant:
        return _Variant(self._graph, self._sharing, placed=False)


class _Variant:
    """Buffers of a graph, with case 2 of `plan_memory` or without, and the bytes that are alive at each step."""

    def __init__(self, graph: Graph, sharing: Sharing, *, placed: bool) -> None:
        self._is_placed = placed
        buffers = buffers_of(graph, placed=placed, sharing=sharing)
        self._home = {name: buffer for buffer in buffers for name in buffer.offsets}
        self._alive = np.zeros(len(graph.nodes) + 2, np.int64)  # first before the first op
        _add(self._alive, buffers, 1)

    def bound(self, wide: Graph, sharing: Sharing, names: Collection[str]) -> int:
        """names: of the tensors of all nodes that may share other bytes than here."""
        old = {id(self._home[name]): self._home[name] for name in names}.values()
        members = {name for buffer in old for name in buffer.offsets}
        alive = self._alive.copy()
        _add(alive, [*old], -1)
        _add(alive, buffers_of(wide, placed=self._is_placed, sharing=sharing, of=members), 1)
        return int(alive.max())


def _add(alive: np.ndarray, buffers: Sequence[Buffer], sign: int) -> None:
    for buffer in buffers:
        alive[buffer.first + 1 : buffer.last + 2] += sign * buffer.bytes
