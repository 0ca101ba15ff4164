"""Metrics of `eval --metric`: a person's own function, or one by name. Of each sample, what the net gave and what the
float model gave; layouts and shapes are those of the ONNX model's outputs.

    def error(outputs, label, reference):      # outputs: list of arrays; reference: list or None
        return float(abs(outputs[0] - reference[0]).max())

The metric is the mean over the samples. A dict of numbers makes several. What is no mean is a class: an instance gets
``add(outputs, label, reference)`` for each sample, and ``result()`` gives a number or a dict.

A label is the number of a class; or, where boxes are given, an array [n, 6] of left, top, right and bottom in pixels of
the model's input, class, and 1 for a crowd; or None.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from nmpconv.base import confidence
from nmpconv.base.verdict import Boxes
from nmpconv.errors import InputError, UsageError
from nmpconv.evaluation.detection.boxes import CLASS, KEPT_MOST, SCORE, non_maximum_suppression
from nmpconv.evaluation.detection.decoders import DECODERS, Size
from nmpconv.evaluation.detection.precision import Precision

Arrays = Sequence[np.ndarray]
Label = int | np.ndarray | None
LEAST_SCORE = 0.001  # of boxes that count in an average precision
AP, AP50 = "ap", "ap50"
GROUPS = 10  # of images, each left out once, for a confidence interval
SURE = 0.5  # score of a box of the float model from which it stands for truth


class Measure(Protocol):
    """Takes in sample after sample."""

    def add(self, outputs: Arrays, label: Label, reference: Arrays | None) -> None: ...

    def result(self) -> Mapping[str, float] | float: ...


class Mean:
    """Mean of a function of each sample."""

    def __init__(self, function: Callable[[Arrays, Label, Arrays | None], Any], name: str) -> None:
        self._function, self._name = function, name
        self._found: dict[str, list[float]] = {}

    def add(self, outputs: Arrays, label: Label, reference: Arrays | None) -> None:
        score = self._function(outputs, label, reference)
        for name, value in _named(score, self._name).items():
            self._found.setdefault(name, []).append(value)

    def result(self) -> Mapping[str, float]:
        return {name: float(np.mean(values)) for name, values in self._found.items()}


class _Own:
    """An instance of a person's class."""

    def __init__(self, measure: Measure, where: str) -> None:
        self.add, self.result = _guarded(measure.add, where), _guarded(measure.result, where)


class Psnr:
    """Peak signal to noise ratio in dB of the first output against the float model's, over all samples; the peak is the
    largest magnitude that the float model gave."""

    def __init__(self) -> None:
        self._peak = self._squares = 0.0
        self._count = 0

    def add(self, outputs: Arrays, label: Label, reference: Arrays | None) -> None:
        wanted = _first(reference, "psnr").astype(np.float64).ravel()
        error = outputs[0].astype(np.float64).ravel() - wanted
        self._peak = max(self._peak, float(np.abs(wanted).max(initial=0.0)))
        self._squares += float(error @ error)
        self._count += error.size

    def result(self) -> float:
        if not self._squares or not self._peak:
            return math.inf if not self._squares else -math.inf
        return 20 * math.log10(self._peak) - 10 * math.log10(self._squares / self._count)


class MeanIou:
    """Mean IoU of the classes that the first output and the float model's give to each position, in %: intersection
    over union, the mean over the classes that either gave. Scores lie along the axis with the fewest elements; integers
    are classes already."""

    def __init__(self) -> None:
        self._both: dict[int, int] = {}
        self._either: dict[int, int] = {}

    def add(self, outputs: Arrays, label: Label, reference: Arrays | None) -> None:
        wanted = _first(reference, "miou")
        ours, theirs = (classes_of(x, wanted) for x in (outputs[0].reshape(wanted.shape), wanted))
        for number in np.union1d(ours, theirs):
            a, b = ours == number, theirs == number
            key = int(number)
            self._both[key] = self._both.get(key, 0) + int((a & b).sum())
            self._either[key] = self._either.get(key, 0) + int((a | b).sum())

    def result(self) -> float:
        return 100 * float(np.mean([self._both[key] / self._either[key] for key in sorted(self._either)]))


