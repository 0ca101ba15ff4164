"""Runs of many samples: on the threads that are worth their start, fully connected layers as products of matrices."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmpconv import _nmp
from nmpconv.base import thread_pool
from nmpconv.errors import InputError
from nmpconv.file.flatbuffer import Table, multiplied
from nmpconv.file.reader import FileOp, Model
from nmpconv.runtime.ports import Port

ALIGN = 64  # of the model's and the arena's memory
AT_ONCE = 1 << 16  # numbers of an input that become integers at a time: they stay in a core's cache
PROBE = 32  # the part of a batch whose time is taken, 1 / 32
PROBES = 2  # such parts at most, as long as they are short: nothing is in the caches at first
WORTH = 1e-3  # seconds of a batch's work from which on several threads may be sooner done
LONG = 2e-2  # seconds of it from which on they surely are
TRIES = {1 << i for i in range(2, 64)}  # batches, by number, that go the way that was later done
PARTS = 4  # of a batch for each thread: who is done early takes another one

BLOCK = 16  # samples of a block
BLOCK_BYTES = 1 << 24  # of a block's activations, at most

# Ops that compute each row of the first dimension by itself, where that is 1 for a sample.
BY_ROW = {"fully_connected", "requantize", "lookup", "softmax", "reshape"}
OPERANDS_BY_ROW = {"add", "sub", "mul", "minimum", "maximum"}  # where all have as many dimensions as the result

Bytes = NDArray[np.uint8]


class Block:
    """The net of BLOCK samples side by side, of a file whose layers are fully connected: the same file with another
    first dimension. A fully connected layer reads each of its weights once for all of them then.

    It is made when it is first asked for, and has packed weights of its own.
    """

    def __init__(self, model: Model, data: memoryview, level: str) -> None:
        self._model, self._data, self._level = model, data, level

    def copy(self) -> _nmp.Net | None:
        """The net with an arena of its own; None: samples are run one by one."""
        if self._made is None:
            return None
        net, arena_bytes = self._made
        return _nmp.Net(net, aligned(arena_bytes), 1)

    @cached_property
    def _made(self) -> tuple[_nmp.Net, int] | None:
        if not (_is_connected(self._model) and _is_by_row(self._model)):
            return None
        file = multiplied(self._data, _first_dimensions, BLOCK)
        model = aligned(len(file))
        model[:] = np.frombuffer(file, np.uint8)
        try:
            info = _nmp.inspect(model, self._level, 1)
            net = _nmp.Net(model, aligned(info["arena_bytes"]), self._level, 1)
        except _nmp.Fault:  # the file keeps a number once that constants need, too
            return None
        return net, info["arena_bytes"] - info["packed_bytes"]


class Lane(NamedTuple):
    """The nets of a thread. block: of BLOCK samples, or None."""

    one: _nmp.Net
    block: _nmp.Net | None

    def run(self, inputs: list[NDArray[Any]], outputs: list[NDArray[Any]], count: int) -> bool:
        """Runs samples, a row each. Of a block that is not full, some are computed once more. Returns False where there
        are numbers that are not finite, which may end it early.
        """
        if self.block is None or count < BLOCK:
            return self.one.run_each(inputs, outputs, 0, count)
        whole = count - count % BLOCK
        finite = True
        for first, last in [(0, whole), (count - BLOCK, count)][: 1 if whole == count else 2]:
            blocks = (last - first) // BLOCK
            input_blocks, output_blocks = (
                [x[first:last].reshape(blocks, -1) for x in side] for side in (inputs, outputs)
            )
            finite = finite and self.block.run_each(input_blocks, output_blocks, 0, blocks)
        return finite


class Batch(NamedTuple):
    """The rows of a call, those of `Port.rows`, and its outputs [N, *shape], which are real numbers or integers.

    step: samples whose numbers are converted at a time.
    """

    rows: Sequence[NDArray[Any]]
    outputs: Sequence[NDArray[Any]]
    input_ports: Sequence[Port]
    output_ports: Sequence[Port]
    reals: bool
    step: int

    def run(self, lane: Lane, samples: range) -> None:
        """Computes these outputs. Raises InputError for numbers that are not finite."""
        for first in range(samples.start, samples.stop, self.step):
            self._run(lane, slice(first, min(first + self.step, samples.stop)))

    def _run(self, lane: Lane, here: slice) -> None:
        n = here.stop - here.start
        arrays = [port.numbers(x[here]) for x, port in zip(self.rows, self.input_ports, strict=True)]
        outputs = list(zip(self.outputs, self.output_ports, strict=True))
        results = [
            np.empty((n, *port.shape), port.dtype) if self.reals and not port.is_native else y[here]
            for y, port in outputs
        ]
        if not lane.run([table(x, n) for x in arrays], [table(y, n) for y in results], n):
            for x, port in zip(arrays, self.input_ports, strict=True):
                port.check_finite(x)
            raise InputError("an input has values that are not finite")
        if self.reals:
            for q, (y, port) in zip(results, outputs, strict=True):
                if not port.is_native:
                    y[here] = port.dequantize(q)


class Batches:
    """Batches of a net: any number of Python's threads may call it.

    arena_bytes: of a copy of the net. threads: that may compute, each with nets of its own, which are kept.
    """

    def __init__(
        self,
        net: _nmp.Net,
        inputs: Sequence[Port],
        outputs: Sequence[Port],
        arena_bytes: int,
        threads: int,
        block: Block,
    ) -> None:
        self._net, self._inputs, self._outputs = net, inputs, outputs
        self._arena_bytes, self._threads, self._block = arena_bytes, threads, block
        self._spares: list[Lane] = []
        self._step = max(1, AT_ONCE // max((math.prod(port.shape) for port in inputs), default=1))
        self._seconds: dict[int, float] = {}  # of a sample, by the least number that runs side by side
        self._paces: dict[tuple[int, int, bool], float] = {}  # seconds of a sample: see `_is_shared`
        self._turns: Counter[tuple[int, int]] = Counter()

    def of(self, net: _nmp.Net, threads: int) -> Batches:
        """Those of a copy of the net."""
        return Batches(net, self._inputs, self._outputs, self._arena_bytes, threads, self._block)

    @cached_property
    def _lane(self) -> Lane:
        return Lane(self._net, self._block.copy())

    def run(self, rows: Sequence[NDArray[Any]], count: int, reals: bool) -> list[NDArray[Any]]:
        """Outputs [count, *shape] of ``count`` rows, which are those of `Port.rows`: integers, or real numbers.

        The first rows of the first batch say how long one takes. All others are given to all threads where these are
        sooner done. A lone row is of the net itself, which has the states.
        """
        lane, least, step = Lane(self._net, None), 1, self._step
        if count >= BLOCK and self._lane.block is not None:
            lane, least, step = self._lane, BLOCK, -(-step // BLOCK) * BLOCK
        outputs = [np.empty((count, *port.shape), np.float64 if reals else port.dtype) for port in self._outputs]
        batch = Batch(rows, outputs, self._inputs, self._outputs, reals, step)
        seconds, left = self._seconds.get(least, math.inf), range(count)
        if math.isinf(seconds):
            seconds, left = _probed(batch, lane, left, max(least, -(-count // PROBE)))
        is_shared = self._is_shared(least, len(left), seconds)
        if not is_shared:
            pace = took = timed(batch.run, lane, left)
        else:
            size = -(-len(left) // (PARTS * self._threads))
            tasks = [left[i : i + size] for i in range(0, len(left), size)]
            pace = timed(
                thread_pool.each, partial(self._run_leased, batch, lane.block is not None), tasks, self._threads
            )
            took = self._threads * pace
        if left:
            kind = (least, len(left).bit_length(), is_shared)
            self._paces[kind] = min(self._paces.get(kind, math.inf), pace / len(left))
        if count:
            self._seconds[least] = min(seconds, took / len(left)) if left else seconds
        return outputs

    def _run_leased(self, batch: Batch, has_block: bool, samples: range) -> None:
        """Runs samples on nets that no other thread has."""
        try:
            lane = self._spares.pop()
        except IndexError:
            net = _nmp.Net(self._net, aligned(self._arena_bytes), 1)
            lane = Lane(net, self._block.copy() if has_block else None)
        try:
            batch.run(lane, samples)
        finally:
            self._spares.append(lane)

    def _is_shared(self, least: int, count: int, seconds: float) -> bool:
        """Checks that all threads take so many samples.

        To start a thread takes as long as some samples, and how long differs from machine to machine. So batches of
        medium length go both ways at first, and then the way that was sooner done with batches of this size. The other
        one has another try at the 4th, 8th, 16th of them, and so on: nets of threads are made at first.

        least: number that runs side by side. seconds: of a sample.
        """
        if self._threads == 1 or count < 2 or seconds * count <= WORTH:
            return False
        if seconds * count > LONG:
            return True
        kind = (least, count.bit_length())
        self._turns[kind] += 1
        alone, shared = (self._paces.get((*kind, way), 0.0) for way in (False, True))
        return (shared <= alone) != (self._turns[kind] in TRIES)


def _probed(batch: Batch, lane: Lane, samples: range, count: int) -> tuple[float, range]:
    """Runs parts of ``count`` samples, at most PROBES. Returns the least seconds of a sample, and what is left."""
    seconds, count = math.inf, min(batch.step, count)
    for _ in range(PROBES):
        part, samples = samples[:count], samples[count:]
        took = timed(batch.run, lane, part)
        seconds = min(seconds, took / max(len(part), 1))
        if took > WORTH or seconds * len(samples) <= WORTH:
            break
    return seconds, samples


def timed(work: Callable[..., object], *arguments: object) -> float:
    """Seconds that a call takes."""
    start = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - start


def aligned(size: int) -> Bytes:
    """Memory of so many bytes at a multiple of ALIGN."""
    memory = np.zeros(size + ALIGN, np.uint8)
    start = -memory.ctypes.data % ALIGN
    return memory[start : start + size]


def byte_rows(x: NDArray[Any], count: int) -> Bytes:
    """The bytes of so many samples, a row each: of a contiguous array its own memory."""
    return np.ascontiguousarray(x).reshape(count, -1).view(np.uint8)


def table(x: NDArray[Any], count: int) -> NDArray[Any]:
    """A row a sample: real numbers as they are, of integers their bytes."""
    return np.ascontiguousarray(x).reshape(count, -1) if x.dtype.kind == "f" else byte_rows(x, count)


def _is_connected(model: Model) -> bool:
    return any(op.kind == "fully_connected" for op in model.ops)


def _is_by_row(model: Model) -> bool:
    """Checks that every op computes rows of a first dimension by themselves."""
    activations = [tensor for tensor in model.tensors if tensor.data is None]
    return (
        all(len(tensor.shape) > 1 and tensor.shape[0] == 1 for tensor in activations)
        and all(_keeps_rows(model, op) for op in model.ops)
        and all(port.state is None for port in model.inputs)
        and model.arena_bytes * BLOCK <= BLOCK_BYTES
    )


def _keeps_rows(model: Model, op: FileOp) -> bool:
    if op.kind in OPERANDS_BY_ROW:
        ranks = [len(model.tensors[i].shape) for i in (*op.inputs, *op.outputs) if model.tensors[i].data is None]
        return len(set(ranks)) == 1
    return op.kind in BY_ROW and op.params.get("axis") != 0


def _first_dimensions(kind: str, table: Table) -> Iterable[str]:
    """Fields of a file that follow from the number of samples."""
    if kind == "Tensor":
        return () if table["data"] is not None else ("shape", "offset")
    plan = {"Op": ("live_end", "scratch_at", "scratch_room"), "Model": ("arena_bytes", "fast_bytes")}
    return {"Reshape": ("shape",), **plan}.get(kind, ())
