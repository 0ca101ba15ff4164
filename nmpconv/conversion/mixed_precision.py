"""Chooses the tensors that get 16 bits, for a goal and within budgets: `--bits auto`.

1. The model is converted as with `--bits 8`. Where that meets the goal, nothing gets wider.
2. The shares of the noise at the heads (`calib.noise_budget`) over the costs order the grids; the best ones get 16
   bits, as many as the goal is expected to need, or as make half of the noise that is left: a greedy knapsack. Shares
   are measured again after each step, since they do not add up where a net amplifies noise.
3. Each candidate is fitted, planned, written, and run by the C interpreter on images that nothing was fitted to. That
   decides; shares only propose. What breaks a budget is taken back.
4. Once the goal is met, wide tensors that it does not need become narrow again, the least worth first.

What candidates cost is told by `nmpconv.conversion.candidates`. The order is deterministic, and what was measured is
kept in a journal, so a killed search goes on where it was. Workers measure candidates before they are asked for, and
change no result.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from threading import get_ident
from typing import Any, NamedTuple

from threadpoolctl import threadpool_limits

from nmpconv.base import units
from nmpconv.base.files import read_text, write_file
from nmpconv.base.progress import Progress
from nmpconv.base.workers import Here, Workers
from nmpconv.calib.noise_budget import budget as noise_budget
from nmpconv.conversion.candidates import (
    AssumedWidths,
    Candidate,
    CandidateEvaluator,
    ValidationSet,
    narrow,
    widened,
    work,
)
from nmpconv.conversion.quantizer import Fitter, Recipe
from nmpconv.errors import InputError, UsageError, refusal
from nmpconv.evaluation.task_metrics import AP, AP50, Measure, results
from nmpconv.ir import Graph
from nmpconv.passes.memory import plan_memory
from nmpconv.runtime.targets import MICROCONTROLLERS

MEASURED = {"psnr": ("psnr", "psnr"), "miou": ("miou", "miou"), "ap50": (AP, f"agreement {AP50}")}  # goal: a metric of
# `nmpconv.evaluation.task_metrics` against the float model, and the name of its result
GOALS = ("sqnr", "agreement", "top1-drop", *MEASURED)
BUDGETS = ("instructions", "ram", "flash")
CANDIDATES_MOST = 32  # that are fitted
MACS_MOST = 2 * 10**11  # of measuring shares once
LEAST_SHARE = 0.01  # of the noise, below which a tensor is no candidate
LEAST_GAIN = 0.5  # dB that a step has to bring where there is no goal
PLACE = "--bits auto"


@dataclass(frozen=True)
class Goal:
    """kind: of GOALS. value: the least of it in dB or %; of top1-drop the most, in points."""

    kind: str
    value: float

    @staticmethod
    def of(text: str) -> Goal:
        """Reads "sqnr=30" and so on; UsageError for anything else."""
        match = re.fullmatch(rf"({'|'.join(GOALS)})=(\d+(?:\.\d+)?)", text.lower())
        if match is None:
            raise refusal(text, "sqnr=30, agreement=99, top1-drop=0.5, psnr=40, miou=95 or ap50=95", "--goal")
        return Goal(match[1], float(match[2]))

    def met(self, candidate: Candidate) -> bool:
        rates = {"sqnr": candidate.db, "agreement": candidate.agreement, "top1-drop": candidate.top1_drop}
        figure = rates.get(self.kind, candidate.metric)
        if figure is None:
            raise UsageError(f"the model's first output is no vector of scores: no {self.kind}", hint="--goal sqnr=30")
        return figure <= self.value if self.kind == "top1-drop" else figure >= self.value


@dataclass(frozen=True)
class CostLimit:
    """The most of a cost; relative: in parts of what the model takes at 8 bits, as 1.1."""

    most: float
    relative: bool

    @staticmethod
    def of(text: str) -> tuple[str, CostLimit]:
        """The name of the cost and the limit, of "ram=64k", "instructions=+10%" and so on."""
        name, equals, most = text.strip().lower().partition("=")
        if name not in BUDGETS or not equals:
            raise refusal(text, "instructions=+10%, ram=64k, ram=+20%, flash=200k and so on", "--budget")
        if more := re.fullmatch(r"\+(\d+(?:\.\d+)?)%", most):
            return name, CostLimit(1 + float(more[1]) / 100, True)
        kind = units.COUNT if name == "instructions" else units.BYTES
        try:
            return name, CostLimit(float(units.whole(most, kind, low=0)), False)
        except UsageError as error:
            raise refusal(text, f"{error.allowed}, or +N% more than at 8 bits", "--budget") from None


class Objective(NamedTuple):
    """Objective of a search: goal to reach, and most of each cost by its name."""

    goal: Goal | None
    limits: Mapping[str, CostLimit]


def objective(goal: str | None, budget: Sequence[str], target: str | None) -> Objective:
    """Reads --goal and --budget. target: machine of the conversion. Raises UsageError."""
    if goal is None and not budget:
        raise UsageError("--bits auto needs a goal or a budget", hint="--goal sqnr=30, --budget ram=+20%")
    limits = [CostLimit.of(text) for text in budget]
    if twice := [name for i, (name, _) in enumerate(limits) if name in dict(limits[:i])]:
        raise UsageError(f"two budgets of {twice[0]}", where="--budget")
    if "instructions" in dict(limits) and target not in MICROCONTROLLERS:
        hint = f"--target {', '.join(MICROCONTROLLERS)}"
        raise UsageError("a budget of instructions needs a microcontroller", where="--budget", hint=hint)
    return Objective(None if goal is None else Goal.of(goal), dict(limits))


class Journal:
    """Measurements in a file that is written whole after each candidate. None: nowhere.

    of: what the measurements belong to; a journal of something else is begun anew.
    """

    def __init__(self, path: Path | None, of: str) -> None:
        self._path, self._of = path, of
        self._found: dict[str, dict] = {}
        if path is not None and path.exists():
            try:
                self._found = _kept(json.loads(read_text(path, "journal")), of)
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                raise InputError("not a journal of --bits auto", where=str(path), hint="remove it") from None

    def get(self, wide: Sequence[str]) -> dict | None:
        return self._found.get(json.dumps(wide))

    def put(self, wide: Sequence[str], measured: dict) -> None:
        self._found[json.dumps(wide)] = measured
        if self._path is not None:
            write_file(self._path, json.dumps({"of": self._of, "measured": self._found}, indent=1).encode())


def _kept(journal: Mapping[str, Any], of: str) -> dict[str, dict]:
    """Returns the measurements of a journal; ValueError and its like for what is no journal."""
    if journal["of"] != of:
        return {}
    for row in journal["measured"].values():
        candidate = Candidate(**row["candidate"])
        numbers = [
            candidate.db,
            candidate.ram,
            candidate.flash,
            candidate.work,
            candidate.instructions,
            *row["shares"].values(),
        ]
        rates = [
            rate
            for rate in (candidate.agreement, candidate.top1_drop, candidate.metric, candidate.db_margin)
            if rate is not None
        ]
        if not all(isinstance(x, int | float) for x in (*numbers, *rates)):
            raise ValueError(row)
    return dict(journal["measured"])


@dataclass
class Search:
    """One search. choices: what a recipe says already; what it says of bits stays."""

    fitter: Fitter
    recipe: Recipe
    trial: ValidationSet
    goal: Goal | None
    limits: Mapping[str, CostLimit]
    journal: Journal
    progress: Progress
    workers: Workers = field(default_factory=Here)
    _measured: dict[tuple[str, ...], Candidate] = field(default_factory=dict)
    _shares: dict[tuple[str, ...], Mapping[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._widths = AssumedWidths(self.fitter)
        self._told = Told(self.fitter, self.recipe, self.trial, self.goal)
        self._trials = _trials(self._told, get_ident())
        float_top1, classes = self._trials.float_top1, self._trials.classes
        needs_labels = self.goal is not None and self.goal.kind == "top1-drop"
        if needs_labels and float_top1 is None:
            raise UsageError("top1-drop needs labels", where="--goal", hint="a --data CSV with file,label, or folders")
        if needs_labels and float_top1 is not None and float_top1 < 110 / classes:
            message = f"the labels do not fit: the float model is right on {float_top1:.1f} % of the images"
            raise UsageError(message, where="--goal")

    def run(self) -> tuple[Candidate, list[Candidate]]:
        """The candidate that is taken, and the front: what no other one betters in RAM, instructions and SQNR."""
        try:
            return self._run()
        finally:
            _trials.cache_clear()

    def _run(self) -> tuple[Candidate, list[Candidate]]:
        best = base = self._candidate(())
        most = {name: limit.most * (base.cost(name) if limit.relative else 1) for name, limit in self.limits.items()}
        if over := [name for name in most if base.cost(name) > most[name]]:
            taken, allowed = base.cost(over[0]), most[over[0]]
            raise UsageError(f"{over[0]}: {taken} at 8 bits already, {allowed:.0f} allowed", where="--budget")
        banned: set[str] = set()
        while not self._met(best) and len(self._measured) < CANDIDATES_MOST:
            added = self._step(best, banned)
            if not added:
                break
            attempt = self._affordable(best, added, most)
            if attempt is None:
                banned.add(added[0])
            elif attempt.db <= best.db + (LEAST_GAIN if self.goal is None else 0.0):
                banned.update(attempt.wide)
            else:
                best = attempt
        if self._met(best):
            best = self._pruned(best)
        tried = self._measured.values()
        front = [replace(o, taken=o is best) for o in tried if o is best or not any(_betters(p, o) for p in tried)]
        return best, sorted(front, key=lambda candidate: (candidate.instructions, candidate.ram, candidate.db))

    def _affordable(self, best: Candidate, added: Sequence[str], most: Mapping[str, float]) -> Candidate | None:
        """The candidate with as many of these as the budgets allow; None: not even the first."""
        if most:
            halves = [added[: len(added) >> i] for i in range(len(added).bit_length())]
            self._ahead([(*best.wide, *half) for half in halves], shares=True)
        while added:
            attempt = self._candidate((*best.wide, *added))
            if all(attempt.cost(name) <= most[name] for name in most):
                return attempt
            added = added[: len(added) // 2]
        return None

    def warnings(self, taken: Candidate) -> tuple[str, ...]:
        """Warns that the goal is not reached, and says why."""
        if self.goal is None or self._met(taken):
            return ()
        why = (
            "within the budget" if self.limits else f"by tensors that make {100 * LEAST_SHARE:.0f} % of the noise each"
        )
        return (f"the goal {self.goal.kind}={self.goal.value:g} is not reached {why}",)

    def _met(self, candidate: Candidate) -> bool:
        return self.goal is not None and self.goal.met(candidate)

    def _pruned(self, best: Candidate) -> Candidate:
        """Case 4: in parts, of half of them first and of one at last."""
        shares = self._shares[()]
        order = sorted(best.wide, key=lambda name: (shares.get(name, 0.0), name))
        size = len(order) // 2
        while size:
            at = 0
            while at < len(order) and len(self._measured) < CANDIDATES_MOST:
                rest = order[:at] + order[at + size :]
                ends = range(at, len(order), size)
                self._ahead([(*order[:i], *order[i + size :]) for i in ends], shares=False)
                less = self._candidate(tuple(rest), shares=False)
                if self._met(less):
                    best, order = less, rest
                else:
                    at += size
            size //= 2
        return best

    def _step(self, best: Candidate, banned: set[str]) -> tuple[str, ...]:
        """Case 2: the grids that get 16 bits next."""
        shares = {n: s for n, s in self._shares[best.wide].items() if n not in banned and s >= LEAST_SHARE}
        costs = {name: self._cost(best.wide, name) for name in shares}
        order = sorted(shares, key=lambda name: (-shares[name] / costs[name], name))
        left = sum(self._shares[best.wide].values())
        wanted = left / 2
        if self.goal is not None and self.goal.kind == "sqnr":
            wanted = left * (1 - 10 ** ((best.db - self.goal.value) / 10))
        chosen: list[str] = []
        for name in order:
            if chosen and sum(shares[n] for n in chosen) >= wanted:
                break
            chosen.append(name)
        return tuple(chosen)

    def _cost(self, wide: Sequence[str], name: str) -> float:
        """Cost of a grid in RAM and in work, in parts of both; only to order grids by."""
        before, after = (self._widths.graph(names) for names in (wide, (*wide, name)))
        ram, more = plan_memory.lower_bound(before), plan_memory.lower_bound(after)
        return 1e-3 + (more - ram) / ram + (work(after) - work(before)) / work(before)

    def _candidate(self, wide: tuple[str, ...], *, shares: bool = True) -> Candidate:
        """Case 3, or what the journal has of it. shares: measure them, too, for the next step."""
        wide = self._sorted(wide)
        if wide not in self._measured:
            row = self.journal.get(wide)
            if row is None:
                row = self._measure(wide, shares)
                self.journal.put(wide, row)
            self._measured[wide] = Candidate(**{**row["candidate"], "wide": wide})
            self._shares[wide] = row["shares"]
            self.progress("widths", len(self._measured), CANDIDATES_MOST)
        return self._measured[wide]

    def _ahead(self, wides: Sequence[tuple[str, ...]], *, shares: bool) -> None:
        """Measures as many of these as there are workers: the first one is asked for next, the others if it will not
        do. What is never asked for counts for nothing."""
        if self.workers.count == 1:
            return
        new = [wide for wide in map(self._sorted, wides) if wide not in self._measured and not self.journal.get(wide)]
        pieces = [(wide, shares) for wide in dict.fromkeys(new[: self.workers.count])]
        for (wide, _), row in zip(pieces, self.workers.map(measured, self._told, pieces), strict=True):
            self.journal.put(wide, row)

    def _sorted(self, wide: Sequence[str]) -> tuple[str, ...]:
        order = {value.name: i for i, value in enumerate(self.fitter.graph.activations())}
        return tuple(sorted(wide, key=order.__getitem__))

    def _measure(self, wide: tuple[str, ...], shares: bool) -> dict:
        return measured(self._told, (wide, shares))


@dataclass(frozen=True, eq=False)
class Told:
    """All that a candidate's measurement needs."""

    fitter: Fitter
    recipe: Recipe
    trial: ValidationSet
    goal: Goal | None


