"""conv_add: where its output may lie, and which grids of its first operand are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import op_cases
import pytest
from verified import verified

from nmpconv.file import flatbuffer
from nmpconv.file.writer import to_bytes
from nmpconv.graph import reference
from nmpconv.ir import Graph
from nmpconv.passes.memory import plan_memory
from nmpconv.runtime import interpreter

OP, PLAN = 6, 7  # statuses
GRAPHS = {case.id: case.graph for case in op_cases.CASES}


def planned(case: str) -> Graph:
    return plan_memory.run(GRAPHS[case])


@pytest.mark.parametrize("case", ["conv_add/3x3/int8", "conv_add/3x3/int16/pad", "conv_add/depthwise/int8"])
def test_the_output_lies_on_the_other_operand(case: str) -> None:
    graph = planned(case)
    r, x = graph.inputs
    assert graph["y"].offset == graph[r].offset != graph[x].offset
    feeds = {n: np.random.default_rng(1).integers(-100, 100, graph[n].shape).astype(graph[n].dtype) for n in (r, x)}
    (wanted,) = reference.run(graph, feeds).values()
    for level in interpreter.cpus():
        (got,) = interpreter.load(to_bytes(graph, {}), cpu=level).run(*feeds.values())
        np.testing.assert_array_equal(got, wanted, err_msg=level)


def test_an_operand_of_another_width_keeps_its_place() -> None:
    graph = planned("conv_add/widths/8x8x8x16/random")
    assert graph["y"].offset not in {graph[name].offset for name in graph.inputs}


def test_the_output_on_the_convolution_s_input_is_refused() -> None:
    """Other pixels need it yet."""
    graph = planned("conv_add/batch/int8")
    _, x = graph.inputs
    moved = replace(graph["y"], offset=graph[x].offset)
    assert verified(to_bytes(graph.with_values(moved), {}))[0] == PLAN


@pytest.mark.parametrize(("by", "wanted"), [(0, 0), (1, 0), (-1, OP), (30, 0), (31, OP)])
def test_grids_of_the_other_operand(by: int, wanted: int) -> None:
    """From that of the sums on up to 2^30 times as coarse; by: exponents above the sums'."""
    root = flatbuffer.unpack(to_bytes(planned("conv_add/shift/0,0/8x8x8x8"), {}))
    r, x, w = (root["tensors"][i] for i in root["ops"][0]["inputs"][:3])
    r["exponents"] = x["exponents"] + w["exponents"] + np.int8(by)
    assert verified(flatbuffer.pack(root))[0] == wanted
