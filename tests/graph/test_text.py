"""The text form: what it looks like, that it reads back, and what it says about lines that it does not understand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nmpconv.errors import InputError
from nmpconv.graph.text import graph_hash, parse, to_text
from nmpconv.ir import Graph, Observed, Preprocess, Quant, Value
from nmpconv.ops import OPS

TEXT = """\
graph "a net"
input x : int8[1,4,4,1] observed=[-128.0,127.0,"fixed"] bits=8 exp=[0] lo=-128 hi=127 pixels=true source=[1,1,4,4]
const w : int8[2,1,1,1] bits=8 exp=[-7,-9] lo=-128 hi=127 axis=0 = [100,-3]
const "the bias, 2" : float32[2] = [0.1,-Infinity]
conv/1;a:0 = conv2d(x, w, "the bias, 2") stride_h=2 pad_top=1
  y~1 : int16[1,3,4,2] clamp=[0.0,Infinity] bits=16 exp=[-4] lo=0 hi=32767 offset=16
soft = softmax(y~1) axis=3
  z : float32[1,3,4,2]
output z source=[1,2,3,4]
label "a \\"cat\\""
"""


def test_reads_back() -> None:
    graph = parse(TEXT)
    assert to_text(graph) == TEXT
    assert graph.pixels == {"x"}
    assert graph.source_shapes == {"x": (1, 1, 4, 4), "z": (1, 2, 3, 4)}
    assert graph.labels == ('a "cat"',)
    assert graph["y~1"] == Value(
        "y~1", (1, 3, 4, 2), "int16", None, (0.0, np.inf), None, Quant(16, (-4,), 0, 32767), 16
    )
    assert graph["x"].observed == Observed(-128.0, 127.0, "fixed")
    assert graph["w"].quant == Quant(8, (-7, -9), -128, 127, 0)
    assert graph.nodes[0].params == OPS["conv2d"].Params(stride_h=2, pad_top=1)
    assert graph.nodes[0].inputs == ("x", "w", "the bias, 2")


def test_preprocessing_reads_back() -> None:
    how = Preprocess(mean=(1.0, 2.0, 3.0), channel_order="bgr", crop=0.875)
    graph = replace(parse(TEXT), preprocess={"x": how})
    assert parse(to_text(graph)).preprocess == {"x": how}


def one_constant(data: np.ndarray) -> Graph:
    return Graph("g", ("x",), ("x",), (), {"x": Value("x", (1,)), "c": Value("c", data.shape, data.dtype.name, data)})


@pytest.mark.parametrize("dtype", ["float32", "int8", "int16", "int32"])
@pytest.mark.parametrize("count", [0, 1, 64, 65])
def test_constants(dtype: str, count: int) -> None:
    data = (np.random.default_rng(3).standard_normal(count) * 50).astype(dtype)
    graph = one_constant(data)
    text = to_text(graph)
    assert ("@" in text) == (count > 64)
    again = parse(text, {"c": data})["c"].data
    assert again is not None
    assert again.dtype == data.dtype
    assert np.array_equal(again, data)


def test_scalar_constant() -> None:
    data = parse(to_text(one_constant(np.array(2.5, np.float32))))["c"].data
    assert data is not None
    assert data.shape == ()


def test_hash_sees_everything() -> None:
    data = np.arange(100, dtype=np.float32)
    other = data.copy()
    other[99] += 1e-5
    graph = one_constant(data)
    renamed = replace(graph, name="h")
    hashes = {graph_hash(g) for g in (graph, one_constant(other), one_constant(data.reshape(10, 10)), renamed)}
    assert len(hashes) == 4
    assert graph_hash(graph) == graph_hash(one_constant(data.copy()))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("n = conv3d(x)", "there is no op 'conv3d'"),
        ("n = add(x, y", r"unexpected|expected ','"),
        ("n = add(x, y) speed=3", "unexpected keyword argument 'speed'"),
        ("inptu x : float32[1]", "a line starts with graph, input, const"),
        ("input x", "expected ':'"),
        ("input x : float32[1] bits=8", "'exp'"),
        ("const c : float32[100] = @0123456789abcdef", "constant 'c' is not given"),
        ("const c : float32[2] = [1,2,3]", "cannot reshape"),
        ("  y : float32[1]", "pop from empty list"),
    ],
)
def test_errors_name_the_line(line: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        parse(f"graph g\n# a comment\n{line}\n")
    assert caught.value.where == "line 3"


def test_another_constant_than_the_text_means() -> None:
    graph = one_constant(np.arange(100, dtype=np.float32))
    with pytest.raises(InputError, match="other numbers"):
        parse(to_text(graph), {"c": np.zeros(100, np.float32)})
