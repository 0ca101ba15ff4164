"""Small planned graphs, made by hand, for tests of the file and of the interpreter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from nmpconv.fixed import INT_MAX, INT_MIN
from nmpconv.ir import Graph, Node, Observed, Preprocess, Quant, Value
from nmpconv.ops import OPS

ALIGN = 16


def grid(bits: int, *exponents: int, axis: int | None = None, lo: int | None = None, hi: int | None = None) -> Quant:
    """A Quant; without lo and hi the whole range of the type."""
    low, high = INT_MIN[bits] if lo is None else lo, INT_MAX[bits] if hi is None else hi
    return Quant(bits, exponents, low, high, axis)


def node(op: str, inputs: str, output: str, **params: Any) -> Node:
    return Node(op, f"{op}_{output}", tuple(inputs.split()), (output,), OPS[op].Params(**params))


def active(name: str, shape: tuple[int, ...], quant: Quant, offset: int | None = None) -> Value:
    return Value(name, shape, quant.dtype, quant=quant, offset=offset)


def constant(name: str, data: np.ndarray, quant: Quant) -> Value:
    return Value(name, data.shape, quant.dtype, data=data.astype(quant.dtype), quant=quant)


def small_net() -> Graph:
    """conv2d, add in place, max_pool, reshape in place, fully_connected; an image in, three labels out."""
    rng = np.random.default_rng(1)
    q = grid(8, -4)
    values = [
        replace(active("x", (1, 4, 4, 2), grid(8, 0), 0), observed=Observed(-128.0, 127.0, "fixed")),
        constant("w", rng.integers(-60, 60, (2, 3, 3, 2)), grid(8, -11, -10, axis=0)),
        constant("b", rng.integers(-30, 30, 2), grid(8, -4)),
        replace(active("c", (1, 4, 4, 2), replace(q, lo=0, hi=96), 32), observed=Observed(-0.5, 6.25, "mse")),
        constant("k", rng.integers(-100, 100, (1, 1, 1, 2)), grid(16, -6)),
        active("a", (1, 4, 4, 2), q, 32),
        active("m", (1, 2, 2, 2), q, 64),
        active("f", (1, 8), q, 64),
        constant("v", rng.integers(-128, 128, (3, 8)), grid(8, -7)),
        constant("d", rng.integers(-3000, 3000, 3), grid(16, -9)),
        active("y", (1, 3), grid(16, -9), 0),
    ]
    nodes = (
        node("conv2d", "x w b", "c", pad_top=1, pad_left=1, pad_bottom=1, pad_right=1),
        node("add", "c k", "a"),
        node("max_pool", "a", "m", kernel_h=2, kernel_w=2, stride_h=2, stride_w=2),
        node("reshape", "m", "f", shape=(1, 8)),
        node("fully_connected", "f v d", "y"),
    )
    return Graph(
        "small",
        ("x",),
        ("y",),
        nodes,
        {value.name: value for value in values},
        preprocess={"x": Preprocess(mean=(0.5, 0.25), std=(2.0, 4.0), channel_order="bgr", crop=0.875)},
        labels=("cat", "dog", "emu"),
        pixels=frozenset(["x"]),
        source_shapes={"x": (1, 2, 4, 4), "y": (1, 3)},
    )


def placed(graph: Graph) -> Graph:
    """The graph with every activation at a place of its own."""
    offset, values = 0, []
    for value in graph.activations():
        values.append(replace(value, offset=offset))
        offset += -(-value.nbytes // ALIGN) * ALIGN
    return graph.with_values(*values)
