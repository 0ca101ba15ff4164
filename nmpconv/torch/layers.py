"""Layers with weights: float parameters, rounded to the integers of the file each time they are used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from nmpconv.base.fixed_point import INT_MAX, INT_MIN
from nmpconv.ir import Graph, Node, Quant
from nmpconv.ops.common.accumulate import exact_type, weight_shifts
from nmpconv.ops.common.window import is_padded
from nmpconv.ops.op import quant_of
from nmpconv.torch.gradients import pixels, planes
from nmpconv.torch.learned_exponents import held

ALIKE = 1e-3  # of a channel's largest weight: by how much weights may differ from a module's, times factors
INSIDE = 0.25  # steps around an integer that a weight may begin at
TYPES: Mapping[Any, torch.dtype] = {np.float32: torch.float32, np.float64: torch.float64}


class StraightRounding(torch.autograd.Function):
    """sat(floor(x + 1/2)), with the gradient of a saturation alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, lo: int, hi: int) -> Tensor:
        ctx.save_for_backward((x >= lo - 0.5) & (x <= hi + 0.5))
        return torch.floor(x + 0.5).clamp(lo, hi)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0] * ctx.saved_tensors[0], None, None


@dataclass(frozen=True)
class Begin:
    """Parameters that a layer begins with, and the factors [...] that make of them the graph's reals: weights
    [O,I,KH,KW] or [O,I], and bias [O]."""

    weight: np.ndarray
    weight_factor: np.ndarray
    bias: np.ndarray
    bias_factor: np.ndarray


def torch_order(weights: np.ndarray) -> np.ndarray:
    """Weights [O,KH,KW,I] as torch has them, [O,I,KH,KW]; a matrix as it is."""
    return weights.transpose(0, 3, 1, 2) if weights.ndim == 4 else weights


def graph_order(weights: np.ndarray) -> np.ndarray:
    """The reverse of `torch_order`."""
    return weights.transpose(0, 2, 3, 1) if weights.ndim == 4 else weights


def begun(node: Node, graph: Graph, weights: np.ndarray, own: np.ndarray | None, out_factor: np.ndarray) -> Begin:
    """The parameters of an integer node. weights: the float ones, from before rounding, in the graph's order.

    Parameters are the float weights, within INSIDE steps of the node's integers. At the edge of a step, the first
    updates would undo how the conversion rounded a weight; in the middle, all odd integers would be rounded up where a
    learned exponent makes steps coarser. own: the weights that the user's module has, of the same shape in torch's
    order; where the float weights are these times a factor for each output and each input channel (a normalization, an
    equalization, pixels in place of numbers), the parameters are on the module's scale. Otherwise they are fractions of
    the integers' range. out_factor: of the output's channels, [O] or [1]; the bias is in the float model's units.
    """
    w, b, y = (graph[name] for name in (node.inputs[1], node.inputs[2], node.outputs[0]))
    assert w.data is not None
    assert b.data is not None
    grid = quant_of(w)
    steps = np.broadcast_to(np.exp2(np.array(grid.exponents, np.float64)), w.shape[0])
    per_step = (1.0 / steps).reshape(-1, *[1] * (w.data.ndim - 1))
    q = torch_order(w.data).astype(np.float64)
    factor = None if own is None else _factors(torch_order(weights), own)
    if factor is None:
        factor = np.broadcast_to(2.0 ** (grid.bits - 1) / per_step, (*q.shape[:2], *[1] * (q.ndim - 2)))
    to_bias = np.broadcast_to(out_factor, w.shape[0])
    near = np.clip(torch_order(weights) * per_step, q - INSIDE, q + INSIDE)
    return Begin(near / (factor * per_step), factor, b.data * 2.0 ** quant_of(y).exponent / to_bias, to_bias)


def _factors(weights: np.ndarray, own: np.ndarray) -> np.ndarray | None:
    """Factors [O,I,...] other than 0 with weights = factors * own; None where it takes more than one for each output
    and one for each input channel."""
    if own.shape != weights.shape:
        return None
    flat, mine = (x.reshape(*x.shape[:2], -1).astype(np.float64) for x in (weights, own))
    products, squares = (flat * mine).sum(2), (mine * mine).sum(2)
    column = int(np.argmax((squares > 0).sum(0)))
    with np.errstate(divide="ignore", invalid="ignore"):
        outs = products[:, column] / squares[:, column]
        outs = np.where(np.isfinite(outs) & (outs != 0), outs, 1.0)
        ins = (outs[:, None] * products).sum(0) / (outs[:, None] ** 2 * squares).sum(0)
    ins = np.where(np.isfinite(ins) & (ins != 0), ins, 1.0)
    factors = outs[:, None] * ins
    off = np.abs(flat - factors[..., None] * mine).max((1, 2))
    if (off > ALIKE * np.abs(flat).max((1, 2))).any():
        return None
    return factors.reshape(*factors.shape, *[1] * (weights.ndim - 2))


