"""Pixels at computed places: x [N,H,W,C] and g [N,OH,OW,2] -> [N,OH,OW,C].

g[n,i,j] = (right, down) is a place in the image n, whose edges are at -1 and 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from nmpconv.base.fixed_point import SHIFT_MAX, SHIFT_MIN, Int64, rsh, sat
from nmpconv.errors import Invalid, Unsupported
from nmpconv.ir import Graph, Node, Value
from nmpconv.ops.common.case import FILLS, WIDTHS, by, constant, fed, grid, single
from nmpconv.ops.common.constant import quantize_constants
from nmpconv.ops.common.traits import Bounds, Factors, Limit, Rule, channels_of, exponents_of, unfit
from nmpconv.ops.op import Case, Op, QArray, quant_of
from nmpconv.ops.requantize import RequantizeParams

if TYPE_CHECKING:
    from nmpconv.ops.builders import GraphBuilder, OnnxBuilder
    from nmpconv.ops.onnx_node import OnnxNode

PLACE_BITS = 15  # places are whole numbers of 2^-15 of a pixel, and so are the weights of the pixels around them
PIXEL = 1 << PLACE_BITS
PADDINGS = ("zeros", "border", "reflection")
LINEAR = ("bilinear", "linear")  # the second one since opset 20

# Legal e_y - e_x: the shift 2 * PLACE_BITS + e_y - e_x is never to the left.
RISE_MIN, RISE_MAX = -2 * PLACE_BITS, SHIFT_MAX - 2 * PLACE_BITS
# Legal e_g: the shift 1 - PLACE_BITS - e_g.
PLACE_MIN, PLACE_MAX = 1 - PLACE_BITS - SHIFT_MAX, 1 - PLACE_BITS - SHIFT_MIN


@dataclass(frozen=True)
class GridSampleParams:
    """nearest: the pixel next to the place, or else the mean of four. padding: the index in PADDINGS.

    align_corners: the edges of the image are the centres of its outer pixels, or else their outer edges.
    """

    nearest: bool = False
    padding: int = 0
    align_corners: bool = False


class GridSample(Op):
    """A step of g is 2^(e_g - 1) * S pixels, with S of `reference`.

    What lies further out than zeros or the border is cut off while a model is read, so that |g| < 2 and int16 has at
    most e_g = -14: a step is at most S * 2^-15 pixels, 1/128 of one for S = 256. Places are exact for e_g >= -14.
    """

    name = "grid_sample"
    Params = GridSampleParams
    clamps = True
    head = True
    places = 1
    operands = 2
    restrictions = "[N,C,H,W]; linear and nearest"
    onnx = ("GridSample",)

    def lower(self, node: OnnxNode, to: GraphBuilder) -> None:
        mode, padding = node.text("mode", "bilinear"), node.text("padding_mode", "zeros")
        rank = len(to[node.input(0)].shape)
        if rank != 4:
            raise Unsupported(f"an input of {rank} dimensions", hint="[N,C,H,W]")
        if mode not in (*LINEAR, "nearest"):
            raise Unsupported(f"mode {mode}", hint="linear or nearest")
        if padding not in PADDINGS:
            raise Invalid(f"padding_mode {padding}", hint=", ".join(PADDINGS))
        params = GridSampleParams(mode == "nearest", PADDINGS.index(padding), bool(node.integer("align_corners", 0)))
        x, g = _image(node.input(0), to), to.value(node.input(1))
        if wrong := self.misfit(params, [to[x], to[g]]):
            raise Invalid(wrong, hint="x [N,C,H,W] and a grid [N,OH,OW,2]")
        if params.nearest and (data := to[g].data) is not None:
            g = to.const(_centres(params, data, to[x].shape[1:3]), g)
        g = _within(to, g, _reach(params, to[x].shape[1:3]))
        to.nchw(to.emit("grid_sample", (x, g), params), node.outputs[0], like=node.input(0))

    def infer(self, params: GridSampleParams, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        (n, _, _, c), (_, height, width, _) = (v.shape for v in inputs)
        return [(n, height, width, c)]

    def misfit(self, params: GridSampleParams, inputs: Sequence[Value]) -> str:
        shapes = [v.shape for v in inputs]
        fits = len(shapes) == 2 and len(shapes[0]) == len(shapes[1]) == 4
        return "" if fits and shapes[0][0] == shapes[1][0] and shapes[1][3] == 2 else unfit(self.name, inputs)

    def rules(self, params: GridSampleParams, inputs: Sequence[Value], output: Value) -> Iterator[Rule]:
        yield f"padding {params.padding}", 0 <= params.padding < len(PADDINGS)

    def work(self, params: GridSampleParams, inputs: Sequence[Value], output: Value) -> int:
        return output.size * 4 + inputs[1].size * 16

    def limits(self, node: Node, graph: Graph) -> Iterator[Limit]:
        y, (x, g) = quant_of(graph[node.outputs[0]]).exponent, exponents_of(graph, node)
        if x is not None:
            yield Limit(y - x, RISE_MIN, RISE_MAX, below=node.outputs, above=node.inputs[:1])
        if g is not None:
            yield Limit(g, PLACE_MIN, PLACE_MAX, below=node.inputs[1:])

    def bounds(self, node: Node, inputs: Sequence[Bounds]) -> Bounds:
        """Those of the pixels, which a result is a mean of, and of the zeros around them."""
        low, high = inputs[0]
        return inputs[0] if node.params.padding else (min(low, 0.0), max(high, 0.0))

    def factors(self, params: GridSampleParams, inputs: Sequence[Value], output: Value) -> Sequence[np.ndarray] | None:
        """Those of the pixels; a computed grid has its own."""
        return [channels_of(output)] if inputs[1].is_const else None

    def tensor_factors(self, params: GridSampleParams, inputs: Sequence[Value], output: Value) -> Factors:
        """The places have none."""
        return Factors.ALIKE

    def quantize(self, node: Node, graph: Graph) -> tuple[Node, list[Value]]:
        """A constant grid or image gets 16 bits and the finest legal exponent that holds it."""
        is_grid = graph[node.inputs[1]].is_const

        def window(other: int, out: int) -> tuple[int, int]:
            return (PLACE_MIN, PLACE_MAX) if is_grid else (out - RISE_MAX, out - RISE_MIN)

        return quantize_constants(node, graph, window)

    def keeps_batch(self, params: GridSampleParams, inputs: Sequence[Value], output: Value) -> bool:
        """A constant is there once, not once for each sample."""
        return not any(x.is_const for x in inputs)

    def reference(
        self, params: GridSampleParams, inputs: Sequence[QArray], outputs: Sequence[Value]
    ) -> list[np.ndarray]:
        """Each axis of n pixels, with S = n, or n - 1 for align_corners:

        place p = rsh(g * S, -14 - e_g) + (n - 1) * 2^14, in units of 2^-15 of a pixel;
        nearest: p goes to the nearest multiple of 2^15, of two to the even one;
        border: p = min(max(p, 0), (n - 1) * 2^15); reflection: p is mirrored at both ends until it lies between them.
        Pixel floor(p / 2^15) has the weight 2^15 - (p mod 2^15), the next one has p mod 2^15. A pixel that is not there
        is 0, or for border and reflection the last one of its side.

        y[n,i,j,c] = sat(rsh(sum of x[n,r,k,c] * v[r] * h[k], 30 + e_y - e_x)).
        """
        x, g = inputs
        quant = quant_of(outputs[0])
        rise = quant.exponent - x.quant.exponent
        assert RISE_MIN <= rise <= RISE_MAX
        _, height, width, _ = x.q.shape
        rows = _taps(params, _places(params, g.q[..., 1], g.quant.exponent, height), height)
        columns = _taps(params, _places(params, g.q[..., 0], g.quant.exponent, width), width)
        images = np.arange(len(x.q)).reshape(-1, 1, 1)
        total = np.int64(0)
        for (r, v), (k, h) in product(rows, columns):
            total = total + x.q[images, r, k].astype(np.int64) * (v * h)[..., None]
        return [sat(rsh(total, 2 * PLACE_BITS + rise), quant.lo, quant.hi).astype(quant.dtype)]

    def macs(self, params: GridSampleParams, inputs: Sequence[Value], outputs: Sequence[Value]) -> int:
        return outputs[0].size * (1 if params.nearest else 4)

    def cases(self) -> Iterator[Case]:
        """Every way to sample; grids that leave the image, by far, too; axes of one pixel; every legal shift."""
        ways = [GridSampleParams(*way) for way in product((False, True), range(len(PADDINGS)), (False, True))]
        for params, widths in product(ways, product(WIDTHS, repeat=3)):
            yield self._case(f"{_named(params)}/{by(widths)}", params, widths)
        for params, fill, bits in product(ways, FILLS[1:], WIDTHS):
            yield self._case(f"{_named(params)}/{fill}/int{bits}", params, (bits,) * 3, fill=fill)
        for params, (x, g) in product(ways, _SHAPES):
            yield self._case(f"{_named(params)}/{by(x)}/{by(g)}", params, (8, 16, 16), x, g)
        for params, e in product(ways, (PLACE_MIN, -17, -8, -7, -1, PLACE_MAX)):
            yield self._case(f"{_named(params)}/step{e}", params, (16, 16, 8), (1, 8, 7, 2), step=e)
        for params, rise in product(ways[::3], (RISE_MIN, -1, 1, RISE_MAX)):
            name = f"{_named(params)}/rise{rise}"
            operands = [fed(f"{name}x", (1, 3, 3, 2), 16, 0), fed(name, (1, 3, 3, 2), 16, -15)]
            yield single(self, name, params, operands, grid(16, rise, lo=-20000))
        for params, bits in product(ways[::5], WIDTHS):
            image, places = (1, 4, 6, 5), (1, 5, 3, 2)
            name = f"{_named(params)}/constant"
            operands = [fed(f"{name}x", image, bits, -4), constant(name, places, 16, -14)]
            yield single(self, f"{name}/grid/int{bits}", params, operands, grid(bits, -4))
            operands = [constant(f"{name}x", image, 16, -9), fed(name, places, bits, 1 - bits)]
            yield single(self, f"{name}/image/int{bits}", params, operands, grid(bits, -4))

    def _case(
        self,
        name: str,
        params: GridSampleParams,
        bits: tuple[int, ...],
        x: tuple[int, ...] = (1, 4, 5, 3),
        g: tuple[int, ...] = (1, 3, 4, 2),
        *,
        step: int | None = None,
        fill: str = "random",
    ) -> Case:
        """bits of x, g and y; step: e_g, or else one by which places are up to a whole image outside."""
        places = fed(name, g, bits[1], 2 - bits[1] if step is None else step)
        return single(self, name, params, [fed(f"{name}x", x, bits[0], -4, fill), places], grid(bits[2], -4))

    def export(self, node: Node, graph: Graph, to: OnnxBuilder) -> None:
        p: GridSampleParams = node.params
        plane = to.transpose(node.inputs[0], (0, 3, 1, 2))
        y = to.node(
            "GridSample",
            (plane, node.inputs[1]),
            mode="nearest" if p.nearest else "linear",
            padding_mode=PADDINGS[p.padding],
            align_corners=int(p.align_corners),
        )
        to.transpose(y, (0, 2, 3, 1), node.outputs[0])


def _image(name: str, to: GraphBuilder) -> str:
    """[N,C,H,W] as a value [N,H,W,C]."""
    return to.const(to.array(name, "image").transpose(0, 2, 3, 1), "") if to.is_const(name) else to.nhwc(name)


def _places(params: GridSampleParams, q: np.ndarray, exponent: int, n: int) -> Int64:
    """Places of integers q of a grid along an axis of n pixels."""
    p = rsh(q.astype(np.int64) * (n - params.align_corners), 1 - PLACE_BITS - exponent) + (n - 1) * PIXEL // 2
    if params.nearest:
        low, part = p // PIXEL, p % PIXEL
        p = (low + ((part > PIXEL // 2) | ((part == PIXEL // 2) & (low % 2 == 1)))) * PIXEL
    padding = PADDINGS[params.padding]
    if padding == "border":
        return np.clip(p, 0, (n - 1) * PIXEL)
    first = 0 if params.align_corners else -PIXEL // 2
    span = (n - params.align_corners) * PIXEL
    if padding == "zeros" or span == 0:
        return p
    past = (p - first) % (2 * span)
    return first + np.minimum(past, 2 * span - past)


def _taps(params: GridSampleParams, p: Int64, n: int) -> list[tuple[Int64, Int64]]:
    """(pixel, weight) of the two pixels around places of an axis of n; weight 0 where there is none."""
    low, part = p // PIXEL, p % PIXEL
    taps = []
    for pixel, weight in ((low, PIXEL - part), (low + 1, part)):
        inside = np.clip(pixel, 0, n - 1)
        taps.append((inside, weight if params.padding else np.where(inside == pixel, weight, 0)))
    return taps


def _centres(params: GridSampleParams, g: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """A grid of float32 moved to the centres of the pixels that onnxruntime takes, so that its rounding to integers
    cannot take others where a place is a tie."""
    places, unit, two = g.astype(np.float32), np.float32(1), np.float32(2)
    for i, n in enumerate(reversed(sizes)):
        along, length = places[..., i], np.float32(n)
        with np.errstate(over="ignore", invalid="ignore"):
            if params.align_corners:
                centre = 2.0 * np.rint((along + unit) / two * (length - unit)) / max(n - 1, 1) - 1
            else:
                centre = (2.0 * np.rint(((along + unit) * length - unit) / two) + 1) / n - 1
        places[..., i] = np.where(np.isfinite(centre), centre, along)
    return places


def _reach(params: GridSampleParams, sizes: Sequence[int]) -> float:
    """The numbers of a grid from which on, and below its opposite, results do not change; infinite for reflection.

    Zeros are a pixel beyond the centres of the outer ones, and the border is at these.
    """
    if PADDINGS[params.padding] == "reflection":
        return np.inf
    beyond = 1 if PADDINGS[params.padding] == "zeros" else -1
    spans = [(n + beyond) / (n - params.align_corners) for n in sizes if n > params.align_corners]
    return max(spans, default=0.0)


def _within(to: GraphBuilder, g: str, reach: float) -> str:
    """A grid that ends where results do not change, so that its exponent follows from the image alone."""
    if (data := to[g].data) is not None:
        return to.const(np.clip(data, -reach, reach), g)
    if to.maker(g) is None or np.isinf(reach):
        return g
    return to.emit("requantize", (g,), RequantizeParams(), clamp=(-reach, reach))


def _named(params: GridSampleParams) -> str:
    name = f"{'nearest' if params.nearest else 'linear'}/{PADDINGS[params.padding]}"
    return f"{name}/corners" if params.align_corners else name


# x, g
_SHAPES = (
    ((1, 1, 1, 2), (1, 3, 3, 2)),
    ((1, 1, 6, 70), (1, 2, 2, 2)),
    ((2, 3, 2, 3), (2, 2, 5, 2)),
    ((1, 16, 2, 1), (1, 1, 9, 2)),
)
