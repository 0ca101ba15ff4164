"""The layer that a report names as the one that costs most."""

from __future__ import annotations

import numpy as np
import pytest
from float_nets import feeds, in_bits, observed
from nets import Net

from nmpconv.conversion import report as measuring
from nmpconv.conversion.quantizer import Fitter
from nmpconv.conversion.report import Report, measure
from nmpconv.graph.trace import Trace
from nmpconv.passes.memory import plan_memory
from nmpconv.passes.quantize.exponents import Method
from nmpconv.passes.quantize.rounding import Rounding


def report(spread: np.ndarray, count: int = 6) -> Report:
    """x -> a -> r (transpose) -> t (transpose) -> b -> y: b makes even again what a makes uneven."""
    net = Net(8)
    net.input("x", 1, 8, 8, 3)
    net.conv("x", "a", 8, w=np.sign(net.rng.normal(0, 1, (8, 1, 1, 3))) * spread[:, None, None, None], b=np.zeros(8))
    net.op("transpose", "a", "r", perm=(0, 3, 1, 2))
    net.op("transpose", "r", "t", perm=(0, 2, 3, 1))
    net.conv("t", "b", 8, groups=8, w=1 / spread[:, None, None, None], b=np.zeros(8))
    net.conv("b", "y", 4)
    graph = net.graph("y")
    images = feeds(graph, count)
    made = Fitter(graph, observed(graph, feeds(graph)), in_bits(graph, 8), Method(), Rounding(), images)
    prepared = made.prepare("none", images, Trace())
    return measure(prepared, plan_memory.run(made.quantize(prepared, False, Trace())), images, made.outputs)


def test_it_is_where_the_signal_gets_lost() -> None:
    found = report(2.0 ** np.array([0, 0, 0, 0, 0, 0, 0, 6]))
    assert found.steepest is not None
    assert found.steepest.name == "n_b"
    (before,) = [layer.sqnr_cumulative for layer in found.layers if layer.name == "n_a"]
    assert found.steepest.fall == pytest.approx(before - found.steepest.sqnr_cumulative)
    assert found.steepest.fall > 15


def test_what_only_moves_data_costs_nothing() -> None:
    falls = {layer.name: layer.fall for layer in report(np.ones(8)).layers}
    assert falls["n_r"] is falls["n_t"] is None
    assert 0 <= falls["n_a"] < 6
    assert falls["n_b"] < 6


def test_shares_of_noise_are_searched_down_to_loud_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quiet tensors of a large net would take a pass each."""
    least, real = list[float](), measuring.budget
    monkeypatch.setattr(measuring, "budget", lambda *args, **by: least.append(by["least"]) or real(*args, **by))
    assert report(np.ones(8)).costliest
    assert least == [measuring.LOUD]


def test_nothing_is_known_without_images() -> None:
    found = report(np.ones(8), 0)
    assert found.steepest is None
    assert {layer.fall for layer in found.layers} == {None}
