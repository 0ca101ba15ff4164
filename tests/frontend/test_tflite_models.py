"""TFLite files as models: quantized ones, names and shapes, what cannot be read, and files that are damaged."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from tflite_files import LiteRT, Op, Tensor, constant, tflite
from tflite_nets import CONV, grid, net, rng, samples

import nmpconv
from nmpconv.errors import InputError, NmpError, UnsupportedModel
from nmpconv.frontend.onnx import load
from nmpconv.frontend.tflite import to_onnx
from nmpconv.frontend.tflite.tflite_schema import OPERATORS, OPTIONS, OPTIONS_2, TABLES, TYPES
from nmpconv.ir import Given

# Numbers: of the results' integers, how many may be off by more than a step; dB where they are reals.
KINDS = [("float32", "8", 30), ("float32", "16", 60), ("float16", "16", 60), ("dynamic", "16", 35)]


@pytest.mark.parametrize(("kind", "bits", "least"), KINDS)
def test_reals_are_near_those_of_litert(kind, bits, least, tmp_path: Path, need_package):
    need_package("ai_edge_litert")
    path, fed = tmp_path / "m.tflite", samples(kind)
    path.write_bytes(net(kind))
    engine, converted = LiteRT(path.read_bytes()), nmpconv.convert(path, list(fed), bits=bits).load()
    wanted = np.array([engine.run(x)[0] for x in fed])
    error = np.array([converted.run_float(x)[0] for x in fed]) - wanted
    assert 10 * np.log10(np.square(wanted).sum() / np.square(error).sum()) > least


@pytest.mark.parametrize(("kind", "within", "least"), [("int8", 3, 25), ("int16", 64, 50)])
def test_integers_are_near_those_of_litert(kind, within, least, tmp_path: Path, need_package):
    """Ports are the file's integers, and nine results of ten are within some steps."""
    need_package("ai_edge_litert")
    path, fed = tmp_path / "m.tflite", samples(kind, 96)
    path.write_bytes(net(kind))
    engine, converted = LiteRT(path.read_bytes()), nmpconv.convert(path, list(fed[:16]), bits=kind[3:]).load()
    assert [(port.dtype, port.exponent) for port in (*converted.inputs, *converted.outputs)] == [(kind, 0)] * 2
    wanted = np.array([engine.run(x)[0] for x in fed], np.float64)
    got = np.array([converted.run_float(x.astype(np.float32))[0] for x in fed])
    assert np.array_equal(got, np.rint(got))
    assert (np.abs(got - wanted) <= within).mean() > 0.9
    zero = grid(kind, 0, 1)[1]
    assert 10 * np.log10(np.square(wanted - zero).sum() / np.square(got - wanted).sum()) > least


@pytest.mark.parametrize("kind", ["int8", "int16"])
def test_a_full_integer_file_brings_its_ranges(kind, tmp_path: Path):
    path = tmp_path / "m.tflite"
    path.write_bytes(net(kind))
    assert [port.dtype for port in nmpconv.convert(path, bits=kind[3:]).load().inputs] == [kind]


def test_tensors_and_layers_have_the_names_of_the_file(tmp_path: Path):
    """Ports are channels last, as the file has them, and no transposes are left."""
    path = tmp_path / "m.tflite"
    path.write_bytes(net("float32"))
    graph = load(path)
    assert (graph.inputs, graph.outputs) == (("x",), ("y",))
    assert graph["x"].shape == (1, 8, 9, 3)
    converted = nmpconv.convert(path, list(samples("float32")))
    model = converted.load().model
    assert "transpose" not in [op.kind for op in model.ops]
    assert [op.name for op in model.ops if op.kind != "reshape"] == ["c", "d", "s", "p", "g", "y"]
    assert {"x", "c", "d", "s", "g", "y"} <= {tensor.name for tensor in model.tensors}


def test_grids_are_noted(tmp_path: Path):
    path = tmp_path / "m.tflite"
    path.write_bytes(net("int8"))
    given = load(path).given
    scale, zero = grid("int8", -12, 12)
    assert given["g"].zero_point == zero
    assert given["g"].scale == pytest.approx(scale)
    assert given["x"] == given["y"] == Given(1.0, 0, "int8")


