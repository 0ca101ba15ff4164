"""Gives 16 bits unasked, with `--bits 8`, to tensors that make much of the noise and cost nearly nothing.

1. Of the grids that leave the RAM that the widths need as it is, and add at most WORK to the work, those with at least
   SHARE of the noise at the heads (`calib.noise_budget`), the largest share first, as long as that is true of all
   together. Where `costly_widths` took 16 bits away, they may add what its limit of the instructions leaves instead.
2. The model is converted with them and without. They stay wide where that brings GAIN on images that nothing was fitted
   to, the plan takes no more RAM, and work and file grow by no more than WORK and FLASH. Where it costs more, half of
   them are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial

from nmpconv.base.workers import Workers
from nmpconv.calib.noise_budget import budget
from nmpconv.conversion.candidates import AssumedWidths, Candidate, CandidateEvaluator, narrow, widened, work, work_of
from nmpconv.conversion.costly_widths import InstructionLimit
from nmpconv.conversion.quantizer import Fitter, Prepared
from nmpconv.conversion.validation import Considered, Score
from nmpconv.passes.memory import plan_memory, wider_tensors

SHARE = 0.1  # of the noise at the heads
WORK, FLASH = 0.02, 0.1  # parts of what the model takes without
GAIN = 1.0  # dB
CHECKED_MOST = 500  # grids, up to which the cost of each is looked at; of more only that of the noisy ones
PLACE = "what is nearly free"


def run(
    trials: CandidateEvaluator,
    prepared: Prepared,
    most: float,
    limit: InstructionLimit | None,
    workers: Workers | None = None,
) -> tuple[Candidate, Candidate, Score] | None:
    """The model without wide tensors and with those that are worth it, and the score of these; None where none is.
    prepared: the float graph with its grids. most: what may be added to the work, a part of it. limit: of the
    instructions. workers: what converts them."""
    is_cheap, choices = _costs(trials.fitter, most), trials.fitter.choices

    def is_allowed(*names: str) -> bool:
        wider = trials.fitter.with_choices(widened(choices, names, PLACE))
        return is_cheap(*names) and (limit is None or limit.allows(wider))

    loud = _loud(trials, prepared, is_cheap)
    wide = _together(loud, is_cheap)
    if wide and not is_allowed(*wide):  # instructions are counted in a conversion: mostly one tells it of all
        wide = _together(loud, is_allowed)
    if not wide:
        return None
    halves = [tuple(wide[: len(wide) >> i]) for i in range(len(wide).bit_length())]
    asked = [(choices, ()), *((widened(choices, half, PLACE), half) for half in halves)]
    with closing(trials.all(asked, workers)) as results:
        base = next(results)
        if base is None:  # on other images it may fit
            return None
        for candidate in results:
            if candidate is not None and _within(base.figures, candidate.figures, most):
                gain = candidate.figures.db - base.figures.db
                result = base.figures, candidate.figures, candidate.score
                return result if gain >= GAIN else None  # not where both are exact
    return None


def note(base: Candidate, wide: Candidate) -> str:
    """Describes the choice, for the report."""
    gain, more = wide.db - base.db, 100 * (wide.work / base.work - 1)
    cost = f"{gain:+.1f} dB on held-out images, {more:+.1f} % work, no more RAM"
    return Considered(f"16 bits for {', '.join(wide.wide)}: {cost}")


def _loud(trials: CandidateEvaluator, prepared: Prepared, is_cheap: Callable[..., bool]) -> list[str]:
    """The cheap grids with the largest shares of the noise, by a tensor of the float graph."""
    graph, choices = trials.fitter.graph, trials.fitter.choices
    groups = [*narrow(graph, choices, prepared.ranged).values()]
    session = partial(prepared.switched, trials.heads)
    noise = partial(budget, prepared.ranged, groups, trials.heads, trials.trial.fitted, session=session)
    if len(groups) > CHECKED_MOST:
        return [name for name, share in noise(least=SHARE).shares.items() if share >= SHARE and is_cheap(name)]
    asked = [group[0] for group in groups if is_cheap(group[0])]
    shares = noise(asked=asked, least=SHARE).shares if asked else {}
    return [name for name, share in shares.items() if share >= SHARE]


def _together(names: Sequence[str], is_allowed: Callable[..., bool]) -> list[str]:
    """Returns the names that are allowed with all that are before them."""
    wide: list[str] = []
    for name in names:
        wide += [name] if is_allowed(*wide, name) else []
    return wide


def _costs(fitter: Fitter, most: float) -> Callable[..., bool]:
    """Returns a check whether grids cost next to nothing together, by their widths alone. most: of work, as in
    `run`.

    Only nodes at these grids are looked at again: other nodes cost what they cost without.
    """
    widths = AssumedWidths(fitter)
    plain = widths.graph(())
    ram, whole = plan_memory.lower_bound(plain), work(plain)
    bounds = wider_tensors.Bounds(plain)
    at: dict[str, list[int]] = {}
    for i, node in enumerate(plain.nodes):
        for name in {*node.inputs, *node.outputs}:
            at.setdefault(name, []).append(i)

    def is_cheap(*names: str) -> bool:
        wide = widths.graph(names)
        changed = {i for name in widths.widened(names) for i in at.get(name, ())}
        more = sum(work_of(wide, wide.nodes[i]) - work_of(plain, wide.nodes[i]) for i in changed)
        return more <= most * whole and bounds.fits(wide, changed, ram)

    return is_cheap


def _within(base: Candidate, wide: Candidate, most: float) -> bool:
    return wide.ram <= base.ram and wide.work <= (1 + most) * base.work and wide.flash <= (1 + FLASH) * base.flash
