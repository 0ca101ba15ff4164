"""Plans for the RAM that there is, where one attempt after the other needs more scratch than was left to it."""

from __future__ import annotations

from dataclasses import replace

import nets
import numpy as np
import pytest

from nmpconv.base.memory_spec import Memories
from nmpconv.conversion import ram_plan
from nmpconv.errors import Unsupported
from nmpconv.file.writer import to_bytes
from nmpconv.graph.reference import run as run_reference
from nmpconv.graph.trace import Trace
from nmpconv.ir import Graph
from nmpconv.passes.memory import plan_memory
from nmpconv.runtime import interpreter, targets

TARGET = "cortex-m4"


@pytest.fixture
def graph() -> Graph:
    net = nets.Net(grid=nets.grid(8, 0))
    net.input("x", 1, 12, 12, 8)
    net.conv("x", "a", 8, 3)
    net.conv("a", "y", 4, 3)
    return net.graph("y")


def test_results_on_a_pc_lie_over_no_input(graph: Graph) -> None:
    """They would be computed in bands, with more work."""
    apart, bands = 2 * 12 * 12 * 8, plan_memory.run(graph, share=1.0)
    assert plan_memory.peak(ram_plan.planned(graph, None, None, Trace())) == apart > plan_memory.peak(bands)


def test_scratch_that_outgrows_its_room_lies_in_the_slow_memory(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = iter(range(16, 1000, 16))
    monkeypatch.setattr(targets, "scratch", lambda data, target: (next(sizes),) * 2)
    plan = ram_plan.planned(graph, None, TARGET, Trace(), Memories(fast=2048, slow=1 << 20))
    assert next(sizes) == 16 * (ram_plan.ATTEMPTS + 2)
    data = to_bytes(plan, {})
    assert max(interpreter.needs_of_target(data, TARGET).scratch_bytes) > max(room for _, room in plan.rooms.values())
    x = np.random.default_rng(0).integers(-128, 128, (1, 12, 12, 8)).astype(np.int8)
    np.testing.assert_array_equal(interpreter.load(data).run(x)[0], run_reference(plan, {"x": x})["y"])


def test_a_limit_that_no_attempt_keeps_is_told(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = targets.needs(to_bytes(ram_plan.planned(graph, None, TARGET, Trace()), {}), TARGET).arena
    plain = targets.needs

    def needs(data: bytes, target: str) -> targets.Needs:
        return replace(plain(data, target), arena=limit + 16)

    monkeypatch.setattr(targets, "needs", needs)
    monkeypatch.setattr(ram_plan, "_within", lambda graph, *others: nets.placed(graph))
    with pytest.raises(
        Unsupported, match=f"no plan for {limit} bytes in {ram_plan.ATTEMPTS} attempts: each needs"
    ) as caught:
        ram_plan.planned(graph, limit, TARGET, Trace())
    assert (caught.value.where, caught.value.hint) == ("--max-ram", "a little more RAM")
