"""ONNX files that ask for too much, lie, or are none; the docstring of a function says what is wrong with its file."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
from hostile.cases import Cases, dry, model
from onnx import TensorProto, helper

CASES = case = Cases()


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
    """An op whose name holds codes that steer a terminal, and a line that looks like ours."""
    return dry(model(folder, [helper.make_node("No\x1b]0;gone\x07Such\u202e", ["x"], ["y"], "n\x1b[2J\nerror: no")]))


@case
def endless_names(folder: Path) -> list[str]:
    """A node whose name and type have a million letters."""
    return dry(model(folder, [helper.make_node("N" * 10**6, ["x"], ["y"], "n" * 10**6)]))


@case
def many_outputs(folder: Path) -> list[str]:
    """A thousand outputs: a file's verifier would look at each of them again and again."""
    names = [f"y{i}" for i in range(1000)]
    path = model(folder, [helper.make_node("Relu", ["x"], [name], name) for name in names])
    proto = onnx.load(path)
    proto.graph.output.pop()
    proto.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names)
    path.write_bytes(proto.SerializeToString())
    return dry(path)


@case
def name_of_no_text(folder: Path) -> list[str]:
    """An op's type that is no UTF-8."""
    path = model(folder, [helper.make_node("Relu", ["x"], ["y"], "relu")])
    path.write_bytes(path.read_bytes().replace(b"Relu", b"R\xd2lu"))
    return dry(path)


@case
def unknown_type(folder: Path) -> list[str]:
    """An input of type 59."""
    path = model(folder, [helper.make_node("Relu", ["x"], ["y"], "relu")])
    proto = onnx.load(path)
    proto.graph.input[0].type.tensor_type.elem_type = 59
    path.write_bytes(proto.SerializeToString())
    return dry(path)
