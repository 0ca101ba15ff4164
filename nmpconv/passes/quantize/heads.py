"""Tensors that accuracy is measured on: outputs, or what is made into them without a distance of its own.

1. Of an output that a Softmax makes: the Softmax's input.
2. Of indices and truth, only where no output is anything else: the results that they are taken from.
"""

from __future__ import annotations

from collections.abc import Mapping

from nmpconv.base.sqnr import head
from nmpconv.ir import Graph, Node
from nmpconv.ops import OPS


def heads(graph: Graph) -> list[str]:
    """Heads of all outputs."""
    makers = graph.producers()
    taken = {name: _taken_from(makers, name) for name in graph.outputs}
    plain = [name for name in taken if not taken[name]]
    return _unique(makers, plain or [source for sources in taken.values() for source in sources])


def heads_of(graph: Graph, output: str) -> list[str]:
    """Heads of an output alone."""
    makers = graph.producers()
    return _unique(makers, _taken_from(makers, output) or [output])


def _unique(makers: Mapping[str, Node], names: list[str]) -> list[str]:
    first = {name: (node.op, node.inputs[0]) for name, node in makers.items()}
    return list(dict.fromkeys(head(name, first.get) for name in names))


def _taken_from(makers: Mapping[str, Node], name: str) -> list[str]:
    """The results that indices or truth, moved perhaps, are taken from: themselves if from inputs and constants alone.
    None for any other tensor."""
    node = makers.get(name)
    while node is not None and OPS[node.op].grid == "same":
        node = makers.get(node.inputs[0])
    if node is None or not OPS[node.op].counted:
        return []
    return [source for x in node.inputs if x in makers for source in _taken_from(makers, x) or [x]] or [name]
