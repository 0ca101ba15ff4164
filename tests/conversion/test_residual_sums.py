"""Streams of residual sums: they do not drift, and one that ends in an output has an origin all the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from float_nets import RELU, evidence, feeds, in_bits, observed
from nets import Net

from nmpconv.base.sqnr import sqnr_db
from nmpconv.calib.activation_cache import SUMS, integers, residual_sums, sampled_nodes
from nmpconv.calib.engine import FloatEngine
from nmpconv.conversion import decision
from nmpconv.conversion.decision import _recipes
from nmpconv.conversion.options import Options
from nmpconv.conversion.quantizer import HELD_OUT, Fitter, Recipe
from nmpconv.graph.reference import run
from nmpconv.graph.trace import Trace
from nmpconv.ir import Graph
from nmpconv.ops import WEIGHTED
from nmpconv.passes.quantize.exponents import Method
from nmpconv.passes.quantize.residual_sums import wanted_rows
from nmpconv.passes.quantize.rounding import Rounding

BLOCKS = 14
STEPS = 0.25  # of the stream's grid: what a sum rounded half up adds where one bit is lost


def stream(blocks: int = BLOCKS, order: str = "{before} {block}") -> Graph:
    """y <- relu(y + conv(relu(conv(y)))), by the seventh block in more channels, then a layer."""
    net = Net(5)
    rng, channels, before = net.rng, 8, "s0"
    net.input("x", 1, 8, 8, 3)

    def conv(x: str, y: str, inputs: int, scale: float, kernel: int = 3, **more: object) -> None:
        weights = rng.normal(0, scale / np.sqrt(kernel * kernel * inputs), (channels, kernel, kernel, inputs))
        net.conv(x, y, channels, kernel, w=weights, **more)

    conv("x", "s0", 3, 3.0, clamp=RELU)
    for i in range(blocks):
        inputs, beside = channels, before
        if i == blocks // 2:
            channels, beside = 12, f"p{i}"
            conv(before, f"p{i}", inputs, 1.2, kernel=1)
        conv(before, f"a{i}", inputs, 0.6, clamp=RELU)
        conv(f"a{i}", f"b{i}", channels, 0.6)
        before = net.op("add", order.format(before=beside, block=f"b{i}"), f"s{i + 1}", RELU)
    conv(before, "y", channels, 1.0)
    return net.graph("y")


def errors(graph: Graph, names: Sequence[str], rounding: Rounding) -> dict[str, tuple[np.ndarray, np.ndarray, float]]:
    """Float values of each tensor, what is made of them [N, ...], and the step, on images nothing was fitted to."""
    images, test = feeds(graph, 16), feeds(graph, 8, seed=7)
    fitter = Fitter(graph, observed(graph, images), in_bits(graph, 8, y=16), Method(), rounding, images)
    prepared = fitter.prepare("none", images, Trace())
    made = fitter.quantize(prepared, False, Trace())
    inputs = {"x": integers(np.concatenate([image["x"] for image in test]), made["x"])}
    got = run(made, inputs, keep=names)
    engine = FloatEngine(graph, list(names))
    floats = [engine.run(image) for image in test]
    found = {}
    for name in names:
        step = 2.0 ** made[name].quant.exponent
        found[name] = np.concatenate([one[name] for one in floats]), got[name] * step + made[name].origin, step
    return found


@pytest.mark.parametrize("order", ["{before} {block}", "{block} {before}"])
def test_streams_do_not_drift(order: str) -> None:
    """Each sum moved the stream by about STEPS, of which only the next layer's biases took any notice."""
    last = f"s{BLOCKS}"
    wanted, got, step = errors(stream(order=order), [last], Rounding(gptq=False))[last]
    assert abs((got - wanted).mean()) < STEPS * step
    by_channel = (got - wanted).mean(axis=(0, 1, 2)) / step
    assert abs(by_channel).max() < 1.5
    assert sqnr_db(wanted, got) > 27


def test_the_other_operand_s_noise_is_no_factor() -> None:
    """A layer in a stream makes up for it; weights that were amplified for it gave 1.6 dB less."""
    last, graph = f"s{BLOCKS}", stream()
    pairs = [errors(graph, [last], Rounding(gptq=False, amplify=how))[last][:2] for how in (False, True)]
    plain, amplified = (sqnr_db(*pair) for pair in pairs)
    assert amplified > plain - 0.2


def test_without_correction_they_do() -> None:
    """The other test can fail."""
    last = f"s{BLOCKS}"
    wanted, got, step = errors(stream(), [last], Rounding(gptq=False, bias_correction=False))[last]
    assert (got - wanted).mean() > STEPS * step


