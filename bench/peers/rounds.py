"""Measuring in interleaved rounds (A B C A B C ...), and what follows from the times. Knows no engine."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

OURS, DEFAULT = "nmpconv", "nmpconv-default"  # all int8 (or int16); widths as the converter chooses them

Batch = Callable[[int], tuple[float, float]]  # runs so many inferences; the seconds of all, and those of CPUs

SPREAD_MOST = 0.15  # of a row that nothing disturbed; see `Times.spread`
AGAIN = 2  # times that a disturbed row is measured once more


@dataclass(frozen=True)
class Times:
    """Seconds of one inference, one value a round: the mean of the round's calls. cpu: those of all threads' CPUs."""

    seconds: tuple[float, ...]
    cpu: tuple[float, ...]

    @property
    def best(self) -> float:
        return min(self.seconds)

    @property
    def best_cpu(self) -> float:
        """CPU seconds of the best round."""
        return self.cpu[self.seconds.index(self.best)]

    @property
    def spread(self) -> float:
        """The part by which the median is above the best round."""
        return self.median / self.best - 1

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


@dataclass(frozen=True)
class Row:
    """One model at one precision and number of threads. times: by engine; missing: by engine, why it is left out."""

    model: str
    bits: str
    threads: int
    macs: int
    times: Mapping[str, Times]
    missing: Mapping[str, str]
    correlation: Mapping[str, float]  # of the outputs with float32's
    kernels: Mapping[str, tuple[int, int]]  # layers with weights that run on int8 kernels, and all of them

    @property
    def disturbed(self) -> list[str]:
        """Engines whose rounds lie farther apart than those of a machine with nothing else to do."""
        return [name for name, times in self.times.items() if times.spread > SPREAD_MOST]

    @property
    def best_peer(self) -> str | None:
        """The fastest engine that is not ours, by its best time."""
        others = [name for name in self.times if name not in (OURS, DEFAULT)]
        return min(others, key=lambda name: self.times[name].best, default=None)

    @property
    def ratio(self) -> float | None:
        """The best peer's time over ours: above 1, ours is faster."""
        if self.best_peer is None or OURS not in self.times:
            return None
        return self.times[self.best_peer].best / self.times[OURS].best


@dataclass(frozen=True)
class Footprint:
    """Seconds to load a model, and the most bytes that a process that loads and runs it has resident, by engine."""

    model: str
    engines: Mapping[str, tuple[float, int]]


def calls_for(seconds_a_call: float, seconds_a_round: float) -> int:
    """Number of calls in a round; one where a call takes longer."""
    return max(1, int(seconds_a_round / max(seconds_a_call, 1e-9)))


def interleave(
    engines: Mapping[str, Batch], rounds: int, seconds_a_round: float, rest: Callable[[], None] = lambda: None
) -> dict[str, Times]:
    """Times of all engines, which take turns: what disturbs the machine for a while disturbs all of them.

    The first call of each warms it up; one of the following ones says how many calls make a round. rest: called
    before each turn, so that an engine's spinning threads do not take the next one's time.
    """
    calls = {}
    for name, batch in engines.items():
        rest()
        batch(1)
        calls[name] = calls_for(min(batch(1)[0] for _ in range(3)), seconds_a_round)
        batch(calls[name])
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in engines}
    for _ in range(rounds):
        for name, batch in engines.items():
            rest()
            wall, cpu = batch(calls[name])
            times[name].append((wall / calls[name], cpu / calls[name]))
    return {name: Times(*zip(*pairs, strict=True)) for name, pairs in times.items()}


def calmest(measure: Callable[[], dict[str, Times]]) -> dict[str, Times]:
    """Times of all engines, measured up to AGAIN times more where a spread is beyond SPREAD_MOST: those with the least
    one."""

    def spread(times: Mapping[str, Times]) -> float:
        return max((one.spread for one in times.values()), default=0.0)

    found = measure()
    for _ in range(AGAIN):
        if spread(found) <= SPREAD_MOST:
            break
        found = min(found, measure(), key=spread)
    return found


def geometric_mean(ratios: Iterable[float | None]) -> float | None:
    """Median of the values that exist; None where there is none."""
    logs = [math.log(ratio) for ratio in ratios if ratio is not None]
    return math.exp(sum(logs) / len(logs)) if logs else None


def correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Pearson's; 0 where one of the two is constant."""
    try:
        return statistics.correlation(x, y)
    except statistics.StatisticsError:
        return 0.0
