"""The work of a conversion grows as the model does: calls of functions are counted, never seconds."""

from __future__ import annotations

import cProfile
import pstats
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Semaphore
from types import FrameType
from typing import Any

import numpy as np
import onnx
import pytest
from nets import Net, grid
from onnx import TensorProto, helper, numpy_helper

import nmpconv
from nmpconv.base import thread_pool
from nmpconv.base.memo import Recent
from nmpconv.calib.noise_budget import _largest
from nmpconv.calib.observers import TensorStats
from nmpconv.conversion import decision
from nmpconv.ir import Graph, Node
from nmpconv.passes.memory import placement, plan_memory
from nmpconv.passes.memory.placement import Buffer, Overlap
from nmpconv.passes.quantize import bias, offsets, rounding
from nmpconv.passes.quantize.shared_grids import grid_groups

Made = tuple[list[onnx.NodeProto], list[str]]
PACKAGE = Path(nmpconv.__file__).parent  # numpy's folder has our name, too, in an environment inside a clone
FEW, MANY = 200, 800
# Files that look at pairs, and of what; their calls grow with the square, which is open.
PAIRS = {"placement.py": "buffers alive together, up to a bound", "requantize_concat.py": "inputs of one Concat"}


def conv(x: str, i: int, weights: dict[str, np.ndarray]) -> onnx.NodeProto:
    draw = np.random.default_rng(i)
    weights[f"w{i}"] = draw.standard_normal((4, 4, 1, 1)).astype(np.float32)
    return helper.make_node("Conv", [x, f"w{i}"], [f"c{i}"], f"conv{i}")


