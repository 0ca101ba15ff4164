"""Origins: the float function stays, whatever they are; where they pay, who keeps 0, and what integers make of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from float_nets import RELU, RELU6, Feed, evidence, feeds, in_bits, integer, observed, residual
from nets import Net

from nmpconv.base.sqnr import sqnr_db
from nmpconv.calib.activation_cache import Evidence
from nmpconv.calib.engine import FloatEngine
from nmpconv.calib.exponent_search import Rounded, expected_sqnr_db
from nmpconv.calib.histogram import HALF
from nmpconv.calib.observers import TensorStats
from nmpconv.calib.offset import less
from nmpconv.conversion.pipeline import Options, Result, convert, plan
from nmpconv.conversion.quantizer import Fitter
from nmpconv.conversion.validation import integer_outputs
from nmpconv.errors import InputError
from nmpconv.graph.trace import Trace
from nmpconv.graph.verify import verify
from nmpconv.ir import Given, Graph
from nmpconv.ops.common.interpolation import coordinates, linear, table
from nmpconv.ops.mul_offset import OFFSET_MAX
from nmpconv.passes.quantize import drop_channels, exponents, legalize, offsets
from nmpconv.passes.quantize.exponents import Method
from nmpconv.passes.quantize.overrides import Choices, Said
from nmpconv.passes.quantize.rounding import Rounding
from nmpconv.passes.quantize.rounding import run as rounded

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "frontend"))

from onnx_text import build

EXACT_DB = 100.0


def stored(graph: Graph, seed: int = 0) -> Graph:
    """With a random number, about as large as the tensors, for all that is free."""
    stats = observed(graph, feeds(graph))
    rows = offsets.free(graph, stats)
    rng = np.random.default_rng(seed)
    numbers = {name: float(rng.normal(0, stats[name].peak)) for row in rows.values() for name in row}
    found = {name: sum(share * numbers[n] for n, share in row.items()) for name, row in rows.items()}
    after = offsets.store(graph, found)
    verify(after, "FLOAT", "origins")
    return after


def exactness(graph: Graph, after: Graph) -> float:
    """dB of the activations of one float graph, and their origins, against the other one's: of the worst."""
    names = [value.name for value in graph.activations()]
    before, engine = FloatEngine(graph, names), FloatEngine(after, names)
    worst = np.inf
    for feed in feeds(graph, 3, seed=9):
        wanted, found = before.run(feed), engine.run(feed)
        worst = min(worst, *(sqnr_db(wanted[n], found[n].astype(np.float64) + after[n].origin) for n in names))
    return float(worst)


def accuracy(graph: Graph, after: Graph, images: Sequence[Feed]) -> float:
    """SQNR in dB of the output y of an integer graph."""
    wanted = np.concatenate([FloatEngine(graph, ["y"]).run(image)["y"] for image in images])
    return sqnr_db(wanted, integer_outputs(after, images, ["y"])["y"])


def layers() -> Net:
    net = Net(5)
    net.input("x", 1, 6, 6, 3)
    net.conv("x", "r", 4, 3, clamp=RELU)
    return net


def gated() -> Net:
    """r times a factor for each channel is p."""
    net = layers()
    net.op("average_pool", "r", "m", kernel_h=6, kernel_w=6)
    net.conv("m", "u", 4)
    net.op("lookup", "u", "g", function="sigmoid")
    net.op("mul", "r g", "p", RELU)
    return net


def product() -> Graph:
    net = gated()
    net.conv("p", "y", 3)
    return net.graph("y")


