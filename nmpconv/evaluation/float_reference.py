"""The float model beside a converted one, sample by sample, or call by call where the file has states.

`ModelPair` says what runs, and `ran` runs it. Results do not depend on which process runs a sequence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import get_ident
from typing import NamedTuple, Protocol

import numpy as np
import onnx

from nmpconv.calib.engine import OnnxEngine
from nmpconv.errors import InputError, UsageError
from nmpconv.runtime.feed import Arrays, Look
from nmpconv.runtime.interpreter import Net, load


class Call(NamedTuple):
    """integers: for `Net`. floats: for the ONNX model, where there is one. begins: states begin anew. wanted: what it
    gives is judged."""

    integers: Arrays
    floats: Arrays | None
    begins: bool
    wanted: bool


class Ran(NamedTuple):
    """Results of n calls, all of them reals. outputs: of the file, [n, ...] each. heads: its tensors of
    `ModelPair.keep`, likewise. floats: of the float model, by call, see `FloatModel.run`."""

    outputs: list[np.ndarray]
    heads: list[np.ndarray]
    floats: list[Arrays | None]


Results = tuple[list[np.ndarray], list[np.ndarray]]  # outputs and heads of a call, or of several, [n, ...]


@dataclass(frozen=True)
class ModelPair:
    """file: its bytes; cpu, threads: see `runtime.load`; keep: tensors that are looked at. reference: the ONNX model,
    where there is one; fetch: its tensors that are asked for; where: of it, for messages. look: see `Feed.look`."""

    file: bytes
    cpu: str | None
    threads: int
    keep: tuple[int, ...]
    look: Look
    reference: bytes | None = None
    fetch: tuple[str, ...] = ()
    where: str = ""


def ran(pair: ModelPair, calls: Sequence[Call]) -> Ran:
    """Runs calls in their order, the first of which begins a sequence or goes on with the one before."""
    return _opened(pair, get_ident()).run(calls)


@lru_cache(maxsize=1)
def _opened(pair: ModelPair, thread: int) -> Models:
    """thread: a net is one's."""
    return Models(pair)


class Models:
    """The net and the float model, opened. Where calls are no sequences, any number of threads may run them.

    net: of the file, which nobody else runs meanwhile; None: it is loaded.
    """

    def __init__(self, pair: ModelPair, net: Net | None = None) -> None:
        self._keep, self._model = pair.keep, None
        self._net = net or load(pair.file, cpu=pair.cpu, threads=pair.threads)
        shown = {port.tensor for port in self._net.outputs}
        self._is_by_batch = not pair.look.has_sequences and shown.issuperset(pair.keep)
        self._idle = [self._net]
        if pair.reference is not None:
            proto = onnx.load_from_string(pair.reference)
            self._model = float_model(self._net, pair.look, proto, pair.fetch, pair.where)

    def run(self, calls: Sequence[Call]) -> Ran:
        if self._is_by_batch:
            arrays = {
                p.name: np.concatenate([p.rows(call.integers[p.name]) for call in calls]) for p in self._net.inputs
            }
            results = self._with_net(lambda net: _batch(net, arrays, len(calls), self._keep))
        else:
            results = self._with_net(lambda net: _one_by_one(net, calls, self._keep))
        return Ran(*results, [self._floats(call) for call in calls])

    def run_batch(self, arrays: Arrays, count: int) -> Ran:
        """The file's outputs alone, of a batch that `Feed.batch` made."""
        return Ran(*self._with_net(lambda net: _batch(net, arrays, count, ())), [None] * count)

    def _with_net(self, task: Callable[[Net], Results]) -> Results:
        """Runs a task with a net that no other thread uses."""
        try:
            net = self._idle.pop()
        except IndexError:
            net = self._net.copy()
        results = task(net)
        self._idle.append(net)
        return results

    def _floats(self, call: Call) -> Arrays | None:
        if self._model is None or call.floats is None:
            return None
        return self._model.run(call.floats, begins=call.begins, wanted=call.wanted)


def _one_by_one(net: Net, calls: Sequence[Call], keep: Sequence[int]) -> Results:
    results = []
    for call in calls:
        if call.begins:
            net.reset()
        results.append(infer(net, call.integers, keep))
    outputs, heads = ([np.stack(rows) for rows in zip(*side, strict=True)] for side in zip(*results, strict=True))
    return outputs, heads


def _batch(net: Net, arrays: Arrays, count: int, keep: Sequence[int]) -> Results:
    """The same, at once: of a net without states, where outputs alone are looked at."""
    outputs = net.run_float(arrays)
    reals = [y.reshape(count, *port.shape) for y, port in zip(outputs, net.outputs, strict=True)]
    at = [[port.tensor for port in net.outputs].index(tensor) for tensor in keep]
    return reals, [reals[output] for output in at]


