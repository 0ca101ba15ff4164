"""Interface of an op: one frozen dataclass of parameters and a handful of functions, one op a file.

CONTRIBUTING.md lists the files of a new op. What a pass needs to know of an op is a trait here: a pass names an op
only where it builds one.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from nmpconv.base.fixed_point import EXPONENT_MAX, EXPONENT_MIN
from nmpconv.errors import UnsupportedModel
from nmpconv.ir import Graph, Node, Quant, Value
from nmpconv.ops.common.overlap import Lines
from nmpconv.ops.common.traits import ANY, Border, Bounds, Factors, Limit, Origins, Rule, channels_of, hull

if TYPE_CHECKING:
    from nmpconv.ops.builders import GraphBuilder, OnnxBuilder
    from nmpconv.ops.onnx_node import OnnxNode

T = TypeVar("T")

FLOAT32_MAX = float(np.finfo(np.float32).max)


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
    grid:     "free": output exponents are chosen; "same": all that is `moved` and the output share exponent and width.
    clamps:   the op can saturate its output to a narrower [lo, hi], so an activation may be fused into it.
    exponents: least and largest legal exponent of the output.
    axis_max:  the most elements along the axis of the parameters; None: any number, or there is no such axis.
    in_place: the output may lie exactly on the first input when both have the same number of bytes.
    moves: in place there is something to do, too.
    operands: how many inputs are int8 or int16 with one exponent, computed or not; None: all, which are one or more.
    constants: the least and the most constants behind them, once the node is integer.
    onnx:     the ONNX op types that `lower` turns into this op.
    source:   where there are none: the operators that another op lowers to this one, or the pass that writes it.

    Traits, which passes ask for instead of naming ops:

    elementwise: an element of the output depends on the elements of the operands at its place alone.
    joins:       several tensors on an equal footing are operands: they broadcast, or (concat) lie side by side.
    monotone:    the output never falls where an input rises.
    homogeneous: positive factors of the channels of all inputs are those of the output's: f(s * x) = s * f(x).
    border:      the input, if there is one, that holds what padding stands for, on the grid of the first input.
    places:      the input, if there is one, whose numbers are places in another one: 8 bits hold no parts of a pixel.
                 It shares no grid with others (`moved`).
    counted:     elements of the output are indices or truth: right or wrong, without a distance.
    absorbs:     factors of the input's channels go into constants (`with_factors`); those of the output are one number.
    layer:       in an op with weights: the place of x among the inputs, which weights and bias follow.
    narrow:      it computes in int8 alone.
    head:        what reaches an output of the graph only through this op is worth the width of an output.
    """

    name: ClassVar[str]
    Params: ClassVar[type]
    float_only: ClassVar[tuple[str, ...]] = ()
    grid: ClassVar[str] = "free"
    clamps: ClassVar[bool] = False
    exponents: ClassVar[tuple[int, int]] = (EXPONENT_MIN, EXPONENT_MAX)
    axis_max: ClassVar[int | None] = None
    in_place: ClassVar[bool] = False
    moves: ClassVar[bool] = True
    operands: ClassVar[int | None] = 1
    constants: ClassVar[tuple[int, int]] = (0, 0)
    restrictions: ClassVar[str] = ""
    elementwise: ClassVar[bool] = False
    joins: ClassVar[bool] = False
    monotone: ClassVar[bool] = False
    homogeneous: ClassVar[bool] = False
    border: ClassVar[int | None] = None
    places: ClassVar[int | None] = None
    counted: ClassVar[bool] = False
    absorbs: ClassVar[bool] = False
    layer: ClassVar[int | None] = None
    narrow: ClassVar[bool] = False
    head: ClassVar[bool] = False

    onnx: ClassVar[tuple[str, ...]] = ()
    source: ClassVar[str] = ""

    def lower(self, node: OnnxNode, to: GraphBuilder) -> None:
        """Add this op's nodes for one ONNX node of a type in `onnx`; or Unsupported: why, and the nearest form."""
        raise NotImplementedError

    def infer(self, params: Any, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        """Shapes of the outputs from the inputs' shapes."""
        raise NotImplementedError

    def export(self, node: Node, graph: Graph, to: OnnxBuilder) -> None:
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

    def exact_exponent(self, exponents: Sequence[int]) -> int | None:
        """Before they are rounded, results are multiples of 2^this where the operands' exponents are these; None: they
        lie anywhere."""
        return None

    def restored(self, node: Node, graph: Graph) -> Node | None:
        """The float node that `quantize` makes this integer node of; None: the integer node does not tell.

        graph: with grids, and with constants in float.
        """
        return None if self.float_only else node

    def reference(self, params: Any, inputs: Sequence[QArray], outputs: Sequence[Value]) -> list[np.ndarray]:
        """The specification: integers in, integers out. ``outputs`` give shape and quant; results have their dtype."""
        raise NotImplementedError

    def misfit(self, params: Any, inputs: Sequence[Value]) -> str:
        """Describes what is wrong with the operands' shapes, or with their being computed or constant; '' for
        nothing."""
        return ""

    def limits(self, node: Node, graph: Graph) -> Iterator[Limit]:
        """Conditions that the kernels rely on besides `exponents`; limits of constants that have no grid yet are left
        out."""
        return iter(())

    def rules(self, params: Any, inputs: Sequence[Value], output: Value) -> Iterator[Rule]:
        """Conditions of a file besides those that `ops.rules` makes of the traits, `infer`, `misfit` and `limits`,
        which rely on these. Each rule may rely on those before it. Inputs and output are integer and right for
        themselves."""
        return iter(())

    def missing(self, params: Any) -> str:
        """Name of the user's op that these parameters ask for and that is not installed; '' for none."""
        return ""

    def work(self, params: Any, inputs: Sequence[Value], output: Value) -> int:
        """A bound of the steps of a run (FORMAT.md)."""
        return output.size + sum(x.size for x in inputs[:4])

    def reads(self, params: Any, inputs: Sequence[Value], output: Value) -> list[int]:
        """Elements that are read of each input: all of them once; what windows share, for each of them."""
        return [x.size for x in inputs]

    def repeated_weights(self, params: Any, inputs: Sequence[Value], output: Value) -> Value | None:
        """Weights that a microcontroller reads anew for every few of many pixels; None: there are none."""
        return None

    def keeps_batch(self, params: Any, inputs: Sequence[Value], output: Value) -> bool:
        """Checks that samples that lie one after the other along axis 0, of size 1 for each, stay apart."""
        return True

    def by_channel(self, params: Any, inputs: Sequence[Value], output: Value) -> bool:
        """Checks that channel c of the output (the last axis) comes from channel c of each computed input alone."""
        return self.elementwise and all(x.is_const or x.shape[-1:] == output.shape[-1:] for x in inputs)

    def window(self, params: Any, inputs: Sequence[Value]) -> tuple[int, int] | None:
        """Height and dilation of the window that slides over rows of [N,H,W,C]; None: there is none."""
        return None

    def renamed(self, params: Any, axes: Sequence[int]) -> Any | None:
        """The parameters that do to a tensor what these do to its transpose, axis i of which is its axis axes[i].

        None: the op is tied to its axes. Constants of the input's rank are to be transposed back.
        """
        return params if self.elementwise else None

    def with_channels(self, params: Any, channels: int) -> Any:
        """The parameters of an op `by_channel` whose output has so many channels (its last axis)."""
        return params

    def part(
        self, params: Any, inputs: Sequence[Value], output: Value, axis: int, size: int
    ) -> tuple[Any, list[int | None]] | None:
        """The parameters that make so many indices of an axis of the output, from the same indices of each input along
        this axis of it (None: all of it); None: the op is tied to the whole axis."""
        if not self.elementwise:
            return None
        places = [axis + len(x.shape) - len(output.shape) for x in inputs[: self.operands]]
        axes: list[int | None] = [None] * len(inputs)
        for i, place in enumerate(places):
            axes[i] = place if place >= 0 and inputs[i].shape[place] == output.shape[axis] else None
        return params, axes

    def bounds(self, node: Node, inputs: Sequence[Bounds]) -> Bounds:
        """Bounds of the output's elements, as reals before a clamp, from those of the inputs."""
        return hull(self.moved(inputs)) if self.grid == "same" else ANY

    def reach(self, node: Node, inputs: Sequence[Value], bounds: Sequence[Bounds]) -> Bounds:
        """`bounds`, or those of indices, which the shapes of the inputs tell."""
        count = self.numbers(node.params, inputs)
        return (0.0, count - 1.0) if count else self.bounds(node, bounds)

    def factors(self, params: Any, inputs: Sequence[Value], output: Value) -> Sequence[np.ndarray] | None:
        """Source of the factors of the output's channels (the last axis); None: the op does not pass factors on.

        For each computed input: the channel of it that has the factor of each output channel, int [C]; -1: none.
        """
        alike = all(x.shape == output.shape for x in inputs) or not self.joins
        if not (self.homogeneous and alike) or any(x.is_const for x in inputs):
            return None
        return [channels_of(output)] * len(inputs)

    def tensor_factors(self, params: Any, inputs: Sequence[Value], output: Value) -> Factors:
        """Factors that the computed operands and the result can have as whole tensors."""
        return Factors.ALIKE if self.homogeneous or self.grid == "same" else Factors.NONE

    def origins(self, params: Any, inputs: Sequence[Value], output: Value) -> Origins:
        """Origins that the computed operands and the result can have."""
        return Origins.ALIKE if self.grid == "same" else Origins.NONE

    def with_origins(self, node: Node, graph: Graph, x: float, y: float) -> tuple[Node, list[Value]]:
        """The node that makes the output less y of its first computed operand less x, and its new constants in float32.

        The default is for Origins.ALIKE: x = y, which constants among the operands lose, too.
        """
        moved = {
            i: (f"operand{i}", v.data.astype(np.float64) - y)
            for i, v in enumerate(graph.ins(node))
            if v.data is not None
        }
        return with_constants(node, graph, moved if y else {})

    def takes_up(self, params: Any, inputs: Sequence[Value], output: Value) -> tuple[bool, bool]:
        """Checks that factors by channel of the first operand, and of the output, go into constants
        (`with_factors`)."""
        return self.absorbs, False

    def with_factors(self, node: Node, graph: Graph, x: np.ndarray, y: np.ndarray) -> tuple[Node, list[Value]]:
        """The node that makes y [C] times the output of its first operand times x [C], and its new constants in
        float32.

        The default is for Factors.ALIKE and products: constants among the operands of the former are scaled, too, by
        one factor of all channels. Where channels have factors of their own, those of constants have none.
        """
        alike = self.tensor_factors(node.params, graph.ins(node), graph[node.outputs[0]]) is Factors.ALIKE
        alike = alike and bool(np.all(y == y[0]))
        scaled = {
            i: (f"operand{i}", v.data.astype(np.float64) * y[0])
            for i, v in enumerate(graph.ins(node))
            if alike and v.data is not None and i != self.places
        }
        return with_constants(node, graph, scaled)

    def without_zeros(self, params: Any) -> tuple[tuple[int, ...], Any] | None:
        """(pads, params) of an op whose results depend on a border of zeros: the border as `PadParams.pads`, and what
        is left of the op behind it. Where the operand has an origin, a Pad takes the border over."""
        return None

    def corners(self, inputs: int) -> Sequence[Sequence[int]]:
        """Ends (0 low, 1 high) of the inputs' intervals where the output has its extremes; (): they are not known."""
        return ((0,) * inputs, (1,) * inputs) if self.monotone else ()

    def affine(self, place: int, constant: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """(a, b) with y = a * x + b, x the operand of this place and the constant the other one; None: it is no such.

        a and b have the constant's shape.
        """
        return None

    def idle(self, params: Any, x: Value, y: Value) -> bool:
        """Checks that every element of the output y is that of the input x at its place, before a clamp."""
        return False

    def take_border(
        self, params: Any, inputs: Sequence[Value], border: Border, least: float
    ) -> tuple[Any, np.ndarray | None] | None:
        """The parameters that pad x so, too, and the padding value per channel, None for 0; None: the op cannot.

        inputs: x without the border, and the constants. No element of x is below ``least``.
        """
        return None

    def moved(self, inputs: Sequence[T]) -> list[T]:
        """Selects, of something about each input, the items of those that are on the grid of the output where it is
        "same"."""
        return [x for i, x in enumerate(inputs) if i != self.places]

    def in_head(self, params: Any) -> bool:
        """`head`, of an op with these parameters."""
        return self.head

    def squares(self, node: Node, inputs: Sequence[bool]) -> bool:
        """Checks that the output holds squares, or means or functions of squares; inputs: which of them do."""
        return False

    def squares_input(self, params: Any) -> bool:
        """Checks that the op squares what it reads, so that 8 bits of it do not reach far."""
        return False

    def numbers(self, params: Any, inputs: Sequence[Value]) -> int:
        """Numbers of an op that is `counted`: how many different results 0, 1, ... there are; else 0."""
        return 0

    def makes_whole(self, params: Any) -> bool:
        """Checks that whole numbers make whole numbers."""
        return self.grid == "same"

    def is_whole(self, node: Node, inputs: Sequence[Value], output: Value, known: Container[str]) -> bool:
        """Checks that an output is of whole numbers, which begin with those that are `counted`. known: such
        tensors."""
        same = output.clamp is not None and self.idle(node.params, inputs[0], output)
        whole = (same or self.makes_whole(node.params)) and _are_whole(np.array(output.clamp or ()))
        parts = self.moved(inputs) if self.grid == "same" else inputs
        others = [x.data for x in parts if x.name not in known]
        return self.counted or (whole and len(others) < len(parts) and all(map(_are_whole, others)))

    def placed_inputs(self, params: Any, inputs: Sequence[Value], output: Value) -> list[int | None]:
        """For each input the element of the output at which it may lie, so that it is there already; None: nowhere."""
        return [None] * len(inputs)

    def lines(self, params: Any, inputs: Sequence[Value], output: Value) -> Lines | None:
        """Dependence of the output's lines on those of the first input, whose bytes it may share; None: it may not."""
        return None

    def macs(self, params: Any, inputs: Sequence[Value], outputs: Sequence[Value]) -> int:
        """Multiply-accumulates of one inference."""
        return 0

    def cases(self) -> Iterator[Case]:
        """Test cases: every parameter, every width, extremes."""
        raise NotImplementedError


def _are_whole(data: np.ndarray | None) -> bool:
    return data is not None and bool((data == np.rint(data)).all())


def with_constants(node: Node, graph: Graph, data: Mapping[int, tuple[str, np.ndarray]]) -> tuple[Node, list[Value]]:
    """The node with these (role, data) as its inputs of these numbers, and the constants, in float32.

    Constants may be shared, so each new one gets the name of its consumer, or that and a number if the name is taken.
    Raises UnsupportedModel for numbers that float32 does not hold.
    """
    for role, x in data.values():
        if (most := float(np.abs(x).max(initial=0.0))) > FLOAT32_MAX:
            raise UnsupportedModel([(node.name, node.op, f"a {role} of {most:g}", f"at most {FLOAT32_MAX:g}")])
    constants = {
        i: Value(_unused(f"{node.name}.{role}", node, graph), x.shape, data=x.astype(np.float32))
        for i, (role, x) in data.items()
    }
    names = list(node.inputs) + [""] * (max(constants, default=0) + 1 - len(node.inputs))
    for i, value in constants.items():
        names[i] = value.name
    return replace(node, inputs=tuple(names)), list(constants.values())


def _unused(name: str, node: Node, graph: Graph) -> str:
    """The name, or name~1, name~2 and so on: of no value of the graph but a constant of this node alone."""

    def taken(candidate: str) -> bool:
        if candidate not in graph.values:
            return False
        return not (graph[candidate].is_const and graph.readers(candidate) == [node])

    numbered = (f"{name}~{i}" for i in count(1))
    return next(candidate for candidate in chain((name,), numbered) if not taken(candidate))


def quant_of(value: Value) -> Quant:
    """The quantization that a value of an integer graph has."""
    assert value.quant is not None, f"{value.name} is not quantized"
    return value.quant
