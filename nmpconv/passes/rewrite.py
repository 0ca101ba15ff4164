"""Tools of the passes: an editor over a frozen graph, and the loop that applies cases until none fires.

A case is a function (editor, node) -> bool: it rewrites around one node and says whether it changed anything.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nmpconv.errors import VerifyError
from nmpconv.ir import Graph, Node, Value
from nmpconv.ops import OPS
from nmpconv.ops.reshape import ReshapeParams
from nmpconv.ops.transpose import TransposeParams

Clamp = tuple[float, float]
MOVES = ("transpose", "reshape")


class Editor:
    """A mutable copy of a graph. Nodes keep their place in the order; a new one has the place of the node ``at``.

    Tensors whose integers are to be the model's seem to come from nowhere and to go to several places, so that no case
    looks across them: with ``apart`` all of them, otherwise those that a move puts on another grid.
    """

    def __init__(self, graph: Graph, *, apart: bool = False) -> None:
        self._graph, self._apart = graph, apart
        self.inputs = graph.inputs
        self.outputs = frozenset(graph.outputs)
        self.values: dict[str, Value] = dict(graph.values)
        self._nodes: dict[str, Node] = {}
        self._place: dict[str, int] = {}
        self._producer: dict[str, str] = {}
        self._users: dict[str, dict[str, None]] = {}
        for place, node in enumerate(graph.nodes):
            self._link(node, place)

    def __getitem__(self, name: str) -> Value:
        return self.values[name]

    def __contains__(self, node: Node) -> bool:
        return self._nodes.get(node.name) is node

    def now(self, node: Node) -> Node:
        """Returns the current form of the node."""
        return self._nodes[node.name]

    def regrids(self, node: Node) -> bool:
        """`Graph.regrids`."""
        return self._graph.regrids(node)

    def keeps_grid(self, name: str) -> bool:
        """Checks for a tensor that the model rounds to a grid which is to be kept."""
        return self._graph.faithful and name in self._graph.given

    def keeps_integers(self, name: str) -> bool:
        """Checks for a grid that is to be kept and has a power of two as its step: a step that is another one than the
        model's rounds to other integers anyway."""
        return self.keeps_grid(name) and self._graph.given[name].is_power

    def shares_grid(self, name: str, other: str) -> bool:
        """Checks that two tensors have one grid that is to be kept, or none."""
        if not (self.keeps_grid(name) or self.keeps_grid(other)):
            return True
        first, second = (self._graph.given.get(tensor) for tensor in (name, other))
        return first is not None and first.is_same(second)

    def data(self, name: str) -> np.ndarray:
        """A constant in float64."""
        data = self.values[name].data
        if data is None:
            raise ValueError(f"{name} is not a constant")
        return data.astype(np.float64)

    def producer(self, name: str) -> Node | None:
        """The node that computes a value; None for inputs and constants, and for what is apart."""
        node = None if self._is_apart(name) else self._producer.get(name)
        return None if node is None else self._nodes[node]

    def users(self, name: str) -> list[Node]:
        """The nodes that read a value, once each."""
        return [self._nodes[node] for node in self._users.get(name, ())]

    def user_count(self, name: str) -> int:
        return len(self._users.get(name, ()))

    def only_user(self, name: str) -> Node | None:
        """The one node that reads a value; None when there are more, or none, or it is an output of the graph, or is
        apart."""
        users = self.users(name)
        return users[0] if len(users) == 1 and name not in self.outputs and not self._is_apart(name) else None

    def fresh(self, base: str) -> str:
        """An unused name for nodes and values, ``base~1`` and up; a mark that base itself has is dropped first."""
        stem = re.sub(r"~\d+$", "", base)
        number = 1
        while (name := f"{stem}~{number}") in self.values or name in self._nodes:
            number += 1
        return name

    def put(self, value: Value) -> str:
        """Add or replace a value."""
        self.values[value.name] = value
        return value.name

    def const(self, base: str, data: np.ndarray) -> str:
        """A new float constant."""
        data = np.asarray(data, np.float32, order="C")
        return self.put(Value(self.fresh(base), data.shape, data=data))

    def set(self, node: Node) -> None:
        """Replace the node of the same name, in its place."""
        place = self._place[node.name]
        self.remove(self._nodes[node.name])
        self._link(node, place)

    def emit(
        self,
        op: str,
        inputs: Sequence[str],
        params: Any = None,
        *,
        at: Node,
        name: str = "",
        out: str = "",
        clamp: Clamp | None = None,
    ) -> str:
        """Add a node in the place of ``at``, which may be gone; infers its output and returns the output's name.

        name, out: of the node and its output value; fresh ones from those of ``at`` when empty.
        """
        params = OPS[op].Params() if params is None else params
        ins = [self.values[n] for n in inputs]
        (shape,) = OPS[op].infer(params, ins)
        out = out or self.fresh(at.outputs[0])
        self.put(Value(out, shape, ins[0].dtype, clamp=clamp))
        if not name or name in self._nodes:
            name = self.fresh(name or at.name)
        self._link(Node(op, name, tuple(inputs), (out,), params), self._place[at.name])
        return out

    def reshape(self, x: str, shape: Sequence[int], *, at: Node, name: str = "", out: str = "") -> str:
        """`emit` of a reshape."""
        return self.emit("reshape", (x,), ReshapeParams(tuple(shape)), at=at, name=name, out=out)

    def transpose(self, x: str, perm: Sequence[int], *, at: Node, name: str = "", out: str = "") -> str:
        """`emit` of a transpose."""
        return self.emit("transpose", (x,), TransposeParams(tuple(perm)), at=at, name=name, out=out)

    def remove(self, node: Node) -> None:
        """Take a node out; its values stay until `finish` finds them unused."""
        del self._nodes[node.name]
        for name in node.outputs:
            del self._producer[name]
        for name in node.inputs:
            self._users[name].pop(node.name, None)

    def rename_uses(self, old: str, new: str) -> None:
        """Let every reader of one value read another."""
        for node in self.users(old):
            self.set(replace(node, inputs=tuple(new if n == old else n for n in node.inputs)))

    def bypass(self, node: Node) -> bool:
        """Take out a node that only repeats its first input; False when input and output are both the graph's."""
        source, out = node.inputs[0], node.outputs[0]
        if out in self.outputs:
            maker = self._producer.get(source)
            if maker is None or source in self.outputs:
                return False
            producer = self._nodes[maker]
            self.remove(node)
            self.put(replace(self.values[source], name=out))
            self.set(replace(producer, outputs=tuple(out if n == source else n for n in producer.outputs)))
            self.rename_uses(source, out)
        else:
            self.remove(node)
            self.rename_uses(out, source)
        return True

    def order(self) -> list[Node]:
        """The nodes, producers first, otherwise in their places."""
        places = sorted((self._place[name], name) for name in self._nodes)
        result, late = list[Node](), set(self._producer)
        for _, name in places:
            node = self._nodes[name]
            if not late.isdisjoint(node.inputs):
                return self._sorted()
            late.difference_update(node.outputs)
            result.append(node)
        return result

    def _sorted(self) -> list[Node]:
        """`order`, where places are not enough."""
        waiting = {
            node.name: sum(name in self._producer for name in dict.fromkeys(node.inputs))
            for node in self._nodes.values()
        }
        ready = [(self._place[name], name) for name, count in waiting.items() if count == 0]
        heapq.heapify(ready)
        result = []
        while ready:
            node = self._nodes[heapq.heappop(ready)[1]]
            result.append(node)
            for user in dict.fromkeys(user for out in node.outputs for user in self._users.get(out, ())):
                waiting[user] -= sum(out in self._nodes[user].inputs for out in node.outputs)
                if waiting[user] == 0:
                    heapq.heappush(ready, (self._place[user], user))
        return result

    def finish(self) -> Graph:
        """The new graph, without the nodes and values that no output needs; or the graph itself, unchanged.

        Inputs of the graph stay."""
        needed = set(self.outputs)
        nodes: list[Node] = []
        for node in reversed(self.order()):
            if needed.intersection(node.outputs):
                needed.update((*node.inputs, *node.outputs))
                nodes.append(node)
        keep = needed.union(self.inputs)
        values = {name: value for name, value in self.values.items() if name in keep}
        graph = replace(self._graph, inputs=self.inputs, nodes=tuple(reversed(nodes)), values=values)
        return self._graph if _is_same(graph, self._graph) else graph

    def _is_apart(self, name: str) -> bool:
        return self.keeps_integers(name) and (self._apart or self._moves_to_other_grid(name))

    def _moves_to_other_grid(self, name: str) -> bool:
        """Checks for a move of what the model has rounded to another grid."""
        node = self._nodes.get(self._producer.get(name, ""))
        if node is None or OPS[node.op].grid != "same":
            return False
        return any(self.keeps_grid(x) and not self.shares_grid(x, name) for x in node.inputs)

    def _link(self, node: Node, place: int) -> None:
        self._nodes[node.name] = node
        self._place[node.name] = place
        for name in node.outputs:
            self._producer[name] = node.name
        for name in node.inputs:
            self._users.setdefault(name, {})[node.name] = None


