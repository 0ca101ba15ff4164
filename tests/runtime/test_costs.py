"""Estimated instructions: what is counted of an op, and that the table has a row for every op on every target."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from op_cases import BY_OP as CASES

from nmpconv.errors import NmpError
from nmpconv.file.reader import read
from nmpconv.file.writer import to_bytes
from nmpconv.ops import OPS
from nmpconv.ops.common.case import Case, constant, fed, grid, single
from nmpconv.ops.common.weighted import Weighted
from nmpconv.ops.conv2d import Conv2DParams
from nmpconv.ops.fully_connected import FullyConnectedParams
from nmpconv.passes.memory import plan_memory
from nmpconv.runtime import costs
from nmpconv.runtime.targets import MICROCONTROLLERS

TABLE = json.loads(costs.TABLE.read_text())["targets"]
PADDED = {"pad_top": 1, "pad_left": 1, "pad_bottom": 1, "pad_right": 1}


def convolution(x: int, w: int, shape: tuple[int, ...], kernel: tuple[int, ...], **params: int) -> bytes:
    out = kernel[0]
    operands = [fed("x", shape, x, -7), constant("w", kernel, w, *[-7] * out), constant("b", (out,), 16, -4)]
    made = single(OPS["conv2d"], "case", Conv2DParams(**params), operands, grid(x, -4))
    return file(made)


def layer(bits: int, k: int, out: int) -> bytes:
    """A fully connected layer of a vector; bits: of that and of the result."""
    operands = [fed("x", (1, k), bits, -7), constant("w", (out, k), 8, *[-7] * out), constant("b", (out,), 16, -4)]
    return file(single(OPS["fully_connected"], "case", FullyConnectedParams(), operands, grid(bits, -4)))


def file(case: Case) -> bytes:
    return to_bytes(plan_memory.run(case.graph), {})


def test_the_table_is_of_the_targets() -> None:
    assert tuple(TABLE) == MICROCONTROLLERS
    for rows in TABLE.values():
        assert all(figure >= 0 for row in rows.values() for figure in row.values())


@pytest.mark.parametrize("target", MICROCONTROLLERS)
@pytest.mark.parametrize("op", sorted(OPS))
def test_every_op_is_estimated(op: str, target: str) -> None:
    """At every width that its cases have: no row is missing, and no op is free."""
    seen = set()
    for case in CASES[op]:
        node = case.graph.nodes[0]
        dtypes = (node.op, *(value.dtype for value in (*case.graph.ins(node), *case.graph.outs(node))))
        if dtypes not in seen:
            seen.add(dtypes)
            data = file(case)
            assert all(count > 0 for count in costs.estimated(data, target)), case.id
            assert len(costs.estimated(data, target)) == len(read(data).ops)


def test_totals_are_those_of_each_target() -> None:
    """The planned graph tells what its file does."""
    for cases in CASES.values():
        planned, data = plan_memory.run(cases[0].graph), file(cases[0])
        each = [sum(costs.estimated(data, target)) for target in MICROCONTROLLERS]
        assert costs.totals(data, planned, MICROCONTROLLERS) == each, cases[0].id
        assert costs.footprint(data, None, planned) == costs.footprint(data, None), cases[0].id


def test_totals_count_an_op_once_for_all_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    counted, sums = list[str](), Weighted.sums
    monkeypatch.setattr(Weighted, "sums", lambda op, *values: counted.append(op.name) or sums(op, *values))
    planned = plan_memory.run(CASES["conv2d"][0].graph)
    costs.totals(to_bytes(planned, {}), planned, MICROCONTROLLERS)
    assert counted == ["conv2d"]


def test_counts_of_a_convolution() -> None:
    """5x4 pixels, 3x3, 6 channels to 5: products in blocks of 4 factors on M4, of 4 channels and 16 factors on M55."""
    data = convolution(8, 8, (1, 5, 4, 6), (5, 3, 3, 6), **PADDED)
    (m4,), (m55,), (rv32,) = (costs.counted(data, target) for target in ("cortex-m4", "cortex-m55", "rv32"))
    assert {one.kernel for one in (m4, m55, rv32)} == {"dense 8/8/8"}
    assert (m4.counts["outputs"], m4.counts["pixels"], m4.counts["factors"]) == (100, 20, 20 * 54)
    assert (m4.counts["steps"], m55.counts["steps"], rv32.counts["steps"]) == (20 * 5 * 56, 20 * 8 * 64, 20 * 6 * 54)
    assert (m4.counts["edges"], m4.counts["rows"]) == (20 - 3 * 2, 60)
    assert m4.counts["padding"] == 20 * 9 - (2 + 3 * 3 + 2) * (2 + 2 * 3 + 2)
    assert m55.counts["broken"] == m55.counts["steps"]
    assert costs.counted(layer(8, 128, 8), "cortex-m55")[0].counts["broken"] == 0


def test_counts_of_operands_that_are_repeated() -> None:
    """By the last axis, or as a whole; and numbers without one."""
    names, lines = [], []
    for shapes in (((1, 3, 8),) * 2, ((1, 3, 8), (1, 1, 8)), ((1, 3, 8), (1, 3, 1)), ((), ())):
        operands = [fed(str(i), shape, 8, -4) for i, shape in enumerate(shapes)]
        (one,) = costs.counted(
            file(single(OPS["add"], "case", OPS["add"].Params(), operands, grid(8, -4))), "cortex-m4"
        )
        names.append(one.kernel)
        lines.append(one.counts["lines"])
    assert names == ["add 8/8/8", "add 8/8/8 rows", "add 8/8/8 scalars", "add 8/8/8"]
    assert lines == [3, 3, 3, 1]


def test_counts_of_slices_and_normalizations() -> None:
    """A slice reads runs of neighbours, or single elements where it turns the channels round."""
    blocks = []
    for steps, sizes in (((1, 1, 1, 1), (1, 2, 3, 4)), ((1, 1, 1, 1), (1, 4, 2, 4)), ((1, 1, 1, -1), (1, 4, 3, 4))):
        params = OPS["slice"].Params(tuple(3 if step < 0 else 0 for step in steps), steps, sizes)
        made = single(OPS["slice"], "case", params, [fed("x", (1, 4, 3, 4), 8, -4)], grid(8, -4))
        blocks.append(costs.counted(file(made), "cortex-m4")[0].counts["blocks"])
    assert blocks == [1, 4, 48]
    case = next(case for case in CASES["normalize"])
    node = case.graph.nodes[0]
    shape = case.graph.outs(node)[0].shape
    axes = node.params.axes
    groups = math.prod(size for axis, size in enumerate(shape) if axis not in axes)
    assert costs.counted(file(case), "cortex-m4")[0].counts["groups"] == groups


def test_counts_of_a_depthwise_convolution() -> None:
    data = convolution(8, 8, (1, 6, 6, 16), (16, 3, 3, 1), groups=16, stride_h=2, stride_w=2, **PADDED)
    (found,) = costs.counted(data, "cortex-m55")
    assert found.kernel == "depthwise3x3 8/8/8"
    assert (found.counts["outputs"], found.counts["taps"]) == (9 * 16, (2 + 3 + 3) ** 2 * 16)
    assert found.counts["edges"] == (9 - 4) * 16
    (left,) = costs.counted(convolution(8, 8, (1, 6, 6, 16), (16, 5, 5, 1), groups=16, **PADDED), "rv32")
    assert left.kernel == "depthwise 8/8/8 portable"


@pytest.mark.parametrize(
    ("target", "size", "channels", "kernel", "stride", "instructions"),
    [
        ("cortex-m0plus", 12, 64, 3, 2, 298227),
        ("cortex-m3", 12, 64, 3, 2, 182399),
        ("rv32", 12, 64, 3, 2, 178391),
        ("cortex-m4", 20, 3, 5, 1, 305764),
        ("cortex-m4", 24, 3, 3, 1, 249902),
    ],
)
def test_estimates_of_depthwise_layers(
    target: str, size: int, channels: int, kernel: int, stride: int, instructions: int
) -> None:
    """Stride 2, and few channels, which a Cortex-M4 takes one by one: near what QEMU counted (the M4 on 2026-11-28)."""
    pads = dict.fromkeys(PADDED, kernel // 2)
    strides, weights = {"stride_h": stride, "stride_w": stride}, (channels, kernel, kernel, 1)
    data = convolution(8, 8, (1, size, size, channels), weights, groups=channels, **strides, **pads)
    assert sum(costs.estimated(data, target)) == pytest.approx(instructions, rel=0.1)


def test_heavy_weights_are_counted() -> None:
    """Products are added up by two on rv32 where four neighbours come to more than 255."""
    case = single(
        OPS["conv2d"],
        "case",
        Conv2DParams(),
        [
            fed("x", (1, 4, 4, 8), 8, -7),
            replace(constant("w", (4, 1, 1, 8), 8, *[-7] * 4), q=np.full((4, 1, 1, 8), 63, np.int8)),
            constant("b", (4,), 16, -4),
        ],
        grid(8, -4),
    )
    heavy = costs.counted(file(case), "rv32")[0].counts
    assert heavy["heavy"] == 0
    w = case.graph.nodes[0].inputs[1]
    q = np.full((4, 1, 1, 8), 63, np.int8)
    q[0, 0, 0, 4] = 67
    changed = case.graph.with_values(replace(case.graph[w], data=q))
    assert costs.counted(file(replace(case, graph=changed)), "rv32")[0].counts["heavy"] == heavy["steps"] / 2


@pytest.mark.parametrize("target", MICROCONTROLLERS)
def test_wider_takes_more(target: str) -> None:
    """On a Cortex-M4 int8 takes fewer cycles, which is what its kernel was made for, but some more instructions."""
    for params in ({}, PADDED):
        narrow, wide = (
            sum(costs.estimated(convolution(b, b, (1, 24, 24, 24), (32, 3, 3, 24), **params), target)) for b in (8, 16)
        )
        assert narrow < wide * (1.2 if target == "cortex-m4" else 1)
        assert wide < 8 * narrow


@pytest.mark.parametrize(
    ("target", "most"),
    [("cortex-m0plus", 2.1), ("cortex-m3", 1.4), ("cortex-m4", 1.4), ("cortex-m55", 2.1), ("rv32", 1.2)],
)
def test_int16_vectors_take_little_more(target: str, most: float) -> None:
    """The layers of MLPerf Tiny's autoencoder, whose default widths are int16 beside int8 weights."""
    widths = (640, 128, 128, 128, 128, 8, 128, 128, 128, 128, 640)

    def layers(bits: int) -> int:
        return sum(sum(costs.estimated(layer(bits, *sides), target)) for sides in pairwise(widths))

    assert layers(8) < layers(16) < most * layers(8)


