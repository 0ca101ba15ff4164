"""Masks of attention that calibration deepens."""

from __future__ import annotations

import numpy as np

from nmpconv.calib.engine import FloatEngine
from nmpconv.calib.observers import observe
from nmpconv.graph.text import parse
from nmpconv.passes.quantize import constant_masks

GRAPH = """\
graph attention
input x : float32[1,2,3]
const m : float32[2,3] = [32768.0,-32.0,-32.0,32768.0,32768.0,-32.0]
masked_op = minimum(x, m)
  masked : float32[1,2,3]
shares_op = softmax(masked) axis=2
  shares : float32[1,2,3]
y_op = mul(shares, x)
  y : float32[1,2,3]
output y
"""


def test_a_mask_hides_from_scores_lower_than_those_seen() -> None:
    graph = parse(GRAPH)
    images = [{"x": np.array([[[35, 0, 0], [30, 35, 0]]], np.float32)}]
    names = [value.name for value in graph.activations()]
    stats = observe(FloatEngine(graph, names, threads=1), images, names)
    changed, _ = constant_masks.run(graph, stats, images)
    other = np.array([[[12, 15, 15], [12, 14, 20]]], np.float32)
    shares = FloatEngine(changed, ["shares"], threads=1).run({"x": other})["shares"]
    assert shares[0, 0, 0] > 0.999
    assert shares[0, 1, 2] < 0.001
