"""Rules of ops about tensors, each broken alone: C names that rule, and Python refuses, too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from test_op_refusals import GRAPHS, OP, tables
from verified import difference, in_c, inspected

from nmpconv import _nmp
from nmpconv.file import flatbuffer
from nmpconv.file.writer import to_bytes
from nmpconv.graph import reference
from nmpconv.ir import Graph
from nmpconv.passes.memory import plan_memory
from nmpconv.runtime import interpreter

TYPES = {8: 0, 16: 1, 32: 2}
ARENA = 1 << 24
ACTIVATION = {"data": None, "dtype": 0, "clip_min": -128, "clip_max": 127}
WORDS = {"dtype": 1, "clip_min": -32768, "clip_max": 32767}
Changes = dict[str, dict[str, Any]]


def constant(shape: tuple[int, ...], bits: int, fill: int = 1, **more: Any) -> dict[str, Any]:
    """Fields of a constant of equal numbers."""
    most = 2 ** (bits - 1)
    data = np.full(shape, fill, f"int{bits}").view(np.uint8).reshape(-1)
    return {"shape": shape, "dtype": TYPES[bits], "data": data, "clip_min": -most, "clip_max": most - 1, **more}


# The rule, a case that is fine, and what is changed of it: "in 0" is the first input, with its fields.
RULES: list[tuple[str, str, Changes]] = [
    ("exponents of an input", "add", {"in 1": {"axis": 0, "exponents": [-4] * 7}}),
    ("exponents of an input", "mul", {"in 1": {"axis": 0, "exponents": [-7] * 7}}),
    (
        "pixels of the kernel",
        "average_pool",
        {"params": {"kernel_h": 257, "kernel_w": 256}, "in 0": {"shape": (1, 257, 256, 1)}, "out": {"shape": (1,) * 4}},
    ),
    (
        "products of a sum",
        "batch_matmul",
        {"in 0": {"shape": (1, 131072)}, "in 1": {"shape": (1, 131072)}, "out": {"shape": (1, 1)}},
    ),
    ("constant weights", "conv2d", {"in 1": {"data": None, "axis": -1, "exponents": [-6]}}),
    ("bits of the weights", "conv2d", {"in 1": constant((9, 1, 1, 7), 32)}),
    (
        "products of a sum",
        "fully_connected",
        {
            "in 0": {"shape": (1, 131072)},
            "in 1": constant((1, 131072), 8, axis=-1, exponents=[-7]),
            "in 2": constant((1,), 16),
            "out": {"shape": (1, 1)},
        },
    ),
    (
        "pixels with padding",
        "average_pool",
        {
            "params": {"pad_top": 16, "pad_bottom": 16},
            "in 0": {"shape": (1, 2**31 - 17, 1, 1)},
            "out": {"shape": (1,) * 4},
        },
    ),
    ("rank of the output", "conv2d", {"out": {"shape": (5, 3, 9)}}),
    ("rank of the output", "conv2d", {"out": {"shape": (1, 1, 5, 3, 9)}}),
    (
        "output channels of a group",
        "conv2d",
        {"params": {"groups": 2}, "in 0": {"shape": (1, 5, 3, 14)}},
    ),
    (
        "output channels of a group",
        "conv_transpose",
        {"params": {"groups": 4}, "in 0": {"shape": (1, 3, 4, 20)}},
    ),
    (
        "pixels with zeros",
        "conv_transpose",
        {"params": {"stride_h": 32767}, "in 0": {"shape": (1, 65540, 4, 5)}},
    ),
    ("length of the axis", "cum_sum", {"in 0": {"shape": (1, 65537)}, "out": {"shape": (1, 65537)}}),
    ("length of the axis", "softmax", {"in 0": {"shape": (1, 65537)}, "out": {"shape": (1, 65537)}}),
    ("axis", "gather_elements", {"params": {"axis": -1}}),
    ("entry of the table", "lookup", {"out": {"clip_max": 0}}),
    ("entry of the table", "lookup", {"out": {"clip_min": 1}}),
    ("rank of the input", "lrn", {"in 0": {"shape": ()}, "out": {"shape": ()}}),
    ("rank of the weights", "normalize", {"in 1": constant((64,), 32), "in 2": constant((64,), 32)}),
    ("dimension of the weights", "normalize", {"in 1": constant((1, 32), 32), "in 2": constant((1, 32), 32)}),
    ("dimension of the weights", "normalize", {"in 1": constant((2, 1), 32), "in 2": constant((2, 1), 32)}),
    ("constant weights", "normalize", {"in 1": ACTIVATION}),
    ("constant weights", "normalize", {"in 2": ACTIVATION}),
    ("bits of the weights", "normalize", {"in 1": constant((1, 64), 16)}),
    ("bits of the weights", "normalize", {"in 2": constant((1, 64), 16)}),
    ("exponents of the weights", "normalize", {"in 1": {"axis": 1, "exponents": [-21] * 64}}),
    ("exponents of the weights", "normalize", {"in 2": {"axis": 1, "exponents": [-12] * 64}}),
    ("shift", "normalize", {"in 1": {"exponents": [-64]}}),
    ("rank of the output", "pad", {"out": {"shape": (6, 5, 4)}}),
    ("number of inputs", "pad", {"op": {"inputs": [0]}}),
    ("number of inputs", "conv2d", {"op": {"inputs": [0, 1]}}),
    ("rank of the output", "mul_offset", {"out": {"shape": (1, 1)}}),
    ("dimension", "normalize", {"in 2": constant((1, 1), 32)}),
    ("stride", "conv2d", {"params": {"stride_h": 32768}}),
    # 2^31 - 1 pixels with zeros are no more than there may be.
    ("output size", "conv_transpose", {"params": {"stride_w": 21846}, "in 0": {"shape": (1, 1, 98302, 5)}}),
    (
        "dimensions that do not broadcast",
        "batch_matmul",
        {"in 0": {"shape": (2, 5, 7)}, "in 1": {"shape": (3, 3, 7)}, "out": {"shape": (3, 5, 3)}},
    ),
    ("octaves of the table", "sum_lookup", {"in 2": constant((2,), 32)}),
    ("octaves of the table", "sum_lookup", {"in 2": constant((37,), 32)}),
    ("constant weights", "sum_lookup", {"in 1": {"data": None}}),
    ("exponents of the weights", "sum_lookup", {"in 1": {"axis": 0, "exponents": [-10] * 4}}),
    ("rank of the weights", "sum_lookup", {"in 1": constant((36,), 16)}),
    ("rank of the weights", "sum_lookup", {"in 1": constant((4, 3, 3), 16)}),
    ("rank of the input", "sum_lookup", {"in 0": {"shape": ()}, "out": {"shape": ()}}),
    (
        "channels that do not divide into groups",
        "sum_lookup",
        {"params": {"groups": 3}, "in 0": {"shape": (1, 5, 27)}},
    ),
    (
        "products of a sum",
        "sum_lookup",
        {"in 0": {"shape": (1, 131072)}, "in 1": constant((1, 131072), 8), "out": {"shape": (1, 1)}},
    ),
    ("sum of the weights", "sum_lookup", {"in 1": constant((4, 9), 32, fill=-(2**31)), "in 0": WORDS}),
    ("sum of the weights", "sum_lookup", {"in 1": constant((4, 9), 32, fill=2**31 - 1), "in 0": WORDS}),
    ("exponents of an input", "concat", {"in 1": {"axis": 1, "exponents": [0, 0]}}),
    ("number of inputs", "concat", {"op": {"inputs": []}}),
    ("groups", "conv2d", {"params": {"groups": 0}}),
    ("rank of a constant", "conv2d padded", {"in 3": constant((1, 7), 8)}),
    ("rank of the input", "fully_connected", {"in 0": {"shape": ()}, "out": {"shape": ()}}),
    ("number of inputs", "custom", {"op": {"inputs": [0] * 5}}),
    ("number of inputs", "gather_elements", {"op": {"inputs": [0]}}),
    ("exponent of an input", "gather_elements", {"in 0": {"exponents": [-9]}}),
    ("exponent of the indices", "gather_elements", {"in 1": {"exponents": [1]}}),
    ("rank of the indices", "gather_elements", {"in 1": {"shape": (5, 4)}}),
    ("rank of the output", "gather_elements", {"out": {"shape": (5, 4)}}),
    ("axis", "gather_elements", {"params": {"axis": 3}}),
    ("dimension of the indices", "gather_elements", {"in 1": {"shape": (1, 5, 2)}}),
    ("number of inputs", "mul_offset", {"op": {"inputs": [0]}}),
    ("bits of the first operand", "mul_offset", {"in 0": WORDS}),
    ("bits of the result", "mul_offset", {"out": WORDS}),
    ("rank of the output", "slice", {"out": {"shape": (6, 5, 8)}}),
    ("length of starts", "slice", {"params": {"starts": [0, 0]}}),
    ("length of steps", "slice", {"params": {"steps": [1, 1]}}),
    ("length of sizes", "slice", {"params": {"sizes": [1, 1]}}),
    ("number of inputs", "sum_lookup", {"op": {"inputs": [0, 1]}}),
    ("exponent of a constant", "sum_lookup", {"in 2": {"exponents": [5]}}),
    ("rank of the output", "sum_lookup", {"out": {"shape": (5, 4)}}),
    ("dimension of the output", "sum_lookup", {"out": {"shape": (1, 4, 4)}}),
    ("channels of the output", "sum_lookup", {"out": {"shape": (1, 5, 3)}}),
    ("exponents of a constant", "conv2d", {"in 2": {"axis": 0, "exponents": [-3] * 9}}),
    ("stride", "conv_add", {"params": {"stride_h": 0}}),
    ("dimension", "conv_add", {"in 0": {"shape": (1, 1, 1, 1)}}),
    ("exponent of an input", "conv_add", {"in 0": {"exponents": [-2]}}),
    ("bits of an input", "conv_add", {"in 0": WORDS}),
    ("bits of a sum", "conv_add", {"in 1": WORDS}),
    ("bits of a sum", "conv_add", {"in 2": constant((4, 3, 3, 3), 16)}),
    ("bits of a sum", "conv_add", {"in 0": WORDS, "out": WORDS}),
    ("shift", "conv_add", {"in 2": {"exponents": [-7, -8, -9, 2]}}),
    ("shift", "conv_add", {"in 2": {"exponents": [-7, -8, -9, -30]}}),
    (
        "groups",
        "conv_add",
        {
            "in 0": {"shape": (1, 5, 6, 1)},
            "in 1": {"shape": (1, 5, 6, 1)},
            "in 2": constant((1, 3, 3, 1), 8, axis=-1, exponents=[-7]),
            "in 3": constant((1,), 16),
            "out": {"shape": (1, 5, 6, 1)},
        },
    ),
    ("dimension of the output", "reshape", {"params": {"shape": [60, 1]}}),
    ("dimension of the output", "reshape", {"params": {"shape": [1, 59]}}),
    ("length of shape", "reshape", {"params": {"shape": [60]}}),
]
# Taken, for numbers that no case of an op has: parameters, and constants that are filled anew by their number.
TAKEN: list[tuple[str, dict[str, int], dict[int, np.ndarray]]] = [
    ("normalize", {"epsilon": 1375773828, "epsilon_shift": 0}, {}),  # a variance of 0 whose root comes out too large
    ("normalize", {"epsilon": 1, "epsilon_shift": 0}, {}),  # the least variance
    ("sum_lookup", {"low": 0, "pieces": 0}, {2: np.array([-300, 20, 5000], np.int32)}),  # sums beyond the table
]
CASES = {
    "custom": "custom/samples.gate::Gate/int8/-32767/-8to-7/random",
    "add": "add/constant/int8",
    "average_pool": "average_pool/2x2/8to8/random",
    "batch_matmul": "batch_matmul/5x7*3x7/8x8x8",
    "concat": "concat/constant/int8",
    "conv2d": "conv2d/1x1/int8",
    "conv2d padded": "conv2d/1x1/int8/pad",
    "conv_add": "conv_add/3x3/random",
    "conv_transpose": "conv_transpose/1x1/int8",
    "cum_sum": "cum_sum/1x10/1/8x8/random",
    "fully_connected": "fully_connected/1x1/8x8x8",
    "gather_elements": "gather_elements/1x9x4/1x5x4/1/8x8",
    "lookup": "lookup/sigmoid/8to8",
    "lrn": "lrn/5of16/8x8/random",
    "mul": "mul/constant/int8",
    "mul_offset": "mul_offset/constant",
    "normalize": "normalize/1x64/1/8x8",
    "pad": "pad/0,0,1,2,3,0,0,0/int8",
    "reshape": "reshape/1x3x4x5-1x60/int8",
    "slice": "slice/all/int8",
    "softmax": "softmax/1x10/1/8to8/-5/random",
    "sum_lookup": "sum_lookup/log/True/8x8/random",
}


def changed(case: str, changes: Changes) -> bytes:
    """The file of a case, with its activations apart and room for larger ones."""
    root = tables(CASES[case])
    op = root["ops"][0]
    tensors = [root["tensors"][i] for i in (*op["inputs"], *op["outputs"])]
    for place, fields in changes.items():
        role, _, number = place.partition(" ")
        {"op": op, "params": op["params"][1], "out": tensors[-1]}.get(role, tensors[int(number or 0)]).update(fields)
    for i, tensor in enumerate(tensors):
        tensor["offset"] = 0 if len(tensor["data"] if tensor["data"] is not None else ()) else i * ARENA
    root["arena_bytes"], op["live_end"] = len(tensors) * ARENA, len(tensors) * ARENA
    return flatbuffer.pack(root)


def taken() -> Iterator[Graph]:
    """One for each of TAKEN."""
    for case, fields, constants in TAKEN:
        graph = GRAPHS[CASES[case]]
        (node,) = graph.nodes
        params = replace(node.params, **fields)
        values = [replace(graph[node.inputs[i]], data=data, shape=data.shape) for i, data in constants.items()]
        yield plan_memory.run(replace(graph, nodes=(replace(node, params=params),)).with_values(*values))


def files() -> Iterator[bytes]:
    """One for each of RULES and TAKEN."""
    yield from (changed(case, changes) for _, case, changes in RULES)
    yield from (to_bytes(graph, {}) for graph in taken())


@pytest.mark.parametrize("case", CASES)
def test_unchanged(case: str) -> None:
    assert in_c(changed(case, {}))[0] == 0


@pytest.mark.parametrize("graph", list(taken()), ids=[case for case, *_ in TAKEN])
@pytest.mark.parametrize("fill", [0, 100])
def test_taken(graph: Graph, fill: int) -> None:
    (x,) = graph.inputs
    feed = np.full(graph[x].shape, fill, graph[x].dtype)
    (wanted,) = reference.run(graph, {x: feed}).values()
    for level in interpreter.cpus():
        (got,) = interpreter.load(to_bytes(graph, {}), cpu=level).run(feed)
        np.testing.assert_array_equal(got, wanted, err_msg=level)


@pytest.mark.parametrize(
    "number", range(len(RULES)), ids=lambda number: f"{RULES[number][1]}-{RULES[number][0]}-{number}"
)
def test_refused_by_this_rule(number: int) -> None:
    rule, case, changes = RULES[number]
    data = changed(case, changes)
    with pytest.raises(_nmp.Fault) as caught:
        inspected(data)
    status, _, broken, value, allowed, *_ = caught.value.args
    assert (status, broken) == (OP, rule)
    assert value != allowed
    assert difference(data) == ""
