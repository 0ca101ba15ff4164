"""Values of samples beside the range that an input of a file holds."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nmpconv.runtime.ports import Port

SATURATED = 1.0  # % of an input's values beyond its range, from which on people are warned
ASKED = "is the data prepared as the calibration data was?"
FILLED, SAMPLES = 3.0, 16  # % of the range that the largest value reaches, below which they are; of so many samples


@dataclass
class InputRange:
    """Count of a float input's values, which are rounded to multiples of ``step`` from ``low`` to ``high``.

    scaled: words for values that are less an offset and in units of a grid (`Port.stored`), or "". samples,
    values: number so far. beyond: values that saturate. min, max: of all.
    """

    name: str
    low: float
    high: float
    step: float
    scaled: str = ""
    samples: int = 0
    values: int = 0
    beyond: int = 0
    min: float = math.inf
    max: float = -math.inf

    @staticmethod
    def of(port: Port) -> InputRange:
        step = math.ldexp(1.0, port.exponent)
        scaled = ""
        if port.shifts is not None:
            whose = "" if port.shifts.axis is None else "each channel "
            scaled = f", {whose}less its offset and in units of its grid"
        return InputRange(port.name, port.lo * step, port.hi * step, step, scaled)

    def add(self, x: np.ndarray, count: int = 1) -> None:
        """Takes in so many samples."""
        self.samples += count
        self.values += x.size
        least, most = float(x.min()), float(x.max())
        low, high = self.low - self.step / 2, self.high + self.step / 2
        if least < low:
            self.beyond += int(np.count_nonzero(x < low))
        if most >= high:
            self.beyond += int(np.count_nonzero(x >= high))
        self.min, self.max = min(self.min, least), max(self.max, most)

    def merge(self, other: InputRange) -> None:
        """Takes in the samples that another one of the same input has counted."""
        self.samples += other.samples
        self.values += other.values
        self.beyond += other.beyond
        self.min, self.max = min(self.min, other.min), max(self.max, other.max)

    @property
    def saturated(self) -> float:
        """Values that saturate, in %."""
        return 100 * self.beyond / self.values if self.values else 0.0

    @property
    def words(self) -> str:
        """For people: how many values saturate."""
        there = f"from {self.min:.4g} to {self.max:.4g}, the file holds {self.low:.4g} to {self.high:.4g}"
        return f"{self.saturated:.3g} % of the values of input {self.name!r}: {there}{self.scaled}"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Data of another scale than the file was calibrated with."""
        if self.saturated >= SATURATED:
            return (f"saturated: {self.words}; {ASKED}",)
        filled = 100 * max(abs(self.min), abs(self.max)) / max(abs(self.low), abs(self.high), self.step)
        if self.samples < SAMPLES or filled >= FILLED:
            return ()
        there = f"{self.min:.4g} to {self.max:.4g} of {self.low:.4g} to {self.high:.4g}{self.scaled}"
        return (f"input {self.name!r} fills {filled:.2g} % of its range, {there}; {ASKED}",)

    def to_json(self) -> dict[str, Any]:
        ends = {"low": self.low, "high": self.high, "min": self.min, "max": self.max}
        return {"name": self.name, "saturated": self.saturated, **ends}


def joined(ranges: Iterable[InputRange]) -> list[InputRange]:
    """One of each input, over the samples of all."""
    by_name: dict[str, InputRange] = {}
    for input_range in ranges:
        if input_range.name in by_name:
            by_name[input_range.name].merge(input_range)
        else:
            by_name[input_range.name] = replace(input_range)
    return list(by_name.values())
