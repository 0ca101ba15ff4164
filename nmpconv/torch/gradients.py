"""Gradients of ops: the float meaning of each integer op in torch, which is differentiated in its place.

Operands and results are reals: integers times the step of their grid. Results are not rounded and not saturated. Ops
without a row here have no gradient; of those that are `counted` it is 0 everywhere, the others cannot be trained
through.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from nmpconv.ir import Value
from nmpconv.ops import OPS
from nmpconv.ops.common.interpolation import WEIGHT_BITS
from nmpconv.ops.grid_sample import PADDINGS
from nmpconv.ops.mul_offset import FINE
from nmpconv.ops.normalize import spare_bits
from nmpconv.ops.op import quant_of

Meaning = Callable[[Any, Sequence[Tensor], Sequence[Value], Value], Tensor]
"""Takes parameters, reals of the operands and constants, these operands, and the result, whose shape counts."""


def step_of(value: Value) -> float:
    """The real value of integer 1."""
    return 2.0 ** quant_of(value).exponent


def planes(x: Tensor) -> Tensor:
    """[N,H,W,C] as torch has it, [N,C,H,W]."""
    return x.permute(0, 3, 1, 2)


def pixels(x: Tensor) -> Tensor:
    """[N,C,H,W] as the graph has it, [N,H,W,C]."""
    return x.permute(0, 2, 3, 1)


def _around(x: Tensor, p: Any, value: float) -> Tensor:
    return functional.pad(planes(x), (p.pad_left, p.pad_right, p.pad_top, p.pad_bottom), value=value)


def _average_pool(p: Any, xs: Sequence[Tensor], operands: Sequence[Value], y: Value) -> Tensor:
    def sums(x: Tensor) -> Tensor:
        kernel, stride = (p.kernel_h, p.kernel_w), (p.stride_h, p.stride_w)
        return functional.avg_pool2d(_around(x, p, 0.0), kernel, stride, divisor_override=1)

    counted = torch.ones_like(xs[0][:1, ..., :1])
    count = p.kernel_h * p.kernel_w if p.count_include_pad else sums(counted)
    return pixels(sums(xs[0]) / count)


def _max_pool(p: Any, xs: Sequence[Tensor], operands: Sequence[Value], y: Value) -> Tensor:
    inside = _around(xs[0], p, -float("inf"))
    kernel, stride = (p.kernel_h, p.kernel_w), (p.stride_h, p.stride_w)
    return pixels(functional.max_pool2d(inside, kernel, stride, dilation=(p.dilation_h, p.dilation_w)))


def _lookup(p: Any, xs: Sequence[Tensor], operands: Sequence[Value], y: Value) -> Tensor:
    """The line through the table's entries beside the operand's."""
    grid, table = quant_of(operands[0]), xs[1]
    place = xs[0] / step_of(operands[0]) + 2.0 ** (grid.bits - 1)
    if grid.bits == 8:
        low, high = (place + d for d in (-1, 1))
        low, high = low.clamp(min=0).detach(), high.clamp(max=len(table) - 1).detach()
    else:
        place = place * ((len(table) - 1) / 2**grid.bits)
        low = place.floor().clamp(max=len(table) - 2).detach()
        high = low + 1
    rise = (table[high.long()] - table[low.long()]) / (high - low)
    return table[low.long()] + rise * (place - low)


def _slice(p: Any, xs: Sequence[Tensor], operands: Sequence[Value], y: Value) -> Tensor:
    result = xs[0]
    for axis, (start, step, size) in enumerate(zip(p.starts, p.steps, y.shape, strict=True)):
        if (start, step, size) != (0, 1, result.shape[axis]):
            result = result.index_select(axis, torch.arange(size, device=result.device) * step + start)
    return result


def _pad(p: Any, xs: Sequence[Tensor], operands: Sequence[Value], y: Value) -> Tensor:
    pairs = list(zip(p.pads[::2], p.pads[1::2], strict=True))
    return functional.pad(xs[0], [side for pair in reversed(pairs) for side in pair], value=float(xs[1].reshape(-1)[0]))


def _gather(p: Any, xs: Sequence[Tensor], operands: Sequence[Value], y: Value) -> Tensor:
    return xs[0].index_select(p.axis, torch.tensor(p.index, device=xs[0].device))


def _resize(p: Any, xs: Sequence[Tensor], operands: Sequence[Value], y: Value) -> Tensor:
    result = xs[0]
    axes = ((1, p.taps_h, p.rows, p.row_weights), (2, p.taps_w, p.columns, p.column_weights))
    for axis, taps, first, weights in axes:
        shape = [1] * result.ndim
        shape[axis] = len(first)
        at = np.asarray(first)
        by = torch.tensor(weights, device=result.device).reshape(-1, taps) * 2.0**-WEIGHT_BITS
        parts = (
            result.index_select(axis, torch.as_tensor(at + k, device=result.device)) * by[:, k].reshape(shape)
            for k in range(taps)
        )
        result = torch.stack(list(parts)).sum(0)
    return result


def _normalize(p: Any, xs: Sequence[Tensor], operands: Sequence[Value], y: Value) -> Tensor:
    """epsilon is in squared steps of the sums of a group, shifted by its spare bits."""
    q, scale, bias = xs[0] / step_of(operands[0]), xs[1], xs[2]
    count = int(np.prod([q.shape[axis] for axis in p.axes]))
    spare = spare_bits(count, quant_of(operands[0]).bits)
    epsilon = p.epsilon * 2.0 ** (p.epsilon_shift - spare) / count**2
    centred = q - q.mean(p.axes, keepdim=True)
    spread = (centred * centred).mean(p.axes, keepdim=True)
    return centred * torch.rsqrt(spread + epsilon) * scale + bias


def _mul_offset(p: Any, xs: Sequence[Tensor], operands: Sequence[Value], y: Value) -> Tensor:
    fine = 2.0**-FINE
    return (xs[0] + p.offset_a * fine * step_of(operands[0])) * xs[1] + p.offset_y * fine * step_of(y)


def _divide(p: Any, xs: Sequence[Tensor], operands: Sequence[Value], y: Value) -> Tensor:
    small = step_of(operands[1])
    return xs[0] / torch.where(xs[1] == 0, small, xs[1])


def _lrn(p: Any, xs: Sequence[Tensor], operands: Sequence[Value], y: Value) -> Tensor:
    """offset is in squared steps, shifted; it keeps the base above 0, and its powers within float64."""
    x = xs[0].double()
    squares = x * x
    if p.size >= 2 * squares.shape[-1] - 1:
        sums = squares.sum(-1, keepdim=True)
    else:
        rows = functional.pad(squares.reshape(-1, 1, squares.shape[-1]), ((p.size - 1) // 2, p.size // 2))
        sums = functional.avg_pool1d(rows, p.size, 1).reshape(squares.shape) * p.size
    offset = math.ldexp(p.offset, p.offset_shift - p.shift) * step_of(operands[0]) ** 2
    return (x * (p.alpha / p.size * (sums + offset)) ** -p.beta).to(xs[0].dtype)


def _sum_lookup(p: Any, xs: Sequence[Tensor], operands: Sequence[Value], y: Value) -> Tensor:
    """The line between the table's entries around the sum."""
    x, weights, table = xs
    unit = step_of(operands[1]) * step_of(operands[0]) ** (2 if p.squared else 1)
    by_group = (x * x if p.squared else x).reshape(*x.shape[:-1], -1, p.groups)
    sums = torch.einsum("...kg,gok->...go", by_group, weights.reshape(p.groups, -1, weights.shape[1])).flatten(-2)
    least, octaves = 2.0**p.low, (len(table) - 2) >> p.pieces
    base = (sums / unit).clamp(0, least * 2.0**octaves)
    octave = base.detach().clamp(least, least * 2.0 ** (octaves - 1)).log2().floor()
    place = 1 + (octave - p.low + base / 2**octave - 1) * 2**p.pieces
    place = torch.where(base < least, base / least, place)
    low = place.detach().floor().clamp(max=len(table) - 2).long()
    return table[low] + (table[low + 1] - table[low]) * (place - low)


