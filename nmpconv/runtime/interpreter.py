"""Running a .nmp file: integers in, integers out, in C."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsBytes, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nmpconv import _nmp
from nmpconv.base.files import open_file
from nmpconv.base.near_names import suggesting
from nmpconv.base.quantities import scaled, size
from nmpconv.base.summary import Chart, Summarized, Summary
from nmpconv.base.thread_pool import cpu_count
from nmpconv.errors import InputError, ModelError, NmpError, Status, UsageError, refusal
from nmpconv.file import reader
from nmpconv.runtime.batches import Batches, Block, aligned, byte_rows
from nmpconv.runtime.ports import Outputs, Port, by_port, index_of, joined, whole

if TYPE_CHECKING:
    from nmpconv.runtime.custom_table import CustomTable

T = TypeVar("T")
File = Path | str | bytes | SupportsBytes
FILES = "a path, the bytes of a .nmp file, or what convert returned"  # what a model may be, for messages


@dataclass(frozen=True)
class OpTime:
    """Seconds that an op took, the median of the runs; or `count` ops from `first` on that threads run together: then
    the name is that of the last one, whose result is written, and the kinds are joined by "+".
    """

    first: int
    count: int
    name: str
    kind: str
    macs: int
    seconds: float


@suggesting
def load(source: File, *, cpu: str | None = None, threads: int | None = None) -> Net:
    """The net of a file, of its bytes or of what `nmpconv.convert` returned, verified and ready to run.

    cpu: a level of `cpus`; None: $NMP_CPU, else the best one. threads: how many may compute, 0 for one per core;
    None: $NMP_THREADS, else 1 for a sample and one per core for a batch. They change no result. The first runs find
    out how many each step is worth (`Net.settled`). Raises InputError, UsageError (level, threads), ModelError.

    For example:

        net = nmpconv.load("model.nmp")
        scores, *_ = net(np.zeros(net.inputs[0].shape))
    """
    return Net(source, cpu=cpu, threads=threads)


def run_samples(data: bytes, inputs: Sequence[NDArray[Any]], outputs: Sequence[NDArray[Any]], part: range) -> None:
    """Runs a file once on one thread as `Net.run_each` does, without a `Net`: for files that this program wrote.

    inputs, outputs: [N, *shape] in the order of the ports, contiguous arrays of their dtypes. part: of step 1.
    """
    model, level = _in_memory(data), _level(None)
    info, table = _with_customs(lambda custom: _nmp.inspect(model, level, 1, custom))
    net = _nmp.Net(model, aligned(info["arena_bytes"]), level, 1, table.address if table else 0)
    net.run_each([byte_rows(x, len(x)) for x in inputs], [byte_rows(y, len(y)) for y in outputs], part.start, part.stop)
    if table:
        table.raise_failure()


def needs(data: bytes) -> dict[str, int]:
    """The figures of `nmp_info` for a file: of the best CPU level here, or of $NMP_CPU, on one thread."""
    model = _in_memory(data)
    try:
        info, _ = _with_customs(lambda custom: _nmp.inspect(model, _level(None), custom=custom))
    except _nmp.Fault as fault:
        raise _refused(fault, model.data.toreadonly(), "") from None
    return {name: value for name, value in info.items() if isinstance(value, int)}


@dataclass(frozen=True)
class TargetNeeds:
    """Bytes of RAM on another machine. fast_bytes: of the arena, in a fast memory of their own. Of each op: its
    scratch, and whether it is a convolution that the machine's own kernels leave to the portable ones.
    """

    arena_bytes: int
    activation_bytes: int
    fast_bytes: int
    scratch_bytes: tuple[int, ...]
    portable: tuple[bool, ...]


def needs_of_target(data: bytes, target: str) -> TargetNeeds:
    """Returns the result of `nmp_inspect` for another machine, one of `targets`. Raises ModelError."""
    model = _in_memory(data)
    try:
        info = _nmp.inspect_target(model, target)
    except _nmp.Fault as fault:
        raise _refused(fault, model.data.toreadonly(), "") from None
    ops = tuple(info["scratch_bytes"]), tuple(info["portable"])
    return TargetNeeds(info["arena_bytes"], info["activation_bytes"], info["fast_bytes"], *ops)


def targets() -> list[str]:
    """The other machines whose needs the interpreter knows."""
    return list(_nmp.targets())


def cpus() -> list[str]:
    """The CPU levels of this build that this machine can run."""
    return list(_nmp.cpus())


class Net(Summarized):
    """A loaded model with its memory.

    Any number of Python threads may call it: each call waits until it has the net for itself, so `run` returns the
    outputs of its own inputs. Calls that belong together (`set_input`, `run_ops` and `tensor`, or the runs of a stream)
    need a net that no other thread calls, and so do runs that shall not wait for each other: `copy` makes one.

    threads: how many may compute a run at most. batch_threads: how many may compute a batch: as many, or one per core
    where nobody said how many. Each has an arena of its own then, which the net keeps. A forked process may use it.

    States are inputs that hold what an output was in the call before. They are not among ``inputs``, and what they take
    over is not among ``outputs``, where there is any other output.
    """

    def __init__(self, source: File, *, cpu: str | None = None, threads: int | None = None) -> None:
        model = _in_memory(source)
        data = model.data.toreadonly()
        where = str(source) if isinstance(source, str | Path) else ""
        level = _level(cpu)
        self._asked = (cpu, threads)
        self.threads = _threads(threads)
        try:
            info, self._custom = _with_customs(lambda custom: _nmp.inspect(model, level, self.threads, custom))
            self.arena_bytes: int = info["arena_bytes"]
            custom = self._custom.address if self._custom else 0
            self.fast_bytes: int = info["fast_bytes"]
            fast = aligned(self.fast_bytes) if self.fast_bytes else None
            arena = aligned(self.arena_bytes - self.fast_bytes)
            self._net = _nmp.Net(model, arena, level, self.threads, custom, fast)
        except _nmp.Fault as fault:
            raise _refused(fault, data, where) from None
        self._data = data
        self._packed_bytes: int = info["packed_bytes"]
        self.model = reader.read(data, verified=True)
        self.inputs = [self._port(self.model.inputs[i]) for i in self._net.fed]
        self.outputs = [self._port(self.model.outputs[i]) for i in self._net.told]
        self.batch_threads = self.threads if _is_told(threads) else cpu_count()
        block = Block(self.model, data, self.cpu)
        arena_bytes = self.arena_bytes - self._packed_bytes
        self._batches = Batches(self._net, self.inputs, self.outputs, arena_bytes, self.batch_threads, block)

    def copy(self, *, threads: int | None = None) -> Net:
        """A net over the same file and packed weights, with an arena of its own (`arena_bytes`), for another thread:
        nets do not wait for each other. Its states are at their start. threads: of a batch, and at most of a run.
        """
        net = object.__new__(type(self))
        most = self.batch_threads if threads is None else _threads(threads)
        asked = self._asked if threads is None else (self._asked[0], threads)
        net.__dict__.update(self.__dict__, _packed_bytes=0, batch_threads=most, threads=min(most, self.threads))
        net.arena_bytes, net._asked = self.arena_bytes - self._packed_bytes, asked
        net._net = _nmp.Net(self._net, aligned(net.arena_bytes), net.threads)
        net._batches = self._batches.of(net._net, most)
        return net

    __copy__ = copy

    def __deepcopy__(self, memo: object) -> Net:
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle holds the file, and cpu and threads as they were asked for; states are at their start."""
        return _again, (type(self), self.data, *self._asked)

    def summary(self) -> Summary:
        ports = [("input", port) for port in self.inputs] + [("output", port) for port in self.outputs]
        rows = [
            (kind, port.name, "x".join(map(str, port.shape)), "uint8 pixels" if port.pixels else port.dtype, port.grid)
            for kind, port in ports
        ]
        taken, outputs = (
            " and ".join(row[1] + f" [{row[2]}]" for row in rows if row[0] == k) for k in ("input", "output")
        )
        ops = self.model.ops
        tiles = [
            ("file", size(self.model.file_bytes)),
            ("arena", size(self.arena_bytes)),
            ("work", f"{len(ops)} ops, {scaled(sum(op.macs for op in ops))}MAC"),
            ("labels", str(len(self.model.labels) or "")),
            ("CPU level", self.cpu),
            ("threads", str(self.threads)),
        ]
        columns = ("", "name", "shape", "type", "value of 1")
        return Summary(
            f"Net {self.model.name}".rstrip(), f"{taken} to {outputs}", tiles, "inputs and outputs", columns, rows
        )

    def records(self) -> list[dict[str, Any]]:
        return [{"op": op.name, "kind": op.kind, "macs": op.macs, "params": op.params} for op in self.model.ops]

    def chart(self) -> Chart:
        return Chart("MACs", [op.name for op in self.model.ops], [op.macs for op in self.model.ops])

    @property
    def data(self) -> bytes:
        """The bytes of the file."""
        return bytes(self._data)

    def __bytes__(self) -> bytes:
        return self.data

    @property
    def cpu(self) -> str:
        """The CPU level in use."""
        return str(self._net.cpu)

    @property
    def settled(self) -> bool:
        """Checks that it is known how many threads each step is worth: some hundred runs with several threads find
        out, and do so again from time to time. No result depends on it."""
        return self._net.threads() is not None

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of classes, () where the file has none; see also `Outputs.top`."""
        return self.model.labels

    @property
    def widths(self) -> str:
        """Types of the results of ops: "int8", or "int8 (int16 in 3 of 40 layers)"."""
        return self.model.widths

    @property
    def has_states(self) -> bool:
        """Checks that a run depends on those before it."""
        return len(self.inputs) < len(self.model.inputs)

    def reset(self) -> None:
        """Sets all states to their start, as they were when the net was made."""
        self._net.reset()

    def states(self) -> dict[str, NDArray[Any]]:
        """Copies of the states that the next run reads."""
        states = [port for port in self.model.inputs if port.state is not None]
        return dict(zip((port.name for port in states), self._tensors([port.tensor for port in states]), strict=True))

    def run(self, /, *inputs: Any, **named: Any) -> Outputs:
        """Integer outputs of one sample, in the shapes of the ports, or of a batch [n, ...]; of a net with states these
        are those of the next call then, and a batch is refused.

        inputs: arrays in the order of `inputs`, or one dict by name; named: keywords instead. Arrays are those of
        `Port.integers`: in the file's layout or the ONNX model's, as integers, pixels or floats. Raises InputError.
        """
        return self._run(by_port(inputs, named, self.inputs), reals=False)

    def _run(self, arrays: Sequence[Any], reals: bool) -> Outputs:
        rows = [port.rows(x) for x, port in zip(arrays, self.inputs, strict=True)]
        counts = {len(x) for x in rows} or {1}
        if len(counts) > 1:
            lengths = ", ".join(f"{port.name}: {len(x)}" for x, port in zip(rows, self.inputs, strict=True))
            raise InputError(f"the inputs have different numbers of samples ({lengths})")
        (count,) = counts
        if self.has_states and count != 1:
            hint = "give the samples one by one"
            raise InputError(f"a batch of {count}; a net with states takes one call after another", hint=hint)
        outputs = self._batches.run(rows, count, reals)
        self._raise_failure()
        return Outputs((joined(y, port) for y, port in zip(outputs, self.outputs, strict=True)), self.outputs)

    def run_each(self, inputs: Sequence[NDArray[Any]], outputs: Sequence[NDArray[Any]], part: range) -> None:
        """Runs on some of many samples, of a net without states: what `run` returns for sample i goes to row i.

        inputs, outputs: [N, *shape] in the order of the ports, contiguous arrays of their dtypes. part: of step 1.
        """
        ports, arrays = (*self.inputs, *self.outputs), (*inputs, *outputs)
        fit = [x.shape[1:] == p.shape and x.dtype == p.dtype for x, p in zip(arrays, ports, strict=True)]
        if self.has_states or not all(fit) or any(part.stop > len(x) for x in arrays) or part.step != 1:
            raise UsageError("the arrays have other shapes or types than the ports, or too few samples")
        tables = [byte_rows(x, len(x)) for x in arrays]
        self._net.run_each(tables[: len(inputs)], tables[len(inputs) :], part.start, part.stop)
        self._raise_failure()

    def run_float(self, /, *inputs: Any, **named: Any) -> Outputs:
        """The outputs of `run` as reals; `net(x)` is the same."""
        return self._run(by_port(inputs, named, self.inputs), reals=True)

    __call__ = run_float

    def run_ops(self, first: int, last: int) -> None:
        """Runs ops [first, last) on what is in the arena. Of those run together only the last writes its tensor."""
        last = whole(last, 0, len(self.model.ops), "last")
        self._net.run_ops(whole(first, 0, last, "first"), last)
        self._raise_failure()

    def set_input(self, i: int, array: ArrayLike) -> None:
        """Writes input i of one sample, as `run` does."""
        i = index_of(i, len(self.inputs), "i")
        rows = self.inputs[i].integers(array)
        if len(rows) != 1:
            raise InputError(f"a batch of {len(rows)}; one sample is taken", where=self.inputs[i].name)
        self._net.write(self._net.fed[i], byte_rows(rows, 1)[0])

    def tensor(self, i: int) -> NDArray[Any]:
        """A copy of a tensor as it is now; an activation holds its value until another one takes its place."""
        return self._tensors([index_of(i, len(self.model.tensors), "i")])[0]

    def profile(self, runs: int) -> list[OpTime]:
        """The time of each op, or of ops that are run together, over so many runs, on the inputs that `set_input` or
        the last `run` left or overwrote.
        """
        runs = whole(runs, 1, None, "runs")
        steps = self.steps()
        times = np.zeros((runs, len(steps)))
        for row in times:
            for i, (first, last) in enumerate(steps):
                start = time.perf_counter()
                self._net.run_ops(first, last)
                row[i] = time.perf_counter() - start
        medians = np.median(times, axis=0)
        return [self._op_time(step, float(seconds)) for step, seconds in zip(steps, medians, strict=True)]

    def steps(self) -> list[tuple[int, int]]:
        """Ops [first, last) that a run takes together now; most are alone, and with one thread only those are not that
        write into a concatenation.
        """
        return self._net.steps()

    def _raise_failure(self) -> None:
        """Raises what a custom op in Python raised."""
        if self._custom:
            self._custom.raise_failure()

    def _tensors(self, which: list[int]) -> list[NDArray[Any]]:
        """Copies of tensors at one moment."""
        copies = [np.empty(self.model.tensors[i].shape, self.model.tensors[i].dtype) for i in which]
        self._net.read(which, [byte_rows(x, 1)[0] for x in copies])
        return copies

    def _op_time(self, step: tuple[int, int], seconds: float) -> OpTime:
        ops = self.model.ops[slice(*step)]
        kinds, macs = " + ".join(op.kind for op in ops), sum(op.macs for op in ops)
        return OpTime(step[0], len(ops), ops[-1].name, kinds, macs, seconds)

    def _port(self, port: reader.FilePort) -> Port:
        tensor = self.model.tensors[port.tensor]
        labels = self.model.labels if len(self.model.labels) == np.prod(tensor.shape) else ()
        return Port(
            port.name,
            tensor.shape,
            tensor.dtype,
            tensor.exponents[0],
            tensor.clip_min,
            tensor.clip_max,
            port.preprocess,
            port.pixels,
            labels,
            port.source_shape,
            port.tensor,
            tensor.shifts,
        )


def _again(kind: type[Net], data: bytes, cpu: str | None, threads: int | None) -> Net:
    return kind(data, cpu=cpu, threads=threads)


def _with_customs(make: Callable[[int], T]) -> tuple[T, CustomTable | None]:
    """Calls a function of `_nmp` with the address of a table of custom ops. Returns its result and the table.

    A model without custom ops needs no table: the address is 0, and the table None.
    """
    try:
        return make(0), None
    except _nmp.Fault as fault:
        if fault.args[0] != Status.CUSTOM:
            raise
    from nmpconv.runtime.custom_table import CustomTable  # has ops of Python

    table = CustomTable.of_installed()
    return make(table.address), table


def _level(asked: str | None) -> str | None:
    """The CPU level that is meant; None: the best one."""
    level = str(asked or os.environ.get("NMP_CPU") or "").lower() or None
    if level is not None and level not in cpus():
        raise refusal(level, f"on this machine {', '.join(cpus())}", "--cpu")
    return level


def _is_told(threads: int | None) -> bool:
    """Checks that the caller or the environment says how many threads there are."""
    return threads is not None or bool(os.environ.get("NMP_THREADS"))


def _threads(asked: int | None) -> int:
    """Number of threads that is meant, for one run."""
    text = str(asked) if asked is not None else os.environ.get("NMP_THREADS") or "1"
    if not text.isdecimal() or int(text) > _nmp.THREADS_MAX:
        raise refusal(text, f"0 (one per core) to {_nmp.THREADS_MAX}", "--threads")
    return int(text) or cpu_count()


def _in_memory(source: File) -> NDArray[np.uint8]:
    """The bytes of a model, where the interpreter wants them, and nowhere else."""
    if isinstance(source, str | Path):
        with open_file(source) as (file, size):
            model = aligned(size)
            count = file.readinto(model.data)
        return model[:count]
    if not isinstance(source, bytes | bytearray | memoryview) and not hasattr(source, "__bytes__"):
        raise refusal(source, FILES, "model")
    data = np.frombuffer(bytes(source), np.uint8)
    model = aligned(len(data))
    model[:] = data
    return model


def _refused(fault: Any, data: bytes | memoryview, where: str) -> NmpError:
    """The error of a file that the interpreter refuses, naming op and tensor where the file can still tell."""
    status, text, rule, value, allowed, op, tensor = fault.args
    try:
        names = reader.names(data)
    except ModelError as error:
        return ModelError(error.message, where=where, hint=error.hint, status=error.status)
    named = 0 <= op < len(names.ops)
    place = f"op {names.ops[op][0]!r} ({names.ops[op][1]}): " if named else ""
    if status == Status.CUSTOM:
        hint = "pip install the package that has it"
        message = f"{text}: {rule}, of {place.removesuffix(': ')}"
        return ModelError(message, where=where, hint=hint, status=Status.CUSTOM.in_c, node=names.ops[op][0], found=rule)
    place += f"tensor {names.tensors[tensor]!r}: " if 0 <= tensor < len(names.tensors) else ""
    return ModelError(
        f"{text}: {place}{rule} (found {value}, allowed {allowed}; status {status})",
        where=where,
        status=Status(status).in_c,
        node=names.ops[op][0] if named else "",
        found=str(value),
        allowed=str(allowed),
    )
