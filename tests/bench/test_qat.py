"""The bench of training: its lines and figures, on a net of one layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from zoo_quick import bench_module


@pytest.fixture(scope="module")
def torch() -> Any:
    """The package, which takes seconds to import."""
    return pytest.importorskip("torch", reason="hundreds of MB that no lock has")


@pytest.fixture(scope="module")
def qat(torch: Any) -> Any:
    """bench/qat.py."""
    return bench_module("qat")


def test_each_way_to_quantize_has_a_line(torch: Any, qat: Any) -> None:
    torch.manual_seed(0)
    net, x = torch.nn.Linear(4, 3).eval(), torch.randn(96, 4)
    labels = net(x[32:]).argmax(1).numpy()
    case = qat.Case(net, x[:1], x[:32].numpy(), {}, net, x[:32], x[32:], labels, epochs=2, rate=1e-3)
    lines = list(qat.rows(case, None))
    assert [line.split(":")[0] for line in lines] == [
        "float",
        "PTQ, default widths",
        "PTQ",
        "QAT, exponents frozen",
        "QAT, exponents learned",
    ]
    assert lines[0] == "float: top-1 100.0 %, agreement 100.0 %, SQNR inf dB of 64"
    for line in lines[3:]:
        assert "; 2 epochs of 32, " in line
        assert line.endswith("; 100.000 % of integers the file's")


def test_both_ways_to_train_see_the_same_batches(monkeypatch: pytest.MonkeyPatch, torch: Any, qat: Any) -> None:
    """So that lines differ by exponents alone."""
    monkeypatch.setattr(qat, "EXPONENT_RATE", 0.0)
    torch.manual_seed(0)
    net, x = torch.nn.Linear(4, 3).eval(), torch.randn(192, 4)
    case = qat.Case(net, x[:1], x[:32].numpy(), {}, net, x[:96], x[96:], np.zeros(96), epochs=2, rate=3e-2)
    frozen, learned = list(qat.rows(case, None))[-2:]
    assert frozen.split(": ")[1].split(";")[0] == learned.split(": ")[1].split(";")[0]


def test_figures_are_of_logits(qat: Any) -> None:
    wanted = np.array([[4.0, 0.0], [0.0, 4.0]])
    found = np.array([[4.0, 0.0], [4.0, 0.0]])
    assert qat.judged(found, wanted, np.array([0, 0])) == "top-1 100.0 %, agreement 50.0 %, SQNR 0.0 dB"


def test_pictures_are_cut_out_of_the_middle(tmp_path: Path, qat: Any) -> None:
    pixels = np.arange(8 * 6 * 3, dtype=np.uint8).reshape(6, 8, 3)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    (tmp_path / "labels.csv").write_text("file,label\na.png,7\n")
    images, labels = qat._images(tmp_path / "labels.csv", 4)
    np.testing.assert_array_equal(images, pixels[None, 1:5, 2:6])
    assert labels.tolist() == [7]
