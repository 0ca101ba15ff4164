"""Weights and biases to integers: what is exact, what is best, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from float_nets import RELU, evidence, feeds, in_bits, integer, observed, on_grids
from nets import Net

from nmpconv.calib.activation_cache import integers
from nmpconv.calib.engine import FloatEngine
from nmpconv.errors import InputError, UnsupportedModel
from nmpconv.graph.reference import run
from nmpconv.ir import Graph
from nmpconv.ops import OPS
from nmpconv.passes.quantize import exponents, legalize
from nmpconv.passes.quantize import rounding as quantize
from nmpconv.passes.quantize.exponents import Method
from nmpconv.passes.quantize.rounding import Rounding

PLAIN = Rounding(gptq=False)


def one_layer(bias: list[float], kind: str = "conv2d") -> Graph:
    net = Net(1)
    net.input("x", 1, 4, 4, 3)
    if kind == "conv2d":
        net.conv("x", "y", len(bias), b=bias)
    else:
        net.dense("x", "y", len(bias))
        net.const("y.b", bias)
    return net.graph("y")


def bias_of(graph: Graph, name: str = "n_y") -> np.ndarray:
    node = next(node for node in graph.nodes if node.name == name)
    return graph[node.inputs[2]].data


def of_images(graph: Graph, bits: int = 8, count: int = 6, **others: int) -> tuple[Graph, list]:
    """The RANGED graph with the exponents that calibration chooses, and the images."""
    images = feeds(graph, count)
    chosen = exponents.run(graph, observed(graph, images), in_bits(graph, bits, **others), Method())
    return legalize.run(chosen), images


def results(made: Graph, name: str, images: list) -> np.ndarray:
    """Real values [N, ...] of a tensor of an integer graph."""
    inputs = {n: integers(np.concatenate([image[n] for image in images]), made[n]) for n in made.inputs}
    return np.ldexp(run(made, inputs, keep=[name])[name].astype(np.float64), made[name].quant.exponent)


def floats(graph: Graph, name: str, images: list) -> np.ndarray:
    engine = FloatEngine(graph, [name])
    return np.concatenate([engine.run(image)[name] for image in images]).astype(np.float64)


# -- biases without rows ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["conv2d", "fully_connected"])
@pytest.mark.parametrize("exponent", [-5, 0, 2])
def test_the_float_bias_is_rounded_once(kind: str, exponent: int) -> None:
    bias = [0.5, -0.5, 1.49999, 2.0, -7.3, 0.015625, 100.0, -6.0]
    made = integer(on_grids(one_layer(bias, kind), x=(8, -3), y=(8, exponent)), PLAIN)
    found = made[made.nodes[0].inputs[2]]
    expected = np.floor(np.float32(bias).astype(np.float64) / 2.0**exponent + 0.5)
    assert found.data.tolist() == expected.tolist()
    assert found.quant.exponents == (exponent,)


@pytest.mark.parametrize(
    ("bias", "bits"),
    [
        ([127.0, -128.0], 8),
        ([128.0, 0.0], 16),
        ([-129.0, 0.0], 16),
        ([127.5, 0.0], 16),
        ([32767.0, -32768.0], 16),
        ([32768.0, 0.0], 32),
        ([0.0, -32769.0], 32),
        ([2.0**31 - 128, -(2.0**31)], 32),
    ],
)
def test_the_narrowest_type(bias: list[float], bits: int) -> None:
    made = integer(on_grids(one_layer(bias), x=(8, 0), y=(8, 0)), PLAIN)
    found = made[made.nodes[0].inputs[2]]
    assert (found.quant.bits, found.dtype, found.data.dtype.name) == (bits, f"int{bits}", f"int{bits}")
    assert found.data.tolist() == np.floor(np.array(bias) + 0.5).tolist()


@pytest.mark.parametrize("wanted", [8, 16, 32])
def test_a_type_by_command(wanted: int) -> None:
    ranged = on_grids(one_layer([100.0, -3.0]), x=(8, 0), y=(8, 0))
    assert bias_of(integer(ranged, replace(PLAIN, bias_bits=wanted))).dtype == f"int{wanted}"


@pytest.mark.parametrize(
    ("bias", "wanted", "type_"),
    [
        ([0.0, 128.0], 8, "int8"),
        ([0.0, -40000.0], 16, "int16"),
        ([2.0**31, 0.0], 32, "int32"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_layers_name(bias: list[float], wanted: int, type_: str) -> None:
    ranged = on_grids(one_layer(bias), x=(8, 0), y=(8, 0))
    with pytest.raises(InputError, match=f"do not fit {type_}") as caught:
        quantize.run(ranged, replace(PLAIN, bias_bits=wanted), evidence(ranged, []))
    assert caught.value.where == "node n_y"


@pytest.mark.parametrize("bias", [[3e9, 0.0], [0.0, -3e9]])
def test_a_bias_that_no_type_holds(bias: list[float]) -> None:
    ranged = on_grids(one_layer(bias), x=(8, 0), y=(8, 0))
    with pytest.raises(UnsupportedModel, match=r"biases from .*3e\+09.*; instead: at most 2.14748e\+09"):
        quantize.run(ranged, PLAIN, evidence(ranged, []))
    integer(legalize.run(ranged), PLAIN)


@pytest.mark.parametrize(("size", "fits"), [(1.17e21, True), (1.18e21, False)])
def test_weights_beyond_the_coarsest_grid(size: float, fits: bool) -> None:
    """At exponent 63, 8 bits end at 127 * 2^63."""
    net = Net()
    net.input("x", 1, 2, 2, 1)
    net.conv("x", "y", 1, w=size, b=[0.0])
    ranged = legalize.run(on_grids(net.graph("y"), x=(8, -5), y=(8, 63)))
    if fits:
        assert integer(ranged, PLAIN)["n_y.weight"].quant.exponents == (63,)
    else:
        with pytest.raises(UnsupportedModel, match=r"weights of 1.18e\+21; instead: at most 1.17137e\+21"):
            integer(ranged, PLAIN)


def test_a_bias_that_float32_does_not_hold() -> None:
    """It takes up the products of an input's offset."""
    net = Net()
    net.input("x", 1, 2, 2, 1)
    net.conv("x", "y", 1, w=3e38, b=[0.0])
    graph = net.graph("y")
    with pytest.raises(UnsupportedModel, match=r"a bias of 3.84e\+40; instead: at most 3.40282e\+38"):
        OPS["conv2d"].with_origins(graph.nodes[0], graph, 128.0, 0.0)


