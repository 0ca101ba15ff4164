"""Nodes in an order in which each comes after those that it reads from; files need not have it.

onnxruntime sorts by itself, and exporters rely on that: what a converter to float16 adds comes last in the file.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, MutableSequence

import onnx

from nmpconv.errors import InputError


def subgraphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    return [attribute.g for attribute in node.attribute if attribute.type == onnx.AttributeProto.GRAPH]


def reads(node: onnx.NodeProto) -> list[str]:
    """The tensors that a node reads, its subgraphs included; names of a subgraph's own tensors are among them."""
    inner = [name for graph in subgraphs(node) for sub in graph.node for name in reads(sub)]
    returned = [value.name for graph in subgraphs(node) for value in graph.output]
    return [name for name in (*node.input, *inner, *returned) if name]


def rename(node: onnx.NodeProto, renames: Mapping[str, str]) -> None:
    """Names of tensors that a node and graphs inside of it use, in place; a graph's own ones hide those outside."""
    node.input[:] = [renames.get(name, name) for name in node.input]
    node.output[:] = [renames.get(name, name) for name in node.output]
    for graph in subgraphs(node):
        inner = {tensor.name for tensor in graph.initializer} | {value.name for value in graph.input}
        inner |= {name for sub in graph.node for name in sub.output}
        seen = {name: new for name, new in renames.items() if name not in inner}
        for sub in graph.node:
            rename(sub, seen)
        for value in graph.output:
            value.name = seen.get(value.name, value.name)


def label(node: onnx.NodeProto) -> str:
    return f"node '{node.name}' ({node.op_type})"


def name_apart(nodes: Iterable[onnx.NodeProto]) -> None:
    """Gives nodes of the same name other ones, in place; onnxruntime refuses two of one name."""
    taken: set[str] = set()
    for node in nodes:
        name, n = node.name, 0
        while name and name in taken:
            n += 1
            name = f"{node.name}_{n}"
        node.name = name
        taken.add(name)


def sort(model: onnx.ModelProto, where: str) -> None:
    """Sorts the nodes of the graph, of its subgraphs and of local functions in place. InputError for a cycle."""
    for container in (model.graph, *model.functions):
        _sort(container.node, where)


def _sort(nodes: MutableSequence[onnx.NodeProto], where: str) -> None:
    """Sorts nodes; among those that could be next, the first one of the file is: a file in order stays as it is."""
    for node in nodes:
        for graph in subgraphs(node):
            _sort(graph.node, where)
    maker = {name: i for i, node in reversed(list(enumerate(nodes))) for name in node.output if name}
    before = [{maker[name] for name in reads(node) if name in maker} for node in nodes]
    if all(i > max(needed, default=-1) for i, needed in enumerate(before)):
        return
    after: list[list[int]] = [[] for _ in nodes]
    for i, needed in enumerate(before):
        for j in needed:
            after[j].append(i)
    missing = [len(needed) for needed in before]
    ready = [i for i, count in enumerate(missing) if not count]
    order: list[int] = []
    while ready:
        order.append(heapq.heappop(ready))
        for i in after[order[-1]]:
            missing[i] -= 1
            if not missing[i]:
                heapq.heappush(ready, i)
    if len(order) < len(nodes):
        node = nodes[_on_cycle(before, set(range(len(nodes))) - set(order))]
        raise InputError(f"{label(node)} is on a cycle: it reads what depends on its own result", where=where)
    ordered = [nodes[i] for i in order]
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in ordered]
    del nodes[:]
    nodes.extend(copies)


def _on_cycle(before: list[set[int]], left: set[int]) -> int:
    """Each of the nodes that are left reads from another one of them, so walking back ends in a cycle."""
    seen: set[int] = set()
    i = min(left)
    while i not in seen:
        seen.add(i)
        i = min(before[i] & left)
    return i
