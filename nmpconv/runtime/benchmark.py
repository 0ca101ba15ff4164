"""Time of a model on this machine. Prints nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle
from typing import Any

import numpy as np

from nmpconv.base.progress import Progress, silent
from nmpconv.base.quantities import NOTHING, duration, percent, scaled
from nmpconv.base.summary import Chart, Summarized, Summary
from nmpconv.runtime.interpreter import Net, OpTime

SECONDS = 2.0  # that a measurement takes when nobody says how many runs
RUNS_MIN, RUNS_MAX = 10, 1000
PROFILED = 20  # runs that the times of single ops are taken from, at most


@dataclass(frozen=True, repr=False)
class Timing(Summarized):
    """latencies: seconds of each run, in order, without feeding inputs. ops: single ops, the median of some runs."""

    latencies: tuple[float, ...]
    ops: tuple[OpTime, ...]

    @property
    def mean(self) -> float:
        return sum(self.latencies) / len(self.latencies)

    def quantile(self, fraction: float) -> float:
        """0: the fastest run, 0.5: the median, 1: the slowest."""
        return float(np.quantile(self.latencies, fraction))

    def summary(self) -> Summary:
        whole = sum(op.seconds for op in self.ops) or 1.0
        rows = [
            (
                op.name,
                op.kind,
                duration(op.seconds),
                percent(op.seconds / whole, 1),
                scaled(op.macs).strip() if op.macs else NOTHING,
            )
            for op in sorted(self.ops, key=lambda op: -op.seconds)
        ]
        tiles = [("fastest", duration(self.quantile(0))), ("slowest", duration(self.quantile(1)))]
        verdict = f"{duration(self.quantile(0.5))}, the median of {len(self.latencies)} runs"
        return Summary("Timing", verdict, tiles, "ops", ("op", "kind", ">time", ">share", ">MACs"), rows)

    def records(self) -> list[dict[str, Any]]:
        return [asdict(op) for op in self.ops]

    def chart(self) -> Chart:
        return Chart("ms", [op.name for op in self.ops], [1e3 * op.seconds for op in self.ops])

    def histogram(self, bins: int) -> list[tuple[float, float, int]]:
        """(from, to, runs) of slices, equal ones but for the last, which holds the slowest tenth."""
        edges = np.unique([*np.linspace(self.quantile(0), self.quantile(0.9), bins), self.quantile(1)])
        if len(edges) == 1:
            return [(self.quantile(0), self.quantile(1), len(self.latencies))]
        counts, _ = np.histogram(self.latencies, edges)
        return [(float(a), float(b), int(n)) for a, b, n in zip(edges[:-1], edges[1:], counts, strict=True)]


def measure(
    net: Net,
    *,
    runs: int | None,
    warmup: int,
    sequences: Sequence[Sequence[Sequence[np.ndarray]]] | None = None,
    progress: Progress = silent,
) -> Timing:
    """Times runs of the net, after ``warmup`` ones that do not count, and those after which it is `settled`.

    runs: None for as many as fit into SECONDS, within RUNS_MIN and RUNS_MAX. sequences: what it runs on, call after
    call and again from the start; states begin anew with each sequence. None: random inputs.
    """
    calls = _calls(net, sequences or [[_inputs(net)]])
    for i in range(warmup):
        _time(net, next(calls))
        progress("warm up", i + 1, warmup)
    while not net.settled:
        _time(net, next(calls))
    if runs is None:
        runs = int(np.clip(SECONDS / max(_time(net, next(calls)), 1e-6), RUNS_MIN, RUNS_MAX))
    calls = _calls(net, sequences or [[_inputs(net)]])
    latencies = []
    for i in range(runs):
        latencies.append(_time(net, next(calls)))
        progress("measure", i + 1, runs)
    return Timing(tuple(latencies), tuple(net.profile(min(runs, PROFILED))))


def _calls(net: Net, sequences: Sequence[Sequence[Sequence[np.ndarray]]]) -> Iterator[Sequence[np.ndarray]]:
    """The inputs of one call after another, without an end."""
    for sequence in cycle(sequences):
        net.reset()
        yield from sequence


def _time(net: Net, inputs: Sequence[np.ndarray]) -> float:
    """Seconds of one run."""
    for i, array in enumerate(inputs):  # a run may overwrite them
        net.set_input(i, array)
    start = time.perf_counter()
    net.run_ops(0, len(net.model.ops))
    return time.perf_counter() - start


def _inputs(net: Net) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(port.lo, port.hi + 1, port.shape).astype(port.dtype) for port in net.inputs]
