"""Sparse constants of ONNX models."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from nmpconv.errors import InputError
from nmpconv.frontend.onnx import load
from nmpconv.frontend.read import read

VALUES = np.array([1.5, 2, -1], np.float32)
DENSE = np.zeros((8, 4), np.float32)
DENSE[[0, 2, 7], [0, 1, 2]] = VALUES
FLAT, PAIRS = np.array([0, 9, 30]), np.array([[0, 0], [2, 1], [7, 2]])


def sparse(indices: np.ndarray, shape: tuple[int, ...] = (8, 4)) -> onnx.SparseTensorProto:
    values = numpy_helper.from_array(VALUES, "w")
    return helper.make_sparse_tensor(values, numpy_helper.from_array(indices, "i"), shape)


def texts() -> onnx.SparseTensorProto:
    values = helper.make_tensor("w", TensorProto.STRING, [3], [b"a", b"b", b"c"])
    return helper.make_sparse_tensor(values, numpy_helper.from_array(FLAT, "i"), (8, 4))


def model(tensor: onnx.SparseTensorProto, *, in_a_node: bool) -> bytes:
    x, y = (helper.make_tensor_value_info(*port) for port in (("x", TensorProto.FLOAT, [1, 8]), ("y", 1, [1, 4])))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    if in_a_node:
        nodes.insert(0, helper.make_node("Constant", [], ["w"], sparse_value=tensor))
    graph = helper.make_graph(nodes, "g", [x], [y], sparse_initializer=[] if in_a_node else [tensor])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


@pytest.mark.parametrize("in_a_node", [False, True])
@pytest.mark.parametrize("indices", [FLAT, PAIRS], ids=["flat", "pairs"])
def test_they_become_dense(indices, in_a_node, tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(model(sparse(indices), in_a_node=in_a_node))
    graph = read(path).graph
    constants = [*graph.initializer, *(node.attribute[0].t for node in graph.node if node.op_type == "Constant")]
    assert [numpy_helper.to_array(tensor).tolist() for tensor in constants] == [DENSE.tolist()]
    assert len(load(path).nodes) == 1


def test_those_of_a_branch_do_so_too(tmp_path):
    then, other = (onnx.load_from_string(model(sparse(FLAT), in_a_node=flag)).graph for flag in (False, True))
    for graph in (then, other):
        del graph.input[:]
        graph.output[0].name = graph.node[-1].output[0] = "z"
    x, y = (helper.make_tensor_value_info(*port) for port in (("x", TensorProto.FLOAT, [1, 8]), ("y", 1, [1, 4])))
    yes = numpy_helper.from_array(np.array(True), "c")
    choice = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    graph = helper.make_graph([choice], "g", [x], [y], [yes])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    assert [node.op for node in load(path).nodes] == ["fully_connected"]


@pytest.mark.parametrize(
    ("tensor", "found"),
    [
        (sparse(np.array([0, 9, 32])), r"'w' has values outside of its shape \[8, 4\]"),
        (sparse(np.array([[0, 0], [2, 4], [7, 2]])), "outside of its shape"),
        (sparse(np.array([0, -1, 3])), "outside of its shape"),
        (sparse(np.array([0, 9])), r"has int64 indices of shape \[2\] for 3 values"),
        (sparse(FLAT.astype(np.int32)), "has int32 indices"),
        (sparse(FLAT, (2**13, 2**12)), "at most 16777216 elements"),
        (sparse(FLAT, (0, 4)), r"has the shape \[0, 4\]"),
        (sparse(FLAT, ()), r"has the shape \[\]"),
        (texts(), "'w' holds texts"),
    ],
)
def test_what_makes_no_sense_is_refused(tensor, found, tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(model(tensor, in_a_node=False))
    with pytest.raises(InputError, match=found):
        read(path)
