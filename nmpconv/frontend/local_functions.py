"""Local functions of a model: inlined, after a check that this ends, and in how many nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import onnx
import onnx.inliner

from nmpconv.errors import InputError
from nmpconv.frontend import custom_nodes
from nmpconv.frontend.toposort import label, subgraphs

NODES_MAX = 10_000  # of a whole model, constants apart; large published CNNs have two to four thousand
DEPTH_MAX = 100  # calls inside of each other; onnx inlines no more
_Key = tuple[str, str, str]  # domain, name, overload


def check(model: onnx.ModelProto, where: str) -> None:
    """Checks the local functions of a model. Raises InputError for

    - a function that is defined twice, has two inputs or two outputs of one name, or calls itself, directly or not;
    - a call with more inputs or outputs than its function has, or deeper than DEPTH_MAX;
    - more than NODES_MAX nodes once all calls are inlined.
    """
    functions: dict[_Key, onnx.FunctionProto] = {}
    for function in model.functions:
        key = (function.domain, function.name, function.overload)
        if key in functions:
            raise InputError(f"the local function '{function.name}' is defined twice", where=where)
        for role, names in (("input", function.input), ("output", function.output)):
            if twice := repeated(names):
                raise InputError(f"the local function '{function.name}' has two {role}s '{twice}'", where=where)
        functions[key] = function
    for nodes in (model.graph.node, *(function.node for function in model.functions)):
        _check_calls(nodes, functions, where)
    counts: dict[_Key, int] = {}
    depths: dict[_Key, int] = {}
    for key in _callees_first(functions, where):
        counts[key] = _count(functions[key].node, counts)
        depths[key] = 1 + max((depths.get(callee, 0) for callee in _calls(functions[key].node)), default=0)
        if depths[key] > DEPTH_MAX:
            message = f"the local function '{key[1]}' calls others more than {DEPTH_MAX} deep"
            raise InputError(message, where=where, hint="an export without functions")
    total = _count(model.graph.node, counts)
    if total > NODES_MAX:
        hint = "a part of it, by onnx.utils.extract_model"
        inlined = " once its local functions are inlined" if functions else ""
        raise InputError(f"has {_about(total)} nodes{inlined}; at most {NODES_MAX} can be read", where=where, hint=hint)


def inlined(model: onnx.ModelProto, where: str) -> onnx.ModelProto:
    """The model without calls of its local functions, but for those that are ops of users.

    Raises InputError where they cannot be inlined.
    """
    custom = custom_nodes.float_forms(model.functions)
    try:
        return onnx.inliner.inline_selected_functions(model, custom, exclude=True)
    except Exception as error:  # of onnx's C++; `check` has a better word for what is known
        raise InputError(f"its local functions cannot be inlined: {error}", where=where) from error


def repeated(names: Iterable[str]) -> str:
    """The first of the names that comes more than once; '' for none."""
    return next((name for name, count in Counter(names).items() if name and count > 1), "")


def _check_calls(nodes: Iterable[onnx.NodeProto], functions: Mapping[_Key, onnx.FunctionProto], where: str) -> None:
    for node in nodes:
        function = functions.get((node.domain, node.op_type, node.overload))
        if function is not None:
            ends = (("inputs", node.input, function.input), ("outputs", node.output, function.output))
            for role, names, own in ends:
                if len(names) > len(own):
                    message = f"{label(node)} has {len(names)} {role}; its local function has {len(own)}"
                    raise InputError(message, where=where, node=node.name)
        for graph in subgraphs(node):
            _check_calls(graph.node, functions, where)


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