def every_row() -> dict[str, Graph]:
    """A net for each row of the table of ops: what it reads has an origin, and so has what it makes, where it may."""
    nets = {}

    def end(name: str, net: Net, x: str, *free: str) -> None:
        net.conv(x, "y", 3) if len(net.values[x].shape) == 4 else net.dense(x, "y", 3)
        graph = net.graph("y")
        assert {*free} <= {*offsets.free(graph, observed(graph, feeds(graph)))}, name
        nets[name] = graph

    net = layers()
    net.conv("r", "a", 4, 3, clamp=RELU6)
    net.conv("a", "b", 8, 3, groups=4, clamp=RELU, pad_bottom=2)
    net.conv("b", "c", 6, 3, groups=2, pad=np.linspace(-1, 1, 8), stride_h=2, stride_w=2)
    end("conv2d", net, "c", "r", "a", "b", "c")
    net = layers()
    net.op("reshape", "r", "v", shape=(1, 144))
    net.dense("v", "d", 5, clamp=RELU)
    end("fully_connected", net, "d", "r", "v", "d")
    for name, sides, who in (("spread", {"stride_h": 2, "pad_top": 1}, "t"), ("dense", {}, "rt")):
        net = layers()
        net.const("t.w", net.rng.normal(0, 1, (4, 2, 2, 4)))
        net.const("t.b", net.rng.normal(0, 1, 4))
        net.op("conv_transpose", "r t.w t.b", "t", RELU, **sides)
        end(f"conv_transpose, {name}", net, "t", *who)
    net = layers()
    net.op("lookup", "r", "l", function="silu", alpha=0.0, before=2.0, after=0.5)
    end("lookup", net, "l", "r", "l")
    net = layers()
    net.op("max_pool", "r", "m", kernel_h=3, kernel_w=3, pad_top=1, pad_left=1)
    net.op("average_pool", "m", "p", kernel_h=2, kernel_w=2, pad_top=1, pad_left=1)
    net.const("v", [1.5])
    net.op("pad", "p v", "b", pads=(0, 0, 1, 0, 0, 2, 0, 0))
    net.op("requantize", "b", "q", (0.25, 1.0))
    end("pools and pad", net, "q", "r", "m", "p", "b", "q")
    net = layers()
    net.op("average_pool", "r", "p", kernel_h=3, kernel_w=2, pad_top=1, pad_bottom=2, pad_right=1, count_include_pad=1)
    net.op("average_pool", "p", "q", kernel_h=2, kernel_w=2, stride_h=2, pad_left=1, count_include_pad=1)
    end("counted padding", net, "q", "r", "p", "q")
    net = layers()
    net.conv("x", "o", 4, clamp=RELU)
    net.op("transpose", "r", "t", perm=(0, 2, 1, 3))
    net.op("slice", "o", "s", starts=(0, 5, 0, 0), steps=(1, -1, 1, 1), sizes=(1, 6, 6, 4))
    net.op("gather", "s", "g", axis=1, index=(5, 5, 4, 3, 2, 0))
    net.const("k", np.ones((1, 6, 6, 1)))
    net.op("concat", "t k g", "c", axis=3)
    end("moves", net, "c", "r", "o", "t", "s", "g", "c")
    net = layers()
    net.conv("x", "o", 4, clamp=RELU)
    net.const("k", net.rng.normal(0, 1, (1, 1, 1, 4)))
    net.op("minimum", "r o", "a")
    net.op("maximum", "a k", "b")
    net.op("add", "r b", "s", RELU6)
    net.op("sub", "s o", "d")
    net.op("add", "k d", "e")
    net.op("sub", "k e", "f", RELU)
    net.op("sub", "f k", "g")
    end("pairs", net, "g", *"roabsdefg")
    net = layers()
    taps, places, weights = table(linear(coordinates("half_pixel", 6, 9, 1.5), 6))
    sides = {"rows": places, "columns": places, "row_weights": weights, "column_weights": weights}
    net.op("resize", "r", "z", taps_h=taps, taps_w=taps, **sides)
    end("resize", net, "z", "r", "z")
    net = gated()
    end("products", net, "p", "r", "p")
    return nets


ROWS = every_row()


@pytest.mark.parametrize("name", ROWS)
def test_the_float_function_stays(name: str) -> None:
    after = stored(ROWS[name])
    assert any(value.origin for value in after.activations())
    assert exactness(ROWS[name], after) >= EXACT_DB


def test_exactness_can_fail() -> None:
    graph = ROWS["conv2d"]
    after = stored(graph)
    node = after.nodes[1]
    bias = after[node.inputs[2]]
    wrong = after.with_values(replace(bias, data=bias.data * np.float32(1.001)))
    assert exactness(graph, wrong) < 80


@pytest.mark.parametrize("op", ["mul", "mul by a constant", "softmax", "lrn"])
def test_who_needs_zero(op: str) -> None:
    net = layers()
    params = {"softmax": {"axis": 3}, "lrn": {"size": 3}}.get(op, {})
    net.const("k", [2.0])
    op, _, by = op.partition(" ")
    net.op(op, f"r {'k' if by else 'r'}" if op == "mul" else "r", "z", **params)
    net.conv("z", "y", 3)
    graph = net.graph("y")
    assert offsets.free(graph, observed(graph, feeds(graph))) == {}


