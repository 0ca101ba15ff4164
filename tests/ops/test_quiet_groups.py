"""Weights of groups whose sums are far apart."""

import numpy as np

from nmpconv.ops.sum_lookup import PRECISE, weights_on_grid


def test_each_group_has_its_bits() -> None:
    """A logarithm sees each group's weights, whatever those of the others are."""
    data = np.array([[0.9, 0.7], [3e-5, 5e-5], [2e-3, 1e-3]])
    q, grid = weights_on_grid(data, 3, 30)
    assert np.allclose(np.ldexp(q, grid.exponent), data, rtol=2.0 ** (1 - PRECISE), atol=0)
    assert weights_on_grid(data[:1], 1, 30)[1].bits == 16
