"""A step of a stream: after as many calls as hops fill the window, the outputs of the whole graph, bit for bit."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from onnx_text import build

import nmpconv
from nmpconv.calib.activation_cache import integers
from nmpconv.errors import NmpError, Unsupported, UsageError
from nmpconv.file.reader import read
from nmpconv.file.writer import to_bytes
from nmpconv.graph.reference import run, steps
from nmpconv.graph.verify import verify
from nmpconv.ir import Graph
from nmpconv.ops import OPS
from nmpconv.passes import stream
from nmpconv.passes.memory import plan_memory
from nmpconv.runtime.interpreter import load

OPSET, FRAMES = 13, 24
# Text of a graph, axis of time, hops.
KEYWORDS = """(float[1,6,24] x) => (y)
<float[8,6,3] w0, float[8] b0, float[8,1,5] w1, float[8] b1, float[8,8,1] w2, float[8] b2, float[3,8] w3, float[3] b3> {
  a0 = Conv<pads=[2,0]>(x, w0, b0)  a = Relu(a0)
  d0 = Conv<pads=[3,0], strides=[2], group=8>(a, w1, b1)  d = Relu(d0)
  p0 = Conv(d, w2, b2)  p = Relu(p0)  r = Add(p, d)
  g = GlobalAveragePool(r)  f = Flatten(g)  y = Gemm<transB=1>(f, w3, b3)
}"""
VALID = """(float[1,6,24] x) => (y)
<float[8,6,3] w0, float[8] b0, float[8,8,3] w1, float[8] b1, float[3,160] w2, float[3] b2> {
  a0 = Conv(x, w0, b0)  a = Relu(a0)
  c = Conv(a, w1, b1)
  from = Constant<value_ints=[2]>()  to = Constant<value_ints=[22]>()  axes = Constant<value_ints=[2]>()
  s = Slice(a, from, to, axes)
  r = Add(c, s)  h = HardSigmoid(r)
  f = Flatten(h)  y = Gemm<transB=1>(f, w2, b2)
}"""
CROPPED = """(float[1,6,24] x) => (y)
<float[8,6,3] w0, float[8] b0, float[8,8,3] w1, float[8] b1> {
  zero = Constant<value_ints=[0]>()  end = Constant<value_ints=[24]>()  axes = Constant<value_ints=[2]>()
  a0 = Conv<pads=[2,2]>(x, w0, b0)  a1 = Slice(a0, zero, end, axes)  a = Relu(a1)
  c0 = Conv<pads=[4,4], dilations=[2]>(a, w1, b1)  c = Slice(c0, zero, end, axes)
  y = Add(c, a)
}"""
PLANES = """(float[1,1,24,10] x) => (y)
<float[8,1,5,3] w0, float[8] b0, float[8,8,3,3] w1, float[8] b1, float[3,8] w2, float[3] b2> {
  a0 = Conv<pads=[3,1,0,1], strides=[2,2]>(x, w0, b0)  a = Relu(a0)
  m = MaxPool<kernel_shape=[2,2], strides=[1,2]>(a)
  c0 = Conv<pads=[0,1,0,1]>(m, w1, b1)  c = Relu(c0)
  g = GlobalAveragePool(c)  f = Flatten(g)  z = Gemm<transB=1>(f, w2, b2)  y = Softmax(z)
}"""
NETS = {
    "keywords": (KEYWORDS, 2, (2, 6, 24)),
    "valid": (VALID, 2, (1, 4)),
    "cropped": (CROPPED, 2, (1, 3)),
    "planes": (PLANES, 2, (2, 8)),
}
BITS = ("8", "16")


@cache
def whole(name: str, bits: str) -> Graph:
    told = {"equalize": "none", "rounding": "nearest"}
    return nmpconv.convert(build(NETS[name][0], OPSET), windows(name, 12), bits=bits, **told).graph


def step(name: str, bits: str, hop: int) -> Graph:
    made = stream.run(whole(name, bits), f"axis={NETS[name][1]},hop={hop}")
    verify(made, "INT", "stream")
    planned = plan_memory.run(made)
    verify(planned, "PLANNED", "plan_memory")
    return planned


def work(graph: Graph) -> int:
    return sum(OPS[n.op].macs(n.params, graph.ins(n), graph.outs(n)) for n in graph.nodes)


def windows(name: str, count: int) -> np.ndarray:
    shape = [d.dim_value for d in build(NETS[name][0], OPSET).graph.input[0].type.tensor_type.shape.dim]
    return np.random.default_rng(1).normal(size=(count, *shape[1:])).astype(np.float32)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize(("name", "hop"), [(name, hop) for name, (*_, hops) in NETS.items() for hop in hops])
def test_chunked_is_whole(name: str, bits: str, hop: int) -> None:
    axis, graph, chunked = NETS[name][1], whole(name, bits), step(name, bits, hop)
    net = load(to_bytes(chunked, {}))
    for x in windows(name, 15)[12:]:
        given = integers(x[np.newaxis], graph["x"])
        (wanted,) = run(graph, {"x": given}).values()
        parts = np.split(given, FRAMES // hop, axis)
        calls = [call["y"] for call in steps(chunked, [{"x": part} for part in parts])]
        net.reset()
        for part, call in zip(parts, calls, strict=True):
            np.testing.assert_array_equal(net.run(part)[0], call)
        found = calls[-1] if calls[-1].shape == wanted.shape else np.concatenate(calls, axis)
        np.testing.assert_array_equal(found, wanted)


def test_without_padding_every_window_is_whole() -> None:
    """The stream goes on: each further hop moves the window by as much."""
    net, other = (load(to_bytes(graph, {})) for graph in (whole("valid", "8"), step("valid", "8", 4)))
    frames = np.random.default_rng(2).normal(size=(1, 6, 60)).astype(np.float32)
    for at in range(0, 60, 4):
        (y,) = other.run(frames[..., at : at + 4])
        if at + 4 >= FRAMES:
            np.testing.assert_array_equal(y, net.run(frames[..., at + 4 - FRAMES : at + 4])[0])


def test_only_what_changes_is_computed() -> None:
    assert work(step("keywords", "8", 2)) < 0.1 * work(whole("keywords", "8"))


def test_converted() -> None:
    """By the whole conversion, for a target, with a test vector, which holds states, too."""
    found = nmpconv.convert(
        build(KEYWORDS, OPSET), windows("keywords", 12), stream="axis=2,hop=2", target="cortex-m4", test_vectors=1
    )
    assert found.report.window_macs > 10 * found.report.macs > 0
    assert found.report.banded_macs == 0
    net, ((given, wanted),) = found.load(), read(found.data).test_vectors
    assert net.inputs[0].shape == (1, 6, 2)
    for i, data in enumerate(given):
        net._net.write(i, np.frombuffer(data, np.uint8))
    net.run_ops(0, len(net.model.ops))
    assert [net.tensor(port.tensor).tobytes() for port in net.model.outputs] == list(wanted)


@pytest.mark.slow
def test_a_report_and_less_ram(tmp_path: Path) -> None:
    """Both are of the step: the window would not fit."""
    model, data, told = build(KEYWORDS, OPSET), windows("keywords", 12), "axis=2,hop=2"
    whole, found = nmpconv.convert(model, data), nmpconv.convert(model, data, stream=told)
    page, room = tmp_path / "r.html", found.report.arena_bytes
    again = nmpconv.convert(model, data, stream=told, max_ram=room, report=page)
    assert again.report.arena_bytes <= room
    assert whole.data != again.data
    assert "ach alone, converted and measured" in page.read_text()


def refused(text: str, told: str) -> NmpError:
    with pytest.raises(NmpError) as caught:
        nmpconv.convert(build(text, OPSET), dry_run=True, stream=told)
    return caught.value


ONE = "(float[1,4,12] x) => (y) <float[4,4,3] w, float[4] b> { a = %s y = Relu(a) }"


@pytest.mark.parametrize(
    ("op", "told", "message"),
    [
        ("Conv<pads=[1,1]>(x, w, b)", "axis=2,hop=1", "'a' pads the end of time, which a stream does not have"),
        ("Conv<pads=[2,0], strides=[2]>(x, w, b)", "axis=2,hop=3", "a stride of 2 frames, a call brings 3"),
        (
            "AveragePool<kernel_shape=[3], pads=[2,0], count_include_pad=0>(x)",
            "axis=2,hop=1",
            "begin or end in padding",
        ),
    ],
)
def test_refused_by_name(op: str, told: str, message: str) -> None:
    error = refused(ONE % op, told)
    assert isinstance(error, Unsupported)
    assert message in error.message
    assert error.hint


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ("axis=2,hop=5", "12 frames is no whole number of hops of 5"),
        ("axis=2,hop=0", "no whole number of hops of 0"),
        ("axis=3,hop=1", "has no axis 3"),
        ("axis=2,hop=1,input=z", "the model's inputs are x"),
        ("axis=2", "'axis=2' is no stream"),
        ("axis=time,hop=1", "is no stream"),
        ("axis=2,hop=1,axis=2", "is no stream"),
    ],
)
def test_wrong_streams(told: str, message: str) -> None:
    error = refused(ONE % "Conv<pads=[2,0]>(x, w, b)", told)
    assert isinstance(error, UsageError)
    assert message in error.message


def test_padding_in_front_of_late_frames() -> None:
    """Behind a window without padding the frames before the first one are no zeros."""
    text = """(float[1,4,12] x) => (y) <float[4,4,3] w, float[4] b, float[4,4,3] v, float[4] c> {
      a = Conv(x, w, b) y = Conv<pads=[2,0]>(a, v, c) }"""
    assert "pads the front of time behind" in refused(text, "axis=2,hop=1").message


def test_parse() -> None:
    assert stream.parse("axis=2,hop=4") == stream.Stream(2, 4, "")
    assert stream.parse("input=x,hop=4,axis=1") == stream.Stream(1, 4, "x")
