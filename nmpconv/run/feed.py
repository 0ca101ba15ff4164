"""Samples for a converted model: images and arrays, prepared as its file says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from nmpconv.data import boxes
from nmpconv.data.samples import Data, Samples, graph_input, model_input, open_samples
from nmpconv.errors import InputError, UsageError
from nmpconv.run.runtime import Net

Arrays = dict[str, np.ndarray]


class Feed:
    """Samples for every input of a model, prepared as the file says.

    max_pixels: see `nmpconv.data.images.load`. limit: most samples that are taken of an iterable. Raises UsageError for
    sources that do not fit the inputs' names, InputError for what cannot be fed.
    """

    def __init__(
        self, net: Net, sources: Mapping[str, Data], max_pixels: int | None = None, limit: int | None = None
    ) -> None:
        self._ports = {port.name: port for port in net.inputs}
        names = list(self._ports)
        if set(sources) == {""} and len(names) == 1:
            sources = {names[0]: sources[""]}
        if set(sources) != set(names):
            found = ", ".join(repr(name) if name else "one without a name" for name in sources)
            raise UsageError(
                f"the model's inputs are {', '.join(map(repr, names))}; there are sources for {found}",
                hint="give NAME=SOURCE once per input",
            )
        self._samples = {name: self._open(name, sources[name], max_pixels, limit) for name in names}
        lengths = {name: len(samples) for name, samples in self._samples.items()}
        if len(set(lengths.values())) != 1:
            found = ", ".join(f"{name}: {n}" for name, n in lengths.items())
            raise InputError(f"the inputs have different numbers of samples ({found})")
        first = self._samples[names[0]]
        self._first = first
        self.paths: list[str] = first.paths
        self.labels: tuple[int, ...] | None = next((s.labels for s in self._samples.values() if s.labels), None)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> Arrays:
        """Sample i as it was read, by input."""
        return {name: samples[i] for name, samples in self._samples.items()}

    def integers(self, sample: Arrays) -> Arrays:
        """A sample for `Net`: pixels as int8, other inputs as floats."""
        found = {}
        for name, samples in self._samples.items():
            pixels = self._ports[name].pixels
            dtype = "int8" if pixels else "float32"
            found[name] = graph_input(sample[name], samples.preprocess, samples.shape, pixels=pixels, dtype=dtype)
        return found

    def floats(self, sample: Arrays) -> Arrays:
        """A sample for the ONNX model."""
        return {name: model_input(sample[name], s.preprocess, s.shape) for name, s in self._samples.items()}

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width of the first input in pixels; None where no images feed it."""
        return self._first.size

    def boxes(self, file: Path) -> list[np.ndarray]:
        """What a file says of every sample's boxes: see `nmpconv.data.boxes`."""
        if self.size is None or self._first.preprocess is None:
            raise UsageError("boxes need images", where="--boxes")
        height, width = self.size
        return boxes.read(file, self.paths, (width, height), self._first.preprocess)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The inputs' shapes in the ONNX model."""
        return {name: samples.shape for name, samples in self._samples.items()}

    def _open(self, name: str, source: Data, max_pixels: int | None, limit: int | None) -> Samples:
        port = self._ports[name]
        shape = port.source_shape or port.shape
        samples = open_samples(source, shape, port.preprocess, input_name=name, max_pixels=max_pixels, limit=limit)
        where = samples.paths[0] if not isinstance(source, str | Path) else str(source)
        if samples.kind == "image" and not port.pixels:
            raise InputError(
                f"images, but input {name!r} was converted from arrays: the file holds no preprocessing for it",
                where=where,
                hint="give .npy or .npz arrays, or convert again with images",
            )
        if samples.kind == "array" and port.pixels:
            raise InputError(
                f"float arrays, but input {name!r} takes the pixels of images",
                where=where,
                hint="give images, or uint8 arrays [n,H,W,C]",
            )
        return samples


def given(net: Net, sources: Mapping[str, Data]) -> list[list[np.ndarray]]:
    """All samples, each as the integers of every input, in their order."""
    feed = Feed(net, sources)
    samples = [feed.integers(feed[i]) for i in range(len(feed))]
    return [[sample[port.name] for port in net.inputs] for sample in samples]
