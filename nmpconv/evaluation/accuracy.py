"""Judging a converted model against labels and the float model. Prints nothing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mode
from typing import Any

import numpy as np

from nmpconv.base import confidence, thread_pool
from nmpconv.base.confidence import LUCK, luck
from nmpconv.base.progress import Progress, silent
from nmpconv.base.quantities import decibels, rate
from nmpconv.base.sqnr import mean_db, score_count, top_k_rows
from nmpconv.base.summary import Chart, Summarized, Summary
from nmpconv.base.verdict import Footprint, Quality, Verdict, quality
from nmpconv.base.workers import Here, Workers
from nmpconv.data.samples import Data
from nmpconv.errors import InputError, UsageError
from nmpconv.evaluation.float_reference import Call, ModelPair, Models, Ran, ran
from nmpconv.evaluation.judge import Judge
from nmpconv.evaluation.task_metrics import AP, AveragePrecision, Measure, open_measure, results
from nmpconv.runtime.costs import footprint
from nmpconv.runtime.feed import Arrays, Feed, chosen_classes
from nmpconv.runtime.input_range import InputRange
from nmpconv.runtime.interpreter import Net
from nmpconv.runtime.ports import Port

RANKED = 5  # classes
PIECE = 16  # samples of a worker at a time; sequences go whole
CACHED_BYTES = 1 << 20  # of inputs and outputs of a piece: what stays in a cache
PIECE_BYTES = 1 << 24  # of all outputs that wait, and of all inputs that are being run
PARTS = 4  # pieces for each thread: who is done early takes another one


@dataclass(frozen=True, repr=False)
class Evaluation(Summarized):
    """Rates are percentages; None where labels, a reference or a ranked output are missing.

    top1, top5, agreement: by the first output, when it is one vector of scores, or top1 and agreement by a class
    that ArgMax gives. sqnr: dB by output, at the input of its final Softmax where there is one; not of outputs that
    are indices or truth. mean_sqnr_db: the mean of those with an error. equal: of indices and truth, the elements
    that are the reference's. metrics: what was asked for by name. sequences: of a model with states, how many there
    were; n is then how many calls were judged. labelled: where the labels of a folder come from, or why there are
    none. inputs: that take floats, and what part of these saturates. warnings: what may be wrong with data or
    labels. quality: the same figures, and footprint: of the file, for the verdict. widths: of results of layers,
    see `nmpconv.base.verdict`.
    """

    n: int
    sequences: int | None = None
    top1: float | None = None
    top5: float | None = None
    reference_top1: float | None = None
    reference_top5: float | None = None
    agreement: float | None = None
    sqnr: Mapping[str, float] = field(default_factory=dict)
    equal: Mapping[str, float] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    labelled: str = ""
    inputs: tuple[InputRange, ...] = ()
    warnings: tuple[str, ...] = ()
    quality: Quality = field(default_factory=Quality)
    widths: str = ""
    footprint: Footprint | None = None

    @property
    def verdict(self) -> Verdict:
        """The verdict on the file."""
        return Verdict(self.widths, self.quality, self.footprint)

    @property
    def told_top5(self) -> tuple[float | None, float | None]:
        """Top-5 of both models for people: None of five classes or fewer, which are always right."""
        return (self.top5, self.reference_top5) if self.quality.classes > RANKED else (None, None)

    @property
    def agreed(self) -> int | None:
        """Number of samples with the float model's best class."""
        return None if self.agreement is None else round(self.agreement * self.n / 100)

    @property
    def agreement_range(self) -> tuple[float, float] | None:
        """The 95 % confidence interval of agreement, in %."""
        return None if self.agreed is None else confidence.proportion(self.agreed, self.n)

    @property
    def mean_sqnr_db(self) -> float | None:
        return mean_db(self.sqnr.values()) if self.sqnr else None

    def summary(self) -> Summary:
        verdict = self.verdict
        named = [f"{name} {value:.4g}" for name, value in self.metrics.items()]
        fives = (("top-5", self.told_top5[0]), ("float top-5", self.told_top5[1]))
        tiles = [*verdict.tiles, *((name, rate(value)) for name, value in fives if value is not None)]
        rows = [(name, decibels(value), "") for name, value in self.sqnr.items()]
        rows += [(name, "", rate(value)) for name, value in self.equal.items()]
        sentence = ", ".join(filter(None, [verdict.sentence, verdict.nearness, *named]))
        columns = ("output", ">SQNR", ">equal")
        return Summary("Evaluation", sentence, tiles, "outputs", columns, rows, self.warnings, verdict.word)

    def records(self) -> list[dict[str, Any]]:
        names = dict.fromkeys([*self.sqnr, *self.equal])
        return [{"output": n, "sqnr_db": self.sqnr.get(n), "equal": self.equal.get(n)} for n in names]

    def chart(self) -> Chart:
        return Chart("SQNR in dB", list(self.sqnr), list(self.sqnr.values()))


