"""Inputs and outputs of a net: arrays that inputs take, and arrays that outputs give."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import index
from typing import Any, SupportsIndex, overload

import numpy as np
from numpy.typing import NDArray

from nmpconv.base.float_rounding import on_grid
from nmpconv.base.near_names import suggestion
from nmpconv.base.type_check import is_frame
from nmpconv.errors import InputError, refusal
from nmpconv.file import reader
from nmpconv.ir import Preprocess, Shifts

BEYOND = 128  # how far from 0 to 255 a pixel may be that an augmentation moved
TURNS = ((0, 2, 3, 1), (0, 3, 1, 2))  # from channels first to the file's channels last, and back


@dataclass(frozen=True)
class Port:
    """An input or output: real value = integer * 2^exponent, integers in [lo, hi], where it has no shifts.

    pixels: the input is an image's pixels; uint8 is taken as is. labels: class names, of an output that has as many.
    source_shape: in the ONNX model. tensor: its number in the file. shifts: how the tensor's numbers are made of the
    ONNX model's where channels of an input, or parts of an output, have grids of their own: see `integers` and
    `dequantize`.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    exponent: int
    lo: int
    hi: int
    preprocess: Preprocess | None
    pixels: bool
    labels: tuple[str, ...]
    source_shape: tuple[int, ...]
    tensor: int
    shifts: Shifts | None = None

    @property
    def grid(self) -> str:
        """The real value of integer 1; of pixels "", whose meaning is `preprocess`."""
        if self.shifts is None:
            return "" if self.pixels else f"2^{self.exponent}"
        if self.shifts.mantissas:
            steps = (np.ldexp(1.0, self.exponent) / self.shifts.factors(1)).ravel()
            return f"{steps.min():.4g}" + (f"..{steps.max():.4g}" if steps.max() > steps.min() else "")
        exponents = [self.exponent - bits for bits in self.shifts.bits]
        return f"2^{min(exponents)}" + (f"..{max(exponents)}" if len({*exponents}) > 1 else "")

    def stored(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """The tensor's numbers of the ONNX model's [..., shape], not yet rounded to multiples of 2^exponent."""
        if self.shifts is None:
            return numbers
        if numbers.ndim > len(self.shape):
            return np.array([self.stored(row) for row in numbers]).reshape(numbers.shape)
        return self.shifts.stored(numbers)

    def dequantize(self, q: NDArray[Any]) -> NDArray[np.float64]:
        """Integers of the port's shape, or of several samples [N, ...], as reals."""
        if self.shifts is not None and q.ndim > len(self.shape):
            return np.array([self.dequantize(row) for row in q]).reshape(q.shape)
        return reader.dequantize(q, self.exponent, self.shifts)

    @cached_property
    def is_native(self) -> bool:
        """Checks that the interpreter makes real numbers integers of the port, and integers real numbers."""
        return self.shifts is None and np.dtype(self.dtype).itemsize <= 2

    def numbers(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Numbers [n, *shape] that the interpreter takes: float32 where `is_native`, else the integers of `values`."""
        return rows if rows.dtype == np.float32 and self.is_native and not self.pixels else self.values(rows)

    def check_finite(self, array: NDArray[Any]) -> None:
        """Raises InputError where a number is not finite."""
        if not np.isfinite(array).all():
            hint = "leave such samples out, or fill them: np.nan_to_num(x)"
            raise InputError("the array has values that are not finite", where=self.name, hint=hint)

    def integers(self, array: Any) -> NDArray[Any]:
        """Integers [n, *shape] of one sample (n = 1) or of a batch.

        array: a sample in the file's layout or the ONNX model's, dimensions of 1 left out or not; its elements in one
        dimension, in the file's order; or a batch [n, ...] of these. Values: see `values`. Pictures of Pillow, one or
        a list, are resized as the file's preprocessing says. Raises InputError for anything else, and where the shape
        fits two layouts.
        """
        return self.values(self.rows(array))

    def rows(self, array: Any) -> NDArray[Any]:
        """The array of `integers` as [n, *shape], with the numbers that were given: most often a view."""
        if isinstance(array, np.ndarray) and array.shape == self.shape and array.dtype == self.dtype:
            return array[np.newaxis]
        numbers = as_array(self._windows(array) if is_frame(array) else self._pixels_of(array))
        rows = numbers if self._is_batch(numbers.shape) else numbers[np.newaxis]
        turned = [rows.transpose(0, *(axis + 1 for axis in turn)) for turn in self._turns(rows)]
        if self._fits(rows.shape[1:]):
            other = self.preprocess is not None and self.preprocess.layout == "nchw"
            if turned and other and numbers.dtype != self.dtype:
                raise InputError(
                    f"the array's shape {list(numbers.shape)} fits [H,W,C] of the file and [C,H,W] of the ONNX model",
                    where=self.name,
                    hint="give x.ravel() of an array [H,W,C]: one dimension is taken in the file's order",
                )
        elif turned:
            rows = turned[0]
        else:
            raise self._refused(numbers)
        return rows.reshape(len(rows), *self.shape)

    def _windows(self, frame: Any) -> NDArray[Any]:
        """Samples of a table of numbers, a DataFrame of pandas: those that `nmpconv run` takes of its CSV."""
        from nmpconv.data import tables  # of no use to most nets

        windows = tables.unlabelled(frame, self.source_shape or self.shape, self.name)
        return np.stack([windows.array(i) for i in range(len(windows))])

    def _pixels_of(self, value: Any) -> Any:
        """Pixels of pictures of Pillow, as `nmpconv run` makes them of files; anything else as it is."""
        if not self.pixels or self.preprocess is None or "PIL.Image" not in sys.modules:
            return value
        pictures = value if isinstance(value, list | tuple) else [value]
        from nmpconv.data import images  # where somebody has loaded Pillow

        if not pictures or not all(map(images.is_picture, pictures)):
            return value
        height, width, channels = self.shape[1:]
        size, preprocess = (height, width, channels), self.preprocess
        return np.stack([images.load(picture, size, preprocess, where=self.name) for picture in pictures])

    def _is_batch(self, shape: tuple[int, ...]) -> bool:
        return math.prod(shape) != math.prod(self.shape) and len(shape) > 0

    def _fits(self, shape: tuple[int, ...]) -> bool:
        """Checks for the file's order of elements."""
        return math.prod(shape) == math.prod(self.shape) and (len(shape) <= 1 or long(shape) == long(self.shape))

    def _turns(self, rows: NDArray[Any]) -> list[tuple[int, ...]]:
        """Permutations of a sample's dimensions that bring its channels to their place in the file and move elements.
        There is one at most, or the shape fits as it is, too.
        """
        sample = rows.shape[1:]
        if len(self.shape) != 4 or self.shape[0] != 1 or len(sample) not in (3, 4):
            return []
        whole = (1, *sample) if len(sample) == 3 else sample
        turns = [turn for turn in TURNS if tuple(whole[axis] for axis in turn) == self.shape]
        turns = [turn for turn in turns if [n for n in turn if whole[n] != 1] != [n for n in range(4) if whole[n] != 1]]
        if self.pixels:  # channels are last in the file
            turns = [turn for turn in turns if turn == TURNS[0]]
        return [turn if len(sample) == 4 else tuple(axis - 1 for axis in turn[1:]) for turn in turns]

    def _refused(self, array: NDArray[Any]) -> InputError:
        shapes = dict.fromkeys([self.shape, self.source_shape or self.shape])
        if array.dtype.kind in "OSU":
            hint = "open a picture by PIL.Image.open(path), arrays by numpy.load(path); `nmpconv run` takes files"
            if array.dtype.kind == "O" and hasattr(array.item() if array.ndim == 0 else None, "__iter__"):
                hint = "the batches of a loader are run one by one: for x, y in loader: net(x)"
            return InputError("texts and objects are no numbers", where=self.name, hint=hint)
        from nmpconv.base.turns import turn_of  # not loaded where nothing is refused

        wanted = [shape for each in shapes for shape in ((each, each[1:]) if each[:1] == (1,) else (each,))]
        hint, pixels = "or a batch of these, [n, ...]", self.pixels and array.dtype == np.uint8
        if turn := turn_of(array.shape, wanted):
            hint = f"its dimensions are in another order: x.transpose{turn} fits"
        elif pixels and self.shape[3] == 3 and array.shape[-3:] == (*self.shape[1:3], 4):
            hint = "x[..., :3] leaves an alpha channel out"
        elif pixels and array.ndim == 3 and array.shape[2] in (1, 3, 4):
            picture = "x[..., 0]" if array.shape[2] == 1 else "x"
            hint = f"a picture of Pillow is resized as nmpconv run does: PIL.Image.fromarray({picture})"
        return InputError(
            f"the array has shape {list(array.shape)}, {' or '.join(str(list(shape)) for shape in shapes)} is needed",
            where=self.name,
            hint=hint,
        )

    def values(self, array: NDArray[Any]) -> NDArray[Any]:
        """Integers of numbers in the file's layout, [n, *shape].

        Of the port's dtype they are the file's integers; uint8 the pixels of an image; floats and truth values the ONNX
        model's numbers, rounded half up to the grid and saturated; other integers where they mean the same either way.
        Raises InputError.
        """
        kind = array.dtype.kind
        if array.dtype == self.dtype:
            return array
        if self.pixels and array.dtype == np.uint8:
            return (array ^ np.uint8(128)).view(np.int8)
        if kind in "fb" or (kind in "iu" and self.exponent == 0 and not self.pixels and self.shifts is None):
            numbers = array
            if self.pixels and self.preprocess is not None:
                numbers = self._pixels(array, self.preprocess) - 128
            integers, finite = on_grid(self.stored(numbers), self.exponent, self.lo, self.hi, self.dtype)
            if not finite:
                self.check_finite(array)
            return integers
        if kind in "iu":
            pixels = "uint8 for pixels 0 to 255, " if self.pixels else ""
            raise InputError(
                f"the array is {array.dtype}: the file's integers or the ONNX model's numbers?",
                where=self.name,
                hint=f"give {pixels}{self.dtype} for the file's integers, floats for the ONNX model's numbers",
            )
        allowed = f"{self.dtype}, {'uint8 pixels, ' if self.pixels else ''}floats and truth values"
        raise InputError(f"the array is {array.dtype}; {allowed} are taken", where=self.name)

    def _pixels(self, reals: NDArray[Any], preprocess: Preprocess) -> NDArray[np.float64]:
        """Pixels that become these numbers of the ONNX model's input, by preprocessing."""
        pixels = preprocess.to_pixels(reals)
        if pixels.size and float(np.mean((pixels < -BEYOND) | (pixels > 255 + BEYOND))) > 0.5:
            raise InputError(
                f"the floats are {reals.min():g} to {reals.max():g}: most are no pixels with the model's mean and std",
                where=self.name,
                hint="give uint8 for pixels as they are, floats for (pixel - mean) / std",
            )
        return pixels


class Outputs(list[NDArray[Any]]):
    """Outputs of a run in the order of the ports, also by name: `outputs["scores"]`. ports: those of the arrays."""

    def __init__(self, arrays: Iterable[NDArray[Any]], ports: Sequence[Port]) -> None:
        super().__init__(arrays)
        self.ports = tuple(ports)

    @overload
    def __getitem__(self, key: SupportsIndex | str) -> NDArray[Any]: ...
    @overload
    def __getitem__(self, key: slice) -> list[NDArray[Any]]: ...
    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(self._index(key) if isinstance(key, str) else key)

    def to_dict(self) -> dict[str, NDArray[Any]]:
        """The arrays by name."""
        return dict(zip((port.name for port in self.ports), self, strict=True))

    def top(self, count: int = 5, output: str | int = 0) -> list[Any]:
        """The best classes of an output with a score a class: (label, score), best first, the label being a number
        where the file has no names; of a batch such a list a sample. Raises InputError for an output of another shape.
        """
        at = self._index(output) if isinstance(output, str) else index_of(output, len(self), "output")
        count = whole(count, 1, None, "count")
        port, scores = self.ports[at], self[at]
        classes = math.prod(port.shape)
        if len(long(port.shape)) > 1:
            raise InputError(f"its shape is {list(port.shape)}; a score a class is needed", where=port.name)
        rows = scores.reshape(-1, classes)
        labels: Sequence[Any] = port.labels or range(classes)
        best = [[(labels[i], row[i].item()) for i in np.argsort(-row, kind="stable")[:count]] for row in rows]
        return best[0] if scores.shape == port.shape else best

    def _index(self, name: str) -> int:
        names = [port.name for port in self.ports]
        if name not in names:
            raise KeyError("; ".join(filter(None, [f"no output {name!r}, but {names}", suggestion(name, names)])))
        return names.index(name)


def whole(value: Any, low: int, high: int | None, where: str) -> int:
    """A whole number within bounds. Raises UsageError."""
    number = _integer(value)
    if number is None or number < low or (high is not None and number > high):
        raise refusal(value, f"{low} and more" if high is None else f"{low} to {high}", where)
    return number


def index_of(value: Any, count: int, where: str) -> int:
    """A place in a list of so many; negative ones count from its end. Raises UsageError."""
    number = _integer(value)
    if number is None or not -count <= number < count:
        raise refusal(value, f"0 to {count - 1}", where)
    return number % count


def _integer(value: Any) -> int | None:
    try:
        return index(value)
    except TypeError:  # arrays and tensors of floats have the method, too
        return None


def by_port(arrays: Sequence[Any], named: Mapping[str, Any], ports: Sequence[Port]) -> list[Any]:
    """The array of each input. arrays: in the order of the ports, or one dict by name; named: keywords instead.
    Raises InputError."""
    if not named and len(arrays) == len(ports) and all(type(array) is np.ndarray for array in arrays):
        return list(arrays)
    names = [port.name for port in ports]
    if named and arrays:
        raise InputError("inputs were given by position and by keyword", hint="give all of them in one way")
    if len(arrays) == 1 and isinstance(arrays[0], Mapping):
        named = arrays[0]
    if named or (len(arrays) == 1 and isinstance(arrays[0], Mapping)):
        if set(named) != set(names):
            unknown = [str(name) for name in named if name not in names]
            raise InputError(
                f"inputs {list(named)} were given, the model has {names}",
                hint=suggestion(unknown[0], names) if unknown else "",
            )
        return [named[name] for name in names]
    if len(arrays) != len(names):
        raise InputError(f"{len(arrays)} inputs were given, the model has {len(names)}: {', '.join(names)}")
    return list(arrays)


def as_array(value: Any) -> NDArray[Any]:
    """A numpy array; tensors of torch may need gradients or lie on another device."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    try:
        return np.asarray(value)
    except ValueError as error:  # rows of several lengths
        hint = "of a pair of samples and labels, give the samples alone" if isinstance(value, list | tuple) else ""
        raise InputError(f"the input is no array: {error}", hint=hint) from None


def joined(array: NDArray[Any], port: Port) -> NDArray[Any]:
    """Outputs [n, *shape] of n samples as one array: of the port's shape for one, else with n as the batch."""
    if len(array) == 1:
        return array[0]
    return array[:, 0] if port.shape[:1] == (1,) else array


def long(shape: Sequence[int]) -> list[int]:
    """The dimensions that order the elements."""
    return [n for n in shape if n != 1]