@pytest.mark.parametrize(("r", "p", "moved"), [(8, 8, "rp"), (8, 16, ""), (16, 8, ""), (16, 16, "")])
def test_products_of_int8_have_offsets(r: int, p: int, moved: str) -> None:
    graph = product()
    images = feeds(graph, 12)
    fitter = Fitter(graph, observed(graph, images), in_bits(graph, 8, r=r, p=p), Method(), Rounding(), images)
    prepared = fitter.prepare("none", images, Trace())
    assert {name for name in "rp" if prepared.ranged[name].origin} == {*moved}
    after = fitter.quantize(prepared, True, Trace())
    (node,) = (node for node in after.nodes if node.outputs == ("p",))
    steps = [after[name].origin * 2.0 ** (6 - after[name].quant.exponent) for name in "rp"]
    assert node.op == ("mul_offset" if moved else "mul")
    assert not moved or np.abs(np.subtract([node.params.offset_a, -node.params.offset_y], steps)).max() <= 0.5
    assert accuracy(graph, after, feeds(graph, 12, seed=5)) > 25


def test_products_gain() -> None:
    """The grids of what a squeeze-excite multiplies are used whole."""
    graph = product()
    images, bits = feeds(graph, 24), in_bits(graph, 8, x=16, y=16, m=16, u=16, g=16)
    found = []
    for zero_points in (False, True):
        fitter = Fitter(graph, observed(graph, images), bits, Method(), Rounding(weight_bits=16), images, zero_points)
        after = fitter.quantize(fitter.prepare("scalar", images, Trace()), True, Trace())
        found.append(accuracy(graph, after, feeds(graph, 24, seed=5)))
    assert found[1] > found[0] + 1


def test_a_product_by_name_has_no_origin_at_16_bits() -> None:
    graph = product()
    stats, bits = observed(graph, feeds(graph)), in_bits(graph, 8, p=16)
    choices = Choices(tensors={"p": {"origin": Said(0.5, "line 1")}})
    ranged = exponents.run(*offsets.run(graph, stats, bits, choices), Method())
    with pytest.raises(InputError, match="takes up origins of int8 tensors alone, and 'p' has 16 bits"):
        rounded(ranged, Rounding(gptq=False), Evidence())


def test_offsets_that_do_not_fit_raise_exponents() -> None:
    """Numbers far from 0 that lie close to each other."""
    graph = product()
    after = offsets.store(graph, {"r": 2000.0})
    ranged = exponents.run(after, observed(after, feeds(after)), in_bits(after, 8), Method())
    nodes = rounded(legalize.run(ranged), Rounding(gptq=False), Evidence()).nodes
    (node,) = (node for node in nodes if node.op == "mul_offset")
    assert abs(node.params.offset_a) <= OFFSET_MAX


def test_ports_and_grids_of_their_own_keep_zero() -> None:
    net = Net()
    net.input("x", 1, 4, 4, 3)
    net.op("max_pool", "x", "m", kernel_h=2, kernel_w=2)
    net.conv("m", "a", 3)
    net.op("lookup", "a", "s", function="sigmoid")
    net.conv("s", "y", 3, clamp=RELU)
    graph = net.graph("y")
    assert {*offsets.free(graph, observed(graph, feeds(graph)))} == {"a"}


def test_a_sum_that_is_an_output_ties_its_operands() -> None:
    net = layers()
    net.conv("x", "o", 4, clamp=RELU)
    net.op("add", "r o", "y")
    graph = net.graph("y")
    rows = offsets.free(graph, observed(graph, feeds(graph)))
    assert rows == {"r": {"r": 1.0}, "o": {"r": -1.0}}


def test_a_chain_of_residual_sums_takes_time_by_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each number moves all sums after it, and every candidate was measured on them all: hours for 400 blocks."""
    net = Net(3)
    net.input("x", 1, 4, 4, 2)
    before, count = "x", 80
    for i in range(count):
        net.conv(before, f"a{i}", 2, clamp=RELU)
        before = net.op("add", f"{before} a{i}", f"b{i}")
    graph, seen = net.graph(before), list[float]()
    monkeypatch.setattr(offsets, "_best_db", lambda stats, origins, function: seen.extend(origins) or 40 + 0 * origins)
    monkeypatch.setattr(offsets, "_free_numbers", lambda key, make: make())
    one_sided = TensorStats.of(np.linspace(0, 8, 100, dtype=np.float32)[:, np.newaxis])
    names = [value.name for value in graph.activations()]
    offsets.run(graph, dict.fromkeys(names, one_sided), dict.fromkeys(names, 8))
    assert 0 < len(seen) <= count * (offsets.CANDIDATES + 2) * offsets.TELLING


def test_a_tensor_with_a_grid_of_the_model_fills_its_type() -> None:
    """Its range is the model's, from 0, as of uint8; not 127 integers of it but 255."""
    net = layers()
    net.conv("r", "a", 4, 3, clamp=RELU)
    net.conv("a", "y", 3)
    graphs = [replace(net.graph("y"), given={"a": Given(0.03, 0, "uint8")}, faithful=keep) for keep in (False, True)]
    stored = [offsets.run(graph, observed(graph, feeds(graph)), in_bits(graph, 8))[0] for graph in graphs]
    assert [bool(graph["a"].origin) for graph in stored] == [True, False]


