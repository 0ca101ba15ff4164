"""Samples are read and run on all cores, with the figures of one after the other."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Sequence
from pathlib import Path
from threading import Semaphore

import cli_files
import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_text import build

import nmpconv
from nmpconv.api.file_argument import sources
from nmpconv.base import thread_pool
from nmpconv.base.workers import Here
from nmpconv.data.samples import Samples, open_samples
from nmpconv.errors import InputError, UsageError
from nmpconv.evaluation import accuracy, float_reference
from nmpconv.runtime import costs, interpreter
from nmpconv.runtime.feed import Arrays
from nmpconv.runtime.interpreter import load

COUNT = 61
INPUT_BYTES = 4 * 3 * 8 * 8  # of a sample as float32


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes, Path]:
    """A float model, its file, and labelled images."""
    folder = tmp_path_factory.mktemp("side")
    images = cli_files.images(folder / "images", COUNT)
    onnx.save(cli_files.onnx_model(), folder / "m.onnx")
    file = nmpconv.convert(folder / "m.onnx", cli_files.images(folder / "calib"), mean=100, std=60).data
    return folder / "m.onnx", file, images


@pytest.fixture
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NMP_THREADS", raising=False)
    monkeypatch.setattr(thread_pool, "_idle", Semaphore(3))
    monkeypatch.setattr(interpreter, "cpu_count", lambda: 4)
    monkeypatch.setattr(accuracy, "PIECE", 3)


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Threads that have read a sample; four of them have to be there at once for the first one to go on."""
    found: set[int] = set()
    together, read = threading.Barrier(4), Samples.__getitem__

    def counted(samples: Samples, i: int) -> np.ndarray:
        if threading.get_ident() not in found and len(found) < 4:
            found.add(threading.get_ident())
            together.wait(20)
        return read(samples, i)

    monkeypatch.setattr(Samples, "__getitem__", counted)
    return found


@pytest.mark.usefixtures("four_cores")
def test_figures_of_images(model: tuple[Path, bytes, Path], readers: set[int]) -> None:
    reference, file, images = model
    seen: list[tuple[int, int]] = []
    found = nmpconv.evaluate(
        file, images, reference=reference, metric="psnr", progress=lambda stage, done, total: seen.append((done, total))
    )
    assert len(readers) == 4
    assert seen == sorted(set(seen)) and (seen[0], seen[-1]) == ((0, COUNT), (COUNT, COUNT))  # by pieces
    readers.update(range(4))
    one = nmpconv.evaluate(file, images, reference=reference, metric="psnr", threads=1)
    assert one.n == COUNT
    assert repr(found.quality) == repr(one.quality)
    assert (found.top1, found.reference_top1, found.agreement) == (one.top1, one.reference_top1, one.agreement)
    assert (found.sqnr, found.metrics) == (one.sqnr, one.metrics)


@pytest.mark.usefixtures("four_cores")
def test_figures_of_arrays() -> None:
    """Ranges of inputs are counted whoever reads them."""
    x = np.random.default_rng(2).normal(size=(COUNT, 3, 8, 8)).astype(np.float32)
    x[3], x[40, 1] = 90.0, -110.0
    made = nmpconv.convert(cli_files.onnx_model(), x[50:])
    found, one = (nmpconv.evaluate(made, x, threads=threads) for threads in (None, 1))
    assert found.inputs[0].samples == COUNT
    assert found.inputs[0].values == x.size
    assert found.inputs[0].beyond >= 64
    assert found.inputs == one.inputs


