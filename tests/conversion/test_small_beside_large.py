"""Numbers at 16 bits that a larger tensor, or a longer way, is not to make coarser."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx_net import Net

from nmpconv.conversion.pipeline import Options, convert


def worst_db(net: Net, folder: Path, output: str, x: np.ndarray | None = None) -> float:
    """On these samples, or on normal numbers."""
    net.save(folder / "m.onnx", output)
    x = np.random.default_rng(8).normal(size=(24, *net.shape("x"))) if x is None else x
    np.save(folder / "x.npy", x.astype(np.float32))
    result = convert(folder / "m.onnx", {"": folder / "x.npy"}, Options(bits="16"), lambda *_: None)
    return min(result.report.sqnr_by_head.values())


def test_tables_behind_a_split_and_a_concat(tmp_path: Path) -> None:
    """Nearly all of the grid went where exp(-|x|) is 0: 10.6 dB."""
    net = Net((1, 5, 40))
    net.add("Split", "x", net.const([2, 3]), axis=1, outputs=2)
    turned = net.add("Concat", "t0_1", "t0", axis=1)
    y = net.add("Exp", net.add("Neg", net.add("Abs", turned)))
    assert worst_db(net, tmp_path, y, 300 * np.random.default_rng(8).normal(size=(24, 1, 5, 40))) > 65


def test_what_is_put_in_the_place_of_larger_numbers(tmp_path: Path) -> None:
    """ScatterND over all rows, which is a part of a Concat: 11.2 dB."""
    net = Net((1, 6))
    large = net.add("Mul", "x", net.const(3000.0))
    rows = net.add("Reshape", "x", net.const([6]))
    y = net.add("ScatterND", large, net.const(np.zeros((1, 1), np.int64)), net.add("Unsqueeze", rows, net.const([0])))
    assert worst_db(net, tmp_path, y) > 70


def test_a_tensor_added_again_and_again(tmp_path: Path) -> None:
    """Each sum rounds in the same direction: 62.0 dB."""
    net = Net((1, 12, 6))
    y = "x"
    for _ in range(30):
        y = net.add("Add", y, "x")
    assert worst_db(net, tmp_path, y) > 75


def test_short_columns_over_their_length(tmp_path: Path) -> None:
    """x / (length + 1e-6) where another column is the long one in each sample: 22.7 dB.

    The sum had a coarser grid than the length, for its reach was told channel by channel.
    """
    net = Net((1, 5, 4))
    length = net.add("ReduceL2", "x", net.const([1]))
    y = net.add("Div", "x", net.add("Add", length, net.const(1e-6)))
    x = np.zeros((4, 1, 5, 4))
    x[:, 0, 2] = np.where(np.eye(4), 1.0, 1e-3)
    assert worst_db(net, tmp_path, y, x) > 55


def test_zeros_over_their_length(tmp_path: Path) -> None:
    """The length of 0 was divided by itself, which ended the conversion."""
    net = Net((1, 4, 5))
    y = net.add("Div", "x", net.add("Add", net.add("ReduceL2", "x", net.const([2])), net.const(1e-6)))
    x = np.random.default_rng(1).normal(size=(8, 1, 4, 5)) * np.array([1, 0, 2, 1])[:, np.newaxis]
    assert worst_db(net, tmp_path, y, x) > 60
