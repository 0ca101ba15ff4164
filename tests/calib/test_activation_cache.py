"""Rows that are picked inside of onnxruntime are those of the whole tensors."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from nets import Net

from nmpconv.calib import activation_cache
from nmpconv.calib.engine import FloatEngine
from nmpconv.ir import Graph

RELU6 = (0.0, 6.0)


def net() -> Graph:
    """Convolutions with and without a clamp, a depthwise one, a sum, scores."""
    made = Net(3)
    made.input("x", 1, 9, 7, 3)
    made.conv("x", "a", 8, 3, clamp=RELU6)
    made.conv("a", "b", 8, 3, groups=8)
    made.op("add", "a b", "c")
    made.dense("c", "y", 5)
    return made.graph("y")


@pytest.mark.parametrize("limit", [activation_cache.ROWS, 70])
@pytest.mark.parametrize("small", [0, 100, activation_cache.SMALL])
def test_rows_are_those_of_the_whole_tensors(limit: int, small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activation_cache, "ROWS", limit)
    monkeypatch.setattr(activation_cache, "SMALL", small)
    graph, rng = net(), np.random.default_rng(4)
    feeds = [{"x": rng.normal(0, 3, (1, 9, 7, 3)).astype(np.float32)} for _ in range(5)]
    ops = {node.op for node in graph.nodes}
    found = activation_cache.collect(graph, feeds, ops)
    plain, before = activation_cache._split_clamps(graph, graph.nodes)
    engine = FloatEngine(plain, list(before.values()))
    whole = [engine.run(feed) for feed in feeds]
    assert list(found.rows) == [node.outputs[0] for node in graph.nodes]
    for name, rows in found.rows.items():
        tensors = np.stack([run[before[name]].reshape(-1, graph[name].shape[-1]) for run in whole])
        np.testing.assert_array_equal(rows.values, tensors[rows.images, rows.positions])
    assert found.rows["a"].values.min() < 0  # before the clamp
    assert (len(found.rows["a"].values) == 5 * 63) == (limit > 70)
    np.testing.assert_array_equal(found.inputs["x"], np.concatenate([feed["x"] for feed in feeds]))


def test_without_images_there_is_none() -> None:
    assert activation_cache.collect(net(), [], {"conv2d"}) == activation_cache.Evidence()


def test_small_tensors_need_no_nodes_that_pick_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bytes] = []
    real = activation_cache.Engine
    monkeypatch.setattr(activation_cache, "Engine", lambda data, *a, **k: made.append(data) or real(data, *a, **k))
    feeds = [{"x": np.zeros((1, 9, 7, 3), np.float32)}]
    for small in (0, activation_cache.SMALL):
        monkeypatch.setattr(activation_cache, "SMALL", small)
        activation_cache.collect(net(), feeds, {"conv2d"})
    picked, whole = ([node.op_type for node in onnx.load_from_string(data).graph.node] for data in made)
    assert picked.count("Gather") == 3 and "Gather" not in whole and "Reshape" not in whole


def test_few_images_run_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in parallel hold the activations of one image each."""
    threads, each = list[int](), activation_cache.each
    monkeypatch.setattr(activation_cache, "each", lambda run, items, most: threads.append(most) or each(run, items, 1))
    graph = net()
    feeds = [{"x": np.zeros(graph["x"].shape, np.float32)}] * (activation_cache.FEW + 1)
    for images in (feeds[1:], feeds):
        activation_cache.collect(graph, images, ["conv2d"])
        activation_cache.outputs(graph, images, graph.outputs)
    assert threads[:2] == [1, 1]
    assert min(threads[2:]) > 1