@pytest.mark.usefixtures("four_cores")
def test_arrays_are_read_by_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a float model arrays are checked, counted and ranked a piece at a time, not a sample at a time."""
    x = np.random.default_rng(2).normal(size=(COUNT, 3, 8, 8)).astype(np.float32)
    labels = np.arange(COUNT) % cli_files.CLASSES
    made = nmpconv.convert(cli_files.onnx_model(), x[:20])
    best = [int(np.argmax(nmpconv.load(made)(row)[0])) for row in x]
    monkeypatch.setattr(Samples, "__getitem__", None)
    found = nmpconv.evaluate(made, (x, labels))
    assert found.top1 == pytest.approx(100 * np.mean(best == labels))
    assert found.inputs[0].samples == COUNT
    assert found == nmpconv.evaluate(made, (x[:, np.newaxis], labels))
    assert nmpconv.evaluate(made, (x[:1], labels[:1])).n == 1
    monkeypatch.undo()
    x[40, 1, 2] = np.nan
    with pytest.raises(InputError, match=r"data\[40\]: .*NaN"):
        nmpconv.evaluate(made, (x, labels))


@pytest.mark.parametrize("shape", [(4,), (2, 3)])
def test_arrays_without_a_batch_by_pieces(shape: tuple[int, ...]) -> None:
    ports = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in "xy"]
    model = helper.make_model(
        helper.make_graph([helper.make_node("Tanh", ["x"], ["y"])], "g", ports[:1], ports[1:]),
        opset_imports=[helper.make_opsetid("", 14)],
        ir_version=8,
    )
    data = list(np.random.default_rng(4).normal(size=(20, *shape)).astype(np.float32))
    evaluation = nmpconv.evaluate(nmpconv.convert(model, data), data)
    assert (evaluation.n, evaluation.inputs[0].values) == (20, np.size(data))
    assert nmpconv.evaluate(nmpconv.convert(model, data), data[:1]).n == 1


def test_pieces_are_batches(model: tuple[Path, bytes, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A net runs all samples of a piece at once if only outputs are looked at; figures are those of one by one."""
    _, file, images = model
    sizes, run = [], interpreter.Net.run_float

    def counted(net: interpreter.Net, arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
        sizes.append(len(next(iter(arrays.values()))))
        return run(net, arrays)

    monkeypatch.setattr(interpreter.Net, "run_float", counted)
    labels = np.arange(COUNT) % 2
    files = sorted(images.glob("*.png"))
    data = list(zip(files, labels, strict=True))
    by_batch = nmpconv.evaluate(file, data, threads=1)
    assert sum(sizes) == COUNT
    assert max(sizes) == -(-COUNT // accuracy.PARTS)
    monkeypatch.setattr(accuracy, "CACHED_BYTES", 0)
    sizes.clear()
    assert by_batch == nmpconv.evaluate(file, data, threads=1)
    assert sizes == [1] * COUNT


class Two:
    """Two workers' pieces, one after the other."""

    count, map = 2, Here.map


@pytest.mark.usefixtures("four_cores")
@pytest.mark.parametrize(("has_reference", "by_thread", "by_worker"), [(False, 2, 7), (True, 1, 3)])
def test_pieces_of_large_inputs(
    model: tuple[Path, bytes, Path],
    monkeypatch: pytest.MonkeyPatch,
    has_reference: bool,
    by_thread: int,
    by_worker: int,
) -> None:
    """Bytes of inputs, and of the float model's, bound the samples that are read at the same time."""
    reference, file, images = model
    sizes, models = [], float_reference.Models
    run, run_batch = models.run, models.run_batch

    def counted(one: float_reference.Models, calls: Sequence[float_reference.Call]) -> list[float_reference.Ran]:
        sizes.append(len(calls))
        return run(one, calls)

    def counted_batch(one: float_reference.Models, arrays: Arrays, count: int) -> list[float_reference.Ran]:
        sizes.append(count)
        return run_batch(one, arrays, count)

    monkeypatch.setattr(models, "run", counted)
    monkeypatch.setattr(models, "run_batch", counted_batch)
    monkeypatch.setattr(accuracy, "PIECE", 16)
    monkeypatch.setattr(accuracy, "PIECE_BYTES", 4 * 2 * INPUT_BYTES)
    for workers, most in ((Here(), by_thread), (Two(), by_worker)):
        sizes.clear()
        options = {"reference": reference if has_reference else None, "workers": workers}
        evaluation = accuracy.evaluate(load(file), sources(str(images)), **options)
        assert evaluation.n == sum(sizes) == COUNT
        assert max(sizes) == most


@pytest.mark.parametrize("shape", [(), (4,), (2, 3)])
def test_inputs_without_a_batch(shape: tuple[int, ...]) -> None:
    """Pieces of samples, each an array of the shape that the model has, of any rank."""
    ports = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in "xy"]
    model = helper.make_model(
        helper.make_graph([helper.make_node("Tanh", ["x"], ["y"])], "g", ports[:1], ports[1:]),
        opset_imports=[helper.make_opsetid("", 14)],
        ir_version=8,
    )
    rng = np.random.default_rng(4)
    data = [np.asarray(rng.normal(size=shape), np.float32) for _ in range(20)]
    evaluation = nmpconv.evaluate(nmpconv.convert(model, data), data, reference=model)
    assert evaluation.n == 20
    assert evaluation.sqnr["y"] > 30


@pytest.mark.usefixtures("four_cores")
def test_the_first_sample_that_cannot_be_read(model: tuple[Path, bytes, Path], tmp_path: Path) -> None:
    _, file, _ = model
    images = cli_files.images(tmp_path / "images", 20)
    for i in (7, 12):
        (images / f"{i:02}.png").write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"07\.png"):
        nmpconv.evaluate(file, images)


