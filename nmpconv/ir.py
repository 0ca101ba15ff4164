"""The graph: a few frozen dataclasses, from the imported float model to the planned integer one.

Layout: activations are NHWC (batch 1 in front), convolution weights are OHWI (I = input channels / groups),
fully connected weights are [out, in]. Names are unique per graph. Nodes are in an order in which every
value is produced before it is used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any, ClassVar

import numpy as np

FLOAT = "float32"
DTYPES = ("float32", "int8", "int16", "int32")
INT_OF_BITS = {8: "int8", 16: "int16", 32: "int32"}
ARENA_ALIGN = 16  # bytes, of every offset in the arena


@dataclass(frozen=True)
class Quant:
    """Mapping of integers to reals: value = q * 2^exponent, q in [lo, hi].

    exponents: one, or one per index of ``axis``. bits: 8, 16 or (biases, tables) 32.
    lo, hi:    the saturation range, within the type's; a fused activation narrows it.
    """

    bits: int
    exponents: tuple[int, ...]
    lo: int
    hi: int
    axis: int | None = None

    @property
    def exponent(self) -> int:
        """The exponent of a tensor that has only one."""
        if len(self.exponents) != 1:
            raise ValueError("a per-channel tensor has no single exponent")
        return self.exponents[0]

    @property
    def grid(self) -> tuple[int, tuple[int, ...]]:
        """Width and exponents: what tensors share whose integers stand for the same reals."""
        return self.bits, self.exponents

    @property
    def dtype(self) -> str:
        return INT_OF_BITS[self.bits]


@dataclass(frozen=True)
class Observed:
    """The float range that calibration saw, and by which method the exponent was chosen from it.

    Constants have no range. Their methods: mse; max: the least that holds all; derived: that of a neighbour; fixed.
    """

    min: float
    max: float
    method: str = ""


@dataclass(frozen=True)
class Given:
    """The grid of a tensor in a model that was quantized before: (q - zero_point) * scale, q of dtype in [lo, hi].

    lo, hi: None for the end of the type. source: the ONNX tensor that was rounded; '' where that is not known.
    """

    scale: float
    zero_point: int
    dtype: str
    lo: int | None = None
    hi: int | None = None
    source: str = field(default="", compare=False)

    @property
    def min(self) -> float:
        return ((int(np.iinfo(self.dtype).min) if self.lo is None else self.lo) - self.zero_point) * self.scale

    @property
    def max(self) -> float:
        return ((int(np.iinfo(self.dtype).max) if self.hi is None else self.hi) - self.zero_point) * self.scale

    def within(self, lo: int, hi: int) -> Given:
        """The grid without integers below lo and above hi; ends that are none change nothing."""
        ends = np.iinfo(self.dtype)
        low = max(lo, int(ends.min) if self.lo is None else self.lo)
        high = min(hi, int(ends.max) if self.hi is None else self.hi)
        return replace(self, lo=None if low == ends.min else low, hi=None if high == ends.max else high)

    def is_same(self, other: Given | None) -> bool:
        """Checks for the same real numbers, as int8 and uint8 less 128 have them."""
        return other is not None and (self.scale, self.min, self.max) == (other.scale, other.min, other.max)

    @property
    def is_power(self) -> bool:
        """Says that the step is a power of two."""
        return math.frexp(self.scale)[0] == 0.5

    @property
    def is_plain(self) -> bool:
        """Says that the tensor's reals are its integers, as those of a model's integer inputs and outputs are."""
        return self.scale == 1.0 and self.zero_point == 0


@dataclass(frozen=True)
class Preprocess:
    """Transform of an image file into the model's float input: x = (pixel * scale - mean) / std, kept in the file.

    range: the pixels' range that mean and std refer to, (0, 255) or (0, 1).
    layout: of the ONNX input, "nchw" or "nhwc"; "auto" until its shape is known. channel_order: "rgb", "bgr" or "gray".
    resize: "none", "shorter", "squash" or "letterbox"; crop: the fraction of the shorter side that the centre crop
    keeps (resize to size / crop, then crop), 1.0 for none; pad: the letterbox's pixel value.
    """

    CHOICES: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "layout": ("nchw", "nhwc"),
        "channel_order": ("rgb", "bgr", "gray"),
        "resize": ("none", "shorter", "squash", "letterbox"),
    }

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    range: tuple[float, float] = (0.0, 255.0)
    layout: str = "nchw"
    channel_order: str = "rgb"
    resize: str = "squash"
    crop: float = 1.0
    pad: int = 114

    def to_model(self, pixels: np.ndarray) -> np.ndarray:
        """Numbers of the ONNX model, [..., C] in its order of channels, of pixels [..., C], RGB or gray."""
        lo, hi = self.range
        ordered = pixels[..., ::-1] if self.channel_order == "bgr" else pixels
        return (lo + ordered * ((hi - lo) / 255.0) - np.array(self.mean)) / np.array(self.std)

    def to_pixels(self, numbers: np.ndarray) -> np.ndarray:
        """Pixels, as reals, that `to_model` makes these numbers of."""
        lo, hi = self.range
        in_range = np.asarray(numbers, np.float64) * np.array(self.std) + np.array(self.mean)
        ordered = (in_range - lo) * (255.0 / (hi - lo))
        return ordered[..., ::-1] if self.channel_order == "bgr" else ordered


@dataclass(frozen=True)
class Shifts:
    """Map from the float model's numbers to a tensor's, (number - offset) / mantissa * 2^bits: one, or one per index of
    an axis.

    offsets, mantissas: as many as bits, of inputs and of what only moves their elements, numbers of float32; () for 0
    and for 1. A mantissa is at least 1 and below 2.
    """

    bits: tuple[int, ...]
    axis: int | None = None
    offsets: tuple[float, ...] = ()
    mantissas: tuple[float, ...] = ()

    def factors(self, rank: int) -> np.ndarray:
        """2^bits / mantissa, to broadcast over an array of this rank."""
        return self._along(np.exp2(np.array(self.bits, np.float64)) / np.array(self.mantissas or (1.0,)), rank)

    def origins(self, rank: int) -> np.ndarray:
        """The offsets, to broadcast over an array of this rank."""
        return self._along(np.array(self.offsets or (0.0,) * len(self.bits), np.float64), rank)

    def stored(self, numbers: np.ndarray) -> np.ndarray:
        """The tensor's numbers of the float model's, in the precision of these, but at least that of float32."""
        scaled = np.asarray(numbers, np.result_type(numbers.dtype, np.float32))
        if self.offsets:
            scaled = scaled - self.origins(scaled.ndim).astype(scaled.dtype)
        if self.mantissas:
            scaled = scaled / self._along(np.array(self.mantissas), scaled.ndim).astype(scaled.dtype)
        powers = np.exp2(np.array(self.bits, np.float64))
        return np.asarray(scaled * self._along(powers, scaled.ndim).astype(scaled.dtype))

    def real(self, stored: np.ndarray) -> np.ndarray:
        """The float model's numbers of the tensor's, float64."""
        reals = stored / self.factors(stored.ndim)
        return reals + self.origins(stored.ndim) if self.offsets else reals

    def _along(self, values: np.ndarray, rank: int) -> np.ndarray:
        shape = [1] * rank
        if self.axis is not None:
            shape[self.axis] = len(values)
        return values.reshape(shape)


@dataclass(frozen=True)
class Value:
    """A tensor: an activation (data None) or a constant.

    clamp: the float range that the producer saturates its result to (a fused Relu is (0, inf)); None for none.
    observed, quant: set by calibration and by quantization. offset: byte offset in the arena, set by the memory plan.
    origin: what 0 stands for: the tensor holds the float model's numbers less this. observed is of those numbers.
    shifts: how the tensor's numbers were made of the float model's; None: they are those.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = FLOAT
    data: np.ndarray | None = field(default=None, compare=False, repr=False)
    clamp: tuple[float, float] | None = None
    observed: Observed | None = None
    quant: Quant | None = None
    offset: int | None = None
    origin: float = 0.0
    shifts: Shifts | None = None

    @property
    def is_const(self) -> bool:
        return self.data is not None

    @cached_property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @cached_property
    def nbytes(self) -> int:
        return self.size * np.dtype(self.dtype).itemsize

    @property
    def factors(self) -> np.ndarray:
        """Factors that the float model's numbers were multiplied by, to broadcast over the tensor."""
        return np.ones(1) if self.shifts is None else self.shifts.factors(len(self.shape))

    def stored(self, numbers: np.ndarray) -> np.ndarray:
        """The tensor's numbers of the float model's."""
        return numbers if self.shifts is None else self.shifts.stored(numbers)


