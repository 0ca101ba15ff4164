"""Biases against every bias there is, and the other framework's rule against ours where both are exact."""

from __future__ import annotations

import numpy as np
import pytest
from float_nets import RELU, evidence, integer, on_grids
from nets import Net

from nmpconv.base.fixed_point import rsh
from nmpconv.calib.engine import FloatEngine
from nmpconv.graph.reference import run
from nmpconv.ir import Graph, Quant
from nmpconv.passes.quantize import bias_rule, rounding
from nmpconv.passes.quantize.bias import missing_factor, on_accumulator_grid, on_output_grid
from nmpconv.passes.quantize.rounding import Rounding

OUTS = 12
FREE = Quant(8, (0,), -128, 127)
POSITIVE = Quant(8, (0,), 0, 127)


class Case:
    """Sums, and what they should have been in output steps: another scale, an offset, noise."""

    def __init__(self, seed: int, y: Quant, shift: int = 6, rows: int = 1500) -> None:
        rng = np.random.default_rng(seed)
        self.y, self.shift = y, np.full(OUTS, shift) + np.arange(OUTS) % 3
        self.target = rng.normal(rng.uniform(2, 30, OUTS), 12, (rows, OUTS)).astype(np.float32)
        wrong = self.target * rng.uniform(0.97, 1.03, OUTS) - rng.uniform(-15, 15, OUTS)
        self.sums = np.floor(np.ldexp(wrong + rng.normal(0, 0.3, wrong.shape), self.shift)).astype(np.int64)
        self.goal = np.clip(self.target, y.lo, y.hi)

    def error(self, out: np.ndarray) -> np.ndarray:
        return np.square(np.clip(out, self.y.lo, self.y.hi) - self.goal).mean(axis=0)


@pytest.mark.parametrize("y", [FREE, POSITIVE], ids=["linear", "relu"])
@pytest.mark.parametrize("seed", range(4))
def test_on_output_grid(seed: int, y: Quant) -> None:
    case = Case(seed, y)
    tried = np.arange(-60, 61)
    errors = np.array([case.error(rsh(case.sums, case.shift) + b) for b in tried])
    bias, error = on_output_grid(case.sums, case.shift, case.target, (y.lo, y.hi), y)
    np.testing.assert_allclose(error, case.error(rsh(case.sums, case.shift) + bias))
    np.testing.assert_allclose(error, errors.min(axis=0), rtol=1e-9)
    assert np.array_equal(bias, tried[errors.argmin(axis=0)])
    assert len(set(bias.tolist())) > 5


@pytest.mark.parametrize("y", [FREE, POSITIVE], ids=["linear", "relu"])
@pytest.mark.parametrize("seed", range(4))
def test_on_accumulator_grid(seed: int, y: Quant) -> None:
    """It tries only a few of the 2^shift biases of a step: close to the best one, and better than the output's grid."""
    case = Case(seed, y, shift=3, rows=500)
    bias, error = on_accumulator_grid(case.sums, case.shift, case.target, (y.lo, y.hi), y)
    np.testing.assert_allclose(error, case.error(rsh(case.sums + bias, case.shift)))
    errors = np.array([case.error(rsh(case.sums + b, case.shift)) for b in range(-600, 601)])
    assert (error >= errors.min(axis=0) - 1e-12).all()
    np.testing.assert_allclose(error, errors.min(axis=0), rtol=0.25, atol=0.06)
    _, coarse = on_output_grid(case.sums, case.shift, case.target, (y.lo, y.hi), y)
    assert error.mean() <= coarse.mean()


def test_a_neighbour_wins_where_saturation_hides_the_mean() -> None:
    """Most of what is below 0 does not count, so the mean over all is no good bias."""
    rng = np.random.default_rng(9)
    target = rng.normal(-2, 8, (4000, 1)).astype(np.float32)
    sums = np.floor(np.where(target < 0, target - 0.9, target) * 16).astype(np.int64)
    goal, shift = np.clip(target, 0, 127), np.array([4])
    bias, error = on_output_grid(sums, shift, target, (0, 127), POSITIVE)
    mean = int(np.floor((target - sums / 16).mean() + 0.5))
    plain = np.square(np.clip(rsh(sums, shift) + mean, 0, 127) - goal).mean()
    assert bias[0] == 0 != mean
    assert error[0] < plain


def layer(bias: list[float], *, wide: bool) -> Graph:
    """Weights k * 2^-7 and integer inputs: the integer sums are the float sums. wide: an exact layer before it."""
    net = Net(7)
    net.input("x", 1, 6, 6, 2)
    before = "x"
    if wide:
        before = net.conv("x", "a", 2, w=[[127, -3], [5, 101]] / np.float32(128), b=[0.5, -2.0], clamp=RELU)
    w = net.rng.integers(-127, 128, (4, 3, 3, 2))
    w[:, 0, 0, 0] = 127
    net.conv(before, "y", 4, 3, w=w / 128, b=bias, clamp=(-40.0, 500.0))
    return net.graph("y")


@pytest.mark.parametrize("wide", [False, True])
def test_both_rules_agree_where_biases_are_exact(wide: bool) -> None:
    graph = layer([8.0, -16.0, 0.0, 48.0], wide=wide)
    rng = np.random.default_rng(8)
    images = [{"x": rng.integers(-60, 61, (1, 6, 6, 2)).astype(np.float32)} for _ in range(4)]
    grids = {"x": (8, 0), "y": (8, 3)} | ({"a": (16, -7)} if wide else {})
    ranged = on_grids(graph, **grids)
    seen = evidence(ranged, images)
    made = integer(ranged, Rounding(gptq=False), seen)
    last = made.nodes[-1].inputs[2]
    assert made[last].data.tolist() == [1, -2, 0, 6]
    ours = run(made, {"x": seen.inputs["x"].astype(np.int8)}, keep=["y"])["y"]
    theirs = bias_rule.outputs(made, seen, ["y"])
    assert list(theirs) == ["y"]
    assert np.array_equal(theirs["y"], ours)
    assert theirs["y"].dtype == ours.dtype
    assert (ours.min(), len(np.unique(ours)) > 20) == (-5, True)


