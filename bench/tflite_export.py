"""Writes an ONNX model of plain layers as TFLite files by TensorFlow: float, int8, and int16 with weights of int8.

    tf/bin/python bench/tflite_export.py model.onnx calib.npy FOLDER     # an environment with tensorflow and onnx

The files take channels last. calib.npy: samples as the ONNX model takes them. `bench/tflite.py` calls it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tensorflow as tf
from onnx import helper, numpy_helper


class Net(tf.Module):
    """The graph in TensorFlow's operators, channels last."""

    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__()
        self._graph = model.graph
        self._arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        values = {next(port.name for port in self._graph.input if port.name not in self._arrays): x}
        for node in self._graph.node:
            constants = [self._arrays[name] for name in node.input if name in self._arrays]
            operands = [values[name] for name in node.input if name in values]
            read = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
            values[node.output[0]] = _computed(node.op_type, operands, constants, read)
        return values[self._graph.output[0].name]


def _computed(kind: str, x: list[tf.Tensor], constants: list[np.ndarray], read: Mapping[str, Any]) -> tf.Tensor:
    if kind == "Transpose" or (kind == "Reshape" and len(constants[0]) == 4):
        return x[0]
    if kind == "Reshape":
        return tf.reshape(x[0], [1, -1])
    if kind == "Conv":
        return _convolution(x[0], *constants, read)
    if kind in ("MatMul", "Gemm"):
        y = tf.matmul(x[0], constants[0].T if read.get("transB") else constants[0])
        return y + constants[1] if len(constants) > 1 else y
    if kind == "AveragePool":
        return tf.nn.avg_pool2d(x[0], read["kernel_shape"], read["strides"], "VALID")
    simple = {"Relu": tf.nn.relu, "Add": lambda *terms: tf.add(*terms), "Softmax": tf.nn.softmax}
    return simple[kind](*x, *constants)


def _convolution(x: tf.Tensor, w: np.ndarray, b: np.ndarray, read: Mapping[str, Any]) -> tf.Tensor:
    """Its padding is SAME or VALID, as TFLite has them."""
    stride = read["strides"]
    windows = zip(x.shape[1:3], w.shape[2:], stride, strict=True)
    missing = [max(0, (-(-size // step) - 1) * step + kernel - size) for size, kernel, step in windows]
    same = [*(total // 2 for total in missing), *(total - total // 2 for total in missing)]
    padding = "SAME" if list(read["pads"]) == same else "VALID"
    if padding == "VALID" and any(read["pads"]):
        raise ValueError(f"pads {list(read['pads'])} are neither SAME nor VALID")
    if read["group"] > 1:
        kernel = np.transpose(w, (2, 3, 0, 1))
        return tf.nn.depthwise_conv2d(x, kernel, [1, *stride, 1], padding) + b
    return tf.nn.conv2d(x, np.transpose(w, (2, 3, 1, 0)), stride, padding) + b


def files(net: Callable[[tf.Tensor], tf.Tensor], samples: np.ndarray) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file. samples: [n, 1, ...], channels last."""
    call = tf.function(net, input_signature=[tf.TensorSpec(samples.shape[1:], tf.float32)])
    widths = {
        "int8": tf.lite.OpsSet.TFLITE_BUILTINS_INT8,
        "int16": tf.lite.OpsSet.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8,
    }
    for kind in ("float32", *widths):
        converter = tf.lite.TFLiteConverter.from_concrete_functions([call.get_concrete_function()])
        if kind != "float32":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
            converter.representative_dataset = lambda: ([sample] for sample in samples)
            converter.target_spec.supported_ops = [widths[kind]]
            converter.inference_input_type = converter.inference_output_type = getattr(tf, kind)
        yield kind, converter.convert()


def main() -> None:
    model, samples = onnx.load(sys.argv[1]), np.load(sys.argv[2])
    if samples.ndim == 5 and samples.shape[2] in (1, 3) and samples.shape[4] not in (1, 3):
        samples = np.moveaxis(samples, 2, -1)
    for kind, data in files(Net(model), samples):
        (Path(sys.argv[3]) / f"{kind}.tflite").write_bytes(data)


if __name__ == "__main__":
    main()
