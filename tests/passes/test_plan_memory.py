"""The memory plan: no more than what is alive, in place where that is safe, the same every time."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from nmpconv.ir import Graph, Node, Value
from nmpconv.ops import OPS
from nmpconv.passes.plan_memory import lower_bound, run
from nmpconv.verify import _intact, _places


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


CASES = [
    ("a chain needs its two largest neighbours", net("c", "pad a = x", "pad b = a", "pad c = b", b=100), 64 + 112, 176),
    ("in place", net("b", "requantize a = x", "lookup b = a"), 64, 64),
    ("not in place: a later reader", net("c", "requantize a = x", "pad b = a", "add c = b x"), 192, 192),
    ("not in place: an output", net("a b", "pad a = x", "requantize b = a"), 128, 128),
    ("not in place: other size", net("a", "requantize a = x", a=32), 96, 96),
    ("in place on the first operand only", net("b", "pad a = x", "add b = x a"), 128, 128),
    ("not on the second operand", net("c", "pad a = x", "pad b = x", "add c = a b", "add d = c b"), 192, 192),
    ("both operands are the same", net("a", "add a = x x"), 64, 64),
    ("an unused result still needs room", net("b", "pad a = x", "pad b = x", a=320), 384, 384),
]


@pytest.mark.parametrize(("graph", "bound", "best"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_small(graph: Graph, bound: int, best: int) -> None:
    assert lower_bound(graph) == bound
    assert peak(graph) == best


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


def test_width_counts() -> None:
    graph = net("a", "pad a = x")
    wide = graph.with_values(replace(graph["a"], dtype="int16"))
    assert lower_bound(wide) == 64 + 128


def rows(outputs: str, *nodes: str, **heights: int) -> Graph:
    """As net(), of [1, H, 4, 4] tensors; concats are along H."""
    graph = net(outputs, *nodes)
    values = {name: replace(value, shape=(1, heights.get(name, 4), 4, 4)) for name, value in graph.values.items()}
    params = OPS["concat"].Params(axis=1)
    made = tuple(replace(node, params=params) if node.op == "concat" else node for node in graph.nodes)
    return replace(graph, values=values, nodes=made)


PARTS = [
    ("parts lie in the whole", rows("y", "pad a = x", "pad b = x", "concat y = a b", y=8), {"a": 0, "b": 64}, 192),
    ("what is read later is copied", rows("b y", "pad a = x", "pad b = x", "concat y = a b", y=8), {"a": 0}, 256),
    ("what is there twice is copied", rows("y", "pad a = x", "concat y = a a", y=8), {}, 192),
    ("an odd height", rows("y", "pad a = x", "pad b = x", "concat y = a b", a=1, y=5), {"a": 0, "b": 16}, 144),
    (
        "a chain in place and a whole in a whole",
        rows(
            "z",
            "pad a = x",
            "requantize b = a",
            "pad c = x",
            "concat y = b c",
            "pad d = x",
            "concat z = d y",
            y=8,
            z=12,
        ),
        {"d": 0, "a": 64, "b": 64, "c": 128, "y": 64},
        256,
    ),
]


@pytest.mark.parametrize(("graph", "parts", "best"), [case[1:] for case in PARTS], ids=[case[0] for case in PARTS])
def test_parts_of_a_concat(graph: Graph, parts: dict[str, int], best: int) -> None:
    assert peak(graph) == best
    planned = run(graph)
    whole = planned[graph.outputs[-1]].offset
    for name, at in parts.items():
        assert planned[name].offset == (whole or 0) + at, name