def test_widths_that_were_not_counted_are_the_next_wider_ones() -> None:
    rows = {"dense 8/8/8": {"call": 1.0}, "dense 16/16/16": {"call": 2.0}, "dense 8/8/8 portable": {"call": 3.0}}
    assert costs._row(rows, "dense 16/16/8") == {"call": 2.0}
    assert costs._row(rows, "dense 8/8/16") == {"call": 2.0}
    assert costs._row(rows, "dense 8/8/8 portable") == {"call": 3.0}
    assert costs._row({"dense 8/8/8": {"call": 1.0}}, "dense 16/8/8 portable") == {"call": 1.0}


@pytest.mark.parametrize("target", ["cortex-m0plus", "cortex-m3", "rv32"])
def test_windows_of_few_pixels_have_rows_of_their_own(target: str) -> None:
    """Only direct products have a kernel there; the next row was that of int16 inputs, and twice as much."""
    [row] = costs.counted(convolution(8, 8, (1, 5, 5, 16), (32, 5, 5, 16)), target)
    assert row.kernel == "few 8/8/8 portable"
    assert {row.kernel, "few 8/8/8"} <= {*TABLE[target]}


def test_an_op_that_was_not_counted_says_what_to_run() -> None:
    with pytest.raises(NmpError) as caught:
        costs._row({"dense 8/8/8": {"call": 1.0}}, "hinge 8/8")
    for words in ("instructions of hinge", "nmpconv/runtime/costs.json", "`make costs ARGS=hinge`", "CONTRIBUTING.md"):
        assert words in str(caught.value)


def test_every_weighted_op_tells_its_sums() -> None:
    for op in (op for op in OPS.values() if isinstance(op, Weighted)):
        for case in CASES[op.name]:
            node = case.graph.nodes[0]
            (y,) = case.graph.outs(node)
            sums = op.sums(node.params, case.graph.ins(node), y)
            assert sums.pixels * sums.groups * sums.channels == y.size, case.id
