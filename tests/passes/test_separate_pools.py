"""A max pool by columns and then by rows: the same integers, where the arena does not grow."""

from __future__ import annotations

import numpy as np
import pytest
from nets import Net, grid

from nmpconv.conversion import ram_plan
from nmpconv.file.writer import to_bytes
from nmpconv.graph.reference import run as run_reference
from nmpconv.graph.trace import Trace
from nmpconv.graph.verify import verify
from nmpconv.ir import Graph
from nmpconv.ops import OPS
from nmpconv.passes.memory import plan_memory, separate_pools
from nmpconv.runtime import interpreter, targets

SAME_5 = {"kernel_h": 5, "kernel_w": 5, "pad_top": 2, "pad_left": 2, "pad_bottom": 2, "pad_right": 2}
POOLS = {
    "same": SAME_5,
    "strides": SAME_5 | {"kernel_h": 9, "stride_h": 3, "stride_w": 2, "pad_top": 5},
    "dilated": {"kernel_h": 5, "kernel_w": 6, "dilation_h": 3, "dilation_w": 2, "pad_top": 3, "pad_right": 4},
    "uneven": {"kernel_h": 13, "kernel_w": 5, "pad_top": 12, "pad_bottom": 3, "pad_left": 1},
}


def pooled(bits: int, **params: int) -> Graph:
    net = Net(5, grid(bits, -4))
    net.input("x", 1, 14, 15, 16)
    return net.graph(net.op("max_pool", "x", "s", **params))


def readings(graph: Graph) -> int:
    pools = [node for node in graph.nodes if node.op == "max_pool"]
    return sum(OPS[n.op].work(n.params, graph.ins(n), *graph.outs(n)) for n in pools)


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("params", POOLS.values(), ids=POOLS)
def test_the_same_integers(params: dict[str, int], bits: int) -> None:
    graph = pooled(bits, **params)
    apart = separate_pools.run(graph)
    verify(apart, "INT", "separate_pools")
    assert 2 * readings(apart) <= readings(graph)
    feed = {"x": np.random.default_rng(1).integers(-128, 128, graph["x"].shape).astype(graph["x"].dtype)}
    wanted, found = (run_reference(one, feed) for one in (graph, apart))
    np.testing.assert_array_equal(found["s"], wanted["s"])
    file = to_bytes(plan_memory.run(apart), {})
    np.testing.assert_array_equal(interpreter.load(file).run(feed)[0], wanted["s"])


def test_small_pools_stay() -> None:
    around = dict.fromkeys(("pad_top", "pad_left", "pad_bottom", "pad_right"), 1)
    graph = pooled(8, kernel_h=3, kernel_w=3, **around)
    assert separate_pools.run(graph) is graph


def beside(channels: int) -> Graph:
    """A pool, its input, and a convolution of so many channels before."""
    net = Net(5, grid(8, -4))
    net.input("x", 1, 8, 8, 16)
    net.conv("x", "a", channels, 3)
    net.conv("a", "b", 16, 3)
    net.op("max_pool", "b", "y", **SAME_5)
    return net.graph(net.op("add", "b y", "z"))


@pytest.mark.parametrize(("channels", "separated"), [(40, True), (16, False)])
def test_only_where_the_arena_does_not_grow(channels: int, separated: bool) -> None:
    """A convolution of more channels needs more than input, output and what lies between."""
    graph = beside(channels)
    plain = plan_memory.run(graph, share=ram_plan.EXTRA_WORK)
    board = "cortex-m4"
    made = ram_plan.planned(graph, None, board, Trace())
    assert (len(made.nodes) > len(graph.nodes)) == separated
    assert plan_memory.peak(made) == plan_memory.peak(plain)
    needed = targets.needs(to_bytes(plain, {}), board).arena
    assert targets.needs(to_bytes(made, {}), board).arena == needed
    assert len(ram_plan.planned(graph, needed, board, Trace()).nodes) == len(made.nodes)
