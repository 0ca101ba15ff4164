"""Data as a notebook has them: (x, y), dicts of arrays with labels; and torch modules whose shape the data tell."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cli_files
import numpy as np
import pytest

import nmpconv
from nmpconv.api.file_argument import sources
from nmpconv.api.models import names_in
from nmpconv.errors import InputError, UsageError

RNG = np.random.default_rng(6)
FLOATS = RNG.normal(size=(9, 3, 8, 8)).astype(np.float32)
PIXELS = RNG.integers(0, 256, (9, 8, 8, 3)).astype(np.uint8)
LABELS = np.arange(9) % cli_files.CLASSES


class Tensor:
    """As much of torch's as data needs."""

    def __init__(self, array: np.ndarray) -> None:
        self._array, self.shape = array, array.shape

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self) -> Iterator[Tensor]:
        return (Tensor(row) for row in self._array)

    def detach(self) -> Tensor:
        return self

    def cpu(self) -> Tensor:
        return self

    def numpy(self) -> np.ndarray:
        return self._array

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("it requires grad")


class Loader:
    """As torch's DataLoader: batches, with labels or without."""

    def __init__(self, labelled: bool) -> None:
        self._labelled = labelled

    def __iter__(self) -> Iterator[list[Any]]:
        for i in range(0, 9, 4):
            labels = [Tensor(LABELS[i : i + 4])] if self._labelled else []
            yield [Tensor(FLOATS[i : i + 4]), *labels]


@pytest.fixture(scope="module")
def converted() -> nmpconv.Converted:
    return nmpconv.convert(cli_files.onnx_model(), FLOATS)


@pytest.mark.parametrize(
    "data",
    [
        (FLOATS, LABELS),
        (FLOATS, LABELS.tolist()),
        (Tensor(FLOATS), Tensor(LABELS)),
        {"x": FLOATS, "label": LABELS},
        {"image": FLOATS, "labels": list(LABELS)},
        {"x": FLOATS, "y": LABELS},
        {"x": list(zip(FLOATS, LABELS, strict=True))},
        Loader(labelled=True),
    ],
)
def test_labelled_data_of_every_form(data: Any, converted) -> None:
    wanted = nmpconv.evaluate(converted, list(zip(FLOATS, LABELS, strict=True)))
    assert wanted.top1 is not None
    assert nmpconv.evaluate(converted, data) == wanted
    assert nmpconv.convert(cli_files.onnx_model(), data).data == converted.data


def test_labels_of_several_inputs() -> None:
    z = RNG.normal(size=(9, 3)).astype(np.float32)
    converted = nmpconv.convert(cli_files.two_inputs(), {"x": FLOATS, "z": z})
    wanted = nmpconv.evaluate(converted, {"x": list(zip(FLOATS, LABELS, strict=True)), "z": z})
    assert wanted.top1 is not None
    assert nmpconv.evaluate(converted, {"x": FLOATS, "z": z, "target": LABELS}) == wanted
    assert nmpconv.evaluate(converted, ({"x": FLOATS, "z": z}, LABELS)) == wanted


def test_two_samples_are_no_labels(converted) -> None:
    found = nmpconv.evaluate(converted, (FLOATS[0], FLOATS[1]))
    assert (found.n, found.top1) == (2, None)
    with pytest.raises(UsageError, match="a class number each"):
        nmpconv.evaluate(converted, (FLOATS, LABELS[:5]))


@pytest.mark.parametrize("second", [RNG.normal(size=(9, 8)), RNG.normal(size=(9, 3)), RNG.normal(size=9)])
def test_an_input_called_y_is_no_labels(second: Any) -> None:
    data = {"x": RNG.normal(size=(9, 8)), "y": second}
    assert sources(data) is data


def test_recordings_of_two_lengths_are_no_labels() -> None:
    pair = (RNG.normal(size=(40, 100)), RNG.normal(size=(40, 120)))
    assert sources(pair) == {"": pair}
    with pytest.raises(UsageError, match="a class number each"):
        sources((pair[0], np.eye(10)[np.arange(40) % 10]))
    with pytest.raises(UsageError, match="a class number each"):
        sources({"x": pair[0], "label": ["cat"] * 40})


class Module:
    """As much of a torch module as the export looks at."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def __call__(self, x: Any) -> Any:
        return x


@pytest.fixture
def examples(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Arguments of a call of torch's export, which writes the small model."""
    found: list[Any] = []

    def export(module: Any, args: tuple[Any, ...], f: str, **_: Any) -> None:
        found.extend(args)
        Path(f).write_bytes(cli_files.onnx_model().SerializeToString())

    torch = types.SimpleNamespace(onnx=types.SimpleNamespace(export=export), from_numpy=lambda array: array)
    monkeypatch.setitem(sys.modules, "torch", torch)
    return found


