"""Errors of tables against their functions, over every input integer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nmpconv.base import fixed_point
from nmpconv.graph import reference
from nmpconv.ir import Quant, Value
from nmpconv.ops import OPS
from nmpconv.ops.common.case import Operand, grid, integers, single
from nmpconv.ops.common.function import FUNCTIONS, is_steep
from nmpconv.ops.lookup import LookupParams
from nmpconv.ops.lrn import LrnParams
from nmpconv.ops.normalize import NormalizeParams, spare_bits
from nmpconv.ops.softmax import SoftmaxParams

ALPHA, BETA = 0.25, 0.5


def looked_up(function: str, bits: int, e_x: int, y: Quant) -> tuple[np.ndarray, np.ndarray]:
    """The results for every integer and the exact ones, both in steps of y."""
    q = np.arange(fixed_point.INT_MIN[bits], fixed_point.INT_MAX[bits] + 1).astype(f"int{bits}")
    params = LookupParams(function, ALPHA, BETA)
    case = single(OPS["lookup"], function, params, [Operand(q[None], grid(bits, e_x))], y, quantize=True)
    got = reference.run(case.graph, {"x0": case.feeds[0]})["y"][0]
    exact = np.ldexp(FUNCTIONS[function](np.ldexp(q.astype(np.float64), e_x), ALPHA, BETA), -y.exponent)
    return got.astype(np.float64), np.clip(exact, y.lo, y.hi)


@pytest.mark.parametrize("y", [grid(8, -5), grid(8, -7), grid(16, -12)])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_int8_is_within_half_a_step(function: str, y: Quant) -> None:
    for e_x in (-8, -4, 0, 3):
        got, exact = looked_up(function, 8, e_x, y)
        assert np.abs(got - exact).max() <= 0.5 + 1e-9


def test_factors_around_a_function_are_in_its_table() -> None:
    q = np.arange(-128, 128).astype(np.int8)
    params = LookupParams("silu", before=0.4, after=3.0)
    case = single(OPS["lookup"], "factors", params, [Operand(q[None], grid(8, -3))], grid(16, -9), quantize=True)
    got = np.ldexp(reference.run(case.graph, {"x0": q[None]})["y"][0].astype(np.float64), -9)
    x = 0.4 * q / 8.0
    assert np.abs(got - 3.0 * x / (1 + np.exp(-x))).max() <= 2.0**-10 + 1e-12


# Bounds of |f''|; the kinks of these functions lie on samples of the table.
CURVATURE = {
    "sigmoid": 0.0963,
    "tanh": 0.7699,
    "silu": 0.5,
    "gelu": 0.7979,
    "gelu_tanh": 0.7979,
    "erf": 0.9682,
    "softplus": 0.25,
    "softsign": 2.0,
    "mish": 0.65,
    "elu": ALPHA,
    "selu": ALPHA * BETA,
    "leaky_relu": 0.0,
    "abs": 0.0,
    "hard_swish": 1 / 3,
    "hard_sigmoid": 0.0,
}


@pytest.mark.parametrize("function", CURVATURE)
@pytest.mark.parametrize("e_x", [-15, -13, -12, -11, -9])
def test_int16_is_within_its_bound(function: str, e_x: int) -> None:
    """Lookup.quantize states it: half a step, the straight line, the samples' rounding."""
    y = grid(16, -12)
    got, exact = looked_up(function, 16, e_x, y)
    bend = CURVATURE[function] * np.ldexp(128.0, e_x) ** 2 / 8 * 2.0**-y.exponent
    assert np.abs(got - exact).max() <= 0.5 + 2.0**-9 + bend + 1e-6


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("n", [2, 10, 1000])
@pytest.mark.parametrize("e_x", [-12, -8, -4, 0, 40])
def test_softmax_is_within_its_bound(bits: int, n: int, e_x: int) -> None:
    """Softmax.quantize states it: half a step of y and (n + 1) * 2^-29."""
    q = integers(f"softmax{n}", (4, n), bits)
    y = grid(16, -15)
    case = single(OPS["softmax"], "softmax", SoftmaxParams(1), [Operand(q, grid(bits, e_x))], y, quantize=True)
    got = reference.run(case.graph, {"x0": q})["y"] * 2.0**-15
    real = np.ldexp(q.astype(np.float64), e_x)
    e = np.exp(real - real.max(axis=1, keepdims=True))
    exact = np.minimum(e / e.sum(axis=1, keepdims=True), y.hi * 2.0**-15)
    assert np.abs(got - exact).max() <= 2.0**-16 + (n + 1) * 2.0**-29


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("shape", [(64, 2), (64, 5), (16, 333), (1, 65536)])
@pytest.mark.parametrize("e_x", [-22, -12, -4, 20])
@pytest.mark.parametrize("spread", [1, 40, 1 << 15])
def test_normalize_is_within_its_bound(bits: int, shape: tuple[int, int], e_x: int, spread: int) -> None:
    """Normalize.quantize states it, for every group: from one that hardly varies to one that fills the type."""
    e_x = max(e_x, -7 - bits)  # what legalize raises it to for this eps
    rng = np.random.default_rng(e_x + 99)
    low, high = fixed_point.INT_MIN[bits], fixed_point.INT_MAX[bits]
    middle = rng.integers(low, high, (shape[0], 1))
    q = np.clip(middle + rng.integers(-spread, spread, shape, endpoint=True), low, high).astype(f"int{bits}")
    scale, bias = rng.normal(1.0, 1.0, (1, shape[1])), rng.normal(0.0, 1.0, (1, shape[1]))
    top = float(np.abs(scale).max() * np.sqrt(shape[1]) + np.abs(bias).max())
    y = grid(16, int(np.ceil(np.log2(top))) - 15)
    eps = 1e-5
    operands = [Operand(q, grid(bits, e_x)), *(Operand(a, grid(32, 0), const=True) for a in (scale, bias))]
    case = single(OPS["normalize"], "normalize", NormalizeParams((1,), eps=eps), operands, y, quantize=True)
    got = reference.run(case.graph, {"x0": q})["y"].astype(np.float64)
    # The eps that the integers have; it is at least one unit of n^2 times the variance.
    p = case.graph.nodes[0].params
    units = np.ldexp(float(p.epsilon), p.epsilon_shift - spare_bits(shape[1], bits)) / shape[1] ** 2
    real = q.astype(np.float64)
    z = (real - real.mean(1, keepdims=True)) / np.sqrt(real.var(1, keepdims=True) + units)
    off = np.abs(got - (scale * z + bias) / 2.0**y.exponent)
    assert np.all(off <= 0.51 + np.abs(scale).max() * (np.abs(z) + 1) * 2.0**-22 / 2.0**y.exponent)
    assert abs(units - eps * 4.0**-e_x) <= max(units * 2.0**-30, 2.0 ** -spare_bits(shape[1], bits) / shape[1] ** 2)