def test_only_long_streams_are_corrected() -> None:
    """A layer in front of the stream begins it anew."""
    graph = stream()
    turn = BLOCKS // 2
    late = [*range(SUMS, turn), *range(turn + SUMS, BLOCKS)]
    assert {name: add.outputs[0] for name, add in residual_sums(graph).items()} == {f"b{i}": f"s{i + 1}" for i in late}
    names = {node.outputs[0] for node in graph.nodes if node.op in WEIGHTED}
    assert {node.outputs[0] for node in sampled_nodes(graph, WEIGHTED)} == names | {
        add.outputs[0] for add in residual_sums(graph, 0).values()
    }


@pytest.mark.parametrize(("blocks", "bits", "more"), [(BLOCKS, 8, 1), (8, 8, 0), (BLOCKS, 16, 0)])
def test_long_streams_of_int8_have_a_recipe_more(blocks: int, bits: int, more: int) -> None:
    graph = stream(blocks)
    images = feeds(graph, 1)
    fitter = Fitter(graph, observed(graph, images), in_bits(graph, bits, y=16), Method(), Rounding(), images)
    recipes = _recipes(Options(), fitter)
    assert recipes[6:] == [Recipe("streams", True)] * more
    assert len(_recipes(Options(equalize="vector"), fitter)) == 2


@pytest.mark.parametrize(
    ("most", "compete"),
    [(4, "none scalar vector streams"), (3, "none scalar vector"), (2, "scalar vector"), (1, "scalar"), (0, "scalar")],
)
def test_few_equalizations_compete_in_large_nets(most: int, compete: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = stream()
    images = feeds(graph, HELD_OUT)
    fitter = Fitter(graph, observed(graph, images), in_bits(graph, 8, y=16), Method(), Rounding(), images)
    monkeypatch.setattr(decision, "COMPETING_NODES", most * len(graph.nodes))
    assert [*dict.fromkeys(recipe.equalize for recipe in _recipes(Options(), fitter))] == compete.split()
    assert {recipe.gptq for recipe in _recipes(Options(), fitter)} == {False, True}
    assert len(_recipes(Options(equalize="vector"), fitter)) == 2
    assert len(_recipes(Options(fast=True), fitter)) == 1
    assert _recipes(Options(), fitter.without_images())[0].equalize == "none"


def test_what_is_wanted_is_the_sum_less_the_other_operand() -> None:
    graph = stream(2 * SUMS + 3)
    images = feeds(graph, 4)
    seen = evidence(graph, images)
    fitter = Fitter(graph, observed(graph, images), in_bits(graph, 8, y=16), Method(), Rounding(), images, False)
    ranged = fitter.prepare("none", images, Trace()).ranged
    beside = f"s{SUMS}"
    sums = residual_sums(ranged)
    node = ranged.producers()[f"b{SUMS}"]
    plain = wanted_rows(ranged, node, sums, {}, seen)
    assert plain is not None
    assert np.array_equal(plain.values, seen.rows[f"b{SUMS}"].values)
    grid = ranged[beside].quant
    exact = np.concatenate([FloatEngine(graph, [beside]).run(image)[beside] for image in images])
    moved = integers(exact, ranged[beside]) + np.int8(0)
    drift = 2.0 ** (min(grid.exponent, ranged[f"b{SUMS}"].quant.exponent) - 1)
    assert ranged[f"s{SUMS + 1}"].quant.exponent > min(grid.exponent, ranged[f"b{SUMS}"].quant.exponent)
    rows = wanted_rows(ranged, node, sums, {beside: moved}, seen)
    assert rows is not None
    left = (exact - moved * 2.0**grid.exponent).reshape(4, -1, exact.shape[-1])[rows.images, rows.positions]
    np.testing.assert_allclose(rows.values, plain.values + left - drift, atol=1e-4)


def test_a_stream_that_ends_in_an_output_has_an_origin() -> None:
    """The last layer pays for it; the whole stream was symmetric before, at half the levels."""
    graph = replace(stream(), outputs=(f"s{BLOCKS}",))
    graph = replace(graph, nodes=tuple(node for node in graph.nodes if node.outputs[0] != "y"))
    images = feeds(graph, 16)
    widths = in_bits(graph, 8, **{f"s{BLOCKS}": 16})
    fitter = Fitter(graph, observed(graph, images), widths, Method(), Rounding(), images)
    ranged = fitter.prepare("none", images, Trace()).ranged
    turn = BLOCKS // 2
    assert all(ranged[f"s{i}"].origin > 0 for i in range(turn + 1, BLOCKS))
    assert ranged[f"b{BLOCKS - 1}"].origin == -ranged[f"s{BLOCKS - 1}"].origin
    assert all(ranged[f"b{i}"].origin == 0 for i in range(BLOCKS - 1) if i != turn)
    assert ranged[f"s{BLOCKS}"].origin == 0
