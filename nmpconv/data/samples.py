"""Samples that feed a model: folders, lists, arrays, iterables as one lazy, deterministic sequence."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from nmpconv.base.turns import turn_of
from nmpconv.data import images
from nmpconv.data.audio import Ears, deaf
from nmpconv.data.in_memory import WHERE, frames_of, gather
from nmpconv.data.sources import Source, Stack, one_sample, open_source
from nmpconv.errors import InputError
from nmpconv.ir import Graph, Preprocess, Shifts


@dataclass(frozen=True)
class Samples:
    """A sequence of samples for one model input, read when asked for.

    kind:       "image": samples[i] is uint8 [H,W,C], RGB or gray, of the model's size;
                "array": samples[i] is of ``shape`` and ``dtype``, taken as the model's input as it is.
    shape:      the ONNX input's, batch 1. preprocess: set for images only.
    labels:     one class number a sample, or None; of a call in a sequence None where only the last one has a label.
    max_pixels: see `images.load`.
    dtype:      of arrays: float32, or float64, which holds the integers of sound.
    """

    kind: str
    shape: tuple[int, ...]
    preprocess: Preprocess | None
    source: Source
    indices: tuple[int, ...]
    labels: tuple[int | None, ...] | None = None
    max_pixels: int | None = None
    dtype: type[np.floating[Any]] = np.float32

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[i] for i in range(len(self)))

    @property
    def labelled(self) -> str:
        """Source of a folder's labels, or the reason why there are none; "" where that is plain."""
        return self.source.labelled

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks for people: on what was left out of the source, on pictures that were turned, on transparency."""
        if self.preprocess is None:
            return self.source.remarks
        pictures = [self.source.image(self.indices[i]) for i in spread(len(self), LOOKED)]
        return (*self.source.remarks, *images.remarks([picture for picture in pictures if picture is not None]))

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width of the model's input in pixels; None where it is no image."""
        if self.preprocess is None:
            return None
        height, width, _ = images.image_shape(self.shape, self.preprocess)
        return height, width

    @property
    def paths(self) -> list[str]:
        """Source of each sample: a file, or file[index] of a stack."""
        return [self.source.where(i) for i in self.indices]

    def __getitem__(self, i: int) -> np.ndarray:
        index = self.indices[i]
        if self.preprocess is None:
            return _array(self.source.array(index), self.shape, self.source.where(index), self.dtype)
        size = images.image_shape(self.shape, self.preprocess)
        picture = self.source.image(index)
        if picture is not None:
            where = self.source.where(index)
            return images.load(picture, size, self.preprocess, self.max_pixels, where=where)
        pixels = self.source.array(index)
        pixels = pixels[..., np.newaxis] if pixels.ndim == 2 else pixels
        if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != size[2]:
            raise InputError(
                f"an array of {pixels.dtype} {list(pixels.shape)} among images; uint8 [H,W,{size[2]}] is allowed",
                where=self.source.where(index),
            )
        drawn = images.picture(pixels[..., 0] if size[2] == 1 else pixels)
        return images.fit(drawn, size, self.preprocess, where=self.source.where(index))

    def stack(self, indices: Sequence[int]) -> np.ndarray:
        """Samples as one array [n, ...], of a stack of them maybe a view. That numbers are finite is not checked where
        the arrays are alike."""
        rows = None if self.preprocess is not None else self._rows([self.indices[i] for i in indices])
        if rows is None:
            return np.stack([self[i] for i in indices])
        with np.errstate(over="ignore"):  # becomes infinity
            return rows.astype(self.dtype, copy=False).reshape(len(rows), *self.shape)

    def _rows(self, indices: Sequence[int]) -> np.ndarray | None:
        """Arrays of the source in one; None where they are not alike, or not what the model takes."""
        if isinstance(self.source, Stack):
            rows = self.source.rows(indices)
        else:
            arrays = [self.source.array(i) for i in indices]
            if len({(x.shape, x.dtype) for x in arrays}) > 1:
                return None
            rows = np.stack(arrays)
        return rows if rows.shape[1:] in (self.shape, self.shape[1:]) and rows.dtype.kind in "biuf" else None

    def subset(self, indices: Sequence[int]) -> Samples:
        """The samples at these indices, in this order."""
        labels = None if self.labels is None else tuple(self.labels[i] for i in indices)
        return replace(self, indices=tuple(self.indices[i] for i in indices), labels=labels)

    def model_input(self, i: int) -> np.ndarray:
        """Sample i as the ONNX model's float32 input."""
        return model_input(self[i], self.preprocess, self.shape)

    def graph_input(self, i: int, *, pixels: bool, dtype: str = "float32") -> np.ndarray:
        """Sample i for the IR graph: see `graph_input`."""
        return graph_input(self[i], self.preprocess, self.shape, pixels=pixels, dtype=dtype)


