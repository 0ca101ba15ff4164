"""The layer that a report names as the one that costs most."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from float_nets import feeds, in_bits, observed
from nets import Net

from nmpconv.calib import noise_budget
from nmpconv.calib.fake_quantization import Switched
from nmpconv.conversion.quantizer import Fitter
from nmpconv.conversion.report import Report, measure
from nmpconv.graph.trace import Trace
from nmpconv.passes.memory import plan_memory
from nmpconv.passes.quantize.exponents import Method
from nmpconv.passes.quantize.rounding import Rounding

GRIDS, LOUDEST = 32, "t9"


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


@pytest.mark.slow
def test_shares_of_noise_are_searched_down_to_loud_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quiet tensors of a large net would take a pass each."""
    net = Net(8)
    net.input("x", 1, 4, 4, 3)
    names = ["x", *(f"t{i}" for i in range(GRIDS - 2)), "y"]
    for x, y in pairwise(names):
        net.conv(x, y, 3, w=np.eye(3).reshape(3, 1, 1, 3), b=np.zeros(3))
    graph = net.graph("y")
    passes, real = list[int](), Switched.run
    monkeypatch.setattr(noise_budget, "OPS_MOST", 0)  # as of a large net: PASSES_LEAST are allowed
    monkeypatch.setattr(Switched, "run", lambda self, on: passes.append(len(on)) or real(self, on))
    images, bits = feeds(graph, 6), {**in_bits(graph, 16), LOUDEST: 8}
    fitter = Fitter(graph, observed(graph, images), bits, Method(), Rounding(), images)
    prepared = fitter.prepare("none", images, Trace())
    planned = plan_memory.run(fitter.quantize(prepared, False, Trace()))
    assert measure(prepared, planned, images, fitter.outputs).costliest.keys() == {LOUDEST}
    assert len(passes) == 2 + 2 * math.log2(GRIDS)  # none, all, and the halves of blocks down to the loud one


def test_nothing_is_known_without_images() -> None:
    found = report(np.ones(8), 0)
    assert found.steepest is None
    assert {layer.fall for layer in found.layers} == {None}
