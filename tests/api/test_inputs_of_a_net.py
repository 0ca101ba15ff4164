"""A net is called with one array, a batch, a dict or keywords, in the file's layout or the ONNX model's."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import cli_files
import numpy as np
import onnx
import onnxruntime
import pytest
from PIL import Image

import nmpconv
from nmpconv.data.samples import open_samples
from nmpconv.errors import InputError
from nmpconv.runtime.interpreter import Net
from nmpconv.runtime.ports import Port

MEAN, STD = 127.5, 64.0


@pytest.fixture(scope="module")
def pixels(tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (5, 8, 8, 3)).astype(np.uint8)


@pytest.fixture(scope="module")
def floats(pixels: np.ndarray) -> np.ndarray:
    """The ONNX model's input: [5,3,8,8]."""
    return ((pixels.astype(np.float32) - MEAN) / STD).transpose(0, 3, 1, 2)


@pytest.fixture(scope="module")
def from_images(pixels: np.ndarray) -> Net:
    return nmpconv.convert(cli_files.onnx_model(), pixels, mean=MEAN, std=STD, labels=["a", "b", "c"]).load()


@pytest.fixture(scope="module")
def from_arrays(floats: np.ndarray) -> Net:
    return nmpconv.convert(cli_files.onnx_model(), floats).load()


def test_pictures_of_pillow_are_resized_as_run_does(from_images, from_arrays, pixels, tmp_path: Path) -> None:
    picture = Image.fromarray(pixels[0]).resize((20, 13))
    picture.save(tmp_path / "a.png")
    [wanted] = from_images(np.stack(list(open_samples(tmp_path, (1, 3, 8, 8), from_images.inputs[0].preprocess))))
    assert (from_images(picture.convert("RGBA"))[0] == wanted).all()
    assert (from_images([picture, Image.fromarray(pixels[1])])[0][1] == from_images(pixels[1])[0][0]).all()
    with pytest.raises(InputError, match=r"the array has shape \[13, 20, 3\]"):
        from_arrays(picture)


def test_an_image_in_every_layout_and_dtype_is_the_same(from_images, pixels, floats) -> None:
    image, numbers = pixels[0], floats[0]
    wanted = from_images.run((image.astype(np.int16) - 128).astype(np.int8))[0]
    forms = [
        image,
        image[np.newaxis],
        image.transpose(2, 0, 1),
        image[np.newaxis].transpose(0, 3, 1, 2),
        image.ravel(),
        numbers.tolist(),
        numbers,
        numbers[np.newaxis],
        numbers.transpose(1, 2, 0),
        numbers.astype(np.float64),
        (image.astype(np.int16) - 128).astype(np.int8).transpose(2, 0, 1),
    ]
    for form in forms:
        np.testing.assert_array_equal(from_images.run(form)[0], wanted)
        assert from_images.run(form)[0].shape == (1, 3)


def test_floats_are_the_models_numbers(from_images, pixels, floats) -> None:
    """As onnxruntime takes them, with an answer near its own; before, they were taken for pixel - 128."""
    session = onnxruntime.InferenceSession(cli_files.onnx_model().SerializeToString())
    for x in floats:
        (theirs,) = session.run(None, {"x": x[np.newaxis]})
        assert np.abs(from_images(x)[0] - theirs).max() < 0.02


def test_keras_models_too(pixels, floats) -> None:
    """Channels last in the ONNX model: the same answers by arrays of any layout."""
    last = floats.transpose(0, 2, 3, 1)
    net = nmpconv.convert(cli_files.nhwc_model(), pixels, mean=MEAN, std=STD).load()
    wanted = net.run(pixels[1])[0]
    for form in (last[1], floats[1], pixels[1].transpose(2, 0, 1)):
        np.testing.assert_array_equal(net.run(form)[0], wanted)
    arrays = nmpconv.convert(cli_files.nhwc_model(), last).load()
    np.testing.assert_array_equal(arrays.run(floats[2])[0], arrays.run(last[2])[0])


def test_arrays_in_every_layout(from_arrays, floats) -> None:
    (wanted,) = from_arrays.run(floats[0])
    for form in (floats[:1], floats[0].transpose(1, 2, 0), floats[:1].transpose(0, 2, 3, 1), floats[0].ravel()):
        np.testing.assert_array_equal(from_arrays.run(form)[0], wanted)


def test_batches_are_their_samples(from_images, pixels, floats) -> None:
    for batch in (pixels, floats, floats.transpose(0, 2, 3, 1), pixels.transpose(0, 3, 1, 2), pixels[:, np.newaxis]):
        (found,) = from_images.run(batch)
        assert found.shape == (5, 3)
        np.testing.assert_array_equal(found, np.concatenate([from_images.run(x)[0] for x in batch]))
    np.testing.assert_array_equal(from_images(floats)["y"], from_images.run_float(list(floats))[0])
    assert from_images.run(pixels[:1])[0].shape == (1, 3)
    assert from_images.run(pixels[:0])[0].shape == (0, 3)


def test_inputs_by_name(floats) -> None:
    rng = np.random.default_rng(2)
    z = rng.normal(size=(5, 3)).astype(np.float32)
    net = nmpconv.convert(cli_files.two_inputs(), {"x": floats, "z": z}).load()
    wanted = net.run(floats[0], z[0])[0]
    for found in (net.run({"z": z[0], "x": floats[0]}), net.run(x=floats[0], z=z[0])):
        np.testing.assert_array_equal(found[0], wanted)
    assert net(x=floats, z=z)[0].shape == (5, 3)
    with pytest.raises(InputError, match=r"different numbers of samples \(x: 5, z: 1\)"):
        net(floats, z[0])
    with pytest.raises(InputError, match="by position and by keyword"):
        net(floats, z=z)
    with pytest.raises(InputError, match="did you mean 'z'"):
        net(x=floats, zz=z)


