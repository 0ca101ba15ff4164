"""Padding of a .tflite that came by way of PyTorch, which has none that is uneven: TRANSPOSE, PAD, TRANSPOSE and a
convolution without padding become the one convolution with SAME padding that TensorFlow would have written. Pairs of
transpositions that undo each other are left out."""

from __future__ import annotations

from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as tfl
from ai_edge_litert.tools import flatbuffer_utils

CONVOLUTIONS = (tfl.BuiltinOperator.CONV_2D, tfl.BuiltinOperator.DEPTHWISE_CONV_2D)
TO_NHWC, TO_NCHW = [0, 2, 3, 1], [0, 3, 1, 2]


def run(path: str) -> None:
    model = flatbuffer_utils.read_model(path)
    graph = _Graph(model)
    for op in graph.ops:
        if graph.kind(op) in CONVOLUTIONS and op.builtinOptions.padding == tfl.Padding.VALID:
            source, pads = graph.padded(op.inputs[0])
            if source is not None and pads == graph.same(op, source):
                op.inputs[0] = source
                op.builtinOptions.padding = tfl.Padding.SAME
    for op in graph.ops:
        op.inputs = [graph.straight(tensor) for tensor in op.inputs]
    graph.drop_unused()
    flatbuffer_utils.write_model(model, path)


class _Graph:
    def __init__(self, model: Any) -> None:
        self.model, self.graph = model, model.subgraphs[0]
        self.ops = self.graph.operators
        self.made_by = {int(op.outputs[0]): op for op in self.ops}

    def kind(self, op: Any) -> int:
        code = self.model.operatorCodes[op.opcodeIndex]
        return max(int(code.builtinCode), int(code.deprecatedBuiltinCode))

    def constant(self, tensor: int) -> list[int]:
        data = self.model.buffers[self.graph.tensors[tensor].buffer].data
        return np.frombuffer(bytes(data), np.int32).tolist()

    def step(self, tensor: int, kind: int) -> tuple[int, list[int]] | None:
        """Returns input and constant of the op of that kind that computes a tensor."""
        op = self.made_by.get(int(tensor))
        return None if op is None or self.kind(op) != kind else (op.inputs[0], self.constant(op.inputs[1]))

    def padded(self, tensor: int) -> tuple[int | None, list[int]]:
        """The NHWC tensor that this one was padded from by way of NCHW, and the pads: top, bottom, left, right."""
        after = self.reordered(tensor, TO_NHWC)
        pad = None if after is None else self.step(after, tfl.BuiltinOperator.PAD)
        before = None if pad is None else self.reordered(pad[0], TO_NCHW)
        return (None, []) if pad is None or before is None else (before, pad[1][4:])

    def reordered(self, tensor: int, order: list[int]) -> int | None:
        """Returns the operand of the transposition behind a tensor; with one channel it is a RESHAPE."""
        transposed = self.step(tensor, tfl.BuiltinOperator.TRANSPOSE)
        if transposed is not None:
            return transposed[0] if transposed[1] == order else None
        reshaped = self.step(tensor, tfl.BuiltinOperator.RESHAPE)
        if reshaped is None:
            return None
        was, now = (list(self.graph.tensors[i].shape) for i in (reshaped[0], tensor))
        return reshaped[0] if len(was) == 4 and [was[i] for i in order] == now and 1 in (was[1], was[3]) else None

    def straight(self, tensor: int) -> int:
        """A tensor without a transposition that the one before it undoes."""
        after = self.reordered(tensor, TO_NHWC)
        before = None if after is None else self.reordered(after, TO_NCHW)
        return tensor if before is None else before

    def same(self, op: Any, source: int) -> list[int]:
        """The pads of SAME padding."""
        pads = []
        sides = self.graph.tensors[source].shape[1:3]
        kernel = self.graph.tensors[op.inputs[1]].shape[1:3]
        for side, k, stride in zip(sides, kernel, (op.builtinOptions.strideH, op.builtinOptions.strideW), strict=True):
            total = max((-(-int(side) // stride) - 1) * stride + int(k) - int(side), 0)
            pads += [total // 2, total - total // 2]
        return pads

    def drop_unused(self) -> None:
        """Ops whose result nobody takes any more, from the last to the first."""
        used = {int(tensor) for tensor in self.graph.outputs}
        used_ops = []
        for op in reversed(self.ops):
            if any(int(tensor) in used for tensor in op.outputs):
                used_ops.append(op)
                used.update(int(tensor) for tensor in op.inputs)
        self.graph.operators = used_ops[::-1]
