"""Several threads: the same bytes, several nets side by side, and processes that fork."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import nets
import numpy as np
import pytest
from op_cases import CASES

from nmpconv import _nmp
from nmpconv.errors import UsageError
from nmpconv.file.writer import to_bytes
from nmpconv.graph.reference import run as run_reference
from nmpconv.ir import Graph
from nmpconv.runtime import interpreter

SIDE, CHANNELS = 40, 48
AROUND = dict.fromkeys(("pad_top", "pad_left", "pad_bottom", "pad_right"), 1)


def wide_net(bits: int) -> Graph:
    """A depthwise and a pointwise convolution with work for several threads."""
    net = nets.Net(2, nets.grid(bits, -4))
    x = net.input("x", 1, SIDE, SIDE, CHANNELS)
    by_channel = nets.grid(bits, *[-bits] * CHANNELS, axis=0)
    for out, kernel, groups in (("d", 3, CHANNELS), ("y", 1, 1)):
        shape = (CHANNELS, kernel, kernel, CHANNELS // groups)
        w = net.integers(f"{out}.w", *shape, most=2 ** (bits - 1), quant=by_channel)
        b = net.integers(f"{out}.b", CHANNELS, most=60, quant=nets.grid(8, -4))
        x = net.conv(x, out, CHANNELS, kernel, groups=groups, w=w, b=b)
    return nets.placed(net.graph("y", sources=True))


def plain_net(bits: int) -> Graph:
    """Ops without sums of products, large enough for several threads."""
    net, large = nets.Net(3, nets.grid(bits, -4)), nets.grid(bits, bits - 8)
    net.input("x", 1, SIDE, SIDE, 4 * CHANNELS)
    net.op("max_pool", "x", "m", kernel_h=3, kernel_w=3, **AROUND)
    net.op("add", "m x", "s")
    net.integers("k", SIDE, 1, 4 * CHANNELS, most=2 ** (bits - 1))
    net.op("mul", "s k", "p", quant=large)
    net.op("transpose", "p", "t", perm=(0, 1, 3, 2), quant=large)
    net.op("requantize", "t", "r")
    if bits == 8:
        net.integers("f", 256, most=100)
    else:
        net.integers("f", 513, most=2**22, quant=nets.grid(32, -12))
    net.op("lookup", "r f", "y")
    return nets.placed(net.graph("y", sources=True))


def mixed_net(bits: int) -> Graph:
    """Means, differences, products with a number per channel, normalization, a resize, softmax, and copies of rows."""
    channels, tall, wide = 4 * CHANNELS, SIDE + 24, SIDE + 8
    net, most = nets.Net(4, nets.grid(bits, -4)), 2 ** (bits - 1)
    scores, share = nets.grid(bits, 4 - bits), nets.grid(bits, 1 - bits)
    d = np.arange(256) if bits == 8 else np.concatenate([np.arange(256), 256 * np.arange(256)])
    bilinear = {
        "taps_h": 2,
        "taps_w": 2,
        "rows": tuple(i * (SIDE - 1) // tall for i in range(tall)),
        "row_weights": tuple(net.rng.integers(-(2**13), 2**15, 2 * tall).tolist()),
        "columns": tuple(i * (SIDE - 1) // wide for i in range(wide)),
        "column_weights": tuple(net.rng.integers(-(2**13), 2**15, 2 * wide).tolist()),
    }
    net.input("x", 1, SIDE, SIDE, channels)
    net.op("average_pool", "x", "a", kernel_h=3, kernel_w=3, **AROUND)
    net.op("sub", "a x", "d")
    net.integers("k", 1, 1, 1, channels, most=most)
    net.op("mul", "d k", "m", quant=nets.grid(bits, bits - 8))
    net.integers("w", 1, 1, 1, channels, most=2**17, quant=nets.grid(32, -16))
    net.integers("b", 1, 1, 1, channels, most=2**10, quant=nets.grid(32, -4 - bits))
    net.op("normalize", "m w b", "n", axes=(3,), epsilon=2**20, quant=scores)
    net.op("resize", "n", "r", quant=scores, **bilinear)
    net.const("t", np.round(np.exp(-d / 64.0) * 2.0**30), nets.grid(32, -30))
    net.op("softmax", "r t", "s", axis=3, quant=share)
    net.op("slice", "s", "p", starts=(0, 0, 0, 5), steps=(1, 1, 1, 1), sizes=(1, tall, wide, 64), quant=share)
    net.op("concat", "p s", "y", axis=3, quant=share)
    return nets.placed(net.graph("y", sources=True))


def sorted_net(bits: int) -> Graph:
    """Rows by index, responses of neighbours, products of computed matrices, and the largest of a line."""
    [lrn] = [case.graph for case in CASES if case.id == f"lrn/5of16/{bits}x{bits}/random"]
    table, grid = lrn[lrn.nodes[0].inputs[1]], nets.grid(bits, -3)
    net = nets.Net(5, grid)
    net.input("x", 1, SIDE, SIDE, CHANNELS)
    net.op("gather", "x", "g", axis=2, index=tuple(net.rng.integers(0, SIDE, SIDE + 21).tolist()))
    net.const("t", table.data, table.quant)
    net.op("lrn", "g t", "l", **asdict(lrn.nodes[0].params))
    net.op("batch_matmul", "l x", "p", quant=nets.grid(bits, bits - 10))
    net.op("arg_max", "p", "y", axis=2, count=SIDE, smallest=True, quant=nets.grid(bits, 0))
    return nets.placed(net.graph("y", sources=True))


def line_net(bits: int) -> Graph:
    """A line times a matrix, of whose columns threads take parts; the last part is not whole."""
    net, size, out = nets.Net(6, nets.grid(bits, -4)), SIDE * SIDE // 16 * CHANNELS, 107
    net.input("x", 1, SIDE, SIDE, CHANNELS)
    net.op("max_pool", "x", "m", **dict.fromkeys(("kernel_h", "kernel_w", "stride_h", "stride_w"), 4))
    net.op("reshape", "m", "l", shape=(1, size))
    net.integers("w", out, size, most=2 ** (bits - 1), quant=nets.grid(bits, *[-4 - bits] * out, axis=0))
    net.integers("b", out, most=60, quant=nets.grid(8, -4))
    net.op("fully_connected", "l w b", "y")
    return nets.placed(net.graph("y", sources=True))


def odd_net() -> Graph:
    """A factor for each line, of which threads take parts, and three products of matrices, for two threads."""
    net = nets.Net(7, nets.grid(8, -4))
    net.input("x", 1, 3, 45, 500)
    net.integers("k", 1, 3, 45, 1, most=100)
    net.op("mul", "x k", "m", quant=nets.grid(8, 0))
    net.op("batch_matmul", "m x", "y", quant=nets.grid(8, 4))
    return nets.placed(net.graph("y", sources=True))


def random_input(bits: int, seed: int = 0, channels: int = CHANNELS) -> np.ndarray:
    most = 2 ** (bits - 1)
    return np.random.default_rng(seed).integers(-most, most, (1, SIDE, SIDE, channels)).astype(f"int{bits}")


@pytest.mark.parametrize("cpu", interpreter.cpus())
@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("net", [wide_net, plain_net, mixed_net, sorted_net, line_net])
def test_same_bytes(net: Callable[[int], Graph], bits: int, cpu: str) -> None:
    graph = net(bits)
    x = random_input(bits, channels=graph["x"].shape[3])
    wanted = run_reference(graph, {"x": x})["y"]
    for threads in (1, 2, 3):
        loaded = interpreter.load(to_bytes(graph, {}), cpu=cpu, threads=threads)
        assert loaded.threads == threads
        for _ in range(3):
            np.testing.assert_array_equal(loaded.run(x)[0], wanted)


def test_threads_are_settled_in_the_first_runs() -> None:
    """By then the net has run with each number of threads, and with several ones in a run: always the same bytes."""
    graph = wide_net(8)
    x = random_input(8)
    wanted = run_reference(graph, {"x": x})["y"]
    net = interpreter.load(to_bytes(graph, {}), threads=3)
    assert not net.settled
    for _ in range(100_000):  # each number of threads takes turns of 4 ms
        np.testing.assert_array_equal(net.run(x)[0], wanted)
        if net.settled:
            break
    assert net.settled
    assert interpreter.load(to_bytes(graph, {})).settled


def test_shares_that_end_within_lines_and_matrices() -> None:
    graph = odd_net()
    inputs = np.random.default_rng(0).integers(-128, 128, (2, *graph["x"].shape)).astype(np.int8)
    wanted = [run_reference(graph, {"x": x})["y"] for x in inputs]
    net = interpreter.load(to_bytes(graph, {}), threads=2)
    for i in range(100):  # 4 ms with one thread, then with two; none finds its results in the arena
        np.testing.assert_array_equal(net.run(inputs[i % 2])[0], wanted[i % 2])


def test_arena_is_for_all_threads() -> None:
    data = to_bytes(wide_net(8), {})
    assert interpreter.load(data, threads=3).arena_bytes >= interpreter.load(data).arena_bytes


def test_scratch_of_many_threads_keeps_ops_apart() -> None:
    """Rows of several ops for each thread, but not where all of them would take a quarter of what an arena may have."""
    net = nets.Net(grid=nets.grid(8, -4))
    net.input("x", 1, 2, 8192, 64)
    net.conv("x", "c", 128, 1)
    net.op("requantize", "c", "y", quant=nets.grid(8, -3))
    data = interpreter._in_memory(to_bytes(nets.placed(net.graph("y")), {}))
    few, many = (_nmp.inspect(data, interpreter.cpus()[-1], threads)["arena_bytes"] for threads in (64, 256))
    assert few > 2**27 > many


def test_nets_in_parallel() -> None:
    graph = wide_net(8)
    data = to_bytes(graph, {})
    inputs = [random_input(8, seed) for seed in range(4)]
    wanted = [run_reference(graph, {"x": x})["y"] for x in inputs]
    wrong: list[int] = []

    def work(i: int) -> None:
        net = interpreter.load(data, threads=1 + i % 3)
        wrong.extend(i for _ in range(20) if not np.array_equal(net.run(inputs[i])[0], wanted[i]))

    in_threads(work, len(inputs))
    assert wrong == []


def in_threads(work: Callable[[int], None], count: int) -> None:
    users = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for user in users:
        user.start()
    for user in users:
        user.join()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("copied", [False, True])
def test_many_threads_call_one_net(threads: int, copied: bool) -> None:
    """Each gets the outputs of its own inputs; before there was a lock, those of others, or SIGFPE with two threads."""
    graph = nets.small_net()
    shape, users, runs = graph["x"].shape, 8, 800
    inputs = [np.random.default_rng(i).integers(-128, 128, shape).astype(np.int8) for i in range(users)]
    wanted = [run_reference(graph, {"x": x})["y"] for x in inputs]
    net = interpreter.load(to_bytes(graph, {}), threads=threads)
    right = [0] * users

    def work(i: int) -> None:
        mine = net.copy() if copied else net
        for _ in range(runs):
            right[i] += np.array_equal(mine.run(inputs[i])[0], wanted[i])

    in_threads(work, users)
    assert right == [runs] * users


def test_other_calls_beside_runs() -> None:
    """Whatever threads ask of one net at a time: no crash, and each tensor is one of a run."""
    graph = wide_net(8)
    x = random_input(8)
    net = interpreter.load(to_bytes(graph, {}), threads=2)
    before, [wanted] = net.tensor(net.outputs[0].tensor), net.run(x)
    copies = net.copy()
    calls: list[Callable[[], object]] = [
        lambda: np.testing.assert_array_equal(net.run(x)[0], wanted),
        lambda: [net.settled, net.states(), net.reset(), net.steps()],
        lambda: np.testing.assert_array_equal(net.copy().run(x)[0], wanted),
        lambda: np.testing.assert_array_equal(copies.tensor(net.outputs[0].tensor), before),
    ]
    wrong: list[BaseException] = []

    def work(i: int) -> None:
        try:
            for _ in range(40):
                calls[i]()
        except BaseException as error:
            wrong.append(error)

    in_threads(work, len(calls))
    assert wrong == []


@pytest.mark.parametrize("cpu", interpreter.cpus())
def test_a_copy_has_the_packed_weights_of_its_net(cpu: str) -> None:
    """It outlives the net, takes no second place for weights, and writes nothing of the net's."""
    graph = wide_net(8)
    x, other = random_input(8), random_input(8, 1)
    data = to_bytes(graph, {})
    net = interpreter.load(data, cpu=cpu, threads=2)
    packed = _nmp.inspect(interpreter._in_memory(data), cpu, 2)["packed_bytes"]
    assert packed > 0 or cpu == "portable"
    copy = net.copy()
    assert copy.arena_bytes == net.arena_bytes - packed == copy.copy().arena_bytes
    assert (copy.cpu, copy.threads, copy.inputs, copy.outputs) == (net.cpu, net.threads, net.inputs, net.outputs)
    wanted = [run_reference(graph, {"x": array})["y"] for array in (x, other)]
    net.run(x)
    np.testing.assert_array_equal(copy.run(other)[0], wanted[1])
    np.testing.assert_array_equal(net.tensor(net.outputs[0].tensor), wanted[0])
    second = copy.copy()
    del net, copy
    np.testing.assert_array_equal(second.run(other)[0], wanted[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_fork() -> None:
    """A child has its parent's net and threads of its own."""
    net = interpreter.load(to_bytes(wide_net(8), {}), threads=2)
    x = random_input(8)
    wanted = net.run(x)[0]
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(net.run(x)[0], wanted) else 1)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(net.run(x)[0], wanted)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_fork_while_others_run() -> None:
    """A fork waits for a run that another thread is in: the child never finds the net half way, or locked."""
    graph = wide_net(8)
    net = interpreter.load(to_bytes(graph, {}), threads=2)
    x = random_input(8)
    wanted = net.run(x)[0]
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            net.run(x)

    users = [threading.Thread(target=work) for _ in range(3)]
    for user in users:
        user.start()
    codes = []
    for _ in range(10):
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            os._exit(0 if np.array_equal(net.run(x)[0], wanted) else 1)
        codes.append(os.waitpid(child, 0)[1])
    stop.set()
    for user in users:
        user.join()
    assert codes == [0] * 10


def test_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    data = to_bytes(nets.small_net(), {})
    monkeypatch.delenv("NMP_THREADS", raising=False)
    assert interpreter.load(data).threads == 1
    assert interpreter.load(data, threads=0).threads >= 1
    monkeypatch.setenv("NMP_THREADS", "2")
    assert interpreter.load(data).threads == 2
    assert interpreter.load(data, threads=3).threads == 3
    for bad in ("-1", "two", str(_nmp.THREADS_MAX + 1)):
        monkeypatch.setenv("NMP_THREADS", bad)
        with pytest.raises(UsageError, match=f"'{bad}' is not allowed; allowed: 0 "):
            interpreter.load(data)


def test_shares(root: Path, tmp_path: Path, need_tool: Callable[..., str]) -> None:
    program = tmp_path / "test_shares"
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{root / 'interpreter' / 'include'}"]
    source = root / "interpreter" / "tests" / "test_shares.cpp"
    subprocess.run([need_tool("c++", "g++", "clang++"), *flags, source, "-o", program], check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith("\n0 failures\n")


def test_pool(root: Path, tmp_path: Path, need_tool: Callable[..., str]) -> None:
    program = tmp_path / "test_pool"
    flags = ["-std=c++17", "-O1", "-g", "-pthread", "-fsanitize=thread"]
    source = root / "interpreter" / "tests" / "test_pool.cpp"
    subprocess.run([need_tool("c++", "g++", "clang++"), *flags, source, "-o", program], check=True)
    environment = {**os.environ, "TSAN_OPTIONS": "die_after_fork=0"}
    done = subprocess.run([program], capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 failures\n", "")
