"""Shapes that the format cannot hold are refused where they are inferred, and so while a model is read."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from nmpconv.errors import Unsupported
from nmpconv.ir import Graph, Node, Quant, Value
from nmpconv.ops import OPS, Op
from nmpconv.ops.average_pool import AveragePoolParams
from nmpconv.ops.common.window import pool_out, window_out
from nmpconv.ops.conv2d import Conv2DParams
from nmpconv.ops.conv_transpose import ConvTransposeParams
from nmpconv.ops.fully_connected import FullyConnectedParams
from nmpconv.ops.gather import GatherParams
from nmpconv.ops.lrn import LrnParams
from nmpconv.ops.max_pool import MaxPoolParams
from nmpconv.ops.normalize import NormalizeParams
from nmpconv.ops.resize import ResizeParams

LIMITS = (
    ("conv2d", Conv2DParams(), [(1, 8, 8, 4096), (1, 8, 8, 4096)], "sums of 262144 products"),
    ("conv2d", Conv2DParams(stride_w=40000), [(1, 8, 8, 4), (1, 1, 1, 4)], "a stride, dilation or padding of 40000"),
    ("conv2d", Conv2DParams(pad_top=-1), [(1, 8, 8, 4), (1, 1, 1, 4)], "a stride, dilation or padding of -1"),
    ("fully_connected", FullyConnectedParams(), [(1, 131072), (1, 131072)], "sums of 131072 products"),
    ("average_pool", AveragePoolParams(300, 300), [(1, 300, 300, 1)], "a kernel of 90000 pixels"),
    ("average_pool", AveragePoolParams(2, 2, pad_left=2), [(1, 4, 4, 1)], "a window that sees only padding"),
    ("max_pool", MaxPoolParams(2, 2, 4, 1, pad_bottom=4), [(1, 4, 4, 1)], "a window that sees only padding"),
    ("max_pool", MaxPoolParams(2, 1, dilation_h=3, pad_top=1, pad_bottom=1), [(1, 2, 2, 1)], "a window that sees only"),
    ("gather", GatherParams(1, (0, 4)), [(1, 4)], "index 4 along an axis of 4"),
    ("resize", ResizeParams(1, 1, (0,), (70000,), (0,), (32768,)), [(1, 2, 2, 1)], "weights of 2.13623 in all"),
    ("conv_transpose", ConvTransposeParams(40000), [(1, 8, 8, 4), (1, 1, 1, 4)], "a stride, dilation or padding of"),
    ("normalize", NormalizeParams((1, 2)), [(1, 257, 256)], "65792 elements with one mean"),
    ("normalize", NormalizeParams(), [(1, 257)], "there is nothing to take the mean of"),
    ("lrn", LrnParams(5000), [(1, 2, 2, 9)], "a sum of 5000 channels"),
)


@pytest.mark.parametrize(("op", "params", "shapes", "message"), LIMITS)
def test_refused(op: str, params: Any, shapes: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(Unsupported, match=message) as caught:
        OPS[op].infer(params, [Value(f"x{i}", shape) for i, shape in enumerate(shapes)])
    assert caught.value.hint


@pytest.mark.parametrize("op", [op for op in OPS.values() if op.axis_max], ids=lambda op: op.name)
def test_long_axes_are_refused(op: Op) -> None:
    longest = Value("x", (1, op.axis_max))
    assert op.infer(op.Params(axis=1), [longest])
    with pytest.raises(Unsupported, match=f"an axis of {op.axis_max + 1}") as caught:
        op.infer(op.Params(axis=1), [replace(longest, shape=(1, op.axis_max + 1))])
    assert caught.value.hint == f"at most {op.axis_max}"


def test_a_window_that_sees_only_padding() -> None:
    """`pool_out` has it in closed form; here every window is looked at."""
    ranges = range(1, 6), range(1, 4), range(1, 4), range(1, 4), range(5), range(5)
    for size, kernel, stride, dilation, before, after in product(*ranges):
        out = window_out(size, kernel, stride, dilation, before + after)
        if out < 1:
            continue
        starts = (i * stride - before for i in range(out))
        fits = all(any(0 <= start + k * dilation < size for k in range(kernel)) for start in starts)
        params = MaxPoolParams(kernel, 1, stride, 1, dilation, 1, before, 0, after, 0)
        try:
            assert pool_out(params, (1, size, 1, 1)) == (1, out, 1, 1)
            assert fits
        except Unsupported:
            assert not fits


@pytest.mark.parametrize(
    ("size", "alpha", "bias", "least"), [(1, 1.0, 1.0, -60), (2, 1.0, 1.0, -59), (1, 4.0, 1.0, -61)]
)
def test_grids_of_lrn(size: int, alpha: float, bias: float, least: int) -> None:
    """The bias is below 2^120 squares of a step."""
    grid = Value("x", (1, 2, 2, 9), quant=Quant(16, (0,), -32768, 32767))
    graph = Graph("g", ("x",), ("y",), (), {"x": grid})
    [limit] = OPS["lrn"].limits(Node("lrn", "n", ("x",), ("y",), LrnParams(size, alpha=alpha, bias=bias)), graph)
    assert limit.least == least
