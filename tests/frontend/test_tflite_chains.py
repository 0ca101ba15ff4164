"""TFLite operators on what no file is fed with, complex numbers and booleans, between those that make and read them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from tflite_files import LiteRT, Op, Tensor, constant, tflite
from tflite_nets import rng

from nmpconv.errors import InputError, UnsupportedModel
from nmpconv.frontend.onnx import load
from nmpconv.frontend.tflite.tflite_schema import TYPES
from nmpconv.frontend.to_onnx import to_onnx


def spectrum(part: str, height: int = 1) -> bytes:
    """A frame of 3 rows and 20 samples, its spectrum of 16 along each row or of both axes, and a part of that."""
    rows = 1 if height == 1 else 3
    shape = (1, 3, 1, 20) if height == 1 else (1, 3, 20)
    bins = (*shape[:-2], rows if height == 1 else height, 9)
    tensors = {"x": Tensor((1, 3, 20)), "r": Tensor(shape), "s": Tensor(bins, "complex64")}
    tensors |= {"t": Tensor((1, bins[-2] if rows > 1 else 3, 9), "complex64"), "y": Tensor((1, bins[1], 9))}
    tensors["n"], tensors["l"] = constant(np.int32(shape)), constant(np.int32([height, 16]))
    tensors["m"] = constant(np.int32(tensors["t"].shape))
    ops = [Op("RESHAPE", "xn", "r"), Op("RFFT2D", "rl", "s"), Op("RESHAPE", "sm", "t"), Op(part, "t", "y")]
    return tflite(tensors, ops, ["x"], ["y"])


@pytest.mark.parametrize("height", [1, 4])
@pytest.mark.parametrize("part", ["COMPLEX_ABS", "REAL", "IMAG"])
def test_spectra(part: str, height: int, tmp_path: Path, need_package: Callable[[str], None]) -> None:
    need_package("ai_edge_litert")
    (tmp_path / "m.tflite").write_bytes(data := spectrum(part, height))
    x = rng().normal(0, 1, (1, 3, 20)).astype(np.float32)
    graph = load(tmp_path / "m.tflite")
    [ours] = ort.InferenceSession(to_onnx(graph, graph.outputs).SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(ours, LiteRT(data).run(x)[0], atol=1e-5)


def real_parts(*moves: Op) -> bytes:
    """Spectra [1,3,1,9] of 3 frames, moved to c, of which a cast leaves the real part."""
    tensors = {"x": Tensor((1, 3, 1, 16)), "l": constant(np.int32([1, 16])), "s": Tensor((1, 3, 1, 9), "complex64")}
    tensors["q"] = Tensor((1, 3, 9), "complex64")
    tensors |= {"last": constant(np.int32(-1)), "begin": constant(np.int32([0, 1, 0])), "c": Tensor((), "complex64")}
    tensors |= {"size": constant(np.int32([1, 2, -1])), "y": Tensor(())}
    cast = Op("CAST", "c", "y", "CastOptions", {"in_data_type": TYPES.index("complex64"), "out_data_type": 0})
    return tflite(tensors, [Op("RFFT2D", "xl", "s"), *moves, cast], ["x"], ["y"])


SQUEEZE = ("SqueezeOptions", {"squeeze_dims": np.int32([-2])})
MOVES = {
    "squeeze": ([Op("SQUEEZE", "s", "c", *SQUEEZE)], lambda s: s[:, :, 0]),
    "expand": (
        [Op("SQUEEZE", "s", "q", *SQUEEZE), Op("EXPAND_DIMS", ("q", "last"), "c")],
        lambda s: s[:, :, 0, :, None],
    ),
    "slice": ([Op("SQUEEZE", "s", "q", *SQUEEZE), Op("SLICE", ("q", "begin", "size"), "c")], lambda s: s[:, 1:, 0]),
    "join": (
        [Op("CONCATENATION", "ss", "c", "ConcatenationOptions", {"axis": -1})],
        lambda s: np.concatenate([s, s], -1),
    ),
}


@pytest.mark.parametrize("case", MOVES)
def test_real_parts_of_what_is_moved(case: str, tmp_path: Path) -> None:
    """Casts to reals and moves with axes from the last one, as a Keras model of `tf.signal.stft` has them."""
    moves, wanted = MOVES[case]
    (tmp_path / "m.tflite").write_bytes(real_parts(*moves))
    x = rng().normal(0, 1, (1, 3, 1, 16)).astype(np.float32)
    graph = load(tmp_path / "m.tflite")
    [ours] = ort.InferenceSession(to_onnx(graph, graph.outputs).SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(ours, wanted(np.fft.rfft(x)).real, atol=1e-5)


@pytest.mark.parametrize("axis", [4, -5])
def test_complex_numbers_have_no_axis_behind_the_last(axis: int, tmp_path: Path) -> None:
    join = Op("CONCATENATION", "ss", "c", "ConcatenationOptions", {"axis": axis})
    (tmp_path / "m.tflite").write_bytes(real_parts(join))
    with pytest.raises(InputError, match=f"malformed: axis {axis} of 4"):
        load(tmp_path / "m.tflite")


def test_complex_numbers_are_read_by_few_operators(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(spectrum("NEG"))
    with pytest.raises(UnsupportedModel, match="complex numbers"):
        load(tmp_path / "m.tflite")


def test_complex_numbers_are_no_output(tmp_path: Path) -> None:
    tensors = {"x": Tensor((1, 3, 20)), "l": constant(np.int32([1, 16])), "y": Tensor((1, 3, 9), "complex64")}
    (tmp_path / "m.tflite").write_bytes(tflite(tensors, [Op("RFFT2D", "xl", "y")], ["x"], ["y"]))
    with pytest.raises(UnsupportedModel, match="complex numbers as an output"):
        load(tmp_path / "m.tflite")


@pytest.mark.parametrize(
    ("op", "number", "reason"),
    [
        (Op("SCATTER_ND", "ixn", "y"), np.int32([2**20, 2**15, 4]), "too large"),
        (Op("REDUCE_ALL", "bn", "y"), np.zeros(0, np.int32), "no axes"),
    ],
)
def test_sizes_and_axes_that_are_refused(op: Op, number: np.ndarray, reason: str, tmp_path: Path) -> None:
    tensors = {"x": Tensor((1, 8)), "b": Tensor((1, 8), "bool"), "y": Tensor((1, 8))}
    tensors |= {"i": constant(np.int32([[0]])), "n": constant(number), "0": constant(np.float32(0))}
    (tmp_path / "m.tflite").write_bytes(tflite(tensors, [Op("GREATER", "x0", "b"), op], ["x"], ["y"]))
    with pytest.raises(UnsupportedModel, match=reason):
        load(tmp_path / "m.tflite")


@pytest.mark.parametrize(("kind", "least"), [("REDUCE_ANY", 0.5), ("REDUCE_ALL", -0.5)])
def test_reductions_of_booleans(kind: str, least: float, tmp_path: Path, need_package: Callable[[str], None]) -> None:
    need_package("ai_edge_litert")
    tensors = {"x": Tensor((1, 6, 3)), "b": Tensor((1, 6, 3), "bool"), "a": Tensor((1, 6), "bool"), "y": Tensor((1, 6))}
    tensors |= {"0": constant(np.float32(least)), "axes": constant(np.int32([-1]))}
    cast = {"in_data_type": TYPES.index("bool"), "out_data_type": TYPES.index("float32")}
    ops = [Op("GREATER", "x0", "b"), Op(kind, ("b", "axes"), "a", "ReducerOptions", {})]
    ops += [Op("CAST", "a", "y", "CastOptions", cast)]
    (tmp_path / "m.tflite").write_bytes(data := tflite(tensors, ops, ["x"], ["y"]))
    x = rng().normal(0, 1, (1, 6, 3)).astype(np.float32)
    graph = load(tmp_path / "m.tflite")
    [ours] = ort.InferenceSession(to_onnx(graph, graph.outputs).SerializeToString()).run(None, {"x": x})
    assert ours.tolist() == LiteRT(data).run(x)[0].tolist()
    assert 0 < ours.sum() < 6


def test_a_constant_of_zeros_may_have_scale_0(tmp_path: Path) -> None:
    """TensorFlow's converter to int16 writes one."""
    tensors = {name: Tensor((1, 8), "int16", scale=0.01) for name in "xy"}
    tensors["w"] = constant(np.zeros(8, np.int16), scale=0.0)
    (tmp_path / "m.tflite").write_bytes(tflite(tensors, [Op("ADD", "xw", "y", "AddOptions", {})], ["x"], ["y"]))
    load(tmp_path / "m.tflite")


