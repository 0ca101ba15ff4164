"""Channels that several layers read from one grid: a ceiling for the reach of the far ones, and an origin where a pool
counts its padding."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from float_nets import RELU, closeness, feeds, in_bits, observed
from nets import Net

from nmpconv.base.sqnr import sqnr_db
from nmpconv.calib.activation_cache import integers
from nmpconv.conversion.pipeline import Options, convert
from nmpconv.conversion.quantizer import Fitter
from nmpconv.conversion.validation import integer_outputs
from nmpconv.graph.reference import run as run_reference
from nmpconv.graph.trace import Trace
from nmpconv.ir import Graph
from nmpconv.ops import OPS
from nmpconv.ops.common.traits import Origins
from nmpconv.passes.quantize import equalize, shared_ceiling
from nmpconv.passes.quantize.exponents import Method
from nmpconv.passes.quantize.rounding import Rounding
from nmpconv.runtime.interpreter import load

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "frontend"))

from onnx_text import build

FAR = 64.0


def chained() -> Graph:
    """Blocks that each read a half of what was joined before, and join the other half to what they make. Of the last
    part one channel reaches FAR times as far; it is for the output z alone."""
    net = Net(5)
    net.input("x", 1, 8, 8, 3)
    net.conv("x", "p0", 8, 3, clamp=RELU)
    net.conv("x", "q0", 8, clamp=RELU)
    kept, made = "p0", "q0"
    for i in range(6):
        net.op("concat", f"{kept} {made}", f"c{i}", axis=3)
        for name, start in (("kept", 0), ("read", 1)):
            params = {"starts": (0, 0, 0, start), "steps": (1, 1, 1, 2), "sizes": (1, 8, 8, 8)}
            net.op("slice", f"c{i}", f"{name}{i}", **params)
        w = np.abs(net.rng.normal(0, 0.2, (8, 1, 1, 8)))
        w[0] *= FAR if i == 5 else 1.0
        net.conv(f"read{i}", f"m{i}", 8, w=w, clamp=RELU)
        kept, made = f"kept{i}", f"m{i}"
    net.op("concat", f"{kept} {made}", "end", axis=3)
    w = net.rng.normal(0, 0.3, (5, 1, 1, 16))
    w[..., 8] = 0
    net.conv("end", "y", 5, w=w)
    net.conv("end", "z", 3)
    return net.graph("y", "z")


def fitted(graph: Graph, equalization: str = "vector") -> float:
    """dB of the integers on images that nothing was fitted to."""
    images, others = feeds(graph, 24), feeds(graph, 24, seed=7)
    fitter = Fitter(graph, observed(graph, images), in_bits(graph, 8, x=16, y=16, z=16), Method(), Rounding(), images)
    integer = fitter.quantize(fitter.prepare(equalization, images, Trace()), True, Trace())
    return sqnr_db(fitter.outputs(others)["y"], integer_outputs(integer, others, ["y"])["y"])


def untouched(groups: object, layers: object, classes: object, factor: np.ndarray) -> np.ndarray:
    return factor


def test_the_float_function_stays() -> None:
    graph = chained()
    images = feeds(graph)
    stats = observed(graph, images)
    after, factors = equalize.vector(graph, stats, in_bits(graph, 8, x=16, y=16, z=16))
    assert closeness(graph, after, images) > 90
    reach = {name: stats[name].channel_max * factors[name] for name in ("end", "m4", "m5")}
    assert reach["end"].max() == pytest.approx(reach["m5"][0])
    assert reach["m5"][0] < 3 * reach["m4"].max()


def test_a_part_that_reaches_far_costs_the_others_less(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = chained()
    low = fitted(graph)
    monkeypatch.setattr(shared_ceiling, "lowered", untouched)
    assert low > fitted(graph) + 3


def test_a_layer_alone_has_the_least_noise_without_a_ceiling() -> None:
    """The factors that `shared_ceiling` makes of those that equalization gives: sqrt(demand / reach)."""
    rng = np.random.default_rng(2)
    for _ in range(50):
        reach, demand = rng.lognormal(0, 1, 16), rng.uniform(0.05, 1, 16)
        classes = shared_ceiling.Classes({"a": np.arange(16)}, {"a": reach}, np.ones(16, bool))
        factor, layer = np.sqrt(demand / reach), shared_ceiling.WeightedLayer("a", demand)
        assert np.array_equal(shared_ceiling.lowered([["a"]], [layer, layer], classes, factor), factor)
        assert np.array_equal(shared_ceiling.lowered([["a"]], [layer], classes, factor), factor)


def test_channels_that_are_not_free_keep_their_factors() -> None:
    ids, reach = {"a": np.arange(2), "b": np.arange(2, 4)}, {"a": np.array([64.0, 1.0]), "b": np.array([1.0, 1.0])}
    one = np.ones(2)
    layers = [shared_ceiling.WeightedLayer("a", one), shared_ceiling.WeightedLayer("b", one)]
    for free, expected in ((True, True), (False, False)):
        classes = shared_ceiling.Classes(ids, reach, np.array([free, True, True, True]))
        factor = 1 / np.sqrt(np.concatenate([reach["a"], reach["b"]]))
        found = shared_ceiling.lowered([["a", "b"]], layers, classes, factor)
        assert bool(found[0] < factor[0]) == expected
        assert np.array_equal(found[1:], factor[1:])


def pooled() -> Graph:
    """The mean of a part, over padding that counts, joins what the next part makes: all of them share one origin."""
    net = Net(4)
    net.input("x", 1, 8, 8, 3)
    net.conv("x", "a", 8, 3, clamp=RELU)
    sides = {"pad_top": 1, "pad_left": 1, "pad_bottom": 1, "pad_right": 1}
    net.op("average_pool", "a", "p", kernel_h=3, kernel_w=3, stride_h=2, stride_w=2, count_include_pad=True, **sides)
    net.conv("x", "d", 8, 3, clamp=RELU, stride_h=2, stride_w=2, **sides)
    net.op("concat", "p d", "c", axis=3)
    net.conv("c", "y", 5)
    net.conv("c", "z", 5)
    return net.graph("y", "z")


def test_a_pool_that_counts_its_padding_has_an_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = pooled()
    images = feeds(graph, 24)
    fitter = Fitter(graph, observed(graph, images), in_bits(graph, 8, x=16, y=16, z=16), Method(), Rounding(), images)
    prepared = fitter.prepare("none", images, Trace())
    assert prepared.chosen["a"].origin == prepared.chosen["c"].origin > 0
    pads = [node.outputs[0] for node in prepared.chosen.nodes if node.op == "pad"]
    assert pads == ["p.border"]
    assert prepared.chosen["p.border"].quant.exponent == prepared.chosen["a"].quant.exponent
    with_origin = fitted(graph, "none")
    monkeypatch.setattr(type(OPS["average_pool"]), "origins", lambda *_: Origins.NONE)
    assert with_origin > fitted(graph, "none") + 0.5


def test_without_zero_points_the_pool_keeps_its_padding() -> None:
    graph = pooled()
    images = feeds(graph, 12)
    stats, bits = observed(graph, images), in_bits(graph, 8, x=16, y=16, z=16)
    fitter = Fitter(graph, stats, bits, Method(), Rounding(), images, zero_points=False)
    nodes = fitter.prepare("none", images, Trace()).chosen.nodes
    assert [node.params for node in nodes] == [node.params for node in graph.nodes]


POOLED = (
    "(float[1,3,8,8] x) => (y) <float[4,3,3,3] v, float[4,3,3,3] u, float[2,8,1,1] w> { a = Conv<pads=[1,1,1,1]>(x, v) "
    "r = Relu(a) p = AveragePool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1], count_include_pad=1>(r) "
    "b = Conv<strides=[2,2], pads=[1,1,1,1]>(x, u) s = Relu(b) c = Concat<axis=1>(p, s) y = Conv(c, w) }"
)


def test_a_recipe_makes_the_same_file_and_integers_are_the_reference_s(tmp_path: Path) -> None:
    build(POOLED, 13, tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.random.default_rng(5).normal(size=(12, 3, 8, 8)).astype(np.float32))
    options = Options(equalize="vector", rounding="gptq", save_recipe=tmp_path / "r.toml")
    made = convert(tmp_path / "m.onnx", {"": tmp_path / "x.npy"}, options, lambda *_: None)
    again = replace(Options(), recipe=tmp_path / "r.toml")
    assert convert(tmp_path / "m.onnx", {"": tmp_path / "x.npy"}, again, lambda *_: None).data == made.data
    assert [node.op for node in made.graph.nodes].count("pad") == 1
    assert made.graph["c"].origin == made.graph["r"].origin > 0
    (x,), (y,) = made.graph.inputs, made.graph.outputs
    for seed in range(5):
        fed = integers(np.random.default_rng(seed).normal(0, 1, made.graph[x].shape), made.graph[x])
        assert np.array_equal(load(made.data).run(fed)[0], run_reference(made.graph, {x: fed})[y])


def test_a_ceiling_that_brings_little_is_none() -> None:
    """Half a dB, in a sum of many layers."""
    classes = shared_ceiling.Classes({"a": np.arange(8)}, {"a": np.array([1.72, *[1.0] * 7])}, np.ones(8, bool))
    layers = [shared_ceiling.WeightedLayer("a", np.ones(8))] * 40
    assert np.array_equal(shared_ceiling.lowered([["a"]], layers, classes, np.ones(8)), np.ones(8))
