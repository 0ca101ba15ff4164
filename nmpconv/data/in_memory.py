"""Samples that a program hands over: arrays, pictures or paths, with or without labels, one by one or in batches.

What an item of an iterable may be (tensors of torch and whatever numpy can read are arrays):

1. an array of one sample, or of a batch: [n, ...] of the model's input, or uint8 [n,H,W,C];
2. a picture of Pillow, or the path of an image or of a .npy file;
3. a mapping from column to one of these, as datasets of Hugging Face give: the column of the input's name, or else the
   only one that is no label;
4. a tuple or list (one of these, label), or of the former alone; a batch has an array of labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from nmpconv.base.turns import turn_of
from nmpconv.base.type_check import is_frame
from nmpconv.data import tables
from nmpconv.data.columns import LABELS
from nmpconv.data.images import is_picture
from nmpconv.data.sources import Item, Items, Source, Stack, is_one, one_sample
from nmpconv.errors import InputError

WHERE = "data"  # what messages call the iterable


def gather(data: Iterable[Any], input_name: str, shape: tuple[int, ...], limit: int | None = None) -> Source:
    """All samples of an iterable, or the first ``limit``, in memory.

    input_name, shape: of the ONNX input (batch 1). InputError names the item that is none of the above.
    """
    samples: list[Item] = []
    labels: list[int] = []
    stacks: list[np.ndarray | None] = []
    for number, item in enumerate(items(data)):
        if limit is not None and len(samples) >= limit:
            break
        where = f"{WHERE}[{number}]"
        value, label = pair(item, input_name, where)
        parts = list(_samples(value, shape, where))
        samples += parts
        stacks.append(_stack(value, shape))
        if label is not None:
            labels += _classes(label, len(parts), where)
        if labels and len(labels) != len(samples):
            raise InputError("some samples have a label, others have none", where=where, hint="label all or none")
    if not samples:
        raise InputError("it holds no samples", where=WHERE, hint="a generator can be read only once")
    wanted = len(samples) if limit is None else min(limit, len(samples))
    classes = labels[:wanted] if labels else None
    if len(stacks) == 1 and stacks[0] is not None:
        return Stack(WHERE, stacks[0][:wanted], classes)
    return Items(samples[:wanted], classes, WHERE)


def frames_of(data: Any, shape: tuple[int, ...], classes: Sequence[str]) -> Source | None:
    """Samples of a DataFrame of pandas, or of a list of them, a recording each; None for anything else."""
    if tables.is_numeric(data):
        return tables.of_frame(data, shape, WHERE, classes)
    each = [tables.of_frame(frame, shape, f"{WHERE}[{i}]", classes) for i, frame in enumerate(frames_in(data))]
    return tables.Tables(each, None, "") if each else None


def frames_in(data: Any) -> Sequence[Any]:
    """Recordings: a DataFrame of numbers, or all of a list of them; () of anything else."""
    recordings = data if isinstance(data, list | tuple) else [data]
    return recordings if all(map(tables.is_numeric, recordings)) else ()


def items(data: Any) -> Any:
    """Rows of a DataFrame by name of column; anything else as it is."""
    return data.to_dict("records") if is_frame(data) else data


def pair(item: Any, input_name: str, where: str) -> tuple[Any, Any]:
    """Cases 3 and 4: what is fed, and its label or None."""
    if isinstance(item, Mapping):
        label = next((item[key] for key in LABELS if key in item and key != input_name), None)
        names = [key for key in item if key not in LABELS]
        if input_name not in item and len(names) != 1:
            raise InputError(
                f"columns {', '.join(map(repr, item))}; one named like the input is needed, or a single one",
                where=where,
                hint=f"name the column {input_name!r}; a table of numbers is given as a DataFrame, by to_pandas()",
            )
        return item[input_name if input_name in item else names[0]], label
    if isinstance(item, tuple | list) and len(item) in (1, 2):
        if len(item) == 2 and not _is_label(item[1]):
            raise InputError(
                f"a pair whose second part is a {type(item[1]).__name__}; a class number is allowed", where=where
            )
        return item[0], item[1] if len(item) == 2 else None
    return item, None


def _is_label(value: Any) -> bool:
    array = _array(value)
    return array.dtype.kind in "iu" and array.ndim <= 1


def _classes(label: Any, count: int, where: str) -> list[int]:
    array = _array(label)
    if array.dtype.kind not in "iu" or array.size != count:
        raise InputError(
            f"labels of {array.dtype} {list(array.shape)} for {count} sample(s); an integer each is allowed",
            where=where,
        )
    return [int(value) for value in array.ravel()]


def _samples(value: Any, shape: tuple[int, ...], where: str) -> Iterator[Item]:
    """Cases 1 and 2: one, or those of a batch."""
    if isinstance(value, str | PathLike):
        yield Path(value)
    elif is_picture(value):
        yield value
    elif isinstance(value, Sequence) and value and (is_picture(value[0]) or isinstance(value[0], str | PathLike)):
        for element in value:
            yield from _samples(element, shape, where)
    else:
        array = _array(value)
        if array.dtype.kind not in "biuf":
            raise InputError(
                f"{_kind(value, array)}; an array of numbers, a picture or a path is allowed",
                where=where,
                hint="an item is a sample, or a pair of a sample and its class number",
            )
        stack = _stack(array, shape)
        if is_one(array, shape):
            yield array
        elif stack is not None or (array.dtype == np.uint8 and array.ndim in (3, 4)):
            yield from array
        else:
            turn = _turn(array.shape, shape)
            raise InputError(
                f"an array of shape {list(array.shape)}; the model's input is {list(shape)}",
                where=where,
                hint=f"its dimensions are in another order: x.transpose{turn} of an array x fits"
                if turn
                else "the batch may be left out, or be any number; pictures are uint8 [H,W,C] or [n,H,W,C]",
            )


def _turn(sizes: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The order of the dimensions of a sample, or of several, that the model takes; None for none."""
    whole, rows = (turn_of(each, one_sample(shape)) for each in (sizes, sizes[1:]))
    return whole or (rows and (0, *(1 + axis for axis in rows)))


def _stack(value: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    """An array of several samples; None for anything else."""
    array = _array(value) if hasattr(value, "shape") else np.empty(())
    is_stack = array.ndim > 0 and array.shape[1:] in one_sample(shape) and not is_one(array, shape)
    return array if is_stack and array.dtype.kind in "biuf" else None


def _kind(value: Any, array: np.ndarray) -> str:
    return f"an array of {array.dtype}" if hasattr(value, "dtype") else f"a {type(value).__name__}"


def _array(value: Any) -> np.ndarray:
    """torch's tensors may need gradients or lie on another device. What is no array, such as a tuple of an image and
    two labels, is one object."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    try:
        return np.asarray(value)
    except ValueError:
        return np.empty((), object)
