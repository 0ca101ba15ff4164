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
from nmpconv.ops.op import quant_of
from nmpconv.passes.quantize.legalize import requantized

FORM = "OUTPUT=INPUT"


def checked(graph: Graph, texts: Sequence[str]) -> dict[str, str]:
    """Maps each input that is a state to the output that it takes over. graph: of any stage, with the model's inputs
    and outputs; texts: 'output=input' each. The model's own variables are states, too, where they are none by a text.

    Raises UsageError for what is none of them, for one that comes twice, and for shapes that differ.
    """
    states: dict[str, str] = {}
    for text in texts:
        output, equals, name = (part.strip() for part in text.rpartition("="))
        if not equals:
            raise UsageError(f"{text!r} names no two tensors", where="--state", hint=FORM, found=text, allowed=FORM)
        for kind, tensor, known in (("output", output, graph.outputs), ("input", name, graph.inputs)):
            if tensor not in known:
                used = " that anything reads" if kind == "input" else ""
                message = f"the model has no {kind} {tensor!r}{used}; it has {', '.join(known)}"
                raise UsageError(message, where="--state", found=tensor, allowed=", ".join(known))
        if name in states or output in states.values():
            raise UsageError(f"{text!r}: one of them has another --state", where="--state", hint="name each once")
        shapes = [graph.source_shapes.get(tensor, graph[tensor].shape) for tensor in (output, name)]
        if shapes[0] != shapes[1]:
            raise UsageError(
                f"{output!r} is {list(shapes[0])}, {name!r} is {list(shapes[1])}", where="--state", hint="one shape"
            )
        states[name] = output
    for name, output in graph.variables.items():
        if name in graph.inputs and output in graph.outputs and output not in states.values():
            states.setdefault(name, output)
    if states and len(states) == len(graph.inputs):
        raise UsageError("all inputs are states, so nothing is fed", where="--state", hint="leave one out")
    return states


def run(graph: Graph, texts: Sequence[str]) -> Graph:
    """graph: of integers, before the memory plan. All states start as 0."""
    taken = checked(graph, texts)
    apart = {output for name, output in taken.items() if quant_of(graph[name]).grid != quant_of(graph[output]).grid}
    is_result = not set(taken.values()) < set(graph.outputs)  # outputs that states take over are results, too
    for name, output in taken.items():
        if output in apart or (apart and is_result):
            graph, output = _requantized(graph, name, output, is_result)
        graph = replace(graph, states={**graph.states, name: State(output)})
    return graph


def _requantized(graph: Graph, name: str, output: str, is_result: bool) -> tuple[Graph, str]:  # case 2
    """Returns the graph with a new output that the state takes over, and its name. is_result: beside the old one."""
    fresh = f"{output}.kept"
    while fresh in graph.values:
        fresh += "_"
    values = {**graph.values, fresh: replace(graph[name], name=fresh)}
    nodes = requantized(values, fresh, output, fresh)
    outputs = (*(other for other in graph.outputs if is_result or other != output), fresh)
    return replace(graph, nodes=(*graph.nodes, *nodes), values=values, outputs=outputs), fresh