def measured(job: Told, piece: tuple[tuple[str, ...], bool]) -> dict:
    """Measures a candidate for the journal: the tensors that get 16 bits; and whether shares are wanted."""
    wide, shares = piece
    trials = _trials(job, get_ident())
    with threadpool_limits(1):  # as a conversion has it
        candidate = trials.convert(widened(job.fitter.choices, wide, PLACE), wide)
        return {"candidate": asdict(candidate.figures), "shares": _noise(trials, candidate.ranged) if shares else {}}


@lru_cache(maxsize=1)
def _trials(job: Told, thread: int) -> CandidateEvaluator:
    """thread: a net is one's."""
    return CandidateEvaluator(
        job.fitter, job.recipe, job.trial, None if job.goal is None else partial(_judged, job.goal)
    )


def _noise(trials: CandidateEvaluator, ranged: Graph) -> dict[str, float]:
    """Shares of the grids that could get 16 bits, by a name of the float graph."""
    graph, choices = trials.fitter.graph, trials.fitter.choices
    groups = [*narrow(graph, choices, ranged).values()]
    noise = noise_budget(ranged, groups, trials.heads, trials.trial.fitted, MACS_MOST)
    if noise.skipped:
        raise UsageError(f"--bits auto: {noise.skipped}", hint="widths by name: --recipe")
    return dict(noise.shares)


def _judged(goal: Goal, measure: Measure) -> float:
    text, name = MEASURED[goal.kind]
    value = round(results(measure, text)[name], 3)
    if math.isnan(value):
        raise UsageError("the float model finds no box on the held-out images to compare with", where="--goal")
    return value


def _betters(a: Candidate, b: Candidate) -> bool:
    """Checks that a is at least as good in everything, and better in something."""
    ours, theirs = ((candidate.ram, candidate.instructions, -candidate.db) for candidate in (a, b))
    return all(x <= y for x, y in zip(ours, theirs, strict=True)) and ours != theirs