def _is_same(graph: Graph, other: Graph) -> bool:
    """Checks that two graphs have the same inputs, and the very same nodes and values."""
    first, second = ((g.inputs, *map(id, g.nodes), *g.values, *map(id, g.values.values())) for g in (graph, other))
    return first == second


Case = Callable[[Editor, Node], bool]


def apply(graph: Graph, *cases: Case, moves: bool = False) -> Graph:
    """Apply the cases to every node, in order, until none fires; the first that fires ends a node's turn. moves: they
    move and saturate what is on a grid, and compute nothing anew."""
    editor = Editor(graph, apart=not moves)
    rounds = 10 * (len(graph.nodes) + 10)  # far more than any set of cases that ends at all
    for _ in range(rounds):
        turns = [node in editor and any(case(editor, node) for case in cases) for node in editor.order()]
        if not any(turns):
            return editor.finish()
    raise VerifyError(f"the rewriting of '{graph.name}' did not end after {rounds} rounds", where=cases[0].__module__)


def intersect(inner: Clamp | None, outer: Clamp | None) -> Clamp | None:
    """The one clamp that does what ``inner`` and then ``outer`` do."""
    if inner is None or outer is None:
        return inner or outer
    lo, hi = (min(max(bound, outer[0]), outer[1]) for bound in inner)
    return lo, hi