def test_positions_that_are_computed(tmp_path: Path, need_package: Callable[[str], None]) -> None:
    """TFLite has none that count from the end. Exporters write grid_sample so."""
    need_package("ai_edge_litert")
    tensors = {"x": Tensor((1, 8, 1)), "i": Tensor((1, 8, 1), "int32"), "y": Tensor((1, 8, 3))}
    tensors["rows"] = constant(rng().normal(0, 1, (5, 3)).astype(np.float32))
    cast = {"in_data_type": TYPES.index("float32"), "out_data_type": TYPES.index("int32")}
    ops = [Op("CAST", "x", "i", "CastOptions", cast), Op("GATHER_ND", ("rows", "i"), "y")]
    (tmp_path / "m.tflite").write_bytes(data := tflite(tensors, ops, ["x"], ["y"]))
    x = rng().uniform(0, 4.9, (1, 8, 1)).astype(np.float32)
    graph = load(tmp_path / "m.tflite")
    [ours] = ort.InferenceSession(to_onnx(graph, graph.outputs).SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(ours, LiteRT(data).run(x)[0], atol=1e-6)


BOTH = "StridedSliceOptions"
COMPUTED = {
    "end": (
        [Op("CONCATENATION", ("n", "10"), "e"), Op("STRIDED_SLICE", ("x", "00", "e", "11"), "y", BOTH)],
        lambda x: x[:, :10],
    ),
    "begin": (
        [
            Op("CONCATENATION", ("n", "10"), "b"),
            Op("STRIDED_SLICE", ("x", "b", "far", "11"), "y", BOTH, {"begin_mask": 1}),
        ],
        lambda x: x[:, 10:],
    ),
    "index": (
        [
            Op("SUB", ("n", "-1"), "i"),
            Op("CONCATENATION", ("0", "i"), "b"),
            Op("STRIDED_SLICE", ("x", "b", "far", "11"), "y", BOTH, {"shrink_axis_mask": 2}),
        ],
        lambda x: x[:, 2],
    ),
    "offset": (
        [Op("CONCATENATION", ("0", "n"), "b"), Op("STRIDED_SLICE", ("x", "b", "13", "11"), "y", BOTH, {"offset": 1})],
        lambda x: x[:, 1:4],
    ),
    "widths": (
        [Op("CONCATENATION", ("00", "n", "0"), "e"), Op("RESHAPE", ("e", "22"), "w"), Op("PAD", ("x", "w"), "y")],
        lambda x: np.pad(x, [(0, 0), (1, 0)]),
    ),
    "sizes": (
        [Op("CONCATENATION", ("n", "12"), "e"), Op("SCATTER_ND", ("at", "x", "e"), "y")],
        lambda x: x,
    ),
}


@pytest.mark.parametrize("case", COMPUTED)
def test_places_that_follow_from_shapes(case: str, tmp_path: Path) -> None:
    """Places that are computed from a batch of any size, as `tf.signal.frame` has them."""
    ops, wanted = COMPUTED[case]
    lists = {
        "0": [0],
        "-1": [-1],
        "1": [1],
        "10": [10],
        "12": [12],
        "00": [0, 0],
        "11": [1, 1],
        "13": [1, 3],
        "22": [2, 2],
        "far": [9, 12],
    }
    tensors = {name: constant(np.int32(numbers)) for name, numbers in lists.items()}
    tensors |= {"x": Tensor((1, 12), signature=(-1, 12)), "s": Tensor((2,), "int32"), "n": Tensor((1,), "int32")}
    tensors |= {name: Tensor((2,), "int32") for name in "eb"} | {"i": Tensor((1,), "int32"), "y": Tensor(())}
    tensors |= {"w": Tensor((2, 2), "int32"), "at": constant(np.int32([[0]]))}
    first = [Op("SHAPE", "x", "s", "ShapeOptions", {"out_type": TYPES.index("int32")})]
    first += [Op("STRIDED_SLICE", "s011", "n", BOTH)]
    (tmp_path / "m.tflite").write_bytes(tflite(tensors, [*first, *ops], ["x"], ["y"]))
    x = rng().normal(0, 1, (1, 12)).astype(np.float32)
    graph = load(tmp_path / "m.tflite")
    [ours] = ort.InferenceSession(to_onnx(graph, graph.outputs).SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(ours, wanted(x))