class AveragePrecision:
    """COCO's AP and AP50 in % of the boxes that a decoder finds (see `nmpconv.evaluation.detection.precision`).

    Truth is the label's boxes. With a reference the float model's figures stand beside it, and how far the two agree:
    there the float model's boxes with a score of at least SURE are the truth, and all detections count.
    """

    def __init__(self, decoder: str, size: Size) -> None:
        self._name, self._size = decoder, size
        self._ours, self._theirs, self._agreed = Precision(), Precision(), Precision(KEPT_MOST)

    @classmethod
    def of(cls, decoder: str | None, size: Size | None) -> AveragePrecision:
        """The metric of a decoder's name and the size of the model's input, None where it is no image. Raises
        UsageError."""
        if decoder is None or decoder not in DECODERS:
            problem = "ap needs a decoder" if decoder is None else f"{decoder!r} is no decoder"
            raise UsageError(problem, where="--decoder", hint=", ".join(DECODERS))
        if size is None:
            raise UsageError("ap needs a model whose input is an image", where="--metric")
        return cls(decoder, size)

    def add(self, outputs: Arrays, label: Label, reference: Arrays | None) -> None:
        detections = self._boxes(outputs)
        floats = None if reference is None else self._boxes(reference)
        if isinstance(label, np.ndarray):
            self._ours.add(detections, label)
        elif floats is None:
            hint = "give --boxes FILE, or --reference MODEL.onnx to compare with the float model"
            raise UsageError("ap needs to know which boxes are right", where="--metric", hint=hint)
        if floats is not None:
            sure = floats[floats[:, SCORE] >= SURE]
            self._agreed.add(detections, np.column_stack([sure[:, :4], sure[:, CLASS], np.zeros(len(sure))]))
            if isinstance(label, np.ndarray):
                self._theirs.add(floats, label)

    def result(self) -> Mapping[str, float]:
        every = (("", self._ours), ("float ", self._theirs), ("agreement ", self._agreed))
        rows = [(name, precision.result()) for name, precision in every if precision.images]
        return {name + kind: value for name, values in rows for kind, value in zip((AP, AP50), values, strict=True)}

    def verdict(self) -> Boxes:
        """AP50 of both models for a verdict, with the 95 % confidence interval of what is lost."""
        whole = self._lost(None)
        parts = min(GROUPS, max(len(p.images) for p in (self._ours, self._agreed)))
        margin = confidence.jackknife(whole, [self._lost((part, parts)) for part in range(parts)] if parts > 2 else [])
        figures = (p.result()[1] if p.images else float("nan") for p in (self._ours, self._theirs, self._agreed))
        ours, floats, agreement = (None if np.isnan(value) else value for value in figures)  # nan: there are no boxes
        return Boxes(ours, floats, agreement, margin)

    def _lost(self, without: tuple[int, int] | None) -> float:
        """Points of AP50 that are lost. without: (i, n) leaves every nth image from the ith on out."""
        if self._ours.images and self._theirs.images:
            return self._theirs.ap50(without) - self._ours.ap50(without)
        return 100 - self._agreed.ap50(without) if self._agreed.images else float("nan")

    def _boxes(self, outputs: Arrays) -> np.ndarray:
        return non_maximum_suppression(
            decoded(self._name, outputs, self._size), LEAST_SCORE, DECODERS[self._name].overlap
        )


def decoded(decoder: str, outputs: Arrays, size: Size) -> np.ndarray:
    """Boxes of one image's outputs by a decoder of DECODERS, before suppression. InputError for outputs of other
    shapes."""
    try:
        return DECODERS[decoder].boxes(outputs, size)
    except InputError as error:
        raise InputError(f"{error.message}; {decoder} takes {DECODERS[decoder].takes}", where="--decoder") from None


NAMED: Mapping[str, Callable[[], Measure]] = {"psnr": Psnr, "miou": MeanIou}


def named(text: str) -> str:
    """A metric's name as it is written here; FILE.py:NAME as it is."""
    return text.lower() if text.lower() in (*NAMED, AP) else text


def open_measure(text: str, decoder: str | None = None, size: Size | None = None) -> Measure:
    """psnr, miou, ap, or FILE.py:NAME of a function or a class (see `named`). Runs the file. UsageError, InputError.

    decoder: of DECODERS, for ap. size: height and width of the model's input, None where it is no image.
    """
    if text in NAMED:
        return NAMED[text]()
    if text == AP:
        return AveragePrecision.of(decoder, size)
    path, _, name = text.rpartition(":")
    if not path.endswith(".py") or not name.isidentifier():
        raise UsageError(
            f"{text!r} is no metric", where="--metric", hint=f"{', '.join([*NAMED, AP])} or file.py:function"
        )
    metric = _attribute(Path(path), name)
    if isinstance(metric, type):
        if missing := [
            part for part in (Mean.add.__name__, Mean.result.__name__) if not callable(getattr(metric, part, None))
        ]:
            raise InputError(f"the class {name} has no {missing[0]}(); a metric has add and result", where=path)
        return _Own(_guarded(metric, path)(), path)
    if not callable(metric):
        raise InputError(f"{name} is {type(metric).__name__}, no function and no class", where=path)
    return Mean(_guarded(metric, path), name)


def results(measure: Measure, name: str) -> dict[str, float]:
    """By name; a number without one has this."""
    return _named(measure.result(), name)


def _attribute(path: Path, name: str) -> Any:
    if not path.is_file():
        raise InputError("there is no such file", where=str(path))
    spec = importlib.util.spec_from_file_location("nmpconv_metric", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    _guarded(spec.loader.exec_module, str(path))(module)
    if not hasattr(module, name):
        raise InputError(f"it has no {name!r}", where=str(path))
    return getattr(module, name)


def _guarded(function: Callable[..., Any], where: str) -> Callable[..., Any]:
    """Turns errors of a person's code into an InputError that says where."""

    def called(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except (Exception, SystemExit) as error:  # whatever a person's code may raise
            raise InputError(f"it raised {type(error).__name__}: {error}", where=where) from error

    return called


def _named(scores: Any, name: str) -> dict[str, float]:
    rows = scores if isinstance(scores, Mapping) else {name: scores}
    try:
        return {str(key): float(value) for key, value in rows.items()}
    except (TypeError, ValueError):
        raise InputError(f"the metric gave {scores!r:.60}; a number or a dict of numbers is allowed") from None


def _first(reference: Arrays | None, name: str) -> np.ndarray:
    if reference is None:
        raise UsageError(f"{name} compares with the float model", hint="give --reference MODEL.onnx")
    return reference[0]


def classes_of(x: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The class of each place: integers are classes already; scores lie along the axis with the fewest elements.

    wanted: the float model's, of the same shape, which tells whether there are scores.
    """
    if wanted.dtype.kind in "iub":
        return np.rint(x).astype(np.int64)
    axis = 1 + int(np.argmin(x.shape[1:])) if x.ndim > 1 else 0
    return np.argmax(x, axis=axis)
