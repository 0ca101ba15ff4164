"""Bounds that are known of values before anything is measured."""

from __future__ import annotations

from nmpconv.graph.text import parse
from nmpconv.ops.traits import ANY
from nmpconv.passes.bounds import known

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
    bounds = known(parse(GRAPH), {})
    assert (bounds["w"], bounds["b"], bounds["none"], bounds["x"]) == ((-5.0, 8.0), (1.0, 2.0), ANY, ANY)
    low, high = bounds["y"]
    assert -0.01 < low <= 0 and 1 <= high < 1.01
