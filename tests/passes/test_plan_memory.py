"""The memory plan: no more than what is alive, in place where that is safe, the same every time."""

from __future__ import annotations

import random
from dataclasses import replace

import nets
import pytest

from nmpconv.graph.text import parse
from nmpconv.graph.verify import _intact, _places
from nmpconv.ir import Graph
from nmpconv.ops import OPS
from nmpconv.passes.memory import knapsack, plan_memory, wider_tensors
from nmpconv.passes.memory.plan_memory import lower_bound, run


def net(outputs: str, *nodes: str, **sizes: int) -> Graph:
    """nodes: 'op out = in in'. sizes: bytes of the values; 64 for the others."""
    text = f"graph net\ninput x : int8[{sizes.get('x', 64)}]\n"
    for number, line in enumerate(nodes):
        made, _, inputs = line.partition("=")
        op, out = made.split()
        text += f"n{number} = {op}({','.join(inputs.split())})\n  {out} : int8[{sizes.get(out, 64)}]\n"
    return parse(text + "".join(f"output {name}\n" for name in outputs.split()))


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
    bounds = wider_tensors.Bounds(graph)
    for count in (0, 1, 1, 1, 3):
        wide = graph.with_values(*(replace(graph[name], dtype="int16") for name in dice.sample(names, count)))
        changed = {name for name in graph.values if wide[name] != graph[name]}
        nodes = [i for i, node in enumerate(graph.nodes) if changed.intersection(node.inputs + node.outputs)]
        assert bounds.fits(wide, nodes, lower_bound(wide))
        assert not bounds.fits(wide, nodes, lower_bound(wide) - 1)


def convs(*outputs: str, x: tuple[int, ...], kernel: int = 3, **channels: int) -> Graph:
    """A chain of convolutions that keep the plane, and adds of what is named 'a+b'."""
    made = nets.Net(grid=nets.grid(8, 0))
    last = made.input("x", *x)
    for name, count in channels.items():
        last = made.conv(last, name, count, kernel)
    for sum_ in outputs[1:]:
        made.op("add", sum_.replace("+", " "), sum_)
    return made.graph(outputs[-1])


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
    # Two bands of each of four convolutions: four calls more, 24000 MACs of 294912.
    assert plan_memory.peak(run(CHAIN, share=0.0813)) == 2048
    assert plan_memory.peak(run(CHAIN, share=0.0815)) == 1600


def test_a_result_inside_of_a_concatenation_over_its_input() -> None:
    """The result begins 256 bytes behind the beginning of what it is placed in."""
    made = nets.Net(grid=nets.grid(8, 0))
    made.input("x", 1, 16, 8, 8)
    made.input("z", 1, 4, 8, 16)
    made.conv("x", "a", 8, 3)
    made.op("reshape", "z", "t", shape=(1, 8, 8, 8))
    made.op("max_pool", "t", "b", kernel_h=2, stride_h=2)
    made.op("concat", "b a", "y", axis=1)
    graph = made.graph("y")
    assert peak(graph) == 512 + 1024 + 1024
    planned = run(graph, 0)
    assert list(_places(planned)) == [] and list(_intact(planned)) == []
    assert plan_memory.peak(planned) == lower_bound(graph, bands=64) < 512 + 1024 + 256 + 256
    assert planned["a"].offset == planned["y"].offset + 256


def test_results_that_had_better_have_places_early() -> None:
    """A pointwise convolution from the one before it on, a concatenation of channels from its convolutions on."""
    made = nets.Net(grid=nets.grid(8, 0))
    made.input("x", 1, 4, 4, 2)
    made.conv("x", "a", 2, 3)
    made.conv("a", "b", 2)
    made.op("requantize", "b", "r")
    made.conv("r", "c", 2)
    made.conv("c", "d", 2, 3)
    made.conv("c", "e", 2)
    made.op("concat", "d e", "y", axis=3)
    made.op("concat", "y y", "z", axis=2)
    assert list(plan_memory._early(made.graph("z"))) == [("b", 0), ("y", 4)]


def test_a_place_that_just_fits_is_free_early() -> None:
    """A pointwise convolution does not write over the input of the one before it, with as little RAM."""
    made = nets.Net(grid=nets.grid(8, 0))
    made.input("x", 1, 4, 4, 1)
    made.conv("x", "a", 1, 3)
    made.conv("a", "b", 4)
    made.conv("b", "c", 2, 3)
    graph = made.graph("c")
    assert peak(graph) == 64 + 32
    plan = run(graph)
    assert plan["b"].offset + 64 <= plan["x"].offset  # type: ignore[operator]


def test_a_first_input_may_be_left_out() -> None:
    """The fast memory has room for one of two."""
    items = [knapsack.Item(10, -1, 1, worth=1), knapsack.Item(8, -1, 1, worth=5)]
    assert knapsack.choose(items, [8, 8, 8]) == {1}
    assert knapsack.most(items, [10, 10, 10]) == 5
