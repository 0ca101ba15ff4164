"""Statistics with a sample more, by which int8 grids leave room for what calibration did not see."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from float_nets import RELU, Net, feeds, in_bits, observed
from onnx_text import build

from nmpconv.calib.observers import TensorStats
from nmpconv.conversion.pipeline import Options, convert
from nmpconv.evaluation.accuracy import evaluate
from nmpconv.ir import Graph
from nmpconv.passes.quantize import headroom, table_readers
from nmpconv.runtime.interpreter import load

RNG = np.random.default_rng(7)


def seen(*peaks: float) -> TensorStats:
    """A sample for each peak, of values spread evenly between 0 and that."""
    stats = TensorStats()
    for peak in peaks:
        stats.merge(TensorStats.of(np.linspace(0, peak, 64, dtype=np.float32).reshape(1, 8, 8, 1)))
    return stats


def test_peaks_that_do_not_vary_are_all_there_is() -> None:
    stats = seen(2, 2, 2)
    assert headroom.farther(stats, -np.inf, np.inf) is stats
    alone = seen(2)
    assert headroom.farther(alone, -np.inf, np.inf) is alone


def test_a_sample_more_goes_farther_as_peaks_vary() -> None:
    stats = seen(1, 2, 3)
    more = headroom.farther(stats, -np.inf, np.inf)
    assert more.max == pytest.approx(3 * (1 + 0.5 * 1 / 2))  # the standard deviation of 1, 2 and 3 is 1, the mean 2
    assert more.min == 0
    assert more.histogram.total == pytest.approx(4 * stats.histogram.total, rel=1e-3)
    assert (more.samples, more.count) == (stats.samples, stats.count)


def test_many_samples_leave_less_to_expect() -> None:
    few, many = (headroom.farther(seen(*peaks), -np.inf, np.inf) for peaks in ((1, 3) * 50, (1, 3) * 200))
    assert few.max - 3 == pytest.approx(4 * (many.max - 3), rel=0.01)


def test_nothing_goes_beyond_what_is_known() -> None:
    more = headroom.farther(seen(1, 2, 3), 0.0, 3.25)
    assert more.max == 3.25
    assert more.histogram.bins()[1].max() <= 3.26
    assert headroom.farther(seen(1, 2, 3), 0.0, 1.0).max == 3  # float32 may be beyond by a hair, data by more


def net() -> Graph:
    """A convolution with a Relu6, one that a table alone reads, one without anything, and a tensor of 16 bits."""
    made = Net(1)
    made.input("x", 1, 6, 6, 3)
    made.conv("x", "clamped", 4, clamp=(0.0, 6.0))
    made.conv("clamped", "tabled", 4)
    made.op("lookup", "tabled", "silu", function="silu")
    made.conv("silu", "plain", 4, clamp=RELU)
    made.conv("plain", "wide", 2)
    return made.graph("wide")


def test_which_tensors() -> None:
    graph = net()
    images = [{"x": x["x"] * scale} for x, scale in zip(feeds(graph, 6), (1, 2, 4, 8, 16, 32), strict=True)]
    stats = observed(graph, images)
    found = headroom.expected(graph, stats, in_bits(graph, 8, wide=16), stats, table_readers.after(graph))
    assert {name for name in found if found[name] is not stats[name]} == {"x", "clamped", "silu", "plain"}
    assert stats["clamped"].max == 6 == found["clamped"].max
    assert found["silu"].min == pytest.approx(-0.27846, abs=1e-5)  # a SiLU has no smaller result
    assert headroom.expected(graph, stats, in_bits(graph, 8), ["plain"], ()).keys() == {"plain"}


def test_few_samples_leave_room_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve samples of very different contrast: others go beyond them, and saturate less."""
    text = """(float[1,3,12,12] x) => (float[1,8] y)
    <float[8,3,3,3] w, float[8] b, float[8,8,3,3] u, float[8] c> {
     a = Conv<kernel_shape=[3,3]>(x, w, b)  r = Relu(a)
     d = Conv<kernel_shape=[3,3]>(r, u, c)  e = Relu(d)
     p = GlobalAveragePool(e)  y = Flatten(p) }"""
    path = tmp_path / "m.onnx"
    build(text, 17, path)
    x = RNG.normal(size=(112, 3, 12, 12)) * np.exp(RNG.normal(size=(112, 1, 1, 1)))
    found = []
    for varies in (0.0, headroom.VARIES):
        monkeypatch.setattr(headroom, "VARIES", varies)
        options = Options(bits="8", equalize="vector", rounding="nearest")
        net = load(convert(path, {"": x[:12].astype(np.float32)}, options, lambda *_: None).data)
        found.append(evaluate(net, {"": x[12:].astype(np.float32)}, reference=path).sqnr["y"])
    assert found[1] > found[0] + 0.5
