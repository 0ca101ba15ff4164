"""Samples that follow each other in time, for a model with states: sequences of frames, each a model input."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import numpy as np

from nmpconv.data.objects import WHERE, gather, pair
from nmpconv.data.samples import Data, Samples, open_samples
from nmpconv.data.sources import Items, Source, is_one, open_source
from nmpconv.errors import InputError
from nmpconv.ir import Preprocess


def open_frames(
    data: Data,
    shape: Sequence[int],
    preprocess: Preprocess | None,
    *,
    input_name: str = "",
    max_pixels: int | None = None,
    limit: int | None = None,
) -> tuple[Samples, tuple[int, ...]]:
    """All frames for a model input of ONNX ``shape`` (batch 1), and where sequences begin among them.

    What `nmpconv.data.samples.open_samples` takes, but a sample may be a sequence: an array [frames, ...] of the
    model's input, as a .npy in a folder, a row of a stack [n, frames, ...], or an item of an iterable, which may be of
    pictures, too. Where all samples are single frames, as the images of a folder are, they are one sequence in their
    order. Labels are not kept. limit: most samples that are taken.
    InputError as there.
    """
    shape = tuple(shape)
    if isinstance(data, np.ndarray):
        data = data if data.ndim > len(shape) else [data]
    if not isinstance(data, str | Path):
        data = list(data if limit is None else islice(data, limit))
    named = str(data) if isinstance(data, str | Path) else WHERE
    parts = _parts(data, input_name, shape)
    if any(one.image(0) is not None or _is_picture(one.array(0), shape, preprocess) for one in parts):
        samples = open_samples(data, shape, preprocess, input_name=input_name, max_pixels=max_pixels)
        return samples, _starts([len(one) for one in parts])
    sequences = [_frames(one, shape) for one in parts]
    frames = [frame for sequence in sequences for frame in sequence]
    if not frames:
        raise InputError("it holds no frames", where=named)
    samples = Samples("array", shape, None, Items(frames, name=named), tuple(range(len(frames))))
    samples[0]  # its shape is told now
    return samples, _starts([len(sequence) for sequence in sequences])


def _parts(data: Data, input_name: str, shape: tuple[int, ...]) -> list[Source]:
    """A source for each sample."""
    if not isinstance(data, str | Path):
        values = [pair(item, input_name, f"{WHERE}[{i}]")[0] for i, item in enumerate(data)]
        return [gather(_rows(value, shape), input_name, shape) for value in values]
    source = open_source(Path(data), input_name, shape)
    if source.image(0) is not None:
        return [source]
    return [Items([source.array(i)], name=source.where(i)) for i in range(len(source))]


def _rows(value: Any, shape: tuple[int, ...]) -> list[Any]:
    """The frames of an array [frames, 1, ...], which `gather` would not take for a batch; else the value itself."""
    return list(value) if tuple(getattr(value, "shape", ()))[1:] == shape else [value]


def _starts(lengths: Sequence[int]) -> tuple[int, ...]:
    """Where sequences of these lengths begin; samples of one frame each are one sequence."""
    return (0,) if max(lengths) == 1 else tuple(dict.fromkeys(accumulate(lengths[:-1], initial=0)))


def _is_picture(array: np.ndarray, shape: tuple[int, ...], preprocess: Preprocess | None) -> bool:
    return preprocess is not None and array.dtype == np.uint8 and array.shape not in (shape, shape[1:])


def _frames(source: Source, shape: tuple[int, ...]) -> list[np.ndarray]:
    """Of one sample, all its frames."""
    arrays = [source.array(i) for i in range(len(source))]
    return [frame for array in arrays for frame in ([array] if is_one(array, shape) else array)]
