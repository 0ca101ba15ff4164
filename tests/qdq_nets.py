"""Quantized nets, as trainers and quantizers export them, made node by node: grids are chosen on a float run first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

SHAPE = (1, 3, 12, 12)


def pictures(count: int, seed: int = 3) -> np.ndarray:
    """Smooth planes, float32 [count, 3, 12, 12]."""
    rng = np.random.default_rng(seed)
    return np.clip(np.cumsum(rng.normal(0, 0.5, (count, *SHAPE[1:])), -1), -2.2, 2.2).astype(np.float32)


@dataclass
class Residual:
    """Conv, Relu, Conv, a sum with Relu, a strided Conv, MaxPool, Conv 1x1, GlobalAveragePool, Gemm; 16 channels.

    powers: steps are powers of two. kind: of activations, int8 or uint8. bias: int32 (on s_x * s_w), int8 (with a step
    of its own) or float. clip: integers that a Clip narrows activations to. share: of what was seen, that grids hold.
    """

    powers: bool = True
    kind: str = "int8"
    bias: str = "int32"
    clip: tuple[int, int] | None = None
    share: float = 1.0
    seed: int = 0
    _nodes: list[onnx.NodeProto] = field(default_factory=list)
    _tensors: dict[str, onnx.TensorProto] = field(default_factory=dict)
    _seen: Mapping[str, tuple[float, float]] | None = None
    _named: list[str] = field(default_factory=list)

    def model(self) -> onnx.ModelProto:
        """The net with QuantizeLinear and DequantizeLinear around activations."""
        plain = self._built("y", dict.fromkeys(self._run(), TensorProto.FLOAT))
        session = ort.InferenceSession(plain.SerializeToString())
        names = [port.name for port in session.get_outputs()]
        runs = [dict(zip(names, session.run(None, {"x": x[None]}), strict=True)) | {"x": x} for x in pictures(16)]
        self._seen = {n: (min(float(r[n].min()) for r in runs), max(float(r[n].max()) for r in runs)) for n in runs[0]}
        self._run()
        return self._built("y", {"y": TensorProto.FLOAT})

    def _built(self, name: str, outputs: Mapping[str, int]) -> onnx.ModelProto:
        ports = [helper.make_tensor_value_info(n, kind, None) for n, kind in outputs.items()]
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)
        graph = helper.make_graph(self._nodes, name, [x], ports, list(self._tensors.values()))
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def _run(self) -> list[str]:
        """Writes the nodes; returns the tensors whose ranges are asked for."""
        self._nodes.clear()
        self._tensors.clear()
        self._named.clear()
        rng = np.random.default_rng(self.seed)
        a = self._conv(rng, self._on_grid("x"), "a", 3, 16)
        b = self._conv(rng, a, "b", 16, 16, relu=False)
        total = self._on_grid(self._add("Relu", [self._add("Add", [a, b], "sum")], "stream"))
        c = self._conv(rng, total, "c", 16, 16, strides=[2, 2])
        pooled = self._add("MaxPool", [c], "pool", kernel_shape=[2, 2], strides=[2, 2])
        d = self._conv(rng, self._on_grid(pooled, "c_relu"), "d", 16, 16, size=1)
        flat = self._add("Flatten", [self._on_grid(self._add("GlobalAveragePool", [d], "mean"))], "flat")
        weights = self._weights(rng.normal(0, 0.3, (8, 16)), "gemm", 0)
        bias = self._const("gemm_b", rng.normal(0, 0.3, 8).astype(np.float32))
        logits = self._add("Gemm", [flat, weights, bias], "logits", transB=1)
        self._on_grid(logits, output="y")
        return [name for name in self._named if name != "x"]

    def _conv(
        self, rng: np.random.Generator, x: str, name: str, ins: int, outs: int, size: int = 3, **more: object
    ) -> str:
        relu = more.pop("relu", True)
        w = rng.normal(0, 1.5 / np.sqrt(ins * size * size), (outs, ins, size, size))
        b = rng.normal(0, 0.3, outs)
        inputs = [x, self._weights(w, name, 0), self._bias(b, name, x)]
        y = self._add("Conv", inputs, f"{name}_conv", pads=[size // 2] * 4, **more)
        return self._on_grid(self._add("Relu", [y], f"{name}_relu") if relu else y)

    def _weights(self, w: np.ndarray, name: str, axis: int) -> str:
        """int8 with a step for each channel."""
        step = np.abs(w).reshape(len(w), -1).max(axis=1) / 127
        step = (2.0 ** np.ceil(np.log2(step)) if self.powers else step).astype(np.float32)
        q = np.clip(np.rint(w / step.reshape(-1, *(1,) * (w.ndim - 1))), -127, 127).astype(np.int8)
        grid = [self._const(f"{name}_ws", step), self._const(f"{name}_wz", np.zeros(len(w), np.int8))]
        return self._add("DequantizeLinear", [self._const(f"{name}_w", q), *grid], f"{name}_weights", axis=axis)

    def _bias(self, b: np.ndarray, name: str, x: str) -> str:
        if self.bias == "float" or self._seen is None:
            return self._const(f"{name}_b", b.astype(np.float32))
        if self.bias == "int8":
            grid = [self._const(f"{name}_bs", np.float32(2.0**-6)), self._const(f"{name}_bz", np.int8(0))]
            q = np.clip(np.rint(b * 64), -128, 127).astype(np.int8)
            return self._add("DequantizeLinear", [self._const(f"{name}_b", q), *grid], f"{name}_bias")
        steps = (numpy_helper.to_array(self._tensors[n]) for n in (f"{x.removesuffix('_real')}_s", f"{name}_ws"))
        step = np.prod(np.broadcast_arrays(*steps), axis=0).astype(np.float32)
        grid = [self._const(f"{name}_bs", step), self._const(f"{name}_bz", np.zeros(len(b), np.int32))]
        q = self._const(f"{name}_b", np.rint(b / step).astype(np.int32))
        return self._add("DequantizeLinear", [q, *grid], f"{name}_bias", axis=0)

    def _on_grid(self, x: str, like: str = "", output: str = "") -> str:
        """like: the tensor that has the same grid."""
        self._named.append(x)
        if self._seen is None:
            return x
        low, high = (self.share * end for end in self._seen[like or x])
        first, last = self.clip or (np.iinfo(self.kind).min, np.iinfo(self.kind).max)
        step = (
            max(-low / -first if first else 0.0, high / last)
            if first + last in (-1, 0)
            else (high - low) / (last - first)
        )
        step = 2.0 ** np.ceil(np.log2(step)) if self.powers else step
        zero = 0 if self.kind == "int8" else int(np.clip(np.rint(first - low / step), first, last))
        grid = [self._const(f"{x}_s", np.float32(step)), self._const(f"{x}_z", np.array(zero, self.kind))]
        q = self._add("QuantizeLinear", [x, *grid], f"{x}_q")
        if self.clip:
            ends = [self._const(f"{x}_{i}", np.array(end, self.kind)) for i, end in enumerate(self.clip)]
            q = self._add("Clip", [q, *ends], f"{x}_clip")
        return self._add("DequantizeLinear", [q, *grid], output or f"{x}_real")

    def _add(self, kind: str, inputs: list[str], output: str, **more: object) -> str:
        self._nodes.append(helper.make_node(kind, inputs, [output], output, **more))
        return output

    def _const(self, name: str, data: np.ndarray) -> str:
        self._tensors[name] = numpy_helper.from_array(np.asarray(data), name)
        return name
