"""Choice between grids that hold every sample, and finer ones that leave out the few which reach much farther.

A conversion that is poor for neither is left alone, because what is left out saturates. Otherwise both are made, and
compared on the other samples that biases and rounding are fitted on: decision 053.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from nmpconv.base.quantities import decibels
from nmpconv.base.verdict import KEEPS, SQNR
from nmpconv.calib import activation_cache as calibration
from nmpconv.conversion.calibration import Calibrated, Imported, without_outliers
from nmpconv.conversion.context import Context
from nmpconv.conversion.decision import Decision, choose_recipe, limit_costs
from nmpconv.conversion.diagnostics import POOR_DB
from nmpconv.conversion.quantizer import UNCHECKED
from nmpconv.conversion.validation import Score, integer_outputs, scored
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

    def with_option(self, drops: bool) -> Context:
        """The context in which that is decided."""
        return replace(self.context, options=replace(self.context.options, drop_outliers=drops))


def run(context: Context, imported: Imported, calibrated: Calibrated, decision: Decision) -> Chosen:
    """Returns what was decided; or the same without outliers, where it is poor for the others; or where it is poor for
    outliers, and no more classes change. The others have to gain GAIN_DB."""
    options, far, chosen = context.options, calibrated.outliers, Chosen(context, calibrated, decision)
    if not far or options.drop_outliers is not None or options.faithful or options.fast or decision.score is None:
        return chosen
    others = [i for i in calibrated.fitted if i not in far]
    before = chosen.score(others), chosen.score(far)
    is_fair = before[0].db >= KEEPS[SQNR]
    if not is_fair and min(score.db for score in before) < POOR_DB:
        finer = _without(chosen, imported)
        after = finer.score(others), finer.score(far)
        agreed = [sum(score.agreed or 0 for score in scores) for scores in (before, after)]
        may_change = before[0].db < POOR_DB
        if after[0].db >= before[0].db + GAIN_DB and (may_change or agreed[1] >= agreed[0]):
            figures = f"{decibels(before[0].db)} on the others, not {decibels(after[0].db)}"
            return finer._replace(decision=finer.decision.noted(f"grids that hold outliers: {figures}"))
    text = f"grids hold {_told(calibrated)}, and are coarser for the others; --drop-outliers leaves such samples out"
    decision = decision.noted(text) if is_fair else replace(decision, warnings=(*decision.warnings, text))
    return Chosen(chosen.with_option(False), calibrated, decision)


def _without(chosen: Chosen, imported: Imported) -> Chosen:
    """The same decided without outliers."""
    context, known = chosen.with_option(True), chosen.calibrated
    calibrated = replace(without_outliers(context, imported, known.outliers), check=known.check)
    calibrated = limit_costs(context, calibrated)
    return Chosen(context, calibrated, choose_recipe(context, calibrated))


def warnings(calibrated: Calibrated, whole: Graph) -> tuple[str, ...]:
    """Says what was left out, and what is left of it in the integer graph."""
    if not calibrated.dropped:
        return ()
    score = _score(calibrated, whole, calibrated.outliers)
    left = f"{decibels(score.worst_db)} are left of the worst"
    return (f"grids leave out {_told(calibrated)}; {left}; --keep-outliers makes them hold all",)


def _score(calibrated: Calibrated, whole: Graph, samples: Iterable[int]) -> Score:
    feeds, graph = [calibrated.feeds[i] for i in samples], calibrated.fitter.graph
    names = heads(graph)
    wanted = calibration.outputs(graph, feeds, names)
    return scored(wanted, integer_outputs(whole, feeds, names), names, len(feeds))


def _told(calibrated: Calibrated) -> str:
    """The outliers, and how far they reach."""
    far, names = calibrated.outliers, calibrated.names
    named = ", ".join([names[i] for i in list(far)[:NAMED]] + (["..."] if len(far) > NAMED else []))
    count = f"{len(far)} of {len(calibrated.feeds)} {calibrated.unit}"
    return f"{count}, at {median(far.values()):.0f} times the usual peak ({named})"
