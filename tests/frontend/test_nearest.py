"""Nearest neighbours are those of onnxruntime, where a coordinate is the middle between two elements, too."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from nmpconv.calib import parity
from nmpconv.calib.original_model import original
from nmpconv.conversion.pipeline import Options, convert
from nmpconv.frontend.onnx import load
from nmpconv.frontend.to_onnx import to_onnx
from nmpconv.runtime import interpreter

TRANSFORMS = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "asymmetric")
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
SCALES = (0.3, 0.6, 0.7, 0.9, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0, 2.3, 2.6, 3.4, 1 / 3)
# width, scale, transform, rounding: coordinates that are ties but for the rounding of float32
TIES = (
    (27, 1.3, "half_pixel", "round_prefer_floor"),
    (32, 1.3, "half_pixel", "round_prefer_floor"),
    (27, 1.3, "half_pixel_symmetric", "ceil"),
    (27, 1.5, "half_pixel_symmetric", "floor"),
    (32, 1.3, "half_pixel_symmetric", "round_prefer_ceil"),
    (32, 0.7, "half_pixel_symmetric", "round_prefer_ceil"),
    (24, 1.2, "asymmetric", "round_prefer_ceil"),
)


def resize(width: int, target: float | int, opset: int = 21, **attributes: object) -> onnx.ModelProto:
    """A Resize of x [1,1,2,width] to so many columns (int), or by a scale (float)."""
    sized = isinstance(target, int)
    values = np.array([1, 1, 2, target], np.int64) if sized else np.array([1, 1, 1, target], np.float32)
    values = values[2:] if "axes" in attributes else values
    kind = "Resize" if opset > 9 else "Upsample"
    inputs = ["x", "k"] if opset < 11 else ["x", "", "", "k"] if sized else ["x", "", "k"]
    if opset in (11, 12):
        inputs = ["x", "none", *["none" if name == "" else name for name in inputs[2:]]]
    empty = numpy_helper.from_array(np.zeros(0, np.float32), "none")
    graph = helper.make_graph(
        [helper.make_node(kind, inputs, ["y"], **attributes)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 2, width])],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(values, "k"), *([empty] if "none" in inputs else [])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def ramp(width: int) -> np.ndarray:
    return np.broadcast_to(np.arange(width, dtype=np.float32), (1, 1, 2, width)).copy()


def run(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, {"x": x})[0]


def both(model: onnx.ModelProto, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Outputs of onnxruntime, the model's own rule of ties written out, and of the float graph, for these columns."""
    onnx.save(model, path)
    graph, x = load(path), ramp(model.graph.input[0].type.tensor_type.shape.dim[3].dim_value)
    return run(original(model, graph), x), run(to_onnx(graph, graph.outputs), x)


def targets() -> Iterator[tuple[int, float | int]]:
    dice = np.random.default_rng(0)
    for scale in SCALES:
        width = int(dice.integers(4, 60))
        yield from ((width, scale), (width, max(int(width * scale), 1)))


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_neighbours(transform: str, rounding: str, tmp_path: Path) -> None:
    way = {"mode": "nearest", "coordinate_transformation_mode": transform, "nearest_mode": rounding}
    for width, target in targets():
        wanted, got = both(resize(width, target, **way), tmp_path / "model.onnx")
        np.testing.assert_array_equal(got, wanted, f"{width} to {target}")


@pytest.mark.parametrize(("width", "scale", "transform", "rounding"), TIES)
def test_ties(width: int, scale: float, transform: str, rounding: str, tmp_path: Path) -> None:
    way = {"mode": "nearest", "coordinate_transformation_mode": transform, "nearest_mode": rounding}
    written = []
    for opset in (11, 13, 18, 21):
        onnx.save(resize(width, scale, opset, **way), tmp_path / "model.onnx")
        graph = load(tmp_path / "model.onnx")
        x = np.random.default_rng(0).normal(size=(1, 1, 2, width)).astype(np.float32)
        model = partial(original, onnx.load(tmp_path / "model.onnx"), graph)
        written.append([node.op_type for node in model().graph.node])
        found = parity.compare(model, graph, [({"x": x}, {"x": x})])
        assert found.holds and found.db == np.inf
    assert all(kinds == written[0] for kinds in written)


