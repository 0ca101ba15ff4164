"""ONNX models that are built node by node, with seeded weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Net:
    """One input ``x``; `add` and `const` give the names of tensors, `shape` their shapes."""

    def __init__(self, shape: tuple[int, ...], seed: int = 4, opset: int = 21) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.arrays: dict[str, np.ndarray] = {}
        self.noise = np.random.default_rng(seed)
        self._opset = opset
        self._shapes = {"x": shape}

    def const(self, data: np.ndarray | list[int] | float) -> str:
        """Lists become int64, floats float32."""
        kind = np.int64 if isinstance(data, list) else np.float32
        name = f"k{len(self.arrays)}"
        self.arrays[name] = data if isinstance(data, np.ndarray) else np.asarray(data, kind)
        return name

    def weights(self, *shape: int, spread: float = 1.0, middle: float = 0.0) -> str:
        return self.const(self.noise.normal(middle, spread, shape).astype(np.float32))

    def add(self, kind: str, *inputs: str, outputs: int = 1, **attributes: object) -> str:
        """The node's first output."""
        names = [f"t{len(self.nodes)}" + (f"_{i}" if i else "") for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, f"{kind}{len(self.nodes)}", **attributes))
        if kind == "GroupNormalization":  # onnx infers nothing for it
            self._shapes[names[0]] = self.shape(inputs[0])
        return names[0]

    def conv(self, x: str, outputs: int, kernel: int = 3, *, bias: bool = True, **attributes: object) -> str:
        """Keeps the size unless the attributes say otherwise."""
        channels = self.shape(x)[1] // int(attributes.get("group", 1))  # type: ignore[call-overload]
        inputs = [x, self.weights(outputs, channels, kernel, kernel, spread=(2 / (kernel**2 * channels)) ** 0.5)]
        if bias:
            inputs.append(self.weights(outputs, spread=0.2))
        return self.add("Conv", *inputs, **{"pads": [kernel // 2] * 4, **attributes})

    def cut(self, nodes: int, arrays: dict[str, np.ndarray]) -> None:
        """Forget what was added since there were these."""
        gone = {name for node in self.nodes[nodes:] for name in node.output}
        self._shapes = {name: shape for name, shape in self._shapes.items() if name not in gone}
        self.nodes, self.arrays = self.nodes[:nodes], arrays

    def shape(self, name: str) -> tuple[int, ...]:
        """By ONNX's own inference; ValueError where it finds none."""
        if name in self.arrays:
            return self.arrays[name].shape
        if name not in self._shapes:
            infos = onnx.shape_inference.infer_shapes(self.model([]), strict_mode=True, data_prop=True).graph.value_info
            self._shapes.update({v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in infos})
        if name not in self._shapes or not all(n > 0 for n in self._shapes[name]):
            raise ValueError(f"no shape for {name}")
        return self._shapes[name]

    def model(self, outputs: list[str]) -> onnx.ModelProto:
        def info(name: str) -> onnx.ValueInfoProto:
            return helper.make_tensor_value_info(name, TensorProto.FLOAT, self.shape(name))

        arrays = [numpy_helper.from_array(data, name) for name, data in self.arrays.items()]
        inner = [info(name) for name in self._shapes if name != "x" and name not in outputs]
        ports = [info("x")], [info(name) for name in outputs]
        graph = helper.make_graph(self.nodes, "net", *ports, arrays, value_info=inner)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self._opset)], ir_version=10)

    def save(self, path: Path, *outputs: str) -> None:
        onnx.save(self.model(list(outputs)), path)
