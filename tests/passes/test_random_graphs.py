"""Random graphs through all float passes: the function stays, the stage's rules hold, the text reads back, it plans."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from random_graphs import Maker, StreamMaker
from test_passes import assert_same_function

from nmpconv.calib.observers import TensorStats
from nmpconv.graph import trace
from nmpconv.graph.text import parse, to_text
from nmpconv.graph.verify import _intact, _places, verify
from nmpconv.ir import Graph, Node
from nmpconv.ops.lookup import LookupParams
from nmpconv.passes.float import FLOAT
from nmpconv.passes.memory import plan_memory
from nmpconv.passes.quantize import offsets
from nmpconv.passes.rewrite import Editor

BLOCK = 20


def check(seed: int) -> None:
    before = Maker(seed).whole()
    if not before.outputs:
        return
    after = before
    for name, function in FLOAT:
        after = function(after)
        verify(after, "FLOAT", name)
    assert after.outputs == before.outputs
    assert_same_function(before, after, seed)
    text = to_text(after)
    again = parse(text, {name: value.data for name, value in after.values.items() if value.data is not None})
    assert again == after
    assert to_text(again) == text
    planned = plan_memory.run(after.with_values(*(replace(value, dtype="int8") for value in after.activations())))
    assert list(_places(planned)) == []
    assert list(_intact(planned)) == []


@pytest.mark.parametrize("block", range(4))
def test_random_graphs(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        check(seed)


def between_tables(graph: Graph) -> Graph:
    """With tables behind the inputs and before the outputs, so that few tensors are tied to those."""
    tanh, made = LookupParams("tanh"), {name: f"{name}.tanh" for name in (*graph.inputs, *graph.outputs)}
    first = [Node("lookup", made[name], (name,), (made[name],), tanh) for name in graph.inputs]
    last = [Node("lookup", made[n], (n,), (made[n],), tanh) for n in graph.outputs if n not in graph.inputs]
    renamed = {name: made[name] for name in graph.inputs}
    nodes = [replace(node, inputs=tuple(renamed.get(n, n) for n in node.inputs)) for node in graph.nodes]
    values = [replace(graph[name], name=new, clamp=None) for name, new in made.items()]
    outputs = tuple(made[name] for name in graph.outputs)
    return replace(graph.with_values(*values), nodes=(*first, *nodes, *last), outputs=outputs, source_shapes={})


def check_origins(seed: int, make: type[Maker] = Maker) -> tuple[int, int]:
    """Counts the activations that have an origin, and those that depart from their stream's: a random number for all
    that is free, and the function stays."""
    before = make(seed).whole()
    if not before.outputs:
        return 0, 0
    for _, function in FLOAT:
        before = function(before)
    before = between_tables(before)
    rng = np.random.default_rng(seed)
    ends = {value.name: (rng.choice((-1.0, 0.0)), 1.0) for value in before.activations()}
    stats = {name: TensorStats.of(np.linspace(*pair, 64, dtype=np.float32)[:, None]) for name, pair in ends.items()}
    rows = offsets.free(before, stats, departing=make is StreamMaker)
    numbers = {number: rng.normal(0, 2) for row in rows.values() for number in row}
    chosen = {name: float(sum(share * numbers[n] for n, share in row.items())) for name, row in rows.items()}
    after = offsets.store(before, chosen)
    verify(after, "FLOAT", "origins")
    assert_same_function(before, after, seed)
    departed = sum(offsets._departure(name) in row for name, row in rows.items())
    return sum(value.origin != 0 for value in after.activations()), departed


@pytest.mark.parametrize("block", range(3))
def test_random_graphs_with_origins(block: int) -> None:
    assert sum(check_origins(seed)[0] for seed in range(block * BLOCK, (block + 1) * BLOCK)) > BLOCK


@pytest.mark.slow
@pytest.mark.parametrize("block", range(2))
def test_random_streams_whose_tensors_depart(block: int) -> None:
    counts = [check_origins(seed, StreamMaker) for seed in range(block * BLOCK, (block + 1) * BLOCK)]
    assert sum(departed for _, departed in counts) > BLOCK // 2


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("block", range(3, 18))
def test_many_random_graphs_with_origins(block: int) -> None:
    assert sum(check_origins(seed)[0] for seed in range(block * BLOCK, (block + 1) * BLOCK)) > BLOCK


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("block", range(4, 50))
def test_many_random_graphs(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        check(seed)


@pytest.mark.parametrize("seed", range(20))
def test_an_order_is_that_of_places_where_producers_come_first(seed: int) -> None:
    """The short way, for nodes whose places are an order already, gives what the long way gives."""
    graph = Maker(seed).whole()
    assert Editor(graph).order() == Editor(graph)._sorted() == list(graph.nodes)
    mixed = list(graph.nodes)
    random.Random(seed).shuffle(mixed)
    editor = Editor(replace(graph, nodes=tuple(mixed)))
    found, known = editor.order(), {*graph.inputs, *(name for name, v in graph.values.items() if v.is_const)}
    assert found == editor._sorted()
    for node in found:
        assert known.issuperset(node.inputs)
        known.update(node.outputs)


def test_what_nothing_was_to_be_done_on_is_the_same_graph_and_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = next(made for made in (Maker(seed).whole() for seed in range(20)) if made.outputs)
    graph = Editor(graph).finish()
    assert Editor(graph).finish() is graph
    editor = Editor(graph)
    node = graph.nodes[-1]
    editor.put(replace(graph[node.outputs[0]], clamp=(-3.0, 3.0)))
    changed = editor.finish()
    assert changed is not graph
    checked: list[tuple[Graph, str]] = []
    monkeypatch.setattr(trace, "verify", lambda g, stage, name: checked.append((g, stage)))
    check_pass = trace.Trace()
    for g, stage in ((graph, "FLOAT"), (graph, "FLOAT"), (graph, "RANGED"), (changed, "RANGED"), (changed, "RANGED")):
        check_pass(g, stage, "pass")
    assert checked == [(graph, "FLOAT"), (graph, "RANGED"), (changed, "RANGED")]
