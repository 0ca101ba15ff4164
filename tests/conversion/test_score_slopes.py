"""Biases in front of scores: rare positives count, and background does not move them."""

from __future__ import annotations

import numpy as np
import pytest

from nmpconv.base.fixed_point import rsh
from nmpconv.graph.text import parse
from nmpconv.ir import Quant
from nmpconv.passes.quantize import score_slopes
from nmpconv.passes.quantize.bias import on_output_grid

LAYER = """graph g
input x : float32[1,4,4,2]
const w : float32[4,1,1,2] = [1,2,3,4,5,6,7,8]
const b : float32[4] = [0,0,0,0]
c_op = conv2d(x, w, b)
  c : float32[1,4,4,4]
"""
SIGMOID = """s_op = lookup(c) function="sigmoid"
  s : float32[1,4,4,4]
"""
MOVED = """r_op = reshape(c) shape=[1,16,4]
  r : float32[1,16,4]
y_op = lookup(r) function="sigmoid"
  y : float32[1,16,4]
output y
"""
PAIRS = """r_op = reshape(c) shape=[1,32,2]
  r : float32[1,32,2]
y_op = softmax(r) axis=2
  y : float32[1,32,2]
output y
"""
PRODUCT = f"""{SIGMOID}y_op = mul(s, s)
  y : float32[1,4,4,4]
output y
"""
GATE = f"""const v : float32[1,1,1,4] = [1,1,1,1]
const a : float32[1] = [0]
{SIGMOID}y_op = conv2d(s, v, a)
  y : float32[1,4,4,1]
output y
"""
ALSO_READ = f"""{SIGMOID}y_op = add(s, c)
  y : float32[1,4,4,4]
output y
"""
CLASSES = """r_op = reshape(c) shape=[1,64]
  r : float32[1,64]
y_op = softmax(r) axis=1
  y : float32[1,64]
output y
"""
RELU = """y_op = lookup(c) function="gelu"
  y : float32[1,4,4,4]
output y
"""


@pytest.mark.parametrize("rest", [MOVED, PAIRS, PRODUCT])
def test_layers_in_front_of_scores(rest: str) -> None:
    assert set(score_slopes.by_layer(parse(LAYER + rest))) == {"c"}


@pytest.mark.parametrize("rest", [GATE, ALSO_READ, CLASSES, RELU])
def test_other_layers(rest: str) -> None:
    assert not score_slopes.by_layer(parse(LAYER + rest))


@pytest.mark.parametrize("rest", [MOVED, PAIRS])
def test_weights_are_squares_of_slopes(rest: str) -> None:
    rows = np.random.default_rng(0).normal(0, 3, (500, 4)).astype(np.float32)
    found = score_slopes.by_layer(parse(LAYER + rest))["c"](rows)
    if rest == MOVED:
        p = 1 / (1 + np.exp(-rows.astype(np.float64)))
    else:
        e = np.exp(rows.astype(np.float64).reshape(-1, 2))
        p = (e / e.sum(axis=1, keepdims=True)).reshape(rows.shape)
    np.testing.assert_allclose(found, (4 * p * (1 - p)) ** 2 + score_slopes.PRIOR / 500, rtol=2e-3, atol=1e-6)


def test_rare_positives_keep_their_scores() -> None:
    """Quantized weights move the 60 of 2000 cells that are near 0 otherwise than background."""
    rng = np.random.default_rng(3)
    logits = np.concatenate([rng.normal(-9, 1, (1940, 1)), rng.normal(0.5, 0.7, (60, 1))]).astype(np.float32)
    y, shift = Quant(8, (-4,), -128, 127), np.array([5])
    sums = np.floor(np.ldexp(logits + np.where(logits > -4, -0.9, 0.3), 9)).astype(np.float64)
    positive = logits[:, 0] > 0
    kept = {}
    for weights in (None, score_slopes.by_layer(parse(LAYER + MOVED))["c"](logits)):
        bias, error = on_output_grid(sums, shift, logits, (-np.inf, np.inf), y, weights=weights)
        got = np.clip(rsh(sums.astype(np.int64), shift) + bias.astype(np.int64), y.lo, y.hi) / 16
        w = np.ones_like(logits) if weights is None else weights
        np.testing.assert_allclose(error, (w * (16 * (got - logits)) ** 2).sum(axis=0) / w.sum(axis=0), rtol=1e-6)
        kept[weights is None] = np.mean(got[positive] > 0)
    assert kept[True] < 0.6  # as a mean over all cells has it
    assert kept[False] > 0.9


def test_without_positives_it_is_the_plain_mean() -> None:
    rng = np.random.default_rng(4)
    logits = rng.normal(-12, 1, (2000, 4)).astype(np.float32)
    y, shift = Quant(8, (-3,), -128, 127), np.full(4, 4)
    sums = np.floor(np.ldexp(logits + rng.uniform(-1, 1, 4), 7)).astype(np.float64)
    weights = score_slopes.by_layer(parse(LAYER + MOVED))["c"](logits)
    plain, weighted = (on_output_grid(sums, shift, logits, (-np.inf, np.inf), y, weights=w)[0] for w in (None, weights))
    np.testing.assert_array_equal(plain, weighted)
