"""Small files that the tests of the command line work on, made on the spot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import nets
import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx_text import build
from PIL import Image

from nmpconv.file.writer import to_bytes
from nmpconv.ir import Graph, Observed, Preprocess

SIZE = 8
CLASSES = 3
# Small tensors behind two convolutions: 16 bits for them are nearly free.
MEANS = """(float[1,3,16,16] x) => (float[1,5] y) <float[16,3,3,3] w1, float[16,16,3,3] w2, float[8,16,1,1] w3,
float[32,5] w4> {
  a = Conv <pads = [1,1,1,1]> (x, w1)  b = Relu(a)
  c = Conv <pads = [1,1,1,1]> (b, w2)  d = Relu(c)
  means = AveragePool <kernel_shape = [8,8], strides = [8,8]> (d)
  e = Conv(means, w3)  small = Relu(e)
  f = Flatten(small)  y = MatMul(f, w4)
}"""


def onnx_model(*, channels: int = 3, softmax: bool = True, weight: float = 1.0, extra: str = "") -> onnx.ModelProto:
    """x [1,channels,8,8] -> Conv 3x3, Relu, GlobalAveragePool, Flatten, Gemm (`logits`) -> Softmax -> y.

    weight: a factor on the first weights (NaN for a broken model). extra: an op type put before the last node.
    """
    rng = np.random.default_rng(7)
    arrays = {
        "w1": rng.normal(0, 0.2, (4, channels, 3, 3)) * weight,
        "b1": rng.normal(0, 0.2, 4),
        "w2": rng.normal(0, 1, (CLASSES, 4)),
        "b2": rng.normal(0, 0.2, CLASSES),
    }
    last, odd = ("odd", f"[odd_one] odd = {extra}(logits)") if extra else ("logits", "")
    text = f"""(float[1,{channels},{SIZE},{SIZE}] x) => (float[1,{CLASSES}] y) {{
        [conv] c = Conv<pads=[1,1,1,1]>(x, w1, b1)
        [relu] r = Relu(c)
        [pool] g = GlobalAveragePool(r)
        [flatten] f = Flatten(g)
        [fc] logits = Gemm<transB=1>(f, w2, b2)
        {odd}
        [last] y = {"Softmax" if softmax else "Identity"}({last})
    }}"""
    return build(text, 13, arrays=arrays, name="tiny")


def nhwc_model() -> onnx.ModelProto:
    """The same as Keras exports it: x [1,8,8,3] and a Transpose in front."""
    model = onnx_model()
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("pixels", TensorProto.FLOAT, [1, SIZE, SIZE, 3]))
    model.graph.node.insert(0, helper.make_node("Transpose", ["pixels"], ["x"], "to_nchw", perm=[0, 3, 1, 2]))
    return model


def two_inputs() -> onnx.ModelProto:
    """The same with a second input, z [1,3], that is added to the logits."""
    model = onnx_model(extra="Identity", softmax=False)
    model.graph.input.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, CLASSES]))
    model.graph.node[-2].CopyFrom(helper.make_node("Add", ["logits", "z"], ["odd"], "odd_one"))
    return model


def images(folder: Path, count: int = 8, size: int = SIZE) -> Path:
    """PNG files of noise, and labels.csv that calls them 0, 1, 2, 0, ..."""
    folder.mkdir()
    rng = np.random.default_rng(3)
    rows = ["file,label"]
    for i in range(count):
        Image.fromarray(rng.integers(0, 256, (size, size, 3)).astype(np.uint8)).save(folder / f"{i:02}.png")
        rows.append(f"{i:02}.png,{i % CLASSES}")
    (folder / "labels.csv").write_text("\n".join(rows) + "\n")
    return folder


def nmp_graph(*, labels: tuple[str, ...] = ("ant", "bee", "cat"), name: str = "hand-made") -> Graph:
    """A planned graph made without the converter: pixels [1,8,8,3] -> conv2d 8x8 -> reshape -> [1,3]."""
    net = nets.Net(6, nets.grid(8, -2))
    net.input("x", 1, SIZE, SIZE, 3, quant=nets.grid(8, 0))
    weights = nets.grid(8, -13, -14, -13, axis=0, lo=-127)
    net.integers("w", CLASSES, SIZE, SIZE, 3, most=127, quant=weights)
    net.const("b", [1, -2, 3])
    net.op("conv2d", "x w b", "c")
    net.op("reshape", "c", "y", shape=(1, CLASSES))
    graph = nets.placed(net.graph("y", pixels=["x"]), x=0, c=192, y=192)
    return replace(
        graph.with_values(
            replace(graph["x"], observed=None),
            replace(graph["c"], observed=Observed(-20.0, 21.5, "mse")),
            replace(graph["y"], observed=None),
        ),
        name=name,
        preprocess={"x": Preprocess(mean=(127.5,), std=(64.0,))},
        labels=labels,
        source_shapes={"x": (1, 3, SIZE, SIZE), "y": (1, CLASSES)},
    )


def nmp_bytes(**changes: Any) -> bytes:
    """The .nmp file of `nmp_graph`."""
    return to_bytes(nmp_graph(**changes), {"producer": "a test", "source": "nowhere.onnx"})
