"""Builders that ops write to: of the graph, from an ONNX node, and of ONNX, from a node of the graph.

The frontend has the classes behind them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from nmpconv.ir import Given, Node, Value
from nmpconv.ops.common.traits import Bounds


class GraphBuilder(Protocol):
    """Graph under construction. Names are those of ONNX tensors or, where it says value, of the graph's values.

    input_shapes: of the model's inputs, by name.
    """

    input_shapes: Mapping[str, tuple[int, ...]]

    def define(self, constants: Mapping[str, np.ndarray], element: int | None = None) -> None:
        """element: of the type that they pass for, where their numbers are not rounded to it."""

    def __getitem__(self, name: str) -> Value:
        """The value of the graph that an ONNX tensor stands for, or a value of the graph by its own name."""

    def reach(self, value: str) -> Bounds:
        """Bounds of the elements of a value of the graph, as far as they are known."""

    def is_whole(self, value: str) -> bool:
        """Checks that a value of the graph is known to be of whole numbers that an index, or truth, became."""

    def beyond(self, value: str, low: float, high: float) -> str | None:
        """The first outside [low, high] of a value of whole numbers and those that it is computed from."""

    def maker(self, value: str) -> Node | None:
        """The node of the graph that computes a value; None for inputs and constants."""

    def is_const(self, name: str) -> bool: ...

    def is_integer(self, name: str) -> bool:
        """Checks that an ONNX tensor has an integer type."""

    def only_read_by(self, name: str, kind: str, through: Collection[str] = ()) -> bool:
        """Checks that ONNX ops of this type, and nothing else, read an ONNX tensor; or what ops ``through`` make of
        it."""

    def is_only_rounded(self, value: str) -> bool:
        """Checks that nothing but a QuantizeLinear reads a value of the graph before it is rounded."""

    def array(self, name: str, role: str) -> np.ndarray:
        """A constant tensor, float32 for halves; Unsupported if it is computed at run time. role: for the message."""

    def integers(self, name: str, role: str) -> tuple[int, ...]:
        """The elements of a constant list as Python integers."""

    def value(self, name: str) -> str:
        """The graph's value for an ONNX tensor; a constant becomes one of float32."""

    def const(self, data: np.ndarray, name: str) -> str:
        """A new float32 constant. name: of the ONNX tensor that it is made from."""

    def emit(
        self,
        op: str,
        inputs: Sequence[str],
        params: Any,
        output: str = "",
        *,
        clamp: tuple[float, float] | None = None,
    ) -> str:
        """Add a node of the graph and return its output value.

        inputs: values of the graph. output: the ONNX tensor that the result is; '' for an intermediate one.
        """

    def rename(self, output: str, value: str) -> None:
        """Let the ONNX tensor ``output`` stand for a value that is there already."""

    def annotate(self, value: str, grid: Given) -> None:
        """Note the grid that a value of the graph has in the model; the first one counts."""

    def given(self, value: str) -> Given | None:
        """The grid that was noted for a value of the graph."""

    def rename_integers(self, output: str, value: str, grid: Given) -> None:
        """Let an ONNX tensor of integers stand for what they mean."""

    def grid_of(self, name: str) -> Given | None:
        """The grid of an ONNX tensor of integers; None for other tensors."""

    def shaped(self, name: str) -> tuple[str, tuple[int, ...]]:
        """The value of an ONNX tensor, and the tensor's shape, of any number of dimensions."""

    def shape_as(self, value: str, shape: tuple[int, ...], output: str) -> None:
        """`reshape`. Of too many dimensions those of size 1 are left out, but not forgotten; an output has them all."""

    def reshape(self, value: str, shape: Sequence[int], output: str = "") -> str:
        """The value in another shape; itself when it has that shape."""

    def transpose(self, value: str, perm: Sequence[int], output: str = "") -> str: ...

    def aligned(self, a: str, b: str) -> tuple[str, str]:
        """Two values with leading axes of size 1 added to the one of lower rank: what broadcasting does to shapes."""

    def with_rank(self, value: str, rank: int) -> str:
        """The value with leading axes of size 1 added up to this rank."""

    def nhwc(self, name: str) -> str:
        """[N,C,H,W] or [N,C,W] as a value [N,H,W,C], H = 1 for the latter."""

    def nchw(self, value: str, output: str, like: str) -> None:
        """Define the ONNX tensor ``output`` from a value [N,H,W,C]; it has the rank of the tensor ``like``."""


class OnnxBuilder(Protocol):
    """ONNX graph under construction. Values keep their names."""

    def node(self, kind: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        """Add a node and return its output. inputs: '' for an absent one. output: the graph's value that it is."""

    def second(self, kind: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Add a node of which the second output is all that is needed, and return that."""

    def const(self, data: np.ndarray | Sequence[int]) -> str:
        """A constant that only the ONNX form needs; Python integers become int64."""

    def transpose(self, value: str, perm: Sequence[int], output: str = "") -> str: ...

    def shape(self, shape: Sequence[int]) -> str:
        """The shape operand of a Reshape that leaves the batch alone."""
