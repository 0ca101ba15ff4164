"""A model on a device: fed, verified against this machine, measured, compared op by op. Prints nothing."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from nmpconv.base.progress import Progress, silent
from nmpconv.base.quantities import duration, scaled
from nmpconv.base.summary import Chart, Summarized, Summary
from nmpconv.device.client import RECOVERIES, Device, Upload
from nmpconv.device.link import RequestRefused
from nmpconv.device.protocol import Hello, Loaded
from nmpconv.device.simulator import MACHINES, instructions_per_tick
from nmpconv.errors import DeviceError, MismatchError
from nmpconv.runtime.interpreter import Net

Arrays = list[np.ndarray]

SHOWN = 8  # differing values in a message
STREAM_CALLS = 4  # of a net with states that are verified where nobody gives any


@dataclass(frozen=True)
class Difference:
    """Differences of a tensor on the device from the host's: flat indices, and the values at them."""

    tensor: int
    count: int
    size: int
    first: tuple[tuple[int, int, int], ...]  # index, device, host

    def __str__(self) -> str:
        shown = ", ".join(f"[{i}] is {got}, not {wanted}" for i, got, wanted in self.first)
        return f"{self.count} of {self.size} values differ: {shown}{', ...' if self.count > len(self.first) else ''}"


@dataclass(frozen=True)
class Counter:
    """Unit of a device's ticks. unit: instructions, cycles, ns, or ticks where no more is known. seconds: of a tick;
    None for instructions, which take no known time."""

    unit: str
    per_tick: float
    seconds: float | None

    def count(self, ticks: int) -> int:
        return round(ticks * self.per_tick)


@dataclass(frozen=True, repr=False)
class Measured(Summarized):
    """runs: ticks of each run. ops: ticks of each op in the last run. verified: how many inputs. baud: bits a second of
    a serial port. warnings: about the line."""

    hello: Hello
    upload: Upload
    loaded: Loaded
    counter: Counter
    runs: tuple[int, ...]
    ops: tuple[int, ...]
    verified: int
    baud: int | None = None
    warnings: tuple[str, ...] = ()

    @property
    def least(self) -> int:
        return min(self.runs)

    @property
    def median(self) -> float:
        return median(self.runs)

    def summary(self) -> Summary:
        def text(ticks: float) -> str:
            if self.counter.seconds is not None:
                return duration(ticks * self.counter.seconds)
            return f"{scaled(self.counter.count(round(ticks))).strip()} {self.counter.unit}"

        verdict = f"{text(self.median)}, the median of {len(self.runs)} runs on {self.hello.board}"
        tiles = [("least", text(self.least)), ("most", text(max(self.runs))), ("verified inputs", str(self.verified))]
        rows = [(str(i), text(ticks)) for i, ticks in enumerate(self.ops)]
        return Summary("Measured", verdict, tiles, "ops", (">op", ">time"), rows)

    def records(self) -> list[dict[str, Any]]:
        return [{"op": i, self.counter.unit: self.counter.count(ticks)} for i, ticks in enumerate(self.ops)]

    def chart(self) -> Chart:
        counts = [self.counter.count(ticks) for ticks in self.ops]
        return Chart(self.counter.unit, [str(i) for i in range(len(counts))], counts)


def counter(hello: Hello, name: str) -> Counter:
    """name: of the line; a board that nmpconv simulates counts instructions exactly.

    A board in a simulator that somebody else started may count anything: without -icount, the host's time.
    """
    board = name.removeprefix("sim:")
    if board != name and board in MACHINES:
        return Counter("instructions", instructions_per_tick(board, hello.counter, hello.counter_hz), None)
    unit = hello.counter if hello.counter in ("instructions", "cycles", "ns") else "ticks"
    return Counter(unit, 1.0, None if unit == "instructions" else 1 / hello.counter_hz)


def load(device: Device, net: Net, data: bytes) -> tuple[Upload, Loaded]:
    """Sends a model, whose net runs here, too. States begin anew on both sides."""
    net.reset()
    return device.load(data, [op.macs for op in net.model.ops], keeps=net.has_states)


def restart(device: Device, net: Net) -> None:
    """States begin anew on both sides."""
    net.reset()
    device.restart()


def run(device: Device, net: Net, inputs: Sequence[np.ndarray]) -> Arrays:
    """The outputs of one inference on the device, which may be reset meanwhile, where it keeps no states. inputs: what
    `Net.run` takes.
    """
    for _ in range(RECOVERIES):
        try:
            return _run(device, net, inputs)
        except RequestRefused as refused:
            if not refused.forgot:
                raise
            if net.has_states:
                raise DeviceError(
                    "the device was reset and has lost its states", where=device.name, hint="begin the stream again"
                ) from refused
        device.reload()
    raise DeviceError(f"the device was reset {RECOVERIES} times during a run", where=device.name)


