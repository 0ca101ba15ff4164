"""The ops' cases against TFLite's reference kernels of int8: the same integers but for the rule of rounding.

A product is halved there before it is shifted, each time rounded: the half upwards, what is shifted away from zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from test_quantized_operators import Twin, exponent_of, parts, twins
from tflite_files import LiteRT, Op, Tensor, constant, tflite

from nmpconv.ir import Value
from nmpconv.ops import Case

pytestmark = pytest.mark.slow

VALID = 1  # padding
ADDED_BITS = 20  # below the grids of operands, on which they are added


def away(v: np.ndarray, den: Any) -> np.ndarray:
    """v / den, from the middle between two away from zero."""
    return np.sign(v) * ((2 * np.abs(v) + den) // (2 * den))


def once(twin: Twin) -> np.ndarray:
    shift = np.broadcast_to(twin.shift, twin.exact.shape)
    return away(twin.exact << np.maximum(-shift, 0), twin.count << np.maximum(shift, 0))


def twice(twin: Twin) -> np.ndarray:
    shift = np.broadcast_to(twin.shift, twin.exact.shape)
    half = (twin.exact + 1) >> 1
    return np.where(shift > 0, away(half, 1 << np.maximum(shift - 1, 0)), twin.exact << np.maximum(-shift, 0))


def tensor(value: Value, data: np.ndarray | None = None, shape: tuple[int, ...] | None = None) -> Tensor:
    assert value.quant is not None
    scale = np.ldexp(np.float32(1), value.quant.exponents)
    if data is None:
        return Tensor(shape or value.shape, "int8", scale=scale)
    return constant(data, scale=scale)


def constants(ins: Sequence[Value], w: np.ndarray, b: np.ndarray) -> dict[str, Tensor]:
    """Weights and biases, with a scale for each channel."""
    assert ins[1].quant is not None
    scales = np.ldexp(np.float32(1), np.broadcast_to(ins[1].quant.exponents, w.shape[:1]))
    return {"w": constant(w, scale=scales), "b": constant(b, scale=np.ldexp(scales, exponent_of(ins[0])))}


def conv2d(case: Case, twin: Twin) -> tuple[Op, Mapping[str, Tensor]] | None:
    p, ins, y, (x, w, *_) = parts(case)
    if p.groups > 1 or any(twin.attributes["pads"]) or x.shape[0] > 1:
        return None
    options = {"padding": VALID, "stride_h": p.stride_h, "stride_w": p.stride_w}
    options |= {"dilation_h_factor": p.dilation_h, "dilation_w_factor": p.dilation_w}
    tensors = {"x": tensor(ins[0]), **constants(ins, w, twin.inputs["b"]), "y": tensor(y)}
    return Op("CONV_2D", ("x", "w", "b"), ("y",), "Conv2DOptions", options), tensors


def fully_connected(case: Case, twin: Twin) -> tuple[Op, Mapping[str, Tensor]] | None:
    _, ins, y, (x, w, _) = parts(case)
    flat = x.reshape(-1, x.shape[-1])
    tensors = {"x": tensor(ins[0], shape=flat.shape), **constants(ins, w, twin.inputs["c"])}
    tensors["y"] = tensor(y, shape=(len(flat), len(w)))
    return Op("FULLY_CONNECTED", ("x", "w", "b"), ("y",), "FullyConnectedOptions", {}), tensors


def binary(kind: str, table: str) -> Callable[..., tuple[Op, Mapping[str, Tensor]] | None]:
    def of(case: Case, twin: Twin) -> tuple[Op, Mapping[str, Tensor]] | None:
        _, ins, y, arrays = parts(case)
        if max(len(value.shape) for value in ins) > 4 or ins[0] is ins[1] or not min(len(v.shape) for v in ins):
            return None
        if kind == "ADD" and abs(exponent_of(ins[0]) - exponent_of(ins[1])) > ADDED_BITS:
            return None
        data = [None if value.data is None else array for value, array in zip(ins, arrays, strict=True)]
        tensors = {"x": tensor(ins[0], data[0]), "b": tensor(ins[1], data[1]), "y": tensor(y)}
        return Op(kind, ("x", "b"), ("y",), table, {}), tensors

    return of


def pool(kind: str) -> Callable[..., tuple[Op, Mapping[str, Tensor]] | None]:
    def of(case: Case, twin: Twin) -> tuple[Op, Mapping[str, Tensor]] | None:
        p, ins, y, _ = parts(case)
        is_padded = any((p.pad_top, p.pad_left, p.pad_bottom, p.pad_right))
        if is_padded or exponent_of(ins[0]) != exponent_of(y) or getattr(p, "dilation_h", 1) > 1:
            return None
        options = {"padding": VALID, "stride_h": p.stride_h, "stride_w": p.stride_w}
        options |= {"filter_height": p.kernel_h, "filter_width": p.kernel_w}
        return Op(kind, ("x",), ("y",), "Pool2DOptions", options), {"x": tensor(ins[0]), "y": tensor(y)}

    return of


def concat(case: Case, twin: Twin) -> tuple[Op, Mapping[str, Tensor]] | None:
    p, ins, y, _ = parts(case)
    if len({id(value) for value in ins}) < len(ins):
        return None
    tensors = {f"x{i}": tensor(v, v.data) for i, v in enumerate(ins)}
    return Op("CONCATENATION", list(tensors), ("y",), "ConcatenationOptions", {"axis": p.axis}), tensors | {
        "y": tensor(y)
    }


KERNELS = {
    "conv2d": (conv2d, twice),
    "fully_connected": (fully_connected, twice),
    "add": (binary("ADD", "AddOptions"), once),
    "mul": (binary("MUL", "MulOptions"), twice),
    "average_pool": (pool("AVERAGE_POOL_2D"), once),
    "max_pool": (pool("MAX_POOL_2D"), once),
    "concat": (concat, once),
}


@pytest.mark.parametrize("op", KERNELS)
def test_integers_are_those_of_tflite(
    op: str, need_package: Callable[..., None], record_property: Callable[[str, str], None]
) -> None:
    """Ours are the exact numbers rounded half up: `test_quantized_operators`."""
    need_package("ai_edge_litert")
    build, rule = KERNELS[op]
    compared, apart, kind = 0, 0, ""
    for case, twin in twins(op):
        if (built := build(case, twin)) is None:
            continue
        node, tensors = built
        fed = [name for name in node.inputs if tensors[name].data is None]
        arrays = [feed.reshape(tensors[name].shape) for name, feed in zip(fed, case.feeds, strict=True)]
        [theirs] = LiteRT(tflite(tensors, [node], fed, ["y"]), by_reference=True).run(*arrays)
        theirs = (theirs.transpose(0, 3, 1, 2) if twin.channels_first else theirs).reshape(twin.exact.shape)
        wanted = np.clip(rule(twin), -128, 127)
        np.testing.assert_array_equal(theirs, wanted, err_msg=case.id)
        up = np.clip(np.floor(twin.exact / 2.0 ** np.asarray(twin.shift, float) / twin.count + 0.5), -128, 127)
        compared, apart, kind = compared + theirs.size, apart + int((up != wanted).sum()), node.kind
    record_property("summary", f"{op}: {compared} integers are those of {kind}, but for {apart} roundings")
    assert compared > 100, op
    assert apart < compared / 4