def test_a_tie_with_sizes_that_are_computed(tmp_path: Path) -> None:
    """As exporters write it: Shape, Slice, Concat; and along two axes, of which one is a tie."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 9, 20])
    way = {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"}
    constants = {"0": [0], "2": [2], "wanted": [12, 6]}
    nodes = [
        helper.make_node("Shape", ["x"], ["all"]),
        helper.make_node("Slice", ["all", "0", "2"], ["first"]),
        helper.make_node("Concat", ["first", "wanted"], ["sizes"], axis=0),
        helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="nearest", **way),
    ]
    arrays = [numpy_helper.from_array(np.array(data, np.int64), name) for name, data in constants.items()]
    graph = helper.make_graph(nodes, "g", [x], [onnx.ValueInfoProto(name="y")], arrays)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "model.onnx")
    made = load(tmp_path / "model.onnx")
    compared = original(onnx.load(tmp_path / "model.onnx"), made)
    assert [node.op_type for node in compared.graph.node][-2:] == ["Gather", "Gather"]
    data = np.broadcast_to(np.arange(20, dtype=np.float32), (1, 1, 9, 20)).copy()
    wanted, got = run(compared, data), run(to_onnx(made, made.outputs), data)
    np.testing.assert_array_equal(got, wanted)
    assert got[0, 0, 0, 4] == 15


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_a_shape_that_stays_is_a_copy(mode: str, tmp_path: Path) -> None:
    """A scale of 1.1 that makes no column more."""
    wanted, got = both(resize(9, 1.1, mode=mode), tmp_path / "model.onnx")
    np.testing.assert_array_equal(wanted, ramp(9))
    np.testing.assert_array_equal(got, ramp(9))


@pytest.mark.parametrize("opset", [7, 9, 10])
def test_before_there_were_ways(opset: int, tmp_path: Path) -> None:
    for width, scale in product((5, 24), (1.2, 1.3, 2.0, 2.6)):
        model = resize(width, scale, opset, mode="nearest")
        if opset == 7:
            del model.graph.node[0].input[1:], model.graph.initializer[:]
            model.graph.node[0].attribute.append(helper.make_attribute("scales", [1.0, 1.0, 1.0, scale]))
        wanted, got = both(model, tmp_path / "model.onnx")
        np.testing.assert_array_equal(got, wanted)


def test_policies_round_as_float32(tmp_path: Path) -> None:
    way = {"mode": "nearest", "axes": [2, 3]}
    for policy, width, target in product(("not_larger", "not_smaller"), (11, 14, 22), (7, 9, 26, 31)):
        model = resize(width, target, 21, keep_aspect_ratio_policy=policy, **way)
        wanted, got = both(model, tmp_path / "model.onnx")
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [0, 1])
def test_constant_places_of_a_grid(padding: str, corners: int, tmp_path: Path) -> None:
    """Places that are ties go where onnxruntime's float32 takes them, not where 16 bits of a grid do."""
    height, width = 7, 5
    dice = np.random.default_rng(corners)
    places = np.round(dice.uniform(-1.5, 1.5, (1, 9, 9, 2)) * 4 * height) / (4 * height)
    node = helper.make_node(
        "GridSample", ["x", "g"], ["y"], mode="nearest", padding_mode=padding, align_corners=corners
    )
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, height, width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 9, 9])],
        [numpy_helper.from_array(places.astype(np.float32), "g")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.save(model, tmp_path / "model.onnx")
    x = np.random.default_rng(2).permutation(height * width).astype(np.float32).reshape(1, 1, height, width)
    np.save(tmp_path / "x.npy", np.concatenate([x, x]))
    made = convert(tmp_path / "model.onnx", {"": tmp_path / "x.npy"}, Options(bits="16"), lambda *_: None)
    net = interpreter.load(made.data)
    [got] = net.run_float({"x": x})
    assert np.abs(got.reshape(1, 1, 9, 9) - run(model, x)).max() < 0.1
