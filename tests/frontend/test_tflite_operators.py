"""Each TFLite operator, next to LiteRT's interpreter: as an ONNX model, and as the float graph of the importer."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from tflite_files import LiteRT, Op, Tensor, constant, tflite

from nmpconv.frontend.onnx import load
from nmpconv.frontend.tflite import to_onnx as translated
from nmpconv.frontend.tflite.operators import WRITERS
from nmpconv.frontend.to_onnx import to_onnx

IMAGE, VOLUME = (1, 6, 7, 4), (1, 4, 5, 6, 3)
SAME, VALID = 0, 1
RELU, RELU_N1, RELU6 = 1, 2, 3


class Case:
    """One operator. inputs: shapes of what is fed, and constants. options: of the table of this name."""

    def __init__(
        self,
        label: str,
        *inputs: Any,
        out: Sequence[Any] = ((),),
        table: str = "",
        low: float = -2.0,
        high: float = 2.0,
        within: float = 1e-5,
        **options: Any,
    ) -> None:
        self.label, self.kind = label, label.split()[0]
        self.inputs, self.out, self.table, self.options = inputs, out, table, options
        self.low, self.high, self.within = low, high, within

    def file(self) -> tuple[bytes, list[tuple[int, ...]]]:
        tensors, fed = {}, []
        for i, one in enumerate(self.inputs):
            if one is None:
                continue
            tensors[f"in{i}"] = one if isinstance(one, Tensor) else Tensor(one)
            if tensors[f"in{i}"].data is None:
                fed.append(f"in{i}")
        for i, one in enumerate(self.out):
            tensors[f"out{i}"] = one if isinstance(one, Tensor) else Tensor(one)
        names = ["" if one is None else f"in{i}" for i, one in enumerate(self.inputs)]
        ends = [f"out{i}" for i in range(len(self.out))]
        op = Op(self.kind, names, ends, self.table, self.options)
        return tflite(tensors, [op], fed, ends), [tuple(tensors[name].shape) for name in fed]


def weights(*shape: int) -> Tensor:
    return constant(np.random.default_rng(1).normal(0, 0.5, shape).astype(np.float32))


def ints(*numbers: Any) -> Tensor:
    return constant(np.array(numbers, np.int32))


def conv(label: str, w: Sequence[int], *more: Any, x: Sequence[int] = IMAGE, **options: Any) -> Case:
    table = "DepthwiseConv2DOptions" if label.startswith("DEPTH") else "Conv2DOptions"
    options = {"stride_w": 1, "stride_h": 1, "padding": SAME, **options}
    return Case(label, x, weights(*w), *more, table=table, **options)


def pool(kind: str, padding: int, **options: Any) -> Case:
    size = {"filter_width": 3, "filter_height": 2, "stride_w": 2, "stride_h": 1}
    return Case(f"{kind} {padding} {options}", IMAGE, table="Pool2DOptions", padding=padding, **size, **options)


def pointwise(kind: str, **options: Any) -> Case:
    return Case(kind, IMAGE, **options)


def pair(kind: str, **options: Any) -> list[Case]:
    return [
        Case(kind, IMAGE, IMAGE, **options),
        Case(f"{kind} constant", IMAGE, constant(np.array([0.5, 1.5, 0.7, 2.0], np.float32)), **options),
    ]


def transposed(label: str, out: tuple[int, ...], w: Sequence[int], *more: Any, **options: Any) -> Case:
    options = {"stride_w": 2, "stride_h": 2, "padding": SAME, **options}
    return Case(
        f"TRANSPOSE_CONV {label}",
        *(ints(*out), weights(*w), (1, 5, 4, 3), *more),
        out=[out],
        table="TransposeConvOptions",
        **options,
    )


def volume(label: str, *inputs: Any, strides: Sequence[int], **options: Any) -> Case:
    """strides: of depth, height and width."""
    names = ("stride_d", "stride_h", "stride_w")
    options |= dict(zip(names, strides, strict=True))
    return Case(label, *inputs, table="Conv3DOptions", **options)


def sliced(label: str, begin: Any, end: Any, strides: Any, **masks: Any) -> Case:
    return Case(
        f"STRIDED_SLICE {label}", IMAGE, ints(*begin), ints(*end), ints(*strides), table="StridedSliceOptions", **masks
    )


def resized(kind: str, *size: int, **options: Any) -> Case:
    table = "ResizeBilinearOptions" if "BI" in kind else "ResizeNearestNeighborOptions"
    return Case(f"{kind} {size} {options}", IMAGE, ints(*size), table=table, **options)


def reduced(kind: str, *axes: int, **options: Any) -> Case:
    return Case(f"{kind} {axes} {options}", IMAGE, ints(*axes), table="ReducerOptions", low=0.5, **options)


BOOLS = [Tensor((), "bool")]
INT32 = [Tensor((), "int32")]
CASES = [
    conv("CONV_2D", (5, 3, 3, 4), weights(5)),
    volume("CONV_3D", VOLUME, weights(2, 3, 3, 3, 5), weights(5), strides=(1, 2, 1), padding=SAME),
    volume(
        "CONV_3D dilated",
        VOLUME,
        weights(2, 3, 2, 3, 5),
        strides=(1, 1, 1),
        padding=VALID,
        dilation_d_factor=1,
        dilation_h_factor=2,
        dilation_w_factor=3,
        fused_activation_function=RELU,
    ),
    volume(
        "CONV_3D_TRANSPOSE",
        *(ints(1, 8, 5, 12, 4), weights(2, 3, 3, 4, 3), VOLUME, weights(4)),
        out=[(1, 8, 5, 12, 4)],
        strides=(2, 1, 2),
        padding=SAME,
    ),
    volume(
        "CONV_3D_TRANSPOSE valid",
        *(ints(1, 5, 7, 14, 4), weights(2, 3, 3, 4, 3), VOLUME),
        out=[(1, 5, 7, 14, 4)],
        strides=(1, 1, 2),
        padding=VALID,
    ),
    conv("CONV_2D strides relu6", (5, 2, 3, 4), weights(5), stride_w=2, stride_h=3, fused_activation_function=RELU6),
    conv("CONV_2D valid relu", (5, 2, 3, 4), weights(5), padding=VALID, fused_activation_function=RELU),
    conv("CONV_2D dilated", (5, 2, 3, 4), weights(5), dilation_w_factor=2, dilation_h_factor=3),
    conv("CONV_2D dilated valid", (5, 2, 3, 4), weights(5), dilation_w_factor=2, padding=VALID),
    conv("CONV_2D groups", (6, 3, 3, 2), weights(6), stride_w=2, stride_h=2),
    conv("CONV_2D even", (5, 4, 2, 4), weights(5), stride_h=2),
    conv("DEPTHWISE_CONV_2D", (1, 3, 3, 4), weights(4), depth_multiplier=1),
    conv("DEPTHWISE_CONV_2D multiplier", (1, 3, 2, 8), weights(8), depth_multiplier=2, stride_w=2, stride_h=2),
    conv(
        "DEPTHWISE_CONV_2D dilated",
        (1, 3, 2, 4),
        weights(4),
        depth_multiplier=1,
        dilation_w_factor=2,
        dilation_h_factor=2,
        fused_activation_function=RELU_N1,
    ),
    transposed("same", (1, 10, 8, 6), (6, 3, 3, 3)),
    transposed("same odd", (1, 9, 7, 6), (6, 3, 3, 3), weights(6)),
    transposed("same strides", (1, 15, 4, 6), (6, 4, 5, 3), stride_h=3, stride_w=1, fused_activation_function=RELU),
    transposed("valid", (1, 11, 9, 6), (6, 3, 3, 3), padding=VALID),
    transposed("valid wide", (1, 12, 10, 6), (6, 3, 3, 3), padding=VALID),
    transposed("small kernel", (1, 10, 8, 6), (6, 1, 1, 3)),
    *(pool(kind, padding) for kind in ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D") for padding in (SAME, VALID)),
    pool("MAX_POOL_2D", SAME, fused_activation_function=RELU),
    Case("FULLY_CONNECTED", (1, 12), weights(5, 12), weights(5), table="FullyConnectedOptions"),
    Case(
        "FULLY_CONNECTED flat",
        (1, 3, 4),
        weights(5, 12),
        None,
        table="FullyConnectedOptions",
        fused_activation_function=RELU,
    ),
    Case(
        "FULLY_CONNECTED rows",
        (1, 3, 12),
        weights(5, 12),
        weights(5),
        table="FullyConnectedOptions",
        keep_num_dims=True,
    ),
    Case("FULLY_CONNECTED no options", (1, 12), weights(5, 12)),
    Case("FULLY_CONNECTED computed", (1, 12), (5, 12), table="FullyConnectedOptions"),
    *pair("ADD", table="AddOptions", fused_activation_function=RELU),
    *pair("SUB", table="SubOptions"),
    *pair("MUL", table="MulOptions", fused_activation_function=RELU6),
    *pair("DIV", table="DivOptions", low=0.5),
    *pair("MAXIMUM"),
    *pair("MINIMUM"),
    *pair("SQUARED_DIFFERENCE"),
    Case("POW", IMAGE, constant(np.float32(3)), low=0.1),
    Case("FLOOR_DIV", IMAGE, constant(np.float32(0.75))),
    Case("FLOOR_MOD", IMAGE, constant(np.float32(0.75))),
    Case("ADD_N", IMAGE, IMAGE, IMAGE),
    *(
        pointwise(kind)
        for kind in ("ABS", "CEIL", "COS", "ELU", "EXP", "FLOOR", "HARD_SWISH", "LOGISTIC", "LOG_SOFTMAX")
    ),
    *(pointwise(kind) for kind in ("NEG", "RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1", "ROUND", "SIGN", "SIN")),
    *(pointwise(kind) for kind in ("SQUARE", "TANH", "ZEROS_LIKE")),
    *(pointwise(kind, low=0.2) for kind in ("LOG", "RSQRT", "SQRT")),
    pointwise("GELU", table="GeluOptions"),
    Case("GELU tanh", IMAGE, table="GeluOptions", approximate=True),
    pointwise("SOFTMAX", table="SoftmaxOptions", beta=1.0),
    Case("SOFTMAX beta", IMAGE, table="SoftmaxOptions", beta=0.25),
    pointwise("LEAKY_RELU", table="LeakyReluOptions", alpha=0.3),
    Case("PRELU", IMAGE, constant(np.array([[[0.1, -0.2, 0.3, 1.5]]], np.float32))),
    pointwise("L2_NORMALIZATION", table="L2NormOptions"),
    pointwise(
        "LOCAL_RESPONSE_NORMALIZATION",
        table="LocalResponseNormalizationOptions",
        radius=1,
        bias=1.5,
        alpha=0.3,
        beta=0.6,
    ),
    Case("FAKE_QUANT", IMAGE, table="FakeQuantOptions", min=-1.03, max=1.5, num_bits=8, within=0.0051),
    *(
        reduced(kind, *axes, keep_dims=keep)
        for kind in ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN")
        for axes, keep in (((1, 2), False), ((1, 2), True), ((-1,), False))
    ),
    reduced("REDUCE_PROD", 2),
    Case("ARG_MAX", IMAGE, ints(3), table="ArgMaxOptions", output_type=4, out=[Tensor((), "int64")]),
    Case("ARG_MAX int32", IMAGE, constant(np.array(-1, np.int32)), table="ArgMaxOptions", output_type=2, out=INT32),
    Case("ARG_MIN", IMAGE, ints(1), table="ArgMinOptions", output_type=2, out=INT32),
    Case("TOPK_V2", (1, 12), constant(np.array(3, np.int32)), out=[(), Tensor((), "int32")]),
    Case("CUMSUM", IMAGE, constant(np.array(2, np.int32)), table="CumsumOptions", exclusive=True, reverse=True),
    *(
        Case(kind, IMAGE, constant(np.float32(0.1)), out=BOOLS)
        for kind in ("GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL")
    ),
    Case("ATAN2", IMAGE, IMAGE),
    Case("BUCKETIZE", IMAGE, table="BucketizeOptions", boundaries=np.float32([-1, 0, 0.5]), out=INT32),
    Case("EQUAL", IMAGE, constant(np.float32(0.1)), out=BOOLS),
    Case("NOT_EQUAL", IMAGE, constant(np.float32(0.1)), out=BOOLS),
    Case("RESHAPE", IMAGE, ints(1, 3, -1), table="ReshapeOptions"),
    Case("RESHAPE options", IMAGE, table="ReshapeOptions", new_shape=[1, 6, 28]),
    Case("SQUEEZE", (1, 5, 1, 3), table="SqueezeOptions", squeeze_dims=[2]),
    Case("SQUEEZE all", (1, 5, 1, 3), table="SqueezeOptions"),
    Case("EXPAND_DIMS", (1, 5, 3), constant(np.array(-1, np.int32))),
    Case("CONCATENATION", IMAGE, IMAGE, constant(np.ones(IMAGE, np.float32)), table="ConcatenationOptions", axis=-1),
    Case("PACK", (1, 5, 3), (1, 5, 3), table="PackOptions", axis=2, values_count=2),
    Case("UNPACK", (1, 5, 3), table="UnpackOptions", axis=2, num=3, out=[(), (), ()]),
    Case("SPLIT", constant(np.array(3, np.int32)), IMAGE, table="SplitOptions", num_splits=2, out=[(), ()]),
    Case(
        "SPLIT_V",
        IMAGE,
        ints(1, -1),
        constant(np.array(2, np.int32)),
        table="SplitVOptions",
        num_splits=2,
        out=[(), ()],
    ),
    Case("TRANSPOSE", IMAGE, ints(0, 3, 1, 2)),
    Case("PAD", IMAGE, ints([0, 0], [1, 2], [0, 3], [1, 0])),
    Case("PADV2", IMAGE, ints([0, 0], [1, 2], [0, 3], [1, 0]), constant(np.float32(-1.5))),
    Case("MIRROR_PAD reflect", IMAGE, ints([0, 0], [1, 2], [3, 0], [0, 0]), table="MirrorPadOptions", mode=0),
    Case("MIRROR_PAD symmetric", IMAGE, ints([0, 0], [1, 2], [3, 0], [0, 0]), table="MirrorPadOptions", mode=1),
    Case("SLICE", IMAGE, ints(0, 1, 2, 0), ints(1, 3, -1, 2)),
    sliced("plain", (0, 1, 0, 1), (1, 5, 7, 4), (1, 2, 3, 1)),
    sliced("masks", (0, 2, 3, 1), (1, 4, 4, 3), (1, 1, 1, 2), begin_mask=4, end_mask=10),
    sliced("index", (0, 2, 0, -1), (1, 3, 7, 0), (1, 1, 1, 1), shrink_axis_mask=10),
    sliced("new axis", (0, 0, 1, 0), (0, 0, 3, 0), (1, 1, 1, 1), new_axis_mask=2, end_mask=9, begin_mask=9),
    sliced("ellipsis", (0, 0, 1), (0, 0, 3), (1, 1, 1), ellipsis_mask=2, begin_mask=1, end_mask=1),
    sliced("backwards", (0, 0, 5, 0), (1, 6, 1, 4), (1, 1, -1, -1), begin_mask=8, end_mask=8),
    Case("GATHER", IMAGE, ints(3, 0, 2), table="GatherOptions", axis=3),
    Case("GATHER index", IMAGE, constant(np.array(2, np.int32)), table="GatherOptions", axis=1),
    Case("GATHER_ND", (6, 7), ints([1, 2], [5, 0])),
    Case("EMBEDDING_LOOKUP", ints(3, 1), (6, 7)),
    Case("SCATTER_ND", ints([3], [0], [3]), (3, 4), ints(5, 4)),
    Case("TILE", (1, 3, 2, 4), ints(1, 2, 1, 3)),
    Case("BROADCAST_TO", (1, 3, 1, 4), ints(1, 3, 5, 4)),
    Case("REVERSE_V2", IMAGE, ints(2)),
    Case("BATCH_MATMUL", (1, 2, 3, 4), (1, 2, 4, 5), table="BatchMatMulOptions"),
    Case("BATCH_MATMUL adjoint", (1, 2, 4, 3), (1, 2, 5, 4), table="BatchMatMulOptions", adj_x=True, adj_y=True),
    Case("BATCH_MATMUL constant", (1, 3, 4), weights(1, 5, 4), table="BatchMatMulOptions", adj_y=True),
    Case("DEPTH_TO_SPACE", (1, 3, 2, 8), table="DepthToSpaceOptions", block_size=2),
    Case("SPACE_TO_DEPTH", (1, 6, 4, 3), table="SpaceToDepthOptions", block_size=2),
    *(
        resized("RESIZE_BILINEAR", h, w, **{flag: True} if flag else {})
        for h, w in ((12, 14), (9, 5))
        for flag in ("", "align_corners", "half_pixel_centers")
    ),
    *(
        resized("RESIZE_NEAREST_NEIGHBOR", h, w, **{flag: True} if flag else {})
        for h, w in ((12, 14), (9, 5))
        for flag in ("", "align_corners", "half_pixel_centers")
    ),
    Case("SELECT_V2", constant(np.array([True, False, True, False])), IMAGE, IMAGE),
    Case("SELECT", constant(np.arange(168).reshape(IMAGE) % 3 == 0), IMAGE, IMAGE),
    Case("CAST", Tensor(IMAGE, "uint8"), table="CastOptions", in_data_type=3, out_data_type=0),
    Case("QUANTIZE", IMAGE, out=[Tensor((), "int8", scale=0.02, zero=5)], within=1.0),
    Case("DEQUANTIZE", Tensor(IMAGE, "int8", scale=0.03, zero=5)),
]


def engine(proto: onnx.ModelProto) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def feeds(case: Case, names: Sequence[Any], shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    rng = np.random.default_rng(zlib.crc32(case.label.encode()))
    found = []
    for port, shape in zip(names, shapes, strict=True):
        if "float" in port.type:
            found.append(rng.uniform(case.low, case.high, shape).astype(np.float32))
        else:
            kind = port.type[len("tensor(") : -1]
            found.append(rng.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, shape).astype(kind))
    return found


@pytest.mark.parametrize("case", [pytest.param(case, id=case.label) for case in CASES])
def test_same_numbers_as_litert(case, tmp_path: Path, need_package):
    need_package("ai_edge_litert")
    data, shapes = case.file()
    session = engine(translated(data, "m.tflite"))
    fed = feeds(case, session.get_inputs(), shapes)
    named = {port.name: x for port, x in zip(session.get_inputs(), fed, strict=True)}
    wanted, got = LiteRT(data).run(*fed), session.run(None, named)
    assert [x.shape for x in got] == [x.shape for x in wanted]
    for theirs, ours in zip(wanted, got, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=case.within)
    path = tmp_path / "m.tflite"
    path.write_bytes(data)
    graph = load(path)
    floats = engine(to_onnx(graph, graph.outputs)).run(None, {k: x.astype(np.float32) for k, x in named.items()})
    for theirs, ours in zip(wanted, floats, strict=True):
        np.testing.assert_allclose(ours, theirs.astype(np.float32), rtol=1e-4, atol=10 * case.within)


def test_each_operator_has_a_case():
    """Here, or in a network of the other files."""
    folder = Path(__file__).parent
    files = (*folder.glob("test_tflite_[cms]*.py"), folder.parent / "tflite_nets.py")
    networks = "".join(file.read_text(encoding="utf-8") for file in files)
    assert set(WRITERS) - {case.kind for case in CASES} <= set(re.findall(r'"([A-Za-z0-9_]+)"', networks))