def test_outputs_by_name_with_labels(from_images, pixels) -> None:
    found = from_images(pixels)
    assert list(found.to_dict()) == ["y"]
    assert found.to_dict()["y"] is found["y"] is found[0]
    with pytest.raises(KeyError, match="did you mean 'y'"):
        found["yy"]
    assert from_images.labels == ("a", "b", "c")
    (scores,) = from_images(pixels[0])
    best = int(np.argmax(scores))
    assert from_images(pixels[0]).top(1) == [("abc"[best], scores[0, best])]
    assert [row[0] for row in found.top(2, "y")] == [from_images(x).top(1)[0] for x in pixels]
    assert len(copy.deepcopy(found)) == 1


def test_ambiguity_says_which() -> None:
    """[3,3,3] may be [H,W,C] or [C,H,W]; int16 may be integers or numbers."""
    model = cli_files.onnx_model()
    for dim in model.graph.input[0].type.tensor_type.shape.dim[2:]:
        dim.dim_value = 3
    cube = np.random.default_rng(3).integers(0, 256, (6, 3, 3, 3)).astype(np.uint8)
    net = nmpconv.convert(model, cube, mean=MEAN, std=STD).load()
    with pytest.raises(InputError, match=r"x: .* fits \[H,W,C\] of the file and \[C,H,W\] of the ONNX model"):
        net(cube[0])
    (found,) = net.run(cube[0].ravel())
    np.testing.assert_array_equal(found, net.run((cube[0].astype(np.int16) - 128).astype(np.int8))[0])
    with pytest.raises(InputError, match="the file's integers or the ONNX model's numbers"):
        net(cube[0].astype(np.int64).ravel())


def test_integers_that_mean_one_thing() -> None:
    """Numbers of a grid of exponent 0, as indices have it, in any dtype of integers."""
    port = Port("ids", (1, 4), "int16", 0, -32768, 32767, None, False, (), (1, 4), 0)
    for dtype in (np.int64, np.int32, np.uint8, np.float32):
        assert port.integers(np.array([1, 2, 3, 100], dtype)).tolist() == [[[1, 2, 3, 100]]]
    assert port.integers([True, False, True, True]).tolist() == [[[1, 0, 1, 1]]]
    with pytest.raises(InputError, match="is no array"):
        port.integers([[1], [2, 3], 4])
    with pytest.raises(InputError, match="the array is complex128; int16, floats and truth values are taken"):
        port.integers(np.zeros(4, complex))


@pytest.mark.parametrize("shape", [(1, 1, 8, 8), (1, 8, 8), (8, 8), (8, 8, 1), (1, 8, 8, 1), (5, 8, 8), (5, 1, 8, 8)])
def test_gray_is_never_ambiguous(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(4)
    gray = rng.integers(0, 256, (5, 8, 8, 1)).astype(np.uint8)
    net = nmpconv.convert(cli_files.onnx_model(channels=1), gray, mean=MEAN, std=STD).load()
    count = 5 if shape[0] == 5 else 1
    np.testing.assert_array_equal(net.run(gray[:count].reshape(shape))[0], net.run(gray[:count])[0])


@pytest.mark.parametrize(
    ("shape", "hint"),
    [
        ((8, 8, 4), r"x\[\.\.\., :3\] leaves an alpha channel out"),
        ((2, 8, 8, 4), r"x\[\.\.\., :3\] leaves an alpha channel out"),
        ((9, 9, 3), r"a picture of Pillow is resized .*fromarray\(x\)"),
        ((9, 9, 1), r"a picture of Pillow is resized .*fromarray\(x\[\.\.\., 0\]\)"),
        ((2, 9, 9, 4), "or a batch of these"),
        ((3, 9), "or a batch of these"),
    ],
)
def test_pictures_that_do_not_fit(from_images, shape: tuple[int, ...], hint: str) -> None:
    with pytest.raises(InputError, match=hint):
        from_images(np.zeros(shape, np.uint8))


@pytest.mark.parametrize("shape", [(8, 9, 1), (8, 8, 3), (8, 8, 4)])
def test_hints_about_pictures_that_do_not_fit_a_gray_net_are_right(shape: tuple[int, ...]) -> None:
    """Takes an input under any of its names."""
    gray = np.zeros((5, 8, 8, 1), np.uint8)
    net = nmpconv.convert(cli_files.onnx_model(channels=1), gray, mean=MEAN, std=STD).load()
    x = np.zeros(shape, np.uint8)
    with pytest.raises(InputError) as refused:
        net.run(x)
    code = str(refused.value.hint).partition("does: PIL.")[2]
    net.run(eval(code, {"Image": Image, "x": x}))


def test_pixels_as_floats_are_refused(from_images, pixels) -> None:
    """They are the most common mistake: 0 to 255 where the model's numbers are -2 to 2."""
    with pytest.raises(InputError, match="most are no pixels with the model's mean and std"):
        from_images(pixels[0].astype(np.float32))


def test_a_net_with_states_takes_no_batch(tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    nodes = [helper.make_node("Add", ["x", "h"], ["y"])]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("x", "h", "y")]
    graph = helper.make_graph(nodes, "sum", ports[:2], ports[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    frames: Any = np.random.default_rng(5).normal(size=(6, 1, 4)).astype(np.float32)
    net = nmpconv.convert(onnx.load_from_string(model.SerializeToString()), {"x": frames}, state=["y=h"]).load()
    net(frames[0])
    with pytest.raises(InputError, match="a batch of 6; a net with states takes one call after another"):
        net(frames)
