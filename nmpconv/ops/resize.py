"""Linear and cubic interpolation over H and W of x [N,H,W,C], with weights that the converter computes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from nmpconv.base.fixed_point import SHIFT_MAX, rsh, sat
from nmpconv.errors import Invalid, Unsupported
from nmpconv.ir import Graph, Node, Value
from nmpconv.ops.common.case import FILLS, WIDTHS, by, fed, grid, single
from nmpconv.ops.common.interpolation import (
    WEIGHT_BITS,
    antialiased,
    coordinates,
    cubic,
    linear,
    nearest,
    rounded,
    table,
)
from nmpconv.ops.common.rules import rank
from nmpconv.ops.common.traits import Limit, Origins, Rule
from nmpconv.ops.gather import take
from nmpconv.ops.op import Case, Op, QArray, quant_of

if TYPE_CHECKING:
    from nmpconv.ops.builders import GraphBuilder, OnnxBuilder
    from nmpconv.ops.onnx_node import OnnxNode

# Legal e_y - e_x: the shift 2 * WEIGHT_BITS + e_y - e_x is never to the left.
RISE_MIN, RISE_MAX = -2 * WEIGHT_BITS, SHIFT_MAX - 2 * WEIGHT_BITS
SUM_MAX = 2 ** (WEIGHT_BITS + 1)  # legal sum of |weights| of one output along one axis


@dataclass(frozen=True)
class ResizeParams:
    """rows [OH]: the first row that an output sees; row_weights [OH * taps_h] in units of 2^-15. So columns.

    Weights are real numbers until quantization, whole ones from then on.
    """

    taps_h: int = 1
    taps_w: int = 1
    rows: tuple[int, ...] = ()
    row_weights: tuple[float, ...] = ()
    columns: tuple[int, ...] = ()
    column_weights: tuple[float, ...] = ()


class Resize(Op):
    name = "resize"
    Params = ResizeParams
    clamps = True
    restrictions = "linear and cubic over H and W; nearest over any axes; no tf_crop_and_resize"
    onnx = ("Resize", "Upsample")
    homogeneous = True
    head = True

    def lower(self, node: OnnxNode, to: GraphBuilder) -> None:
        """Nearest neighbours are gathered, one axis after the other; everything else is a weighted sum."""
        x = to.value(node.input(0))
        shape = to[x].shape
        sizes, scales = _target(node, to, shape)
        mode = node.text("mode", "nearest")
        if node.integer("antialias", 0) and mode == "nearest":
            raise Invalid("antialias in mode nearest", hint="linear or cubic")
        if node.integer("exclude_outside", 0) and mode != "cubic" and not node.integer("antialias", 0):
            raise Invalid(f"exclude_outside in mode {mode}", hint="mode cubic, or antialias")
        places = axis_places(node, shape, sizes, scales)
        if mode == "nearest":
            take(to, x, nearest_indices(node, shape, scales, places), node.outputs[0])
        elif mode in ("linear", "cubic"):
            _lower_weighted(node, to, mode, places, scales)
        else:
            raise Unsupported(f"mode {mode}", hint="nearest, linear or cubic")

    def infer(self, params: ResizeParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        n, _, _, c = inputs[0].shape
        for taps, weights in ((params.taps_h, params.row_weights), (params.taps_w, params.column_weights)):
            largest = int(np.abs(np.reshape(rounded(taps, weights), (-1, taps))).sum(axis=1).max())
            if largest > SUM_MAX:
                raise Unsupported(f"weights of {largest * 2.0**-WEIGHT_BITS:g} in all", hint="at most 2")
        return [(n, len(params.rows), len(params.columns), c)]

    def rules(self, params: ResizeParams, inputs: Sequence[Value], output: Value) -> Iterator[Rule]:
        p, (x,) = params, inputs
        yield rank(x, 4)
        for size, taps, first, weights in (
            (x.shape[1], p.taps_h, p.rows, p.row_weights),
            (x.shape[2], p.taps_w, p.columns, p.column_weights),
        ):
            yield f"{taps} taps of {size}", 1 <= taps <= size
            yield f"{len(weights)} weights for {len(first)} pixels", len(weights) == len(first) * taps > 0
            yield "a pixel outside", 0 <= min(first) <= max(first) <= size - taps

    def work(self, params: ResizeParams, inputs: Sequence[Value], output: Value) -> int:
        return self.macs(params, inputs, [output])

    def limits(self, node: Node, graph: Graph) -> Iterator[Limit]:
        x, y = quant_of(graph[node.inputs[0]]).exponent, quant_of(graph[node.outputs[0]]).exponent
        yield Limit(y - x, RISE_MIN, RISE_MAX, below=node.outputs, above=node.inputs)

    def origins(self, params: ResizeParams, inputs: Sequence[Value], output: Value) -> Origins:
        """Weights that add up to 1 for each output leave them as they are."""
        axes = ((params.taps_h, params.row_weights), (params.taps_w, params.column_weights))
        sums = [np.reshape(rounded(taps, weights), (-1, taps)).sum(axis=1) for taps, weights in axes]
        return Origins.ALIKE if all((s == 2**WEIGHT_BITS).all() for s in sums) else Origins.NONE

    def quantize(self, node: Node, graph: Graph) -> tuple[Node, list[Value]]:
        p = node.params
        rows, columns = rounded(p.taps_h, p.row_weights), rounded(p.taps_w, p.column_weights)
        return replace(node, params=replace(p, row_weights=rows, column_weights=columns)), []

    def reference(self, params: ResizeParams, inputs: Sequence[QArray], outputs: Sequence[Value]) -> list[np.ndarray]:
        """y[i,j] = sat(rsh(sum over r, c of x[rows[i]+r, columns[j]+c] * v[i,r] * h[j,c], 30 + e_y - e_x)).

        One rounding: a result is off by half a step of y and by |x| times 2^-15 for the weights of each axis.
        """
        x, quant = inputs[0], quant_of(outputs[0])
        rise = quant.exponent - x.quant.exponent
        assert RISE_MIN <= rise <= RISE_MAX
        tall = _resize_along(x.q.astype(np.int64), 1, params.taps_h, params.rows, params.row_weights)
        total = _resize_along(tall, 2, params.taps_w, params.columns, params.column_weights)
        return [sat(rsh(total, 2 * WEIGHT_BITS + rise), quant.lo, quant.hi).astype(quant.dtype)]

    def macs(self, params: ResizeParams, inputs: Sequence[Value], outputs: Sequence[Value]) -> int:
        return outputs[0].size * params.taps_h * params.taps_w

    def cases(self) -> Iterator[Case]:
        for (name, shape, params), bits, fill in product(_geometries(), product(WIDTHS, repeat=2), FILLS):
            case = f"{name}/{by(bits)}/{fill}"
            yield single(self, case, params, [fed(case, shape, bits[0], -4, fill)], grid(bits[1], -4), quantize=True)
        _, shape, params = next(_geometries())
        for rise in (RISE_MIN, -1, 1, RISE_MAX):
            yield single(
                self, f"rise/{rise}", params, [fed("x", shape, 16, 0)], grid(16, rise, lo=-20000), quantize=True
            )

    def export(self, node: Node, graph: Graph, to: OnnxBuilder) -> None:
        p, (_, height, width, _) = node.params, graph[node.inputs[0]].shape
        tall = to.const(_dense(p.taps_h, p.rows, p.row_weights, height))
        wide = to.const(np.ascontiguousarray(_dense(p.taps_w, p.columns, p.column_weights, width).T))
        plane = to.transpose(node.inputs[0], (0, 3, 1, 2))
        y = to.node("MatMul", (to.node("MatMul", (tall, plane)), wide))
        to.transpose(y, (0, 2, 3, 1), node.outputs[0])


def _resize_along(x: np.ndarray, axis: int, taps: int, first: Sequence[int], weights: Sequence[float]) -> np.ndarray:
    """Weighted sums of int64 x along an axis."""
    w = np.asarray(weights, np.int64).reshape(-1, taps)
    shape = [1] * x.ndim
    shape[axis] = len(w)
    return np.asarray(sum(np.take(x, np.add(first, k), axis=axis) * w[:, k].reshape(shape) for k in range(taps)))


def _dense(taps: int, first: Sequence[int], weights: Sequence[float], size: int) -> np.ndarray:
    """The weights as a matrix [out, size] of float32."""
    matrix = np.zeros((len(first), size), np.float32)
    w = np.asarray(weights).reshape(-1, taps) * 2.0**-WEIGHT_BITS
    for k in range(taps):
        matrix[np.arange(len(first)), np.add(first, k)] = w[:, k]
    return matrix


def axis_places(
    node: OnnxNode, shape: Sequence[int], sizes: Sequence[int], scales: Sequence[float]
) -> list[np.ndarray | None]:
    """Coordinates of each new element along every axis; None for an axis that stays as it is.

    As onnxruntime and PyTorch have them: a tensor whose shape stays the same is copied, whatever the scales, and
    corners are aligned by sizes.
    """
    transform = node.text("coordinate_transformation_mode", "half_pixel" if node.opset >= 11 else "asymmetric")
    axes = list(zip(shape, sizes, scales, strict=True))
    if tuple(shape) == tuple(sizes):
        return [None] * len(axes)
    return [coordinates(transform, *axis) if axis[0] != axis[1] or axis[2] != 1.0 else None for axis in axes]


def nearest_indices(
    node: OnnxNode, shape: Sequence[int], scales: Sequence[float], places: Sequence[np.ndarray | None]
) -> list[Sequence[int]]:
    """Indices of the nearest elements along every axis. places: of `axis_places`."""
    indices: list[Sequence[int]] = [range(size) for size in shape]
    for axis, place in enumerate(places):
        if place is not None:
            plain = "floor" if scales[axis] >= 1 else "ceil"
            rounding = node.text("nearest_mode", "round_prefer_floor") if node.opset >= 11 else plain
            indices[axis] = nearest(place, rounding, shape[axis]).tolist()
    return indices


SIDE_MAX = 2**20  # longer axes are none of images


def _target(node: OnnxNode, to: GraphBuilder, shape: tuple[int, ...]) -> tuple[list[int], list[float]]:
    """(sizes, scales) of all axes: from scales or sizes, which are an attribute, an input, or for some axes only."""
    at = 1 if node.opset < 11 else 2
    scales = to.array(node.input(at), "scales").ravel() if node.input(at) else node.attributes.get("scales", ())
    wanted = to.integers(node.input(3), "sizes") if node.input(3) else ()
    axes = node.axes(node.integers("axes") or range(len(shape)), len(shape))
    if len(scales) + len(wanted) != len(axes):
        raise Invalid(f"{len(scales)} scales and {len(wanted)} sizes for {len(axes)} axes", hint="one for each axis")
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    if policy not in ("stretch", "not_larger", "not_smaller"):
        raise Unsupported(f"keep_aspect_ratio_policy {policy}", hint="stretch, not_larger or not_smaller")
    before = [shape[axis] for axis in axes]
    if len(scales):
        after = [
            int(np.floor(np.float32(size) * np.float32(scale))) for size, scale in zip(before, scales, strict=True)
        ]
    else:
        after = list(wanted)
        scales = [float(np.float32(goal / size)) for goal, size in zip(wanted, before, strict=True)]
        if policy != "stretch":
            scales = [min(scales) if policy == "not_larger" else max(scales)] * len(axes)
            after = [
                int(np.float32(size) * np.float32(scale) + 0.5) for size, scale in zip(before, scales, strict=True)
            ]
    sizes, factors = list(shape), [1.0] * len(shape)
    if not all(1 <= size < SIDE_MAX for size in after):
        raise Unsupported(f"sizes {after}", hint=f"1 to {SIDE_MAX - 1}")
    for axis, size, scale in zip(axes, after, scales, strict=True):
        sizes[axis], factors[axis] = size, float(scale)
    return sizes, factors


def _lower_weighted(
    node: OnnxNode, to: GraphBuilder, mode: str, places: Sequence[np.ndarray | None], scales: Sequence[float]
) -> None:
    is_last = len(places) == 4 and places[0] is places[3] is None and places[1] is not None  # [N,H,W,C]
    if not is_last and any(place is not None for place in places[:2]):
        hint = "over H and W of [N,C,H,W] or [N,H,W,C]"
        raise Unsupported(f"mode {mode} over the batch or the channels", hint=hint)
    x = to.value(node.input(0)) if is_last else to.nhwc(node.input(0))
    _, *plane, _ = to[x].shape
    fields: dict[str, Any] = {}
    first_axis = 1 if is_last else 2
    spatial = [None] * (4 - len(places)) + list(places[first_axis:])
    shrunk = [1.0] * (4 - len(places)) + list(scales[first_axis:])
    a, outside = node.number("cubic_coeff_a", -0.75), bool(node.integer("exclude_outside", 0))
    for (taps, first, weights), size, place, scale in zip(_FIELDS, plane, spatial[:2], shrunk[:2], strict=True):
        if place is None:
            matrix = np.eye(size)
        elif node.integer("antialias", 0):
            matrix = antialiased(place, size, scale, None if mode == "linear" else a, outside)
        elif mode == "linear":
            matrix = linear(place, size)
        else:
            matrix = cubic(place, size, a, outside)
        fields[taps], fields[first], fields[weights] = table(matrix)
    y = to.emit("resize", (x,), ResizeParams(**fields), node.outputs[0] if is_last else "")
    if not is_last:
        to.nchw(y, node.outputs[0], like=node.input(0))


_FIELDS = (("taps_h", "rows", "row_weights"), ("taps_w", "columns", "column_weights"))


def _geometries() -> Iterator[tuple[str, tuple[int, ...], ResizeParams]]:
    """name, x [N,H,W,C], params"""

    def params_of(rows: np.ndarray, columns: np.ndarray) -> ResizeParams:
        (taps_h, first_h, v), (taps_w, first_w, h) = table(rows), table(columns)
        return ResizeParams(taps_h, taps_w, first_h, v, first_w, h)

    def place(size: int, out: int, mode: str = "half_pixel") -> np.ndarray:
        return coordinates(mode, size, out, out / size)

    yield "twice", (1, 3, 4, 5), params_of(linear(place(3, 6), 3), linear(place(4, 8), 4))
    yield "uneven", (1, 5, 3, 70), params_of(linear(place(5, 7), 5), linear(place(3, 2), 3))
    yield "one row", (1, 1, 4, 2), params_of(linear(place(1, 3), 1), np.eye(4))
    yield "cubic", (1, 5, 6, 3), params_of(cubic(place(5, 8), 5, -0.75, False), cubic(place(6, 9), 6, -0.5, True))
    for mode, shape, height, width in (
        ("half_pixel", (1, 3, 37, 1), 7, 90),
        ("align_corners", (1, 5, 9, 21), 33, 65),
        ("asymmetric", (1, 4, 23, 3), 9, 46),
        ("pytorch_half_pixel", (1, 9, 7, 17), 4, 3),
    ):
        _, *plane, _ = shape
        rows, columns = (linear(place(a, b, mode), a) for a, b in zip(plane, (height, width), strict=True))
        yield mode, shape, params_of(rows, columns)
    yield "cubic twice", (1, 4, 5, 16), params_of(*(cubic(place(n, 2 * n), n, -0.75, False) for n in (4, 5)))
    yield "batch", (2, 2, 2, 2), params_of(linear(place(2, 3), 2), linear(place(2, 3), 2))
    yield "wide", (1, 2, 2, 1100), params_of(linear(place(2, 3), 2), linear(place(2, 3), 2))
    five = tuple(range(-3, 7)) * 2  # more rows than a level resizes at once, and weights of 2 in all
    yield "five rows", (1, 7, 2, 9), ResizeParams(5, 1, (2, 0, 1, 0), five, (1, 0), (-SUM_MAX, SUM_MAX))
    yield (
        "weights of -2",
        (1, 2, 2, 9),
        ResizeParams(1, 1, (1, 0), (SUM_MAX, -SUM_MAX), (1, 0), (-SUM_MAX, SUM_MAX - 1)),
    )
