"""Numbers at 16 bits that a larger tensor, or a longer way, is not to make coarser."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx_net import Net

from nmpconv.pipeline import Options, convert


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
