"""Inputs that hold what an output was in the call before: the hidden vectors of a recurrent model.

1. Input and output are on one grid: the input takes the output over as it is.
2. They are on two: a requantize makes what the input takes over.

What a state takes over is no result of a call any more, unless the model has no other results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nmpconv.errors import UsageError
from nmpconv.ir import Graph, State
from nmpconv.passes.quantize.legalize import requantized

FORM = "OUTPUT=INPUT"


def checked(graph: Graph, texts: Sequence[str]) -> dict[str, str]:
    """Maps each input that is a state to the output that it takes over. graph: of any stage, with the model's inputs
    and outputs; texts: 'output=input' each.

    Raises UsageError for what is none of them, for one that comes twice, and for shapes that differ.
    """
    found: dict[str, str] = {}
    for text in texts:
        output, equals, name = (part.strip() for part in text.rpartition("="))
        if not equals:
            raise UsageError(f"{text!r} names no two tensors", where="--state", hint=FORM, found=text, allowed=FORM)
        for kind, one, known in (("output", output, graph.outputs), ("input", name, graph.inputs)):
            if one not in known:
                used = " that anything reads" if kind == "input" else ""
                what = f"the model has no {kind} {one!r}{used}; it has {', '.join(known)}"
                raise UsageError(what, where="--state", found=one, allowed=", ".join(known))
        if name in found or output in found.values():
            raise UsageError(f"{text!r}: one of them is a state already", where="--state", hint="name each once")
        shapes = [graph.source_shapes.get(one, graph[one].shape) for one in (output, name)]
        if shapes[0] != shapes[1]:
            raise UsageError(
                f"{output!r} is {list(shapes[0])}, {name!r} is {list(shapes[1])}", where="--state", hint="one shape"
            )
        found[name] = output
    if found and len(found) == len(graph.inputs):
        raise UsageError("all inputs are states, so nothing is fed", where="--state", hint="leave one out")
    return found


def run(graph: Graph, texts: Sequence[str]) -> Graph:
    """graph: of integers, before the memory plan. All states start as 0."""
    taken = checked(graph, texts)
    apart = {output for name, output in taken.items() if _grid(graph, name) != _grid(graph, output)}
    told = not set(taken.values()) < set(graph.outputs)  # outputs that states take over are results, too
    for name, output in taken.items():
        if output in apart or (apart and told):
            graph, output = _requantized(graph, name, output, told)
        graph = replace(graph, states={**graph.states, name: State(output)})
    return graph


def _grid(graph: Graph, name: str) -> tuple[int, tuple[int, ...]]:
    quant = graph[name].quant
    assert quant is not None
    return quant.bits, tuple(quant.exponents)


def _requantized(graph: Graph, name: str, output: str, told: bool) -> tuple[Graph, str]:  # case 2
    """Returns the graph with a new output that the state takes over, and its name. told: beside the old one."""
    kept = f"{output}.kept"
    while kept in graph.values:
        kept += "_"
    values = {**graph.values, kept: replace(graph[name], name=kept)}
    nodes = requantized(values, kept, output, kept)
    outputs = (*(other for other in graph.outputs if told or other != output), kept)
    return replace(graph, nodes=(*graph.nodes, *nodes), values=values, outputs=outputs), kept