@pytest.mark.parametrize("e_x", [-7, 0, 5])
def test_normalize_of_every_pair(e_x: int) -> None:
    """All pairs of int8 numbers as groups of two: the results are 1 and -1, or 0 for equal ones."""
    pairs = np.stack(np.meshgrid(np.arange(-128, 128), np.arange(-128, 128)), -1).reshape(-1, 2).astype(np.int8)
    ones = [Operand(np.full((1, 1), a), grid(32, 0), const=True) for a in (1.0, 0.0)]
    params = NormalizeParams((1,), eps=1e-12)
    case = single(
        OPS["normalize"], "pairs", params, [Operand(pairs, grid(8, e_x)), *ones], grid(16, -14), quantize=True
    )
    got = reference.run(case.graph, {"x0": pairs})["y"]
    np.testing.assert_array_equal(got, np.sign(pairs.astype(int) - pairs[:, ::-1]) * 2**14)


LRNS = [(5, 1e-4, 0.75, 1.0), (3, 5e-5, 0.75, 2.0), (7, 1.0, 0.5, 0.0), (4, 0.01, 2.0, 1.0)]


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize(("size", "alpha", "beta", "bias"), LRNS)
@pytest.mark.parametrize("e_x", [-30, -12, -6, 0, 8])
def test_lrn_is_within_its_bound(bits: int, size: int, alpha: float, beta: float, bias: float, e_x: int) -> None:
    """Lrn.quantize states it: activations from 2^-30 to millions, most of them small."""
    rng = np.random.default_rng(size)
    top = fixed_point.INT_MAX[bits]
    q = np.rint(top * rng.uniform(-1, 1, (40, 50)) ** 5).astype(f"int{bits}")
    q[0], q[1] = top, 0
    real = np.ldexp(q.astype(np.float64), e_x)
    squares = np.pad(real**2, [(0, 0), ((size - 1) // 2, size // 2)])
    base = bias + alpha / size * sum(squares[:, i : i + 50] for i in range(size))
    exact = np.where(q == 0, 0.0, real * np.where(q == 0, 1.0, base) ** -beta)
    y = grid(16, int(np.ceil(np.log2(np.abs(exact).max()))) - 15)
    params = LrnParams(size, alpha=alpha, beta=beta, bias=bias)
    case = single(OPS["lrn"], "lrn", params, [Operand(q, grid(bits, e_x))], y, quantize=True)
    got = reference.run(case.graph, {"x0": q})["y"].astype(np.float64)
    wanted = np.clip(exact / 2.0**y.exponent, y.lo, y.hi)
    bound = beta * (beta + 1) * 2.0**-19 + beta * 2.0**-28 + 2.0 ** (beta - 28)
    assert np.all(np.abs(got - wanted) <= 0.5 + np.abs(wanted) * bound + 1e-9)


def test_a_constant_operand_keeps_16_bits() -> None:
    """The largest value sets the exponent, unless the shift would be illegal; the quantized clone is the node's own."""
    data = np.array([0.75, -3.0, 1e-3])
    for op, e_x, e_y, expected in (
        ("add", -4, -4, -13),
        ("mul", -4, -4, -13),
        ("add", 30, 30, 0),
        ("mul", -40, 0, -7),
    ):
        case = single(
            OPS[op], "k", OPS[op].Params(), [Operand(np.zeros((1, 3), np.int8), grid(8, e_x))] * 2, grid(8, e_y)
        )
        (node,) = case.graph.nodes
        graph = case.graph.with_values(Value("k", (3,), data=data))
        made, (value,) = OPS[op].quantize(replace(node, inputs=("x0", "k")), graph)
        assert made.inputs == ("x0", "y.operand")
        assert value.quant == grid(16, expected)
        assert value.data is not None
        assert np.abs(value.data * 2.0**expected - data).max() <= 2.0 ** (expected - 1)


@pytest.mark.parametrize(("exponent", "steep"), [(0.0, False), (0.5, True), (-1.0, True), (1.5, False)])
def test_powers_below_1_are_steep(exponent: float, steep: bool) -> None:
    """A power of 0 has no numbers among its steps."""
    assert [is_steep(step) for step in LookupParams("power", alpha=exponent).steps()] == [steep]


def test_an_epsilon_next_to_a_power_of_two_has_31_bits() -> None:
    q, eps = np.zeros((1, 4), np.int16), float(np.nextafter(1.0, 0.0))
    operands = [Operand(q, grid(16, -12)), *(Operand(np.ones((1, 4)), grid(32, 0), const=True) for _ in range(2))]
    case = single(OPS["normalize"], "normalize", NormalizeParams((1,), eps=eps), operands, grid(16, -12), quantize=True)
    assert case.graph.nodes[0].params.epsilon == 2**31 - 1
