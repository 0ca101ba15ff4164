"""Samples that follow each other in time, for a model with states: sequences of calls, each a model input."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import numpy as np

from nmpconv.data.audio import FrontEnd, ears, time_axis
from nmpconv.data.in_memory import WHERE, frames_in, gather, items, pair
from nmpconv.data.samples import Data, Samples, open_samples
from nmpconv.data.sources import Items, Source, Stack, is_one, one_sample, open_source
from nmpconv.data.tables import of_frame
from nmpconv.errors import InputError
from nmpconv.ir import Preprocess

Part = tuple[Source, Any]  # one sample, and its label, its labels, or None


def open_frames(
    data: Data,
    shape: Sequence[int],
    preprocess: Preprocess | None,
    *,
    input_name: str = "",
    max_pixels: int | None = None,
    limit: int | None = None,
    axis: int | None = None,
    front: FrontEnd | None = None,
    classes: Sequence[str] = (),
    scores: int = 0,
) -> tuple[Samples, tuple[int, ...]]:
    """All calls for a model input of ONNX ``shape`` (batch 1), and where sequences begin among them.

    What `nmpconv.data.samples.open_samples` takes, but a sample may be a sequence: an array [frames, ...] of the
    model's input, as a .npy in a folder, a row of a stack [n, frames, ...], a DataFrame of numbers, or an item of an
    iterable, which may be of pictures, too. Where all samples are single frames, as the images of a folder are, they
    are one sequence in their order. axis: that of time, of a step that takes several frames; sequences are then arrays
    of any length along it, and frames after the last whole call are left out. front: what makes frames of .wav files.
    A sample's label is that of its last call, a row of labels those of all of its calls. limit: most samples that are
    taken. classes, scores: see there. InputError as there.
    """
    shape = tuple(shape)
    named = str(data) if isinstance(data, str | Path) else WHERE
    listening, label_source = ears(front, shape, axis), ""
    if isinstance(data, str | Path):
        source = open_source(Path(data), input_name, shape, listening, classes, scores)
        parts, label_source = _split(source, shape, axis, front), source.labelled
    elif recordings := frames_in(data):
        windows = [of_frame(frame, shape, f"{WHERE}[{i}]", classes) for i, frame in enumerate(recordings[:limit])]
        parts = [(calls, calls.labels) for calls in windows]
    else:
        rows = items(data)
        if isinstance(rows, np.ndarray):
            rows = rows if rows.ndim > len(shape) and axis is None else [rows]
        data = list(rows if limit is None else islice(rows, limit))
        parts = _given(data, input_name, shape, axis)
    if any(part.image(0) is not None or _is_picture(part.array(0), shape, preprocess) for part, _ in parts):
        samples = open_samples(
            data, shape, preprocess, input_name=input_name, max_pixels=max_pixels, classes=classes, scores=scores
        )
        return samples, _starts([len(part) for part, _ in parts])
    sequences = [_frames(part, shape) for part, _ in parts]
    frames = [frame for sequence in sequences for frame in sequence]
    if not frames:
        raise InputError("it holds no frames", where=named)
    labels = _labels([label for _, label in parts], [len(sequence) for sequence in sequences], named)
    samples = Samples(
        "array", shape, None, Items(frames, name=named, labelled=label_source), tuple(range(len(frames))), labels
    )
    samples[0]  # its shape is told now
    return samples, _starts([len(sequence) for sequence in sequences])


def _split(source: Source, shape: tuple[int, ...], axis: int | None, front: FrontEnd | None) -> list[Part]:
    """Splits the samples of files: a source for each sample."""
    if source.image(0) is not None:
        return [(source, None)]
    labels = source.labels or [None] * len(source)
    if axis is None and not (front and isinstance(source, Items) and source.is_sound):
        return [(Items([source.array(i)], name=source.where(i)), labels[i]) for i in range(len(source))]
    along = time_axis(front, shape, None) if axis is None and front else axis or 0
    if isinstance(source, Stack):
        arrays, names = [source.whole], [source.where(0).removesuffix("[0]")]
    else:
        arrays, names = [source.array(i) for i in range(len(source))], [source.where(i) for i in range(len(source))]
    pairs = zip(arrays, names, strict=True)
    parts = [Items(calls, name=at) for array, at in pairs for calls in calls_of(array, shape, along, at)]
    if source.labels and len(parts) != len(labels):
        raise InputError(f"{len(labels)} labels for {len(parts)} sequence(s)", where=source.where(0))
    return list(zip(parts, labels if source.labels else [None] * len(parts), strict=True))


def _given(data: Sequence[Any], input_name: str, shape: tuple[int, ...], axis: int | None) -> list[Part]:
    """Splits the samples of a program: a source for each sample."""
    parts: list[Part] = []
    for i, item in enumerate(data):
        where = f"{WHERE}[{i}]"
        value, label = pair(item, input_name, where)
        if axis is None:
            parts.append((gather(_rows(value, shape), input_name, shape), label))
        else:
            parts += [(Items(calls, name=where), label) for calls in calls_of(np.asarray(value), shape, axis, where)]
    return parts


def calls_of(array: np.ndarray, shape: tuple[int, ...], axis: int, where: str) -> list[list[np.ndarray]]:
    """The inputs of calls, by sequence. array: a sequence of ``shape`` but for its length along the axis of time, with
    or without the batch, or a stack of such. Frames after the last whole call are left out. Raises InputError.
    """
    hop = shape[axis]
    for batch in range(2 if shape[0] == 1 and axis else 1):
        rest, at = shape[batch:], axis - batch
        for stacked in (False, True):
            sizes = array.shape[stacked:]
            if len(sizes) == len(rest) and (*sizes[:at], *sizes[at + 1 :]) == (*rest[:at], *rest[at + 1 :]):
                rows = list(array) if stacked else [array]
                counts = range(sizes[at] // hop)
                if not counts:
                    raise InputError(f"{sizes[at]} frames; a call takes {hop}", where=where)
                return [[np.take(row, range(i * hop, (i + 1) * hop), at) for i in counts] for row in rows]
    raise InputError(
        f"an array of shape {list(array.shape)}; a call takes {list(shape)}",
        where=where,
        hint=f"a sequence may be of any length along axis {axis}; a stack of them is [n, ...]",
    )


def _labels(sample_labels: Sequence[Any], lengths: Sequence[int], where: str) -> tuple[int | None, ...] | None:
    """A label for each call, None where it has none. sample_labels: of each sample; lengths: the calls of each."""
    if all(label is None for label in sample_labels):
        return None
    if any(label is None for label in sample_labels):
        raise InputError("some samples have a label, others have none", where=where, hint="label all or none")
    labels: list[int | None] = []
    for label, count in zip(sample_labels, lengths, strict=True):
        row = [None if number is None else int(number) for number in np.ravel(label)]
        if len(row) not in (1, count):
            raise InputError(f"{len(row)} labels for {count} calls; one, or one a call is allowed", where=where)
        labels += [*[None] * (count - len(row)), *row]
    return tuple(labels)


def _rows(value: Any, shape: tuple[int, ...]) -> list[Any]:
    """The frames of an array [frames, 1, ...], which `gather` would not take for a batch; else the value itself."""
    return list(value) if tuple(getattr(value, "shape", ()))[1:] == shape else [value]


def _starts(lengths: Sequence[int]) -> tuple[int, ...]:
    """Beginnings of sequences of these lengths; samples of one frame each are one sequence."""
    return (0,) if max(lengths) == 1 else tuple(dict.fromkeys(accumulate(lengths[:-1], initial=0)))


def _is_picture(array: np.ndarray, shape: tuple[int, ...], preprocess: Preprocess | None) -> bool:
    return preprocess is not None and array.dtype == np.uint8 and array.shape not in one_sample(shape)


def _frames(source: Source, shape: tuple[int, ...]) -> list[np.ndarray]:
    """Returns all frames of one sample."""
    arrays = [source.array(i) for i in range(len(source))]
    return [frame for array in arrays for frame in ([array] if is_one(array, shape) else array)]