def evaluate(
    net: Net,
    sources: Mapping[str, Data],
    *,
    reference: Path | None = None,
    limit: int | None = None,
    label_offset: int = 0,
    max_pixels: int | None = None,
    metrics: Sequence[str] = (),
    decoder: str | None = None,
    boxes: Path | None = None,
    workers: Workers | None = None,
    progress: Progress = silent,
) -> Evaluation:
    """Runs every sample through the net, and through the float model when there is a reference.

    Samples of a net with states are calls. Where a sequence has one label, its last call is judged; else all are. The
    float model has its states fed back, or, beside a step of a stream, sees the last frames that fill its window; calls
    before the first full window are not judged then.
        label_offset: added to every label to get the index of its class. max_pixels: see `nmpconv.data.images.load`.
    metrics, decoder: of `nmpconv.evaluation.task_metrics`. boxes: a file with the boxes of the images, see
    `nmpconv.data.box_labels`. workers: what runs the models; results are the same whatever it is.
    """
    _check(metrics, decoder, boxes)
    feed = Feed(net, sources, max_pixels, limit)
    measures = {text: open_measure(text, decoder, feed.size) for text in metrics}
    truth: Sequence[Any] | None = None if boxes is None else feed.boxes(boxes)
    count = feed.calls(limit)
    scores = net.outputs[0]
    chosen = chosen_classes(net)
    classes = chosen or score_count(scores.shape)
    ranked = classes > 0
    labels = _classes(feed, count, label_offset, classes or None)
    truth = labels if truth is None else truth
    ranks = _Ranks(labels is not None and ranked, chosen)
    judge = None if reference is None else Judge(net, reference, feed)
    names: list[str] = []
    wanted = [labels is None or label is not None for label in labels or [None] * count]
    done = 0
    progress("evaluate", done, count)
    for outputs, heads, floats in _ran(net, feed, judge, wanted, workers or Here()):
        places = [k for k, row in enumerate(floats) if wanted[done + k] and (judge is None or row is not None)]
        names += [feed.paths[done + k] for k in places]
        if ranked and places:
            right = [None if labels is None else labels[done + k] for k in places]
            float_scores = [row[scores.name] for k in places if (row := floats[k]) is not None]
            ranks.add(outputs[0] if len(places) == len(floats) else outputs[0][places], float_scores, right)
        for k in places if judge is not None or measures else ():
            got, row = [y[k] for y in outputs], floats[k]
            if judge is not None and row is not None:
                judge.add(row, got, [y[k] for y in heads])
            if measures:
                _measure(measures.values(), net.outputs, got, row, None if truth is None else truth[done + k])
        done += len(floats)
        progress("evaluate", done, count)
    judged = len(names)
    if not judged:
        raise InputError("no sequence fills the window of the float model", where="--data", hint="give longer ones")
    return Evaluation(
        n=judged,
        sequences=None if feed.starts is None else sum(start < count for start in feed.starts),
        top1=ranks.ours.percent(1),
        top5=None if chosen else ranks.ours.percent(RANKED),
        reference_top1=ranks.theirs.percent(1),
        reference_top5=None if chosen else ranks.theirs.percent(RANKED),
        agreement=100 * ranks.agreed / judged if judge and ranked else None,
        sqnr=judge.sqnr() if judge else {},
        equal=judge.equal() if judge else {},
        labelled=feed.labelled,
        inputs=tuple(feed.ranges.values()),
        warnings=(*feed.warnings, *ranks.shifted(label_offset)),
        quality=_quality(names, feed, judge, ranks if ranked else None, measures.get(AP)),
        widths=net.widths,
        footprint=footprint(net.data, net.model.metadata.get("target"), net.model),
        metrics={name: value for text, measure in measures.items() for name, value in results(measure, text).items()},
    )