def test_a_shared_bias_is_cloned() -> None:
    net = Net(2)
    net.input("x", 1, 4, 4, 3)
    net.conv("x", "a", 3, b=[1.0, -2.5, 3.0])
    net.conv("x", "b", 3)
    graph = net.graph("a", "b")
    graph = replace(graph, nodes=(graph.nodes[0], replace(graph.nodes[1], inputs=("x", "a.w", "a.b"))))
    made = integer(on_grids(graph, x=(8, -4), a=(8, -3), b=(16, -9)), PLAIN)
    assert bias_of(made, "n_a").tolist() == [8, -20, 24]
    assert bias_of(made, "n_b").tolist() == [512, -1280, 1536]
    assert {v.name for v in made.values.values() if v.is_const} == {
        f"n_{name}.{role}" for name in "ab" for role in ("weight", "bias")
    }


# -- weights ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("per_tensor", [False, True])
def test_weights(bits: int, per_tensor: bool) -> None:
    net = Net(3)
    net.input("x", 1, 4, 4, 3)
    scale = 2.0 ** np.arange(-3, 3).reshape(6, 1, 1, 1)
    net.conv("x", "y", 6, 3, w=net.rng.uniform(-0.99, 0.99, (6, 3, 3, 3)) * scale)
    ranged = on_grids(net.graph("y"), x=(8, -3), y=(8, -2))
    made = integer(ranged, replace(PLAIN, weight_bits=bits, per_tensor=per_tensor))
    found = made["n_y.weight"]
    steps = 2.0 ** np.array(found.quant.exponents).reshape(-1, 1, 1, 1)
    assert (found.data.dtype, found.quant.axis) == (f"int{bits}", None if per_tensor else 0)
    assert len(found.quant.exponents) == (1 if per_tensor else 6)
    assert np.abs(found.data * steps - ranged["y.w"].data).max() <= steps.max() / 2 * 1.0001
    largest = np.abs(found.data.astype(int)).reshape(6, -1).max(axis=1)
    full = (2**bits) // 4 if not per_tensor else 0
    assert (largest >= full).all()


