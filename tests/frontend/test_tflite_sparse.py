"""Constants of TFLite files without their zeros, of four bits, and none; MediaPipe's transposed convolution."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from tflite_files import LiteRT, Op, Tensor, constant, tflite
from tflite_nets import VECTORS, axis, by_blocks, by_columns, by_rows, listed, with_sparse

from nmpconv.errors import InputError
from nmpconv.frontend.onnx import load
from nmpconv.frontend.tflite import sparse, to_onnx

CASES = {**{kind: by_rows(kind) for kind in VECTORS}, "columns": by_columns(), "blocks": by_blocks()}


def ran(data: bytes, *inputs: np.ndarray) -> np.ndarray:
    session = ort.InferenceSession(to_onnx(data, "m.tflite").SerializeToString())
    y: np.ndarray = session.run(None, {port.name: x for port, x in zip(session.get_inputs(), inputs, strict=True)})[0]
    return y


@pytest.mark.parametrize("name", CASES)
def test_zeros_are_filled_in(name: str, need_package) -> None:
    need_package("ai_edge_litert")
    dense, sparsity = CASES[name]
    order = [axis for axis in sparsity["traversal_order"] if axis < dense.ndim]
    values = dense.transpose(order)[dense.transpose(order) != 0]
    if name == "blocks":
        values = np.arange(1, 9, dtype=np.float32)
    data, zeros = with_sparse(dense.shape, values, sparsity), np.zeros(dense.shape, np.float32)
    np.testing.assert_array_equal(ran(data, zeros), dense)
    np.testing.assert_array_equal(LiteRT(data).run(zeros)[0], dense)


ROWS = by_rows("Uint8Vector")[1]["dim_metadata"]
ORDER = [0, 1, 2]
BAD_AXES = "its axes are not those of the tensor"
DAMAGED = [
    (BAD_AXES, {"traversal_order": [0, 0, 1], "dim_metadata": ROWS}),
    (BAD_AXES, {"traversal_order": [0, 1, 2, 3], "block_map": [-7], "dim_metadata": [*ROWS, axis(2)]}),
    (BAD_AXES, {"traversal_order": [0, 1, 2, 3], "block_map": [3], "dim_metadata": [*ROWS, axis(2)]}),
    (BAD_AXES, {"traversal_order": [*range(7)], "block_map": [0] * 4, "dim_metadata": [*ROWS, *[axis(1)] * 4]}),
    ("an axis of 100000", {"traversal_order": ORDER, "dim_metadata": [axis(100_000), *ROWS[1:]]}),
    *(
        (problem, {"traversal_order": ORDER, "dim_metadata": [*ROWS[:2], listed(segments, indices, "Int32Vector")]})
        for problem, segments, indices in (
            ("its segments overlap", [0, 6, 0, 6, 0, 6, 0], [1, 3, 2, 0, 1, 2]),
            ("2 segments", [0, 6], [1, 3, 2, 0, 1, 2]),
            ("its segments lie outside of 6 indices", [-9, -7, -6, -6, -6, -6, -3], [1, 3, 2, 0, 1, 2]),
            ("its segments lie outside of 6 indices", [10, 12, 13, 13, 13, 13, 16], [1, 3, 2, 0, 1, 2]),
            ("a value lies outside of it", [0, 2, 3, 3, 3, 3, 6], [1, 3, 2, 0, 1, 9]),
        )
    ),
]


@pytest.mark.parametrize(("problem", "sparsity"), DAMAGED)
def test_places_that_make_no_sense(problem: str, sparsity: Mapping[str, Any]) -> None:
    values = np.arange(1, 7, dtype=np.float32)
    with pytest.raises(InputError, match=re.escape(f"tensor 'w' is sparse, {problem}")):
        to_onnx(with_sparse((3, 2, 4), values, sparsity), "m.tflite")


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((), f"tensor 'w' is sparse, {BAD_AXES}"),
        ((-1, -1), "tensor 'w' has shape [-1, -1]"),
        ((2**31 - 1, 2**31 - 1), "its sparse tensors, 'w' the last, have more than"),
        ((2**12 + 8, 2**12), "its sparse tensors, 'w' the last, have more than"),
    ],
)
def test_shapes_that_sparse_tensors_cannot_have(shape: tuple[int, ...], message: str) -> None:
    levels = [listed([0, 1], [1]) for _ in shape]
    sparsity = {"traversal_order": [*range(len(shape))], "dim_metadata": levels}
    with pytest.raises(InputError, match=re.escape(message)):
        to_onnx(with_sparse(shape, np.ones(1, np.float32), sparsity), "m.tflite")


def test_sparse_tensors_of_a_file_share_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be of one buffer. A large file has room for more."""
    monkeypatch.setattr(sparse, "DENSE_MAX", 50)
    monkeypatch.setattr(sparse, "DENSE_OF_BYTE", 0)
    w = Tensor((3, 2, 4), "float32", np.arange(1, 7, dtype=np.float32), more={"sparsity": by_rows("Uint8Vector")[1]})
    two, three = (
        tflite({"x": Tensor((3, 2, 4)), **dict.fromkeys(names, w)}, [], ["x"], ["x"]) for names in ("vw", "uvw")
    )
    to_onnx(two, "m.tflite")
    with pytest.raises(InputError, match="'w' the last, have more than 50 elements"):
        to_onnx(three, "m.tflite")
    monkeypatch.setattr(sparse, "DENSE_OF_BYTE", 1)
    to_onnx(three, "m.tflite")


