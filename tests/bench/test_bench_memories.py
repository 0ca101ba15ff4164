"""Bytes that a simulated Cortex-M4 moves in two memories, against what the plan says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import nets
import numpy as np
import pytest
from zoo_quick import bench_module

from nmpconv.file.memory_map import memory
from nmpconv.file.reader import read
from nmpconv.file.writer import to_bytes
from nmpconv.ir import Graph
from nmpconv.passes.memory import plan_memory, two_memories
from nmpconv.runtime import targets

BENCH = bench_module("two_memories")
TARGET, HANDLE = "cortex-m4", 256  # bytes that are read of the net's handle, which lies in the slow memory


def layers() -> Graph:
    """A window of many products, whose result is large; depthwise ones; a sum; products of 1x1. Most are clipped to a
    range of their own."""
    net, rng = nets.Net(grid=nets.grid(8, -4)), np.random.default_rng(1)
    low, most = replace(nets.grid(8, -4), lo=-100), replace(nets.grid(8, -4), lo=0, hi=96)
    net.input("x", 1, 24, 24, 12)
    net.conv("x", "a", 16, 3, quant=low)
    net.conv("a", "b", 16, 3, groups=16, quant=most)
    net.const("w", rng.integers(-9, 10, (16, 1, 1, 16)), nets.grid(8, *(-7,) * 16, axis=0))
    net.const("v", rng.integers(-9, 10, 16), nets.grid(32, -4))
    net.op("conv_add", "a b w v", "s", quant=low)
    net.conv("s", "c", 32, 1, quant=most)
    net.conv("c", "d", 32, 3, groups=32, stride_h=2, stride_w=2)
    net.conv("d", "y", 8, 1)
    return plan_memory.run(net.graph("y"))


def planned(graph: Graph, fast: int) -> bytes:
    """Scratch is what the plan itself needs."""
    scratch = targets.scratch(to_bytes(graph, {}), TARGET)
    for _ in range(2):
        two = two_memories.run(graph, fast, scratch)
        scratch = targets.scratch(to_bytes(two, {}), TARGET)
    return to_bytes(two, {})


@pytest.mark.slow  # for the compiling
def test_traffic_is_that_of_the_plan(tmp_path: Path, need_tool: Callable[..., str]) -> None:
    need_tool("qemu-system-arm")
    need_tool("arm-none-eabi-gcc")
    data = planned(layers(), 8192)
    model = read(data)
    plan = memory(model, targets.scratch(data, TARGET))
    assert plan is not None
    counted = BENCH.counted(data, tmp_path)
    for op, step, moved in zip(model.ops, plan.steps, counted, strict=True):
        assert moved.slow == pytest.approx(step.moved.slow, rel=0.05, abs=HANDLE), op.name
        if step.copied:  # each of these weights is read once, and a little of the file's tables
            assert step.copied <= moved.file < step.copied + 2000
    assert sum(step.moved.slow for step in plan.steps) > 20000
    assert sum(1 for step in plan.steps if step.copied) >= 2