def test_16_bit_weights_are_closer() -> None:
    net = Net(4)
    net.input("x", 1, 8, 8, 3)
    net.conv("x", "y", 4, 3)
    graph, images = of_images(net.graph("y"), 16)
    errors = []
    for bits in (8, 16):
        made = integer(graph, replace(PLAIN, weight_bits=bits), evidence(graph, images))
        errors.append(np.square(results(made, "y", images) - floats(graph, "y", images)).mean())
    assert errors[1] < errors[0] / 400  # 16 bits of x and y leave that, with their room


# -- with rows --------------------------------------------------------------------------------------------------------


def deep(clamp: tuple[float, float] | None) -> Graph:
    """Inputs with a mean, so that rounding moves the means; three layers, one of them depthwise."""
    net = Net(5)
    net.input("x", 1, 8, 8, 3)
    net.conv("x", "a", 8, 3, clamp=clamp, b=np.full(8, 1.0))
    net.conv("a", "b", 8, 3, groups=8, clamp=clamp, pad=np.full(8, 0.5))
    net.conv("b", "y", 6, 3)
    return net.graph("y")


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("gptq", [False, True])
def test_means_are_kept(gptq: bool, bits: int) -> None:
    """Each channel's mean is off by half a step and a little; without correction by many of the finer steps."""
    graph, images = of_images(deep(RELU), count=8, y=bits)
    step = 2.0 ** graph["y"].quant.exponent
    off = {}
    for correction in (True, False):
        how = Rounding(gptq=gptq, bias_correction=correction)
        made = integer(graph, how, evidence(graph, images))
        error = results(made, "y", images) - floats(graph, "y", images)
        off[correction] = np.abs(error.mean(axis=(0, 1, 2))).max() / step
    assert off[True] < 0.55
    assert bits == 8 or off[False] > 3


def test_correction_makes_up_for_weights() -> None:
    """Weights of 0.4 steps all round to 0; the mean of what is lost goes into the bias."""
    net = Net(6)
    net.input("x", 1, 8, 8, 4)
    w = np.full((1, 1, 1, 4), 0.4 / 128)
    w[..., 0] = 127 / 128
    net.conv("x", "y", 1, w=w, b=[0.0])
    graph = on_grids(net.graph("y"), x=(8, 0), y=(8, -1))
    rng = np.random.default_rng(6)
    images = [{"x": rng.integers([-60, 90, 90, 90], [60, 120, 120, 120], (1, 8, 8, 4)).astype(np.float32)}]
    lost = 3 * 0.4 / 128 * images[0]["x"][..., 1:].mean() / 0.5
    assert bias_of(integer(graph, PLAIN)).tolist() == [0]
    assert bias_of(integer(graph, PLAIN, evidence(graph, images))).tolist() == [round(lost)] == [2]
    kept = integer(graph, replace(PLAIN, bias_correction=False), evidence(graph, images))
    assert bias_of(kept).tolist() == [0]


def wide_layer() -> tuple[Graph, list]:
    """Correlated inputs, and outputs fine enough to show what weights cost."""
    net = Net(7)
    net.input("x", 1, 8, 8, 6)
    net.conv("x", "y", 24, 3)
    graph = net.graph("y")
    rng = np.random.default_rng(7)
    mix = rng.normal(0, 1, (6, 6))
    images = [{"x": (rng.normal(0, 1, (1, 8, 8, 6)) @ mix).astype(np.float32)} for _ in range(6)]
    chosen = exponents.run(graph, observed(graph, images), in_bits(graph, 8, y=16), Method())
    return chosen, images


def channel_errors(graph: Graph, made: Graph, images: list) -> np.ndarray:
    return np.square(results(made, "y", images) - floats(graph, "y", images)).mean(axis=(0, 1, 2))


