"""conv_add: where its output may lie, and which grids of its first operand are refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import op_cases
import pytest
from verified import verified

from nmpconv.file import flatbuffer
from nmpconv.file.writer import to_bytes
from nmpconv.graph import reference
from nmpconv.ir import Graph
from nmpconv.ops.conv2d import Conv2DParams
from nmpconv.passes.memory import plan_memory
from nmpconv.runtime import interpreter

OP, PLAN = 6, 7  # statuses
GRAPHS = {case.id: case.graph for case in op_cases.CASES}


def planned(case: str) -> Graph:
    return plan_memory.run(GRAPHS[case])


@pytest.mark.parametrize("case", ["conv_add/3x3/random", "conv_add/3x3/random/pad", "conv_add/groups/random"])
def test_the_output_lies_on_the_other_operand(case: str) -> None:
    graph = planned(case)
    r, x = graph.inputs
    assert graph["y"].offset == graph[r].offset != graph[x].offset
    feeds = {n: np.random.default_rng(1).integers(-100, 100, graph[n].shape).astype(graph[n].dtype) for n in (r, x)}
    (wanted,) = reference.run(graph, feeds).values()
    for level in interpreter.cpus():
        (got,) = interpreter.load(to_bytes(graph, {}), cpu=level).run(*feeds.values())
        np.testing.assert_array_equal(got, wanted, err_msg=level)


def test_the_other_operand_waits_where_a_kernel_does_not_add_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result of the convolution has 16 bits there, beside what a convolution needs."""
    graph = GRAPHS["conv_add/3x3/random"]
    (node,) = graph.nodes
    fields = {name: getattr(node.params, name) for name in Conv2DParams.__dataclass_fields__}
    alone = replace(node, op="conv2d", inputs=node.inputs[1:], params=Conv2DParams(**fields))
    plain = replace(graph, inputs=graph.inputs[1:], nodes=(alone,))
    for level in interpreter.cpus():
        monkeypatch.setenv("NMP_CPU", level)
        both, one = (interpreter.needs(to_bytes(plan_memory.run(g), {}))["scratch_bytes"] for g in (graph, plain))
        assert both - one == (0 if level == "portable" else 256), level


def on_the_input() -> bytes:
    """The output lies on the convolution's input, of which other pixels need it yet."""
    graph = planned("conv_add/batch/random")
    _, x = graph.inputs
    return to_bytes(graph.with_values(replace(graph["y"], offset=graph[x].offset)), {})


def files() -> Iterator[bytes]:
    """The one that is refused by its plan."""
    yield on_the_input()


def test_the_output_on_the_convolution_s_input_is_refused() -> None:
    assert verified(on_the_input())[0] == PLAN


@pytest.mark.parametrize(("by", "wanted"), [(0, 0), (1, OP), (-1, OP)])
def test_the_other_operand_is_on_the_grid_of_the_sum(by: int, wanted: int) -> None:
    root = unpacked()
    tensors = tensors_of(root)
    tensors["r"]["exponents"] = tensors["r"]["exponents"] + np.int8(by)
    assert verified(flatbuffer.pack(root))[0] == wanted


@pytest.mark.parametrize(("shift", "wanted"), [(0, 0), (-1, OP), (30, 0), (31, OP)])
def test_shifts_of_the_sums(shift: int, wanted: int) -> None:
    root = unpacked()
    tensors = tensors_of(root)
    tensors["w"]["exponents"] = tensors["y"]["exponents"] - tensors["x"]["exponents"] - np.int8(shift)
    assert verified(flatbuffer.pack(root))[0] == wanted


@pytest.mark.parametrize("name", ["x", "y"])
def test_other_widths_are_refused(name: str) -> None:
    graph = GRAPHS["conv_add/3x3/random"]
    fresh = {"x": graph.inputs[1], "y": "y"}[name]
    value = graph[fresh]
    assert value.quant
    wide = replace(value, dtype="int16", quant=replace(value.quant, bits=16, lo=-32768, hi=32767))
    assert verified(to_bytes(plan_memory.run(graph.with_values(wide)), {}))[0] == OP


def test_a_depthwise_convolution_is_refused() -> None:
    """Kernels of microcontrollers do not add what they make of one."""
    graph = GRAPHS["conv_add/groups/random"]
    r, x, w, b = graph.nodes[0].inputs
    channels, weights, bias = graph[x].shape[-1], graph[w], graph[b]
    assert weights.data is not None
    assert bias.data is not None
    assert weights.quant
    data = np.repeat(weights.data[:1, ..., :1], channels, axis=0)
    changed = graph.with_values(
        replace(weights, shape=data.shape, data=data, quant=replace(weights.quant, exponents=(0,), axis=None)),
        replace(bias, shape=(channels,), data=np.zeros(channels, bias.dtype)),
        *(replace(graph[name], shape=(*graph[name].shape[:3], channels)) for name in (r, "y")),
    )
    node = replace(graph.nodes[0], params=replace(graph.nodes[0].params, groups=channels))
    assert verified(to_bytes(plan_memory.run(replace(changed, nodes=(node,))), {}))[0] == OP


def unpacked() -> dict[str, Any]:
    return flatbuffer.unpack(to_bytes(planned("conv_add/shift/15"), {}))


def tensors_of(root: dict[str, Any]) -> dict[str, Any]:
    op = root["ops"][0]
    names = dict(zip("rxwb", op["inputs"], strict=False)) | {"y": op["outputs"][0]}
    return {name: root["tensors"][i] for name, i in names.items()}
