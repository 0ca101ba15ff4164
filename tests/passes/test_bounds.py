"""Bounds that are known of values before anything is measured."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nmpconv.calib.observers import TensorStats
from nmpconv.graph.text import parse
from nmpconv.ops.common.traits import ANY, Bounds
from nmpconv.ops.lookup import LookupParams
from nmpconv.passes import bounds
from nmpconv.passes.bounds import known
from nmpconv.passes.quantize import exponents

GRAPH = """\
graph small
input x : float32[1,4]
const w : float32[2,4] = [1,2,3,4,-5,6,7,8]
const b : float32[2] = [1,2]
const none : float32[0] = []
dense = fully_connected(x, w, b)
  d : float32[1,2]
curve = lookup(d) function="sigmoid"
  y : float32[1,2]
output y
"""


def test_constants_are_known_and_inputs_are_not() -> None:
    found = known(parse(GRAPH), {})
    assert (found["w"], found["b"], found["none"], found["x"]) == ((-5.0, 8.0), (1.0, 2.0), ANY, ANY)
    low, high = found["y"]
    assert -0.01 < low <= 0 and 1 <= high < 1.01


def test_functions_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    call = LookupParams.__call__
    monkeypatch.setattr(LookupParams, "__call__", lambda self, x: [seen.append(x.size), call(self, x)][1])
    graph = parse(GRAPH.replace('"sigmoid"', '"sigmoid" before=0.7071'))
    assert known(graph, {}) == known(graph, {})
    assert len(seen) == 1


def test_a_graph_without_indices_has_no_whole_numbers_to_look_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "known", None)
    assert bounds.whole(parse(GRAPH)) == {}


SUM = """\
graph sum
input x : float32[1,4]
const w : float32[2,4] = [1,2,3,4,{weight},6,7,8]
const b : float32[2] = [1,2]
positive = requantize(x)
  p : float32[1,4] clamp={clamp}
dense = fully_connected(p, w, b)
  d : float32[1,2]
output d
"""


@pytest.mark.parametrize(
    ("weight", "clamp", "wanted"),
    [(0, "[0,Infinity]", (1.0, math.inf)), (-1, "[0,Infinity]", ANY), (0, "[-1,Infinity]", ANY)],
)
def test_a_sum_of_what_is_not_negative_is_at_least_its_bias(weight: int, clamp: str, wanted: Bounds) -> None:
    assert known(parse(SUM.format(weight=weight, clamp=clamp)), {})["d"] == wanted


BLEND = """\
graph blend
input a : float32[1,2]
input b : float32[1,2]
input c : float32[1,2]
gate = lookup(a) function="sigmoid"
  z : float32[1,2]
old = lookup(b) function="tanh"
  h : float32[1,2]
new = lookup(c) function="tanh"
  n : float32[1,2]
difference = sub({difference})
  d : float32[1,2]
product = mul({product})
  p : float32[1,2]
result = {result}
  y : float32[1,2]
output y
"""


@pytest.mark.parametrize(
    ("difference", "product", "result"),
    [
        ("h, n", "z, d", "add(n, p)"),
        ("h, n", "d, z", "add(p, n)"),
        ("h, n", "z, d", "sub(h, p)"),
        ("h, n", "z, n", "sub(n, p)"),
    ],
)
def test_a_blend_lies_between_what_it_blends(difference: str, product: str, result: str) -> None:
    graph = parse(BLEND.format(difference=difference, product=product, result=result))
    assert known(graph, {})["y"] == pytest.approx((-1, 1))


@pytest.mark.parametrize(
    ("difference", "product", "result", "ends"),
    [
        ("h, n", "n, d", "add(n, p)", (-3, 3)),  # no gate
        ("h, n", "z, d", "add(h, p)", (-3, 3)),  # of the other one
        ("h, n", "z, d", "sub(n, p)", (-3, 3)),
        ("h, n", "z, h", "add(n, p)", (-2, 2)),
        ("h, n", "z, n", "sub(h, p)", (-2, 2)),
    ],
)
def test_other_sums_reach_farther(difference: str, product: str, result: str, ends: tuple[float, float]) -> None:
    graph = parse(BLEND.format(difference=difference, product=product, result=result))
    assert known(graph, {})["y"] == pytest.approx(ends)


CHOICE = """\
graph g
input a : float32[1,2]
input b : float32[1,2]
const zero : float32[1,2] = [0.0,0.0]
const one : float32[1] = [1.0]
gate = greater(a, zero)
  z : float32[1,2]
new = lookup(b) function="tanh"
  n : float32[1,2]
old = lookup(a) function="sigmoid"
  h : float32[1,2]
moved = reshape(z) shape=[2]
  g : float32[2]
rest = sub(one, {gate})
  r : float32[2]
first = mul({first})
  f : float32[1,2]
second = mul({second})
  s : float32[1,2]
result = add({result})
  y : float32[1,2]
output y
"""


@pytest.mark.parametrize(
    ("gate", "first", "second", "result", "low", "high"),
    [
        ("g", "z, n", "r, h", "f, s", -1, 1),
        ("g", "n, z", "h, r", "s, f", -1, 1),
        ("g", "z, h", "r, h", "f, s", 0, 1),
        ("g", "z, n", "z, h", "f, s", -1, 2),  # no choice
        ("h", "z, n", "r, h", "f, s", -1, 2),  # of another gate
    ],
)
def test_a_choice_lies_between_what_it_chooses_from(
    gate: str, first: str, second: str, result: str, low: float, high: float
) -> None:
    graph = parse(CHOICE.format(gate=gate, first=first, second=second, result=result))
    assert known(graph, {})["y"] == pytest.approx((low, high))


def test_a_gate_of_another_place_chooses_nothing() -> None:
    """z is of rows in the first product, and of columns in the second one."""
    text = CHOICE.format(gate="g", first="g, n", second="r, h", result="f, s")
    for old, new in (("reshape(z) shape=[2]", "reshape(z) shape=[2,1]"), ("  g : float32[2]", "  g : float32[2,1]")):
        text = text.replace(old, new)
    text = text.replace("sub(one, g)", "sub(one, z)").replace("  f : float32[1,2]", "  f : float32[2,2]")
    text = text.replace("  y : float32[1,2]", "  y : float32[2,2]")
    assert known(parse(text), {})["y"] == pytest.approx((-1, 2))


def test_what_blends_need_no_room_beyond_their_bounds() -> None:
    """Samples of which some reach 1 and others 0.1 would reach farther on other samples, but for a state of a GRU."""
    graph = parse(BLEND.format(difference="h, n", product="z, d", result="add(n, p)"))
    stats: dict[str, TensorStats] = {}
    for peak in (0.1, 0.1, 0.1, 1.0) * 4:
        values = {"a": 3.0, "b": 3.0, "c": 3.0, "z": 1.0, "h": 1.0, "n": 1.0, "d": 2.0, "p": 1.5, "y": 0.99}
        for name, most in values.items():
            seen = np.linspace(-most, most, 98, dtype=np.float32).reshape(1, 2, 49)[:, :, ::-1]
            stats[name] = TensorStats.merged(stats.get(name), TensorStats.of(peak * seen.transpose(0, 2, 1)))
    ranged = exponents.run(graph, stats, dict.fromkeys(stats, 8), exponents.Method())
    assert ranged["y"].quant is not None
    assert ranged["y"].quant.exponent == -7
