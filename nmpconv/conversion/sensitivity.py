"""Measured gain of changing one tensor's width: the model is converted with it, and run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from nmpconv.base import confidence
from nmpconv.base.progress import Progress
from nmpconv.base.sqnr import gain
from nmpconv.base.workers import Workers
from nmpconv.conversion.candidates import CandidateEvaluator, EvaluatedCandidate, narrow
from nmpconv.errors import Unsupported
from nmpconv.passes.quantize.overrides import Choices, Said
from nmpconv.passes.quantize.shared_grids import grid_groups
from nmpconv.runtime import costs

LEVERS = 3  # that are measured
PLACE = "a lever"


class Proposal(NamedTuple):
    """table: of a recipe, "tensors" or "ops". said: the whole row, by key; nothing of the name is said otherwise."""

    table: str
    name: str
    said: Mapping[str, Any]


@dataclass(frozen=True)
class Lever:
    """A row of a recipe (see `Proposal`), and what comes of it: dB and points of agreement more, in parts of what the
    model takes without it the work (`nmpconv.conversion.candidates`) and instructions; bytes more. metric: how much
    more of that, where one was asked for. target: that instructions are estimated for (`nmpconv.runtime.costs`); None:
    they were counted. images: that were measured on. db_margin: half the 95 % confidence interval of db, of the gains
    on the same images; None where they are too few. helps: SQNR rises by more than that."""

    table: str
    name: str
    said: Mapping[str, Any]
    db: float
    agreement: float | None
    metric: float | None
    work: float
    ram: int
    flash: int
    instructions: float
    target: str | None
    images: int
    db_margin: float | None
    helps: bool

    @property
    def words(self) -> str:
        """Describes the choice for a person."""
        bits = self.said.get("bits", self.said.get("weight_bits"))
        of = "weights" if self.table == "ops" else "tensor"
        return f"{of} at {bits} bits" if bits else f"{of} as chosen anew"

    @property
    def agreed(self) -> int | None:
        """Number of images that have the float model's best class, more than before."""
        return None if self.agreement is None else round(self.agreement * self.images / 100)


def helpful(
    trials: CandidateEvaluator,
    choices: Choices,
    shares: Mapping[str, float],
    progress: Progress,
    workers: Workers | None = None,
) -> tuple[Lever, ...]:
    """Measures the gain of 16 bits for the tensors that make most of the noise; the best first. shares: see
    `proposals`. workers: what converts the model with each."""
    try:
        base = trials.convert(choices)
    except Unsupported:  # fitted to fewer images it does not fit a given RAM
        return ()
    asked = proposals(trials, base, shares)
    return tuple(lever for lever, _ in measured(trials, choices, base, asked, progress, workers))


def proposals(trials: CandidateEvaluator, base: EvaluatedCandidate, shares: Mapping[str, float]) -> list[Proposal]:
    """16 bits for the tensors that make most of the noise. shares: of it, by the first tensor of a grid."""
    graph, choices = trials.fitter.graph, trials.fitter.choices
    named = narrow(graph, choices, base.ranged)
    promotions = [Proposal("tensors", names[0], {"bits": 16}) for first in shares if (names := named.get(first))]
    return promotions[:LEVERS]


def measured(
    trials: CandidateEvaluator,
    choices: Choices,
    base: EvaluatedCandidate,
    asked: Sequence[Proposal],
    progress: Progress,
    workers: Workers | None = None,
) -> list[tuple[Lever, EvaluatedCandidate]]:
    """Each alone over these choices, which ``base`` was converted by; what helps first, and the best of it. What does
    not fit is left out."""
    results = []
    groups = grid_groups(trials.fitter.graph)
    grids = [next((group for group in groups if proposal.name in group), [proposal.name]) for proposal in asked]
    pieces = [(chosen(choices, proposal, grid), (proposal.name,)) for proposal, grid in zip(asked, grids, strict=True)]
    for i, (proposal, candidate) in enumerate(zip(asked, trials.all(pieces, workers), strict=True)):
        progress("levers", i + 1, len(asked))
        if candidate is None:
            continue
        ours, theirs = candidate.figures, base.figures
        db, sure = round(gain(ours.db, theirs.db), 3), confidence.margin(candidate.effects - base.effects)
        lever = Lever(
            *proposal,
            db=db,
            agreement=_more(ours.agreement, theirs.agreement),
            metric=_more(ours.metric, theirs.metric),
            work=ours.work / theirs.work - 1,
            ram=ours.ram - theirs.ram,
            flash=ours.flash - theirs.flash,
            instructions=ours.instructions / theirs.instructions - 1,
            target=costs.stand_in(trials.trial.target),
            images=len(candidate.effects),
            db_margin=sure,
            helps=sure is not None and db > sure,
        )
        results.append((lever, candidate))
    return sorted(results, key=lambda pair: (not pair[0].helps, -pair[0].db))


def _more(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else gain(a, b)


def chosen(choices: Choices, proposal: Proposal, grid: Sequence[str] = ()) -> Choices:
    """The choices, and this one in place of what they say of its name. grid: the tensors whose width is its own."""
    tables = {"tensors": dict(choices.tensors), "ops": dict(choices.ops)}
    for name in grid if "bits" in proposal.said else ():
        tables["tensors"][name] = {
            key: choice for key, choice in tables["tensors"].get(name, {}).items() if key != "bits"
        }
    tables[proposal.table][proposal.name] = {key: Said(value, PLACE) for key, value in proposal.said.items()}
    return Choices(**tables)
