"""Makes hostile files: a list of cases, and models that nothing has checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Case = Callable[[Path], list[str]]


class Cases(list[Case]):
    """Functions that write a file into a folder and return the command that is to refuse it."""

    def __call__(self, function: Case) -> Case:
        """As a decorator: adds the function."""
        self.append(function)
        return function


IMAGE = (1, 3, 8, 8)


def model(
    folder: Path,
    nodes: Sequence[onnx.NodeProto],
    constants: dict[str, np.ndarray] | None = None,
    *,
    opset: int = 17,
    functions: Sequence[onnx.FunctionProto] = (),
    shape: Sequence[int] = IMAGE,
) -> Path:
    """A model from x to y, as it is: nothing checks it."""
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    domains = [helper.make_opsetid("", opset), *([helper.make_opsetid("f", 1)] if functions else [])]
    path = folder / "model.onnx"
    proto = helper.make_model(graph, opset_imports=domains, functions=list(functions), ir_version=10)
    path.write_bytes(proto.SerializeToString())
    return path


def dry(path: Path) -> list[str]:
    return ["convert", str(path), "--dry-run"]
