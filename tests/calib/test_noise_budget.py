"""Shares of the noise at the heads, against what the same rounding does when it is written out."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "quantize"))
from float_nets import RELU, feeds, in_bits, observed, on_grids, residual
from nets import Net

from nmpconv.calib import engine, fake_quantization
from nmpconv.calib.engine import FloatEngine
from nmpconv.calib.noise_budget import _largest, _noise, budget, switched
from nmpconv.cli.report_tables import _costliest, on_one_grid
from nmpconv.conversion.quantizer import Fitter
from nmpconv.graph.trace import Trace
from nmpconv.ir import Graph
from nmpconv.ops import OPS
from nmpconv.passes.quantize.exponents import Method
from nmpconv.passes.quantize.rounding import Rounding
from nmpconv.passes.quantize.shared_grids import grid_groups


def linear(side: int) -> Graph:
    """x -> a -> y, both 1x1 convolutions; a is moved twice on the way."""
    net = Net(5)
    net.input("x", 1, side, side, 3)
    net.conv("x", "a", 4, clamp=RELU)
    net.op("transpose", "a", "t", perm=(0, 2, 1, 3))
    net.op("transpose", "t", "u", perm=(0, 2, 1, 3))
    net.conv("u", "y", 2)
    return net.graph("y")


def coarse(graph: Graph) -> Graph:
    grids = dict.fromkeys("atuy", (8, -2)) | {"x": (16, -12)}
    return on_grids(graph, **grids)


@pytest.mark.parametrize("side", [3, 4])
def test_a_share_is_the_noise_of_one_rounding(side: int) -> None:
    """On a plane of 16 and more its mean by channel is taken away."""
    graph = coarse(linear(side))
    images = feeds(graph, 3)
    found = budget(graph, grid_groups(graph), ["y"], images).shares
    runs = [FloatEngine(graph, ["x", "a", "y"]).run(image) for image in images]
    w = graph["y.w"].data.reshape(2, 4).astype(np.float64)

    def error(x: np.ndarray, quant: object) -> np.ndarray:
        q = np.clip(np.floor(x / 2.0**quant.exponent + 0.5), quant.lo, quant.hi) * 2.0**quant.exponent - x
        return q - (q.mean(axis=(1, 2), keepdims=True) if side == 4 else 0)

    of_a = sum(float(np.square(error(r["a"], graph["a"].quant) @ w.T).sum()) for r in runs)
    of_y = sum(float(np.square(error(r["y"], graph["y"].quant)).sum()) for r in runs)
    assert found["a"] / found["y"] == pytest.approx(of_a / of_y, rel=1e-3)
    assert found["x"] < 1e-3
    assert set(found) == {"a", "x", "y"}
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert sum(found.values()) == pytest.approx(1, abs=0.35)


def test_what_a_hardswish_makes_zero_is_no_noise() -> None:
    """A grid that ends at -4, where the function is 0, and one of the same step that saturates nothing."""
    net = Net(5)
    net.input("x", 1, 8, 8, 3)
    net.conv("x", "a", 4, w=net.rng.normal(0, 4, (4, 1, 1, 3)))
    net.op("lookup", "a", "t", function="hard_swish")
    net.conv("t", "y", 2)
    graph = net.graph("y")
    images = feeds(graph, 3)
    ends = np.concatenate([FloatEngine(graph, ["a"]).run(image)["a"] for image in images])
    assert ends.min() < -6
    low = replace(graph["a"], clamp=(-math.inf, 3.9))
    shares = [
        budget(ranged, grid_groups(ranged), ["y"], images).shares
        for bits in (8, 16)
        for ranged in [on_grids(graph.with_values(low), x=(16, -12), a=(bits, -5), t=(8, -5), y=(8, -2))]
    ]
    assert shares[0]["a"] / shares[0]["t"] == pytest.approx(shares[1]["a"] / shares[1]["t"], rel=0.02)


def test_a_wider_tensor_takes_its_share_away() -> None:
    net = residual()
    images = feeds(net, 4)
    shares = []
    for bits in (8, 16):
        made = Fitter(
            net, observed(net, images), in_bits(net, 8, x=16, y=16, m=bits, s=bits), Method(), Rounding(), images
        )
        ranged = made.prepare("none", images, Trace()).ranged
        shares.append(budget(ranged, grid_groups(ranged), ["y"], images).shares)
    assert shares[1]["s"] < shares[0]["s"] / 50
    rest = [sum(share for name, share in found.items() if name != "s") for found in shares]
    assert rest[1] > rest[0]


def test_raw_pixels_make_no_noise() -> None:
    net = Net()
    net.input("x", 1, 4, 4, 3)
    net.conv("x", "y", 2)
    graph = on_grids(net.graph("y", pixels=["x"]), x=(8, 0), y=(8, -1))
    assert set(budget(graph, grid_groups(graph), ["y"], feeds(graph, 2)).shares) == {"y"}


def test_images_that_do_not_batch() -> None:
    """A reshape that mixes them: one pass an image, and the same shares."""
    net = Net(5)
    net.input("x", 1, 4, 4, 3)
    net.conv("x", "a", 4, clamp=RELU)
    net.op("reshape", "a", "r", shape=(4, 4, 4))
    net.op("reshape", "r", "b", shape=(1, 4, 4, 4))
    net.conv("b", "y", 2)
    graph = on_grids(net.graph("y"), x=(16, -12), y=(8, -2), **dict.fromkeys("arb", (8, -2)))
    other = coarse(linear(4))
    images = feeds(graph, 3)
    mixed, plain = (budget(g, grid_groups(g), ["y"], images).shares for g in (graph, other))
    assert mixed == pytest.approx(plain, rel=1e-3)


def test_what_is_too_large_is_skipped() -> None:
    graph = coarse(linear(4))
    found = budget(graph, grid_groups(graph), ["y"], [])
    assert (found.shares, found.skipped) == ({}, "no images")
    found = budget(graph, grid_groups(graph), ["y"], feeds(graph, 3), 10)
    assert (found.shares, found.skipped) == ({}, "the net is too large to measure where its noise comes from")


def chain(layers: int) -> Graph:
    """c0 to y, convolutions that change nothing, of which c1 has a far coarser grid."""
    net, same = Net(5), np.eye(8).reshape(8, 1, 1, 8)
    net.input("x", 1, 4, 4, 8)
    for i in range(layers):
        net.conv(f"c{i - 1}" if i else "x", f"c{i}", 8, w=same, clamp=RELU)
    net.conv(f"c{layers - 1}", "y", 8, w=same)
    grids = {f"c{i}": (16, -12) for i in range(layers)} | {"c1": (8, -6)}
    return on_grids(net.graph("y"), x=(16, -12), y=(16, -9), **grids)


def test_of_a_large_net_the_largest_shares_are_found() -> None:
    """Fewer passes are allowed than there are tensors, by multiply-accumulates of one image."""
    graph = chain(30)
    macs = sum(OPS[node.op].macs(node.params, graph.ins(node), graph.outs(node)) for node in graph.nodes)
    images = feeds(graph, 3)
    groups, asked = grid_groups(graph), [f"c{i}" for i in range(30)]
    every = budget(graph, groups, ["y"], images[:1], asked=asked).shares
    some = budget(graph, groups, ["y"], images, 20 * macs, asked).shares
    assert next(iter(every)) == next(iter(some)) == "c1"
    assert some.items() <= every.items() and len(some) < len(every)
    assert not budget(graph, groups, ["y"], images, 17 * macs, asked).shares
    assert not budget(graph, groups, ["y"], images, 20 * macs).shares
    assert budget(graph, groups, ["y"], images, 20 * macs, asked[:8]).shares.keys() == set(asked[:8])


def test_all_that_is_rounded_on_a_grid_is_named() -> None:
    """The first tensor of a Concat's grid is innocent: the other one's range is what makes the step."""
    net = Net(6)
    net.input("x", 1, 4, 4, 3)
    net.conv("x", "small", 2)
    net.conv("x", "large", 2)
    net.op("concat", "small large", "both", axis=3)
    net.conv("both", "y", 2)
    graph = on_grids(net.graph("y"), x=(16, -12), y=(16, -10), **dict.fromkeys(("small", "large", "both"), (8, -1)))
    found = budget(graph, grid_groups(graph), ["y"], feeds(graph, 3))
    (first,) = found.grids
    assert set(found.on_grid(first)) == {"small", "large"}
    assert next(iter(found.shares)) == first
    assert found.on_grid("y") == ("y",)
    short = {"small": "s", "large": "l", "a": "a", "b": "b"}
    assert on_one_grid(found.on_grid(first), short) == "s and l, on one grid"
    assert on_one_grid(["small", "large", "a", "b"], short) == "s, l, a and 1 more, on one grid"


def test_shares_are_the_same_where_the_session_is_not_optimized(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = coarse(linear(4))
    groups, images = grid_groups(graph), feeds(graph, 4)
    found = budget(graph, groups, graph.outputs, images).shares
    made = []
    real = fake_quantization.Engine
    monkeypatch.setattr(fake_quantization, "Engine", lambda *a, **k: made.append(k["optimize"]) or real(*a, **k))
    monkeypatch.setattr(engine, "NODES_MANY", 1)
    again = budget(graph, groups, graph.outputs, images).shares
    assert made == [False]
    assert found and again == pytest.approx(found, abs=1e-4)


def test_very_many_switches_are_one_input(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = coarse(linear(4))
    protos = []
    real = fake_quantization.Engine
    monkeypatch.setattr(fake_quantization, "Engine", lambda p, *a, **k: protos.append(p) or real(p, *a, **k))
    assert len(budget(graph, grid_groups(graph), graph.outputs, feeds(graph, 1)).shares) == 3
    ends = [value.name for value in protos[0].graph.input]
    assert ends == ["x", fake_quantization.SWITCHES]


@pytest.mark.parametrize("passes", [2, 4, 8, 20])
def test_no_more_passes_than_are_allowed(passes: int) -> None:
    """The largest share is found by halves: of 16 tensors after 8 passes."""
    measured, shares = [], dict.fromkeys((f"t{i}" for i in range(15)), 0.01) | {"t15": 1.0}

    def share(*names: str) -> float:
        measured.append(names)
        return sum(shares[name] for name in names)

    largest = _largest(share, list(shares), passes)
    assert len(measured) <= passes
    assert ("t15" in largest) == (passes >= 8)


def test_where_nothing_is_rounded_no_share_is_run_for(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = coarse(linear(4))
    runs = []
    real = fake_quantization.Switched.run
    monkeypatch.setattr(fake_quantization.Switched, "run", lambda self, on: runs.append(on) or real(self, on))
    images = [{"x": np.zeros_like(image["x"])} for image in feeds(graph, 2)]
    graph = graph.with_values(*(replace(v, data=np.zeros_like(v.data)) for v in graph.values.values() if v.is_const))
    assert set(budget(graph, grid_groups(graph), ["y"], images).shares.values()) == {0.0}
    assert len(runs) == 2


def test_a_session_serves_other_groups_and_images() -> None:
    graph, images = coarse(linear(4)), feeds(linear(4), 5)
    groups = grid_groups(graph)
    session = switched(graph, groups, ["y"])
    for some, few in ((groups, images), (groups[1:], images[:2]), ([[*reversed(group)] for group in groups], images)):
        own = budget(graph, some, ["y"], few)
        shared = budget(graph, some, ["y"], few, session=lambda: session)
        assert shared.shares.keys() == own.shares.keys()
        assert [*shared.shares.values()] == pytest.approx([*own.shares.values()], abs=1e-5)


def test_a_divisor_that_is_rounded_to_0_is_an_error_as_large_as_the_output() -> None:
    """Shares of the others stay numbers."""
    net = Net(3)
    net.input("x", 1, 8)
    net.const("one", np.ones((1, 8)))
    net.op("lookup", "x", "d", function="sigmoid")
    net.op("divide", "one d", "y")
    graph = on_grids(net.graph("y"), x=(8, -4), d=(8, 1), y=(16, -8))
    shares = budget(graph, grid_groups(graph), ["y"], feeds(graph, 3)).shares
    assert all(map(math.isfinite, shares.values())) and next(iter(shares)) == "d"


def test_what_is_infinite_in_both_is_no_noise() -> None:
    """A logarithm of 0; a quotient whose divisor was rounded to 0 is off by all of the output."""
    plain = np.array([1, 2, -np.inf, 3], np.float32)
    assert _noise(plain, plain) == 0
    assert _noise(np.array([1, np.inf, -np.inf, 3.5], np.float32), plain) == 3**2 + 0.5**2


@pytest.mark.parametrize(("skipped", "more"), [("", ""), ("too large", "; too large")])
def test_the_steepest_layer_where_no_tensor_has_a_share(skipped: str, more: str) -> None:
    steepest = SimpleNamespace(name="a", op="conv2d", fall=9.0)
    report: Any = SimpleNamespace(costliest={}, steepest=steepest, noise=SimpleNamespace(skipped=skipped))
    assert _costliest(report, {}) == f"a (conv2d): 9.0 dB less than before it{more}"
