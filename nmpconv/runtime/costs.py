"""Instructions that a file takes on a microcontroller, estimated: what its ops count, times what `costs.json` says.

1. The instructions of an op are a sum over counts that its kernel's loops follow: once a call, for each channel, for
   each product and so on (`counts`). A kernel is told by the op, by the kind of convolution and by the widths of its
   operands (`kernel`).
2. What each count costs on each target was fitted to instructions that QEMU counted (`make costs`). docs/results.md has
   the error.
3. Of a kernel that was not counted with these widths, the figures of the nearest wider ones are taken.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from math import ceil, prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nmpconv.base.verdict import Footprint
from nmpconv.errors import NmpError
from nmpconv.file.reader import FileTensor, Model, read
from nmpconv.ir import Graph, Quant, Value
from nmpconv.ops import OPS
from nmpconv.ops.common.effort import Sums
from nmpconv.ops.common.weighted import Weighted
from nmpconv.ops.conv_add import CONV, ConvAdd
from nmpconv.ops.custom import Custom
from nmpconv.ops.gather import Gather
from nmpconv.ops.normalize import Normalize
from nmpconv.ops.op import quant_of
from nmpconv.ops.slice import Slice
from nmpconv.runtime import interpreter
from nmpconv.runtime.interpreter import TargetNeeds
from nmpconv.runtime.targets import MICROCONTROLLERS

DEFAULT = "cortex-m4"  # where nobody says which
TABLE = Path(__file__).with_name("costs.json")
# Pixels, channels and factors of a kernel's blocks; what is less is filled up. Of int8 products and of others.
PLAIN32 = ("cortex-m0plus", "cortex-m3", "rv32")  # whose kernels are `arch/plain32`
BLOCKS = {
    **dict.fromkeys(PLAIN32, ((4, 2, 1), (4, 2, 1))),
    "cortex-m4": ((1, 1, 4), (1, 1, 4)),
    "cortex-m55": ((1, 4, 16), (1, 2, 8)),
}
# Channels of a depthwise kernel, as above.
LANES = {**dict.fromkeys(PLAIN32, (1, 1)), "cortex-m4": (4, 2), "cortex-m55": (8, 8)}
ONE_BY_ONE = ("cortex-m4",)  # whose depthwise kernel takes fewer int8 channels one at a time
# Counts of sums that only some targets' kernels know.
SPECIAL = {
    **{target: {"heavy", "strided", "places"} for target in PLAIN32},
    "cortex-m4": {"late", "ragged", "prepared", "tails", "clipped", "wide"},
    "cortex-m55": {"broken"},
}
ANYWHERE = set().union(*SPECIAL.values())
FULL = ((-128, 127), (0, 127), (-32768, 32767), (0, 32767))  # ranges that an instruction saturates to
TOLD = {"instructions": 1.0}  # of a custom op, which says itself how many it takes
# Pixels of a block, where any has more than one.
FEW = {**dict.fromkeys(MICROCONTROLLERS, 4), "cortex-m4": 3}


@dataclass(frozen=True)
class Counted:
    """kernel: a row of the table. counts: what its figures are multiplied with."""

    kernel: str
    counts: Mapping[str, float]


class Products(NamedTuple):
    """Effort of a node with weights, before it is a target's. other: the other operand of its sum."""

    sums: Sums
    inputs: Sequence[Value]
    output: Value
    other: Value | None = None


Effort = Counted | Products  # of an op: on any target, or what its counts depend on there


def estimated(data: bytes, target: str) -> list[int]:
    """Instructions of each op of a file. target: of `targets.MICROCONTROLLERS`.

    Raises ModelError; NmpError for an op that the table lacks.
    """
    return _estimated(_efforts(read(data)), interpreter.needs_of_target(data, target), target)


def totals(data: bytes, planned: Graph, targets: Sequence[str]) -> list[int]:
    """Instructions of a file on each of these targets, as `estimated` has them. planned: the graph that it is of."""
    efforts = _efforts_of(planned)
    return [sum(_estimated(efforts, interpreter.needs_of_target(data, target), target)) for target in targets]


def _estimated(efforts: Sequence[Effort], needs: TargetNeeds, target: str) -> list[int]:
    rows = _table()[target]
    work = ((_row(rows, op.kernel), op.counts) for op in _counts(efforts, needs, target))
    return [round(sum(row.get(name, 0.0) * count for name, count in counts.items())) for row, counts in work]