def test_gptq_makes_up_for_the_bias_alone() -> None:
    """Without correction the bias is off by up to half a coarse step; the weights see that in real units."""
    net = Net(10)
    net.input("x", 1, 8, 8, 6)
    net.conv("x", "y", 12, b=net.rng.uniform(-4, 4, 12))
    graph = on_grids(net.graph("y"), x=(8, -5), y=(8, 0))
    rng = np.random.default_rng(10)
    images = [{"x": rng.uniform(1, 3, (1, 8, 8, 6)).astype(np.float32)} for _ in range(4)]
    seen = evidence(graph, images)
    wanted = floats(graph, "y", images).mean(axis=(0, 1, 2))

    def worst(gptq: bool) -> float:
        made = integer(graph, Rounding(gptq=gptq, bias_correction=False), seen)
        return float(np.abs(results(made, "y", images).mean(axis=(0, 1, 2)) - wanted).max())

    assert worst(False) > 0.3
    assert worst(True) < 0.15


def test_gptq_makes_up_for_the_bias_that_is_corrected() -> None:
    """Inputs saturate, so sums have another mean than the float model's: that bias is rounded, not the model's."""
    net = Net(10)
    net.input("x", 1, 8, 8, 6)
    net.conv("x", "y", 12, b=np.zeros(12))
    graph = on_grids(net.graph("y"), x=(8, -6), y=(8, 0))
    rng = np.random.default_rng(10)
    images = [{"x": rng.uniform(1, 3, (1, 8, 8, 6)).astype(np.float32)} for _ in range(4)]
    seen, wanted = evidence(graph, images), floats(graph, "y", images).mean(axis=(0, 1, 2))

    def worst(gptq: bool) -> float:
        made = integer(graph, Rounding(gptq=gptq), seen)
        return float(np.abs(results(made, "y", images).mean(axis=(0, 1, 2)) - wanted).max())

    assert worst(False) > 0.3
    assert worst(True) < 0.15


@pytest.mark.parametrize("activation", ["clamp", "table"])
def test_in_front_of_an_activation_the_float_bias_is_rounded(activation: str) -> None:
    """Weights are those without correction, as an activation would remove a part of the mean."""
    net = Net(10)
    net.input("x", 1, 8, 8, 6)
    net.conv("x", "h", 12, b=np.zeros(12), clamp=RELU if activation == "clamp" else None)
    if activation == "table":
        net.op("lookup", "h", "y", function="silu")
    else:
        net.conv("h", "y", 1)
    graph = on_grids(net.graph("y"), x=(8, -6), h=(8, 0), y=(8, 0))
    images = [{"x": np.random.default_rng(10).uniform(1, 3, (1, 8, 8, 6)).astype(np.float32)}]
    seen = evidence(graph, images)
    corrected, plain = (integer(graph, Rounding(bias_correction=how), seen)["n_h.weight"].data for how in (True, False))
    same = (corrected == plain).reshape(12, -1).all(axis=1)
    nearest = integer(graph, PLAIN, seen)["n_h.weight"].data
    kept = (corrected != nearest).reshape(12, -1).any(axis=1)
    assert kept.any()
    assert same[kept].all()


def test_gptq_is_kept_only_where_the_error_falls() -> None:
    graph, images = wide_layer()
    seen = evidence(graph, images)
    nearest, chosen = integer(graph, PLAIN, seen), integer(graph, Rounding(), seen)
    before, after = channel_errors(graph, nearest, images), channel_errors(graph, chosen, images)
    assert (after <= before * (1 + 1e-6)).all()  # float32 sums of the rows
    assert after.mean() < 0.9 * before.mean()
    changed = (nearest["n_y.weight"].data != chosen["n_y.weight"].data).reshape(24, -1).any(axis=1)
    assert changed.any()
    assert (after[changed] < before[changed]).all()
    assert np.array_equal(bias_of(nearest)[~changed], bias_of(chosen)[~changed])