def test_a_sparse_tensor_of_texts_is_refused() -> None:
    w = Tensor(
        (4,), "string", np.zeros(9, np.uint8), more={"sparsity": {"traversal_order": [0], "dim_metadata": [axis(4)]}}
    )
    with pytest.raises(InputError, match="tensor 'w' is sparse and of type string"):
        to_onnx(tflite({"x": Tensor((4,)), "w": w}, [], ["x"], ["x"]), "m.tflite")


@pytest.mark.parametrize(("padding", "size"), [(1, (8, 12)), (1, (7, 11)), (2, (9, 12))])
def test_mediapipes_transposed_convolution_is_tflites(padding: int, size: tuple[int, int], tmp_path: Path) -> None:
    """With its operands in another order, and strides of width before height."""
    rng, (height, width) = np.random.default_rng(3), size
    tensors = {
        "x": Tensor((1, 4, 4, 3)),
        "w": constant(rng.normal(0, 1, (5, 3, 2, 3)).astype(np.float32)),
        "b": constant(rng.normal(0, 1, 5).astype(np.float32)),
        "n": constant(np.array([1, height, width, 5], np.int32)),
        "y": Tensor((1, height, width, 5)),
    }
    options = {"padding": padding - 1, "stride_h": 2, "stride_w": 3}
    plain = Op("TRANSPOSE_CONV", ("n", "w", "x", "b"), ("y",), "TransposeConvOptions", options)
    theirs = Op("Convolution2DTransposeBias", ("x", "w", "b"), ("y",), custom=np.array([padding, 3, 2], "<i4"))
    x = rng.normal(0, 1, (1, 4, 4, 3)).astype(np.float32)
    wanted, got = (ran(tflite(tensors, [op], ["x"], ["y"]), x) for op in (plain, theirs))
    np.testing.assert_array_equal(got, wanted)


def test_a_buffer_may_be_empty(tmp_path: Path):
    """Older converters gave each tensor one."""
    tensors = {"none": constant(np.zeros(0, np.float32)), "x": Tensor((1, 4), more={"buffer": 1})}
    tensors["y"] = Tensor((1, 4), more={"buffer": 1})
    (tmp_path / "m.tflite").write_bytes(tflite(tensors, [Op("RELU", ("x",), ("y",))], ["x"], ["y"]))
    assert load(tmp_path / "m.tflite").inputs == ("x",)


def test_weights_of_four_bits(tmp_path: Path):
    numbers = np.array([-8, 7, 3, -1, 0], np.int8)
    packed = np.array([(7 << 4 | 8), (15 << 4 | 3), 0], np.uint8).view(np.int8)
    tensors = {"x": Tensor((1, 5)), "y": Tensor((1, 1)), "w": Tensor((1, 5), "int4", packed, scale=0.5)}
    data = tflite(tensors, [Op("FULLY_CONNECTED", ("x", "w"), ("y",), "FullyConnectedOptions", {})], ["x"], ["y"])
    x = np.arange(5, dtype=np.float32)[None]
    [got] = ort.InferenceSession(to_onnx(data, "m").SerializeToString()).run(None, {"x": x})
    assert got.item() == pytest.approx((numbers * 0.5 * x[0]).sum())