@pytest.mark.parametrize(
    "data",
    [
        FLOATS,
        FLOATS.astype(np.float64),
        Tensor(FLOATS),
        (FLOATS, LABELS),
        {"x": FLOATS},
        list(zip(FLOATS, LABELS, strict=True)),
        Loader(labelled=True),
        Loader(labelled=False),
        [{"x": FLOATS[:4], "label": LABELS[:4]}, {"x": FLOATS[4:], "label": LABELS[4:]}],
    ],
)
def test_a_modules_shape_is_that_of_the_data(data: Any, examples: list[Any], converted) -> None:
    found = nmpconv.convert(Module(), data)
    [example] = examples
    assert example.dtype == np.float32
    np.testing.assert_array_equal(example, FLOATS[:1])
    assert nmpconv.inspect(found).model.ops == nmpconv.inspect(converted).model.ops


@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
def test_a_modules_shape_is_that_of_a_file(name: str, examples: list[Any], converted, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", FLOATS)
    np.savez(tmp_path / "x.npz", x=FLOATS, y=LABELS)
    assert nmpconv.convert(Module(), tmp_path / name).data[:4] == converted.data[:4]
    np.testing.assert_array_equal(examples[0], FLOATS[:1])


def test_pictures_are_turned_for_a_module(examples: list[Any]) -> None:
    nmpconv.convert(Module(), PIXELS, mean=127.5, std=64)
    assert (examples[0].shape, examples[0].dtype) == ((1, 3, 8, 8), np.float32)


def test_a_module_is_a_reference(examples: list[Any], converted, tmp_path: Path) -> None:
    wanted = nmpconv.evaluate(converted, FLOATS, reference=cli_files.onnx_model())
    assert nmpconv.evaluate(converted, FLOATS, reference=Module()) == wanted
    assert nmpconv.evaluate(converted, iter(FLOATS), reference=Module(), example_inputs="one") == wanted
    assert "</html>" in nmpconv.html_report(converted, data=FLOATS, reference=Module())
    assert examples[1] == "one"
    np.testing.assert_array_equal(examples[2], FLOATS[:1])


def test_a_file_of_pictures_has_the_shape_of_its_module(examples: list[Any]) -> None:
    file = nmpconv.convert(cli_files.onnx_model(), PIXELS, mean=127.5, std=64, fast=True)
    assert nmpconv.evaluate(file, iter(PIXELS), reference=Module()).agreement is not None
    assert "</html>" in nmpconv.html_report(file, data=list(PIXELS), reference=Module())
    assert [(x.shape, x.dtype) for x in examples] == [((1, 3, 8, 8), np.float32)] * 2


def test_what_is_no_batch_is_told_what_to_do(converted) -> None:
    net = converted.load()
    with pytest.raises(InputError, match="for x, y in loader: net"):
        net(Loader(labelled=True))
    with pytest.raises(InputError, match="of a pair of samples and labels, give the samples alone"):
        net((FLOATS, LABELS))
    keras = type("Sequential", (), {"__module__": "keras.src.models.sequential"})()
    with pytest.raises(UsageError, match=r"give the bytes that tf\.lite\.TFLiteConverter"):
        nmpconv.convert(keras, FLOATS)
    with pytest.raises(UsageError, match="call the function"):
        nmpconv.evaluate(converted, lambda: iter(FLOATS))


@pytest.mark.parametrize("data", [iter(FLOATS), "images", list(FLOATS), {"a": FLOATS, "b": FLOATS}, []])
def test_data_that_tell_no_shape(data: Any, examples: list[Any], tmp_path: Path) -> None:
    """Iterators, which begin only once; paths; items that may be a sample or a batch; several inputs."""
    with pytest.raises(UsageError, match=r"example_inputs: .* do not tell an input's shape \(give a tensor"):
        nmpconv.convert(Module(), data)
    assert examples == []


def test_names_of_a_file_that_was_cut_are_not_those_of_a_module() -> None:
    """Its ports are other ones than the module's, or in another order."""
    whole = cli_files.onnx_model()
    assert names_in(nmpconv.convert(whole, FLOATS).load().model, Module()) == (["x"], ["y"])
    cut = nmpconv.convert(whole, FLOATS, outputs=[whole.graph.node[0].output[0]]).load().model
    assert names_in(cut, Module()) == (None, None)


def test_places_from_the_end(converted) -> None:
    net = converted.load()
    outputs = net.run(FLOATS[0])
    assert outputs.top(1, output=-1) == outputs.top(1, output=0)
    np.testing.assert_array_equal(net.tensor(-1), net.tensor(len(net.model.tensors) - 1))
    net.set_input(-1, FLOATS[0])
    for wrong in (-2, np.array(0.5), 0.5):
        with pytest.raises(UsageError, match="allowed: 0 to 0"):
            outputs.top(1, output=wrong)


def test_a_report_reads_a_file_once(converted) -> None:
    class File:
        reads = 0

        def __bytes__(self) -> bytes:
            self.reads += 1
            return converted.data

    file = File()
    nmpconv.html_report(file)
    assert file.reads == 1


def test_images_are_refused_where_the_file_knows_no_preprocessing(converted: nmpconv.Converted, tmp_path: Path) -> None:
    data = cli_files.images(tmp_path / "images")
    with pytest.raises(InputError, match="was converted from arrays: the file holds no preprocessing"):
        nmpconv.evaluate(converted, data)
    nmpconv.evaluate(nmpconv.convert(cli_files.onnx_model(), data), data)
