"""Operators and types that exporters leave as a framework has them, in terms of ONNX.

1. Erfc and Expm1 of TensorFlow, which tf2onnx has no translation of: 1 - Erf and Exp - 1. Keras 3 writes its Gelu and
   its Celu so.
2. Inputs of reals that are only cast to one type of integers, which only indices are computed from, as in front of an
   Embedding of Keras, which has float32 where a model does not say: inputs of that type. Other casts stay, and are
   refused later: a real is truncated there, an input of integers rounded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from nmpconv.frontend.integer_operators import MOVES
from nmpconv.frontend.toposort import subgraphs

FOREIGN = {"Erfc": "Erf", "Expm1": "Exp"}  # case 1: what ONNX has of them
INDICES = (TensorProto.INT32, TensorProto.INT64)
_INDEX = {"Gather": 1, "GatherND": 1, "OneHot": 0}  # which of their inputs is one
_OF_INDICES = {*MOVES, "Add", "Less", "Where"}  # moves, and what makes negative ones positive
_LIKE = 15  # the first opset with CastLike


def rewrite(graph: onnx.GraphProto, version: int) -> None:
    """Rewrites the graph in place. version: its opset."""
    _write_out(graph, version)
    _type_indices(graph)


def _type_indices(graph: onnx.GraphProto) -> None:  # case 2
    if any(attribute.type == onnx.AttributeProto.GRAPH for node in graph.node for attribute in node.attribute):
        return
    fixed = {*(value.name for value in graph.output), *(tensor.name for tensor in graph.initializer)}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in dict.fromkeys(node.input):
            readers.setdefault(name, []).append(node)
    for value in graph.input:
        casts = readers.get(value.name, [])
        types = {_target(node) for node in casts}
        if len(types) != 1 or types.isdisjoint(INDICES) or value.name in fixed:
            continue
        if value.type.tensor_type.elem_type == TensorProto.FLOAT and _are_indices(casts, readers, fixed):
            [value.type.tensor_type.elem_type] = types


def _target(node: onnx.NodeProto) -> int:
    """The type that a Cast makes; 0 of other nodes."""
    is_cast = node.op_type == "Cast" and not node.domain
    return next((attribute.i for attribute in node.attribute if is_cast and attribute.name == "to"), 0)


def _are_indices(
    casts: Iterable[onnx.NodeProto], readers: Mapping[str, Sequence[onnx.NodeProto]], fixed: Collection[str]
) -> bool:
    """Checks for results that lead to nothing but indices."""
    names = [name for node in casts for name in node.output]
    seen = set(names)
    while names:
        name = names.pop()
        if name in fixed:
            return False
        for node in readers.get(name, ()):
            place = _INDEX.get(node.op_type, -1)
            if node.domain:
                return False
            if place >= 0 and [i for i, x in enumerate(node.input) if x == name] == [place]:
                continue
            if node.op_type not in _OF_INDICES and _target(node) not in INDICES:
                return False
            names += [x for x in node.output if x not in seen]
            seen.update(node.output)
    return True


def _write_out(graph: onnx.GraphProto, version: int) -> None:  # case 1
    for node in graph.node:
        for inner in subgraphs(node):
            _write_out(inner, version)
    if not any(map(_is_foreign, graph.node)):
        return
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        if not _is_foreign(node):
            nodes.append(node)
            continue
        y = node.output[0]
        unit, result = f"{y}~one", f"{y}~inner"
        graph.initializer.append(numpy_helper.from_array(np.float32(1), unit))
        nodes.append(helper.make_node(FOREIGN[node.op_type], node.input, [result], node.name))
        if version >= _LIKE:  # of float16 or double, where the input is
            nodes.append(helper.make_node("CastLike", [unit, result], [f"{y}~like"], node.name))
            unit = f"{y}~like"
        terms = [unit, result] if node.op_type == "Erfc" else [result, unit]
        nodes.append(helper.make_node("Sub", terms, [y], node.name))
    del graph.node[:]
    graph.node.extend(nodes)


def _is_foreign(node: onnx.NodeProto) -> bool:
    return node.op_type in FOREIGN and not node.domain and len(node.output) == 1