GOLDEN = 0.6180339887498949  # whose multiples leave the most even remainders
LOOKED = 100  # pictures at most that remarks are made on
Data = str | Path | np.ndarray | Iterable[Any]


def open_samples(
    data: Data,
    shape: Sequence[int],
    preprocess: Preprocess | None,
    *,
    input_name: str = "",
    max_pixels: int | None = None,
    limit: int | None = None,
    ears: Ears = deaf,
    classes: Sequence[str] = (),
    scores: int = 0,
) -> Samples:
    """Open a source of samples for a model input of ONNX ``shape`` (batch 1).

    data: an iterable (see `nmpconv.data.in_memory`), an array (one sample or a stack [n, ...]), or a path: a folder
    of images, .npy, .wav files or tables of numbers (and one level of folders in it, and maybe `labels.csv`), a
    .zip or .tar of the same but sound, a .csv, .txt or .json list of files with or without labels
    (`nmpconv.data.lists`), a .csv of numbers (`nmpconv.data.tables`), one image, a .wav, a .npy (one sample or a
    stack [n, ...]), or a file of arrays by name (`nmpconv.data.containers`). uint8 arrays [H,W,C] or [H,W] are
    images when ``preprocess`` is given; all other arrays are the model's input as they are. Images without
    ``preprocess`` get the defaults. max_pixels: see `images.load`. limit: most samples that are taken of an
    iterable. ears: what makes arrays of .wav files. classes: names of the model's classes, which labels may have
    instead of numbers. scores: number of classes, 0 where the model has none.
    InputError: nothing there, nothing usable, or of another shape.
    """
    shape = tuple(shape)
    where = str(data) if isinstance(data, str | Path) else WHERE
    if isinstance(data, str | Path):
        source = open_source(Path(data), input_name, shape, ears, classes, scores)
        limit = None
    else:
        source = frames_of(data, shape, classes) or gather(
            [data] if isinstance(data, np.ndarray) else data, input_name, shape, limit
        )
    indices = tuple(range(len(source)))[:limit]
    labels = None if source.labels is None else tuple(source.labels)[:limit]
    if labels and isinstance(labels[0], list):
        raise InputError("several labels for a sample; one is allowed", where=where)
    if source.image(0) is None:
        first = source.array(0)
        if preprocess is None or first.dtype != np.uint8 or first.ndim not in (2, 3):
            _array(first, shape, source.where(0))
            return Samples("array", shape, None, source, indices, labels)
    preprocess = images.with_layout(preprocess or Preprocess(layout="auto"), shape)
    images.image_shape(shape, preprocess, where=where)
    return Samples("image", shape, preprocess, source, indices, labels, max_pixels)


