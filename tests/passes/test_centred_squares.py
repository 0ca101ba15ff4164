"""Squared distances from vertices: where the pass does not look for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx_net import Net

from nmpconv.frontend.onnx import load
from nmpconv.passes.float import centred_squares


def is_changed(net: Net, output: str, path: Path) -> bool:
    net.save(path, output)
    imported = load(path)
    return centred_squares.run(imported) is not imported


@pytest.mark.parametrize(("size", "is_centred"), [(64, True), (2048, False)])
def test_wide_rows_stay(size: int, is_centred: bool, tmp_path: Path) -> None:
    """Factors of x and of its squares are matrices with the square of its size."""
    net = Net((1, size))
    squares = net.add("MatMul", net.add("Mul", "x", "x"), net.const(np.ones((size, 1), np.float32)))
    products = net.add("MatMul", "x", net.const(np.full((size, 1), -4, np.float32)))
    distances = net.add("Add", net.add("Add", squares, products), net.const(4.0 * size))
    assert is_changed(net, distances, tmp_path / "m.onnx") == is_centred


def test_long_sums_end(tmp_path: Path) -> None:
    """Constants that are added one after another are followed for some ops, not to the end of the stack."""
    net, x = Net((1, 4)), "x"
    for _ in range(1500):
        x = net.add("Add", x, net.const(1.0))
    assert not is_changed(net, x, tmp_path / "m.onnx")
