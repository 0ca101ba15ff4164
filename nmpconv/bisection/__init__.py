"""Finds the tensor that loses: what is gained on a metric when each alone is float, what helps, a small model to show.

1. `rebuilt`: the float graph that a file's integers stand for, by the conversion again.
2. `ranking`: all roundings simulated, and each one left out.
3. `nmpconv.conversion.sensitivity`: for the first of them, and for those that make most of the noise
(`nmpconv.calib.noise_budget`), the model
   is converted otherwise and run.
4. `small`: the part of the model around the first that shows the loss by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from threadpoolctl import threadpool_limits

from nmpconv.base.progress import Progress
from nmpconv.bisection.minimal_model import Small, smallest
from nmpconv.bisection.ranking import TENSOR, WEIGHTS, RankedBy, Row, rank
from nmpconv.bisection.reconversion import Rebuilt, rebuild
from nmpconv.calib.noise_budget import budget
from nmpconv.conversion import recipes
from nmpconv.conversion.candidates import CandidateEvaluator, EvaluatedCandidate, ValidationSet
from nmpconv.conversion.decision import finisher
from nmpconv.conversion.sensitivity import LEVERS, Lever, Proposal, measured, proposals
from nmpconv.conversion.validation import Score
from nmpconv.data.samples import Data
from nmpconv.errors import InputError
from nmpconv.evaluation.task_metrics import Measure, open_measure, results
from nmpconv.file import reader
from nmpconv.passes.quantize.heads import heads
from nmpconv.passes.quantize.overrides import Choices, Said
from nmpconv.passes.quantize.shared_grids import grid_groups

__all__ = ["Bisected", "Lever", "Row", "Small", "bisect"]

LEAST_DB = 0.05  # of a gain that a lever is tried for
NOTHING = "# Nothing that was tried helps.\n"
HEAD = """\
# What helps, of what was tried, the best first. Lines after the first are comments: try them together.
"""


@dataclass(frozen=True)
class Bisected:
    """score: of the file, by the C interpreter. simulated_db: the same, as all of ``rows`` was found. metric: what was
    asked for, of the file. anew_db: how many dB a conversion has more, where rows of the file are no conversion's
    (`Row.edited`). small: None where no part shows the loss. recipe: lines for --recipe.
    """

    score: Score
    simulated_db: float
    metric: float | None
    rows: tuple[Row, ...]
    levers: tuple[Lever, ...]
    anew_db: float | None
    small: Small | None
    recipe: str

    @property
    def files(self) -> dict[str, bytes]:
        """By name."""
        return {"recipe.toml": self.recipe.encode(), **(self.small.files if self.small else {})}


def bisect(
    model: Path,
    path: Path,
    content: bytes,
    data: Mapping[str, Data],
    *,
    recipe: Path | None,
    metric: str | None,
    decoder: str | None,
    progress: Progress,
) -> tuple[Bisected, EvaluatedCandidate, list[EvaluatedCandidate]]:
    """Returns the ranking, and the conversions that it was compared with: without any lever, and with each.

    path: of the file, for messages; content: its bytes. data: that it was calibrated with. Raises InputError where
    model or data are not those of the file.
    """
    if metric is not None:
        open_measure(metric, decoder, (1, 1))  # what is wrong with it is told before the work
    with threadpool_limits(1):
        rebuilt = rebuild(path, model, reader.read(content), data, recipe, progress)
        goal = None if metric is None else _goal(rebuilt, metric, decoder)
        images = rebuilt.known.feeds.subset(rebuilt.measured_samples)
        ranking = rank(rebuilt, images, goal, progress)
        trials = _trials(rebuilt, images, goal)
        score, _, value = trials.run(content)
        choices = _with_exponents(rebuilt)
        base = trials.convert(choices)
        asked = _proposals(rebuilt, ranking.rows)
        pairs = measured(trials, choices, base, [*asked, *_noisy(trials, base, images, asked)], progress)
        levers = tuple(lever for lever, _ in pairs)
        first = ranking.rows[0] if ranking.rows else None
        small = None if first is None else smallest(rebuilt, model, first)
    anew = round(base.figures.db - score.db, 3) if any(row.edited for row in ranking.rows) else None
    text = _recipe(levers)
    whole = Bisected(score, ranking.db, value, ranking.rows, levers, anew, small, text)
    return whole, base, [candidate for _, candidate in pairs]


def _goal(rebuilt: Rebuilt, metric: str, decoder: str | None) -> RankedBy:
    size, labels = rebuilt.known.size, rebuilt.known.labels

    def value(measure: Measure) -> float:
        scores = results(measure, metric)
        if not scores:
            raise InputError("it gave no number", where=metric)
        return next(iter(scores.values()))

    open_measure(metric, decoder, size)
    known = [None if labels is None else labels[i] for i in rebuilt.measured_samples]
    return RankedBy(lambda: open_measure(metric, decoder, size), value, known)


def _trials(rebuilt: Rebuilt, images: Sequence[Mapping], goal: RankedBy | None) -> CandidateEvaluator:
    labels = rebuilt.known.labels
    known = None if labels is None else [labels[i] for i in rebuilt.measured_samples]
    metadata, target = rebuilt.file.metadata, rebuilt.options.target
    asked = None if goal is None else (goal.begin, "")
    trial = ValidationSet(images, known, rebuilt.fitter.images, finisher(rebuilt.options), metadata, target, asked)
    return CandidateEvaluator(rebuilt.fitter, rebuilt.recipe, trial, None if goal is None else goal.value)


def _with_exponents(rebuilt: Rebuilt) -> Choices:
    """Returns the choices of the file, with the exponents that differ from those that would be chosen."""
    graph, rows = rebuilt.fitter.graph, dict(rebuilt.fitter.choices.tensors)
    known = {value.name for value in graph.activations()}
    for name in rebuilt.moved:
        quant = rebuilt.floats[name].quant
        if name in known and quant is not None:
            rows[name] = {**rows.get(name, {}), "exponent": Said(quant.exponent, "the file")}
    return replace(rebuilt.fitter.choices, tensors=rows)


def _proposals(rebuilt: Rebuilt, rows: Sequence[Row]) -> list[Proposal]:
    """For the first rows: what was chosen by name chosen anew, and 16 bits."""
    known = {value.name for value in rebuilt.fitter.graph.activations()}
    suggestions = []
    for row in [row for row in rows if row.db > LEAST_DB or (row.metric or 0) > 0][:LEVERS]:
        if row.table == TENSOR and row.name in known:
            suggestions += [Proposal(TENSOR, row.name, {})] if row.moved else []
            suggestions += [Proposal(TENSOR, row.name, {"bits": 16})] if row.bits == 8 else []
        elif row.table == WEIGHTS and row.bits == 8:
            suggestions.append(Proposal(WEIGHTS, row.name, {"weight_bits": 16}))
    return suggestions


def _noisy(
    trials: CandidateEvaluator, base: EvaluatedCandidate, images: Sequence[Mapping], asked: Sequence[Proposal]
) -> list[Proposal]:
    """16 bits for the tensors that make most of the noise, as `convert` names them, where that is not asked already.

    In a file without a fault little is gained by what alone is float, since all else was fitted to its rounding: a
    conversion with 16 bits there fits it anew.
    """
    groups, known = grid_groups(base.ranged), {(proposal.table, proposal.name) for proposal in asked if proposal.said}
    shares = budget(base.ranged, groups, heads(base.ranged), images).shares
    return [proposal for proposal in proposals(trials, base, shares) if (proposal.table, proposal.name) not in known]


def _recipe(levers: Sequence[Lever]) -> str:
    """The lines of the levers that help; all but the first one as comments."""
    helpful = [lever for lever in levers if lever.helps]
    if not helpful:
        return NOTHING
    text = recipes.lines({}, [(lever.table, lever.name, lever.said) for lever in helpful[:1]], head=HEAD)
    notes = []
    for lever in helpful:
        row = recipes.lines({}, [(lever.table, lever.name, lever.said)]).strip().replace("\n", " ")
        notes.append(f"# {lever.db:+.2f} dB  {row or f'no line for {lever.name}: {lever.words}'}\n")
    return text + "".join(notes)
