"""Samples for a converted model: images and arrays, prepared as its file says."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from nmpconv.base.sqnr import score_count
from nmpconv.base.stream_spec import Stream, parse
from nmpconv.data import audio, box_labels
from nmpconv.data.audio import FrontEnd, ears
from nmpconv.data.containers import for_inputs
from nmpconv.data.samples import Data, Samples, graph_input, model_input, open_samples
from nmpconv.data.sequences import open_frames
from nmpconv.errors import InputError, UsageError
from nmpconv.file.reader import Model
from nmpconv.runtime.input_range import InputRange
from nmpconv.runtime.interpreter import Net

Arrays = dict[str, np.ndarray]


class Look(NamedTuple):
    """Kind of samples. has_sequences: they are calls of a net with states. stream: of the file. shapes: of the inputs
    in the ONNX model, by name."""

    has_sequences: bool
    stream: Stream | None
    shapes: tuple[tuple[str, tuple[int, ...]], ...]


class Feed:
    """Samples for every input of a model, prepared as the file says. Of a model with states they are calls in their
    order, and ``starts`` has where sequences begin among them: states begin anew there.

    labels: of the samples; of a call None where only the last one of its sequence has a label. labelled: where those of
    a folder come from. ranges: values of the samples that `integers` was asked for, by input that takes floats.
    max_pixels: see `nmpconv.data.images.load`. limit: most samples that are taken of an iterable. Raises UsageError for
    sources that do not fit the inputs' names, InputError for what cannot be fed.
    """

    def __init__(
        self, net: Net, sources: Mapping[str, Data], max_pixels: int | None = None, limit: int | None = None
    ) -> None:
        self._ports = {port.name: port for port in net.inputs}
        self._counting = Lock()
        self.ranges = {port.name: InputRange.of(port) for port in net.inputs if not port.pixels}
        self._states, self.stream, self._front = net.has_states, stream_of(net.model), front_of(net.model)
        self.starts: tuple[int, ...] | None = None
        names = list(self._ports)
        self._classes, self._scores = net.labels, chosen_classes(net) or score_count(net.outputs[0].shape)
        sources = for_inputs(sources, names)
        if set(sources) == {""} and len(names) == 1:
            sources = {names[0]: sources[""]}
        if set(sources) != set(names):
            listing = ", ".join(repr(name) if name else "one without a name" for name in sources)
            raise UsageError(
                f"the model's inputs are {', '.join(map(repr, names))}; the data are for {listing}",
                hint="give NAME=SOURCE once per input",
            )
        self._samples = {name: self._open(name, sources[name], max_pixels, limit) for name in names}
        lengths = {name: len(samples) for name, samples in self._samples.items()}
        if len(set(lengths.values())) != 1:
            listing = ", ".join(f"{name}: {n}" for name, n in lengths.items())
            raise InputError(f"the inputs have different numbers of samples ({listing})")
        first = self._samples[names[0]]
        self._first = first
        self._where = str(sources[names[0]]) if isinstance(sources[names[0]], str | Path) else "data"
        self._first_calls: frozenset[int] = frozenset(self.starts or ())
        self.paths: list[str] = first.paths
        labelled = next((s for s in self._samples.values() if s.labels), first)
        self.labels: tuple[int | None, ...] | None = labelled.labels or None
        self.labelled: str = labelled.labelled

    def __len__(self) -> int:
        return len(self.paths)

    def begins(self, i: int) -> bool:
        """Checks that states begin anew with sample i."""
        return self.starts is None or i in self._first_calls

    def calls(self, limit: int | None) -> int:
        """Number of samples in at most ``limit`` of them, or of sequences of them."""
        if limit is None or self.starts is None:
            return min(len(self), limit or len(self))
        return self.starts[limit] if limit < len(self.starts) else len(self)

    @property
    def sequences(self) -> list[tuple[str, int, int]]:
        """Sequences of samples that belong together: what they are called, the first one, and the one after the
        last."""
        if self.starts is None:
            return [(path, i, i + 1) for i, path in enumerate(self.paths)]
        ends = [*self.starts[1:], len(self)]
        names = [self._where if len(ends) == 1 else f"{self._where}, sequence {i}" for i in range(len(ends))]
        return list(zip(names, self.starts, ends, strict=True))

    def __getitem__(self, i: int) -> Arrays:
        """Sample i as it was read, by input."""
        return {name: samples[i] for name, samples in self._samples.items()}

    def integers(self, sample: Arrays) -> Arrays:
        """A sample for `Net`: pixels as int8, other inputs as floats, which are counted in `ranges`. Any number of
        threads may ask."""
        arrays = {}
        for name, samples in self._samples.items():
            if samples.preprocess is None:
                arrays[name] = self._numbers(name, sample[name], 1)
            else:
                arrays[name] = graph_input(sample[name], samples.preprocess, samples.shape, pixels=True, dtype="int8")
        return arrays

    def batch(self, indices: Sequence[int]) -> Arrays:
        """Samples for `Net`, as `integers` makes them, as one batch."""
        arrays = {}
        for name, samples in self._samples.items():
            x = samples.stack(indices)
            if samples.preprocess is None:
                try:
                    arrays[name] = self._numbers(name, x, len(indices))
                except InputError:
                    for i in indices:
                        samples[i]  # names the one that is refused
                    raise
            else:
                (arrays[name],) = graph_input(x, samples.preprocess, samples.shape, pixels=True, dtype="int8")
        return arrays

    def _numbers(self, name: str, x: np.ndarray, count: int) -> np.ndarray:
        """Numbers of the ONNX model for an input, of so many samples. Raises InputError where they are not finite."""
        port, shape = self._ports[name], self._samples[name].shape
        rows = x.reshape(count, *shape[1:]) if x.ndim > len(shape) and shape[:1] == (1,) else x
        if port.pixels:
            return port.integers(rows)
        input_range = InputRange.of(port)
        input_range.add(port.stored(x), count)
        if not math.isfinite(input_range.max - input_range.min):
            port.check_finite(rows)
        with self._counting:
            self.ranges[name].merge(input_range)
        return rows

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks on the samples."""
        return tuple(dict.fromkeys(text for samples in self._samples.values() for text in samples.remarks))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Remarks on the samples, and inputs that are fed with another range than the file's."""
        return (*self.remarks, *(text for input_range in self.ranges.values() for text in input_range.warnings))

    def floats(self, sample: Arrays) -> Arrays:
        """A sample for the ONNX model."""
        return {name: model_input(sample[name], s.preprocess, s.shape) for name, s in self._samples.items()}

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width of the first input in pixels; None where no images feed it."""
        return self._first.size

    def boxes(self, file: Path) -> list[np.ndarray]:
        """Boxes of every sample, from a file: see `nmpconv.data.box_labels`."""
        if self.size is None or self._first.preprocess is None:
            raise UsageError("boxes need images", where="--boxes")
        height, width = self.size
        return box_labels.read(file, self.paths, (width, height), self._first.preprocess)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the model's classes."""
        return self._classes

    @property
    def rate(self) -> int | None:
        """Samples a second of the sound that the file takes; None where it takes none."""
        return None if self._front is None else self._front.rate

    @property
    def is_sound(self) -> bool:
        """Checks that the file makes its input of sound."""
        return self._front is not None

    def time_axis(self, shape: tuple[int, ...]) -> int | None:
        """Axis of time of an input made of sound; None for another one."""
        return None if self._front is None else audio.time_axis(self._front, shape, None)

    def file(self, i: int) -> str:
        """File of sample i, also where it is one call of many."""
        path, bracket, _ = self.paths[i].rpartition("[")
        return path if bracket and self.starts is not None else self.paths[i]

    @property
    def look(self) -> Look:
        return Look(self.starts is not None, self.stream, tuple(self.shapes().items()))

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The inputs' shapes in the ONNX model."""
        return {name: samples.shape for name, samples in self._samples.items()}

    def _open(self, name: str, source: Data, max_pixels: int | None, limit: int | None) -> Samples:
        port = self._ports[name]
        shape = port.source_shape or port.shape
        axis = self.stream.axis if self.stream and self.stream.input in ("", name) else None
        options: dict[str, Any] = {
            "input_name": name,
            "max_pixels": max_pixels,
            "limit": limit,
            "classes": self._classes,
            "scores": self._scores,
        }
        if self._states:
            samples, starts = open_frames(source, shape, port.preprocess, axis=axis, front=self._front, **options)
            if self.starts not in (None, starts):
                raise InputError(f"the sequences of {name!r} and of another input differ in length")
            self.starts = starts
        else:
            heard = ears(self._front, shape, None, is_whole=True)
            samples = open_samples(source, shape, port.preprocess, ears=heard, **options)
        where = samples.source.where(samples.indices[0]) if not isinstance(source, str | Path) else str(source)
        if samples.kind == "image" and not port.pixels:
            raise InputError(
                f"images, but input {name!r} was converted from arrays: the file holds no preprocessing for it",
                where=where,
                hint="give .npy or .npz arrays, or convert again with images",
            )
        return replace(samples, dtype=np.float64) if self._front is not None and self._front.integers else samples