def _run(device: Device, net: Net, inputs: Sequence[np.ndarray]) -> Arrays:
    device.set_inputs(_bytes(net, inputs))
    digest = device.run().digest
    blobs = [device.read(port.tensor, net.model.tensors[port.tensor].nbytes) for port in net.model.outputs]
    if zlib.crc32(b"".join(blobs)) != digest:
        raise MismatchError("the outputs as read have another checksum than in the run", where=device.name)
    by_tensor = dict(zip((port.tensor for port in net.model.outputs), blobs, strict=True))
    return [_array(net, port.tensor, by_tensor[port.tensor]) for port in net.outputs]


def verify(device: Device, net: Net, inputs: Sequence[np.ndarray]) -> None:
    """Raises MismatchError where the device's outputs are not, byte for byte, the host's."""
    for port, got, wanted in zip(net.outputs, run(device, net, inputs), net.run(*inputs), strict=True):
        mismatch = difference(port.tensor, got, wanted)
        if mismatch is not None:
            raise MismatchError(
                f"output {port.name!r} differs from the host's: {mismatch}",
                where=device.name,
                hint="`nmpconv compare` with the device shows the first op that differs",
            )


def measure(
    device: Device,
    net: Net,
    data: bytes,
    sequences: Sequence[Sequence[Sequence[np.ndarray]]],
    *,
    runs: int,
    progress: Progress = silent,
) -> Measured:
    """Verifies every call of every sequence, with which states begin anew, then counts runs of the last call."""
    upload, loaded = load(device, net, data)
    count, done = sum(map(len, sequences)), 0
    for sequence in sequences:
        restart(device, net)
        for inputs in sequence:
            verify(device, net, inputs)
            done += 1
            progress("verify", done, count)
    counts = []
    for i in range(runs):
        counts.append(device.run().ticks)
        progress("measure", i + 1, runs)
    ops = device.profile(len(net.model.ops))
    worth = counter(device.hello, device.name)
    line = (device.baud, tuple(device.warnings))
    return Measured(device.hello, upload, loaded, worth, tuple(counts), tuple(ops), count, *line)


def first_difference(device: Device, net: Net, inputs: Sequence[np.ndarray]) -> tuple[int, Difference] | None:
    """The first op whose output differs, by digests, and where it does; None when all are equal. States begin anew."""
    restart(device, net)
    device.set_inputs(_bytes(net, inputs))
    tensors = [op.outputs[0] for op in net.model.ops]
    theirs = device.digests(tensors)
    for i, array in enumerate(inputs):
        net.set_input(i, array)
    for op, tensor in enumerate(tensors):
        net.run_ops(op, op + 1)
        ours = net.tensor(tensor)
        if zlib.crc32(ours.tobytes()) != theirs[op]:
            device.restart()
            device.run(op + 1)
            got = _array(net, tensor, device.read(tensor, ours.nbytes))
            mismatch = difference(tensor, got, ours)
            return op, mismatch or Difference(tensor, 0, ours.size, ())
    return None


def difference(tensor: int, got: np.ndarray, wanted: np.ndarray) -> Difference | None:
    """None for equal arrays."""
    places = np.flatnonzero(got.ravel() != wanted.ravel())
    if not len(places):
        return None
    first = tuple((int(i), int(got.ravel()[i]), int(wanted.ravel()[i])) for i in places[:SHOWN])
    return Difference(tensor, len(places), got.size, first)


def sequences(net: Net) -> list[list[Arrays]]:
    """`cases`, as `measure` takes them: of a net with states one sequence, of several calls."""
    if not net.has_states:
        return [[case] for case in cases(net)]
    return [[case for seed in range(STREAM_CALLS) for case in cases(net, seed)]]


def cases(net: Net, seed: int = 0) -> list[Arrays]:
    """The inputs of the file's test vectors; without any, random ones."""
    ports = [net.model.tensors[port.tensor] for port in net.model.inputs]
    vectors = [vector for vector, _ in net.model.test_vectors]
    if vectors:
        return [
            [
                np.frombuffer(data, tensor.dtype).reshape(tensor.shape)
                for data, tensor, port in zip(vector, ports, net.model.inputs, strict=True)
                if port.state is None
            ]
            for vector in vectors
        ]
    rng = np.random.default_rng(seed)
    return [[rng.integers(p.lo, p.hi + 1, p.shape).astype(p.dtype) for p in net.inputs]]


def _bytes(net: Net, inputs: Sequence[np.ndarray]) -> bytes:
    """The integers of all inputs, one after another."""
    for i, array in enumerate(inputs):
        net.set_input(i, array)
    return b"".join(net.tensor(port.tensor).tobytes() for port in net.inputs)


def _array(net: Net, tensor: int, data: bytes) -> np.ndarray:
    entry = net.model.tensors[tensor]
    return np.frombuffer(data, np.dtype(entry.dtype).newbyteorder("<")).reshape(entry.shape)
