"""Drawing, checking, shrinking and grouping, until the time is over."""

from __future__ import annotations

import math
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from fuzz_models.case import Case, save
from fuzz_models.checks import STAGES, check
from fuzz_models.draw import draw
from fuzz_models.limits import Crash, Task, limited, side_by_side
from fuzz_models.net import Reject
from fuzz_models.outcome import Outcome
from fuzz_models.shrink import shrink

SHARE_16, SHARE_8 = 0.6, 0.15
AGAIN = 0.1  # share of what looks like a known group that is shrunk all the same
PLACE = 3  # groups of one place of an exception, after which others there are like them
SHRINK_SECONDS = 60.0

Check = Callable[[Case, Path, tuple[str, ...]], Outcome]


@dataclass
class Group:
    """Failures of one kind that shrink to the same operators. seeds: those that were shrunk; like: those that have
    all these operators and fail in the same way."""

    kind: str
    operators: tuple[str, ...]
    case: Case
    text: str
    seeds: list[int] = field(default_factory=list)
    like: int = 0


@dataclass
class Hunt:
    """Findings so far. tight: (dB, seed) of graphs that 16 bits are too few for, tensor by tensor."""

    graphs: int = 0
    invalid: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    tight: list[tuple[float, int]] = field(default_factory=list)
    groups: dict[tuple[str, tuple[str, ...]], Group] = field(default_factory=dict)
    seconds: float = 0.0

    def known(self, kind: str, operators: Iterable[str]) -> Group | None:
        """A group of this kind whose operators are among these."""
        same = [group for group in self.groups.values() if cause(group.kind) == cause(kind)]
        # The place of an exception says nearly all.
        placed = " in " in kind and len(same) >= PLACE
        fits = same if placed else [group for group in same if set(operators).issuperset(group.operators)]
        return fits[0] if fits else None

    def join(self, seed: int, kind: str, case: Case, text: str) -> Group | None:
        """The group of a shrunk failure where it is new; else it joins the one that there is."""
        operators = tuple(sorted({node.kind for node in case.nodes}))
        if group := self.groups.get((cause(kind), operators)):
            group.seeds.append(seed)
            return None
        group = self.groups[cause(kind), operators] = Group(kind, operators, case, text, [seed])
        return group

    def summary(self) -> str:
        rate = self.graphs / max(self.seconds, 1e-9) * 3600
        lines = [
            f"{self.graphs} graphs in {self.seconds:.0f} s, {rate:.0f} an hour; "
            f"{sum(self.refused.values())} refused, {sum(self.invalid.values())} not run by onnxruntime, "
            f"{len(self.groups)} groups of failures"
        ]
        lines += [f"  refused {count} times: {reason}" for reason, count in self.refused.most_common()]
        lines += [f"  not run {count} times: {why}" for why, count in self.invalid.most_common(5)]
        if self.tight:
            worst = ", ".join(f"{db:.1f} dB (seed {seed})" for db, seed in sorted(self.tight)[:5])
            lines.append(f"  16 bits are too few for inner tensors of {len(self.tight)} graphs: {worst}")
        for group in sorted(self.groups.values(), key=lambda g: (g.kind, g.operators)):
            lines.append(f"\n{group.kind}; {' '.join(group.operators)}; {len(group.seeds) + group.like} times")
            lines += [f"  seeds {' '.join(map(str, group.seeds[:5]))}: {group.text}", str(group.case)]
        return "\n".join(lines)


def cause(kind: str) -> str:
    """The kind without the width, which seldom matters where something is raised."""
    return kind.partition(": ")[2] if " in " in kind else kind


def stages_of(seed: int) -> tuple[str, ...]:
    """Stages that the graph of this seed goes through: a share at 16 bits, a smaller one at 8."""
    dice = random.Random(f"stages {seed}")
    sampled = [width for width, share in (("16", SHARE_16), ("8", SHARE_8)) if dice.random() < share]
    return ("broken", "float", "plan", *sampled)