def test_what_is_0_stays_0_at_16_bits_where_a_layer_has_no_bias() -> None:
    """One step made 0.3 of it behind a normalization. 70.7 is 70.3 with rounded weights, so a step more is better."""
    net = Net(1)
    net.input("x", 1, 6, 6, 1)
    net.conv("x", "y", 3, w=np.full(3, 0.707), b=[0.0, 0.01, 20.0])
    images = [{"x": np.where(np.arange(36) < 4, 0, 100).reshape(1, 6, 6, 1).astype(np.float32)}]
    found = {}
    for bits in (8, 16):
        ranged = on_grids(net.graph("y"), x=(8, 0), y=(bits, 0))
        made = integer(ranged, Rounding(gptq=False), evidence(ranged, images))
        found[bits] = made[made.nodes[-1].inputs[2]].data.tolist()
    assert found == {8: [1, 1, 21], 16: [0, 1, 21]}


def test_one_large_error_gives_no_bias_to_a_layer_without_one_at_16_bits() -> None:
    """1 of 36 values saturates the input, by 73: 73 / 36 is 2 on average, and takes away a 36th of the error."""
    net = Net(1)
    net.input("x", 1, 6, 6, 1)
    net.conv("x", "y", 2, w=np.ones(2), b=[0.0, 20.0])
    images = [{"x": np.where(np.arange(36) < 35, 50, 200).reshape(1, 6, 6, 1).astype(np.float32)}]
    ranged = on_grids(net.graph("y"), x=(8, 0), y=(16, 0))
    made = integer(ranged, Rounding(gptq=False), evidence(ranged, images))
    assert made[made.nodes[-1].inputs[2]].data.tolist() == [0, 22]


def test_the_other_rule_is_not_ours_where_they_are_not() -> None:
    graph = layer([3.5, -13.0, 4.4, 48.0], wide=False)
    rng = np.random.default_rng(8)
    images = [{"x": rng.integers(-60, 61, (1, 6, 6, 2)).astype(np.float32)} for _ in range(4)]
    ranged = on_grids(graph, x=(8, 0), y=(8, 3))
    seen = evidence(ranged, images)
    made = integer(ranged, Rounding(gptq=False), seen)
    ours = run(made, {"x": seen.inputs["x"].astype(np.int8)})["y"]
    theirs = bias_rule.outputs(made, seen, ["y"])["y"]
    exact = np.ldexp(np.concatenate([r["y"] for r in _float(graph, images)]), -3)
    assert np.square(theirs - exact).mean() < np.square(ours - exact).mean()


def _float(graph: Graph, images: list) -> list:
    engine = FloatEngine(graph, graph.outputs)
    return [engine.run(image) for image in images]


@pytest.mark.parametrize("weakened", [0.93, 1.0, 1.05])
def test_missing_factor(weakened: float) -> None:
    """Differences that are all weaker by one factor, beside noise that is as large; a mean is no matter."""
    rng = np.random.default_rng(5)
    wanted = rng.normal(7, 1, (500, OUTS)).astype(np.float32)
    got = weakened * wanted.astype(np.float64) + rng.normal(3, 0.07, wanted.shape)
    assert missing_factor(got, wanted) == (1.0 if weakened == 1 else pytest.approx(1 / weakened, rel=0.01))


def test_no_factor_by_chance() -> None:
    """In 16 numbers a tenth of the noise looks like a factor. What is silent, turned around or far off has none."""
    wanted, noise = np.array([[1.0], [-1.0]] * 8), np.array([[0.1], [0.1], [-0.1], [-0.1]] * 4)
    got = wanted * 0.965 + noise
    assert missing_factor(got, wanted) == 1.0
    assert missing_factor(np.tile(got, (20, 1)), np.tile(wanted, (20, 1))) == pytest.approx(1 / 0.965)
    for factor in (0.0, -1.0, 0.5, 2.0):
        assert missing_factor(factor * wanted, wanted) == 1.0


def test_weights_make_up_for_what_is_weakened(monkeypatch: pytest.MonkeyPatch) -> None:
    """An input of +-70 saturates at -64 and 63.5; on a grid that holds it, and unasked, the weights are the float
    ones. What a layer sees is gathered once."""
    gathered, gather = list[str](), rounding.gather
    monkeypatch.setattr(rounding, "gather", lambda *of: gathered.append(of[1].name) or gather(*of))
    net = Net(1)
    net.input("x", 1, 1, 8, 8)
    net.conv("x", "y", 4)
    rng = np.random.default_rng(3)
    images = [{"x": 70 * rng.choice([-1.0, 1.0], (1, 1, 8, 8)).astype(np.float32)} for _ in range(16)]
    found = {}
    for exponent, amplify in ((-1, True), (0, True), (-1, None)):
        ranged = on_grids(net.graph("y"), x=(8, exponent), y=(16, -4))
        made = integer(ranged, Rounding(gptq=False, amplify=amplify), evidence(ranged, images))
        weight = made[made.nodes[-1].inputs[1]]
        steps = np.ldexp(1.0, weight.quant.exponents)[:, None, None, None]
        found[exponent, amplify] = np.linalg.norm(weight.data * steps)
    assert found[-1, True] / found[0, True] == pytest.approx(70 / 63.75, rel=0.03)  # the largest weights saturate
    assert found[-1, None] == found[0, True]
    assert len(gathered) == 3
