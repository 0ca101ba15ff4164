"""A concatenation whose inputs lie in its output: taken where they belong, refused anywhere else."""

from __future__ import annotations

import numpy as np
import pytest
from nets import Net, grid

from nmpconv import _nmp
from nmpconv.file import flat
from nmpconv.file.writer import to_bytes
from nmpconv.graph.text import parse
from nmpconv.passes.memory import plan_memory
from nmpconv.run import runtime

PLAN = 7  # the status


TEXT = """
graph net
input x : int8[1,2,4,4] bits=8 exp=[0] lo=-128 hi=127
sum = add(x, x)
  a : int8[1,2,4,4] bits=8 exp=[0] lo=-128 hi=127
product = mul(x, x)
  b : int8[1,2,4,4] bits=8 exp=[0] lo=-128 hi=127
both = concat(a, b) axis=1
  y : int8[1,4,4,4] bits=8 exp=[0] lo=-128 hi=127
output y
"""


@pytest.fixture(scope="module")
def file() -> bytes:
    """y = concat(x + x, x * x) along the height; the product is written over x, which lies in y."""
    planned = plan_memory.run(parse(TEXT))
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
    net = Net(grid=grid(8, 0))
    net.input("x", 1, 2, 4, 4)
    net.op("add", "x x", "a")
    net.op("concat", "a a", "y", axis=1)
    x = np.arange(-16, 16, dtype=np.int8).reshape(1, 2, 4, 4)
    (y,) = runtime.load(to_bytes(plan_memory.run(net.graph("y")), {})).run(x)
    np.testing.assert_array_equal(y, np.concatenate([2 * x, 2 * x], axis=1))
