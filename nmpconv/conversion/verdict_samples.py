"""Samples that the verdict on a conversion is measured on: those that biases and rounding are not fitted on.

1. Where enough samples are left, the file itself runs on them.
2. Otherwise the same recipe, fitted on two thirds of the samples, runs on the third: with grids of all samples, which
   reach as far as the third does, and with those of the two thirds, which are too few. `validation.scored` puts
   the noise in between. Grids of all samples alone, where ranges are not those of the samples.
3. Too few samples for that: how near the fitted ones it is, which says little of others.
4. With --faithful, and neither labels nor boxes, the quantized model as it is takes the place of the float graph: its
   own rounding is included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from nmpconv.base.sqnr import mean_db
from nmpconv.base.verdict import Quality
from nmpconv.calib.activation_cache import Feeds
from nmpconv.calib.engine import FloatEngine
from nmpconv.calib.observers import observe
from nmpconv.conversion import decision as decisions
from nmpconv.conversion.calibration import Calibrated, has_observed_ranges
from nmpconv.conversion.candidates import CandidateEvaluator
from nmpconv.conversion.context import Context
from nmpconv.conversion.decision import Decision
from nmpconv.conversion.options import Options
from nmpconv.conversion.quantized_model import compared_on
from nmpconv.conversion.quantizer import HELD_OUT
from nmpconv.conversion.report import Report
from nmpconv.conversion.validation import Score
from nmpconv.data import box_labels
from nmpconv.errors import NmpError, UsageError
from nmpconv.evaluation.task_metrics import AP, AveragePrecision, Measure, open_measure
from nmpconv.file.writer import to_bytes
from nmpconv.ir import Graph
from nmpconv.passes.memory import plan_memory
from nmpconv.passes.quantize import ranges, table_readers


class Validated(NamedTuple):
    """Figures of validation samples. score: None where they are too few."""

    score: Score | None
    quality: Quality


def validate(context: Context, calibrated: Calibrated, decision: Decision, whole: Graph) -> Validated:
    """Measures the integer graph that was decided. Raises UsageError, InputError for boxes that do not fit."""
    boxes = _boxes(context, calibrated)  # before any work
    apart = decisions.unfitted(context, calibrated)
    if len(calibrated.fitter.images) < HELD_OUT or (decision.score is None and not apart):
        return Validated(decision.score, Quality(why="no samples that nothing was fitted to"))
    trial, decoder = decisions.held_out(context, calibrated), context.options.decoder
    if decoder is not None and calibrated.size is not None:
        begin = partial(open_measure, AP, decoder, calibrated.size)
        truth = None if boxes is None else [boxes[i] for i in trial.indices]
        trial = replace(trial, labels=truth, metric=(begin, AP))
    trials = CandidateEvaluator(decision.fitter, decision.recipe, trial, _finished)
    unseen = None if apart else _unseen(context.options, calibrated, decision, trial.fitted)
    metric = None
    if apart:
        score, _, metric = trials.run(_file(whole))
    elif unseen is None and decision.score is not None and decoder is None and context.search is None:
        score = decision.score._replace(all_images=None)  # of these integers on these samples
    else:
        # The recipe was scored on these samples, unless a search for a goal decided.
        noises = decision.score.noises if decision.score is not None else ()
        if unseen is None or not noises:
            score, _, metric = trials.run(_file(decision.fitter.fitted(decision.recipe, trial.fitted)[1]))
            noises = score.noises
        if unseen is not None:
            score, _, metric = trials.run(_file(unseen), noises)
    names, every = calibrated.names, calibrated.labels
    labels = None if every is None else [every[i] for i in trial.indices]
    how = "" if apart else ", fitted without them" if unseen else ", fitted without them but for ranges"
    unit = f"validation {calibrated.unit}{how}"
    quality = score.quality([names[i] for i in trial.indices], labels, unit)
    precision: Any = metric  # `_finished` hands the measure itself through
    return Validated(score, replace(quality, boxes=None if precision is None else precision.verdict()))


def _unseen(options: Options, calibrated: Calibrated, decision: Decision, fitted: Feeds) -> Graph | None:
    """The graph with grids of the two thirds (fitted). None where ranges are not those of the samples (a profile, a
    quantized model), or contradict the recipe: then grids of all samples are used alone. What keeps the function was
    found of the graph that was decided: its factors and origins are nearly the same."""
    fitter = decision.fitter
    if not has_observed_ranges(options, fitter.graph):
        return None
    stats = dict(calibrated.two_thirds)
    if names := [value.name for value in fitter.graph.activations() if value.name not in stats]:
        stats |= observe(FloatEngine(fitter.graph, names, threads=1), fitted, names)
    stats |= {name: fitter.stats[name] for name in calibrated.masked & stats.keys()}
    try:
        stats = table_readers.counting(fitter.graph, ranges.run(fitter.graph, stats), fitter.bits)
        return fitter.with_stats(stats, decision.prepared.notes).fitted(decision.recipe, fitted)[1]
    except NmpError:
        return None


def _file(graph: Graph) -> bytes:
    return to_bytes(plan_memory.run(graph), {})


def of_fitted(report: Report, unit: str, images: int) -> Quality:
    """Case 3."""
    if not report.sqnr_by_head or not images:
        return report.quality
    return Quality(
        n=images, unit=f"calibration {unit}, which it was fitted to", db=mean_db(report.sqnr_by_head.values())
    )


def beside_quantized(calibrated: Calibrated, score: Score) -> Quality:
    """The figures of a quantized model whose integers are to stay, beside the model as it is."""
    names = calibrated.names
    compared = [names[i] for i in compared_on(len(calibrated.feeds))]
    return score.quality(compared, None, f"{calibrated.unit}, with the model's own rounding")


def _finished(measure: Measure) -> AveragePrecision:
    assert isinstance(measure, AveragePrecision)
    return measure


def _boxes(context: Context, calibrated: Calibrated) -> Sequence[np.ndarray] | None:
    """Labelled boxes of all samples; None where no file was given."""
    file, options = context.options.boxes, context.options
    if file is None:
        return None
    if options.decoder is None:
        raise UsageError("boxes need a decoder of the model's outputs", where="--boxes", hint="give --decoder, too")
    first = next(iter(calibrated.samples.values()), None)
    if first is None or first.preprocess is None or first.size is None:
        raise UsageError("boxes need images", where="--boxes")
    height, width = first.size
    return box_labels.read(file, first.paths, (width, height), first.preprocess)
