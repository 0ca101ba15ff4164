"""The last step of an import: values get the names of outputs, and what no output needs is dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nmpconv.ir import Graph, Node, Value


def finished(
    name: str,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    nodes: Sequence[Node],
    values: Mapping[str, Value],
    renames: Mapping[str, str],
) -> Graph:
    """Values renamed as ``renames`` says, nodes in their order. inputs, outputs: names of the graph's ports."""

    def named(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(renames.get(n, n) for n in names)

    needed, live = set(outputs), []
    for node in reversed(nodes):
        node = replace(node, inputs=named(node.inputs), outputs=named(node.outputs))
        if needed.intersection(node.outputs):
            live.append(node)
            needed.update(node.inputs)
    renamed = {renames.get(n, n): replace(v, name=renames.get(n, n)) for n, v in values.items()}
    used = {n: v for n, v in renamed.items() if n in needed or n in inputs}
    ports = {port: used[port].shape for port in (*inputs, *outputs)}
    return Graph(name, inputs, outputs, tuple(live[::-1]), used, source_shapes=ports)