def test_outputs_that_are_no_scores_are_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """64 of them waited to be ranked: gigabytes of masks."""
    monkeypatch.setattr(accuracy, "top_k_rows", lambda *_: pytest.fail("ranked"))
    build("(float[1,3,8,8] x) => (float[1,4,8,8] y) <float[4,3,1,1] w> { y = Conv(x, w) }", 17, tmp_path / "m.onnx")
    x = np.random.default_rng(0).normal(size=(12, 3, 8, 8)).astype(np.float32)
    result = nmpconv.evaluate(nmpconv.convert(tmp_path / "m.onnx", x, fast=True), x, reference=tmp_path / "m.onnx")
    assert result.agreement is None and result.mean_sqnr_db > 20


def test_a_file_is_read_once(model: tuple[Path, bytes, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The net that is there runs the samples, and what is known of its file is not read again."""
    _, file, images = model
    net = load(file)
    for module, name in ((float_reference, "load"), (costs, "read")):
        monkeypatch.setattr(module, name, lambda *_, **__: pytest.fail("read again"))
    evaluation = nmpconv.evaluate(net, images)
    assert evaluation.n == COUNT
    assert evaluation.footprint.flash == len(file)


def test_a_net_alone_starts_no_threads(model: tuple[Path, bytes, Path]) -> None:
    net = load(model[1], threads=3)
    alone = net.copy(threads=1)
    assert (alone.threads, alone.batch_threads, alone.copy().batch_threads) == (1, 1, 1)
    assert (net.copy().threads, net.copy(threads=8).threads) == (3, 3)
    assert pickle.loads(pickle.dumps(alone)).threads == 1
    with pytest.raises(UsageError, match=r"0 \(one per core\) to"):
        net.copy(threads=5000)
    x = np.random.default_rng(1).integers(0, 256, (40, 8, 8, 3), np.uint8)
    assert np.array_equal(alone(x)[0], net(x)[0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_samples_of_one_array_are_not_copied(dtype: type[np.floating]) -> None:
    """Pages of new memory cost more than small nets do. Samples that do not lie side by side are gathered."""
    x = np.random.default_rng(3).normal(size=(COUNT, 3, 8, 8)).astype(dtype)
    samples = open_samples([(x, np.arange(COUNT))], (1, 3, 8, 8), None)
    piece = samples.stack(range(5, 9))
    assert np.shares_memory(piece, x) == (dtype == np.float32)
    assert np.array_equal(piece, x[5:9, np.newaxis].astype(np.float32))
    assert np.array_equal(samples.subset([9, 2, 4]).stack([0, 2]), x[[9, 4], np.newaxis].astype(np.float32))
    assert samples.paths[7] == "data[7]" and samples.labels[7] == 7
    assert len(open_samples([(x, np.arange(COUNT))], (1, 3, 8, 8), None, limit=4)) == 4
