"""Parts of the ops' test cases: seeded integers, and integer graphs of one node."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from nmpconv.base.fixed_point import INT_MAX, INT_MIN
from nmpconv.ir import Graph, Node, Quant, Value
from nmpconv.ops.op import Case, Op

WIDTHS = (8, 16)
# Shapes of the two operands of an element-wise op.
BROADCASTS: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((1, 4, 5, 6), (1, 4, 5, 6)),
    ((1, 4, 5, 6), (1, 1, 1, 6)),
    ((1, 1, 1, 6), (1, 4, 5, 6)),
    ((1, 4, 5, 6), (6,)),
    ((5, 1), (1, 4, 5, 6)),
    ((1, 4, 1, 6), (1, 1, 5, 1)),
    ((1, 4, 5, 6), (1, 4, 5, 1)),
    ((1, 4, 5, 6), (1,)),
    ((), (3,)),
    ((2, 1, 3, 1, 2, 1), (1, 2, 1, 3, 1, 2)),
    ((2, 3, 33, 1), (2, 3, 1, 8)),
    ((1, 7), (1, 7)),
)
FILLS = ("random", "lowest", "highest", "alternating")


@dataclass(frozen=True)
class Operand:
    """An input of the node: integers with their grid, fed or constant."""

    q: np.ndarray
    quant: Quant
    const: bool = False


def grid(bits: int, *exponents: int, lo: int | None = None, hi: int | None = None) -> Quant:
    """One exponent, or one per index of axis 0; the whole range of the type unless lo and hi narrow it."""
    axis = 0 if len(exponents) > 1 else None
    return Quant(bits, exponents, INT_MIN[bits] if lo is None else lo, INT_MAX[bits] if hi is None else hi, axis)


def by(numbers: Sequence[int]) -> str:
    """3x4x5"""
    return "x".join(map(str, numbers))


def integers(seed: str, shape: tuple[int, ...], bits: int, fill: str = "random") -> np.ndarray:
    """Integers of this width; the same ones for the same seed."""
    lo, hi = INT_MIN[bits], INT_MAX[bits]
    if fill == "random":
        q = np.random.default_rng(zlib.crc32(seed.encode())).integers(lo, hi, shape, endpoint=True)
    elif fill == "alternating":
        q = np.where(np.arange(int(np.prod(shape))) % 2, lo, hi).reshape(shape)
    elif fill == "step":  # all 0 but each seventh
        q = (np.arange(int(np.prod(shape))) % 7 == 0).reshape(shape)
    else:
        q = np.full(shape, lo if fill == "lowest" else hi)
    return q.astype(f"int{bits}")


def fed(seed: str, shape: tuple[int, ...], bits: int, exponent: int, fill: str = "random") -> Operand:
    return Operand(integers(seed, shape, bits, fill), grid(bits, exponent))


def constant(seed: str, shape: tuple[int, ...], bits: int, *exponents: int, fill: str = "random") -> Operand:
    return Operand(integers(seed, shape, bits, fill), grid(bits, *exponents), const=True)


def single(op: Op, name: str, params: Any, operands: Sequence[Operand], y: Quant, *, quantize: bool = False) -> Case:
    """A case whose graph is this op alone. The same Operand object twice is the same tensor.

    quantize: the op makes its own constants, from the grids of its input and output, and of float constants its own.
    """
    values: dict[str, Value] = {}
    names: list[str] = []
    for operand in operands:
        seen_name = next((n for n, v in zip(names, operands, strict=False) if v is operand), None)
        names.append(seen_name or f"x{len(names)}")
        data = operand.q if operand.const else None
        values[names[-1]] = Value(names[-1], operand.q.shape, operand.quant.dtype, data, quant=operand.quant)
    shape = op.infer(params, [values[n] for n in names])[0]
    values["y"] = Value("y", tuple(int(d) for d in shape), y.dtype, quant=y)
    node = Node(op.name, "node", tuple(names), ("y",), params)
    inputs = tuple(dict.fromkeys(n for n, x in zip(names, operands, strict=True) if not x.const))
    graph = Graph(f"{op.name}/{name}", inputs, ("y",), (node,), values)
    if quantize:
        node, constants = op.quantize(node, graph)
        used = {value.name: value for value in (*values.values(), *constants) if value.name in (*node.inputs, "y")}
        graph = replace(graph, nodes=(node,), values=used)
    feeds = {n: x.q for n, x in zip(names, operands, strict=True)}
    return Case(f"{op.name}/{name}", graph, tuple(feeds[n] for n in inputs))


def elementwise(op: Op, params: Any, exponents: Sequence[tuple[int, int, int]]) -> Iterator[Case]:
    """Cases of an op with two operands that broadcast; exponents of a, b and y."""
    ea, eb, ey = exponents[0]
    for a, b in BROADCASTS:
        operands = [fed("a", a, 8, ea), fed("b", b, 16, eb)]
        yield single(op, f"broadcast/{by(a)}+{by(b)}", params, operands, grid(16, ey))
    for wa, wb, wy in product(WIDTHS, repeat=3):
        for fill, (ea, eb, ey) in product(FILLS, exponents):
            operands = [fed("a", (1, 3, 37), wa, ea, fill), fed("b", (1, 3, 37), wb, eb, fill)]
            yield single(op, f"{by((wa, wb, wy))}/{fill}/{ea},{eb},{ey}", params, operands, grid(wy, ey))
    ea, eb, ey = exponents[0]
    for bits in WIDTHS:
        x, k = fed("same", (1, 5, 7), bits, ea), constant("k", (7,), 16, eb)
        yield single(op, f"same/int{bits}", params, [x, x], grid(bits, ey, lo=-9, hi=100))
        yield single(op, f"constant/int{bits}", params, [x, k], grid(bits, ey))
        yield single(op, f"constant/first/int{bits}", params, [k, x], grid(bits, ey))
