"""Tensors of a model that lie in files beside it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx_text import build

from nmpconv.errors import InputError, NmpError
from nmpconv.frontend.onnx import load
from nmpconv.frontend.read import external_files


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.onnx"


def refusal(path) -> tuple[type, str]:
    with pytest.raises(NmpError) as caught:
        load(path)
    return type(caught.value), str(caught.value)


def external(path, location: str, **numbers: int) -> None:
    model = build("(float[1,4] x) => (y) <float[1,4] c> { y = Add(x, c) }", 13)
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": location, **numbers}.items():
        tensor.external_data.add(key=key, value=str(value))
    path.write_bytes(model.SerializeToString())


def test_external_data(path):
    data = np.arange(6, dtype=np.float32)
    (path.parent / "weights").mkdir()
    (path.parent / "weights" / "w.bin").write_bytes(data.tobytes())
    external(path, "weights/w.bin", offset=8, length=16)
    graph = load(path)
    assert graph["c"].data.tolist() == [[2.0, 3.0, 4.0, 5.0]]


@pytest.mark.parametrize(
    ("location", "numbers", "found"),
    [
        ("/etc/hostname", {}, "has its data outside of the model's folder: /etc/hostname"),
        ("../outside.bin", {}, "has its data outside of the model's folder: ../outside.bin"),
        ("link.bin", {}, "has its data behind a link that leads out of the model's folder: link.bin"),
        (
            "folder/outside.bin",
            {},
            "has its data behind a link that leads out of the model's folder: folder/outside.bin",
        ),
        ("missing.bin", {}, "has its data in a file that does not exist: missing.bin"),
    ],
)
def test_external_data_refusals(location, numbers, found, tmp_path):
    (tmp_path / "outside.bin").write_bytes(bytes(16))
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "link.bin").symlink_to(tmp_path / "outside.bin")
    (folder / "folder").symlink_to(tmp_path)
    path = folder / "model.onnx"
    external(path, location, **numbers)
    expected = f"{path}: tensor 'c' {found} (external data must lie in the model's folder)"
    assert refusal(path) == (InputError, expected)


@pytest.mark.parametrize(
    ("content", "numbers", "problem"),
    [
        (bytes(16), {"offset": 4, "length": 16}, "bytes 4 to 20 of w.bin, which has 16 (export or download it again)"),
        (bytes(16), {"offset": 99}, "bytes 99 to 16 of w.bin, which has 16 (export or download it again)"),
        (
            b"version https://git-lfs.github.com/spec/v1",
            {"length": 99},
            "bytes 0 to 99 of w.bin, which has 42 (this is a pointer of Git LFS; git lfs pull fetches the file)",
        ),
    ],
)
def test_external_data_that_are_short(content, numbers, problem, path):
    (path.parent / "w.bin").write_bytes(content)
    external(path, "w.bin", **numbers)
    assert refusal(path) == (InputError, f"{path}: tensor 'c' needs {problem}")


@pytest.mark.parametrize("linked", [("model.onnx", "w.bin"), ("model.onnx",)])
def test_external_data_of_a_model_that_is_a_link(linked, tmp_path):
    """As in Hugging Face's cache of downloads, and of a link to the model alone."""
    blobs, folder = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    folder.mkdir()
    names = {name: f"{name}-blob" if len(linked) > 1 else name for name in ("model.onnx", "w.bin")}
    (blobs / names["w.bin"]).write_bytes(np.arange(4, dtype=np.float32).tobytes())
    external(blobs / names["model.onnx"], "w.bin")
    for name in linked:
        (folder / name).symlink_to(blobs / names[name])
    assert load(folder / "model.onnx")["c"].data.tolist() == [[0.0, 1.0, 2.0, 3.0]]
    assert [file.resolve() for file in external_files(folder / "model.onnx")] == [blobs / names["w.bin"]]


@pytest.mark.parametrize("beside", ["a", "b", "c", "d"])
def test_external_data_of_a_link_to_a_link(beside, tmp_path):
    """The data may lie beside each of the links, as a link themselves where what it leads to is beside one, too."""
    for name in ("a", "b", "c", "d"):
        (tmp_path / name).mkdir()
    external(tmp_path / "d" / "model-blob", "w.bin")
    (tmp_path / "d" / "w-blob").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    (tmp_path / "c" / "model.onnx").symlink_to("../d/model-blob")
    (tmp_path / "b" / "m.onnx").symlink_to(tmp_path / "c" / "model.onnx")
    (tmp_path / "a" / "m.onnx").symlink_to("../b/m.onnx")
    (tmp_path / beside / "w.bin").symlink_to(tmp_path / "d" / "w-blob")
    path = tmp_path / "a" / "m.onnx"
    assert load(path)["c"].data.tolist() == [[0.0, 1.0, 2.0, 3.0]]
    assert external_files(path) == [tmp_path / beside / "w.bin"]
    (tmp_path / "w-blob").write_bytes(bytes(16))
    (tmp_path / beside / "w.bin").unlink()
    (tmp_path / beside / "w.bin").symlink_to(tmp_path / "w-blob")
    assert "has its data behind a link that leads out of the model's folder: w.bin" in refusal(path)[1]