def infer(net: Net, inputs: Mapping[str, np.ndarray], keep: Sequence[int] = ()) -> Results:
    """The outputs of one sample and the activations numbered in ``keep``, all as reals."""
    for i, port in enumerate(net.inputs):
        net.set_input(i, inputs[port.name])
    wanted = dict.fromkeys([*keep, *(port.tensor for port in net.outputs)])
    producers = {tensor: n + 1 for n, op in enumerate(net.model.ops) for tensor in op.outputs}
    activations: dict[int, np.ndarray] = {}
    done = 0
    # A tensor is read right after the op that makes it: later ones may take its place.
    for tensor in sorted(wanted, key=lambda t: producers.get(t, 0)):
        net.run_ops(done, producers.get(tensor, 0))
        done = producers.get(tensor, 0)
        activations[tensor] = net.model.tensors[tensor].dequantize(net.tensor(tensor))
    net.run_ops(done, len(net.model.ops))
    return [activations[port.tensor] for port in net.outputs], [activations[tensor] for tensor in keep]


class FloatModel(Protocol):
    def run(self, feeds: Arrays, *, begins: bool, wanted: bool) -> Arrays | None:
        """The tensors that were asked for, by name; None where they are not wanted, or there is nothing to compare
        with. begins: states begin anew."""


def float_model(net: Net, look: Look, proto: onnx.ModelProto, fetch: Sequence[str], where: str) -> FloatModel:
    """The one that fits the file. fetch: tensors that are asked for; where: of the model, for messages.

    Raises UsageError for a file with states that does not say where they are in the float model.
    """
    if not look.has_sequences:
        return _Single(OnnxEngine(proto, dict(look.shapes), list(fetch)))
    if look.stream is not None:
        return _Windows(net, look, proto, fetch, where)
    return _FedBack(net, look, proto, fetch)


class _Single:
    """Each sample by itself."""

    def __init__(self, engine: OnnxEngine) -> None:
        self._engine = engine

    def run(self, feeds: Arrays, *, begins: bool, wanted: bool) -> Arrays | None:
        return self._engine.run(feeds) if wanted else None


class _FedBack:
    """Outputs are inputs of the next call, and 0 in the first one of a sequence."""

    def __init__(self, net: Net, look: Look, proto: onnx.ModelProto, fetch: Sequence[str]) -> None:
        states = net.model.config.get("state")
        pairs = [str(text).rpartition("=") for text in states] if isinstance(states, list) else []
        self._taken = {name.strip(): output.strip() for output, _, name in pairs}
        self._shapes = {port.name: port.source_shape for port in net.model.inputs if port.state is not None}
        if self._taken.keys() != self._shapes.keys():
            raise UsageError(
                "the file does not say which outputs of the float model its states are",
                where="--reference",
                hint="convert it again with --state",
            )
        wanted = list(dict.fromkeys([*fetch, *self._taken.values()]))
        self._engine = OnnxEngine(proto, dict(look.shapes) | self._shapes, wanted)
        self._now: Arrays = {}

    def run(self, feeds: Arrays, *, begins: bool, wanted: bool) -> Arrays | None:
        if begins:
            self._now = {name: np.zeros(shape, np.float32) for name, shape in self._shapes.items()}
        outputs = self._engine.run({**feeds, **self._now})
        self._now = {name: outputs[output] for name, output in self._taken.items()}
        return outputs if wanted else None


class _Windows:
    """A step of a stream: the whole model sees the last frames that fill its window."""

    def __init__(self, net: Net, look: Look, proto: onnx.ModelProto, fetch: Sequence[str], where: str) -> None:
        stream = look.stream
        assert stream is not None
        self._name, self._axis = stream.input or net.inputs[0].name, stream.axis
        shapes = dict(look.shapes)
        call = shapes[self._name]
        frames = _frames(net, proto, self._name, self._axis)
        if not frames or frames % call[self._axis]:
            raise InputError(f"its input {self._name!r} is no window of whole hops", where=where)
        whole = (*call[: self._axis], frames, *call[self._axis + 1 :])
        self._engine = OnnxEngine(proto, {**shapes, self._name: whole}, list(fetch))
        self._held: deque[np.ndarray] = deque(maxlen=frames // call[self._axis])

    def run(self, feeds: Arrays, *, begins: bool, wanted: bool) -> Arrays | None:
        if begins:
            self._held.clear()
        self._held.append(feeds[self._name])
        if not wanted or len(self._held) < (self._held.maxlen or 0):
            return None
        return self._engine.run({**feeds, self._name: np.concatenate(self._held, self._axis)})


def _frames(net: Net, proto: onnx.ModelProto, name: str, axis: int) -> int:
    """Returns frames of the window: as the model says, or whoever converted it; 0 where neither does."""
    dims = next((value.type.tensor_type.shape.dim for value in proto.graph.input if value.name == name), ())
    if len(dims) > axis and dims[axis].dim_value > 0:
        return dims[axis].dim_value
    shapes = net.model.config.get("input_shapes")
    shape = shapes.get(name) if isinstance(shapes, dict) else None
    return shape[axis] if isinstance(shape, list) and len(shape) > axis and isinstance(shape[axis], int) else 0
