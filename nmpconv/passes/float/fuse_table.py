"""A table takes in the pointwise ops around it that only it needs: what they are of one tensor becomes one table.

1. Sums, products, minima, maxima and saturations after a table, of its own x and of numbers, and further tables. A
   quotient of two functions of x counts as a table.
2. What lies before a table. But a map or a saturation of an x that others read, too, stays where it is the cone's only
   reader of x: its result has a grid of its own, which may be far finer where the table bends than that of x.
3. A table, moves of its elements that nothing else reads, and a table again: one table, then the moves.

Other ops without a table among them stay ops, for integers do them exactly.
"""

from __future__ import annotations

from nmpconv.ir import Graph, Node
from nmpconv.ops.lookup import LookupParams
from nmpconv.passes.float.pointwise_subgraphs import Cone, cones, replace_cone, steps_of
from nmpconv.passes.rewrite import MOVES, Editor, apply

TABLES = ("lookup", "divide")


def run(graph: Graph) -> Graph:
    return apply(graph, _fuse, _before_moves)


def _fuse(editor: Editor, node: Node) -> bool:
    for cone in reversed(cones(editor, node)):
        if any(part.op in TABLES for part in cone.nodes) and not _starts_alone(editor, cone):
            replace_cone(editor, cone, LookupParams(composed=steps_of(editor, cone)))
            return True
    return False


def _starts_alone(editor: Editor, cone: Cone) -> bool:  # case 2
    if editor.only_user(cone.x) is not None:
        return False
    first, *others = [node for node in cone.nodes if cone.x in node.inputs]
    return not others and first.op != "lookup" and first.inputs.count(cone.x) == 1


def _before_moves(editor: Editor, node: Node) -> bool:  # case 3
    moves, x = list[Node](), node.inputs[0]
    while (maker := editor.producer(x)) is not None and maker.op in MOVES and editor.only_user(x) is not None:
        moves.append(maker)
        x = maker.inputs[0]
    if node.op != "lookup" or not moves or maker is None or maker.op != "lookup" or editor.only_user(x) is None:
        return False
    out = editor[node.outputs[0]]
    for old in (node, *moves):
        editor.remove(old)
    y = editor.emit("lookup", (x,), node.params, at=moves[-1], name=node.name, clamp=out.clamp)
    for move in reversed(moves):
        y = editor.emit(move.op, (y,), move.params, at=move, name=move.name, out=out.name if move is moves[0] else "")
    return True