def test_sizes_that_are_not_fixed(tmp_path: Path):
    tensors = {
        "x": Tensor((1, 1, 1, 3), signature=(-1, -1, -1, 3)),
        "y": Tensor((1, 1, 1, 4), signature=(-1, -1, -1, 4)),
    }
    tensors["w"] = constant(rng().normal(0, 1, (4, 3, 3, 3)).astype(np.float32))
    op = Op("CONV_2D", ("x", "w"), ("y",), "Conv2DOptions", {**CONV, "stride_w": 2})
    (tmp_path / "m.tflite").write_bytes(tflite(tensors, [op], ["x"], ["y"]))
    with pytest.raises(NmpError, match=r"dimensions without a size: 1 \(\?\), 2 \(\?\).*--input-shape x=1x224x224x3"):
        load(tmp_path / "m.tflite")
    graph = load(tmp_path / "m.tflite", input_shapes={"x": (1, 5, 7, 3)})
    assert graph["y"].shape == (1, 5, 4, 4)


def test_shapes_that_follow_from_shapes(tmp_path: Path):
    """SHAPE, STRIDED_SLICE, PACK, RESHAPE: how Keras flattens a batch of any size."""
    tensors = {"x": Tensor((1, 4, 3), signature=(-1, 4, 3)), "y": Tensor((1, 12), signature=(-1, 12))}
    tensors |= {"s": Tensor((3,), "int32"), "n": Tensor((), "int32"), "p": Tensor((2,), "int32")}
    tensors |= {name: constant(np.array(value, np.int32)) for name, value in {"0": [0], "1": [1], "12": 12}.items()}
    ops = [
        Op("SHAPE", ("x",), ("s",), "ShapeOptions", {"out_type": TYPES.index("int32")}),
        Op("STRIDED_SLICE", ("s", "0", "1", "1"), ("n",), "StridedSliceOptions", {"shrink_axis_mask": 1}),
        Op("PACK", ("n", "12"), ("p",), "PackOptions", {"values_count": 2}),
        Op("RESHAPE", ("x", "p"), ("y",)),
    ]
    (tmp_path / "m.tflite").write_bytes(tflite(tensors, ops, ["x"], ["y"]))
    assert load(tmp_path / "m.tflite")["y"].shape == (1, 12)


def test_constants_that_are_computed(tmp_path: Path):
    """RANK, RANGE, FILL, ONE_HOT, FLOOR_MOD and the logical operators, which no input reaches."""
    tensors = {"x": Tensor((1, 4)), "y": Tensor((1, 4)), "h": Tensor((1, 4)), "t": Tensor((1, 4), "bool")}
    tensors |= {
        "r": Tensor((), "int32"),
        "l": Tensor((4,), "float32"),
        "f": Tensor((1, 4)),
        "m": Tensor((1, 4), "bool"),
    }
    arrays: dict[str, Any] = {"i": np.array([2], np.int32), "d": np.array(4, np.int32), "on": np.float32(1)}
    arrays |= {"off": np.float32(0), "0": np.float32(0), "4": np.float32(4), "1": np.float32(1)}
    arrays |= {
        "-3": np.array(-3, np.int32),
        "z": np.array([1, 4], np.int32),
        "k": np.array([[True, False, True, True]]),
    }
    tensors |= {name: constant(value) for name, value in arrays.items()} | {"e": Tensor((1, 4)), "o": Tensor((1, 4))}
    tensors |= {
        "a": Tensor((1, 4), "bool"),
        "n": Tensor((), "int32"),
        "q": Tensor((), "int32"),
        "c": Tensor(()),
        "u": Tensor((4,)),
    }
    ops = [
        Op("ONE_HOT", ("i", "d", "on", "off"), ("h",), "OneHotOptions", {"axis": -1}),
        Op("RANGE", ("0", "4", "1"), ("l",)),
        Op("FILL", ("z", "on"), ("f",)),
        Op("LOGICAL_NOT", ("k",), ("t",)),
        Op("LOGICAL_AND", ("t", "k"), ("a",)),
        Op("LOGICAL_OR", ("a", "k"), ("m",)),
        Op("SELECT_V2", ("m", "h", "f"), ("e",)),
        Op("RANK", ("e",), ("n",)),
        Op("FLOOR_MOD", ("n", "-3"), ("q",)),
        Op("CAST", ("q",), ("c",), "CastOptions", {}),
        Op("MUL", ("l", "c"), ("u",), "MulOptions", {}),
        Op("ADD", ("e", "u"), ("o",), "AddOptions", {}),
        Op("ADD", ("x", "o"), ("y",), "AddOptions", {}),
    ]
    (tmp_path / "m.tflite").write_bytes(tflite(tensors, ops, ["x"], ["y"]))
    proto = to_onnx((tmp_path / "m.tflite").read_bytes(), "m")
    [got] = ort.InferenceSession(proto.SerializeToString()).run(None, {"x": np.zeros((1, 4), np.float32)})
    assert got.tolist() == [[0, 0, -1, -3]]
    assert all(one.version > 0 for one in proto.opset_import)
    load(tmp_path / "m.tflite")