def test_wide_nets_keep_zero() -> None:
    graph = residual()
    stats = observed(graph, feeds(graph))
    assert offsets.run(graph, stats, in_bits(graph, 16))[0] == graph
    assert offsets.run(graph, stats, in_bits(graph, 8))[0] != graph


def test_zero_is_an_integer_of_the_grid() -> None:
    """The clip range of a Relu's result starts at that integer, which padding has, too."""
    net = layers()
    net.conv("r", "a", 4, 3, clamp=RELU)
    net.conv("a", "y", 3)
    graph = net.graph("y")
    images = feeds(graph)
    stats, bits = observed(graph, images), in_bits(graph, 8)
    ranged = exponents.run(*offsets.run(graph, stats, bits), Method())
    after = integer(ranged, Rounding(), evidence(ranged, images))
    for name, reader in (("r", "n_a"), ("a", "")):
        quant = after[name].quant
        assert quant.lo == -128 == -after[name].origin / 2.0**quant.exponent
        assert after[name].observed.min == 0 < after[name].observed.max
        if reader:
            (node,) = (n for n in after.nodes if n.name == reader)
            assert (after[node.inputs[3]].data == -128).all()


@pytest.mark.parametrize("strict", [False, True])
def test_one_sided_nets_gain(strict: bool) -> None:
    graph = residual()
    images = feeds(graph, 24)
    bits = in_bits(graph, 8) if strict else in_bits(graph, 8, x=16, y=16)
    found = []
    for zero_points in (False, True):
        fitter = Fitter(graph, observed(graph, images), bits, Method(), Rounding(), images, zero_points)
        prepared = fitter.prepare("scalar", images, Trace())
        assert any(v.origin for v in prepared.ranged.activations()) == zero_points
        found.append(accuracy(graph, fitter.quantize(prepared, True, Trace()), feeds(graph, 24, seed=5)))
    assert found[1] > found[0] + 1


def test_origins_and_factors_are_chosen_for_the_method() -> None:
    """Inputs that are exponentials of normal numbers, and so saturate."""
    graph = residual()
    images = [{"x": np.exp(0.7 * feed["x"])} for feed in feeds(graph, 24)]
    stats, bits = observed(graph, images), in_bits(graph, 8, x=16, y=16)
    plain, less = (Fitter(graph, stats, bits, Method(name), Rounding(), images) for name in ("mse", "mse4"))
    stored = [[v.origin for v in one.prepare("none", images, Trace()).ranged.activations()] for one in (plain, less)]
    assert stored[0] != stored[1]
    factors = [dict(one.prepare("scalar", images, Trace()).factors) for one in (plain, less)]
    assert factors[0] != factors[1]


def test_without_images_the_bias_has_the_sum_of_the_rounded_weights() -> None:
    """Per-tensor weights, and one so large that the others are hardly there: their sums are far from the float ones."""
    net = Net()
    net.input("x", 1, 8, 8, 2)
    net.conv("x", "r", 8, clamp=RELU)
    w = np.full((4, 1, 1, 8), 0.3)
    w[0, 0, 0, 0] = 100.0
    net.conv("r", "y", 4, w=w, b=np.zeros(4))
    graph = net.graph("y")
    images = feeds(graph)
    stats, bits = observed(graph, images), in_bits(graph, 8, x=16, y=16)
    quantized = []
    for before in (graph, offsets.run(graph, stats, bits)[0]):
        ranged = exponents.run(before, stats, bits, Method())
        quantized.append(rounded(ranged, Rounding(per_tensor=True, gptq=False), Evidence()))
    plain, moved = (accuracy(graph, after, images) for after in quantized)
    assert quantized[1]["r"].origin > 0
    assert moved > plain - 0.5


