"""Tensors that get no 16 bits unasked, as these would cost too much on some microcontroller.

1. With the default widths a model takes at most MOST times the instructions of `--strict` on each target, as
   `runtime.costs` estimates them, or LITTLE more, which no user notices. Most models do: a look at the work tells it of
   them.
2. Of others the grids that `--strict` makes int8 are put in order: first inputs, as samples that calibration did not
   see may reach further; then the `loud` ones at 8 bits, by their shares of the noise divided by the work that 16 bits
   add. Without samples they are all of these, by the work alone.
3. As many of them stay int16 as fit, in this order. One that does not fit is left out, and the next ones are looked at,
   ROUNDS times. What that leaves of the instructions is for `cheap_promotions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

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


@dataclass(frozen=True)
class InstructionLimit:
    """Case 1. lean: the fitter with the widths of `--strict`. finish: the planned graph of an integer one."""

    lean: Fitter
    finish: Callable[[Graph], Graph]
    targets: Sequence[str]

    def allows(self, fitter: Fitter) -> bool:
        """Checks another fitter of the same model."""
        return all(n <= most for n, most in zip(self._instructions(fitter, _prepared(fitter)), self._most, strict=True))

    @cached_property
    def widths(self) -> AssumedWidths:
        return AssumedWidths(self.lean)

    @cached_property
    def least(self) -> Prepared:
        """The lean float graph with its grids, fitted to nothing."""
        return _prepared(self.lean)

    @cached_property
    def _most(self) -> list[float]:
        try:
            counts = self._instructions(self.lean, self.least)
        except OutOfRange:  # 8 bits do not hold what was seen
            return [inf] * len(self.targets)
        return [max(MOST * count, count + LITTLE) for count in counts]

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
    if (
        not groups
        or work(AssumedWidths(fitter).graph(())) <= WORK * work(limit.widths.graph(()))
        or limit.allows(fitter)
    ):
        return Affordable(fitter, "", limit)

    def fits(wide: Sequence[Sequence[str]]) -> bool:
        return limit.allows(_narrowed(fitter, [group for group in groups if group not in wide]))

    order = _in_order(limit, groups)
    wide = _affordable(order, fits, together=len(order) < len(groups))
    narrow = [group for group in groups if group not in wide]
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


def _in_order(limit: InstructionLimit, groups: Sequence[list[str]]) -> list[list[str]]:
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

    def price(group: Sequence[str]) -> float:
        """Work that the nodes beside the group have more of, for its share."""
        wide, names = widths.graph(group), widths.widened(group)
        beside = [makers[name] for name in names if name in makers] + [node for name in names for node in readers[name]]
        nodes = {node.outputs[0]: node for node in beside}.values()
        return sum(work_of(wide, node) - work_of(plain, node) for node in nodes) / shares.get(group[0], 1.0)

    noisy = [group for group in others if group[0] in shares]
    return [*sorted(inputs, key=price), *sorted(noisy, key=price)]


def loud(shares: Mapping[str, float], noise: float = 1.0) -> dict[str, float]:
    """Selects shares of at least SHARE of the noise; where they leave less than SHARE of it, those of at least SHARE of
    what is left, too, which they drown out."""
    most = {name: share for name, share in shares.items() if share >= SHARE * noise}
    rest = {name: share for name, share in shares.items() if name not in most}
    left = sum(rest.values())
    return most | loud(rest, left) if most and 0 < left < SHARE * noise else most


def _affordable(
    order: Sequence[list[str]], fits: Callable[[Sequence[list[str]]], bool], together: bool
) -> list[list[str]]:
    """Case 3. order: of the grids. together: False where it is known that they do not fit all together."""
    wide, rest = list[list[str]](), list(order)
    for _ in range(ROUNDS):
        if not rest or (together and fits([*wide, *rest])):
            return [*wide, *rest]
        low, high = 0, len(rest)  # so many fit; so many do not
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits([*wide, *rest[:middle]]) else (low, middle)
        wide, rest, together = [*wide, *rest[:low]], rest[low + 1 :], True
    return wide
