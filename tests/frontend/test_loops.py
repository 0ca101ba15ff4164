"""Nodes that hold graphs: what their results are, and how they are refused."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_text import build

from nmpconv.errors import InvalidModel, UnsupportedModel
from nmpconv.frontend.onnx import load


def _loop(declared: int) -> onnx.ModelProto:
    """A recurrent cell over 5 steps, as tf2onnx writes a GRU: a count and a condition come first. declared: the type
    that the body's outputs have in the file; 0 for none."""
    float_ = TensorProto.FLOAT
    nodes = [
        helper.make_node("Gather", ["x", "i"], ["xt"], axis=0),
        helper.make_node("MatMul", ["xt", "w"], ["a"]),
        helper.make_node("Add", ["a", "s"], ["b"]),
        helper.make_node("Tanh", ["b"], ["after"]),
        helper.make_node("Identity", ["c"], ["go"]),
        helper.make_node("Identity", ["after"], ["row"]),
    ]
    state = helper.make_tensor_value_info("s", float_, None)
    made = [onnx.ValueInfoProto(name=name) for name in ("go", "after", "row")]
    if declared:
        made = [helper.make_tensor_value_info("go", TensorProto.BOOL, [])]
        made += [helper.make_tensor_value_info(name, declared, None) for name in ("after", "row")]
    kinds = {"i": TensorProto.INT64, "c": TensorProto.BOOL}
    counted = [helper.make_tensor_value_info(name, kind, []) for name, kind in kinds.items()]
    body = helper.make_graph(nodes, "body", [*counted, state], made)
    constants = {"n": np.int64(5), "t": np.bool_(True), "s0": np.zeros((1, 8), np.float32)}
    constants |= {name: np.ones(shape, np.float32) for name, shape in (("w", (6, 8)), ("v", (8, 4)))}
    graph = helper.make_graph(
        [
            helper.make_node("Loop", ["n", "t", "s0"], ["last", "rows"], "steps", body=body),
            helper.make_node("MatMul", ["last", "v"], ["y"], "head"),
        ],
        "g",
        [helper.make_tensor_value_info("x", float_, [5, 1, 6])],
        [helper.make_tensor_value_info("y", float_, [1, 4])],
        [numpy_helper.from_array(np.asarray(data), name) for name, data in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)


@pytest.mark.parametrize("declared", [TensorProto.FLOAT, 0])
def test_a_loop_is_valid(declared, tmp_path):
    """Its results have the types of what its graph returns; those of its first inputs are a counter's."""
    model = _loop(declared)
    if declared:
        onnx.checker.check_model(model, full_check=True)
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(UnsupportedModel) as caught:
        load(tmp_path / "model.onnx")
    (name, kind, why, hint), *others = caught.value.rows
    assert (name, kind, why, others) == ("steps", "Loop", "nmpconv unrolls no loops", [])
    assert "unroll=True" in hint


def test_types_of_a_loop_are_checked(tmp_path):
    """What its graph declares is what the nodes after it get."""
    onnx.save(_loop(TensorProto.DOUBLE), tmp_path / "model.onnx")
    with pytest.raises(InvalidModel, match="its inputs 'last' and 'v' are double and float"):
        load(tmp_path / "model.onnx")


def test_results_of_foreign_nodes_have_any_type(tmp_path):
    """A node of which nothing is known may make floats of integers."""
    text = "(float[1,4] x) => (y) <int64[4] i = {3, 2, 1, 0}> { a = other.Encode(i, x) y = MatMul(a, x) }"
    build(text, 17, tmp_path / "model.onnx", ', "other" : 1')
    with pytest.raises(UnsupportedModel) as caught:
        load(tmp_path / "model.onnx")
    assert [row[1:3] for row in caught.value.rows] == [("other.Encode", "nmpconv has no such op")]
