"""Choosing a recipe: what is measured, that it is the same every time, and that a broken equalization is noticed."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from float_nets import RELU, Net, evidence, feeds, in_bits, integer, names, observed, on_grids, residual

from nmpconv import fit
from nmpconv.errors import VerifyError
from nmpconv.fit import Fitter, Recipe, heads, integer_outputs
from nmpconv.ir import Graph
from nmpconv.passes import equalize
from nmpconv.passes.exponents import Method
from nmpconv.passes.quantize import Rounding, integers
from nmpconv.passes.trace import Trace
from nmpconv.reference import run

RECIPES = [Recipe(mode, gptq) for mode in ("none", "scalar", "vector") for gptq in (False, True)]


def ends(*outputs: str) -> Graph:
    """a -> r (reshape); a -> p (softmax) -> q (reshape); r -> l (fc) -> s (softmax) -> t, u (reshapes)."""
    net = Net()
    net.input("x", 1, 2, 2, 3)
    net.conv("x", "a", 4)
    net.op("reshape", "a", "r", shape=(1, 16))
    net.op("softmax", "a", "p", axis=3)
    net.op("reshape", "p", "q", shape=(1, 16))
    net.dense("r", "l", 6)
    net.op("reshape", "l", "k", shape=(1, 2, 3))
    net.op("softmax", "k", "s", axis=2)
    net.op("reshape", "s", "t", shape=(1, 6))
    net.op("reshape", "t", "u", shape=(1, 1, 6))
    return net.graph(*outputs)


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ("a", ["a"]),
        ("p", ["a"]),
        ("q", ["a"]),
        ("r", ["r"]),
        ("l", ["l"]),
        ("s", ["k"]),
        ("u", ["k"]),
        ("u a", ["k", "a"]),
        ("p q t", ["a", "k"]),
    ],
)
def test_heads(outputs: str, expected: list[str]) -> None:
    assert heads(ends(*outputs.split())) == expected


def test_integer_outputs() -> None:
    graph = ends("a", "s")
    grids = dict.fromkeys(names(graph), (8, -4)) | dict.fromkeys("pqstu", (8, -7))
    images = feeds(graph, 3)
    made = integer(on_grids(graph, **grids), Rounding(gptq=False))
    found = integer_outputs(made, images, ["a", "k"])
    assert found["a"].shape == (3, 2, 2, 4)
    for i, image in enumerate(images):
        one = run(made, {"x": integers(image["x"], made["x"])}, keep=["k"])
        assert np.array_equal(found["a"][i], one["a"][0] * 2.0**-4)
        assert np.array_equal(found["k"][i], one["k"][0] * 2.0**-4)


@pytest.fixture(scope="module")
def net() -> Graph:
    return residual()


def fitter(net: Graph, count: int = 6) -> Fitter:
    images = feeds(net, count)
    return Fitter(net, observed(net, images), in_bits(net, 8, x=16, y=16), Method(), Rounding(), images)


def test_scores_do_not_depend_on_timing(net: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    made = fitter(net)
    found, told = [], []
    rng = np.random.default_rng(0)
    real = fit.quantize.run

    def late(*arguments: object) -> Graph:
        time.sleep(rng.uniform(0, 0.01))
        return real(*arguments)

    monkeypatch.setattr(fit.quantize, "run", late)
    monkeypatch.setattr(fit, "cpu_count", lambda: 8)
    for workers in (1, 4):
        monkeypatch.setattr(fit, "WORKERS", workers)
        told.clear()
        found.append(made.scores(RECIPES, lambda done, total: told.append((done, total))))
        assert told == [(i, 9) for i in range(1, 10)]
    assert found[0] == found[1]
    assert len(set(found[0])) == len(RECIPES)
    assert all(10 < score < 60 for score in found[0])
    # In another order, and one alone: the same numbers.
    assert made.scores(RECIPES[::-1], lambda done, total: None) == found[0][::-1]
    assert made.scores(RECIPES[3:4], lambda done, total: None) == found[0][3:4]


def test_scores_are_of_images_that_were_not_fitted_on(net: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    made, fitted, held = fitter(net), [], []
    real, outputs = fit.calibration.collect, fit.integer_outputs
    monkeypatch.setattr(
        fit.calibration, "collect", lambda g, images, ops: fitted.extend(images) or real(g, images, ops)
    )
    monkeypatch.setattr(fit, "integer_outputs", lambda g, images, n: held.extend(images) or outputs(g, images, n))
    made.scores(RECIPES[:1], lambda done, total: None)
    assert [id(image) for image in held] == [id(made.images[i]) for i in (0, 3)]
    assert [id(image) for image in fitted] == [id(made.images[i]) for i in (1, 2, 4, 5)]


def test_uneven_channels_want_the_vector() -> None:
    """What one layer makes small, the next makes large again: only a factor per channel helps."""
    net = Net(3)
    net.input("x", 1, 8, 8, 3)
    uneven = 2.0 ** np.arange(-4, 4)
    net.conv("x", "a", 8, w=net.rng.normal(0, 1, (8, 1, 1, 3)) * uneven[:, None, None, None], b=np.zeros(8), clamp=RELU)
    net.conv("a", "y", 4, w=net.rng.normal(0, 1, (4, 1, 1, 8)) / uneven)
    scores = fitter(net.graph("y")).scores(RECIPES[::2], lambda done, total: None)
    assert scores[2] > max(scores[:2]) + 6


@pytest.mark.parametrize(("mode", "count"), [("none", 0), ("none", 4), ("scalar", 0), ("scalar", 4), ("vector", 4)])
def test_prepare(net: Graph, mode: str, count: int) -> None:
    images = feeds(net, count)
    made = fitter(net).prepare(mode, images, Trace())
    assert [node.op for node in made.ranged.nodes] == [node.op for node in net.nodes]
    assert (made.float_graph == net) == (mode == "none")
    assert set(made.evidence.rows) == (
        {node.outputs[0] for node in net.nodes if node.op in fit.WEIGHTED} if count else set()
    )
    integer(made.ranged, Rounding(), evidence(made.ranged, images))


@pytest.mark.parametrize("mode", ["scalar", "vector"])
def test_guard(net: Graph, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = equalize.scale

    def broken(graph: Graph, factors: dict) -> Graph:
        """Forgets the factor of one bias."""
        after = real(graph, factors)
        name = after.nodes[1].inputs[2]
        return after.with_values(replace(after[name], data=graph[graph.nodes[1].inputs[2]].data * np.float32(1.01)))

    monkeypatch.setattr(equalize, "scale", broken)
    with pytest.raises(VerifyError, match=rf"equalization \({mode}\) changed the float output 'y'"):
        fitter(net).prepare(mode, feeds(net), Trace())
