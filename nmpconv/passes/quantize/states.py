"""Inputs that hold what an output was in the call before: the hidden vectors of a recurrent model.

1. Input and output are on one grid: the input takes the output over as it is.
2. They are on two: a requantize makes what the input takes over. The output is no result of a call any more, unless
   there is no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nmpconv.errors import UsageError
from nmpconv.ir import Graph, Node, State
from nmpconv.passes.quantize.legalize import requantized

FORM = "OUTPUT=INPUT"


def checked(graph: Graph, texts: Sequence[str]) -> dict[str, str]:
    """What each input that is a state takes over. graph: of any stage, with the model's inputs and outputs; texts:
    'output=input' each.

    Raises UsageError for what is none of them, for one that comes twice, and for shapes that differ.
    """
    found: dict[str, str] = {}
    for text in texts:
        output, equals, name = (part.strip() for part in text.rpartition("="))
        if not equals:
            raise UsageError(f"{text!r} names no two tensors", where="--state", hint=FORM, found=text, allowed=FORM)
        for kind, one, known in (("output", output, graph.outputs), ("input", name, graph.inputs)):
            if one not in known:
                what = f"the model has no {kind} {one!r}; it has {', '.join(known)}"
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
    for name, output in checked(graph, texts).items():
        graph = _taken_over(graph, name, output)
    return graph


def _taken_over(graph: Graph, name: str, output: str) -> Graph:
    state, made = graph[name], graph[output]
    assert state.quant is not None and made.quant is not None
    outputs = list(graph.outputs)
    nodes: list[Node] = []
    if (state.quant.bits, state.quant.exponents) != (made.quant.bits, made.quant.exponents):
        kept = f"{output}.kept"
        while kept in graph.values:
            kept += "_"
        graph, nodes = requantized(graph.with_values(replace(state, name=kept)), kept, output, kept)
        if len(outputs) > 1:  # else a call tells the model's only result, too
            outputs.remove(output)
        outputs.append(kept)
        output = kept
    states = {**graph.states, name: State(output)}
    return replace(graph, nodes=(*graph.nodes, *nodes), outputs=tuple(outputs), states=states)