def test_quantized_parts_of_a_split(tmp_path: Path):
    """Each output of an operator has a grid; two are results."""
    tensors = {name: Tensor((1, size), "int8", scale=0.5) for name, size in {"x": 6, "a": 2, "b": 2, "c": 2}.items()}
    tensors["axis"] = constant(np.array(1, np.int32))
    split = Op("SPLIT", ("axis", "x"), ("a", "b", "c"), "SplitOptions", {"num_splits": 3})
    data = tflite(tensors, [split], ["x"], ["b", "c"])
    x = np.array([[1, -2, 3, -4, 5, -128]], np.int8)
    got = ort.InferenceSession(to_onnx(data, "m").SerializeToString()).run(None, {"x": x})
    assert [y.tolist() for y in got] == [[[3, -4]], [[5, -128]]]
    (tmp_path / "m.tflite").write_bytes(data)
    load(tmp_path / "m.tflite")


def cut_into_blocks(rank: int, kind: str = "CONV_2D", *, reshapes: bool = False, **options: Any) -> bytes:
    """A convolution dilated by 2 and 3, or over one axis by 3, between SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND."""
    block, length = [2, 3][4 - rank :], 9
    sizes = [11, length][4 - rank :]
    before, kernel = [2, 3][4 - rank :], [3, 3][4 - rank :]
    after = [-(size + 2 * pad) % d + pad for size, pad, d in zip(sizes, before, block, strict=True)]
    cut = [(size + a + b) // d for size, a, b, d in zip(sizes, before, after, block, strict=True)]
    made = [size - k + 1 for size, k in zip(cut, kernel, strict=True)]
    crops = [[0, size * d - whole] for size, d, whole in zip(made, block, sizes, strict=True)]
    batch = int(np.prod(block))
    tensors = {"x": Tensor((1, *sizes, 4)), "y": Tensor((1, *sizes, 4)), "s": Tensor((batch, *cut, 4))}
    tensors |= {"c": Tensor((batch, *[1] * (4 - rank), *made, 4)), "r": Tensor((batch, *made, 4))}
    tensors |= {"n": constant(np.array(block, np.int32)), "k": constant(np.array(crops, np.int32))}
    tensors["p"] = constant(np.array([before, after], np.int32).T)
    shape = (1, 3, 3, 4)[: 4 if rank == 4 else 0] or (1, 1, 3, 4)
    shape = shape if kind.startswith("DEPTH") else (4, *shape[1:])
    tensors["w"] = constant(rng().normal(0, 0.5, shape).astype(np.float32))
    tensors["b"] = constant(rng().normal(0, 0.5, 4).astype(np.float32))
    table = "Conv2DOptions" if kind == "CONV_2D" else "DepthwiseConv2DOptions"
    inner, conv = ("s", "c"), {**CONV, "padding": 1, **options} | ({"depth_multiplier": 1} if kind != "CONV_2D" else {})
    ops = [Op("SPACE_TO_BATCH_ND", "xnp", "s")]
    if rank == 3:
        tensors |= {
            "e": Tensor((batch, 1, *cut, 4)),
            "1": constant(np.array(1, np.int32)),
            "q": Tensor((batch, *made, 4)),
        }
        ops.append(Op("EXPAND_DIMS", "s1", "e"))
        inner = ("e", "c")
    ops.append(Op(kind, (inner[0], "w", "b"), inner[1:], table, conv))
    if rank == 3:
        tensors["h"] = constant(np.array([-1, *made, 4], np.int32))
        squeeze = Op("SQUEEZE", "c", "q", "SqueezeOptions", {"squeeze_dims": [1]})
        ops.append(Op("RESHAPE", "ch", "q") if reshapes else squeeze)
    ops += [Op("LOGISTIC", "q" if rank == 3 else "c", "r"), Op("BATCH_TO_SPACE_ND", "rnk", "y")]
    return tflite(tensors, ops, ["x"], ["y"])


BLOCKS = [(4, "CONV_2D", False), (4, "DEPTHWISE_CONV_2D", False), (3, "CONV_2D", False), (3, "CONV_2D", True)]


@pytest.mark.parametrize(("rank", "kind", "reshapes"), BLOCKS)
def test_images_that_are_cut_into_blocks(rank, kind, reshapes, tmp_path: Path, need_package):
    need_package("ai_edge_litert")
    path = tmp_path / "m.tflite"
    path.write_bytes(cut_into_blocks(rank, kind, reshapes=reshapes))
    x = rng().normal(0, 1, (1, *(11, 9)[4 - rank :], 4)).astype(np.float32)
    [wanted] = LiteRT(path.read_bytes()).run(x)
    [got] = ort.InferenceSession(to_onnx(path.read_bytes(), "m").SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(got, wanted, atol=1e-5)
    assert [node.op for node in load(path).nodes].count("conv2d") == 1


def test_blocks_that_are_not_joined_again(tmp_path: Path):
    (tmp_path / "m.tflite").write_bytes(cut_into_blocks(4, stride_w=2))
    with pytest.raises(UnsupportedModel, match=r"strides \[1, 2\] on images that are cut into blocks"):
        load(tmp_path / "m.tflite")


def lstm(**options: Any) -> bytes:
    random, places = rng(), [""] * 24
    tensors = {"x": Tensor((1, 6, 3)), "y": Tensor((1, 6, 4))}
    for first, shape in ((1, (4, 3)), (5, (4, 4)), (12, (4,))):
        for i in range(first, first + 4):
            places[i] = f"w{i}"
            tensors[places[i]] = constant(random.normal(0, 0.6, shape).astype(np.float32))
    for i in (18, 19):
        places[i] = f"s{i}"
        tensors[places[i]] = Tensor((1, 4), more={"is_variable": True})
    places[0] = "x"
    table = "UnidirectionalSequenceLSTMOptions"
    op = Op("UNIDIRECTIONAL_SEQUENCE_LSTM", places, ["y"], table, {"fused_activation_function": 4, **options})
    return tflite(tensors, [op], ["x"], ["y"])


def test_lstm_is_that_of_litert(tmp_path: Path, need_package):
    need_package("ai_edge_litert")
    path, x = tmp_path / "m.tflite", rng().normal(0, 1, (1, 6, 3)).astype(np.float32)
    path.write_bytes(lstm())
    [wanted] = LiteRT(path.read_bytes()).run(x)
    [got] = ort.InferenceSession(to_onnx(path.read_bytes(), "m").SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(got, wanted, atol=1e-5)
    assert load(path)["y"].shape == (1, 6, 4)


# -- what is refused --------------------------------------------------------------------------------------------------


def test_operators_that_are_not_read_are_named(tmp_path: Path):
    """All of them at once, with where the model can be cut."""
    tensors = {name: Tensor((1, 8)) for name in "xabcyz"}
    ops = [Op("TANH", ("x",), ("a",)), Op("UNIQUE", ("a",), ("b",)), Op("RELU", ("b",), ("y",))]
    ops += [Op("Mine", ("a",), ("c",)), Op("TANH", ("c",), ("z",))]
    (tmp_path / "m.tflite").write_bytes(tflite(tensors, ops, ["x"], ["y", "z"]))
    with pytest.raises(UnsupportedModel) as caught:
        load(tmp_path / "m.tflite")
    assert "2 node(s) cannot be converted" in str(caught.value)
    assert "b (tflite.UNIQUE): nmpconv does not read this operator of TFLite" in str(caught.value)
    assert "c (tflite.Mine)" in str(caught.value)
    assert caught.value.cut == ("a",)
    assert load(tmp_path / "m.tflite", outputs=["a"]).outputs == ("a",)


REFUSED: list[tuple[str, Op, Mapping[str, Tensor], str]] = [
    (
        "activation",
        Op("ADD", "xx", "y", "AddOptions", {"fused_activation_function": 5}),
        {},
        "fused activation SIGN_BIT",
    ),
    (
        "computed size",
        Op("SLICE", "xab", "y"),
        {"a": Tensor((2,), "int32"), "b": Tensor((2,), "int32")},
        "its starts 'y.cast' is computed from the input",
    ),
    (
        "batch_dims",
        Op("GATHER", "xa", "y", "GatherOptions", {"batch_dims": 1}),
        {"a": constant(np.int32([[0]]))},
        "batch_d",
    ),
    (
        "shuffled",
        Op("FULLY_CONNECTED", "xw", "y", "FullyConnectedOptions", {"weights_format": 1}),
        {"w": constant(np.zeros((8, 8), np.float32))},
        "shuffled weights",
    ),
]


@pytest.mark.parametrize(("op", "more", "message"), [pytest.param(*row[1:], id=row[0]) for row in REFUSED])
def test_forms_that_are_not_read(op, more, message, tmp_path: Path):
    inputs = ["x", *(name for name, tensor in more.items() if tensor.data is None)]
    data = tflite({"x": Tensor((1, 8)), "y": Tensor((1, 8)), **more}, [op], inputs, ["y"])
    (tmp_path / "m.tflite").write_bytes(data)
    with pytest.raises(UnsupportedModel, match=re.escape(message)):
        load(tmp_path / "m.tflite")


def test_blocks_have_a_size(tmp_path: Path) -> None:
    more = {"n": constant(np.int32([0])), "p": constant(np.int32([[0, 0]]))}
    data = tflite({"x": Tensor((1, 8)), "y": Tensor((1, 8)), **more}, [Op("SPACE_TO_BATCH_ND", "xnp", "y")], "x", "y")
    (tmp_path / "m.tflite").write_bytes(data)
    with pytest.raises(NmpError, match=r"blocks \[0\] of an input of 2 dimensions"):
        load(tmp_path / "m.tflite")


def damaged(**fields: Any) -> bytes:
    return tflite({"x": Tensor((1, 8)), "w": Tensor((8,), **fields), "y": Tensor((1, 8))},
                  [Op("MUL", "xw", "y")], ["x"], ["y"])  # fmt: skip


WHOLE = np.ones(8, np.float32)
DAMAGED: list[tuple[str, bytes, str]] = [
    ("size of data", damaged(data=WHOLE[:7]), "tensor 'w', float32 [8], has 28 bytes and needs 32"),
    ("type", damaged(more={"type": 77}), "tensor 'w' has type 77"),
    ("buffer", damaged(more={"buffer": 9}), "tensor 'w' has buffer 9 of 1"),
    ("rank", damaged(more={"shape": [1] * 9}), "tensor 'w' has 9 dimensions"),
    ("size", damaged(more={"shape": [-3]}), "tensor 'w' has size -3"),
    ("scale", damaged(scale=float("nan")), "tensor 'w' has scale nan"),
    ("scales", damaged(scale=[1.0, 2.0]), "tensor 'w' of shape [8] has 2 scales on axis 0"),
    ("sparse", damaged(data=WHOLE, more={"sparsity": {}}), "tensor 'w' is sparse, its axes are not those"),
    ("stride", tflite({n: Tensor((1, 4, 4, 1)) for n in "xwy"}, [Op("CONV_2D", "xw", "y", "Conv2DOptions", {})],
                      ["x"], ["y"]), "operator 0 (CONV_2D) is malformed: stride_h 0"),
    ("no inputs", tflite({"x": Tensor((1, 8)), "y": Tensor((1, 8))}, [Op("ADD", "x", "y")], ["x"], ["y"]),
     "operator 0 (ADD) is malformed: it has no input 1"),
    ("outputs", tflite({"x": Tensor((1, 8)), "y": Tensor((1, 8))}, [Op("TANH", "x", "yy")], ["x"], ["y"]),
     "operator 0 (TANH) is malformed: 2 outputs, 1 allowed"),
    ("no outputs", tflite({"x": Tensor((1, 8))}, [], ["x"], []), "it has no outputs"),
    ("zero point of an input", tflite({"x": Tensor((1, 8), "int8", scale=1.0, zero=200), "y": Tensor((1, 8))},
                                      [Op("DEQUANTIZE", "x", "y")], ["x"], ["y"]), "tensor 'x' has zero point 200"),
    ("channels", tflite({"x": Tensor((1, 2), "int8", scale=[1.0, 2.0], axis=1), "y": Tensor((1, 2))},
                        [Op("DEQUANTIZE", "x", "y")], ["x"], ["y"]), "tensor 'x' has a scale for each channel"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "message"), [pytest.param(*row[1:], id=row[0]) for row in DAMAGED])
def test_what_makes_no_sense(data, message):
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        to_onnx(data, "m.tflite")
    assert str(caught.value).startswith("m.tflite: ")


def test_a_file_that_is_cut_anywhere(tmp_path: Path):
    data = net("int8")
    for size in [*range(0, 400, 3), *range(400, len(data), 211)]:
        path = tmp_path / "m.tflite"
        path.write_bytes(data[:size])
        with pytest.raises(NmpError):
            load(path)


def test_bytes_that_are_changed(tmp_path: Path):
    """Another model, or an error of ours; never another exception."""
    data, random, refused = net("int8"), rng(), 0
    for _ in range(200):
        changed = bytearray(data)
        for place in random.integers(8, len(data), 3):
            changed[place] = random.integers(256)
        (tmp_path / "m.tflite").write_bytes(changed)
        try:
            load(tmp_path / "m.tflite")
        except NmpError:
            refused += 1
    assert refused > 10


def test_parts_that_are_shared_are_not_read_without_end():
    """Buffers of 60 tensors in the same 40,000 bytes. A file that has them twice is read."""
    numbers = np.ones(10_000, np.float32)
    op = Op("ADD", "x0", "y")
    for count, fine in ((2, True), (60, False)):
        tensors = {"x": Tensor((10_000,)), "y": Tensor((10_000,))} | {f"{i}": constant(numbers) for i in range(count)}
        data = tflite(tensors, [op], ["x"], ["y"])
        assert len(data) < 60_000
        if fine:
            to_onnx(data, "m")
            continue
        with pytest.raises(InputError, match="its parts share bytes"):
            to_onnx(data, "m")


# -- the schema -------------------------------------------------------------------------------------------------------


NUMBERS = {"bool", "byte", "ubyte", "short", "int", "uint", "long", "ulong", "float"}


def names(kind: type) -> dict[int, str]:
    return {number: name for name, number in vars(kind).items() if not name.startswith("_")}


def test_numbers_are_those_of_litert(need_package):
    need_package("ai_edge_litert")
    from ai_edge_litert import schema_py_generated as theirs

    operators, types, options, later = (
        names(getattr(theirs, name)) for name in ("BuiltinOperator", "TensorType", "BuiltinOptions", "BuiltinOptions2")
    )
    assert dict(enumerate(OPERATORS)) == {i: operators[i] for i in range(len(OPERATORS))}
    assert dict(enumerate(TYPES)) == {i: types[i].lower() for i in range(len(TYPES))}
    assert ({n: options[n] for n in OPTIONS}, {n: later[n] for n in OPTIONS_2}) == (OPTIONS, OPTIONS_2)


@pytest.mark.parametrize("table", TABLES)
def test_slots_are_those_of_litert(table, need_package):
    """LiteRT's generated code asks a table for the place of slot n by 4 + 2 n; 0 is none, and means the default."""
    need_package("ai_edge_litert")
    from ai_edge_litert import schema_py_generated as theirs

    kind = getattr(
        theirs, {"Quantization": "QuantizationParameters", "Sparsity": "SparsityParameters"}.get(table, table)
    )

    class Asked(Exception):
        pass

    class Table:
        def Offset(self, place: int) -> int:  # noqa: N802
            raise Asked((place - 4) // 2)

    class Empty:
        def Offset(self, place: int) -> int:  # noqa: N802
            return 0

    for name, field in TABLES[table].items():
        reader = kind()
        reader._tab = Table()
        method = getattr(reader, "".join(part.capitalize() for part in name.split("_")).replace("Hfactor", "HFactor"))
        arguments: Sequence[int] = (0,) if field.is_vector else ()
        with pytest.raises(Asked) as asked:
            method(*arguments)
        assert asked.value.args == (field.slot,), name
        if not field.is_vector and field.type in NUMBERS:
            reader._tab = Empty()
            assert method() == field.default, name
