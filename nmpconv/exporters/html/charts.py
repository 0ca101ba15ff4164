"""Numbers as the geometry of small pictures: what the templates write as SVG. Coordinates have one decimal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

WIDE, HIGH = 320, 96  # of a small picture
BARS = 64
COLUMNS = 160  # channels, or groups of neighbours, that one picture shows


@dataclass(frozen=True)
class Bars:
    """Counts of values in [edges[i], edges[i + 1]): reals in the numbers of the float model."""

    edges: np.ndarray
    counts: np.ndarray


@dataclass(frozen=True)
class Drawn:
    """A histogram in a WIDE x HIGH picture; heights are logarithmic. marks: x of the ends of the clip range that lie in
    the picture. clipped: where what is clipped begins and ends. low, high: the numbers at both edges.
    """

    path: str
    marks: tuple[float, ...]
    clipped: tuple[tuple[float, float], ...]
    low: float
    high: float
    steps: float


@dataclass(frozen=True)
class Spread:
    """Per channel: a band from least to largest, in a WIDE x HIGH picture; zero: y of 0."""

    path: str
    zero: float
    low: float
    high: float
    channels: int


def rebinned(low: np.ndarray, high: np.ndarray, weight: np.ndarray, zeros: int) -> Bars | None:
    """Bins in use, and how many values are exactly 0, as at most BARS equal bars."""
    if not len(low) and not zeros:
        return None
    first, last = (float(low[0]), float(high[-1])) if len(low) else (0.0, 0.0)
    first, last = min(first, 0.0), max(last, 0.0)
    if first == last:
        return Bars(np.array([-0.5, 0.5]), np.array([float(zeros)]))
    edges = np.linspace(first, last, BARS + 1)
    counts, _ = np.histogram((low + high) / 2, edges, weights=weight)
    counts[min(np.searchsorted(edges, 0.0, side="right") - 1, BARS - 1)] += zeros
    return Bars(edges, counts)


def of_integers(counts: np.ndarray, least: int, exponent: int, origin: float) -> Bars | None:
    """counts[i]: how often the integer least + i was seen."""
    used = np.flatnonzero(counts)
    if not used.size:
        return None
    first, last = int(used[0]), int(used[-1]) + 1
    bars = min(BARS, last - first)
    edges = np.round(np.linspace(first, last, bars + 1)).astype(np.int64)
    sums = np.add.reduceat(counts[:last], edges[:-1])
    return Bars(np.ldexp((edges + least - 0.5).astype(np.float64), exponent) + origin, sums.astype(np.float64))


def histogram(bars: Bars, clip: tuple[float, float], step: float) -> Drawn:
    """clip: the least and the largest number that the tensor holds. step: between two of them."""
    low, high = float(min(bars.edges[0], clip[0])), float(max(bars.edges[-1], clip[1]))
    # A grid that is much wider than what was seen would leave a needle.
    reach = 4 * float(bars.edges[-1] - bars.edges[0])
    low, high = max(low, float(bars.edges[0]) - reach), min(high, float(bars.edges[-1]) + reach)
    scale = WIDE / ((high - low) or 1.0)
    most = math.log1p(float(bars.counts.max()) or 1.0)
    parts = []
    for left, right, count in zip(bars.edges[:-1], bars.edges[1:], bars.counts, strict=True):
        if count > 0:
            x, wide = (left - low) * scale, max((right - left) * scale, 0.5)
            tall = max(math.log1p(float(count)) / most * (HIGH - 4), 1.0)
            parts.append(f"M{x:.1f} {HIGH}v{-tall:.1f}h{wide:.1f}v{tall:.1f}z")
    marks = tuple(round((end - low) * scale, 1) for end in clip if low <= end <= high)
    half, clipped = step / 2, []
    if bars.edges[0] < clip[0] - half:
        clipped.append((0.0, round((clip[0] - low) * scale, 1)))
    if bars.edges[-1] > clip[1] + half:
        clipped.append((round((clip[1] - low) * scale, 1), float(WIDE)))
    return Drawn("".join(parts), marks, tuple(clipped), low, high, step)


def spread(low: Sequence[float], high: Sequence[float]) -> Spread:
    """The range of each channel; of groups of neighbours where there are more than COLUMNS."""
    count = len(low)
    cuts = np.unique(np.linspace(0, count, min(count, COLUMNS) + 1).astype(np.int64))[:-1]
    least, most = np.minimum.reduceat(np.asarray(low, float), cuts), np.maximum.reduceat(np.asarray(high, float), cuts)
    bottom, top = min(float(least.min()), 0.0), max(float(most.max()), 0.0)
    scale, wide = HIGH / ((top - bottom) or 1.0), WIDE / len(cuts)
    parts = []
    for i, (a, b) in enumerate(zip(least, most, strict=True)):
        y, tall = (top - b) * scale, max((b - a) * scale, 0.8)
        parts.append(f"M{i * wide:.1f} {y:.1f}h{max(wide * 0.9, 0.4):.1f}v{tall:.1f}h{-max(wide * 0.9, 0.4):.1f}z")
    return Spread("".join(parts), round(top * scale, 1), bottom, top, count)


def line(values: Sequence[float | None], width: float, height: float, top: float) -> str:
    """A line over equally wide steps; values from 0 to ``top``, gaps where there is none."""
    step, parts, pen = width / max(len(values), 1), [], "M"
    for i, value in enumerate(values):
        if value is None:
            continue
        y = height - min(max(value, 0.0), top) / top * height
        parts.append(f"{pen}{(i + 0.5) * step:.1f} {y:.1f}")
        pen = "L"
    return "".join(parts)


def curve(values: np.ndarray, low: float, high: float) -> str:
    """A line in a WIDE x HIGH picture, from ``low`` at the bottom to ``high``; of more values than it has columns, from
    the least to the largest of each column."""
    cuts = np.unique(np.linspace(0, len(values), min(len(values), COLUMNS) + 1).astype(np.int64))[:-1]
    scale, step = HIGH / ((high - low) or 1.0), WIDE / len(cuts)
    ends = [np.clip((high - f.reduceat(values, cuts)) * scale, 0, HIGH) for f in (np.maximum, np.minimum)]
    parts = [f"{(i + 0.5) * step:.1f} {a:.1f}V{b:.1f}" for i, (a, b) in enumerate(zip(*ends, strict=True))]
    return "M" + "L".join(parts)


def colour(fraction: float) -> str:
    """From orange (0) over a pale grey to blue (1): colour-blind readers tell them apart, too."""
    away = 2 * min(max(fraction, 0.0), 1.0) - 1
    hue = 24 if away < 0 else 214
    return f"hsl({hue} {12 + 68 * abs(away):.0f}% {68 - 22 * abs(away):.0f}%)"
