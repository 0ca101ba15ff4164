"""Functions of one tensor, element by element or along axes, in terms of others."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from nmpconv.errors import Invalid, Unsupported
from nmpconv.frontend.expand.node_builder import Body
from nmpconv.frontend.expand.powers import LEAST
from nmpconv.frontend.importer import Importer
from nmpconv.ops.onnx_node import OnnxNode


def sign(node: OnnxNode, body: Body) -> None:
    """(x > 0) - (x < 0): exact at any width, where a table would blur the step."""
    x = node.input(0)
    above, below = (body("Cast", body(kind, x, 0.0), to=body.element(x)) for kind in ("Greater", "Less"))
    body("Sub", above, below, output=node.outputs[0])


def thresholded(node: OnnxNode, body: Body) -> None:
    """x where it is above alpha, elsewhere 0."""
    x = node.input(0)
    above = body("Cast", body("Greater", x, node.number("alpha", 1.0)), to=body.element(x))
    body("Mul", x, above, output=node.outputs[0])


def shrink(node: OnnxNode, body: Body) -> None:
    """x - bias above lambd, x + bias below -lambd, elsewhere 0; without a jump it is x less its clip."""
    x, bias, limit = node.input(0), node.number("bias", 0.0), node.number("lambd", 0.5)
    if bias == limit >= 0:
        body("Sub", x, body("Clip", x, -limit, limit), output=node.outputs[0])
        return
    above = body("Cast", body("Greater", x, limit), to=body.element(x))
    below = body("Cast", body("Less", x, -limit), to=body.element(x))
    outside = body("Mul", x, body("Max", above, below), output="" if bias else node.outputs[0])
    if bias:
        shift = body("Mul", body("Sub", above, below), bias)
        body("Sub", outside, shift, output=node.outputs[0])


def swish(node: OnnxNode, body: Body) -> None:
    """x * sigmoid(alpha * x)."""
    x, alpha = node.input(0), node.number("alpha", 1.0)
    gate = body("Sigmoid", x if alpha == 1.0 else body("Mul", x, alpha))
    body("Mul", x, gate, output=node.outputs[0])


def nowhere(node: OnnxNode, body: Body) -> None:
    """IsNaN, IsInf: integers are neither."""
    body.to.define({node.outputs[0]: np.zeros(body.shape(node.input(0)), np.bool_)})


def mean(node: OnnxNode, body: Body) -> None:
    """Writes the mean of tensors."""
    body("Mul", body("Sum", *node.inputs), 1.0 / len(node.inputs), output=node.outputs[0])


def rms_norm(node: OnnxNode, body: Body) -> None:
    """x / sqrt(mean(x^2) + epsilon) * scale over the axes from ``axis`` on. Source: ONNX, RMSNormalization-23."""
    x = node.input(0)
    rank = len(body.shape(x))
    axes = np.arange(node.axis(node.integer("axis", -1), rank), rank)
    square = body("ReduceMean", body("Mul", x, x), axes, keepdims=1)
    root = body("Sqrt", body("Add", square, node.number("epsilon", 1e-5)))
    body("Mul", body("Div", x, root), node.input(1), output=node.outputs[0])


def lp_norm(node: OnnxNode, body: Body) -> None:
    """x / |x|_p along an axis, 0 where that is 0 / 0."""
    x, p = node.input(0), node.integer("p", 2)
    if p not in (1, 2):
        raise Unsupported(f"p = {p}", hint="1 or 2")
    axis = node.axis(node.integer("axis", -1), len(body.shape(x)))
    length = body(f"ReduceL{p}", x, np.array([axis]), keepdims=1)
    body("Div", x, body("Max", length, LEAST), output=node.outputs[0])


def reduce_prod(node: OnnxNode, body: Body) -> None:
    """Products of halves of the axis, so that roundings are few."""
    x, rank = node.input(0), len(body.shape(node.input(0)))
    axes = _axes(node, body, rank)
    for axis in axes:
        while (size := body.shape(x)[axis]) > 1:
            half = size // 2
            first, second, rest = (
                body("Slice", x, np.array([start]), np.array([stop]), np.array([axis])) if stop > start else ""
                for start, stop in ((0, half), (half, 2 * half), (2 * half, size))
            )
            x = body("Mul", first, second)
            x = body("Concat", x, rest, axis=axis) if rest else x
    if node.integer("keepdims", 1) or not axes:
        body.rename(x)
    else:
        body("Squeeze", x, np.array(axes), output=node.outputs[0])


def log_sum_exp(node: OnnxNode, body: Body) -> None:
    """m + log(sum(exp(x - m))), m the largest: no exponential exceeds 1."""
    x, rank = node.input(0), len(body.shape(node.input(0)))
    axes = np.array(_axes(node, body, rank))
    if not axes.size:
        return body.rename(x)
    most = body("ReduceMax", x, axes, keepdims=1)
    total = body("ReduceSum", body("Exp", body("Sub", x, most)), axes, keepdims=1)
    keep = bool(node.integer("keepdims", 1))
    y = body("Add", most, body("Log", total), output=node.outputs[0] if keep else "")
    if not keep:
        body("Squeeze", y, axes, output=node.outputs[0])
    return None


def _axes(node: OnnxNode, body: Body, rank: int) -> tuple[int, ...]:
    """Axes of a reduction: an attribute before opset 18, an input since; all where none are given."""
    axes = node.integers("axes") or (body.to.integers(node.input(1), "axes") if node.input(1) else ())
    if not axes:
        return () if node.integer("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted(node.axes(axes, rank, once=False)))


def hardmax(node: OnnxNode, body: Body) -> None:
    """1 at the first largest element along an axis, elsewhere 0."""
    x = node.input(0)
    shape = body.shape(x)
    axis = node.axis(node.integer("axis", -1 if node.opset >= 13 else 1), len(shape))
    if node.opset < 13 and math.prod(shape[axis + 1 :]) != 1:
        x = body("Reshape", x, np.array([*shape[:axis], -1]))
    sizes = body.shape(x)
    places = np.arange(sizes[axis]).reshape([-1 if i == axis else 1 for i in range(len(sizes))])
    is_largest = body("Equal", body("ArgMax", x, axis=axis, keepdims=1), places)
    body("Reshape", body("Cast", is_largest, to=body.element(node.input(0))), np.array(shape), output=node.outputs[0])


def trilu(node: OnnxNode, body: Body) -> None:
    """The upper or lower triangle of matrices: a product with ones and zeros."""
    x, k = node.input(0), body.array(1, "diagonal")
    rows, columns = body.shape(x)[-2:]
    offset = 0 if k is None else int(k.item())
    ones = np.ones((rows, columns), np.float32)
    triangle = np.triu(ones, offset) if node.integer("upper", 1) else np.tril(ones, offset)
    body("Mul", x, triangle, output=node.outputs[0])


def cast_like(node: OnnxNode, body: Body) -> None:
    to = body.to.tensor(node.input(1)).element
    body("Cast", node.input(0), output=node.outputs[0], to=to)


def _has_computed_bounds(node: OnnxNode, to: Importer) -> bool:
    return any(name and not to.is_const(name) for name in node.inputs[1:])


def clip(node: OnnxNode, body: Body) -> None:
    """The larger of x and min, the smaller of that and max."""
    bounds = [(kind, name) for kind, name in zip(("Max", "Min"), (node.input(1), node.input(2)), strict=True) if name]
    x = node.input(0)
    for kind, name in bounds:
        if math.prod(body.shape(name)) != 1:
            raise Invalid(f"a bound '{name}' of shape {list(body.shape(name))}", hint="one number")
        limit = body("Reshape", name, np.array([], np.int64)) if body.shape(name) else name
        x = body(kind, x, limit, output=node.outputs[0] if (kind, name) == bounds[-1] else "")


def reverse_sequence(node: OnnxNode, body: Body) -> None:
    """The first elements along time, as many as the length of each row says, in reverse."""
    x, lengths = node.input(0), body.to.integers(node.input(1), "lengths")
    shape = body.shape(x)
    batch, time = (
        node.axis(node.integer(name, default), len(shape)) for name, default in (("batch_axis", 1), ("time_axis", 0))
    )
    if batch == time or len(lengths) != shape[batch] or not all(0 <= n <= shape[time] for n in lengths):
        raise Invalid(f"lengths {list(lengths)} for x {list(shape)}", hint=f"one for each row, from 0 to {shape[time]}")
    places = np.arange(shape[time])
    rows = np.array([np.where(places < n, n - 1 - places, places) for n in lengths])
    if (rows == rows[0]).all():
        body("Gather", x, rows[0], axis=time, output=node.outputs[0])
        return
    index = rows if batch < time else rows.T
    wide = index.reshape([shape[axis] if axis in (batch, time) else 1 for axis in range(len(shape))])
    body("GatherElements", x, np.ascontiguousarray(np.broadcast_to(wide, shape)), axis=time, output=node.outputs[0])


def scaler(node: OnnxNode, body: Body) -> None:
    """(x - offset) * scale. Source: ONNX, ai.onnx.ml Scaler-1."""
    x = body("Cast", node.input(0), to=TensorProto.FLOAT)
    offset, scale = (
        np.asarray(node.attributes.get(name, plain), np.float32) for name, plain in (("offset", [0]), ("scale", [1]))
    )
    body("Mul", body("Sub", x, offset), scale, output=node.outputs[0])


def normalizer(node: OnnxNode, body: Body) -> None:
    """x divided by its largest element or its length; as in onnxruntime, x itself where that is 0.

    Source: ONNX, ai.onnx.ml Normalizer-1.
    """
    x, norm = body("Cast", node.input(0), to=TensorProto.FLOAT), node.text("norm", "MAX")
    axis = np.array([len(body.shape(x)) - 1])
    if norm == "MAX":
        most = body("ReduceMax", x, axis, keepdims=1)
        body("Div", x, body("Where", body("Equal", most, 0.0), 1.0, most), output=node.outputs[0])
    elif norm in ("L1", "L2"):
        length = body(f"ReduceL{norm[1]}", x, axis, keepdims=1)
        body("Div", x, body("Max", length, LEAST), output=node.outputs[0])
    else:
        raise Invalid(f"norm {norm}", hint="MAX, L1 or L2")


ALWAYS = {
    "CastLike": cast_like,
    "Hardmax": hardmax,
    "IsInf": nowhere,
    "IsNaN": nowhere,
    "LpNormalization": lp_norm,
    "Mean": mean,
    "RMSNormalization": rms_norm,
    "ReduceLogSumExp": log_sum_exp,
    "ReduceProd": reduce_prod,
    "ReverseSequence": reverse_sequence,
    "Shrink": shrink,
    "Sign": sign,
    "Swish": swish,
    "ThresholdedRelu": thresholded,
    "Trilu": trilu,
    "ai.onnx.ml.Normalizer": normalizer,
    "ai.onnx.ml.Scaler": scaler,
}
FORMS = {"Clip": ((_has_computed_bounds, clip),)}