def _cum_sum(p: Any, xs: Sequence[Tensor], operands: Sequence[Value], y: Value) -> Tensor:
    x = xs[0].flip(p.axis) if p.reverse else xs[0]
    sums = x.cumsum(p.axis) - (x if p.exclusive else 0)
    return sums.flip(p.axis) if p.reverse else sums


def _gather_elements(p: Any, xs: Sequence[Tensor], operands: Sequence[Value], y: Value) -> Tensor:
    length = xs[0].shape[p.axis]
    at = xs[1].detach().long()
    at = torch.where(at < 0, at + length, at).clamp(0, length - 1)
    shape = [*xs[0].shape[: p.axis], at.shape[p.axis], *xs[0].shape[p.axis + 1 :]]
    return xs[0].gather(p.axis, at.expand(shape))


def _grid_sample(p: Any, xs: Sequence[Tensor], operands: Sequence[Value], y: Value) -> Tensor:
    mode = "nearest" if p.nearest else "bilinear"
    sampled = functional.grid_sample(planes(xs[0]), xs[1], mode, PADDINGS[p.padding], p.align_corners)
    return pixels(sampled)


MEANINGS: Mapping[str, Meaning] = {
    "add": lambda p, xs, operands, y: xs[0] + xs[1],
    "sub": lambda p, xs, operands, y: xs[0] - xs[1],
    "minimum": lambda p, xs, operands, y: torch.minimum(xs[0], xs[1]),
    "maximum": lambda p, xs, operands, y: torch.maximum(xs[0], xs[1]),
    "mul": lambda p, xs, operands, y: xs[0] * xs[1],
    "mul_offset": _mul_offset,
    "divide": _divide,
    "requantize": lambda p, xs, operands, y: xs[0],
    "lookup": _lookup,
    "softmax": lambda p, xs, operands, y: torch.softmax(p.before * xs[0], p.axis),
    "average_pool": _average_pool,
    "max_pool": _max_pool,
    "batch_matmul": lambda p, xs, operands, y: xs[0] @ xs[1].transpose(-1, -2),
    "normalize": _normalize,
    "lrn": _lrn,
    "sum_lookup": _sum_lookup,
    "cum_sum": _cum_sum,
    "gather_elements": _gather_elements,
    "grid_sample": _grid_sample,
    "resize": _resize,
    "concat": lambda p, xs, operands, y: torch.cat(list(xs), p.axis),
    "pad": _pad,
    "slice": _slice,
    "gather": _gather,
    "reshape": lambda p, xs, operands, y: xs[0].reshape(y.shape),
    "transpose": lambda p, xs, operands, y: xs[0].permute(p.perm),
}


def is_exact(op: str) -> bool:
    """Checks that the meaning is all that the op does: it moves elements on one grid, or picks one."""
    return op in MEANINGS and OPS[op].grid == "same"