class TrainableLayer(nn.Module):
    """A convolution or a product with a matrix, on integers [N,H,W,C] or [..., K] in float tensors.

    weight, bias: parameters; times their factors they are steps of the integers. bias_bits: those that the bias may
    have.
    """

    weight_factor: Tensor
    bias_factor: Tensor
    downshift: Tensor
    pad: Tensor | None

    def __init__(self, node: Node, graph: Graph, begin: Begin, bias_bits: int) -> None:
        super().__init__()
        self._begin, self._bias_bits = begin, bias_bits
        self.weight, self.bias = (
            nn.Parameter(torch.tensor(x, dtype=torch.float32)) for x in (begin.weight, begin.bias)
        )
        self.place(node, graph)

    def place(self, node: Node, graph: Graph) -> None:
        """Takes the grids that this node has in a graph."""
        self.node = node
        self.x, self.w, self.y = (quant_of(graph[n]) for n in (node.inputs[0], node.inputs[1], node.outputs[0]))
        self.bias_grid = Quant(self._bias_bits, (self.y.exponent,), INT_MIN[self._bias_bits], INT_MAX[self._bias_bits])
        self.shape = graph[node.outputs[0]].shape
        begin, outs = self._begin, len(self.bias)
        self.shifts = weight_shifts(self.x, self.w, self.y, outs)
        steps = np.broadcast_to(np.exp2(np.array(self.w.exponents, np.float64)), outs)
        buffers: Mapping[str, Any] = {
            "weight_factor": begin.weight_factor / steps.reshape(-1, *[1] * (begin.weight.ndim - 1)),
            "bias_factor": begin.bias_factor / 2.0**self.y.exponent,
            "downshift": np.exp2(-self.shifts.astype(np.float64)),
            "pad": graph[node.inputs[3]].data if len(node.inputs) == 4 else None,
        }
        for name, array in buffers.items():
            tensor = None if array is None else torch.tensor(array, dtype=torch.float32, device=self.weight.device)
            self.register_buffer(name, tensor, persistent=False)

    def integers(self) -> tuple[Tensor, Tensor]:
        """Weights in torch's order, and the bias."""
        weight = StraightRounding.apply(self.weight * self.weight_factor, self.w.lo, self.w.hi)
        return weight, StraightRounding.apply(self.bias * self.bias_factor, self.bias_grid.lo, self.bias_grid.hi)

    def forward(self, x: Tensor, unit: Tensor | None = None) -> Tensor:
        """The output's integers. In training sums are made in float32; in eval mode in a type that holds them all.

        unit: 1, with the gradient of the output's step, which the bias follows.
        """
        weight, bias = self.integers()
        kind = torch.float32 if self.training else self._kind(weight, bias)
        sums = self._sums(x.to(kind), weight.to(kind))
        before = sums * self.downshift.to(kind) + bias.to(kind)
        before = before if unit is None else before / unit
        rounded = StraightRounding.apply(before, self.y.lo, self.y.hi)
        return held(rounded, before, self.y, unit).to(x.dtype)

    def _kind(self, weight: Tensor, bias: Tensor) -> torch.dtype:
        """As `ops.common.accumulate.output_step` has it; where not even float64 holds the sums it is the best."""
        sums = weight.detach().abs().flatten(1).to(torch.float64).sum(1).cpu().numpy()
        bound = sums * -float(np.iinfo(self.x.dtype).min)
        b, s = bias.detach().abs().to(torch.float64).cpu().numpy(), self.shifts
        need = np.ldexp(bound, np.maximum(-s, 0)) + np.ldexp(b + 0.5, np.maximum(s, 0))
        return TYPES.get(exact_type(float(need.max(initial=0.0))), torch.float64)

    def _sums(self, x: Tensor, weight: Tensor) -> Tensor:
        p = self.node.params
        if self.node.op == "fully_connected":
            return functional.linear(x, weight)
        stride = (p.stride_h, p.stride_w)
        if self.node.op == "conv_transpose":  # a convolution of x with zeros between its pixels
            x, stride = _spread(x, *stride), (1, 1)
        if self.pad is not None:
            x = _bordered(x, p, self.pad.to(x.dtype))
        elif is_padded(p):
            x = functional.pad(x, (0, 0, p.pad_left, p.pad_right, p.pad_top, p.pad_bottom))
        dilation = (p.dilation_h, p.dilation_w)
        return pixels(functional.conv2d(planes(x), weight, None, stride, 0, dilation, p.groups))


def _spread(x: Tensor, down: int, right: int) -> Tensor:
    n, h, w, c = x.shape
    canvas = x.new_zeros(n, (h - 1) * down + 1, (w - 1) * right + 1, c)
    canvas[:, ::down, ::right] = x
    return canvas


def _bordered(x: Tensor, p: Any, value: Tensor) -> Tensor:
    """x [N,H,W,C] in a border of value [C]."""
    n, h, w, c = x.shape
    canvas = value.expand(n, h + p.pad_top + p.pad_bottom, w + p.pad_left + p.pad_right, c).clone()
    canvas[:, p.pad_top : p.pad_top + h, p.pad_left : p.pad_left + w] = x
    return canvas