def stages_for(kind: str) -> tuple[str, ...]:
    """Those that a kind of failure needs."""
    stage = kind.split()[0].rstrip(":,")
    if stage in ("16", "8"):
        return ("float", stage) if "16 bits:" in kind and " in " not in kind else (stage,)
    alone = {"broken": ("broken",), "float": ("float",), "import": ("float",), "plan": ("plan",)}
    return alone.get(stage, STAGES)


def outcome_of(result: Any) -> Outcome:
    return Outcome(failures={f"crash: {result.why}": result.why}) if isinstance(result, Crash) else result


def fails_with(kind: str, checked: Check = check) -> Callable[[Case], bool]:
    """Checks that a case fails in this way, in a process of its own."""
    stages = stages_for(kind)
    return lambda case: kind in outcome_of(limited(lambda folder: checked(case, folder, stages))).failures


def hunt(
    seeds: Iterator[int],
    seconds: float,
    jobs: int,
    folder: Path,
    say: Callable[[str], None],
    checked: Check = check,
) -> Hunt:
    """folder: where a file of each group goes. Stops taking seeds after ``seconds``, then shrinks what waits."""
    record, start = Hunt(), time.monotonic()
    waiting: deque[Task] = deque()

    def tasks() -> Iterator[Task]:
        """Shrinks what failed before the next graph is drawn."""
        for seed in seeds:
            while waiting:
                yield waiting.popleft()
            if time.monotonic() - start > seconds:
                return
            yield Task((seed, ""), partial(_examined, seed, checked))

    def take(seed: int, kind: str, result: Any) -> None:
        record.seconds = time.monotonic() - start
        if kind:
            if isinstance(result, Crash):  # of the shrinker, by a case that it made: as it was drawn, then
                result = limited(lambda _: (draw(seed), f"not shrunk: {result.why}"))
            if (group := record.join(seed, kind, *result)) is not None:
                save(folder / name_of(group), group.case, kind=kind, seed=str(seed), found=group.text)
                say(f"{kind}; {' '.join(group.operators)}; seed {seed}: {group.text}\n{group.case}")
            return
        operators, outcome = ((), outcome_of(result)) if isinstance(result, Crash) else result
        record.graphs += 1
        record.refused.update([outcome.refused] if outcome.refused else [])
        record.invalid.update([outcome.invalid] if outcome.invalid else [])
        record.tight += [(outcome.tight, seed)] if outcome.tight < math.inf else []
        for failure in outcome.failures:
            group = record.known(failure, operators)
            if group is not None and random.Random(f"again {seed} {failure}").random() > AGAIN:
                group.like += 1
            else:
                waiting.append(Task((seed, failure), partial(_shrunk, seed, failure, checked), 2 * SHRINK_SECONDS))

    for key, result in side_by_side(tasks(), jobs):
        take(*key, result)
    while waiting:
        for key, result in side_by_side([waiting.popleft()], 1):
            take(*key, result)
    return record


def _examined(seed: int, checked: Check, folder: Path) -> tuple[tuple[str, ...], Outcome]:
    """The operators of a graph, and what is found."""
    try:
        case = draw(seed)
    except Reject as error:
        return (), Outcome(invalid=str(error))
    return tuple({node.kind for node in case.nodes}), checked(case, folder, stages_of(seed))


def _shrunk(seed: int, kind: str, checked: Check, folder: Path) -> tuple[Case, str]:
    """The small case, and what is found there."""
    small = shrink(draw(seed), fails_with(kind, checked), SHRINK_SECONDS)
    outcome = outcome_of(limited(lambda inner: checked(small, inner, stages_for(kind))))
    return small, outcome.failures.get(kind, "not found again")


def name_of(group: Group) -> str:
    words = "".join(c if c.isalnum() else "-" for c in group.kind).strip("-")
    while "--" in words:
        words = words.replace("--", "-")
    return f"{words}-{'-'.join(group.operators)[:60]}-{group.seeds[0]}.onnx"
