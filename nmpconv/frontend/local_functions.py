"""Local functions of a model, before they are inlined: whether that ends, and how many nodes there will be."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from nmpconv.errors import InputError
from nmpconv.frontend.toposort import subgraphs

NODES_MAX = 10_000  # of a whole model, constants apart; large published CNNs have two to four thousand
_Key = tuple[str, str, str]  # domain, name, overload


def check(model: onnx.ModelProto, where: str) -> None:
    """InputError for more than NODES_MAX nodes with all functions inlined, a function that is defined twice or that
    calls itself, directly or through others."""
    functions: dict[_Key, onnx.FunctionProto] = {}
    for function in model.functions:
        key = (function.domain, function.name, function.overload)
        if key in functions:
            raise InputError(f"the local function '{function.name}' is defined twice", where=where)
        functions[key] = function
    counts: dict[_Key, int] = {}
    for key in _callees_first(functions, where):
        counts[key] = _count(functions[key].node, counts)
    total = _count(model.graph.node, counts)
    if total > NODES_MAX:
        hint = "a part of it, by onnx.utils.extract_model"
        inlined = " once its local functions are inlined" if functions else ""
        raise InputError(f"has {_about(total)} nodes{inlined}; at most {NODES_MAX} can be read", where=where, hint=hint)


def _callees_first(functions: dict[_Key, onnx.FunctionProto], where: str) -> Iterable[_Key]:
    """Every function after those that it calls."""
    calls = {key: [k for k in _calls(function.node) if k in functions] for key, function in functions.items()}
    done: set[_Key] = set()
    for root in functions:
        path = [(root, iter(calls[root]))] if root not in done else []
        on_path = {root}
        while path:
            key, rest = path[-1]
            callee = next((k for k in rest if k not in done), None)
            if callee is None:
                path.pop()
                on_path.discard(key)
                done.add(key)
                yield key
            elif callee in on_path:
                raise InputError(f"the local function '{callee[1]}' calls itself", where=where)
            else:
                path.append((callee, iter(calls[callee])))
                on_path.add(callee)


def _calls(nodes: Iterable[onnx.NodeProto]) -> Iterable[_Key]:
    for node in nodes:
        yield node.domain, node.op_type, node.overload
        for graph in subgraphs(node):
            yield from _calls(graph.node)


def _count(nodes: Iterable[onnx.NodeProto], counts: dict[_Key, int]) -> int:
    return sum(counts.get(key, key[1] != "Constant") for key in _calls(nodes))


def _about(count: int) -> str:
    return str(count) if count < 10**9 else f"about 10^{len(str(count)) - 1}"
