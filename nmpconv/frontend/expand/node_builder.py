"""Node builder for expansions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from nmpconv.errors import Unsupported
from nmpconv.frontend.importer import Importer
from nmpconv.frontend.to_float32 import NARROW
from nmpconv.ops.onnx_node import OnnxNode

Operand = str | np.ndarray | float


class Body:
    """The nodes that stand for one ONNX node: each is checked and lowered when it is written, in the newest opset.

    So the shapes of intermediate results are known at once, and constants among them are computed.
    """

    def __init__(self, node: OnnxNode, to: Importer, step: Callable[[onnx.NodeProto], None]) -> None:
        self.node, self.to = node, to
        self._step = step

    def __call__(self, kind: str, *inputs: Operand, output: str = "", **attributes: Any) -> str:
        """Write a node and return its output: the ONNX tensor ``output``, or a new one."""
        return self.several(kind, inputs, (output or self.name(kind),), **attributes)[0]

    def several(self, kind: str, inputs: Sequence[Operand], outputs: Sequence[str], **attributes: Any) -> list[str]:
        """A node with more than one output."""
        elements = (self.element(operand) for operand in inputs if isinstance(operand, str) and operand)
        narrow = next((element for element in elements if element in NARROW), TensorProto.FLOAT)
        names = [self.operand(operand, narrow) for operand in inputs]
        label = self.node.name or next(filter(None, self.node.outputs), "")
        self._step(helper.make_node(kind, names, list(outputs), label, **attributes))
        return list(outputs)

    def copy(self, nodes: Sequence[onnx.NodeProto], keep: Collection[str]) -> None:
        """Write these nodes, under names of their own but for those that ``keep`` has."""
        names = {"": "", **{name: name for name in keep}}
        for node in nodes:
            names |= {name: self.name(name) for name in node.output if name not in names}
        copies = []
        for node in nodes:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.name = self.node.name or next(filter(None, self.node.outputs), "")
            copy.input[:] = [names[name] for name in node.input]
            copy.output[:] = [names[name] for name in node.output]
            copies.append(copy)
        self.to.note_readers(copies)
        for copy in copies:
            self._step(copy)

    def operand(self, operand: Operand, element: int = TensorProto.FLOAT) -> str:
        """A name as it is; numbers and arrays as a constant. element: of the type that float ones pass for: rounded to
        float16, the mean of twelve numbers would be off by a 4,096th."""
        if isinstance(operand, str):
            return operand
        data = np.asarray(operand, np.float32 if isinstance(operand, float) else None)
        name = self.name("constant")
        self.to.define({name: data}, element if data.dtype == np.float32 else None)
        return name

    def element(self, name: str) -> int:
        """Element type, of onnx.TensorProto.DataType."""
        return self.to.tensor(name).element

    def name(self, suffix: str) -> str:
        """A name for a new ONNX tensor."""
        return self.to.new_name(f"{next(filter(None, self.node.outputs), '')}.{suffix}")

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of any tensor, constant or computed."""
        return self.to.constants[name].shape if self.to.is_const(name) else self.to[name].shape

    def array(self, index: int, role: str) -> np.ndarray | None:
        """A constant input, None where it is left out; Unsupported if it is computed at run time."""
        name = self.node.input(index)
        return self.to.array(name, role) if name else None

    def rename(self, name: str, output: str = "") -> None:
        """Let an output, the first one if none is named, be another tensor."""
        self("Identity", name, output=output or self.node.outputs[0])

    def only_outputs(self, *allowed: int) -> None:
        """Unsupported if another output than these is asked for."""
        for index, name in enumerate(self.node.outputs):
            if name and index not in allowed:
                raise Unsupported(f"its output '{name}' is used", hint="only the first output")


Expansion = Callable[[OnnxNode, Body], None]