def axis_groups(old: Sequence[int], new: Sequence[int]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """The finest pairs of (range of old axes, range of new axes) with as many elements each, in order."""
    groups, i, j = [], 0, 0
    while i < len(old) or j < len(new):
        if i < len(old) and j < len(new) and old[i] == new[j]:  # so that axes of size 1 stay with each other
            groups.append(((i, i + 1), (j, j + 1)))
            i, j = i + 1, j + 1
            continue
        start, size, other = (i, j), 1, 1
        while size != other or (i, j) == start:
            if j == len(new) or (i < len(old) and size <= other):
                size *= old[i]
                i += 1
            else:
                other *= new[j]
                j += 1
        groups.append(((start[0], i), (start[1], j)))
    return groups


def restore_names(graph: Graph) -> Graph:
    """Renames values that hold the elements of an ONNX tensor to the tensor's name, if no value has that name.

    Candidates have derived names: ``name.op`` from the importer, for a result in another layout than the ONNX tensor,
    and ``name~1`` from `Editor.fresh`. Intermediate results of the ONNX node have such names, too; the last of them is
    its result. ``name.op`` with an op that only moves data is the node's input in another layout, and stays.
    """
    computed, moved = dict[str, str](), dict[str, str]()
    outputs = frozenset(graph.outputs)
    for node in graph.nodes:
        for name in node.outputs:
            goal = name.rpartition("~")[0] or name
            if node.op not in MOVES:
                goal = goal.removesuffix(f".{node.op}")
            if name in outputs or goal in graph.values:
                continue
            if node.op in MOVES:
                moved.setdefault(goal, name)
            else:
                computed[goal] = name
    renames = {name: goal for goal, name in (moved | computed).items()}
    nodes = tuple(
        replace(
            node,
            inputs=tuple(renames.get(name, name) for name in node.inputs),
            outputs=tuple(renames.get(name, name) for name in node.outputs),
        )
        for node in graph.nodes
    )
    values = {renames.get(n, n): replace(v, name=renames.get(n, n)) for n, v in graph.values.items()}
    return replace(graph, nodes=nodes, values=values)
