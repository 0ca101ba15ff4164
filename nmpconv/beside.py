"""The float model beside a converted one, sample by sample, or call by call where the file has states."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import onnx

from nmpconv.calib.engine import OnnxEngine
from nmpconv.errors import InputError, UsageError
from nmpconv.run.feed import Arrays, Feed
from nmpconv.run.runtime import Net


class FloatModel(Protocol):
    def run(self, feeds: Arrays, *, begins: bool, wanted: bool) -> Arrays | None:
        """The tensors that were asked for, by name; None where they are not wanted, or there is nothing to compare
        with. begins: states begin anew."""


def float_model(net: Net, feed: Feed, proto: onnx.ModelProto, fetch: Sequence[str], where: str) -> FloatModel:
    """The one that fits the file. fetch: tensors that are asked for; where: of the model, for messages.

    Raises UsageError for a file with states that does not say where they are in the float model.
    """
    if feed.starts is None:
        return _Single(OnnxEngine(proto, feed.shapes(), list(fetch)))
    if feed.stream is not None:
        return _Windows(net, feed, proto, fetch, where)
    return _FedBack(net, feed, proto, fetch)


class _Single:
    """Each sample by itself."""

    def __init__(self, engine: OnnxEngine) -> None:
        self._engine = engine

    def run(self, feeds: Arrays, *, begins: bool, wanted: bool) -> Arrays | None:
        return self._engine.run(feeds) if wanted else None


class _FedBack:
    """Outputs are inputs of the next call, and 0 in the first one of a sequence."""

    def __init__(self, net: Net, feed: Feed, proto: onnx.ModelProto, fetch: Sequence[str]) -> None:
        told = net.model.config.get("state")
        pairs = [str(text).rpartition("=") for text in told] if isinstance(told, list) else []
        self._taken = {name.strip(): output.strip() for output, _, name in pairs}
        self._shapes = {port.name: port.source_shape for port in net.model.inputs if port.state is not None}
        if self._taken.keys() != self._shapes.keys():
            raise UsageError(
                "the file does not say which outputs of the float model its states are",
                where="--reference",
                hint="convert it again with --state",
            )
        wanted = list(dict.fromkeys([*fetch, *self._taken.values()]))
        self._engine = OnnxEngine(proto, feed.shapes() | self._shapes, wanted)
        self._now: Arrays = {}

    def run(self, feeds: Arrays, *, begins: bool, wanted: bool) -> Arrays | None:
        if begins:
            self._now = {name: np.zeros(shape, np.float32) for name, shape in self._shapes.items()}
        found = self._engine.run({**feeds, **self._now})
        self._now = {name: found[output] for name, output in self._taken.items()}
        return found if wanted else None


class _Windows:
    """A step of a stream: the whole model sees the last frames that fill its window."""

    def __init__(self, net: Net, feed: Feed, proto: onnx.ModelProto, fetch: Sequence[str], where: str) -> None:
        stream = feed.stream
        assert stream is not None
        self._name, self._axis = stream.input or net.inputs[0].name, stream.axis
        shapes = feed.shapes()
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
    """Of the window: as the model says, or whoever converted it; 0 where neither does."""
    dims = next((value.type.tensor_type.shape.dim for value in proto.graph.input if value.name == name), ())
    if len(dims) > axis and dims[axis].dim_value > 0:
        return dims[axis].dim_value
    told = net.model.config.get("input_shapes")
    shape = told.get(name) if isinstance(told, dict) else None
    return shape[axis] if isinstance(shape, list) and len(shape) > axis and isinstance(shape[axis], int) else 0