def stream_of(model: Model) -> Stream | None:
    """The stream that the file is a step of, if it says so."""
    text = model.config.get("stream")
    try:
        stream = parse(text) if isinstance(text, str) else None
    except UsageError:
        return None
    fed = [p for p in model.inputs if p.state is None and stream is not None and stream.input in ("", p.name)]
    fits = (
        bool(fed)
        and stream is not None
        and stream.axis < len(fed[0].source_shape or model.tensors[fed[0].tensor].shape)
    )
    return stream if fits else None


def front_of(model: Model) -> FrontEnd | None:
    """The front end of the file's sound, if it has one: in integers where an input has it so, else in floats."""
    tables = next((port.sound for port in model.inputs if port.sound is not None), None)
    if tables is not None:
        return audio.of_file(tables)
    text = model.config.get("audio")
    try:
        return replace(audio.parse(text), integers=0) if isinstance(text, str) else None
    except UsageError:
        return None


def chosen_classes(net: Net) -> int:
    """The number of classes that an ArgMax chooses the first output from, a single index; 0 for any other output."""
    if not any(op.kind == "arg_max" for op in net.model.ops):
        return 0
    from nmpconv.ops import OPS  # which other nets do without

    port, makers = net.outputs[0], {out: op for op in net.model.ops for out in op.outputs}
    maker = makers.get(port.tensor)
    while maker is not None and OPS[maker.kind].grid == "same":
        maker = makers.get(maker.inputs[0])
    if maker is None or maker.kind != "arg_max" or math.prod(port.shape) > 1:
        return 0
    return int(net.model.tensors[maker.inputs[0]].shape[maker.params["axis"]])


def given(net: Net, sources: Mapping[str, Data]) -> list[list[list[np.ndarray]]]:
    """All samples, each as the integers of every input, in their order; by sequence, where there are states."""
    feed = Feed(net, sources)
    samples = [feed.integers(feed[i]) for i in range(len(feed))]
    arrays = [[sample[port.name] for port in net.inputs] for sample in samples]
    starts = range(len(arrays)) if feed.starts is None else feed.starts
    return [arrays[a:b] for a, b in zip(starts, [*starts[1:], len(arrays)], strict=True)]
