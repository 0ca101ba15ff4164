"""A concatenation whose inputs lie in its output: taken where they belong, refused anywhere else."""

from __future__ import annotations

import numpy as np
import pytest

from nmpconv import _nmp
from nmpconv.file import flat
from nmpconv.file.writer import to_bytes
from nmpconv.ir import Graph, Node, Quant, Value
from nmpconv.ops import OPS
from nmpconv.passes.memory import plan_memory
from nmpconv.run import runtime

PLAN = 7  # the status


def graph(values: dict[str, int], *nodes: Node) -> Graph:
    """values: heights of int8 tensors [1, H, 4, 4]."""
    quant = Quant(8, (0,), -128, 127)
    return Graph(
        "net", ("x",), ("y",), nodes, {n: Value(n, (1, h, 4, 4), "int8", quant=quant) for n, h in values.items()}
    )


def node(op: str, out: str, *inputs: str) -> Node:
    return Node(op, op, inputs, (out,), OPS[op].Params(axis=1) if op == "concat" else OPS[op].Params())


@pytest.fixture(scope="module")
def file() -> bytes:
    """y = concat(x + x, x * x) along the height; the product is written over x, which lies in y."""
    parts = graph(
        {"x": 2, "a": 2, "b": 2, "y": 4},
        node("add", "a", "x", "x"),
        node("mul", "b", "x", "x"),
        node("concat", "y", "a", "b"),
    )
    planned = plan_memory.run(parts)
    assert [planned[name].offset for name in "xaby"] == [32, 0, 32, 0]
    return to_bytes(planned, {})


def test_runs(file: bytes) -> None:
    x = np.arange(-16, 16, dtype=np.int8).reshape(1, 2, 4, 4)
    (y,) = runtime.load(file).run(x)
    wanted = np.concatenate([x.astype(int) * 2, np.minimum(x.astype(int) ** 2, 127)], axis=1)
    np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize(
    ("tensor", "offset", "what"),
    [
        ("a", 32, "overwritten before its last use"),
        ("a", 16, "output overlaps input"),
        ("b", 48, "output overlaps input"),
        ("y", 32, "output overlaps input"),
        ("y", 16, "output overlaps input"),
    ],
)
def test_refused_elsewhere(file: bytes, tensor: str, offset: int, what: str) -> None:
    root = flat.unpack(file)
    root["arena_bytes"] = 128
    for op in root["ops"]:
        op["live_end"] = 0
    next(t for t in root["tensors"] if t["name"] == tensor)["offset"] = offset
    data = np.frombuffer(flat.pack(root), np.uint8)
    memory = np.zeros(len(data) + 64, np.uint8)
    model = memory[-memory.ctypes.data % 64 :][: len(data)]
    model[:] = data
    with pytest.raises(_nmp.Fault) as refused:
        _nmp.inspect(model)
    assert refused.value.args[0] == PLAN
    assert what in refused.value.args[2]


def test_the_same_input_twice_is_copied() -> None:
    """It can lie in one place only."""
    twice = graph({"x": 2, "a": 2, "y": 4}, node("add", "a", "x", "x"), node("concat", "y", "a", "a"))
    x = np.arange(-16, 16, dtype=np.int8).reshape(1, 2, 4, 4)
    (y,) = runtime.load(to_bytes(plan_memory.run(twice), {})).run(x)
    np.testing.assert_array_equal(y, np.concatenate([2 * x, 2 * x], axis=1))