def _measure(
    measures: Iterable[Measure], ports: Sequence[Port], outputs: Sequence[np.ndarray], floats: Arrays | None, truth: Any
) -> None:
    """Adds a sample to each of the measures. truth: its label or boxes."""
    float_outputs = None if floats is None else [floats[port.name] for port in ports]
    for measure in measures:
        shaped = [x.reshape(port.source_shape or x.shape) for x, port in zip(outputs, ports, strict=True)]
        measure.add(shaped, truth, float_outputs)


def _quality(
    names: Sequence[str], feed: Feed, judge: Judge | None, ranks: _Ranks | None, boxes: Measure | None
) -> Quality:
    """Figures for the verdict. ranks: None where the first output gives no class."""
    unit = "calls" if feed.starts is not None else "images" if feed.size is not None else "samples"
    figures: dict[str, Any] = {}
    if judge is not None:
        figures = judge.figures()
    if ranks is not None:
        figures |= {"ours": ranks.best, "floats": ranks.float_best, "labels": ranks.labels, "classes": ranks.classes}
    assessment = quality(names, unit, **figures)
    return replace(assessment, boxes=boxes.verdict()) if isinstance(boxes, AveragePrecision) else assessment


def _ran(net: Net, feed: Feed, judge: Judge | None, wanted: Sequence[bool], workers: Workers) -> Iterator[Ran]:
    """Runs both models on the samples, in their order, piece by piece. wanted: which of them are judged."""
    side_by_side = isinstance(workers, Here) and feed.starts is None
    pair = ModelPair(net.data, net.cpu, 1 if side_by_side else net.threads, (), feed.look)
    if judge is not None:
        options = {"reference": judge.model, "fetch": judge.fetch, "where": judge.where}
        pair = replace(pair, keep=tuple(judge.heads), **options)

    def call(i: int) -> Call:
        sample = feed[i]
        floats = None if judge is None else feed.floats(sample)
        return Call(feed.integers(sample), floats, feed.begins(i), wanted[i])

    count = len(wanted)
    size = sum(8 * math.prod(port.shape) for port in net.outputs)
    fed = sum(4 * math.prod(port.shape) for port in net.inputs) * (1 if judge is None else 2)
    if side_by_side:
        models, threads = Models(pair, net.copy(threads=1)), net.batch_threads
        if judge is not None:  # each run of the float model takes all cores, and has memory of its own
            threads = min(threads, thread_pool.MOST)

        def run(part: range) -> Ran:
            if judge is None:
                return models.run_batch(feed.batch(part), len(part))
            return models.run([call(i) for i in part])

        piece = max(1, CACHED_BYTES // (size + fed))
        at_once = max(1, min(PARTS * piece * threads, PIECE_BYTES // size, count))
        step = min(-(-at_once // (PARTS * threads)), max(1, PIECE_BYTES // (fed * threads)))
        for first in range(0, count, at_once):
            samples = range(first, min(first + at_once, count))
            parts = [samples[i : i + step] for i in range(0, len(samples), step)]
            yield from thread_pool.each(run, parts, threads)
        return
    step = max(1, min(PIECE, PIECE_BYTES // (size + fed)))
    firsts = list(range(0, count, step))
    if feed.starts is not None and workers.count > 1:
        firsts = [start for start in feed.starts if start < count]
    pieces = ([call(i) for i in range(*ends)] for ends in zip(firsts, [*firsts[1:], count], strict=True))
    yield from workers.map(ran, pair, pieces)


def _check(metrics: Sequence[str], decoder: str | None, boxes: Path | None) -> None:
    """UsageError for what goes with another metric."""
    if AP not in metrics and (decoder is not None or boxes is not None):
        raise UsageError("a decoder and boxes are for --metric ap", where="--metric")


class _Hits:
    """Counts how often the right class was among the first k."""

    def __init__(self) -> None:
        self._ranks: list[int] = []

    def add(self, ranked: Sequence[int], label: int) -> None:
        self._ranks.append(ranked.index(label) if label in ranked else RANKED)

    def percent(self, k: int) -> float | None:
        return 100 * sum(rank < k for rank in self._ranks) / len(self._ranks) if self._ranks else None


class _Ranks:
    """The best classes of the net and of the float model. labelled: there are right ones. chosen: number of classes
    that indices are chosen from; 0 for scores. agreed: how often the best one is the same. best, float_best,
    labels: of each sample. classes: number of scores.
    """

    def __init__(self, labelled: bool, chosen: int) -> None:
        self._labelled, self._chosen = labelled, chosen
        self.ours, self.theirs, self.agreed, self.classes = _Hits(), _Hits(), 0, chosen
        self.best: list[int] = []
        self.float_best: list[int] = []
        self.labels: list[int | None] = []

    def add(self, ours: np.ndarray, theirs: Sequence[np.ndarray], labels: Sequence[int | None]) -> None:
        """The scores, or indices, of the next samples, [n, ...]; theirs: () without a float model."""
        self.classes = self._chosen or ours[0].size
        best = self._ranked(ours)
        ranks = self._ranked(theirs) if len(theirs) else None
        self.best += [row[0] for row in best]
        self.labels += labels
        if ranks is not None:
            self.float_best += [row[0] for row in ranks]
            self.agreed += sum(a[0] == b[0] for a, b in zip(best, ranks, strict=True))
        for i, label in enumerate(labels):
            if label is not None and self._labelled:
                self.ours.add(best[i], label)
                if ranks is not None:
                    self.theirs.add(ranks[i], label)

    def _ranked(self, outputs: np.ndarray | Sequence[np.ndarray]) -> list[list[int]]:
        """The best classes of each sample, the best one first."""
        if self._chosen:
            return [[int(np.ravel(index)[0])] for index in outputs]
        return top_k_rows(outputs, RANKED if self._labelled else 1)  # top-5 is asked of labels alone

    def shifted(self, offset: int) -> tuple[str, ...]:
        """The offset of labels with which more samples are right than by luck. offset: that was added to them.

        A model that gives one class alone is right as often as the commonest label: that is no evidence.
        """
        pairs = [(best, label) for best, label in zip(self.best, self.labels, strict=True) if label is not None]
        if not pairs or not self._labelled:
            return ()
        classes, labels = np.array(pairs).T
        [(more, count)] = Counter((classes - labels).tolist()).most_common(1)
        right, before, constant = classes == labels + more, classes == labels, labels == mode(labels.tolist())
        if more == 0 or max(luck(right, before), luck(right, constant)) > LUCK:
            return ()
        shift = f"with {abs(more)} {'more' if more > 0 else 'less'} (--label-offset {offset + more})"
        rates = f"{count} of {len(labels)} samples are right, not {before.sum()}"
        return (f"labels look off by {abs(more)}: {shift}, {rates}",)


def _classes(feed: Feed, count: int, offset: int, classes: int | None) -> tuple[int | None, ...] | None:
    """The labels of the first samples; None without labels. classes: what they may be, if that is known."""
    if feed.labels is None:
        return None
    labels = tuple(None if label is None else label + offset for label in feed.labels[:count])
    known = [label for label in labels if label is not None]
    if outside := [label for label in known if classes is not None and not 0 <= label < classes]:
        raise InputError(
            f"class {outside[0]}; the model has classes 0 to {(classes or 0) - 1}",
            where="the labels",
            hint=f"they go from {min(known)} to {max(known)}; --label-offset N is added to every label",
        )
    return labels
