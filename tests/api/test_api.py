"""convert, evaluate, inspect, bench and bundle from Python: models and data of every kind, errors, notes, progress."""

from __future__ import annotations

import logging
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cli_files
import numpy as np
import onnx
import pytest
from onnx_text import build
from PIL import Image

import nmpconv
from nmpconv.errors import InputError, OutputError, UnsupportedModel, UsageError

LOOK = {"mean": 127.5, "std": (64, 64, 64)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """images/ with labels.csv, and model.onnx."""
    path = tmp_path_factory.mktemp("api")
    cli_files.images(path / "images")
    onnx.save(cli_files.onnx_model(), path / "model.onnx")
    return path


@pytest.fixture(scope="module")
def pixels(folder: Path) -> np.ndarray:
    """uint8 [8,8,8,3]: the pictures of the folder."""
    return np.stack([np.asarray(Image.open(path)) for path in sorted((folder / "images").glob("*.png"))])


@pytest.fixture(scope="module")
def wanted(folder: Path) -> nmpconv.Converted:
    """The arrays of the folder of pictures."""
    return nmpconv.convert(folder / "model.onnx", folder / "images", **LOOK)


class Tensor:
    """As much of torch's as data needs: no numpy array before detach and cpu."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def detach(self) -> Tensor:
        return self

    def cpu(self) -> Tensor:
        return self

    def numpy(self) -> np.ndarray:
        return self._array

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("it requires grad")


class Loader:
    """As torch's DataLoader: batches of (tensor, labels), the last one smaller."""

    def __init__(self, arrays: np.ndarray, size: int = 3) -> None:
        self._arrays, self._size = arrays, size

    def __iter__(self) -> Iterator[list[Any]]:
        for start in range(0, len(self._arrays), self._size):
            batch = self._arrays[start : start + self._size]
            yield [Tensor(batch), Tensor(np.arange(start, start + len(batch)) % cli_files.CLASSES)]


def forms(pixels: np.ndarray, folder: Path) -> dict[str, Any]:
    paths = sorted((folder / "images").glob("*.png"))
    return {
        "stack": pixels,
        "list": list(pixels),
        "generator": (image for image in pixels),
        "pairs": [(image, i % 3) for i, image in enumerate(pixels)],
        "paths": [str(path) for path in paths],
        "pictures": [Image.fromarray(image) for image in pixels],
        "rows": [{"image": Image.fromarray(image), "label": i % 3} for i, image in enumerate(pixels)],
        "named rows": [{"x": image, "id": 7} for image in pixels],
        "batches of rows": [{"image": [Image.fromarray(image) for image in pixels], "label": np.arange(8) % 3}],
        "loader": Loader(pixels),
        "by input": {"x": pixels},
    }


@pytest.mark.parametrize("form", forms(np.zeros((1, 8, 8, 3), np.uint8), Path("nowhere")))
def test_data_of_every_form_gives_the_same_file(form: str, folder, pixels, wanted) -> None:
    converted = nmpconv.convert(folder / "model.onnx", forms(pixels, folder)[form], **LOOK)
    assert converted.data == wanted.data


def test_arrays_are_the_models_input(folder, pixels) -> None:
    floats = (pixels.transpose(0, 3, 1, 2).astype(np.float32) - 127.5) / 64
    stack = nmpconv.convert(folder / "model.onnx", floats)
    batches = nmpconv.convert(folder / "model.onnx", Loader(floats))
    ones = nmpconv.convert(folder / "model.onnx", (x[np.newaxis] for x in floats))
    assert stack.data == batches.data == ones.data
    assert not nmpconv.inspect(stack).model.inputs[0].pixels


def test_no_more_samples_are_taken_than_wanted(folder, pixels) -> None:
    taken = []

    def endless() -> Iterator[np.ndarray]:
        while True:
            taken.append(len(taken))
            yield pixels[len(taken) % len(pixels)]

    converted = nmpconv.convert(folder / "model.onnx", endless(), limit=7, **LOOK)
    assert '"images": 7' in nmpconv.inspect(converted).model.metadata["calibration"]
    assert len(taken) <= 8


@pytest.mark.parametrize("kind", ["bytes", "proto", "torch"])
def test_models_of_every_form(kind: str, folder, wanted, monkeypatch) -> None:
    path = folder / "model.onnx"
    if kind == "torch":
        monkeypatch.setitem(sys.modules, "torch", fake_torch(path.read_bytes()))
        model: Any = Module()
        options: dict[str, Any] = {"example_inputs": "an example"}
    else:
        model, options = (path.read_bytes() if kind == "bytes" else onnx.load(path)), {}
    found = nmpconv.convert(model, folder / "images", **LOOK, **options)
    net, other = found.load(), wanted.load()
    sample = np.zeros((1, 8, 8, 3), np.int8)
    np.testing.assert_array_equal(net.run(sample)[0], other.run(sample)[0])
    name = {"bytes": "model.onnx", "proto": "tiny.onnx", "torch": "Module.onnx"}[kind]
    assert nmpconv.inspect(found).model.metadata["source"] == name
    again = nmpconv.convert(model, folder / "images", **LOOK, **options)
    assert again.data == found.data


class Module:
    """As much of a torch module as the export looks at."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def __call__(self, x: Any) -> Any:
        return x


def fake_torch(model: bytes) -> Any:
    """torch whose export writes this file, once it was called as the real one is."""

    def export(module: Any, args: tuple[Any, ...], f: str, *, opset_version: int, dynamo: bool = True) -> None:
        assert (type(module).__name__, args, dynamo) == ("Module", ("an example",), False)
        Path(f).write_bytes(model)

    return types.SimpleNamespace(onnx=types.SimpleNamespace(export=export))


def test_a_module_without_examples_is_refused() -> None:
    with pytest.raises(UsageError, match="exported by calling it"):
        nmpconv.convert(Module(), [])
    with pytest.raises(UsageError, match="the model is a int") as error:
        nmpconv.convert(3)
    assert "onnx.ModelProto" in error.value.allowed


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "no samples"),
        ([np.zeros((5, 5), np.float32)], r"shape \[5, 5\]"),
        (["a.png", object()], "an array of numbers"),
        ([(np.zeros((1, 3, 8, 8)), 1, "a.png")], "a tuple; .* or a pair of a sample and its class number"),
        ([(np.zeros((1, 3, 8, 8)), (1, [2, 3]))], "second part is a tuple"),
        ([(np.zeros((1, 3, 8, 8)), 0.5)], "a class number is allowed"),
        ([(np.zeros((2, 3, 8, 8)), [1, 2, 3])], "for 2 sample"),
        ([(np.zeros((1, 3, 8, 8)), 1), np.zeros((1, 3, 8, 8))], "others have none"),
        ([{"left": 1, "right": 2}], "columns 'left', 'right'"),
    ],
)
def test_bad_data_is_named(data: Any, message: str, folder) -> None:
    with pytest.raises(InputError, match=message):
        nmpconv.convert(folder / "model.onnx", data)


def test_errors_say_node_found_allowed_and_hint(folder) -> None:
    with pytest.raises(UnsupportedModel) as unsupported:
        nmpconv.convert(cli_files.onnx_model(extra="RandomNormalLike"), dry_run=True)
    error = unsupported.value
    assert (error.node, error.rows[0].op, error.where) == ("odd_one", "RandomNormalLike", "tiny.onnx")
    assert "no such op" in error.found
    assert "--outputs logits" in error.hint
    with pytest.raises(UsageError) as usage:
        nmpconv.convert(folder / "model.onnx", bits="7")  # type: ignore[arg-type]
    assert (usage.value.where, usage.value.found) == ("bits", "'7'")
    assert "'a16w8'" in usage.value.allowed


def test_sizes_without_data(folder) -> None:
    sketch = nmpconv.convert(folder / "model.onnx", dry_run=True)
    assert sketch.sketch
    assert sketch.report.arena_bytes == nmpconv.inspect(sketch).model.arena_bytes


def test_notes_go_to_the_logger_and_nothing_to_the_streams(folder, caplog, capsys) -> None:
    stages: list[tuple[str, int, int]] = []
    with caplog.at_level(logging.INFO, "nmpconv"):
        nmpconv.convert(folder / "model.onnx", folder / "images", progress=lambda *stage: stages.append(stage), **LOOK)
    assert ("calibrate", 8, 8) in stages
    assert any("model.onnx:" in record.message and "rounding" in record.message for record in caplog.records)
    assert capsys.readouterr() == ("", "")


def test_what_can_be_done_with_a_result(wanted, folder, pixels, tmp_path) -> None:
    path = wanted.save(tmp_path / "m.nmp")
    assert path.read_bytes() == bytes(wanted)
    from_path = nmpconv.evaluate(path, folder / "images" / "labels.csv", reference=folder / "model.onnx")
    in_memory = nmpconv.evaluate(wanted.load(), Loader(pixels), reference=(folder / "model.onnx").read_bytes(), limit=8)
    assert from_path == in_memory
    assert from_path.n == 8
    assert from_path.top1 is not None
    assert nmpconv.evaluate(wanted, Loader(pixels), limit=3).n == 3
    found = nmpconv.inspect(path, target="cortex-m4")
    assert [need.target for need in found.ram] == ["cortex-m4"]
    assert found.memory is not None and len(found.memory.steps) == len(found.model.ops)
    timing = nmpconv.bench(wanted, runs=2, warmup=0)
    assert len(timing.latencies) == 2
    assert len(nmpconv.bench(wanted, runs=3, warmup=0, data=pixels).latencies) == 3
    files = nmpconv.bundle(path, output=tmp_path / "firmware")
    assert (tmp_path / "firmware" / "src" / "model_data.h").read_bytes() == files["src/model_data.h"]


@pytest.mark.parametrize("name", ["a\0b", "n" * 300, "gone/x", "."])
@pytest.mark.parametrize("keyword", ["report", "save_profile", "save_recipe", "journal"])
def test_outputs_that_cannot_be_written(folder: Path, keyword: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Are refused before the work."""
    monkeypatch.setattr("nmpconv.conversion.pipeline.convert", lambda *_: pytest.fail("it works first"))
    with pytest.raises(OutputError):
        nmpconv.convert(folder / "model.onnx", folder / "images", **{keyword: folder / name})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: nmpconv.load(3), "3 is not allowed; allowed: a path, the bytes"),  # type: ignore[arg-type]
        (lambda c: nmpconv.load(c, cpu=3), "'3' is not allowed; allowed: on this machine"),
        (lambda c: c.save(None), "None is not allowed; allowed: a path"),
        (lambda c: nmpconv.init(None), "None is not allowed; allowed: the path of an ONNX file"),  # type: ignore[arg-type]
        (lambda c: nmpconv.build({}), r"{} is not allowed; allowed: the path of a project file"),  # type: ignore[arg-type]
        (lambda c: nmpconv.bundle({1: c}), "1 is no name in C"),  # type: ignore[dict-item]
        (lambda c: nmpconv.evaluate(c, np.zeros((2, 8, 8, 3), np.uint8), reference=c), "return is integers already"),
        (lambda c: c.load().tensor(999), "999 is not allowed; allowed: 0 to"),
        (lambda c: c.load().tensor("y"), "'y' is not allowed; allowed: 0 to"),
        (lambda c: c.load().set_input(9, 0), "9 is not allowed; allowed: 0 to 0"),
        (lambda c: c.load().profile(0), "0 is not allowed; allowed: 1 and more"),
        (lambda c: c.load().run_ops(2, 1), "2 is not allowed; allowed: 0 to 1"),
        (lambda c: c.load()(np.zeros((8, 8, 3), np.uint8)).top("3"), "'3' is not allowed; allowed: 1 and more"),
    ],
)
def test_arguments_of_other_kinds(wanted: nmpconv.Converted, call: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call(wanted)


def test_a_net_and_a_result_are_files(wanted: nmpconv.Converted) -> None:
    net = nmpconv.load(wanted)
    assert net.data == nmpconv.load(bytearray(wanted.data)).data == bytes(net)
    assert nmpconv.inspect(net).ram == nmpconv.inspect(wanted).ram
    assert nmpconv.export(net) == nmpconv.export(wanted)


@pytest.mark.parametrize("labels", [list("abababab"), np.zeros(8), [0, 1, 2], np.eye(8, 3, dtype=int)])
def test_labels_that_are_no_class_numbers(wanted: nmpconv.Converted, pixels: np.ndarray, labels: Any) -> None:
    with pytest.raises(UsageError, match=r"labels of .* for 8 samples .*a class number each"):
        nmpconv.evaluate(wanted, (pixels, labels))


def test_a_column_of_class_numbers(wanted: nmpconv.Converted, pixels: np.ndarray) -> None:
    """As Keras's data sets have them."""
    labels = np.arange(8) % 3
    column, row = (nmpconv.evaluate(wanted, (pixels, of)) for of in (labels[:, None], labels))
    assert column.top1 == row.top1 is not None


@pytest.mark.parametrize(
    ("numbers", "turn"), [(np.zeros((5, 8, 8, 3)), "0, 3, 1, 2"), (np.zeros((8, 8, 3)), "2, 0, 1")]
)
def test_arrays_in_another_order(folder: Path, numbers: np.ndarray, turn: str) -> None:
    with pytest.raises(InputError, match=rf"x\.transpose\({turn}\) of an array x fits"):
        nmpconv.convert(folder / "model.onnx", numbers)


def test_pictures_without_preprocessing_are_asked_about(folder: Path, pixels: np.ndarray) -> None:
    with pytest.raises(InputError, match=r"x\.transpose\(2, 0, 1\) .* pictures\? then give mean and std"):
        nmpconv.convert(folder / "model.onnx", pixels)
    with pytest.raises(InputError, match=r"fits\)$"):
        nmpconv.convert(folder / "model.onnx", pixels.astype(np.float32))


def test_an_array_of_class_names(folder: Path, pixels: np.ndarray) -> None:
    labels = np.array(["a", "b", "c"])
    assert nmpconv.convert(folder / "model.onnx", pixels, labels=labels, fast=True, **LOOK).load().labels == (*"abc",)


def test_a_file_of_pictures_is_judged_on_the_models_numbers(wanted, folder: Path, pixels: np.ndarray) -> None:
    """As a DataLoader gives them: the same integers as those of the pictures."""
    numbers = ((pixels - np.float32(127.5)) / np.float32(64)).transpose(0, 3, 1, 2)
    by_pixels, by_numbers = (
        nmpconv.evaluate(wanted, data, reference=folder / "model.onnx") for data in (pixels, Loader(numbers))
    )
    assert by_numbers.sqnr == pytest.approx(by_pixels.sqnr)
    assert by_numbers.agreement == by_pixels.agreement
    with pytest.raises(InputError, match="most are no pixels"):
        nmpconv.evaluate(wanted, 255 * numbers)


def test_a_journal_needs_a_folder(folder: Path) -> None:
    with pytest.raises(OutputError):
        nmpconv.convert(folder / "model.onnx", dry_run=True, journal=folder / "none" / "journal.json")


def test_indices_beside_numbers(tmp_path: Path) -> None:
    """Indices are right or wrong, and the distance of what follows them is measured."""
    build("(float[1,4] x) => (i, y) { i = ArgMax<axis=1>(x) y = Tanh(x) }", 13, tmp_path / "m.onnx")
    x = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    found = nmpconv.evaluate(nmpconv.convert(tmp_path / "m.onnx", x), x, reference=tmp_path / "m.onnx")
    assert found.sqnr is not None and list(found.sqnr) == ["y"]
    assert 20 < found.sqnr["y"] < 100
