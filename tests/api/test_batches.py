"""A batch is computed on all cores, with the results of its samples one by one."""

from __future__ import annotations

import itertools
import pickle
import struct
from collections.abc import Callable
from fractions import Fraction
from math import floor
from threading import Semaphore, active_count

import cli_files
import nets
import numpy as np
import pytest
from op_cases import CASES, grouped

import nmpconv
from nmpconv import _nmp
from nmpconv.base import thread_pool
from nmpconv.errors import InputError
from nmpconv.file import flatbuffer, writer
from nmpconv.passes.memory import plan_memory
from nmpconv.runtime import batches, interpreter
from nmpconv.runtime.interpreter import Net
from nmpconv.runtime.ports import Port, on_grid

COUNT = 203  # a number that no number of threads divides


@pytest.fixture(scope="module")
def floats() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(COUNT, 3, 8, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def file(floats: np.ndarray) -> bytes:
    return nmpconv.convert(cli_files.onnx_model(), floats[:8]).data


@pytest.fixture
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose threads are always worth their start; three samples become integers at a time."""
    monkeypatch.delenv("NMP_THREADS", raising=False)
    monkeypatch.setattr(thread_pool, "_idle", Semaphore(3))
    monkeypatch.setattr(interpreter, "cpu_count", lambda: 4)
    monkeypatch.setattr(batches, "WORTH", 0.0)
    monkeypatch.setattr(batches, "LONG", 0.0)
    monkeypatch.setattr(batches, "AT_ONCE", 3 * 3 * 8 * 8)


@pytest.mark.usefixtures("four_cores")
@pytest.mark.parametrize("threads", [None, 1, 3])
def test_batches_in_threads(file: bytes, floats: np.ndarray, threads: int | None) -> None:
    net = nmpconv.load(file, threads=threads)
    alone = nmpconv.load(file, threads=1)
    wanted = np.concatenate([alone.run(x)[0] for x in floats])
    before = active_count()
    for batch in (floats, floats.transpose(0, 2, 3, 1), floats.astype(np.float64), floats[:, np.newaxis]):
        np.testing.assert_array_equal(net.run(batch)[0], wanted)
        np.testing.assert_array_equal(net.run(batch[: COUNT // 2])[0], wanted[: COUNT // 2])
    assert active_count() == before
    assert bool(net._batches._spares) is (threads != 1)
    assert len(net._batches._spares) <= (threads or 4)
    for other in (net.copy(), pickle.loads(pickle.dumps(net))):
        np.testing.assert_array_equal(other.run(floats)[0], wanted)


def test_only_the_first_batch_is_measured(file: bytes, floats: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first rows alone; later batches that are not worth threads are one part."""
    monkeypatch.setattr(batches, "WORTH", np.inf)
    parts: list[int] = []
    monkeypatch.setattr(batches.Lane, "run", lambda *arguments: parts.append(arguments[-1]) or True)
    net = nmpconv.load(file)
    net.run(floats[:0])
    parts.clear()
    net.run(floats)
    assert parts == [-(-COUNT // batches.PROBE), COUNT - -(-COUNT // batches.PROBE)]
    net.run(floats)
    assert parts[2:] == [COUNT]


@pytest.mark.parametrize("start", [0.0, 1.0])
def test_batches_go_the_way_that_is_sooner_done(
    file: bytes, floats: np.ndarray, monkeypatch: pytest.MonkeyPatch, start: float
) -> None:
    """start: seconds that threads take to start. A batch takes 0.5 s on one thread, half of it on two."""
    monkeypatch.delenv("NMP_THREADS", raising=False)
    monkeypatch.setattr(interpreter, "cpu_count", lambda: 2)
    monkeypatch.setattr(batches, "WORTH", 0.0)
    monkeypatch.setattr(batches, "LONG", np.inf)
    ways: list[bool] = []

    def timed(work: Callable[..., object], *arguments: object) -> float:
        ways.append(work is thread_pool.each)
        work(*arguments)
        return 0.25 + start if ways[-1] else 0.5

    monkeypatch.setattr(batches, "timed", timed)
    net = nmpconv.load(file)
    for _ in range(2 + 9):
        net.run(floats)
    better, other = start == 0.0, start != 0.0
    assert ways[-9:] == [better, other, better, better, better, other, better, better, better]


@pytest.mark.usefixtures("four_cores")
def test_calls_of_a_slow_net_keep_their_states() -> None:
    net = nmpconv.load(nets.running_sum(1))
    assert [net.run(np.ones((1, 1), np.int8))[0].item() for _ in range(4)] == [4, 5, 6, 7]


@pytest.mark.usefixtures("four_cores")
def test_a_sample_that_is_refused(file: bytes, floats: np.ndarray) -> None:
    """Wherever it stands; the net goes on."""
    net = nmpconv.load(file)
    for i in (0, 4, COUNT - 1):
        wrong = floats.copy()
        wrong[i, 1, 2, 3] = np.nan
        with pytest.raises(InputError, match="not finite"):
            net.run(wrong)
    assert net.run(floats)[0].shape == (COUNT, 3)


@pytest.mark.parametrize("bits", [8, 16])
def test_real_numbers_are_rounded_by_the_interpreter(
    floats: np.ndarray, monkeypatch: pytest.MonkeyPatch, bits: int
) -> None:
    """float32 in, and the reals of outputs: what Python makes of float64 and of integers."""
    net = nmpconv.convert(cli_files.onnx_model(), floats[:8], bits=str(bits)).load()
    assert net.inputs[0].dtype == net.outputs[0].dtype == f"int{bits}"
    wanted, integers = net(floats.astype(np.float64))[0], net.run(floats.astype(np.float64))[0]
    np.testing.assert_array_equal(wanted, integers * 2.0 ** net.outputs[0].exponent)
    monkeypatch.setattr(Port, "values", lambda *_: pytest.fail("in Python"))
    for batch in (floats, floats.transpose(0, 2, 3, 1), np.asfortranarray(floats)):
        np.testing.assert_array_equal(net(batch)[0], wanted)
        np.testing.assert_array_equal(net.run(batch)[0], integers)
    outputs = np.empty((1, 3), np.uint8)
    for count in (0, 191, 193):
        with pytest.raises(_nmp.Fault):
            net._net.run_each([np.zeros((1, count), np.float32)], [outputs], 0, 1)
    row = np.zeros((1, 192), np.float32)
    for arrays, last in (([row], 2), ([], 1), ([row, row], 1)):  # rows and ports that are not there
        with pytest.raises(_nmp.Fault):
            net._net.run_each(arrays, [np.empty((2, 3))], 0, last)
    with pytest.raises(TypeError):  # not converted into a copy
        net._net.run_each([row.astype(np.int64)], [np.empty((1, 3))], 0, 1)


def test_a_call_that_is_refused_changes_no_state() -> None:
    net = nmpconv.load(nets.running_sum(1))
    one = np.full((1, 1), 2.0 ** net.inputs[0].exponent, np.float32)
    first = net.run(one)[0].item()
    with pytest.raises(InputError, match="not finite"):
        net.run(one * np.nan)
    assert net.run(one)[0].item() == first + 1


@pytest.mark.usefixtures("four_cores")
def test_threads_that_share_a_net(file: bytes, floats: np.ndarray) -> None:
    net = nmpconv.load(file)
    wanted = net.run(floats)[0]
    thread_pool._idle = Semaphore(6)
    found = thread_pool.each(lambda i: net.run(floats[i:])[0], range(8))
    for i, one in enumerate(found):
        np.testing.assert_array_equal(one, wanted[i:])


def test_few_samples_are_not_worth_threads(file: bytes, floats: np.ndarray) -> None:
    net = Net(file)
    net.run(floats[:2])
    assert net._batches._spares == []


@pytest.mark.parametrize("exponent", [-127, -126, -31, -5, 0, 3, 126, 127])
@pytest.mark.parametrize(("dtype", "lo", "hi"), [("int8", -128, 127), ("int8", -3, 90), ("int16", -32768, 32767)])
def test_numbers_on_a_grid(exponent: int, dtype: str, lo: int, hi: int) -> None:
    """In C they are the exact ones: at halves and beside them, at zero and at the ends of float32."""
    halves = np.concatenate([np.arange(-400, 400) / 2, [-32768.5, -32767.5, 32766.5, 32767.5, 1e9, -1e9]])
    with np.errstate(over="ignore"):
        at = (halves * 2.0**exponent).astype(np.float32)
    ends = np.array([0, -0.0, 1e-45, -1e-45, 1.2e-38, -1.2e-38, 3e38, -3e38], np.float32)
    x = np.concatenate([at, np.nextafter(at, np.float32(np.inf)), np.nextafter(at, np.float32(-np.inf)), ends])
    x = x[np.isfinite(x)]
    wanted = [min(max(floor(Fraction(float(one)) / Fraction(2) ** exponent + Fraction(1, 2)), lo), hi) for one in x]
    for given in (x, x.astype(np.float64)):
        found, finite = on_grid(given, exponent, lo, hi, dtype)
        assert finite
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("exponent", [-5, 127])
def test_numbers_that_are_not_finite(dtype: str, exponent: int) -> None:
    """Each of them is seen wherever it stands; what is finite is not taken for it."""
    x = np.linspace(-1e30, 1e30, 37).astype(dtype)
    assert on_grid(x, exponent, -128, 127, "int8")[1]
    for i, wrong in itertools.product(range(len(x)), (np.nan, np.inf, -np.inf)):
        other = x.copy()
        other[i] = wrong
        assert not on_grid(other, exponent, -128, 127, "int8")[1]


BY_ROW = [c for c in CASES if c.id.split("/")[0] in batches.BY_ROW | batches.OPERANDS_BY_ROW]


@pytest.mark.parametrize("group", grouped(BY_ROW))
def test_blocks_of_an_op(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples that an op computes side by side have the bytes of a run each, at every level."""
    monkeypatch.setattr(batches, "_is_connected", lambda model: True)
    rng = np.random.default_rng(len(group))
    for case in grouped(BY_ROW)[group][::5]:
        data = writer.to_bytes(plan_memory.run(case.graph), {})
        values = [case.graph[name] for name in case.graph.inputs]
        fits = all(len(v.shape) > 1 and v.shape[0] == 1 for v in case.graph.activations())
        for level in interpreter.cpus():
            net = interpreter.load(data, cpu=level)
            assert (net._batches._lane.block is None) >= (not fits), case.id
            many = [rng.integers(v.quant.lo, v.quant.hi + 1, (21, *v.shape)).astype(v.dtype) for v in values]
            wanted = [net.run(*one)[0] for one in zip(*many, strict=True)]
            found = net.run(*many)[0].reshape(21, *wanted[0].shape)
            np.testing.assert_array_equal(found, wanted, err_msg=f"{case.id}, {level}")


def perceptron() -> nets.Net:
    """Layers that are connected in two branches, with ops of every kind that keeps rows between them."""
    net = nets.Net(3, nets.grid(8, -6))
    net.input("image", 1, 2, 3, 4)
    net.op("reshape", "image", "x", shape=(1, 24))
    for name, outs, k in (("h", 40, 24), ("g", 40, 24), ("y", 9, 40)):
        net.integers(f"{name}.w", outs, k, most=127, quant=nets.grid(8, -9))
        net.integers(f"{name}.b", outs, most=99, quant=nets.grid(8, -9 if name == "y" else -6))
    net.op("fully_connected", "x h.w h.b", "h")
    net.op("fully_connected", "x g.w g.b", "g")
    net.integers("k", 1, 40, most=99)
    net.integers("l", 40, most=99)
    for kind, names, out in (
        ("add", "h g", "a"),
        ("mul", "a k", "b"),
        ("sub", "b h", "c"),
        ("minimum", "c k", "d"),
        ("maximum", "d l", "e"),
    ):
        net.op(kind, names, out)
    net.op("requantize", "e", "f", quant=nets.grid(8, -5))
    net.op("fully_connected", "f y.w y.b", "y", quant=nets.grid(16, -9))
    return net


@pytest.mark.parametrize("level", interpreter.cpus())
def test_connected_layers_take_samples_side_by_side(level: str) -> None:
    """Integers, reals and copies of a net: the results of samples one by one, whatever the batch."""
    data = writer.to_bytes(plan_memory.run(perceptron().graph("y")), {})
    net = interpreter.load(data, cpu=level)
    x = np.random.default_rng(5).integers(-128, 128, (100, 1, 2, 3, 4)).astype(np.int8)
    wanted = np.stack([net.run(one)[0] for one in x])
    for other in (net, net.copy(), pickle.loads(pickle.dumps(net))):
        assert other._batches._lane.block is not None
        for count in (1, 2, 15, 16, 17, 31, 32, 47, 100):
            np.testing.assert_array_equal(np.atleast_2d(other.run(x[:count])[0].squeeze()), wanted[:count, 0])
        reals = other(x)[0]
        assert reals.dtype == np.float64
        np.testing.assert_array_equal(reals, wanted[:, 0] * 2.0**-9)


@pytest.mark.usefixtures("four_cores")
def test_blocks_in_threads() -> None:
    data = writer.to_bytes(plan_memory.run(perceptron().graph("y")), {})
    net, alone = nmpconv.load(data), nmpconv.load(data, threads=1)
    x = np.random.default_rng(5).integers(-128, 128, (COUNT * 3, 1, 2, 3, 4)).astype(np.int8)
    np.testing.assert_array_equal(net.run(x)[0], np.concatenate([alone.run(one)[0] for one in x]))
    assert all(lane.block is not None for lane in net._batches._spares)
    assert net._batches._spares


def test_nets_that_are_run_one_by_one(file: bytes) -> None:
    """Convolutions, states, rows of a first dimension that a net has itself, and files that blocks do not fit."""
    assert nmpconv.load(file)._batches._lane.block is None
    assert nmpconv.load(nets.running_sum())._batches._lane.block is None
    for rows in (1, 2):
        net = nets.Net(3, nets.grid(8, -6))
        net.input("x", rows, 8)
        net.integers("w", 1, 8, most=127, quant=nets.grid(8, -9))
        net.integers("b", 1, most=9)
        net.op("fully_connected", "x w b", "y")
        data = writer.to_bytes(plan_memory.run(net.graph("y")), {})
        assert (nmpconv.load(data)._batches._lane.block is None) is (rows == 2)
        shared = one_shape_for_two(data, "x", "w") if rows == 1 else data
        other = nmpconv.load(shared)
        assert other._batches._lane.block is None
        x = np.random.default_rng(5).integers(-128, 128, (40, rows, 8)).astype(np.int8)
        np.testing.assert_array_equal(other.run(x)[0], nmpconv.load(data).run(x)[0])


def one_shape_for_two(data: bytes, first: str, second: str) -> bytes:
    """The file with one vector for the shapes of two tensors, as other writers may have it."""
    walk, file, places = flatbuffer._Walk(memoryview(data)), bytearray(data), {}
    root = walk.frame("Model", walk.follow(0))
    slots = {f.name: f.slot for f in flatbuffer.TABLES["Model"]}
    tensors = walk.follow(root[slots["tensors"]])
    at = {f.name: f.slot for f in flatbuffer.TABLES["Tensor"]}
    for i in range(walk.u32(tensors)):
        tensor = walk.frame("Tensor", walk.follow(tensors + 4 + 4 * i))
        places[walk.string(walk.follow(tensor[at["name"]]))] = tensor[at["shape"]]
    target = max(walk.follow(places[name]) for name in (first, second))
    for name in (first, second):
        struct.pack_into("<I", file, places[name], target - places[name])
    return flatbuffer.seal(bytes(file))


def test_a_refused_batch_is_an_error_whatever_it_holds(file: bytes, floats: np.ndarray, monkeypatch) -> None:
    """Else rows that nobody wrote would be returned."""
    monkeypatch.setattr(batches.Lane, "run", lambda *_: False)
    with pytest.raises(InputError, match="not finite"):
        nmpconv.load(file)(floats)


def test_an_error_leaves_the_nets_of_threads(file: bytes, floats: np.ndarray, four_cores: None) -> None:
    net = nmpconv.load(file)
    net(floats)
    spares = len(net._batches._spares)
    with pytest.raises(InputError, match="not finite"):
        net(np.full_like(floats, np.nan))
    assert len(net._batches._spares) >= spares > 0
