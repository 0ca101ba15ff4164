"""Rows of inputs at single output positions, against the unfolded whole."""

from __future__ import annotations

import numpy as np
import pytest
from op_cases import BY_OP

from nmpconv.ops import Case
from nmpconv.ops.common.accumulate import accumulate, im2col
from nmpconv.passes.quantize.matrix_form import gather, matrix, multiply, out_positions, second_moment

SAMPLES = 3
CONV = [case for case in BY_OP["conv2d"] if "widths" not in case.id and "shift" not in case.id]
DENSE = BY_OP["fully_connected"][:12]


def places(images: int, positions: int) -> tuple[np.ndarray, np.ndarray]:
    """All of them, in an order of their own."""
    at = np.random.default_rng(0).permutation(images * positions)
    return at // positions, at % positions


@pytest.mark.parametrize("case", CONV, ids=lambda case: case.id)
def test_convolution(case: Case) -> None:
    (node,), (x,) = case.graph.nodes, case.feeds
    w = case.graph[node.inputs[1]].data
    pad = case.graph[node.inputs[3]].data if len(node.inputs) == 4 else None
    x = np.concatenate([np.roll(x, i) for i in range(SAMPLES)])
    images, positions = places(SAMPLES, out_positions(case.graph, node))
    rows = gather(case.graph, node, x, pad, images, positions)
    whole = im2col(x, node.params, w.shape, pad)[images * out_positions(case.graph, node) + positions]
    assert rows.dtype == x.dtype
    assert np.array_equal(rows, whole)
    geometry = matrix(case.graph, node)
    split = geometry.split(w)
    assert np.array_equal(geometry.join(split), w)
    exact = accumulate(whole, w.reshape(len(w), -1), np.int64)
    assert np.array_equal(multiply(rows.astype(np.float64), split.astype(np.float64)), exact)


@pytest.mark.parametrize("case", DENSE, ids=lambda case: case.id)
def test_fully_connected(case: Case) -> None:
    (node,), (x,) = case.graph.nodes, case.feeds
    w = case.graph[node.inputs[1]].data
    x = np.concatenate([np.roll(x, i) for i in range(SAMPLES)])
    flat = x.reshape(SAMPLES, -1, w.shape[1])
    images, positions = places(SAMPLES, out_positions(case.graph, node))
    assert positions.max() + 1 == flat.shape[1]
    rows = gather(case.graph, node, x, None, images, positions)
    assert np.array_equal(rows[:, 0], flat[images, positions])
    exact = flat[images, positions].astype(np.int64) @ w.astype(np.int64).T
    split = matrix(case.graph, node).split(w.astype(np.float64))
    assert np.array_equal(multiply(rows.astype(np.float64), split), exact)


@pytest.mark.parametrize("groups", [1, 3, 300])
def test_second_moment(groups: int) -> None:
    rng = np.random.default_rng(1)
    rows = rng.integers(-128, 128, (300, groups, 7)).astype(np.int8)
    found = np.zeros((groups, 8, 8))
    for part in np.split(rows, [100, 101]):
        second_moment(part, found)
    x = np.concatenate([np.ones((300, groups, 1), np.int64), rows], axis=2)
    assert np.array_equal(found, np.einsum("rgk,rgl->gkl", x, x))


def test_second_moment_of_16_bits() -> None:
    rows = np.random.default_rng(2).integers(-32768, 32768, (500, 1, 6)).astype(np.int16)
    found = np.zeros((1, 7, 7))
    second_moment(rows, found)
    x = np.concatenate([np.ones((500, 1)), rows[:, 0]], axis=1)
    np.testing.assert_allclose(found[0], x.T @ x, rtol=1e-3, atol=1e-4 * 500 * 32768**2)
