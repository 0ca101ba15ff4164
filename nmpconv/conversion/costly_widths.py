"""Tensors that get no 16 bits unasked, as these would cost too much on some microcontroller.

1. With the default widths a model takes at most MOST times the instructions of `--strict` on each target, as
   `runtime.costs` estimates them, or LITTLE more, which no user notices. Most models do: a look at the work tells it of
   them.
2. Of others the grids that `--strict` makes int8 are put in order: first inputs, as samples that calibration did not
   see may reach further; then the `loud` ones at 8 bits, by their shares of the noise divided by the work that 16 bits
   add. Without samples they are all of these, by the work alone.
3. As many of them stay int16 as fit, in this order. One that does not fit is left out, and the next ones that add less
   work are looked at, ROUNDS times. What that leaves of the instructions is for `cheap_promotions`. How many fit is
   guessed from the work, since an estimate of instructions takes as long as a conversion without search.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, count
from math import inf
from typing import NamedTuple

from nmpconv.calib.noise_budget import budget
from nmpconv.calib.observers import OutOfRange
from nmpconv.conversion.candidates import AssumedWidths, work, work_of
from nmpconv.conversion.quantizer import UNCHECKED, Fitter, Prepared
from nmpconv.file.writer import to_bytes
from nmpconv.ir import Graph
from nmpconv.passes.quantize.heads import heads
from nmpconv.passes.quantize.shared_grids import grid_groups
from nmpconv.passes.quantize.widths import activation_bits, too_fine
from nmpconv.runtime import costs
from nmpconv.runtime.targets import MICROCONTROLLERS

MOST = 1.28  # times the instructions of --strict: 1.3 less the error of a quotient of estimates
LITTLE = 5000  # instructions: 0.1 ms at 48 MHz
WORK = 1.05  # times the work of --strict, up to which no target's instructions are looked at
SHARE = 0.1  # of the noise at the heads
NAMED = 3  # grids that a note names
ROUNDS = 4
BISECT_EVERY = 3  # guesses: one of so many halves what is left, lest all of them be a little off


@dataclass(frozen=True)
class InstructionLimit:
    """Case 1. lean: the fitter with the widths of `--strict`. finish: the planned graph of an integer one."""

    lean: Fitter
    finish: Callable[[Graph], Graph]
    targets: Sequence[str]

    def allows(self, fitter: Fitter) -> bool:
        """Checks another fitter of the same model."""
        return self.load(fitter) <= 1

    def load(self, fitter: Fitter) -> float:
        """Instructions of another fitter of the same model, by those that are allowed, of the worst target."""
        return self._load(self._instructions(fitter, _prepared(fitter)))

    def _load(self, totals: Sequence[int]) -> float:
        return max(total / most for total, most in zip(totals, self._most, strict=True))

    @cached_property
    def widths(self) -> AssumedWidths:
        return AssumedWidths(self.lean)

    @cached_property
    def least(self) -> Prepared:
        """The lean float graph with its grids, fitted to nothing."""
        return _prepared(self.lean)

    @property
    def least_load(self) -> float:
        """The load of the lean fitter."""
        return self._load(self._lean_totals or [0] * len(self.targets))

    @cached_property
    def _lean_totals(self) -> list[int]:
        """Instructions of each target; none where 8 bits do not hold what was seen."""
        try:
            return self._instructions(self.lean, self.least)
        except OutOfRange:
            return []

    @cached_property
    def _most(self) -> list[float]:
        return [max(MOST * total, total + LITTLE) for total in self._lean_totals] or [inf] * len(self.targets)

    def _instructions(self, fitter: Fitter, prepared: Prepared) -> list[int]:
        """Estimates of each target; the integers are fitted to nothing."""
        planned = self.finish(fitter.without_images().quantize(prepared, False, UNCHECKED))
        return costs.totals(to_bytes(planned, {}), planned, self.targets)


@dataclass(frozen=True)
class Affordable:
    """fitter: with the int16 tensors that case 1 allows. note: those that it has no longer; "" where it is as it was.
    limit: None where nothing limits it."""

    fitter: Fitter
    note: str = ""
    limit: InstructionLimit | None = None


def run(fitter: Fitter, finish: Callable[[Graph], Graph], target: str | None) -> Affordable:
    """finish: see `InstructionLimit`. target: the only one that counts, where that is a microcontroller."""
    groups = _unasked(fitter)
    lean = _narrowed(fitter, groups)
    limit = InstructionLimit(lean, finish, (target,) if target in MICROCONTROLLERS else MICROCONTROLLERS)
    if not groups or work(AssumedWidths(fitter).graph(())) <= WORK * work(limit.widths.graph(())):
        return Affordable(fitter, "", limit)
    whole = limit.load(fitter)
    if whole <= 1:
        return Affordable(fitter, "", limit)

    def left_out(wide: Sequence[_WideGrid]) -> list[list[str]]:
        first = {grid.names[0] for grid in wide}
        return [group for group in groups if group[0] not in first]

    def load(wide: Sequence[_WideGrid]) -> float:
        narrow = left_out(wide)
        return limit.load(_narrowed(fitter, narrow)) if narrow else whole

    narrow = left_out(_affordable(_in_order(limit, groups), load, limit.least_load))
    more = f" and {len(narrow) - NAMED} more" if len(narrow) > NAMED else ""
    names = ", ".join(group[0] for group in narrow[:NAMED]) + more
    note = f"16 bits for {names}: a microcontroller would take over {MOST:g} times the instructions of --strict"
    return Affordable(_narrowed(fitter, narrow), note, limit)


def _unasked(fitter: Fitter) -> list[list[str]]:
    """Grids that have 16 bits and 8 with `--strict`, whose values 8 bits hold, and that no recipe names."""
    strict, named = activation_bits(fitter.graph, "8", "strict"), fitter.choices.tensors
    fine = too_fine(fitter.graph)
    return [
        list(group)
        for group in grid_groups(fitter.graph)
        if any(fitter.bits[name] > strict[name] for name in group)
        and fine.isdisjoint(group)
        and not any("bits" in named.get(name, {}) for name in group)
    ]


def _narrowed(fitter: Fitter, groups: Sequence[Sequence[str]]) -> Fitter:
    return fitter.with_bits({**fitter.bits, **{name: 8 for group in groups for name in group}})


def _prepared(fitter: Fitter) -> Prepared:
    """The float graph with its grids, fitted to nothing."""
    return fitter.without_images().prepare("none", [], UNCHECKED)


class _WideGrid(NamedTuple):
    """Grid that may have 16 bits. work: what they add to that of the nodes beside it."""

    names: list[str]
    work: int


def _in_order(limit: InstructionLimit, groups: Sequence[list[str]]) -> list[_WideGrid]:
    """Case 2."""
    lean = limit.lean
    inputs = [group for group in groups if not set(lean.graph.inputs).isdisjoint(group)]
    others = [group for group in groups if group not in inputs]
    shares = {group[0]: 1.0 for group in others}
    if len(lean.images):
        noise = budget(limit.least.ranged, groups, heads(lean.graph), lean.images, asked=list(shares), least=SHARE**2)
        shares = loud(noise.shares)

    widths = limit.widths
    plain = widths.graph(())
    makers, readers = plain.producers(), plain.consumers()

    def with_work(group: list[str]) -> _WideGrid:
        wide, names = widths.graph(group), widths.widened(group)
        beside = [makers[name] for name in names if name in makers] + [node for name in names for node in readers[name]]
        nodes = {node.outputs[0]: node for node in beside}.values()
        return _WideGrid(group, sum(work_of(wide, node) - work_of(plain, node) for node in nodes))

    def price(grid: _WideGrid) -> float:
        return grid.work / shares.get(grid.names[0], 1.0)

    noisy = [group for group in others if group[0] in shares]
    return [*sorted(map(with_work, inputs), key=price), *sorted(map(with_work, noisy), key=price)]


def loud(shares: Mapping[str, float], noise: float = 1.0) -> dict[str, float]:
    """Selects shares of at least SHARE of the noise; where they leave less than SHARE of it, those of at least SHARE of
    what is left, too, which they drown out."""
    most = {name: share for name, share in shares.items() if share >= SHARE * noise}
    rest = {name: share for name, share in shares.items() if name not in most}
    left = sum(rest.values())
    return most | loud(rest, left) if most and 0 < left < SHARE * noise else most


def _affordable(
    order: Sequence[_WideGrid], load: Callable[[Sequence[_WideGrid]], float], least: float
) -> list[_WideGrid]:
    """Case 3. load: of these grids, at most 1 where they fit. least: of none."""
    wide, rest = list[_WideGrid](), list(order)
    for _ in range(ROUNDS):
        if not rest:
            break
        fit, least = _fitting(wide, rest, load, least)
        wide += rest[:fit]
        rest = [grid for grid in rest[fit + 1 :] if grid.work < rest[fit].work]
    return wide


def _fitting(
    before: Sequence[_WideGrid], grids: Sequence[_WideGrid], load: Callable[[Sequence[_WideGrid]], float], least: float
) -> tuple[int, float]:
    """The number of grids, from the first on, that fit beside those before, and the load with them. least: the load
    without them."""
    low, high, most = 0, len(grids), load([*before, *grids])
    if most <= 1:
        return high, most
    works = [0, *accumulate(grid.work for grid in grids)]
    for guess in count(1):
        if high - low == 1:
            break
        middle = (low + high) // 2
        if guess % BISECT_EVERY:
            wanted = works[low] + (works[high] - works[low]) * (1 - least) / (most - least)
            middle = min(max(bisect_right(works, wanted) - 1, low + 1), high - 1)
        reached = load([*before, *grids[:middle]])
        if reached <= 1:
            low, least = middle, reached
        else:
            high, most = middle, reached
    return low, least