@dataclass(frozen=True)
class State:
    """Contents of an input of the graph: in the first call start in every element, in the next ones what an output was.

    The two have one shape and one grid.
    """

    output: str
    start: int = 0


@dataclass(frozen=True)
class Node:
    """One op: ``op`` is the name in `nmpconv.ops.OPS`, ``params`` that op's frozen dataclass."""

    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    params: Any


@dataclass(frozen=True)
class Graph:
    """inputs and outputs are value names, in the model's order. ``labels`` are class names.

    pixels:        inputs that are raw pixels (int8, pixel - 128): the preprocessing is in the first layer.
    source_shapes: the shape of each input and output in the ONNX model.
    given:         grids that the ONNX model has for its tensors (QuantizeLinear), by the name that a value has or will
                   have once the passes have restored the names of ONNX tensors.
    states:        inputs that the caller does not feed.
    variables:     inputs that the model itself says to be states, and the output that each takes over.
    faithful:      all of these grids are to be kept, also where a tensor goes from one to another.
    fast_bytes:    of the arena, from its start, in a fast memory of their own, set by the memory plan. A tensor lies in
                   one.
    rooms:         where scratch of nodes, by their names, has room there: offset and bytes.
    least_slow:    bytes that ops move in the slow memory in any plan with as much of the fast one, at least.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    values: Mapping[str, Value]
    preprocess: Mapping[str, Preprocess] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    pixels: frozenset[str] = frozenset()
    source_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    given: Mapping[str, Given] = field(default_factory=dict)
    states: Mapping[str, State] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    faithful: bool = False
    fast_bytes: int = 0
    rooms: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    least_slow: int = 0

    def __getitem__(self, name: str) -> Value:
        return self.values[name]

    def regrids(self, node: Node) -> bool:
        """Checks that a node puts a tensor from one of the model's grids, which are to be kept, on another. A clamp
        says where a grid of the same step ends."""
        if not self.faithful or node.op != "requantize":
            return False
        x, y = self.given.get(node.inputs[0]), self.given.get(node.outputs[0])
        if x is None or y is None:
            return False
        if self.forks(node):
            return True
        return x.scale != y.scale or (self[node.outputs[0]].clamp is None and not x.is_same(y))

    def forks(self, node: Node) -> bool:
        """Checks that one float tensor of the model is rounded to the grids of the operand and of the result."""
        x, y = self.given.get(node.inputs[0]), self.given.get(node.outputs[0])
        if not self.faithful or x is None or y is None:
            return False
        return bool(x.source) and x.source == y.source and not x.is_same(y)

    def ins(self, node: Node) -> list[Value]:
        return [self.values[n] for n in node.inputs]

    def outs(self, node: Node) -> list[Value]:
        return [self.values[n] for n in node.outputs]

    def producers(self) -> dict[str, Node]:
        """The node that computes each value; inputs and constants have none."""
        return {out: node for node in self.nodes for out in node.outputs}

    def plain_ports(self) -> dict[str, str]:
        """Inputs and outputs whose reals are integers of the model, with the integers' type, which 16 bits hold."""
        ports = ((name, self.given[name]) for name in (*self.inputs, *self.outputs) if name in self.given)
        return {name: grid.dtype for name, grid in ports if grid.is_plain and grid.dtype != "uint16"}

    def consumers(self) -> dict[str, list[Node]]:
        """The nodes that read each value, in order, once per node; a value nobody reads has an empty list."""
        users: dict[str, list[Node]] = {name: [] for name in self.values}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                users[name].append(node)
        return users

    def readers(self, name: str) -> list[Node]:
        """The nodes that read a value; who asks for those of many has them at once."""
        return self._readers.get(name, [])

    @cached_property
    def _readers(self) -> dict[str, list[Node]]:
        readers: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                readers.setdefault(name, []).append(node)
        return readers

    def lifetimes(self) -> dict[str, tuple[int, int]]:
        """Lifetimes of activations: op indices, first and last included.

        From the op that makes it (a graph input: -1) to its last reader (a graph output: the number of ops).
        """
        lives = dict.fromkeys(self.inputs, (-1, -1))
        for i, node in enumerate(self.nodes):
            for name in node.inputs:
                if not self[name].is_const:
                    lives[name] = (lives[name][0], i)
            lives.update(dict.fromkeys(node.outputs, (i, i)))
        lives.update({name: (lives[name][0], len(self.nodes)) for name in self.outputs})
        return lives

    def activations(self) -> Iterator[Value]:
        """Inputs, then every node's outputs in order."""
        for name in self.inputs:
            yield self.values[name]
        for node in self.nodes:
            for name in node.outputs:
                yield self.values[name]

    def with_values(self, *values: Value) -> Graph:
        """The same graph with these values added or replaced."""
        return replace(self, values={**self.values, **{v.name: v for v in values}})
