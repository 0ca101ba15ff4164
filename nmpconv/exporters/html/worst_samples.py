"""Samples through a file: what its tensors hold, and which samples come out worst."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx

from nmpconv.base.progress import Progress, silent
from nmpconv.base.sqnr import top_k
from nmpconv.base.verdict import Quality, quality, short_name
from nmpconv.calib.engine import OnnxEngine
from nmpconv.data.samples import Data
from nmpconv.errors import UsageError
from nmpconv.evaluation.judge import Judge
from nmpconv.evaluation.task_metrics import AveragePrecision
from nmpconv.exporters.html.charts import Bars, of_integers
from nmpconv.exporters.html.sample_pictures import Sight, sight
from nmpconv.file.reader import FileTensor
from nmpconv.runtime.feed import Feed
from nmpconv.runtime.interpreter import Net

WORST = 8  # samples that are shown
CLASSES = 3  # of each


@dataclass(frozen=True)
class Rank:
    """A class and its score."""

    name: str
    score: float


@dataclass(frozen=True)
class Sample:
    """name: where it comes from. label: the right class, where it is known. ours, floats: the best classes of the file
    and of the float model; empty where the first output is no vector of scores. db: SQNR of the outputs against the
    float model. sight: its pictures; empty until it is among the worst.
    """

    name: str
    label: str
    ours: tuple[Rank, ...]
    floats: tuple[Rank, ...]
    db: float | None
    sight: Sight = field(default_factory=Sight)

    @property
    def agrees(self) -> bool:
        return not self.floats or not self.ours or self.floats[0].name == self.ours[0].name


@dataclass(frozen=True)
class Judged:
    """count: samples that were run. whole: samples of the data. bars: by tensor. worst: the samples on which file and
    float model differ most, worst first. warnings: of inputs that are fed with another range than the file's. quality:
    of all samples that were run, for the verdict.
    """

    count: int = 0
    whole: int = 0
    bars: Mapping[str, Bars] = field(default_factory=dict)
    worst: tuple[Sample, ...] = ()
    warnings: tuple[str, ...] = ()
    quality: Quality = field(default_factory=Quality)


def judge(
    net: Net,
    sources: Mapping[str, Data],
    reference: Path | None,
    limit: int,
    progress: Progress = silent,
    decoder: str | None = None,
) -> Judged:
    """Runs at most ``limit`` samples. reference: the float model; without it the samples with wrong classes come first,
    and then those whose best two classes are closest. decoder: of a detector's outputs, whose boxes are then drawn, and
    compared with the float model's, where it is fed with images. Raises InputError, UsageError.
    """
    feed = Feed(net, sources, limit=limit)
    count = min(limit, len(feed))
    counts = {t.name: np.zeros(t.clip_max - t.clip_min + 1, np.int64) for t in net.model.tensors if t.data is None}
    compared = None if reference is None else _compared(net, reference, feed)
    engine = (
        None
        if compared is None
        else OnnxEngine(onnx.load_from_string(compared.model), feed.shapes(), list(compared.fetch))
    )
    worst: list[tuple[tuple[float, ...], int, Sample]] = []
    tally = _Tally(net)
    is_compared = decoder is not None and reference is not None and feed.size is not None
    boxes = AveragePrecision.of(decoder, feed.size) if is_compared else None
    for i in range(count):
        sample = feed[i]
        if feed.begins(i):
            net.reset()
        reals = _run(net, feed.integers(sample), counts, () if compared is None else compared.heads)
        outputs = [reals[port.tensor].reshape(port.source_shape or port.shape) for port in net.outputs]
        floats, db = None, None
        if engine is not None and compared is not None:
            ran = engine.run(feed.floats(sample))
            compared.add(ran, [reals[port.tensor] for port in net.outputs], [reals[head] for head in compared.heads])
            floats, db = [ran[port.name] for port in net.outputs], compared.last_db()
        ours, theirs = outputs[0].ravel(), None if floats is None else floats[0].ravel()
        tally.add(feed.paths[i], ours, theirs, None if feed.labels is None else feed.labels[i])
        if boxes is not None:
            boxes.add(outputs, None, floats)
        judged = _sample(net, feed, i, ours, theirs, db)
        worst.append((_badness(judged, ours), i, judged))
        worst = sorted(worst, key=lambda row: row[:2])[:WORST]
        if any(row[1] == i for row in worst):
            judged = replace(judged, sight=sight(feed, i, sample, outputs, floats, decoder))
            worst = [(row[0], i, judged) if row[1] == i else row for row in worst]
        progress("judge", i + 1, count)
    tensors = {tensor.name: tensor for tensor in net.model.tensors}
    bars = {
        name: drawn
        for name, seen in counts.items()
        if (drawn := of_integers(seen, tensors[name].clip_min, tensors[name].exponents[0], tensors[name].origin))
    }
    assessment = replace(tally.quality(feed, compared), boxes=None if boxes is None else boxes.verdict())
    return Judged(count, len(feed), bars, tuple(sample for _, _, sample in worst), feed.warnings, assessment)


class _Tally:
    """Figures of the first output of both models, sample by sample."""

    def __init__(self, net: Net) -> None:
        self._ranked = sum(dim > 1 for dim in net.outputs[0].shape) == 1
        self._classes = math.prod(net.outputs[0].shape)
        self._names: list[str] = []
        self._best: list[int] = []
        self._float_best: list[int] = []
        self._labels: list[int | None] = []

    def add(self, name: str, ours: np.ndarray, theirs: np.ndarray | None, label: int | None) -> None:
        self._names.append(name)
        if self._ranked:
            self._best.append(top_k(ours, 1)[0])
            self._float_best += [] if theirs is None else [top_k(theirs, 1)[0]]
            self._labels.append(label)

    def quality(self, feed: Feed, compared: Judge | None) -> Quality:
        unit, figures = "images" if feed.size is not None else "samples", {}
        if compared is not None:
            figures = compared.figures()
        best = {"ours": self._best, "floats": self._float_best, "labels": self._labels or None}
        return quality(self._names, unit, **best, classes=self._classes, **figures)  # type: ignore[arg-type]


def _compared(net: Net, reference: Path, feed: Feed) -> Judge:
    if net.has_states:
        raise UsageError("a file with states is judged by `nmpconv eval`", where="--reference", hint="leave it out")
    return Judge(net, reference, feed)


def _run(
    net: Net, inputs: Mapping[str, np.ndarray], counts: Mapping[str, np.ndarray], keep: Sequence[int]
) -> dict[int, np.ndarray]:
    """Runs one sample, op by op; every tensor is counted when it has just been written. Returns the outputs and the
    tensors of ``keep`` as reals, by number."""
    wanted = {*keep, *(port.tensor for port in net.outputs)}
    reals: dict[int, np.ndarray] = {}
    for i, port in enumerate(net.inputs):
        net.set_input(i, inputs[port.name])
    written = [port.tensor for port in net.inputs]
    for number, op in enumerate([None, *net.model.ops]):
        if op is not None:
            net.run_ops(number - 1, number)
            written = list(op.outputs)
        for tensor in written:
            integers = net.tensor(tensor)  # before another tensor takes its place
            _count(net.model.tensors[tensor], integers, counts)
            if tensor in wanted:
                reals[tensor] = net.model.tensors[tensor].dequantize(integers)
    return reals


def _count(tensor: FileTensor, integers: np.ndarray, counts: Mapping[str, np.ndarray]) -> None:
    seen = np.clip(integers.ravel().astype(np.int64), tensor.clip_min, tensor.clip_max) - tensor.clip_min
    counts[tensor.name][:] += np.bincount(seen, minlength=counts[tensor.name].size)


def _sample(net: Net, feed: Feed, i: int, ours: np.ndarray, theirs: np.ndarray | None, db: float | None) -> Sample:
    port = net.outputs[0]
    ranked = sum(dim > 1 for dim in port.shape) == 1
    label = None if feed.labels is None else feed.labels[i]
    floats = () if theirs is None or not ranked else _ranks(port.labels, theirs)
    named = "" if label is None else _class(port.labels, label)
    return Sample(short_name(feed.paths[i]), named, _ranks(port.labels, ours) if ranked else (), floats, db)


def _badness(sample: Sample, ours: np.ndarray) -> tuple[float, ...]:
    """The less, the worse."""
    if sample.db is not None:
        return (float(sample.agrees), sample.db)
    right = bool(sample.ours) and sample.ours[0].name == sample.label
    margin = sample.ours[0].score - sample.ours[1].score if len(sample.ours) > 1 else 0.0
    return (float(right), margin)


def _ranks(labels: tuple[str, ...], scores: np.ndarray) -> tuple[Rank, ...]:
    return tuple(Rank(_class(labels, i), float(scores[i])) for i in top_k(scores, CLASSES))


def _class(labels: tuple[str, ...], number: int) -> str:
    return labels[number] if 0 <= number < len(labels) else str(number)
