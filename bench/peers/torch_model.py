"""An ONNX model as a torch.nn.Module, for engines that start from PyTorch: the operators of `models` and no others."""

from __future__ import annotations

from typing import Any

import onnx
import torch
from onnx import helper, numpy_helper
from torch.nn import functional

from peers.job import Unavailable


def load(path: str) -> torch.nn.Module:
    return _Module(onnx.load(path).graph).eval()


class _Module(torch.nn.Module):
    """Runs the nodes in order; those with weights are modules, since quantizers look for such."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        super().__init__()
        self._input, self._output = graph.input[0].name, graph.output[0].name
        written = {node.output[0]: _attributes(node)["value"] for node in graph.node if node.op_type == "Constant"}
        tensors = {t.name: t for t in graph.initializer} | written
        self._constants = {name: torch.tensor(numpy_helper.to_array(t)) for name, t in tensors.items()}
        nodes = [node for node in graph.node if node.op_type != "Constant"]
        self._nodes = _with_biases(nodes, self._constants)
        self.weighted = torch.nn.ModuleDict()
        for i, node in enumerate(self._nodes):
            if node.op_type in WEIGHTED:
                self.weighted[str(i)] = WEIGHTED[node.op_type](node, self._constants)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values = {self._input: x}
        for i, node in enumerate(self._nodes):
            operands = [values[name] for name in node.input if name in values]
            if node.op_type in WEIGHTED:
                y = _padded(operands[0], node)
                values[node.output[0]] = self.weighted[str(i)](y)
            elif node.op_type in PLAIN:
                constants = [self._constants[name] for name in node.input if name in self._constants]
                values[node.output[0]] = PLAIN[node.op_type](operands, constants, _attributes(node))
            else:
                raise Unavailable(f"no translation of {node.op_type} to PyTorch here")
        return values[self._output]


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def _with_biases(nodes: list[onnx.NodeProto], constants: dict[str, torch.Tensor]) -> list[onnx.NodeProto]:
    """MatMul and the Add of a constant behind it become a Gemm."""
    joined: list[onnx.NodeProto] = []
    for node in nodes:
        last = joined[-1] if joined else None
        biases = [name for name in node.input if name in constants]
        if node.op_type == "Add" and biases and last and last.op_type == "MatMul" and last.output[0] in node.input:
            joined[-1] = helper.make_node("Gemm", [*last.input, biases[0]], list(node.output))
        else:
            joined.append(node)
    return joined


def _conv(node: onnx.NodeProto, constants: dict[str, torch.Tensor]) -> torch.nn.Module:
    weights, attributes = constants[node.input[1]], _attributes(node)
    pads = attributes.get("pads", [0] * 4)
    layer = torch.nn.Conv2d(
        weights.shape[1] * attributes.get("group", 1),
        weights.shape[0],
        tuple(weights.shape[2:]),
        stride=tuple(attributes.get("strides", [1, 1])),
        padding=tuple(pads[:2]) if _even(pads) else 0,
        dilation=tuple(attributes.get("dilations", [1, 1])),
        groups=attributes.get("group", 1),
        bias=len(node.input) > 2,
    )
    return _filled(layer, weights, [constants[name] for name in node.input[2:]])


def _linear(node: onnx.NodeProto, constants: dict[str, torch.Tensor]) -> torch.nn.Module:
    if node.input[1] not in constants:
        raise Unavailable(f"no translation of {node.op_type} of two activations to PyTorch here")
    weights = constants[node.input[1]]
    weights = weights if _attributes(node).get("transB") else weights.T
    layer = torch.nn.Linear(weights.shape[1], weights.shape[0], bias=len(node.input) > 2)
    return _filled(layer, weights, [constants[name].flatten() for name in node.input[2:]])


def _filled(layer: torch.nn.Module, weights: torch.Tensor, bias: list[torch.Tensor]) -> torch.nn.Module:
    state = {"weight": weights.contiguous(), **({"bias": bias[0]} if bias else {})}
    layer.load_state_dict(state)
    return layer


WEIGHTED = {"Conv": _conv, "Gemm": _linear, "MatMul": _linear}


def _even(pads: list[int]) -> bool:
    return list(pads[:2]) == list(pads[2:])


def _padded(x: torch.Tensor, node: onnx.NodeProto) -> torch.Tensor:
    pads = _attributes(node).get("pads", [0] * 4)
    return x if _even(pads) else functional.pad(x, (pads[1], pads[3], pads[0], pads[2]))


def _max_pool(x: list[torch.Tensor], _: list[torch.Tensor], attributes: dict[str, Any]) -> torch.Tensor:
    pads = attributes.get("pads", [0] * 4)
    if not _even(pads):
        raise Unavailable(f"no translation of MaxPool with pads {pads} to PyTorch here")
    ceil = bool(attributes.get("ceil_mode", 0)) and any(
        (side + 2 * pad - k) % s
        for side, pad, k, s in zip(
            x[0].shape[2:], pads, attributes["kernel_shape"], attributes["strides"], strict=False
        )
    )  # where it makes no difference, not all engines know it
    return functional.max_pool2d(x[0], attributes["kernel_shape"], attributes["strides"], pads[:2], ceil_mode=ceil)


def _average_pool(x: list[torch.Tensor], _: list[torch.Tensor], attributes: dict[str, Any]) -> torch.Tensor:
    if tuple(x[0].shape[2:]) == tuple(attributes["kernel_shape"]):
        return x[0].mean((2, 3), keepdim=True)
    return functional.avg_pool2d(x[0], attributes["kernel_shape"], attributes["strides"])


def _clip(x: list[torch.Tensor], limits: list[torch.Tensor], _: dict[str, Any]) -> torch.Tensor:
    low, high = (float(limit) for limit in limits)
    return functional.relu6(x[0]) if (low, high) == (0, 6) else functional.hardtanh(x[0], low, high)


def _slice(x: list[torch.Tensor], constants: list[torch.Tensor], _: dict[str, Any]) -> torch.Tensor:
    starts, ends, *others = (constant.tolist() for constant in constants)
    axes = others[0] if others else range(len(starts))
    steps = others[1] if others[1:] else [1] * len(starts)
    cuts = [slice(None)] * x[0].ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        cuts[axis] = slice(start, end, step)
    return x[0][tuple(cuts)]


def _pad(x: list[torch.Tensor], constants: list[torch.Tensor], _: dict[str, Any]) -> torch.Tensor:
    pads = constants[0].tolist()
    ends = len(pads) // 2
    pairs = [side for axis in reversed(range(ends)) for side in (int(pads[axis]), int(pads[axis + ends]))]
    return functional.pad(x[0], pairs, value=float(constants[1]) if constants[1:] else 0.0)


def _mean(x: list[torch.Tensor], constants: list[torch.Tensor], attributes: dict[str, Any]) -> torch.Tensor:
    axes = constants[0].tolist() if constants else attributes["axes"]
    return x[0].mean(tuple(axes), keepdim=bool(attributes.get("keepdims", 1)))


def _hard_sigmoid(x: list[torch.Tensor], _: list[torch.Tensor], attributes: dict[str, Any]) -> torch.Tensor:
    slope, offset = attributes.get("alpha", 0.2), attributes.get("beta", 0.5)
    if abs(slope - 1 / 6) > 1e-4 or offset != 0.5:
        return torch.clamp(slope * x[0] + offset, 0, 1)
    return functional.hardsigmoid(x[0])


PLAIN = {
    "Relu": lambda x, constants, attributes: functional.relu(x[0]),
    "Clip": _clip,
    "Add": lambda x, constants, attributes: x[0] + (x + constants)[1],
    "Mul": lambda x, constants, attributes: x[0] * (x + constants)[1],
    "HardSwish": lambda x, constants, attributes: functional.hardswish(x[0]),
    "HardSigmoid": _hard_sigmoid,
    "Sigmoid": lambda x, constants, attributes: torch.sigmoid(x[0]),
    "Slice": _slice,
    "Pad": _pad,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "GlobalAveragePool": lambda x, constants, attributes: x[0].mean((2, 3), keepdim=True),
    "ReduceMean": _mean,
    "Concat": lambda x, constants, attributes: torch.cat(x, attributes["axis"]),
    "Reshape": lambda x, constants, attributes: x[0].reshape(constants[0].tolist()),
    "Flatten": lambda x, constants, attributes: x[0].flatten(attributes.get("axis", 1)),
    "Transpose": lambda x, constants, attributes: x[0].permute(attributes["perm"]),
    "Softmax": lambda x, constants, attributes: functional.softmax(x[0], attributes.get("axis", -1)),
}
