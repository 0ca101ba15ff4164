"""Bounds of averages: those of the input, with 0 where padding is counted."""

from __future__ import annotations

import pytest

from nmpconv.ir import Node
from nmpconv.ops import OPS


@pytest.mark.parametrize(
    ("counted", "given", "wanted"),
    [
        (True, (2.0, 3.0), (0.0, 3.0)),
        (True, (-3.0, -2.0), (-3.0, 0.0)),
        (True, (-3.0, 0.5), (-3.0, 0.5)),
        (False, (2.0, 3.0), (2.0, 3.0)),
    ],
)
def test_bounds(counted: bool, given: tuple[float, float], wanted: tuple[float, float]) -> None:
    op = OPS["average_pool"]
    params = op.Params(kernel_h=2, kernel_w=2, pad_top=1, count_include_pad=counted)
    assert op.bounds(Node("average_pool", "y", ("x",), ("y",), params), [given]) == wanted
