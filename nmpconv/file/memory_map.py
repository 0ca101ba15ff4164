"""The memory plan of a file: what lies where in the arena during which step, and which step needs the most.

A step is an op. A tensor is alive from the step that makes it (an input: from before the first) to its last reader (an
output: to the end), both included.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from nmpconv.file.reader import FileOp, FileTensor, Model
from nmpconv.ir import Quant, Value
from nmpconv.ops import OPS


@dataclass(frozen=True)
class Life:
    """An activation: its index among the tensors, and the steps; first -1: an input, last = number of ops: an output.

    over: the tensor whose very bytes it takes over, as an op in place does.
    """

    tensor: int
    first: int
    last: int
    over: int | None

    def alive(self, step: int) -> bool:
        return self.first <= step <= self.last


class Traffic(NamedTuple):
    """Bytes that an op reads and writes of activations, by memory: all in the slow one where there is one memory."""

    fast: int
    slow: int


@dataclass(frozen=True)
class Step:
    """live: tensors, by offset. bytes: that they take together; what two of them share counts once. end: of the last
    of them in the arena. scratch: bytes behind it that the op's kernel needs; 0 where it has room in a fast memory.
    copied: bytes of weights that are copied there before it runs.
    """

    live: tuple[int, ...]
    bytes: int
    end: int
    scratch: int
    copied: int
    moved: Traffic


LEAST_SLOW = "least_slow"
"""Metadata: bytes that ops move in the slow memory, at least, whatever the plan."""


@dataclass(frozen=True)
class Memory:
    """peak: the step that sets the size of the arena. lower_bound: bytes that are alive together at most. with_scratch:
    bytes of activations and scratch.
    """

    lives: tuple[Life, ...]
    steps: tuple[Step, ...]
    peak: int
    lower_bound: int
    with_scratch: int


def memory(model: Model, scratch: Sequence[int]) -> Memory | None:
    """scratch: bytes that each op needs (`targets.scratch`). None where there is no op."""
    if not model.ops:
        return None
    lives = tuple(_lives(model))
    steps = tuple(_step(model, lives, i, size) for i, size in enumerate(scratch))
    peak = max(range(len(steps)), key=lambda i: (steps[i].end, steps[i].bytes, -i))
    bound = max(step.bytes for step in steps)
    ends = (max(step.end, model.fast_bytes) + step.scratch for step in steps if step.scratch)
    return Memory(lives, steps, peak, bound, max([model.arena_bytes, *ends]))


def to_json(model: Model, plan: Memory) -> dict[str, Any]:
    """Plain data: all that the picture is drawn from."""
    names = [tensor.name for tensor in model.tensors]
    return {
        "arena_bytes": model.arena_bytes,
        "lower_bound": plan.lower_bound,
        "peak": plan.peak,
        "with_scratch": plan.with_scratch,
        "fast_bytes": model.fast_bytes,
        "least_slow": least_slow(model),
        "tensors": [
            {
                "tensor": names[life.tensor],
                "offset": model.tensors[life.tensor].offset,
                "bytes": model.tensors[life.tensor].nbytes,
                "first": life.first,
                "last": life.last,
                "over": None if life.over is None else names[life.over],
            }
            for life in plan.lives
        ],
        "steps": [
            {
                "op": op.name,
                "kind": op.kind,
                "live": [names[i] for i in step.live],
                "live_bytes": step.bytes,
                "live_end": step.end,
                "scratch": step.scratch,
                "fast_moved": step.moved.fast,
                "slow_moved": step.moved.slow,
            }
            for op, step in zip(model.ops, plan.steps, strict=True)
        ],
    }


def least_slow(model: Model) -> int | None:
    """Bytes that ops move in the slow memory at least; None where the file does not say."""
    text = model.metadata.get(LEAST_SLOW, "")
    return int(text) if text.isdecimal() and len(text) < 20 else None


def _lives(model: Model) -> Iterable[Life]:
    """In the order in which they come to be."""
    first = {port.tensor: -1 for port in model.inputs} | {i: n for n, op in enumerate(model.ops) for i in op.outputs}
    last = first | {i: n for n, op in enumerate(model.ops) for i in op.inputs if i in first}
    last |= {port.tensor: len(model.ops) for port in model.outputs}
    for tensor, step in first.items():
        over = None if step < 0 else _taken_over(model, model.ops[step].inputs, tensor)
        yield Life(tensor, step, last[tensor], over)


def _taken_over(model: Model, inputs: Sequence[int], output: int) -> int | None:
    out = model.tensors[output]
    return next(
        (i for i in inputs if (model.tensors[i].offset, model.tensors[i].nbytes) == (out.offset, out.nbytes)), None
    )


def _step(model: Model, lives: Sequence[Life], step: int, scratch: int) -> Step:
    live = [life.tensor for life in lives if life.alive(step)]
    live.sort(key=lambda i: (model.tensors[i].offset or 0, i))
    total = end = 0
    for tensor in (model.tensors[i] for i in live):
        start, stop = tensor.offset or 0, (tensor.offset or 0) + tensor.nbytes
        total += max(stop - max(start, end), 0)
        end = max(end, stop)
    end = model.ops[step].live_end or model.arena_bytes
    room = model.ops[step].scratch_room
    weights = _repeated_weights(model, step)
    return Step(
        tuple(live),
        total,
        end,
        scratch=0 if 0 < scratch <= room else scratch,
        copied=weights if 0 < scratch + weights <= room else 0,
        moved=traffic(model, step),
    )


def _repeated_weights(model: Model, step: int) -> int:
    """Bytes of weights of an op that are read many times; 0 of others."""
    op = model.ops[step]
    if op.kind not in OPS:
        return 0
    ins, [out] = _values(model, op)
    weights = OPS[op.kind].repeated_weights(OPS[op.kind].Params(**op.params), ins, out)
    return 0 if weights is None else weights.nbytes


def _values(model: Model, op: FileOp) -> tuple[list[Value], list[Value]]:
    """Inputs and outputs, as ops' traits take them."""
    ins, outs = ([_value(model.tensors[i]) for i in side] for side in (op.inputs, op.outputs))
    return ins, outs


def _value(t: FileTensor) -> Value:
    quant = Quant(8 * np.dtype(t.dtype).itemsize, t.exponents, t.clip_min, t.clip_max, t.axis)
    return Value(t.name, t.shape, t.dtype, quant=quant)


def traffic(model: Model, step: int) -> Traffic:
    """Bytes of the output, and of inputs as `Op.reads` tells them."""
    op, moved = model.ops[step], [0, 0]
    if op.kind in OPS and not OPS[op.kind].moves:
        return Traffic(0, 0)
    ins, [out] = ([model.tensors[i] for i in side] for side in (op.inputs, op.outputs))
    counts: Sequence[int] = [x.nbytes // np.dtype(x.dtype).itemsize for x in ins]
    if op.kind in OPS:
        values, [result] = _values(model, op)
        counts = OPS[op.kind].reads(OPS[op.kind].Params(**op.params), values, result)
    for tensor, size in zip([*ins, out], [*counts, out.nbytes // np.dtype(out.dtype).itemsize], strict=True):
        if tensor.offset is not None:
            moved[tensor.offset >= model.fast_bytes] += size * np.dtype(tensor.dtype).itemsize
    return Traffic(*moved)
