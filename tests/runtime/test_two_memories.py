"""Files whose arena is in two memories: the same bytes as in one, whatever lies where."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import nets
import numpy as np
import pytest
from c_core import Library
from verified import verified

from nmpconv.errors import Status
from nmpconv.file import flatbuffer, reader
from nmpconv.file.writer import to_bytes
from nmpconv.graph.reference import run as run_reference
from nmpconv.graph.verify import verify
from nmpconv.ir import Graph, State
from nmpconv.passes.memory import two_memories
from nmpconv.runtime import interpreter, targets

TARGET = "cortex-m4"


def by_hand() -> Graph:
    """The small net: x and y in the fast memory, with room for scratch of the convolution before them."""
    graph = nets.small_net()
    places = {"x": 512, "y": 544, "c": 560, "a": 560, "m": 592, "f": 592}
    moved = (replace(graph[name], offset=at) for name, at in places.items())
    return replace(graph.with_values(*moved), fast_bytes=560, rooms={"n_c": (0, 512)})


def convolutions() -> Graph:
    """Wide ones, whose outputs may lie over lines of the inputs, a sum and a concatenation, and a state."""
    net = nets.Net(grid=nets.grid(8, 0))
    net.input("x", 1, 12, 12, 8)
    net.input("s", 1, 12, 12, 8)
    net.conv("x", "a", 8, 3)
    net.conv("a", "b", 16, 1)
    net.conv("b", "c", 8, 3)
    net.op("add", "c s", "d")
    net.op("concat", "d a", "e", axis=1)
    net.conv("e", "y", 4, 3)
    return replace(net.graph("y", "d"), states={"s": State("d")})


def scratch_of(graph: Graph) -> list[int]:
    return targets.scratch(to_bytes(nets.placed(graph), {}), TARGET)


@pytest.mark.parametrize("fast", [0, 1024, 2048, 4096, 6000, 1 << 20])
def test_bytes_are_those_of_the_reference(fast: int) -> None:
    graph = convolutions()
    planned = two_memories.run(graph, fast, scratch_of(graph))
    verify(planned, "PLANNED", "test")
    data = to_bytes(planned, {})
    assert verified(data)[0] == Status.OK
    assert planned.fast_bytes <= fast and bool(planned.fast_bytes) == (fast > 0)
    net, dice = interpreter.load(data), np.random.default_rng(fast)
    state = np.zeros((1, 12, 12, 8), np.int8)
    for _ in range(3):
        x = dice.integers(-128, 128, (1, 12, 12, 8)).astype(np.int8)
        wanted = run_reference(graph, {"x": x, "s": state})
        state = wanted["d"]
        np.testing.assert_array_equal(net.run(x)[0], wanted["y"])


def test_a_plan_by_hand(root: Path, tmp_path: Path, sanitized: Callable[..., Library]) -> None:
    """In Python, and by the C API's own test, at every level."""
    x = np.random.default_rng(0).integers(-128, 128, (1, 4, 4, 2)).astype(np.int8)
    y = run_reference(by_hand(), {"x": x})["y"]
    data = to_bytes(by_hand(), {}, [([x.tobytes()], [y.tobytes()])])
    assert verified(data)[0] == Status.OK
    net = interpreter.load(data)
    assert (net.fast_bytes, net.model.fast_bytes, net.model.ops[0].scratch_room) == (560, 560, 512)
    np.testing.assert_array_equal(net.run(x)[0], y)
    np.testing.assert_array_equal(net.copy().run(x)[0], y)
    split, start = convolutions(), np.zeros((1, 12, 12, 8), np.int8)
    made = run_reference(split, {"x": start, "s": start})
    vector = [start.tobytes()] * 2, [made[name].tobytes() for name in split.outputs]
    (tmp_path / "hand.nmp").write_bytes(data)
    (tmp_path / "states.nmp").write_bytes(to_bytes(two_memories.run(split, 3000, scratch_of(split)), {}, [vector]))
    program = sanitized(portable=True).program(tmp_path / "test_nmp", root / "interpreter" / "tests" / "test_nmp.c")
    files = [tmp_path / "hand.nmp", tmp_path / "states.nmp"]
    found = subprocess.run([program, *files], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr


def test_an_older_interpreter_takes_it_for_one_arena() -> None:
    """Without the fields it is a legal plan that computes the same."""
    root = flatbuffer.unpack(to_bytes(by_hand(), {}))
    root["fast_bytes"] = 0
    for op in root["ops"]:
        op["scratch_at"] = op["scratch_room"] = 0
    data = flatbuffer.pack(root)
    assert verified(data)[0] == Status.OK and reader.read(data).fast_bytes == 0
    x = np.random.default_rng(1).integers(-128, 128, (1, 4, 4, 2)).astype(np.int8)
    np.testing.assert_array_equal(interpreter.load(data).run(x)[0], run_reference(by_hand(), {"x": x})["y"])


def test_scratch_lies_where_the_plan_says() -> None:
    """The arena of a target counts scratch that has room in the fast memory once, and other scratch behind."""
    graph = by_hand()
    data = to_bytes(graph, {})
    wide = interpreter.needs_of_target(data, TARGET)
    narrow = interpreter.needs_of_target(to_bytes(replace(graph, rooms={"n_c": (0, 16)}), {}), TARGET)
    assert wide.fast_bytes == narrow.fast_bytes == 560
    assert 16 < wide.scratch_bytes[0] <= 512
    assert narrow.arena_bytes > wide.arena_bytes
