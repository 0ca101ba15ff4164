"""Choice between grids that hold every sample, and finer ones that leave out the few which reach much farther.

What is left out saturates. So grids that are fine enough for the others hold all; otherwise both are made, and compared
on the other samples that biases and rounding are fitted on: decision 053.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from nmpconv.base.confidence import counted
from nmpconv.base.quantities import decibels
from nmpconv.base.verdict import KEEPS, SQNR
from nmpconv.calib import activation_cache as calibration
from nmpconv.calib.observers import OutOfRange
from nmpconv.calib.outliers import SAMPLES
from nmpconv.conversion.calibration import Calibrated, Imported, without_outliers
from nmpconv.conversion.context import Context
from nmpconv.conversion.decision import HELD_MOST, Decision, choose_recipe, limit_costs
from nmpconv.conversion.diagnostics import POOR_DB
from nmpconv.conversion.quantizer import UNCHECKED
from nmpconv.conversion.validation import Score, integer_outputs, scored
from nmpconv.data.samples import spread
from nmpconv.ir import Graph
from nmpconv.passes.quantize.heads import heads

GAIN_DB = 3.0  # twice the noise of gains on validation samples, decision 027
NAMED = 3  # outliers that a message names


class Chosen(NamedTuple):
    """A decision, what it was made of, and the options that make it again."""

    context: Context
    calibrated: Calibrated
    decision: Decision

    def score(self, samples: Iterable[int]) -> Score:
        """Figures of these samples."""
        fitter, prepared, gptq = self.decision.fitter, self.decision.prepared, self.decision.recipe.gptq
        return _score(self.calibrated, fitter.quantize(prepared, gptq, UNCHECKED), samples)

    def noted(self, text: str) -> Chosen:
        """The same with one note more."""
        return self._replace(decision=self.decision.noted(text))


def run(context: Context, imported: Imported, calibrated: Calibrated) -> Chosen:
    """Limits costs, and takes the best recipe: of all samples, or without outliers where that one is poor for the
    others; or where it is poor for outliers, and no more classes change. The others have to gain GAIN_DB."""
    options, outliers = context.options, calibrated.outliers
    may_drop = bool(outliers) and options.drop_outliers is None and not options.faithful
    try:
        chosen = _chosen(context, calibrated)
    except OutOfRange:
        if not may_drop:
            raise
        return _without_outliers(context, imported, calibrated)
    if not outliers and options.drop_outliers:
        return chosen.noted(f"outliers left out: none reaches far in many tensors, or over {SAMPLES:.0%} do")
    if may_drop and chosen.decision.score is not None:  # --fast has none, and makes one conversion
        finer = _finer(chosen, imported)
        chosen = finer or chosen._replace(context=_with_option(context, drops=False))
    if not outliers or chosen.calibrated.dropped or options.faithful or options.drop_outliers is False:
        return chosen
    return chosen.noted(f"finer grids for others than {_named(calibrated)}, which --drop-outliers leaves out")


def _finer(chosen: Chosen, imported: Imported) -> Chosen | None:
    """The choice without outliers, where it is the better one."""
    outliers = chosen.calibrated.outliers
    others = [i for i in chosen.calibrated.fitted if i not in outliers]
    before = chosen.score(others), chosen.score(outliers)
    if before[0].db >= KEEPS[SQNR] or min(score.db for score in before) >= POOR_DB:
        return None
    finer = _without_outliers(chosen.context, imported, chosen.calibrated)
    after = finer.score(others), finer.score(outliers)
    agreed = [sum(score.agreed or 0 for score in scores) for scores in (before, after)]
    if after[0].db < before[0].db + GAIN_DB or (before[0].db >= POOR_DB and agreed[1] < agreed[0]):
        return None
    return finer.noted(f"grids that hold outliers: {decibels(before[0].db)} on the others, not {decibels(after[0].db)}")


def _without_outliers(context: Context, imported: Imported, calibrated: Calibrated) -> Chosen:
    context = _with_option(context, drops=True)
    calibrated = without_outliers(context, imported, calibrated.outliers)
    calibrated.check()
    return _chosen(context, calibrated)


def _chosen(context: Context, calibrated: Calibrated) -> Chosen:
    calibrated = limit_costs(context, calibrated)
    return Chosen(context, calibrated, choose_recipe(context, calibrated))


def _with_option(context: Context, *, drops: bool) -> Context:
    """The context in which that is decided."""
    return replace(context, options=replace(context.options, drop_outliers=drops))


def causes(calibrated: Calibrated) -> tuple[str, ...]:
    """Tells why a result may be poor."""
    if not calibrated.outliers or calibrated.dropped:
        return ()
    return (f"grids hold {_named(calibrated)}, and are coarser for the others; --drop-outliers leaves such out",)


def warnings(calibrated: Calibrated, whole: Graph) -> tuple[str, ...]:
    """Says which samples were left out, and what is left of them in the integer graph."""
    if not calibrated.dropped:
        return ()
    score = _score(calibrated, whole, calibrated.outliers)
    left = f"{decibels(score.worst_db)} are left of the worst"
    if score.agreed is not None:
        left += f", {counted(score.agreed, score.images, 'classes stay')}"
    return (f"grids leave out {_named(calibrated)}; {left}; --keep-outliers makes them hold all",)


def _score(calibrated: Calibrated, whole: Graph, samples: Iterable[int]) -> Score:
    """Figures of the integer graph on at most HELD_MOST of these samples."""
    every, graph = list(samples), calibrated.fitter.graph
    names, feeds = heads(graph), [calibrated.feeds[every[i]] for i in spread(len(every), HELD_MOST)]
    wanted = calibration.outputs(graph, feeds, names)
    return scored(wanted, integer_outputs(whole, feeds, names), names, len(feeds))


def _named(calibrated: Calibrated) -> str:
    """The outliers, and how far they reach."""
    outliers, paths = calibrated.outliers, calibrated.names
    names = ", ".join([paths[i] for i in list(outliers)[:NAMED]] + (["..."] if len(outliers) > NAMED else []))
    count = f"{len(outliers)} of {len(calibrated.feeds)} {calibrated.unit}"
    return f"{count}, at {median(outliers.values()):.0f} times the usual peak ({names})"
