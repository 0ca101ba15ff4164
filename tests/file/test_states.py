"""States: an input holds, from one call to the next, what an output was; in numpy, in C, and in the plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import nets
import numpy as np
import pytest
from onnx_text import build

from nmpconv import _nmp
from nmpconv.errors import ModelError, UsageError, VerifyError
from nmpconv.evaluation.accuracy import evaluate
from nmpconv.file import flatbuffer, reader
from nmpconv.file.writer import to_bytes
from nmpconv.graph.reference import steps
from nmpconv.graph.text import parse, to_text
from nmpconv.graph.verify import verify
from nmpconv.ir import Graph, State
from nmpconv.passes.memory import plan_memory
from nmpconv.runtime import interpreter

START = 5


def leaky(bits: int = 8, start: int = START) -> Graph:
    """h = relu-like(s / 2 + x), y = 2 * h + 1: s takes over h. x and s are read before h is made."""
    q, out = nets.grid(bits, -4), nets.grid(16, -4)
    net = nets.Net(grid=q)
    net.input("x", 1, 20)
    net.input("s", 1, 20)
    net.const("half", [[64]], nets.grid(8, -7))
    net.op("mul", "s half", "m")
    net.op("add", "m x", "h", quant=replace(q, lo=-100, hi=100))
    net.const("w", np.eye(20) * 2, nets.grid(8, 0))
    net.const("b", np.full(20, 16), out)
    net.op("fully_connected", "h w b", "y", quant=out)
    return replace(net.graph("y", "h"), name="leaky", states={"s": State("h", start)})


def frames(bits: int, count: int = 9) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [rng.integers(-120, 120, (1, 20)).astype(f"int{bits}") for _ in range(count)]


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("place", [nets.placed, plan_memory.run])
def test_calls_are_those_of_the_reference(bits: int, place: Callable[[Graph], Graph]) -> None:
    graph = place(leaky(bits))
    verify(graph, "PLANNED", "test")
    wanted = list(steps(graph, [{"x": x} for x in frames(bits)]))
    net = interpreter.load(to_bytes(graph, {}))
    assert [port.name for port in net.inputs] == ["x"]
    assert [port.name for port in net.outputs] == ["y"]
    for _ in range(2):
        np.testing.assert_array_equal(net.states()["s"], np.full((1, 20), START))
        for x, call in zip(frames(bits), wanted, strict=True):
            (y,) = net.run(x)
            np.testing.assert_array_equal(y, call["y"])
            np.testing.assert_array_equal(net.states()["s"], call["h"])
        net.reset()


def test_op_by_op_the_last_op_ends_the_call() -> None:
    graph = plan_memory.run(leaky())
    (first,) = steps(graph, [{"x": frames(8)[0]}])
    net = interpreter.load(to_bytes(graph, {}))
    net.set_input(0, frames(8)[0])
    for i in range(3):
        net.run_ops(i, i + 1)
    np.testing.assert_array_equal(net.states()["s"], first["h"])


def test_a_caller_may_write_another_start() -> None:
    """The plan leaves a state alone between two calls, whatever the other inputs are."""
    graph = plan_memory.run(leaky())
    net = interpreter.load(to_bytes(graph, {}))
    [state] = net.states().values()
    net._net.write(1, np.full_like(state, 80).view(np.uint8).ravel())
    (y,) = net.run(np.zeros((1, 20), np.int8))
    np.testing.assert_array_equal(y, np.full((1, 20), 2 * 40 + 16))


def test_what_a_state_takes_over_lies_on_it() -> None:
    graph = plan_memory.run(leaky())
    assert graph["s"].offset == graph["h"].offset
    assert plan_memory.peak(graph) < plan_memory.peak(nets.placed(leaky()))


def test_the_file_and_the_text_keep_them() -> None:
    graph = nets.placed(leaky())
    assert [(p.state, p.start) for p in reader.read(to_bytes(graph, {})).inputs] == [(None, 0), (1, START)]
    text = to_text(graph)
    assert f'state="h" start={START}' in text
    constants = {v.name: v.data for v in graph.values.values() if v.data is not None}
    assert parse(text, constants) == graph


def test_files_without_states_are_as_before() -> None:
    data = to_bytes(nets.small_net(), {})
    assert all(port.state is None for port in reader.read(data).inputs)
    assert not interpreter.load(data).has_states


def test_no_reference_where_the_file_does_not_say_what_its_states_are(tmp_path: Path) -> None:
    net = interpreter.load(to_bytes(nets.placed(leaky()), {}))
    build("(float[1,20] x, float[1,20] s) => (y) { y = Add(x, s) }", 14, tmp_path / "m.onnx")
    with pytest.raises(UsageError, match="does not say which outputs"):
        evaluate(net, {"": np.zeros((3, 1, 20), np.float32)}, reference=tmp_path / "m.onnx")


X, S, M, H, Y = 0, 1, 3, 4, 7  # tensors of the file
TENSOR, PLAN = 5, 7
Tables = dict[str, Any]


def port(side: str, i: int, **fields: Any) -> Callable[[Tables], None]:
    return lambda root: root[side][i].update(fields)


def tensor(i: int, **fields: Any) -> Callable[[Tables], None]:
    return lambda root: root["tensors"][i].update(fields)


REFUSED: dict[str, tuple[Callable[[Tables], None], int, str, str]] = {
    "an output that is not there": (port("inputs", 1, state=2), TENSOR, "output of a state", "there are 2"),
    "a negative output": (port("inputs", 1, state=-2), TENSOR, "output of a state", "takes over output -2"),
    "the state of an output": (port("outputs", 0, state=0), TENSOR, "state of an output", "only inputs have one"),
    "an output of another width": (port("inputs", 1, state=0), TENSOR, "shape or grid", "has the dtype"),
    "an output of another shape": (tensor(S, shape=[20, 1]), TENSOR, "shape or grid", "has the shape"),
    "an output of another exponent": (tensor(S, exponents=[-5]), TENSOR, "shape or grid", "has the exponents"),
    "a start that is no int8": (port("inputs", 1, start=128), TENSOR, "start of a state", "starts at 128"),
    "a start below the clip range": (tensor(S, clip_min=6), TENSOR, "start of a state", "starts at 5"),
    "a state on another output": (tensor(Y, offset=32), PLAN, "state overlaps output", ""),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_refused(sentence: str) -> None:
    change, status, rule, message = REFUSED[sentence]
    root = flatbuffer.unpack(to_bytes(nets.placed(leaky()), {}))
    change(root)
    data = flatbuffer.pack(root)
    memory = interpreter._in_memory(data)
    with pytest.raises(_nmp.Fault) as caught:
        _nmp.inspect(memory)
    assert caught.value.args[0] == status
    assert rule in caught.value.args[2]
    if message:
        with pytest.raises(ModelError, match=message):
            reader.read(data)


def test_verified_in_the_graph() -> None:
    graph = nets.placed(leaky())
    wrong = {
        "takes over an output": replace(graph, states={"s": State("m")}),
        "what it takes over is": replace(graph, states={"s": State("y")}),
        "fed with pixels": replace(graph, pixels=frozenset(["s"])),
        "overlaps the output": graph.with_values(replace(graph["y"], offset=graph["s"].offset)),
    }
    for message, broken in wrong.items():
        with pytest.raises(VerifyError, match=message):
            verify(broken, "PLANNED", "test")
