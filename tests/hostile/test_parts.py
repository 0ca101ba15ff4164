"""Plans of hostile files: parts of a concatenation anywhere but where they belong, operands that are gone, disorder."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fuzz_inputs import verifiers
from nets import Net, grid, placed
from verified import Status, verified

from nmpconv.file import flatbuffer
from nmpconv.file.writer import to_bytes
from nmpconv.graph.text import parse
from nmpconv.passes.memory import plan_memory
from nmpconv.runtime import interpreter

PLAN, ORDER = 7, 8  # statuses

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
    (y,) = interpreter.load(file).run(x)
    wanted = np.concatenate([x.astype(int) * 2, np.minimum(x.astype(int) ** 2, 127)], axis=1)
    np.testing.assert_array_equal(y, wanted)


def refusal(root: dict[str, Any]) -> tuple[int, str]:
    """Status and sentence for a file of these tables."""
    return verified(flatbuffer.pack(root))


@pytest.mark.parametrize(
    ("tensor", "offset", "rule"),
    [
        ("a", 32, "overwritten before its last use"),
        ("a", 16, "output overlaps input"),
        ("b", 48, "output overlaps input"),
        ("y", 32, "output overlaps input"),
        ("y", 16, "output overlaps input"),
    ],
)
def test_refused_elsewhere(file: bytes, tensor: str, offset: int, rule: str) -> None:
    root = flatbuffer.unpack(file)
    root["arena_bytes"] = 128
    for op in root["ops"]:
        op["live_end"] = 0
    next(t for t in root["tensors"] if t["name"] == tensor)["offset"] = offset
    found, sentence = refusal(root)
    assert found == PLAN
    assert rule in sentence


def test_the_same_input_twice_is_copied() -> None:
    """It can lie in one place only."""
    net = Net(grid=grid(8, 0))
    net.input("x", 1, 2, 4, 4)
    net.op("add", "x x", "a")
    net.op("concat", "a a", "y", axis=1)
    x = np.arange(-16, 16, dtype=np.int8).reshape(1, 2, 4, 4)
    (y,) = interpreter.load(to_bytes(plan_memory.run(net.graph("y")), {})).run(x)
    np.testing.assert_array_equal(y, np.concatenate([2 * x, 2 * x], axis=1))


def test_a_second_operand_that_was_overwritten() -> None:
    """b in the place of a, which the next op reads: as its first operand it is the op in place that is to blame."""
    net = Net(grid=grid(8, 0))
    net.input("x", 1, 64)
    net.op("add", "x x", "a")
    net.op("requantize", "a", "b")
    net.op("add", "b a", "y")
    root = flatbuffer.unpack(to_bytes(placed(net.graph("y"), x=0, a=64, b=64, y=128), {}))
    found, sentence = refusal(root)
    assert (found, sentence) == (PLAN, "overwritten before its last use, at offset")


def test_a_result_that_stands_before_the_inputs() -> None:
    net = Net(grid=grid(8, 0))
    net.input("x", 1, 64)
    net.op("requantize", "x", "y")
    root = flatbuffer.unpack(to_bytes(placed(net.graph("y")), {}))
    root["tensors"].reverse()
    (op,) = root["ops"]
    op["inputs"], op["outputs"] = [1], [0]
    root["inputs"][0]["tensor"], root["outputs"][0]["tensor"] = 1, 0
    found, sentence = refusal(root)
    assert (found, sentence) == (ORDER, "outputs are not in order")


def test_a_list_that_two_ops_share() -> None:
    """Each of many ops could have a long one otherwise, and a verifier looks at all of it for each of them."""
    net = Net(grid=grid(8, 0))
    net.input("x", 1, 4)
    net.op("gather", "x", "a", axis=1, index=(3,) * 10_000)
    net.op("gather", "x", "y", axis=1, index=(0, 1))
    good = to_bytes(placed(net.graph("y")), {})
    assert verified(good) == (Status.OK, "")
    long, short = sorted(place.at for place in verifiers.seed(good).lists if place.field == "Gather.index")
    long, short = (long, short) if good[long : long + 4] == (10_000).to_bytes(4, "little") else (short, long)
    (place,) = (
        at for at, *_ in verifiers.seed(good).references if at + flatbuffer._Walk(memoryview(good)).u32(at) == short
    )
    shared = bytearray(good)
    shared[place : place + 4] = ((long - place) % 2**32).to_bytes(4, "little")
    assert verified(flatbuffer.seal(bytes(shared))) == (Status.STRUCTURE, "offsets and lengths")


def test_a_table_that_is_read_again_and_again() -> None:
    """Its numbers are looked at for each reader: more of that than the file's length allows is a limit."""
    net = Net(grid=grid(16, -10))
    net.input("x", 1, 8)
    net.const("t", np.full(512, 1 << 30, np.int32), quant=grid(32, -30))
    net.op("softmax", "x t", "y", quant=grid(16, -15), axis=1)
    root = flatbuffer.unpack(to_bytes(placed(net.graph("y")), {}))
    assert verified(flatbuffer.pack(root)) == (Status.OK, "")
    x, table = root["ops"][0]["inputs"]
    root["ops"][0]["inputs"] = [x, *[table] * 40]
    assert verified(flatbuffer.pack(root)) == (Status.LIMIT, "steps of verification")


OF_FLOATS = ("float_exponents", "float_offsets", "float_mantissas")


@pytest.mark.parametrize("kinds", [OF_FLOATS[:count] for count in range(4)], ids=["", "e", "eo", "eom"])
def test_steps_of_a_tensor_are_paid(kinds: tuple[str, ...]) -> None:
    """One for each exponent, and each number of floats: both verifiers run out at the same reader."""
    net, channels, readers = Net(grid=grid(16, -10)), 600, range(1, 80)
    net.input("x", 1, channels)
    net.const("t", np.full(512, 1 << 30, np.int32), quant=grid(32, -30))
    net.op("softmax", "x t", "y", quant=grid(16, -15), axis=1)
    root = flatbuffer.unpack(to_bytes(placed(net.graph("y")), {}))
    x, table = root["ops"][0]["inputs"]
    numbers = dict(zip(OF_FLOATS, ([-10] * channels, [0.0] * channels, [1.5] * channels), strict=True))
    numbers["float_axis"] = 1
    root["tensors"][x] |= {name: numbers[name] for name in (*kinds, "float_axis") if kinds}
    statuses = []
    for count in readers:
        root["ops"][0]["inputs"] = [x, *[table] * count]
        statuses.append(verified(flatbuffer.pack(root))[0])
    assert statuses[0] == Status.OK
    first = statuses.index(Status.LIMIT)
    assert set(statuses[1:first]) == {Status.OP} and set(statuses[first:]) == {Status.LIMIT}
