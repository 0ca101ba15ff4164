"""Files that ask for too much, lie, or are not what their name says. Each function writes one and returns the command.

The first line of a docstring says what is wrong with the file.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

Case = Callable[[Path], list[str]]
CASES: list[Case] = []


def case(function: Case) -> Case:
    CASES.append(function)
    return function


IMAGE = (1, 3, 8, 8)


def model(
    folder: Path,
    nodes: Sequence[onnx.NodeProto],
    constants: dict[str, np.ndarray] | None = None,
    *,
    opset: int = 17,
    functions: Sequence[onnx.FunctionProto] = (),
    shape: Sequence[int] = IMAGE,
) -> Path:
    """A model from x to y, as it is: nothing checks it."""
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    domains = [helper.make_opsetid("", opset), *([helper.make_opsetid("f", 1)] if functions else [])]
    path = folder / "model.onnx"
    made = helper.make_model(graph, opset_imports=domains, functions=list(functions), ir_version=10)
    path.write_bytes(made.SerializeToString())
    return path


def dry(path: Path) -> list[str]:
    return ["convert", str(path), "--dry-run"]


def _added(folder: Path, nodes: Sequence[onnx.NodeProto], last: str, constants: dict[str, np.ndarray]) -> list[str]:
    """Something computed of constants, added to x."""
    return dry(model(folder, [*nodes, helper.make_node("Add", ["x", last], ["y"], "add")], constants))


# -- constants that grow ----------------------------------------------------------------------------------------------


@case
def doubled(folder: Path) -> list[str]:
    """A constant that Concat doubles forty times."""
    nodes = [helper.make_node("Concat", [f"c{i}", f"c{i}"], [f"c{i + 1}"], f"cat{i}", axis=0) for i in range(40)]
    return _added(folder, nodes, "c40", {"c0": np.ones(16, np.float32)})


@case
def added(folder: Path) -> list[str]:
    """A constant that is added to its own transpose again and again: outer products of sums."""
    nodes = [helper.make_node("Add", ["r0", "c0"], ["m0"], "outer")]
    nodes += [helper.make_node("MatMul", [f"m{i}", f"m{i}"], [f"m{i + 1}"], f"mul{i}") for i in range(200)]
    constants = {"r0": np.ones((1, 4096), np.float32), "c0": np.ones((4096, 1), np.float32)}
    return _added(folder, nodes, "m200", constants)


@case
def long_range(folder: Path) -> list[str]:
    """A Range of two thousand million numbers."""
    limits = {"a": np.int64(0), "b": np.int64(2_000_000_000), "d": np.int64(1)}
    nodes = [helper.make_node("Range", ["a", "b", "d"], ["r"], "range"), helper.make_node("Cast", ["r"], ["f"], to=1)]
    return _added(folder, nodes, "f", {name: np.array(value) for name, value in limits.items()})


@case
def expanded(folder: Path) -> list[str]:
    """The cosine of one number that is expanded to four thousand million."""
    nodes = [helper.make_node("Expand", ["c", "s"], ["e"], "expand"), helper.make_node("Cos", ["e"], ["f"], "cos")]
    return _added(folder, nodes, "f", {"c": np.ones(1, np.float32), "s": np.array([65536, 65536])})


@case
def filled(folder: Path) -> list[str]:
    """A ConstantOfShape of 2^60 elements."""
    nodes = [helper.make_node("ConstantOfShape", ["s"], ["f"], "fill")]
    return _added(folder, nodes, "f", {"s": np.array([2**30, 2**30])})


@case
def one_hot(folder: Path) -> list[str]:
    """A OneHot of a thousand million classes."""
    nodes = [helper.make_node("OneHot", ["i", "d", "v"], ["f"], "hot")]
    constants = {"i": np.zeros(64, np.int64), "d": np.array(10**9), "v": np.array([0, 1], np.float32)}
    return _added(folder, nodes, "f", constants)


@case
def products(folder: Path) -> list[str]:
    """A MatMul of two expanded constants: 2^42 multiplications of two numbers."""
    nodes = [
        helper.make_node("Expand", ["c", "s"], ["e"], "expand"),
        helper.make_node("MatMul", ["e", "e"], ["f"], "mul"),
    ]
    return _added(folder, nodes, "f", {"c": np.ones(1, np.float32), "s": np.array([16384, 16384])})


@case
def pooled(folder: Path) -> list[str]:
    """A MaxPool with large windows over a constant that is expanded."""
    nodes = [
        helper.make_node("Expand", ["c", "s"], ["e"], "expand"),
        helper.make_node("MaxPool", ["e"], ["f"], "pool", kernel_shape=[65, 65], pads=[32, 32, 32, 32]),
    ]
    return _added(folder, nodes, "f", {"c": np.ones(1, np.float32), "s": np.array([1, 1, 2048, 2048])})


@case
def resized(folder: Path) -> list[str]:
    """A Resize of a constant to four million pixels, which the reference implementation computes one by one."""
    nodes = [helper.make_node("Resize", ["c", "", "s"], ["f"], "resize", mode="cubic")]
    return _added(
        folder, nodes, "f", {"c": np.ones((1, 1, 2, 2), np.float32), "s": np.ones(4, np.float32) * [1, 1, 1024, 1024]}
    )


@case
def einsum(folder: Path) -> list[str]:
    """An Einsum over seven indices of 128."""
    nodes = [helper.make_node("Einsum", ["a", "b", "c"], ["f"], "einsum", equation="abc,cde,efg->ag")]
    big = np.ones((128, 128, 128), np.float32)[:1, :1]
    constants = {
        "a": big.reshape(1, 1, 128),
        "b": np.ones((128, 32, 128), np.float32),
        "c": np.ones((128, 32, 128), np.float32),
    }
    return _added(folder, nodes, "f", constants)


@case
def regular_expression(folder: Path) -> list[str]:
    """A regular expression that backtracks for hours."""
    nodes = [
        helper.make_node("RegexFullMatch", ["t"], ["b"], "match", pattern="(a+)+$"),
        helper.make_node("Cast", ["b"], ["f"], "cast", to=1),
    ]
    return dry(
        model(
            folder,
            [*nodes, helper.make_node("Add", ["x", "f"], ["y"], "add")],
            {"t": np.array(["a" * 40 + "!"], dtype=object)},
            opset=20,
        )
    )


# -- graphs that grow -------------------------------------------------------------------------------------------------


def _function(name: str, *calls: str) -> onnx.FunctionProto:
    names = ["a", *(f"t{i}" for i in range(1, len(calls))), "b"]
    nodes = [
        helper.make_node(call, [before], [after], domain="" if call == "Relu" else "f")
        for call, before, after in zip(calls, names, names[1:], strict=False)
    ]
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    return helper.make_function("f", name, ["a"], ["b"], nodes, domains)


@case
def exploding_functions(folder: Path) -> list[str]:
    """Thirty local functions, each of which calls the one before twice."""
    functions = [_function("F0", "Relu"), *(_function(f"F{i}", f"F{i - 1}", f"F{i - 1}") for i in range(1, 31))]
    return dry(model(folder, [helper.make_node("F30", ["x"], ["y"], "f", domain="f")], functions=functions))


@case
def recursive_functions(folder: Path) -> list[str]:
    """Two local functions that call each other."""
    functions = [_function("A", "B"), _function("B", "A")]
    return dry(model(folder, [helper.make_node("A", ["x"], ["y"], "f", domain="f")], functions=functions))


@case
def doubled_function(folder: Path) -> list[str]:
    """A local function that is defined twice."""
    functions = [_function("A", "Relu"), _function("A", "Relu", "Relu")]
    return dry(model(folder, [helper.make_node("A", ["x"], ["y"], "f", domain="f")], functions=functions))


# -- external data ----------------------------------------------------------------------------------------------------


def _external(folder: Path, **entries: str) -> list[str]:
    path = model(folder, [helper.make_node("Add", ["x", "w"], ["y"], "add")], {"w": np.ones(8, np.float32)})
    loaded = onnx.load(path, load_external_data=False)
    tensor = loaded.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    path.write_bytes(loaded.SerializeToString())
    return dry(path)


@case
def external_sparse(folder: Path) -> list[str]:
    """External data of twenty gigabytes that are not there: a sparse file."""
    with (folder / "w.bin").open("wb") as file:
        file.truncate(20 * 10**9)
    return _external(folder, location="w.bin")


@case
def external_offset(folder: Path) -> list[str]:
    """External data at an offset that is no number."""
    (folder / "w.bin").write_bytes(bytes(32))
    return _external(folder, location="w.bin", offset="ten")


@case
def external_nul(folder: Path) -> list[str]:
    """External data in a file with a NUL in its name."""
    return _external(folder, location="w\0.bin")


@case
def external_device(folder: Path) -> list[str]:
    """External data in a device, behind a link."""
    (folder / "w.bin").symlink_to("/dev/zero")
    return _external(folder, location="w.bin")


@case
def external_long(folder: Path) -> list[str]:
    """External data in a file with a name that is too long."""
    return _external(folder, location="w" * 5000)


# -- ONNX that is none ------------------------------------------------------------------------------------------------


@case
def short_statistics(folder: Path) -> list[str]:
    """A BatchNormalization with two means for three channels."""
    constants = {name: np.ones(2 if name == "m" else 3, np.float32) for name in "sbmv"}
    return dry(model(folder, [helper.make_node("BatchNormalization", ["x", *"sbmv"], ["y"], "bn")], constants))


@case
def clip_nan(folder: Path) -> list[str]:
    """A Clip at NaN."""
    return dry(
        model(folder, [helper.make_node("Clip", ["x", "n"], ["y"], "clip")], {"n": np.float32(np.nan).reshape(())})
    )


@case
def wrong_perm(folder: Path) -> list[str]:
    """A Transpose whose perm has an axis twice."""
    return dry(model(folder, [helper.make_node("Transpose", ["x"], ["y"], "t", perm=[0, 0, 1, 9])]))


@case
def wrong_arity(folder: Path) -> list[str]:
    """A Relu of two tensors."""
    return dry(model(folder, [helper.make_node("Relu", ["x", "x"], ["y"], "relu")]))


@case
def far_axis(folder: Path) -> list[str]:
    """A Concat along axis 2^40."""
    return dry(model(folder, [helper.make_node("Concat", ["x", "x"], ["y"], "cat", axis=2**40)]))


@case
def complex_weights(folder: Path) -> list[str]:
    """Weights of complex numbers."""
    return dry(model(folder, [helper.make_node("Mul", ["x", "w"], ["y"], "mul")], {"w": np.ones(8, np.complex64)}))


@case
def many_nodes(folder: Path) -> list[str]:
    """A chain of twenty thousand nodes."""
    names = ["x", *(f"t{i}" for i in range(19_999)), "y"]
    nodes = [helper.make_node("Relu", [a], [b]) for a, b in pairwise(names)]
    return dry(model(folder, nodes))


@case
def bidi_name(folder: Path) -> list[str]:
    """An op whose name holds codes that steer a terminal."""
    return dry(model(folder, [helper.make_node("No\x1b]0;gone\x07Such\u202e", ["x"], ["y"], "n\x1b[2J")]))


@case
def device_model(folder: Path) -> list[str]:
    """A device in place of a model."""
    return ["convert", "/dev/zero", "--dry-run"]


@case
def sparse_model(folder: Path) -> list[str]:
    """Five gigabytes of nothing in place of a model."""
    with (folder / "m.onnx").open("wb") as file:
        file.truncate(5 * 10**9)
    return dry(folder / "m.onnx")


@case
def device_nmp(folder: Path) -> list[str]:
    """A device in place of a converted model."""
    return ["inspect", "/dev/zero"]


@case
def sparse_nmp(folder: Path) -> list[str]:
    """Five gigabytes of nothing in place of a converted model."""
    with (folder / "m.nmp").open("wb") as file:
        file.truncate(5 * 10**9)
    return ["inspect", str(folder / "m.nmp")]


# -- data -------------------------------------------------------------------------------------------------------------


def _calibrated(folder: Path, name: str, data: bytes, *flags: str) -> list[str]:
    path = model(folder, [helper.make_node("Relu", ["x"], ["y"], "relu")])
    (folder / name).write_bytes(data)
    return ["convert", str(path), "--calib", str(folder / name), "-o", str(folder / "out.nmp"), *flags]


@case
def postscript(folder: Path) -> list[str]:
    """An EPS that is called a PNG: Pillow would start Ghostscript."""
    text = "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n(%pipe%touch ran) (w) file\n%%EOF\n"
    return _calibrated(folder, "a.png", text.encode())


@case
def many_pixels(folder: Path) -> list[str]:
    """A PNG of a hundred million pixels in a few kilobytes."""
    buffer = io.BytesIO()
    Image.new("1", (10_000, 10_000)).save(buffer, "PNG")
    return _calibrated(folder, "a.png", buffer.getvalue())


@case
def long_picture(folder: Path) -> list[str]:
    """A PNG of one by sixty million pixels, whose shorter side is to become eight."""
    buffer = io.BytesIO()
    Image.new("1", (60_000_000, 1)).save(buffer, "PNG")
    return _calibrated(folder, "a.png", buffer.getvalue(), "--resize", "shorter")


@case
def cut_picture(folder: Path) -> list[str]:
    """A PNG that is cut short."""
    buffer = io.BytesIO()
    Image.effect_noise((64, 64), 50).save(buffer, "PNG")
    return _calibrated(folder, "a.png", buffer.getvalue()[:500])


@case
def pipe_picture(folder: Path) -> list[str]:
    """A pipe that nobody writes to, called a list of files."""
    path = model(folder, [helper.make_node("Relu", ["x"], ["y"], "relu")])
    os.mkfifo(folder / "list.csv")
    return ["convert", str(path), "--calib", str(folder / "list.csv"), "-o", str(folder / "out.nmp")]


def _npy_header(text: str) -> bytes:
    body = text.encode("latin1").ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(body).to_bytes(2, "little") + body


def _npz(folder: Path, entry: bytes, method: int = zipfile.ZIP_STORED, name: str = "x.npy") -> list[str]:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr(name, entry)
    return _calibrated(folder, "a.npz", buffer.getvalue())


@case
def lying_npz(folder: Path) -> list[str]:
    """An archive whose array says that it has 2^40 elements."""
    return _npz(folder, _npy_header(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({2**40},), }}") + bytes(64))


@case
def negative_npz(folder: Path) -> list[str]:
    """An archive whose array has a negative size."""
    return _npz(folder, _npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (-4, -4), }") + bytes(64))


@case
def bomb_npz(folder: Path) -> list[str]:
    """An archive of three gigabytes of zeros in three megabytes."""
    size = 3 * 2**30
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("x.npy", "w", force_zip64=True) as f,
    ):
        f.write(_npy_header(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({size // 4},), }}"))
        block = bytes(2**24)
        for _ in range(size // 2**24):
            f.write(block)
    return _calibrated(folder, "a.npz", buffer.getvalue())


@case
def strange_npz(folder: Path) -> list[str]:
    """An archive whose array has a type that is no Python."""
    return _npz(folder, _npy_header("{'descr': [(((((, 'fortran_order': False, 'shape': (4,), }") + bytes(64))


@case
def objects_npz(folder: Path) -> list[str]:
    """An archive with pickled objects, which could run anything."""
    buffer = io.BytesIO()
    np.savez(buffer, x=np.array([{}, []], dtype=object))
    return _calibrated(folder, "a.npz", buffer.getvalue())


@case
def method_npz(folder: Path) -> list[str]:
    """An archive with a compression that does not exist."""
    command = _npz(folder, _npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (16,), }") + bytes(64))
    data = bytearray((folder / "a.npz").read_bytes())
    data[8] = 77
    data[data.index(b"PK\x01\x02") + 10] = 77
    (folder / "a.npz").write_bytes(bytes(data))
    return command


@case
def bools_npy(folder: Path) -> list[str]:
    """An array of no dimension and of truth values."""
    buffer = io.BytesIO()
    np.save(buffer, np.array(True))
    return _calibrated(folder, "a.npy", buffer.getvalue())


@case
def encoded_npy(folder: Path) -> list[str]:
    """An array with a header that is not text."""
    return _calibrated(folder, "a.npy", b"\x93NUMPY\x03\x00\x10\x00\x00\x00" + bytes(range(128, 256)))


@case
def lying_npy(folder: Path) -> list[str]:
    """An array file whose header says 2^62 elements."""
    return _calibrated(
        folder, "a.npy", _npy_header(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({2**62}, 4), }}")
    )


@case
def huge_field(folder: Path) -> list[str]:
    """A table with one field of a megabyte."""
    return _calibrated(folder, "a.csv", b"file,label\n" + b"a" * 2**20 + b",1\n")


@case
def not_text(folder: Path) -> list[str]:
    """A table that is not text."""
    return _calibrated(folder, "a.csv", b"file\n\xff\xfe\x00.png\n")


@case
def device_labels(folder: Path) -> list[str]:
    """A device in place of class names."""
    path = model(folder, [helper.make_node("Relu", ["x"], ["y"], "relu")])
    return [*dry(path), "--labels", "/dev/zero"]


@case
def markup_name(folder: Path) -> list[str]:
    """A file whose name is markup and steers a terminal."""
    (folder / "[").mkdir()
    return _calibrated(folder, "[/x]\x1b[31m.png", b"no picture")
