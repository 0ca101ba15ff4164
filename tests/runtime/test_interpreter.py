"""Loading and running from Python, and the C API's own test; the numpy references say what is right."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import nets
import numpy as np
import pytest
from c_core import Library

from nmpconv.base import fixed_point
from nmpconv.errors import InputError, ModelError, UsageError
from nmpconv.file import flatbuffer
from nmpconv.file.writer import to_bytes
from nmpconv.graph.reference import run as run_reference
from nmpconv.runtime import interpreter

GRAPH = nets.small_net()


def random_input(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-128, 128, (1, 4, 4, 2)).astype(np.int8)


def wanted(x: np.ndarray) -> np.ndarray:
    return run_reference(GRAPH, {"x": x})["y"]


@pytest.fixture(scope="module")
def data() -> bytes:
    vectors = [([random_input(i).tobytes()], [wanted(random_input(i)).tobytes()]) for i in range(3)]
    return to_bytes(GRAPH, {}, vectors)


@pytest.fixture
def net(data: bytes) -> interpreter.Net:
    return interpreter.load(data)


def test_run_is_the_reference(net: interpreter.Net) -> None:
    for seed in range(20):
        x = random_input(seed)
        (y,) = net.run(x)
        assert y.dtype == np.int16
        np.testing.assert_array_equal(y, wanted(x))
        np.testing.assert_array_equal(net.run({"x": x})[0], y)
        np.testing.assert_array_equal(net.run_float(x)[0], fixed_point.dequantize(y, -9))


def test_run_each(net: interpreter.Net) -> None:
    """Many samples at a time are as many runs; rows outside of the part stay."""
    x, y = np.stack([random_input(i) for i in range(5)]), np.full((5, 1, 3), 7, np.int16)
    net.run_each([x], [y], range(1, 4))
    assert y[[0, 4]].tolist() == [[[7] * 3]] * 2
    assert np.array_equal(y[1:4], [wanted(x[i]) for i in range(1, 4)])
    for bad_x, bad_y, part in ((x[:, :, 1:], y, range(2)), (x, y.astype(np.int8), range(2)), (x, y[:2], range(3))):
        with pytest.raises(UsageError, match="other shapes or types than the ports"):
            net.run_each([bad_x], [bad_y], part)


def test_ports(net: interpreter.Net) -> None:
    x, y = net.inputs[0], net.outputs[0]
    assert (x.name, x.shape, x.dtype, x.exponent, x.pixels, x.labels) == ("x", (1, 4, 4, 2), "int8", 0, True, ())
    assert (x.preprocess, x.source_shape) == (GRAPH.preprocess["x"], (1, 2, 4, 4))
    assert (y.name, y.shape, y.dtype, y.exponent) == ("y", (1, 3), "int16", -9)
    assert (y.lo, y.hi, y.labels) == (-32768, 32767, ("cat", "dog", "emu"))
    assert net.cpu in interpreter.cpus()
    assert net.arena_bytes >= 80


def test_inputs_of_other_types(net: interpreter.Net) -> None:
    x = random_input()
    pixels = (x.astype(np.int16) + 128).astype(np.uint8)
    np.testing.assert_array_equal(net.run(pixels)[0], wanted(x))
    np.testing.assert_array_equal(net.run(x.reshape(4, 4, 2))[0], wanted(x))
    look = GRAPH.preprocess["x"]
    np.testing.assert_array_equal(net.run(look.to_model(pixels).astype(np.float32))[0], wanted(x))
    near = look.to_model(pixels.astype(np.float64) + 0.25)
    np.testing.assert_array_equal(net.run(near)[0], wanted(x))
    half = look.to_model(np.full(x.shape, 130.5))
    np.testing.assert_array_equal(net.run(half)[0], wanted(np.full(x.shape, 3, np.int8)))
    np.testing.assert_array_equal(net.run(look.to_model(half * 0 + 270))[0], wanted(np.full(x.shape, 127, np.int8)))


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (
            (np.zeros((1, 4, 4, 3), np.int8),),
            r"x: the array has shape \[1, 4, 4, 3\], \[1, 4, 4, 2\] or \[1, 2",
        ),
        ((np.zeros((4, 2, 5), np.uint8),), r"\[4, 2, 5\], .* is needed \(or a batch of these, \[n, ...\]\)"),
        ((np.zeros((4, 2, 4), np.uint8),), r"\[4, 2, 4\], .* order: x\.transpose\(0, 2, 1\) fits"),
        ((np.zeros((1,) * 60 + (5,), np.uint8),), r"is needed \(or a batch of these"),
        (("image.png",), "x: texts and objects are no numbers .*`nmpconv run` takes files"),
        ((np.zeros((1, 4, 4, 2), np.int16),), "x: the array is int16: the file's integers or the ONNX model's numbers"),
        ((np.full((1, 4, 4, 2), np.nan),), "x: the array has values that are not finite"),
        ((), "0 inputs were given, the model has 1: x"),
        (({"z": np.zeros(32, np.int8)},), r"inputs \['z'\] were given, the model has \['x'\]"),
    ],
)
def test_wrong_inputs(net: interpreter.Net, given: tuple[object, ...], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        net.run(*given)  # type: ignore[arg-type]


def test_op_by_op(net: interpreter.Net) -> None:
    x = random_input()
    net.set_input(0, x)
    names = {t.name: i for i, t in enumerate(net.model.tensors)}
    net.run_ops(0, 1)
    c = net.tensor(names["c"])
    net.run_ops(1, 5)
    np.testing.assert_array_equal(net.tensor(names["y"]), wanted(x))
    np.testing.assert_array_equal(net.tensor(names["w"]), GRAPH["w"].data)
    assert c.min() >= 0
    assert c.max() <= 96
    with pytest.raises(UsageError, match="last: 6 is not allowed; allowed: 0 to 5"):
        net.run_ops(0, 6)


def test_profile(net: interpreter.Net) -> None:
    rows = net.profile(3)
    assert [row.kind for row in rows] == [node.op for node in GRAPH.nodes]
    assert all(row.seconds >= 0 for row in rows)
    assert rows[0].macs == 16 * 2 * 18


def test_results_outlive_the_net(data: bytes) -> None:
    (y,) = interpreter.load(data).run(random_input())
    np.testing.assert_array_equal(y, wanted(random_input()))


def test_nets_run_side_by_side(data: bytes) -> None:
    found: dict[int, list[np.ndarray]] = {}

    def work(i: int) -> None:
        net = interpreter.load(data)
        found[i] = [net.run(random_input(i))[0] for _ in range(200)]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, results in found.items():
        assert all(np.array_equal(y, wanted(random_input(i))) for y in results)


def test_cpu_levels(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "portable" in interpreter.cpus()
    assert interpreter.load(data, cpu="portable").cpu == "portable"
    monkeypatch.setenv("NMP_CPU", "portable")
    assert interpreter.load(data).cpu == "portable"
    monkeypatch.setenv("NMP_CPU", "z80")
    with pytest.raises(UsageError, match="'z80' is not allowed; allowed: on this machine portable"):
        interpreter.load(data)


def test_refusals(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        interpreter.load(tmp_path / "none.nmp")
    path = tmp_path / "m.nmp"
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(ModelError, match=r"m\.nmp: .*(checksum|structure)"):
        interpreter.load(path)
    root = flatbuffer.unpack(data)
    root["ops"][0]["params"][1]["stride_h"] = 0
    with pytest.raises(ModelError, match=r"an op is illegal: op 'n_c' \(conv2d\): tensor 'c': .* \(found 0, "):
        interpreter.load(flatbuffer.pack(root))


def test_an_arena_may_hold_anything_before(monkeypatch: pytest.MonkeyPatch) -> None:
    aligned = interpreter.aligned

    def filled(size: int) -> np.ndarray:
        array = aligned(size)
        array[:] = 0xFF
        return array

    net = nets.Net(grid=nets.grid(8, 0))
    net.input("x", 1, 3)
    net.op("add", "x x", "y")
    net.op("concat", "x y", "z", axis=1)
    graph, x = nets.placed(net.graph("z")), np.array([[1, -2, 3]], np.int8)
    monkeypatch.setattr(interpreter, "aligned", filled)
    [found] = interpreter.load(to_bytes(graph, {})).run(x)
    np.testing.assert_array_equal(found, [[1, -2, 3, 2, -4, 6]])


def test_c_api(root: Path, tmp_path: Path, data: bytes, sanitized: Callable[..., Library]) -> None:
    """interpreter/tests/test_nmp.c, and with it that the portable core builds as plain C99 without a warning."""
    path = tmp_path / "small.nmp"
    path.write_bytes(data)
    program = sanitized(portable=True).program(tmp_path / "test_nmp", root / "interpreter" / "tests" / "test_nmp.c")
    found = subprocess.run([program, path], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout


def test_a_program_ends_while_a_daemon_thread_runs_a_net(tmp_path: Path, data: bytes) -> None:
    """Before 3.14 CPython unwinds such a thread's stack, which has functions of nanobind that allow no exception."""
    (tmp_path / "small.nmp").write_bytes(data)
    (tmp_path / "main.py").write_text("""
import threading, time
import numpy as np
from nmpconv.runtime.interpreter import load
net = load("small.nmp")
x, begun = np.zeros(net.inputs[0].shape, np.int8), threading.Event()
def work():
    while True:
        net.run(x)
        begun.set()
threading.Thread(target=work, daemon=True).start()
begun.wait()
time.sleep(0.05)
""")
    ran = subprocess.run([sys.executable, "main.py"], cwd=tmp_path, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