def test_columns_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moments have at most COLUMNS_MAX columns; errors still fall, if less, and all columns were rounded."""
    graph, images = wide_layer()
    seen = evidence(graph, images)
    nearest, whole = integer(graph, PLAIN, seen), integer(graph, Rounding(), seen)
    sizes = []
    real = quantize.second_moment

    def seen_moment(rows: np.ndarray, moment: np.ndarray, *lock: Any) -> None:
        sizes.append(moment.shape[1] - 1)
        real(rows, moment, *lock)

    monkeypatch.setattr(quantize, "second_moment", seen_moment)
    monkeypatch.setattr(quantize, "COLUMNS_MAX", 20)
    parts = integer(graph, Rounding(), seen)
    assert sizes == [18, 18, 18]  # 3x3 pixels of 6 channels
    before, after, best = (channel_errors(graph, made, images) for made in (nearest, parts, whole))
    assert (after <= before * (1 + 1e-6)).all()
    assert 0.999 * best.mean() <= after.mean() < 0.95 * before.mean()
    columns = (parts["n_y.weight"].data != nearest["n_y.weight"].data).reshape(24, -1).any(axis=0)
    assert all(part.any() for part in np.split(columns, 3))


def test_bad_rounding_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly the channels that get worse stay as they were."""
    graph, images = wide_layer()
    seen = evidence(graph, images)
    nearest, good = integer(graph, PLAIN, seen), integer(graph, Rounding(), seen)
    real = quantize.round_weights

    def half(*arguments: object) -> np.ndarray:
        q = real(*arguments)
        q[:, ::2] = 0
        return q

    monkeypatch.setattr(quantize, "round_weights", half)
    mixed = integer(graph, Rounding(), seen)
    for name in ("n_y.weight", "n_y.bias"):
        assert np.array_equal(mixed[name].data[::2], nearest[name].data[::2])
        assert np.array_equal(mixed[name].data[1::2], good[name].data[1::2])


def test_each_layer_sees_what_the_ones_before_it_made() -> None:
    """The first layer saturates; the second, fitted on its integers, makes up for the lost mean."""
    net = Net(8)
    net.input("x", 1, 8, 8, 1)
    net.conv("x", "a", 1, w=1.0, b=[0.0])
    net.conv("a", "y", 1, w=1.0, b=[0.0])
    graph = on_grids(net.graph("y"), x=(8, -4), a=(8, -7), y=(16, -8))
    images = [{"x": np.full((1, 8, 8, 1), 2.0, np.float32) + np.eye(8, dtype=np.float32)[None, :, :, None]}]
    made = integer(graph, PLAIN, evidence(graph, images))
    # 1/128 below 1 is all that a holds; the float mean of y is 2.125.
    assert results(made, "a", images).max() == 127 / 128
    assert results(made, "y", images).mean() == pytest.approx(2.125, abs=2**-8)


def test_padding_beyond_the_producers_relu() -> None:
    net = Net(9)
    net.input("x", 1, 4, 4, 2)
    net.conv("x", "a", 2, clamp=RELU)
    net.conv("a", "y", 2, 3, pad=[-1.0, 2.25])
    graph = net.graph("y")
    made = integer(on_grids(graph, x=(8, -4), a=(8, -4), y=(8, -3)), PLAIN)
    pad = made["n_y.pad"]
    assert (made["a"].quant.lo, pad.data.tolist(), pad.dtype) == (0, [-16, 36], "int8")
    assert (pad.quant.lo, pad.quant.exponents) == (-128, (-4,))
    images = feeds(graph)
    assert np.abs(results(made, "y", images) - floats(graph, "y", images)).max() < 3 * 0.125


def test_unused_float_constants_are_gone() -> None:
    graph, images = of_images(deep(None))
    made = quantize.run(graph, PLAIN, evidence(graph, images))
    assert all(v.quant is not None and v.dtype != "float32" for v in made.values.values())
    assert [node.name for node in made.nodes] == [node.name for node in graph.nodes]


def test_the_same_twice() -> None:
    graph, images = of_images(deep(RELU))
    first, second = (integer(graph, Rounding(), evidence(graph, images)) for _ in range(2))
    for name, value in first.values.items():
        if value.data is not None:
            assert np.array_equal(value.data, second[name].data)
