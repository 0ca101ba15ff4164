"""What an op is: one frozen dataclass of parameters and a handful of functions, one op a file.

Adding an op touches three places: its table in schema/nmp.fbs, this folder, interpreter/src/ops/<op>.c.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from nmpconv.fixed import EXPONENT_MAX, EXPONENT_MIN
from nmpconv.ir import Graph, Node, Quant, Value
from nmpconv.ops.overlap import Lines

if TYPE_CHECKING:
    from nmpconv.frontend.export import Exporter
    from nmpconv.frontend.onnx import Importer, OnnxNode


class QArray(NamedTuple):
    """Integers with their quantization: what `reference` computes on. q has the dtype of quant (int8, int16, int32)."""

    q: np.ndarray
    quant: Quant


@dataclass(frozen=True)
class Case:
    """One test case of an op: constants carry data; ``feeds`` are the integers of the graph's inputs."""

    id: str
    graph: Graph
    feeds: tuple[np.ndarray, ...]


class Op:
    """Base of all ops. An op is stateless; `OPS[name]` is its only instance.

    name:     the same noun in every layer: the file here and in C, the schema's table (conv2d -> Conv2D), case ids.
    Params:   frozen dataclass; its fields are those of the schema's table, in order (ints, bools, tuples of ints).
              Fields named in ``float_only`` exist only until quantization and are not in the file.
    grid:     "free": output exponents are chosen; "same": all inputs and outputs share one exponent and width.
    clamps:   the op can saturate its output to a narrower [lo, hi], so an activation may be fused into it.
    exponents: least and largest legal exponent of the output.
    in_place: the output may lie exactly on the first input when both have the same number of bytes.
    onnx:     the ONNX op types that `lower` turns into this op.
    """

    name: ClassVar[str]
    Params: ClassVar[type]
    float_only: ClassVar[tuple[str, ...]] = ()
    grid: ClassVar[str] = "free"
    clamps: ClassVar[bool] = False
    exponents: ClassVar[tuple[int, int]] = (EXPONENT_MIN, EXPONENT_MAX)
    in_place: ClassVar[bool] = False
    restrictions: ClassVar[str] = ""

    onnx: ClassVar[tuple[str, ...]] = ()

    def lower(self, node: OnnxNode, to: Importer) -> None:
        """Add this op's nodes for one ONNX node of a type in `onnx`; or Unsupported: why, and the nearest form."""
        raise NotImplementedError

    def infer(self, params: Any, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        """Shapes of the outputs from the inputs' shapes."""
        raise NotImplementedError

    def export(self, node: Node, graph: Graph, to: Exporter) -> None:
        """Emit ONNX nodes that compute the float meaning of this node (its clamp excepted, which the exporter adds)."""
        raise NotImplementedError

    def own_exponent(self, node: Node, bits: int) -> int | None:
        """The exponent that fits the output of this width whatever the data; None where it follows from statistics."""
        return None

    def quantize(self, node: Node, graph: Graph) -> tuple[Node, list[Value]]:
        """The integer node and its new constants, once the exponents of its activations are chosen.

        The default is right for ops without constants. Ops with weights are quantized by the passes instead.
        """
        return node, []

    def reference(self, params: Any, inputs: Sequence[QArray], outputs: Sequence[Value]) -> list[np.ndarray]:
        """The specification: integers in, integers out. ``outputs`` give shape and quant; results have their dtype."""
        raise NotImplementedError

    def parts(self, params: Any, inputs: Sequence[Value], output: Value) -> list[int | None]:
        """For each input the element of the output at which it may lie, so that it is there already; None: nowhere."""
        return [None] * len(inputs)

    def lines(self, params: Any, inputs: Sequence[Value], output: Value) -> Lines | None:
        """How lines of the output depend on those of the first input, whose bytes it may share; None: it may not."""
        return None

    def macs(self, params: Any, inputs: Sequence[Value], outputs: Sequence[Value]) -> int:
        """Multiply-accumulates of one inference."""
        return 0

    def cases(self) -> Iterator[Case]:
        """Test cases: every parameter, every width, extremes."""
        raise NotImplementedError


def quant_of(value: Value) -> Quant:
    """The quantization that a value of an integer graph has."""
    assert value.quant is not None, f"{value.name} is not quantized"
    return value.quant


def check_same_grid(op: str, inputs: Sequence[QArray], outputs: Sequence[Value]) -> None:
    """Assert the rule of same-grid ops; a violation is a bug of a pass, not of the user."""
    for quant in map(quant_of, outputs):
        for x in inputs:
            assert (x.quant.exponents, x.quant.bits) == (quant.exponents, quant.bits), op