def footprint(data: bytes, target: str | None, content: Model | Graph | None = None) -> Footprint:
    """Needs of a file on a microcontroller: its target, or DEFAULT where that is none. content: what is in it, or the
    planned graph that it is of; None: it is read. Raises ModelError."""
    there = stand_in(target)
    needs = interpreter.needs_of_target(data, there)
    efforts = _efforts_of(content) if isinstance(content, Graph) else _efforts(content or read(data))
    return Footprint(needs.arena_bytes, len(data), sum(_estimated(efforts, needs, there)), there)


def stand_in(target: str | None) -> str:
    """The target itself where instructions are known there."""
    return target if target in MICROCONTROLLERS else DEFAULT


@cache
def _table() -> dict[str, dict[str, dict[str, float]]]:
    return dict(json.loads(TABLE.read_text(encoding="utf-8"))["targets"])


def _row(rows: Mapping[str, Mapping[str, float]], kernel: str) -> Mapping[str, float]:
    """Case 3."""
    if kernel in rows:
        return rows[kernel]
    if kernel == Custom.name:
        return TOLD
    kind, widths, *rest = kernel.split(" ")

    def far(other: str) -> tuple[bool, bool, int, str]:
        _, has, *more = other.split(" ")
        pairs = list(zip(map(int, widths.split("/")), map(int, has.split("/")), strict=True))
        return more != rest, any(b < a for a, b in pairs), sum(abs(a - b) for a, b in pairs), other

    kin = [other for other in rows if other.split(" ")[0] == kind]
    if not kin:
        raise NmpError(
            f"the instructions of {kind} are not known",
            where=f"nmpconv/runtime/{TABLE.name}",
            hint=f"`make costs ARGS={kind}` counts them: CONTRIBUTING.md, Add an op",
        )
    return rows[min(kin, key=far)]


def counted(data: bytes, target: str) -> list[Counted]:
    """Counts the effort of each op of a file. Raises ModelError."""
    return _counts(_efforts(read(data)), interpreter.needs_of_target(data, target), target)


def _efforts(model: Model) -> list[Effort]:
    values = [_value(tensor) for tensor in model.tensors]
    return [
        _effort(
            op.kind,
            OPS[op.kind].Params(**op.params),
            op.macs,
            *([values[i] for i in of] for of in (op.inputs, op.outputs)),
        )
        for op in model.ops
    ]


def _efforts_of(planned: Graph) -> list[Effort]:
    efforts = []
    for node in planned.nodes:
        inputs, outputs = planned.ins(node), planned.outs(node)
        macs = OPS[node.op].macs(node.params, inputs, outputs)
        efforts.append(_effort(node.op, node.params, macs, inputs, outputs))
    return efforts


def _effort(op: str, params: Any, macs: int, inputs: Sequence[Value], outputs: Sequence[Value]) -> Effort:
    known = OPS[op]
    if isinstance(known, Custom):
        return Counted(known.name, {"instructions": known.instructions(params, inputs, outputs[0])})
    if isinstance(known, ConvAdd):
        return Products(CONV.sums(params, inputs[1:], outputs[0]), inputs[1:], outputs[0], inputs[0])
    if isinstance(known, Weighted):
        return Products(known.sums(params, inputs, outputs[0]), inputs, outputs[0])
    return _plain(op, params, macs, inputs, outputs)


def _counts(efforts: Sequence[Effort], needs: TargetNeeds, target: str) -> list[Counted]:
    return [
        effort if isinstance(effort, Counted) else _counted(effort, target, left)
        for effort, left in zip(efforts, needs.portable, strict=True)
    ]


def _counted(products: Products, target: str, portable: bool) -> Counted:
    sums, inputs, output, other = products
    if other is not None:
        return _added(products, target)
    wide = any(value.dtype != "int8" for value in inputs[:2])
    if sums.spread:
        kind, counts = "spread", _dense(sums, inputs[0], output, (1, 1, 1))
    elif sums.by_channel and sums.groups >= LANES[target][wide]:
        kind = "depthwise" + "x".join(str(axis.kernel) for axis in sums.window)
        kind = kind if kind == "depthwise3x3" and sums.window[1].dilation == 1 else "depthwise"
        counts = _depthwise(sums, output, LANES[target][wide])
    elif sums.by_channel and not wide and target in ONE_BY_ONE:
        kind, counts = "depthwise1", _one_by_one(sums)
    else:
        kind = "grouped" if sums.groups > 1 else "dense" if sums.pixels >= FEW[target] else "few"
        counts = _dense(sums, inputs[0], output, BLOCKS[target][wide])
    counts = {name: n for name, n in counts.items() if name not in ANYWHERE or name in SPECIAL[target]}
    return Counted(f"{kind} {_widths([*inputs[:2], output])}{' portable' if portable else ''}", counts)


