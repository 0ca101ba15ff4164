"""Full-integer models: integers in and out, as full-integer TFLite models have them once they are ONNX."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import nmpconv
from nmpconv.frontend.onnx import load
from nmpconv.ir import Given

DTYPES = {"int8": TensorProto.INT8, "uint8": TensorProto.UINT8, "int16": TensorProto.INT16}
SAMPLES = 24


def model(kind: str, last: str, move: str, scales: tuple[float, float], zeros: tuple[int, int]) -> onnx.ModelProto:
    """Integers [1,6,6,3] -> move -> DequantizeLinear -> Conv, Relu, MaxPool, Gemm, last -> QuantizeLinear -> Reshape.

    kind: of the integers. move: "" or "Transpose", before the DequantizeLinear. scales, zeros: of input and output.
    """
    rng, dtype = np.random.default_rng(3), np.dtype(kind)
    arrays = {
        "w": rng.normal(0, 0.3, (4, 3, 3, 3)).astype(np.float32),
        "v": rng.normal(0, 0.3, (36, 5)).astype(np.float32),
        "b": rng.normal(0, 0.3, 5).astype(np.float32),
        **{name: np.float32(s) for name, s in zip(("s", "t"), scales, strict=True)},
        **{name: np.array(z, dtype) for name, z in zip(("z", "u"), zeros, strict=True)},
        "flat": np.array([1, 36]),
        "shape": np.array([5]),
    }
    quantized = helper.make_node("DequantizeLinear", ["q" if move else "x", "s", "z"], ["r" if move else "q"])
    turned = helper.make_node("Transpose", ["x" if move else "q"], ["q" if move else "r"], perm=[0, 3, 1, 2])
    nodes = [turned, quantized] if move else [quantized, turned]
    nodes += [
        helper.make_node("Conv", ["r", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("MaxPool", ["d"], ["e"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Reshape", ["e", "flat"], ["f"]),
        helper.make_node("Gemm", ["f", "v", "b"], ["g"]),
        helper.make_node(last, ["g"], ["h"]),
        helper.make_node("QuantizeLinear", ["h", "t", "u"], ["i"]),
        helper.make_node("Reshape", ["i", "shape"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", DTYPES[kind], [1, 6, 6, 3])],
        [helper.make_tensor_value_info("y", DTYPES[kind], [5])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    found = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21 if kind == "int16" else 17)])
    found.ir_version = 10
    onnx.checker.check_model(found, full_check=True)
    return found


def samples(kind: str) -> Iterator[np.ndarray]:
    rng, ends = np.random.default_rng(5), np.iinfo(kind)
    spread = min(ends.max, 127) if kind != "uint8" else 255
    for _ in range(SAMPLES):
        yield rng.integers(max(ends.min, -spread), spread + 1, (1, 6, 6, 3)).astype(kind)


CASES = [
    ("powers of two", ("int8", "Identity", "", (2.0**-5, 2.0**-2), (0, 0)), "int8"),
    ("transposed first", ("int8", "Identity", "Transpose", (2.0**-5, 2.0**-2), (0, 0)), "int8"),
    ("any scales, zero points", ("int8", "Identity", "Transpose", (0.0178, 0.317), (-11, 5)), "int8"),
    ("softmax", ("int8", "Softmax", "Transpose", (0.0178, 1 / 256), (-1, -128)), "int8"),
    ("uint8", ("uint8", "Softmax", "", (1 / 255, 1 / 256), (0, 0)), "int16"),
    ("uint8, zero points", ("uint8", "Identity", "Transpose", (0.0178, 0.317), (117, 131)), "int16"),
    ("int16", ("int16", "Identity", "", (2.0**-5, 2.0**-8), (0, 0)), "int16"),
]


@pytest.mark.parametrize(("form", "port"), [pytest.param(*case[1:], id=case[0]) for case in CASES])
def test_integers_in_and_out(form, port, tmp_path: Path):
    """Ports hold the model's integers, whatever their scales; results are the model's but for a step in the mean."""
    path, kind = tmp_path / "m.onnx", form[0]
    onnx.save(model(*form), path)
    engine, fed = ort.InferenceSession(path), list(samples(kind))
    converted = nmpconv.convert(path, fed, bits="16" if kind == "int16" else "8")
    net = converted.load()
    for side in (*net.inputs, *net.outputs):
        assert (side.dtype, side.exponent) == (port, 0)
    wanted = np.array([engine.run(None, {"x": x})[0] for x in fed], np.float64)
    got = np.array([net.run_float(x.astype(np.float32))[0] for x in fed])
    assert got.shape == wanted.shape
    assert np.array_equal(got, np.rint(got))
    assert wanted.std() > 3  # they are not all alike
    error = np.abs(got - wanted)
    assert np.sqrt(np.square(error).mean()) < 1
    assert (error <= 1).mean() > 0.9


def test_without_data(tmp_path: Path):
    """A model that brings all its ranges needs no samples; random ones that the import is checked by are integers."""
    path = tmp_path / "m.onnx"
    whole = model("int8", "Identity", "Transpose", (2.0**-5, 2.0**-2), (0, 0))
    at = [i for i, node in enumerate(whole.graph.node) if node.output[0] in ("d", "g")]
    for i in reversed(at):
        name = whole.graph.node[i].output[0]
        whole.graph.node[i].output[0] = f"{name}.r"
        whole.graph.node.insert(i + 1, helper.make_node("QuantizeLinear", [f"{name}.r", "t", "u"], [f"{name}.q"]))
        whole.graph.node.insert(i + 2, helper.make_node("DequantizeLinear", [f"{name}.q", "t", "u"], [name]))
    onnx.save(whole, path)
    converted = nmpconv.convert(path)
    assert [(port.dtype, port.exponent) for port in converted.load().inputs] == [("int8", 0)]


def test_an_input_of_integers_is_noted(tmp_path: Path):
    onnx.save(model("int8", "Identity", "Transpose", (0.0178, 0.317), (-11, 5)), tmp_path / "m.onnx")
    graph = load(tmp_path / "m.onnx")
    assert graph.plain_ports() == {"x": "int8", "y": "int8"}
    assert graph.given["x"] == graph.given["y"] == Given(1.0, 0, "int8")
