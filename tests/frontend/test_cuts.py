"""Cuts that are suggested: tensors in place of their many parts, outputs of the model, and no scaler or move alone."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper
from onnx_text import build

from nmpconv.errors import UnsupportedModel
from nmpconv.frontend.onnx import load


@pytest.mark.parametrize(("classes", "cut"), [(8, tuple(f"p{i}" for i in range(8))), (9, ("a",))])
def test_a_cut_names_the_tensor_in_place_of_many_parts(classes: int, cut: tuple[str, ...], tmp_path: Path) -> None:
    """SSDlite of torchvision selects boxes of each class, the index of which is a constant."""
    nodes = [helper.make_node("Relu", ["x"], ["a"])]
    for i in range(classes):
        nodes.append(helper.make_node("Gather", ["a", f"k{i}"], [f"p{i}"], axis=1))
        nodes.append(helper.make_node("NonZero", [f"p{i}"], [f"n{i}"]))
    nodes.append(helper.make_node("Concat", [f"n{i}" for i in range(classes)], ["y"], axis=1))
    places = [helper.make_tensor(f"k{i}", TensorProto.INT64, [], [i]) for i in range(classes)]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 9, 6])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, [2, "n"])
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], places), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(UnsupportedModel) as caught:
        load(tmp_path / "model.onnx")
    assert caught.value.cut == cut
    assert load(tmp_path / "model.onnx", outputs=["auto"]).outputs == cut


def test_a_cut_keeps_parts_that_are_outputs(tmp_path: Path) -> None:
    outputs = tuple(f"o{i}" for i in range(9))
    nodes = [
        *(helper.make_node("Relu", ["x"], [name]) for name in "ab"),
        helper.make_node("Split", ["a"], outputs, axis=1),
        helper.make_node("NonZero", ["b"], ["y"]),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in (*outputs, "y")]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 9, 6])
    graph = helper.make_graph(nodes, "g", [x], ports)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "model.onnx"
    )
    with pytest.raises(UnsupportedModel) as caught:
        load(tmp_path / "model.onnx")
    assert caught.value.cut == ("b", *outputs)


def test_a_scaler_in_front_of_trees_is_no_cut(tmp_path: Path) -> None:
    """It would be all that the device computes."""
    scaled = helper.make_node("Scaler", ["x"], ["s"], domain="ai.onnx.ml", offset=[1.0] * 3, scale=[2.0] * 3)
    trees = helper.make_node("TreeEnsembleRegressor", ["s"], ["y"], domain="ai.onnx.ml")
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, n]) for name, n in (("x", 3), ("y", 1))]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    graph = helper.make_graph([scaled, trees], "g", ports[:1], ports[1:])
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "model.onnx")
    with pytest.raises(UnsupportedModel, match="C code of the trees") as caught:
        load(tmp_path / "model.onnx")
    assert (caught.value.cut, caught.value.hint) == ((), "")


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("(int64[1,4] x) => (y) { c = Cast<to=1>(x) y = NonZero(c) }", ()),
        ("(float[1,4,6] x) => (y) { a = Transpose<perm=[0,2,1]>(x) b = Identity(a) y = NonZero(b) }", ()),
        ("(float[4,4] x) => (y) { a = Trilu(x) y = NonZero(a) }", ()),
        ("(float[1,4] x) => (y) <float k = {2}> { e = Exp(k) a = Concat<axis=1>(x, x) y = Unique(a) }", ()),
        ("(float[1,4] x) => (y) <float[1,4] k = {1,2,3,4}> { e = Exp(k) a = Concat<axis=1>(x, e) y = Unique(a) }", ()),
        ("(float[1,4] x) => (y) { b = Greater(x, x) c = Cast<to=1>(b) y = NonZero(c) }", ("c",)),
        ("(int64[1,4] x) => (y) { c = Cast<to=1>(x) a = Tanh(c) y = NonZero(a) }", ("a",)),
    ],
)
def test_a_cut_without_products_leaves_something_to_compute(text: str, cut: tuple[str, ...], tmp_path: Path) -> None:
    """Casts and moves are nothing, nor is what depends on no input."""
    build(text, 17, tmp_path / "model.onnx")
    with pytest.raises(UnsupportedModel) as caught:
        load(tmp_path / "model.onnx")
    assert caught.value.cut == cut
    assert bool(caught.value.hint) == bool(cut)