def _added(products: Products, target: str) -> Counted:
    """A dense convolution and the other operand of its sum, the first input; where that is not y's place, it is moved
    there. No patch lies in y, where it waits."""
    sums, read, y, other = products
    assert other is not None
    wide = any(value.dtype != "int8" for value in read[:2])
    counts = {**_dense(sums, read[0], y, BLOCKS[target][wide]), "late": 0, "moved": y.size * (other.offset != y.offset)}
    counts = {name: n for name, n in counts.items() if name not in ANYWHERE or name in SPECIAL[target]}
    return Counted(f"added {_widths([*read[:2], y])}", counts)


def _dense(sums: Sums, x: Value, y: Value, block: tuple[int, int, int]) -> dict[str, float]:
    """late: pixels whose place the patches of three pixels take (conv_dsp.c); of fewer pixels: those with many
    factors. heavy: see `Sums.light`. wide: sums of int16 that 32 bits do not hold (`nmp_dsp_is_narrow`)."""
    pixels, groups, channels, k = sums.pixels, sums.groups, sums.channels, sums.k
    steps = groups * prod(ceil(n / size) * size for n, size in zip((pixels, channels, k), block, strict=True))
    outputs = pixels * groups * channels
    row = outputs // pixels << (y.dtype == "int16")
    each = 6 if pixels >= 3 else 8
    room = 704 if y.nbytes >= 8 * each * k else max(1280, (x.nbytes + y.nbytes) // 2) if pixels >= 3 else 1280
    rows, columns = sums.window
    gathered = 0 if sums.direct else pixels * groups
    return {
        "call": 1,
        "channels": channels * groups,
        "prepared": channels * groups * (ceil(pixels / 3) if channels * groups > 64 else 1),
        "pixels": pixels * groups,
        "outputs": outputs,
        "tails": outputs * (k % 4 != 0),
        "clipped": outputs * _clipped(y),
        "steps": steps,
        "heavy": steps * (1 - sums.light),
        "late": steps * min(1.0, each * k / row / pixels) * (each * k + 5 * min(channels, 64) > room),
        "wide": steps * (x.dtype == "int16" and k > 256),
        "broken": steps * (k % 64 != 0),
        "rows": gathered * (rows.kernel if groups == columns.dilation == 1 else sums.taps),
        "edges": 0 if sums.direct else sums.images * groups * sums.edges,
        "padding": sums.images * groups * sums.padding,
        "factors": pixels * groups * k,
        "gathered": gathered * k,
        "ragged": gathered * k * (k % 4 != 0),
        "weights": channels * groups * k,
    }


def _depthwise(sums: Sums, y: Value, lanes: int) -> dict[str, float]:
    rows, columns = sums.window
    channels = ceil(sums.groups / lanes) * lanes
    outputs = sums.pixels * channels
    return {
        "call": 1,
        "channels": channels,
        "pixels": sums.pixels,
        "rows": sums.images * rows.out * channels,
        "outputs": outputs,
        "edges": sums.images * sums.edges * channels,
        "taps": outputs * sums.taps - sums.images * sums.padding * channels,
        "padding": sums.images * sums.padding * channels,
        "columns": sums.images * rows.out * ((columns.out - 1) * columns.stride + columns.kernel) * channels,
        "clipped": outputs * _clipped(y),
        "strided": outputs * (columns.stride > 1),
        "places": sums.pixels * sums.taps,
    }


def _one_by_one(sums: Sums) -> dict[str, float]:
    taps = (sums.pixels * sums.taps - sums.images * sums.padding) * sums.groups
    return {"call": 1, "channels": sums.groups, "outputs": sums.pixels * sums.groups, "taps": taps}


def _plain(op: str, params: Any, macs: int, inputs: Sequence[Value], outputs: Sequence[Value]) -> Counted:
    """Counts the effort of an op without weights. products: its own count, or the places of its window. blocks:
    elements of a slice that are read side by side are one. groups: numbers that are normalized together are one."""
    size = sum(value.size for value in outputs)
    places = getattr(params, "kernel_h", 0) * getattr(params, "kernel_w", 0)
    line = outputs[0].shape[-1] if outputs[0].shape else 1
    activations = [x for x in inputs if not x.is_const]
    counts = {
        "call": 1,
        "lines": size // line,
        "operands": len(activations),
        "runs": sum(x.size // _run(x.shape, outputs[0].shape) for x in activations),
        "pieces": size // _alike(activations[0].shape if activations else (), outputs[0].shape),
        "inputs": sum(x.size for x in activations),
        "outputs": size,
        "moved": size * (activations[:1] != [] and activations[0].offset != outputs[0].offset),
        "products": macs or size * places,
    }
    if op == Slice.name:
        axes = list(zip(params.steps, activations[0].shape, outputs[0].shape, strict=True))
        counts["blocks"] = size // _block(axes)
        return Counted(f"{op} {_widths([inputs[0], outputs[0]])}{' rows' * _is_rows(axes)}", counts)
    if op == Normalize.name:
        counts["groups"] = size // prod(outputs[0].shape[axis] for axis in params.axes)
    if OPS[op].grid == "same" and (places := OPS[op].places) is not None:
        counts["inputs"] = inputs[places].size  # of the other one only what is chosen is read
    if op == Gather.name:
        groups, rows = (prod(outputs[0].shape[: params.axis + k]) for k in (0, 1))
        how = " elements" if rows == size else ""
        counts = {"call": 1, "groups": groups, "rows": rows, "outputs": size}
        return Counted(f"{op} {_widths([inputs[0], outputs[0]])}{how}", counts)
    if not (OPS[op].elementwise and OPS[op].joins):
        return Counted(f"{op} {_widths([inputs[0], outputs[0]])}", counts)
    counts["unshifted"] = size * (min(map(_exponent, inputs)) == _exponent(outputs[0]))
    ends = {x.shape[-1:] == outputs[0].shape[-1:] for x in inputs}
    how = "" if all(x.size == size for x in inputs) else " rows" if ends == {True} else " scalars"
    return Counted(f"{op} {_widths([*inputs[:2], outputs[0]])}{how}", counts)


def _exponent(value: Value) -> int:
    return quant_of(value).exponents[0]


def _run(x: Sequence[int], y: Sequence[int]) -> int:
    """Elements that lie side by side in both, as far as the shapes tell."""
    alike = _same_axes(x, y)
    if alike == min(len(x), len(y)):
        return min(prod(x), prod(y))
    return prod(x[len(x) - alike :]) * min(x[-1 - alike], y[-1 - alike])


def _block(axes: Sequence[tuple[int, int, int]]) -> int:
    """Elements of a slice that lie side by side in both. axes: step, whole and part of each."""
    block = 1
    for step, whole, part in reversed(axes):
        if step != 1 and part > 1:
            break
        block *= part
        if part != whole:
            break
    return block


def _is_rows(axes: Sequence[tuple[int, int, int]]) -> bool:
    """Checks that a slice is copied row by row, as slice.c has it: one axis is cut, and nothing left out within."""
    cut = [step == 1 or part == 1 for step, whole, part in axes if part != whole or step != 1]
    return cut == [True]


def _alike(x: Sequence[int], y: Sequence[int]) -> int:
    """Elements of the last axes that both have."""
    return prod(x[len(x) - _same_axes(x, y) :])


def _same_axes(x: Sequence[int], y: Sequence[int]) -> int:
    return len(list(takewhile(lambda dims: dims[0] == dims[1], zip(reversed(x), reversed(y), strict=False))))


def _clipped(y: Value) -> bool:
    return y.quant is not None and (y.quant.lo, y.quant.hi) not in FULL


def _widths(values: Sequence[Value]) -> str:
    return "/".join(str(8 * np.dtype(value.dtype).itemsize) for value in values)


def _value(tensor: FileTensor) -> Value:
    bits = 8 * np.dtype(tensor.dtype).itemsize
    quant = Quant(bits, tensor.exponents, tensor.clip_min, tensor.clip_max, tensor.axis)
    return Value(tensor.name, tensor.shape, tensor.dtype, tensor.data, quant=quant, offset=tensor.offset)