def test_dead_channels_are_found() -> None:
    """Behind a depthwise layer with padding, too: what is always 0 is always the same integer."""
    net = Net()
    net.input("x", 1, 8, 8, 3)
    b = np.where(np.arange(16) % 4, 0.3, -1e3)
    net.conv("x", "r", 16, 3, b=b, clamp=RELU)
    net.conv("r", "d", 16, 3, groups=16, clamp=RELU6, b=np.full(16, 0.2))
    net.conv("d", "y", 4)
    graph = net.graph("y")
    images = feeds(graph)
    stats, bits = observed(graph, images), in_bits(graph, 8)
    shapes = []
    for before in (graph, offsets.run(graph, stats, bits)[0]):
        ranged = exponents.run(before, stats, bits, Method())
        after = integer(ranged, Rounding(), evidence(ranged, images))
        slim = drop_channels.run(after)
        assert np.array_equal(*(integer_outputs(g, images, ["y"])["y"] for g in (after, slim)))
        shapes.append((slim["r"].shape[-1], slim["d"].shape[-1]))
    assert ranged["r"].origin > 0
    assert shapes[0] == shapes[1] == (12, 12)


def test_a_broken_fold_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = residual()
    images = feeds(graph)
    real = offsets.store

    def broken(graph: Graph, found: dict[str, float]) -> Graph:
        after = real(graph, found)
        name = after.nodes[1].inputs[2]
        return after.with_values(replace(after[name], data=after[name].data + np.float32(0.5)))

    monkeypatch.setattr(offsets, "store", broken)
    fitter = Fitter(graph, observed(graph, images), in_bits(graph, 8), Method(), Rounding(), images)
    made = fitter.prepare("none", images, Trace())
    assert made.float_graph == graph
    assert len(made.notes) == 1
    assert made.notes[0].startswith("zero points left out: ")


def test_statistics_less_an_origin() -> None:
    x = np.maximum(np.random.default_rng(0).normal(0, 1, (1000, 4)), 0).astype(np.float32)
    found, direct = less(TensorStats.of(x), 1.25), TensorStats.of(x - np.float32(1.25))
    assert (found.min, found.max, found.count) == pytest.approx((direct.min, direct.max, direct.count))
    assert found.mean == pytest.approx(direct.mean)
    assert found.histogram.exponent == direct.histogram.exponent
    assert found.histogram.total == direct.histogram.total
    cumulated, wanted = (np.cumsum(s.histogram.counts) for s in (found, direct))
    assert np.abs(cumulated - wanted).max() <= 40
    at = int(-1.25 / found.histogram.width) + HALF
    assert found.histogram.counts[at] >= (x == 0).sum()
    stats = TensorStats.of(x)
    assert less(stats, 0.0) is stats


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("origin", [0.0, 1.0, 1.03, -0.5])
@pytest.mark.parametrize("saturated", [1, 4])
def test_expected_error_is_the_real_one(bits: int, origin: float, saturated: int) -> None:
    x = np.maximum(np.random.default_rng(1).normal(0, 1, (20000, 2)), 0).astype(np.float32)
    step = 2.0 ** (-6 if bits == 8 else -13)
    exact = np.floor((x - origin) / step + 0.5)
    q = np.clip(exact, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    counts = np.where(q == exact, 1, saturated)
    real = 10 * np.log10(np.sum(x**2) / np.sum(counts * (x - q * step - origin) ** 2))
    rounded = Rounded(TensorStats.of(x), saturated)
    assert expected_sqnr_db(rounded, np.log2(step), bits, origin=origin) == pytest.approx(real, abs=0.3)


def converted(text: str, folder: Path, images: int, **options: object) -> Result:
    """A model of the ONNX text form on random images."""
    build(text, 13, folder / "m.onnx")
    np.save(folder / "x.npy", np.random.default_rng(5).normal(size=(max(images, 1), 3, 8, 8)).astype(np.float32))
    chosen = Options(**options)  # type: ignore[arg-type]
    data = {"": folder / "x.npy"}
    return convert(folder / "m.onnx", data, chosen, lambda *_: None) if images else plan(folder / "m.onnx", chosen)


CLIPPED = (
    "(float[1,3,8,8] x) => (y) <float[4,3,1,1] v, float[4] b, float[2,4,3,3] w, float lo = {3}, float hi = {6}> "
    "{ a = Conv(x, v, b) c = Clip(a, lo, hi) y = Conv(c, w) }"
)


@pytest.mark.parametrize("images", [0, 12])
def test_a_tensor_that_is_one_number(tmp_path: Path, images: int) -> None:
    """All of it is at one end of its clamp."""
    bias = "float[4] b = {500, 500, 500, 500}" if images else "float[4] b"
    made = converted(CLIPPED.replace("float[4] b", bias), tmp_path, images)
    assert made.report.quantized_nodes == made.report.total_nodes
    assert not images or min(made.report.sqnr_by_head.values()) > 40