def chain(nodes: int, weights: dict[str, np.ndarray]) -> Made:
    """Conv, Tanh, one behind the other."""
    found, x = [], "x"
    for i in range(nodes // 2):
        found += [conv(x, i, weights), helper.make_node("Tanh", [f"c{i}"], [f"t{i}"], f"tanh{i}")]
        x = f"t{i}"
    return found, [x]


def outputs(nodes: int, weights: dict[str, np.ndarray]) -> Made:
    """The same; every Tanh is an output."""
    found, _ = chain(nodes, weights)
    return found, [node.output[0] for node in found if node.op_type == "Tanh"]


def concat(nodes: int, weights: dict[str, np.ndarray]) -> Made:
    """One input, many Convs, one Concat."""
    found = [conv("x", i, weights) for i in range(nodes - 1)]
    return [*found, helper.make_node("Concat", [node.output[0] for node in found], ["y"], "concat", axis=1)], ["y"]


def unrolled(nodes: int, weights: dict[str, np.ndarray]) -> Made:
    """A recurrent net: h = tanh(conv(x) + conv(h)) of slices of one input, and all h together."""
    steps = nodes // 5
    weights["w"] = np.full((4, 4, 1, 1), 0.3, np.float32)
    found = [helper.make_node("Split", ["x"], [f"x{t}" for t in range(steps)], "split", axis=2)]
    h, every = "x0", []
    for t in range(steps):
        found += [
            conv(f"x{t}", t, weights),
            helper.make_node("Conv", [h, "w"], [f"r{t}"], f"r{t}"),
            helper.make_node("Add", [f"c{t}", f"r{t}"], [f"s{t}"], f"s{t}"),
            helper.make_node("Tanh", [f"s{t}"], [f"h{t}"], f"h{t}"),
        ]
        h = f"h{t}"
        every.append(h)
    return [*found, helper.make_node("Concat", every, ["y"], "concat", axis=2)], ["y"]


def calls(
    net: Callable[[int, dict[str, np.ndarray]], Made], nodes: int, folder: Path, count: int = 2, **options: Any
) -> pstats.Stats:
    """Calls of functions in a conversion on so many samples, in this thread."""
    weights: dict[str, np.ndarray] = {}
    made, ends = net(nodes, weights)
    shape = (1, 4, nodes // 5 if net is unrolled else 2, 1)
    graph = helper.make_graph(
        made,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ends],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    path = folder / f"{nodes}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    samples = np.random.default_rng(0).standard_normal((count, *shape[1:])).astype(np.float32)
    profile = cProfile.Profile()
    profile.runcall(nmpconv.convert, path, data=samples, **options)
    return pstats.Stats(profile)


def steep(few: pstats.Stats, many: pstats.Stats) -> dict[object, tuple[int, int]]:
    """Functions of ours with far more calls than MANY / FEW times as many."""
    before = {function: row[1] for function, row in few.stats.items()}  # type: ignore[attr-defined]
    return {
        function: (before.get(function, 0), row[1])
        for function, row in many.stats.items()  # type: ignore[attr-defined]
        if PACKAGE in Path(function[0]).parents
        and Path(function[0]).name not in PAIRS
        and row[1] > max(2 * MANY, 1.5 * MANY / FEW * before.get(function, 1))
    }


def steps(call: Callable[[], object], file: str) -> int:
    """Lines of a file that a call executes: loops count, which calls of functions do not show."""
    count = 0

    def line(frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        nonlocal count
        if Path(frame.f_code.co_filename).name != file:
            return None
        count += event == "line"
        return line

    before = sys.gettrace()
    sys.settrace(line)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def test_shared_grids_grow_as_the_slices_do() -> None:
    """Slices of one input, as of a net over time that was unrolled."""

    def sliced(count: int) -> Graph:
        net = Net()
        net.input("x", 1, count, 2, 4)
        for i in range(count):
            net.op("slice", "x", f"s{i}", starts=(0, i, 0, 0), steps=(1, 1, 1, 1), sizes=(1, 1, 2, 4))
        return net.graph(*(f"s{i}" for i in range(count)))

    few, many = (sliced(count) for count in (FEW, MANY))
    assert grid_groups(many) == [["x", *(f"s{i}" for i in range(MANY))]]
    lines = [steps(partial(grid_groups, graph), "shared_grids.py") for graph in (few, many)]
    assert lines[1] < 1.2 * MANY / FEW * lines[0]


def test_factors_are_found_in_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a layer are looked at together; large ones one by one, which gives the same factor."""
    wanted = np.random.default_rng(0).normal(7, 1, (500, 8)).astype(np.float32)
    got = 0.93 * wanted.astype(np.float64)
    got[::2] += 0.5
    assert steps(partial(bias.missing_factor, got, wanted), "bias.py") < 50
    factor = bias.missing_factor(got, wanted)
    monkeypatch.setattr(bias, "ELEMENTS", 8)
    assert factor == pytest.approx(bias.missing_factor(got, wanted), rel=1e-12)
    assert factor > 1.07


def planned(nodes: int) -> pstats.Stats:
    """Calls of functions while the memory of a chain of convolutions is planned."""
    net = Net(grid=grid(8, 0))
    last = net.input("x", 1, 2, 2, 4)
    for i in range(nodes):
        last = net.conv(last, f"c{i}", 4, 1)
    graph = net.graph(last)
    profile = cProfile.Profile()
    profile.runcall(plan_memory.run, graph)
    return pstats.Stats(profile)


def test_a_plan_grows_as_the_nodes_do() -> None:
    few, many = planned(FEW), planned(MANY)
    assert many.total_calls < 1.2 * MANY / FEW * few.total_calls  # type: ignore[attr-defined]
    assert steep(few, many) == {}


def shifted(nodes: int) -> tuple[Graph, pstats.Stats]:
    """A chain of convolutions with activations that got offsets, and calls of functions meanwhile."""
    net = Net()
    last = net.input("x", 1, 2, 2, 4)
    for i in range(nodes):
        last = net.conv(last, f"c{i}", 4, 1, clamp=(0.0, np.inf))
    graph = net.graph(last)
    names = [value.name for value in graph.activations()]
    stats = TensorStats.of(np.linspace(0, 8, 100, dtype=np.float32)[:, np.newaxis])
    profile = cProfile.Profile()
    graph, *_ = profile.runcall(offsets.run, graph, dict.fromkeys(names, stats), dict.fromkeys(names, 8))
    return graph, pstats.Stats(profile)


def test_offsets_grow_as_the_nodes_do() -> None:
    shifted(20)  # the search, whose result is known from then on
    (_, few), (graph, many) = shifted(FEW), shifted(MANY)
    assert sum(value.origin != 0 for value in graph.activations()) == MANY - 1
    assert many.total_calls < 1.2 * MANY / FEW * few.total_calls  # type: ignore[attr-defined]
    assert steep(few, many) == {}


def streamed(nodes: int) -> pstats.Stats:
    """Calls of functions while a stream with as many residual sums gets offsets."""
    net = Net()
    last = net.input("x", 1, 2, 2, 4)
    for i in range(nodes):
        last = net.op("add", f"{last} {net.conv(last, f'c{i}', 4, 1)}", f"s{i}")
    graph = net.graph(last)
    stats = TensorStats.of(np.linspace(-8, 8, 100, dtype=np.float32)[:, np.newaxis])
    profile = cProfile.Profile()
    free = profile.runcall(offsets.free, graph, {value.name: stats for value in graph.activations()})
    assert free == {}
    return pstats.Stats(profile)


def test_offsets_of_sums_grow_as_the_sums_do() -> None:
    few, many = streamed(FEW // 4), streamed(MANY // 4)
    assert steep(few, many) == {}


def test_constants_are_named_without_a_walk_each() -> None:
    """Reads a graph whose constants have the names that new ones would get."""
    walks = list[int]()

    class Nodes(tuple[Node, ...]):
        def __iter__(self) -> Iterator[Node]:
            walks.append(1)
            return super().__iter__()

    graph, _ = shifted(20)
    origins = {value.name: value.origin for value in graph.activations()}
    moved = offsets.store(replace(graph, nodes=Nodes(graph.nodes)), origins)
    assert moved.values.keys() == graph.values.keys()
    assert len(walks) < 10


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize(("net", "part"), [(chain, 1), (outputs, 1), (concat, 2), (unrolled, 1)])
def test_calls_grow_as_the_nodes_do(
    net: Callable[[int, dict[str, np.ndarray]], Made], part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_pool, "_idle", Semaphore(0))  # so that all calls are counted
    calls(net, 20, tmp_path)  # imports
    few, many = (calls(net, nodes // part, tmp_path) for nodes in (FEW, MANY))
    assert many.total_calls < 1.25 * MANY / FEW * few.total_calls  # type: ignore[attr-defined]
    assert steep(few, many) == {}


def buffers_of(dice: random.Random) -> list[Buffer]:
    buffers = []
    for _ in range(dice.randrange(1, 60)):
        first = dice.randrange(-1, 30)
        buffers.append(Buffer({}, 16 * dice.randrange(1, 9), first, dice.randrange(first, 32)))
    return buffers


@pytest.mark.parametrize("seed", range(20))
def test_moves_of_the_search_place_all_as_if_anew(seed: int) -> None:
    """Buffers that a move changes are those that another place in the order changes."""
    dice = random.Random(seed)
    buffers = buffers_of(dice)
    links = [
        Overlap(x, y, -16 * dice.randrange(1, 5), 16 * dice.randrange(1, 5))
        for x, a in enumerate(buffers)
        for y, b in enumerate(buffers)
        if x != y and a.last == b.first and a.first < b.first
    ]
    meets = placement._meets(buffers, links)
    order = sorted(range(len(buffers)), key=lambda i: buffers[i].first)
    peak, offsets = placement._in_order(buffers, meets, order)
    found = placement._searched(buffers, meets, (peak, [*offsets], [*order]), 0, 200)
    moves = random.Random(0)
    for _ in range(200):
        highest = max(order, key=lambda i: offsets[i] + buffers[i].bytes)
        moved = highest if moves.random() < 0.5 else moves.choice(order)
        candidate = [i for i in order if i != moved]
        candidate.insert(moves.randrange(len(order)), moved)
        new_peak, new_offsets = placement._in_order(buffers, meets, candidate)
        if new_peak <= peak:
            peak, offsets, order = new_peak, new_offsets, candidate
    assert found == offsets


@pytest.mark.parametrize("seed", range(20))
def test_buffers_in_the_order_of_time(seed: int) -> None:
    """The lowest gap is the lowest offset that is free for all of a buffer's life."""
    dice = random.Random(seed)
    buffers = buffers_of(dice)
    meets = placement._meets(buffers, ())
    order = sorted(range(len(buffers)), key=lambda i: (buffers[i].first, -buffers[i].bytes))
    assert placement._in_time(buffers) == placement._in_order(buffers, meets, order)[1]
    assert placement._pairs(buffers) == sum(map(len, meets)) / 2
    alive = [sum(b.bytes for b in buffers if b.first <= step <= b.last) for step in range(33)]
    assert placement.alive(buffers, 33) == alive


def test_many_outputs_are_placed_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "PAIRS_MOST", 50)
    buffers = [Buffer({}, 16 + 16 * (i % 3), i, 40) for i in range(40)]
    assert max(placement.place(buffers, (), 0)) + 16 == placement.bound(buffers, ())


def test_the_largest_shares_are_found_first() -> None:
    names = [f"t{i}" for i in range(1000)]
    loud = {"t17": 0.5, "t600": 0.3, "t601": 0.1}
    found = _largest(lambda *some: sum(loud.get(name, 1e-5) for name in some), names, 60)
    assert list(found)[:3] == list(loud) and all(found[name] == loud[name] for name in loud)
    assert len(found) < 10


def test_no_pass_looks_for_small_shares() -> None:
    loud, asked = {"t17": 0.5, "t600": 0.3}, list[int]()

    def share(*some: str) -> float:
        asked.append(len(some))
        return sum(loud.get(name, 1e-5) for name in some)

    assert list(_largest(share, [f"t{i}" for i in range(1000)], 1000, 0.1))[:2] == list(loud)
    assert len(asked) < 45
    asked.clear()
    assert not _largest(lambda *some: asked.append(len(some)) or 1e-5 * len(some), list("abcdefgh"), 1000, 0.1)
    assert len(asked) == 2


@pytest.mark.slow
def test_candidates_share_plans_and_exports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recipes compete with one memory plan, and a model that was run is not exported again to be compared."""
    monkeypatch.setattr(thread_pool, "_idle", Semaphore(0))
    placement._placed.cache_clear()
    counts = {
        Path(file).name + ":" + name: row[0]
        for (file, _, name), row in calls(unrolled, 20, tmp_path, 6).stats.items()  # type: ignore[attr-defined]
    }
    recipes = counts["validation.py:_score"]
    assert recipes > 3
    assert counts["plan_memory.py:run"] > recipes
    assert counts["placement.py:_meets"] <= 12  # half for what widths cost on boards, others by zero points
    assert counts["parity.py:_model"] == 1  # the user's model
    assert counts["exponents.py:provisional"] <= 5  # not for each grid that could be wide
    assert counts["verify.py:verify"] <= 40  # what only competes is not verified


@pytest.mark.slow
def test_a_large_net_is_prepared_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its recipes share grids; the verdict has its own."""
    monkeypatch.setattr(thread_pool, "_idle", Semaphore(0))
    monkeypatch.setattr(offsets, "pay", lambda *_: True)
    nodes, counts = 40, list[dict[str, int]]()
    for most in (1, 4):
        monkeypatch.setattr(decision, "COMPETING_NODES", most * nodes)
        rows = calls(chain, nodes, tmp_path, 6, widths="strict").stats.items()  # type: ignore[attr-defined]
        counts.append({Path(file).name + ":" + name: row[0] for (file, _, name), row in rows})
    large, small = counts
    assert (large["quantizer.py:_ranged"], large["rounding.py:run"]) == (2, 4)
    assert small["quantizer.py:_ranged"] >= 3
    assert large["flatbuffer.py:pack"] == 4  # of two recipes, of the verdict's graph, and of the result
    assert large["quantizer.py:_guard"] == 1


@pytest.mark.slow
def test_small_layers_and_one_session_of_switches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers of a few products start no threads; what is promoted and the report measure noise in one session."""
    threads, each = list[int](), rounding.each
    monkeypatch.setattr(rounding, "each", lambda make, items, most: threads.append(most) or each(make, items, most))
    rows = calls(chain, 20, tmp_path, 6).stats.items()  # type: ignore[attr-defined]
    assert {*threads} == {1}
    names = [(Path(file).name, name, row[0]) for (file, _, name), row in rows]
    assert [count for *name, count in names if name == ["fake_quantization.py", "__init__"]] == [1]


def test_offsets_are_searched_once_for_the_same_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recipes and widths ask again and again; other statistics ask anew."""
    net = Net()
    net.input("x", 1, 4, 4, 2)
    net.conv("x", "a", 2, clamp=(0.0, np.inf))
    graph, seen, search = net.graph(net.conv("a", "y", 2)), list[int](), offsets._best
    monkeypatch.setattr(offsets, "_free_numbers", Recent[float](100))
    monkeypatch.setattr(offsets, "_best", lambda tensors: seen.append(len(tensors)) or search(tensors))

    def origins(top: float) -> list[float]:
        stats = TensorStats.of(np.linspace(0, top, 100, dtype=np.float32)[:, np.newaxis])
        shifted, *_ = offsets.run(graph, dict.fromkeys("xay", stats), dict.fromkeys("xay", 8))
        return [value.origin for value in shifted.activations()]

    first = origins(8.0)
    assert any(first)
    assert origins(8.0) == first
    assert seen == [1]
    assert origins(20.0) != first
    assert seen == [1, 1]
