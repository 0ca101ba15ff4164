"""Small models that mutants are made of."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "file"))

import nets
from op_cases import BY_OP
from test_states import leaky

from nmpconv.data import audio
from nmpconv.file.writer import to_bytes
from nmpconv.ir import Graph
from nmpconv.passes.memory import plan_memory

BYTES = 3000  # of a file that is small
PER_OP = 6


def graphs() -> list[Graph]:
    """Models of every op, in memory of their own, and over each other as on boards."""
    models = [
        nets.placed(leaky()),
        plan_memory.run(leaky()),
        nets.small_net(),
        nets.weather(),
        *map(_branches, range(2)),
        nets.placed(leaky(16)),
    ]
    for cases in BY_OP.values():
        models += [nets.placed(case.graph) for case in cases[:: -(-len(cases) // PER_OP)]]
        models += [plan_memory.run(case.graph, room) for case in cases[:: -(-len(cases) // 2)] for room in (None, 0)]
    return models


def sound() -> bytes:
    """A model of two frames, a band of which has no frequency, with a cosine transform."""
    front = audio.parse("rate=8000,window=12,hop=4,bands=4,fft=16,mfcc=3").whole
    net = nets.Net(grid=nets.grid(8, 0))
    net.input("x", 1, 2, 3)
    net.op("add", "x x", "y")
    return to_bytes(
        plan_memory.run(net.graph("y")), {}, sounds={"x": replace(front, shifts=(9, 8, 8), offsets=(5, 0, 1))}
    )


def long(ops: int) -> Graph:
    net = nets.Net(grid=nets.grid(8, -4))
    net.input("y0", 1, 4)
    for i in range(ops):
        net.op("add", f"y{i} y{i}", f"y{i + 1}")
    return plan_memory.run(net.graph(f"y{ops}"))


def _branches(axis: int) -> Graph:
    """Parts put together along the first axes may be made in their place; a part of the result and a form are views."""
    net = nets.Net(grid=nets.grid(8, -4))
    net.input("x", 4, 8)
    net.op("add", "x x", "a")
    net.op("mul", "x a", "b")
    net.op("concat", "a b", "c", axis=axis)
    net.op("add", "c c", "d")
    return plan_memory.run(net.graph("d"), 0 if axis else None)