def _array(
    raw: np.ndarray, shape: tuple[int, ...], where: str, dtype: type[np.floating[Any]] = np.float32
) -> np.ndarray:
    if raw.shape not in one_sample(shape):
        turn = turn_of(raw.shape, one_sample(shape))
        hint = "the batch may be left out; a stack of samples is [n, ...]"
        if turn:
            hint = f"its dimensions are in another order: x.transpose{turn} of a sample x fits"
        if turn and raw.dtype == np.uint8 and len(shape) == 4:
            hint += "; are these pictures? then give --mean and --std"
        raise InputError(
            f"an array of shape {list(raw.shape)}; the model's input is {list(shape)}", where=where, hint=hint
        )
    if raw.dtype.kind not in "biuf":
        raise InputError(f"an array of {raw.dtype}; real numbers are allowed", where=where)
    with np.errstate(over="ignore"):  # becomes infinity, which is refused
        x = np.array(raw, dtype=dtype).reshape(shape)
    if not np.isfinite(x).all():
        raise InputError("the array holds NaN or infinity", where=where)
    return x


def model_input(sample: np.ndarray, preprocess: Preprocess | None, shape: Sequence[int]) -> np.ndarray:
    """A sample as the ONNX model's input: float32 of ``shape``, normalized when it is an image."""
    if preprocess is not None:
        return images.normalize(sample, preprocess)
    return np.asarray(sample, dtype=np.float32).reshape(tuple(shape))


def graph_input(
    sample: np.ndarray,
    preprocess: Preprocess | None,
    shape: Sequence[int],
    *,
    pixels: bool,
    dtype: str = "float32",
) -> np.ndarray:
    """A sample as the IR graph's input: pixel - 128 as [1,H,W,C] of ``dtype`` when the input takes ``pixels``.

    Other inputs are the ONNX model's own. InputError when pixels are wanted of an array.
    """
    if not pixels:
        return model_input(sample, preprocess, shape)
    if preprocess is None:
        raise InputError("arrays cannot feed an input that takes pixels", hint="give images or uint8 [n,H,W,C] arrays")
    return (sample[np.newaxis].astype(np.int16) - 128).astype(dtype)


class Feeds(Sequence[dict[str, np.ndarray]]):
    """Inputs of an engine, one dict a sample: every input's samples side by side, read when asked for.

    pixels: names of the inputs that take pixel - 128, [1,H,W,C]; () for the original ONNX model. shifts: how other
    inputs are made of the ONNX model's, by name.
    """

    def __init__(
        self, samples: Mapping[str, Samples], pixels: Collection[str] = (), shifts: Mapping[str, Shifts] | None = None
    ) -> None:
        lengths = {name: len(s) for name, s in samples.items()}
        if len(set(lengths.values())) > 1:
            counts = ", ".join(f"{name}: {n}" for name, n in lengths.items())
            raise InputError(f"the inputs have different numbers of samples ({counts})")
        self._samples = dict(samples)
        self._pixels, self._shifts = frozenset(pixels), dict(shifts or {})
        self._length = next(iter(lengths.values()), 0)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, i: int) -> dict[str, np.ndarray]:  # type: ignore[override]
        if not -self._length <= i < self._length:
            raise IndexError(i)
        inputs = {name: s.graph_input(i, pixels=name in self._pixels) for name, s in self._samples.items()}
        return inputs | {name: shifts.stored(inputs[name]) for name, shifts in self._shifts.items() if name in inputs}

    def subset(self, indices: Sequence[int]) -> Feeds:
        """The samples at these indices of every input."""
        samples = {name: s.subset(indices) for name, s in self._samples.items()}
        return Feeds(samples, self._pixels, self._shifts)

    def of(self, graph: Graph) -> Feeds:
        """The same for a graph whose inputs may be shifted."""
        shifts = {name: own_shifts for name in graph.inputs if (own_shifts := graph[name].shifts) is not None}
        return Feeds(self._samples, self._pixels, shifts)


def spread(count: int, limit: int) -> list[int]:
    """At most limit indices below count, evenly spaced."""
    return list(range(count)) if count <= limit else [i * count // limit for i in range(limit)]


def scattered(count: int, limit: int) -> list[int]:
    """At most limit indices below count, one in each part between those of `spread`, at places without a period: of
    calls in sequences of one length they are first, middle and last ones, where evenly spaced ones may all be first
    ones.
    """
    parts = pairwise([*spread(count, limit), count])
    return [first + int(i * GOLDEN % 1 * (end - first)) for i, (first, end) in enumerate(parts)]
