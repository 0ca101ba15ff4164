"""One ONNX node as the ops see it, and the geometry of its window if it has one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import helper, numpy_helper

from nmpconv.errors import Invalid, Unsupported


@dataclass(frozen=True)
class Window:
    """Geometry over (H, W); 1d windows have H = 1. ``overhang``: how much of ``after`` ceil_mode added."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    before: tuple[int, int]
    after: tuple[int, int]
    overhang: tuple[int, int]

    def params(self, *fields: str) -> dict[str, int]:
        """The named ones of kernel, stride, dilation, pad as an op's parameters."""
        values: dict[str, int] = {}
        for name in fields:
            if name == "pad":
                values |= {"pad_top": self.before[0], "pad_left": self.before[1]}
                values |= {"pad_bottom": self.after[0], "pad_right": self.after[1]}
            else:
                values[f"{name}_h"], values[f"{name}_w"] = getattr(self, name)
        return values


@dataclass(frozen=True)
class OnnxNode:
    """inputs: tensor names, '' for an absent one; outputs: names. opset: version of the default domain."""

    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    opset: int

    @classmethod
    def of(cls, proto: onnx.NodeProto, opset: int) -> OnnxNode:
        attributes = {a.name: _value(a) for a in proto.attribute}
        return cls(proto.name, proto.op_type, tuple(proto.input), tuple(proto.output), attributes, opset)

    def input(self, index: int) -> str:
        """Name of an input, '' when the node does not have it."""
        return self.inputs[index] if index < len(self.inputs) else ""

    def integer(self, name: str, default: int) -> int:
        return int(self.attributes.get(name, default))

    def number(self, name: str, default: float, *, finite: bool = True) -> float:
        """Invalid for NaN and, where it is to be finite, infinity."""
        value = float(self.attributes.get(name, default))
        if math.isnan(value) or (finite and math.isinf(value)):
            raise Invalid(f"{name} = {value}", hint="a finite number")
        return value

    def text(self, name: str, default: str) -> str:
        return str(self.attributes.get(name, default))

    def integers(self, name: str) -> tuple[int, ...] | None:
        """A list of integers, None when absent."""
        values = self.attributes.get(name)
        return None if values is None else tuple(int(i) for i in values)

    @property
    def is_training(self) -> bool:
        """Checks the training mode of a BatchNormalization: before opset 14 the outputs for running and batch
        statistics say so."""
        return bool(self.integer("training_mode", 0)) if self.opset >= 14 else len(self.outputs) > 1

    def axis(self, axis: int, rank: int, name: str = "axis") -> int:
        """An axis, or an index (``name``), that may count from the end, as a number from 0 on; Invalid if there is none
        of that number among ``rank``."""
        if not -rank <= axis < rank:
            raise Invalid(f"{name} {axis} of {rank}", hint=f"{-rank} to {rank - 1}" if rank else "none")
        return axis % rank

    def axes(self, axes: Iterable[int], rank: int, *, once: bool = True) -> tuple[int, ...]:
        """In the order given; Invalid if there is no such axis, or one comes twice that may not."""
        asked = tuple(axes)
        unique = tuple(dict.fromkeys(self.axis(axis, rank) for axis in asked))
        if once and len(unique) < len(asked):
            raise Invalid(f"axes {list(asked)}", hint="each axis once")
        return unique

    def window(self, size: Sequence[int], kernel: Sequence[int]) -> Window:
        """Geometry from strides, dilations, pads, auto_pad and ceil_mode.

        size: (H, W) of the input, H = 1 for a 1d kernel. kernel: one or two sizes.
        """
        rank = len(kernel)
        if rank not in (1, 2):
            raise Unsupported(f"a window of {rank} dimensions", hint="1 or 2 dimensions")
        self.kernel_shape(kernel)
        stride = self.sides("strides", 1, rank)
        dilation = self.sides("dilations", 1, rank)
        pads = self.integers("pads") or (0,) * (2 * rank)
        if len(pads) != 2 * rank:
            raise Invalid(f"pads {list(pads)} of a {rank}d kernel", hint=f"{2 * rank} of them")
        if min(pads) < 0:
            raise Unsupported(f"negative pads {list(pads)}", hint="a Slice before it")
        axes = [
            self.padding(*numbers)
            for numbers in zip(size[2 - rank :], kernel, stride, dilation, pads[:rank], pads[rank:], strict=True)
        ]
        if rank == 1:
            axes.insert(0, (0, 0, 0))
        before, after, overhang = ((axes[0][i], axes[1][i]) for i in range(3))
        return Window(_pair(kernel), _pair(stride), _pair(dilation), before, after, overhang)

    def kernel_shape(self, kernel: Sequence[int]) -> None:
        """Invalid if the attribute contradicts the weights' shape, ``kernel``."""
        attribute = self.integers("kernel_shape")
        if attribute is not None and attribute != tuple(kernel):
            raise Invalid(
                f"kernel_shape {list(attribute)} for weights of {list(kernel)}", hint="the shape of the weights"
            )

    def sides(self, name: str, least: int, rank: int) -> tuple[int, ...]:
        """strides and the like, one for each axis of a window, ``least`` where absent; Invalid for smaller ones."""
        values = self.integers(name) or (least,) * rank
        if len(values) != rank or min(values) < least:
            raise Invalid(f"{name} {list(values)} of a {rank}d kernel", hint=f"{rank} of them, at least {least}")
        return values

    def pool_window(self, size: Sequence[int]) -> Window:
        """Geometry of a pool; a window that sees nothing but padding has no maximum and no mean."""
        window = self.window(size, self.integers("kernel_shape") or ())
        for axis in range(2):
            extent = (window.kernel[axis] - 1) * window.dilation[axis] + 1
            if max(window.before[axis], window.after[axis] - window.overhang[axis]) >= extent:
                raise Unsupported("a window can lie in the padding alone", hint="pads smaller than the kernel")
        return window

    def padding(self, size: int, kernel: int, stride: int, dilation: int, before: int, after: int) -> _Padding:
        """Along one axis."""
        extent = (kernel - 1) * dilation + 1
        auto = self.text("auto_pad", "NOTSET")
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            total = max((-(-size // stride) - 1) * stride + extent - size, 0)
            half = total // 2
            return (half, total - half, 0) if auto == "SAME_UPPER" else (total - half, half, 0)
        if auto == "VALID":
            before = after = 0
        elif auto != "NOTSET":
            raise Unsupported(f"auto_pad {auto}", hint="SAME_UPPER, SAME_LOWER, VALID or pads")
        ceil_mode = self.integer("ceil_mode", 0)
        if ceil_mode not in (0, 1):
            raise Invalid(f"ceil_mode {ceil_mode}", hint="0 or 1")
        if not ceil_mode:
            return before, after, 0
        steps = -(-(size + before + after - extent) // stride)
        if steps * stride >= size + before:  # the last window would start in the padding
            steps -= 1
        overhang = max(steps * stride + extent - (size + before + after), 0)
        return before, after + overhang, overhang


_Padding = tuple[int, int, int]  # before, after, the part of the latter that ceil_mode added


def _pair(numbers: Sequence[int]) -> tuple[int, int]:
    return (1, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])


def _value(attribute: onnx.AttributeProto) -> Any:
    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value
