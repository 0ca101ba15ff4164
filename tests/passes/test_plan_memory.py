"""The memory plan: no more than what is alive, in place where that is safe, the same every time."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from nmpconv.graph.verify import _intact, _places
from nmpconv.ir import Graph, Node, Value
from nmpconv.ops import OPS
from nmpconv.passes.memory import plan_memory
from nmpconv.passes.memory.plan_memory import lower_bound, run


def net(outputs: str, *nodes: str, **sizes: int) -> Graph:
    """nodes: 'op out = in in'. sizes: bytes of the values; 64 for the others."""
    made, names = [], ["x"]
    for text in nodes:
        left, _, right = text.partition("=")
        op, out = left.split()
        names.append(out)
        made.append(Node(op, f"{op}_{out}", tuple(right.split()), (out,), OPS[op].Params()))
    values = {name: Value(name, (sizes.get(name, 64),), "int8") for name in names}
    return Graph("net", ("x",), tuple(outputs.split()), tuple(made), values)


def peak(graph: Graph) -> int:
    planned = run(graph)
    assert list(_places(planned)) == []
    assert list(_intact(planned)) == []
    assert planned == run(graph)
    return max((value.offset or 0) + value.nbytes for value in planned.activations())


@pytest.mark.parametrize("seed", range(12))
def test_random(seed: int) -> None:
    """Branches of many sizes: at most a tenth above what is alive at once."""
    dice = random.Random(seed)
    names, nodes, sizes = ["x"], [], {}
    for i in range(40):
        x, y = (dice.choice(names[-6:]) for _ in range(2))
        op = dice.choice(["pad", "add", "requantize"])
        nodes.append(f"{op} v{i} = {x} {y}" if op == "add" else f"{op} v{i} = {x}")
        sizes[f"v{i}"] = dice.choice([16, 48, 64, 96, 160, 1008])
        names.append(f"v{i}")
    graph = net("v39", *nodes, **sizes)
    assert lower_bound(graph) <= peak(graph) <= 1.1 * lower_bound(graph)


def convs(*outputs: str, x: tuple[int, ...], kernel: int = 3, **channels: int) -> Graph:
    """A chain of convolutions that keep the plane, and adds of what is named 'a+b'."""
    pad = kernel // 2
    params = OPS["conv2d"].Params(pad_top=pad, pad_left=pad, pad_bottom=pad, pad_right=pad)
    values, nodes, last = {"x": Value("x", x, "int8")}, [], "x"
    for name, count in channels.items():
        weights = Value(f"{name}.w", (count, kernel, kernel, values[last].shape[3]), "int8", data=np.zeros(1, np.int8))
        bias = Value(f"{name}.b", (count,), "int8", data=np.zeros(1, np.int8))
        values |= {v.name: v for v in (weights, bias, Value(name, (*x[:3], count), "int8"))}
        nodes.append(Node("conv2d", f"conv_{name}", (last, weights.name, bias.name), (name,), params))
        last = name
    for text in outputs[1:]:
        values[text] = replace(values[text.split("+")[0]], name=text)
        nodes.append(Node("add", text, tuple(text.split("+")), (text,), OPS["add"].Params()))
    return Graph("net", ("x",), (outputs[-1],), tuple(nodes), values)


CHAIN = convs("d", x=(1, 16, 8, 8), a=8, b=8, c=8, d=8)
RESIDUAL = convs("c", "a+c", x=(1, 16, 8, 8), a=8, b=8, c=8)
WIDER = convs("b", x=(1, 16, 16, 8), kernel=1, a=16, b=8)
OVERLAPS = [
    ("up and down in a chain, two rows", CHAIN, 2048, 1024 + 128),
    ("beside what is read later", RESIDUAL, 3072, 2048 + 128),
    ("pixels, twice as wide", WIDER, 6144, 4096 + 16),
]


@pytest.mark.parametrize(("graph", "apart", "least"), [c[1:] for c in OVERLAPS], ids=[c[0] for c in OVERLAPS])
def test_results_over_their_own_inputs(graph: Graph, apart: int, least: int) -> None:
    assert peak(graph) == lower_bound(graph) == apart
    for room in (apart, apart - 16, (apart + least) // 2, least, 0):
        planned = run(graph, room)
        assert list(_places(planned)) == [] and list(_intact(planned)) == []
        assert least <= plan_memory.peak(planned) <= max(room, least)
    assert lower_bound(graph, bands=64) == least


def test_bands_are_few_where_there_is_room() -> None:
    def bands(room: int) -> list[int | None]:
        planned = run(CHAIN, room)
        found = []
        for node in planned.nodes:
            x, y = planned[node.inputs[0]], planned[node.outputs[0]]
            found.append(OPS["conv2d"].lines(node.params, planned.ins(node), y).bands(y.offset - x.offset))
        return found

    assert bands(2048) == [1, 1, 1, 1]
    assert bands(1664) == [2, 2, 2, 2]
    assert bands(0) == [15, 15, 15, 15]


def test_bands_cost_no_more_than_their_share() -> None:
    heavy = convs("c", "a+c", x=(1, 32, 32, 64), a=64, b=64, c=64)
    assert plan_memory.peak(run(heavy)) == 3 * 65536
    assert plan_memory.peak(run(heavy, share=0.01)) == 2 * 65536 + 4096
    assert run(CHAIN, share=0.01) == run(CHAIN)
