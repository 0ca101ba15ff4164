"""What a file needs of each kind of machine, before it is there.

On this machine the interpreter tells. For the others, what their kernels need is computed here as the interpreter does
it (`scratch` in conv_<isa>.c); a test compares with simulated boards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np

from nmpconv import runtime
from nmpconv.memory import SCRATCH
from nmpconv.ops import WEIGHTED
from nmpconv.reader import Model, Op, Tensor

HOST = "host"
HANDLE = 256  # most bytes of a handle on a 32-bit machine
# kB of flash that a bundle's interpreter takes, least and most: what bench/mcu.py measures for the MLPerf Tiny nets.
INTERPRETER = {"cortex-m4": (12, 28), "cortex-m55": (9, 25), "rv32": (26, 42)}


@dataclass(frozen=True)
class Needs:
    """Bytes of RAM: arena is all that a run takes. exact: else it is what it takes at most."""

    target: str
    arena: int
    activations: int
    handle: int
    scratch: int
    packed: int
    exact: bool
    interpreter: tuple[int, int] | None = None  # kB of flash, see INTERPRETER


@dataclass(frozen=True)
class _Sums:
    """A convolution or fully connected layer: k factors a sum, so many channels a group, pixels of y. overlaps: y has
    bytes of x and is computed in bands.
    """

    k: int
    inner: int
    channels: int
    outputs: int
    pixels: int
    x_wide: int
    w_wide: int
    y_wide: int
    direct: bool
    depthwise: bool
    per_channel: bool
    by_lines: bool  # 3x3 depthwise, as rv32 has a way of its own for
    overlaps: bool
    shift: int  # the least of a channel's


def _align(size: int, to: int = 16) -> int:
    return -(-size // to) * to


def _portable(c: _Sums) -> int:
    if c.depthwise:
        return _align(c.k * 4) + _align(c.k * 32 << c.w_wide)
    return 0 if c.direct else _align(8 * c.k << c.x_wide)


def _dsp(c: _Sums) -> int:
    if c.depthwise:
        return max(SCRATCH, _dsp_rows(c))
    return _dsp_rows(c)


def _dsp_rows(c: _Sums) -> int:
    words = -(-c.k // 4) * 2
    ends = _align(5 * min(c.channels, 64), 8)
    narrow = not c.w_wide and c.k <= (256 if c.x_wide else 65536)
    low = c.overlaps or c.pixels * c.outputs << c.y_wide < 128 * words
    four = c.pixels >= 4 and narrow and 16 * words + ends <= (1280 if low else 640)
    patches = (16 if four else 8 if c.pixels >= 2 else 0) * words
    linear = 0 if c.direct and c.k % 4 == 0 else words * 2 << c.x_wide
    ragged = c.inner % 4 or c.k % 4
    return _align(ends + (patches + linear if ragged else max(patches, linear)))


def _mve(c: _Sums) -> int:
    if c.depthwise and c.outputs >= 8:
        return _align(max(c.k * 16 << (c.x_wide & c.w_wide), _portable(c)))
    repeated = 0 if c.per_channel or c.x_wide or c.w_wide else _align(c.outputs)
    wide = c.x_wide | c.w_wide
    patches = 0 if c.direct else min(max(512 // (c.k << c.x_wide), 1 + wide), 16)
    room = c.shift + (1 if c.x_wide and c.w_wide else 9)  # conv_mve.c: else the portable kernel computes it
    fits = not wide or (c.shift >= 0 and c.k < 1 << room)
    return _align(repeated + patches * c.k << c.x_wide) if fits else _portable(c)


def _rv32(c: _Sums) -> int:
    if c.by_lines:
        return 0
    if c.depthwise or c.pixels < 4:
        return _portable(c)
    pairs = c.outputs // c.channels * ((c.channels + 1) // 2)
    flags = pairs if c.x_wide == c.w_wide and pairs <= 512 and c.pixels >= 32 else 0
    return _align((4 if c.w_wide > c.x_wide else 8) * c.k + flags)


MICROCONTROLLERS: dict[str, Callable[[_Sums], int]] = {"cortex-m4": _dsp, "cortex-m55": _mve, "rv32": _rv32}
TARGETS = (HOST, *MICROCONTROLLERS)


def needs(model: Model, data: bytes | None, target: str) -> Needs:
    """data: the file, for the host."""
    if target == HOST:
        found = runtime.needs(data or b"")
        activations, packed = found["activation_bytes"], found["packed_bytes"]
        rest = found["arena_bytes"] - activations - packed
        return Needs(target, found["arena_bytes"], activations, rest, found["scratch_bytes"], packed, exact=True)
    scratch = MICROCONTROLLERS[target]
    sizes = [_scratch(op, model, scratch) for op in model.ops]
    ends = [(op.live_end or model.arena_bytes) + size for op, size in zip(model.ops, sizes, strict=True)]
    arena = _align(max([model.arena_bytes, *ends])) + HANDLE
    return Needs(target, arena, model.arena_bytes, HANDLE, max(sizes, default=0), 0, False, INTERPRETER[target])


def _scratch(op: Op, model: Model, of: Callable[[_Sums], int]) -> int:
    if op.kind not in WEIGHTED:
        return 0
    x, w = (model.tensors[i] for i in op.inputs[:2])
    k = prod(w.shape[1:])
    if op.kind == "conv_transpose":
        return _align(8 * k * (x.nbytes // prod(x.shape)))
    y, p, groups = model.tensors[op.outputs[0]], op.params, op.params.get("groups", 1)
    spread = any(p.get(f"stride_{axis}", 1) != 1 for axis in "hw")
    padded = any(p.get(f"pad_{side}", 0) for side in ("top", "left", "bottom", "right"))
    outputs = w.shape[0]
    return of(
        _Sums(
            k,
            x.shape[-1] // groups,
            outputs // groups,
            outputs,
            prod(y.shape[:-1]),
            int(x.dtype == "int16"),
            int(w.dtype == "int16"),
            int(y.dtype == "int16"),
            direct=k == x.shape[-1] and groups == 1 and not spread and not padded,
            depthwise=groups == x.shape[-1] == outputs and op.kind == "conv2d",
            per_channel=len(w.exponents) > 1,
            by_lines=_by_lines(op, model),
            overlaps=overlap(x, y),
            shift=y.exponents[0] - x.exponents[0] - max(w.exponents),
        )
    )


def _by_lines(op: Op, model: Model) -> bool:
    """conv_rv32_depthwise.c: 3x3, one width, and ends that fit 32 bits."""
    x, w, b = (model.tensors[i] for i in op.inputs[:3])
    y, p = model.tensors[op.outputs[0]], op.params
    if op.kind != "conv2d" or len(op.inputs) > 3 or w.shape[1:] != (3, 3, 1) or {x.dtype, w.dtype} != {y.dtype}:
        return False
    shifts = y.exponents[0] - x.exponents[0] - np.array(w.exponents, np.int64)
    least, most = (1, 29) if x.dtype == "int8" else (4, 45)
    fits = shifts.min() >= least and shifts.max() <= most
    limit = 2**29 >> shifts if fits and x.dtype == "int8" else np.array(2**29)
    whole = p["groups"] == x.shape[-1] == w.shape[0] and p["dilation_h"] == p["dilation_w"] == 1
    return bool(whole and fits and (np.abs(np.asarray(b.data, np.int64)) < limit).all())


def overlap(a: Tensor, b: Tensor) -> bool:
    """Whether two activations share bytes of the arena."""
    start, other = a.offset or 0, b.offset or 0
    return start < other + b.nbytes and other < start + a.nbytes
