"""Several threads: the same bytes, several nets side by side, and processes that fork."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import nets
import numpy as np
import pytest

from nmpconv import _nmp
from nmpconv.errors import UsageError
from nmpconv.file.writer import to_bytes
from nmpconv.graph.reference import run as run_reference
from nmpconv.ir import Graph
from nmpconv.run import runtime

SIDE, CHANNELS = 40, 48


def wide_net(bits: int) -> Graph:
    """A depthwise and a pointwise convolution with work for several threads."""
    rng = np.random.default_rng(2)
    shape, same = (1, SIDE, SIDE, CHANNELS), {"pad_top": 1, "pad_left": 1, "pad_bottom": 1, "pad_right": 1}
    grid = nets.grid(bits, -4)
    most = 2 ** (bits - 1)

    def weights(name: str, *shape: int) -> object:
        q = nets.grid(bits, *(-bits for _ in range(CHANNELS)), axis=0)
        return nets.constant(name, rng.integers(-most, most, shape), q)

    values = [
        nets.active("x", shape, grid),
        weights("w", CHANNELS, 3, 3, 1),
        nets.constant("b", rng.integers(-60, 60, CHANNELS), nets.grid(8, -4)),
        nets.active("d", shape, grid),
        weights("v", CHANNELS, 1, 1, CHANNELS),
        nets.constant("c", rng.integers(-60, 60, CHANNELS), nets.grid(8, -4)),
        nets.active("y", shape, grid),
    ]
    nodes = (nets.node("conv2d", "x w b", "d", groups=CHANNELS, **same), nets.node("conv2d", "d v c", "y"))
    sources = {"x": shape, "y": shape}
    return nets.placed(Graph("wide", ("x",), ("y",), nodes, {v.name: v for v in values}, source_shapes=sources))


def plain_net(bits: int) -> Graph:
    """Ops without sums of products, large enough for several threads."""
    rng = np.random.default_rng(3)
    shape, turned, grid = (1, SIDE, SIDE, 4 * CHANNELS), (1, SIDE, 4 * CHANNELS, SIDE), nets.grid(bits, -4)
    most = 2 ** (bits - 1)
    table = rng.integers(-100, 100, 256) if bits == 8 else rng.integers(-(2**22), 2**22, 513)
    values = [
        nets.active("x", shape, grid),
        nets.active("m", shape, grid),
        nets.active("s", shape, grid),
        nets.constant("k", rng.integers(-most, most, (SIDE, 1, 4 * CHANNELS)), grid),
        nets.active("p", shape, nets.grid(bits, bits - 8)),
        nets.active("t", turned, nets.grid(bits, bits - 8)),
        nets.active("r", turned, grid),
        nets.constant("f", table, nets.grid(8, -4) if bits == 8 else nets.grid(32, -12)),
        nets.active("y", turned, grid),
    ]
    around = {f"pad_{side}": 1 for side in ("top", "left", "bottom", "right")}
    nodes = (
        nets.node("max_pool", "x", "m", kernel_h=3, kernel_w=3, **around),
        nets.node("add", "m x", "s"),
        nets.node("mul", "s k", "p"),
        nets.node("transpose", "p", "t", perm=(0, 1, 3, 2)),
        nets.node("requantize", "t", "r"),
        nets.node("lookup", "r f", "y"),
    )
    sources = {"x": shape, "y": turned}
    return nets.placed(Graph("plain", ("x",), ("y",), nodes, {v.name: v for v in values}, source_shapes=sources))


def mixed_net(bits: int) -> Graph:
    """Means, differences, products with a number per channel, normalization, a resize, softmax, and copies of rows."""
    rng = np.random.default_rng(4)
    channels, tall, wide = 4 * CHANNELS, SIDE + 24, SIDE + 8
    shape, large, part = (1, SIDE, SIDE, channels), (1, tall, wide, channels), (1, tall, wide, 64)
    grid, share, most = nets.grid(bits, -4), nets.grid(bits, 1 - bits), 2 ** (bits - 1)
    d = np.arange(256) if bits == 8 else np.concatenate([np.arange(256), 256 * np.arange(256)])
    values = [
        nets.active("x", shape, grid),
        nets.active("a", shape, grid),
        nets.active("d", shape, grid),
        nets.constant("k", rng.integers(-most, most, (1, 1, 1, channels)), grid),
        nets.active("m", shape, nets.grid(bits, bits - 8)),
        nets.constant("w", rng.integers(-(2**17), 2**17, (1, 1, 1, channels)), nets.grid(32, -16)),
        nets.constant("b", rng.integers(-(2**10), 2**10, (1, 1, 1, channels)), nets.grid(32, -4 - bits)),
        nets.active("n", shape, nets.grid(bits, 4 - bits)),
        nets.active("r", large, nets.grid(bits, 4 - bits)),
        nets.constant("t", np.round(np.exp(-d / 64.0) * 2.0**30), nets.grid(32, -30)),
        nets.active("s", large, share),
        nets.active("p", part, share),
        nets.active("y", (1, tall, wide, channels + 64), share),
    ]
    around = {f"pad_{side}": 1 for side in ("top", "left", "bottom", "right")}
    bilinear = {
        "taps_h": 2,
        "taps_w": 2,
        "rows": tuple(i * (SIDE - 1) // tall for i in range(tall)),
        "row_weights": tuple(rng.integers(-(2**13), 2**15, 2 * tall).tolist()),
        "columns": tuple(i * (SIDE - 1) // wide for i in range(wide)),
        "column_weights": tuple(rng.integers(-(2**13), 2**15, 2 * wide).tolist()),
    }
    nodes = (
        nets.node("average_pool", "x", "a", kernel_h=3, kernel_w=3, **around),
        nets.node("sub", "a x", "d"),
        nets.node("mul", "d k", "m"),
        nets.node("normalize", "m w b", "n", axes=(3,), epsilon=2**20),
        nets.node("resize", "n", "r", **bilinear),
        nets.node("softmax", "r t", "s", axis=3),
        nets.node("slice", "s", "p", starts=(0, 0, 0, 5), steps=(1, 1, 1, 1), sizes=part),
        nets.node("concat", "p s", "y", axis=3),
    )
    sources = {"x": shape, "y": (1, tall, wide, channels + 64)}
    return nets.placed(Graph("mixed", ("x",), ("y",), nodes, {v.name: v for v in values}, source_shapes=sources))


def random_input(bits: int, seed: int = 0, channels: int = CHANNELS) -> np.ndarray:
    most = 2 ** (bits - 1)
    return np.random.default_rng(seed).integers(-most, most, (1, SIDE, SIDE, channels)).astype(f"int{bits}")


@pytest.mark.parametrize("cpu", runtime.cpus())
@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("net", [wide_net, plain_net, mixed_net])
def test_same_bytes(net: Callable[[int], Graph], bits: int, cpu: str) -> None:
    graph = net(bits)
    x = random_input(bits, channels=graph["x"].shape[3])
    wanted = run_reference(graph, {"x": x})["y"]
    for threads in (1, 2, 3):
        loaded = runtime.load(to_bytes(graph, {}), cpu=cpu, threads=threads)
        assert loaded.threads == threads
        for _ in range(3):
            np.testing.assert_array_equal(loaded.run(x)[0], wanted)


def test_arena_is_for_all_threads() -> None:
    data = to_bytes(wide_net(8), {})
    assert runtime.load(data, threads=3).arena_bytes >= runtime.load(data).arena_bytes


def test_nets_in_parallel() -> None:
    graph = wide_net(8)
    data = to_bytes(graph, {})
    inputs = [random_input(8, seed) for seed in range(4)]
    wanted = [run_reference(graph, {"x": x})["y"] for x in inputs]
    wrong: list[int] = []

    def work(i: int) -> None:
        net = runtime.load(data, threads=1 + i % 3)
        wrong.extend(i for _ in range(20) if not np.array_equal(net.run(inputs[i])[0], wanted[i]))

    users = [threading.Thread(target=work, args=(i,)) for i in range(len(inputs))]
    for user in users:
        user.start()
    for user in users:
        user.join()
    assert wrong == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_fork() -> None:
    """A child has its parent's net and threads of its own."""
    net = runtime.load(to_bytes(wide_net(8), {}), threads=2)
    x = random_input(8)
    wanted = net.run(x)[0]
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(net.run(x)[0], wanted) else 1)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(net.run(x)[0], wanted)


def test_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    data = to_bytes(nets.small_net(), {})
    monkeypatch.delenv("NMP_THREADS", raising=False)
    assert runtime.load(data).threads == 1
    assert runtime.load(data, threads=0).threads >= 1
    monkeypatch.setenv("NMP_THREADS", "2")
    assert runtime.load(data).threads == 2
    assert runtime.load(data, threads=3).threads == 3
    for bad in ("-1", "two", str(_nmp.THREADS_MAX + 1)):
        monkeypatch.setenv("NMP_THREADS", bad)
        with pytest.raises(UsageError, match=f"'{bad}' is no number of threads"):
            runtime.load(data)


def test_pool(root: Path, tmp_path: Path, need_tool: Callable[..., str]) -> None:
    program = tmp_path / "test_pool"
    flags = ["-std=c++17", "-O1", "-g", "-pthread", "-fsanitize=thread"]
    source = root / "interpreter" / "tests" / "test_pool.cpp"
    subprocess.run([need_tool("c++", "g++", "clang++"), *flags, source, "-o", program], check=True)
    environment = {**os.environ, "TSAN_OPTIONS": "die_after_fork=0"}
    done = subprocess.run([program], capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 failures\n", "")
