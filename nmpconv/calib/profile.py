"""Calibration's result as a text file: every method and width can be chosen from it later, without images.

    nmpconv profile 1
    graph 5f0c...
    ranges
    "conv1" -1.25 6.0
    statistics
    "conv1" 802816 0.31 1024 3 1900:17,3,0*40,9 AACgvw==,AADAQA==,UrgehetR1D8= -

A line of ``ranges`` is a tensor's name (a JSON string), min and max: edit these to narrow or widen what the tensor is
expected to hold. Its line of ``statistics``: count, mean, zeros, the histogram's exponent (- for none), its first used
bin and the counts from there (n*k: k times n), the channels' min, max (float32) and mean (float64), little endian in
base64 (- for none), and the number of samples, the mean of each channel's largest magnitude in a sample, and the sum of
its squared deviations from that (float64; - for none). Older profiles lack the last field.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np

from nmpconv.base.files import read_text, write_file
from nmpconv.calib.histogram import BINS, Histogram
from nmpconv.calib.observers import TensorStats
from nmpconv.errors import InputError
from nmpconv.graph.text import graph_hash
from nmpconv.ir import Graph

HEADER = "nmpconv profile"
VERSION = 1
EXPONENTS = (-100, 128)  # of float32 values that do not count as zero
CHANNEL_TYPES = ("<f4", "<f4", "<f8")


@dataclass(frozen=True)
class Profile:
    """hash: of the float graph (`nmpconv.graph.text.graph_hash`) that ``stats`` describes. path: for messages."""

    hash: str
    stats: Mapping[str, TensorStats]
    path: str = ""

    def stats_for(self, graph: Graph) -> dict[str, TensorStats]:
        """The statistics of every activation of this graph; InputError when the profile is another graph's."""
        names = [value.name for value in graph.activations()]
        missing = [name for name in names if name not in self.stats]
        extra = [name for name in self.stats if name not in names]
        own_hash = graph_hash(graph)
        if self.hash == own_hash and not missing:
            return {name: self.stats[name] for name in names}
        message = (
            f"it is of a graph with hash {self.hash}, the model's is {own_hash}"
            if self.hash != own_hash
            else "lines are gone"
        )
        if missing:
            message += f"; {len(missing)} of the model's tensors are missing, {missing[0]!r} first"
        if extra:
            message += f"; {len(extra)} tensors are not the model's, {extra[0]!r} first"
        raise InputError(
            f"the profile does not fit the model: {message}",
            where=self.path,
            hint="calibrate again, or give the model, outputs and preprocessing that --save-profile had",
        )


def save(path: str | Path, profile: Profile) -> None:
    """Write the file whole or not at all; OutputError when it cannot be."""
    write_file(Path(path), to_text(profile).encode())


def load(path: str | Path) -> Profile:
    """Read a profile; edited ranges clip the histogram and the channels. InputError naming the line that is wrong."""
    text = read_text(path, "profile")
    return replace(from_text(text, where=str(path)), path=str(path))


def to_text(profile: Profile) -> str:
    """The profile as text, tensors in the order of ``stats``."""
    ranges = [f"{json.dumps(n)} {np.float32(s.min)} {np.float32(s.max)}" for n, s in profile.stats.items()]
    statistics = [f"{json.dumps(n)} {_statistics(s)}" for n, s in profile.stats.items()]
    return "\n".join([f"{HEADER} {VERSION}", f"graph {profile.hash}", "ranges", *ranges, "statistics", *statistics, ""])


def from_text(text: str, *, where: str = "") -> Profile:
    """The profile of a text; blank lines and lines that start with # are skipped."""
    lines = [(i, line.strip()) for i, line in enumerate(text.splitlines(), 1)]
    lines = [(i, line) for i, line in lines if line and not line.startswith("#")]
    if not lines or lines[0][1].rpartition(" ")[0] != HEADER:
        raise InputError(f"not a profile: it does not begin with {HEADER!r}", where=where)
    if lines[0][1] != f"{HEADER} {VERSION}":
        version = lines[0][1].rpartition(" ")[2]
        raise InputError(f"a profile of version {version}; this nmpconv reads {VERSION}", where=where)
    graph, section = "", ""
    ranges: dict[str, tuple[float, float]] = {}
    stats: dict[str, TensorStats] = {}
    for number, line in lines[1:]:
        try:
            if line in ("ranges", "statistics"):
                section = line
            elif not section:
                graph = _graph(line)
            else:
                name, fields = _named(line)
                if name in (ranges if section == "ranges" else stats):
                    raise ValueError(f"the tensor {name!r} is there twice")
                if section == "ranges":
                    ranges[name] = _range(fields)
                elif name not in ranges:
                    raise ValueError(f"the tensor {name!r} has no line in ranges")
                else:
                    stats[name] = _parse(fields).clipped(*ranges[name])
        except ValueError as error:
            raise InputError(str(error), where=f"{where}:{number}", hint="restore the line") from None
    if lost := [name for name in ranges if name not in stats]:
        raise InputError(f"{len(lost)} tensors have no statistics, {lost[0]!r} first", where=where)
    return Profile(graph, stats)


def _statistics(s: TensorStats) -> str:
    h = s.histogram
    used = np.flatnonzero(h.counts)
    first, last = (int(used[0]), int(used[-1])) if used.size else (0, -1)
    runs = [(int(count), len(list(run))) for count, run in groupby(h.counts[first : last + 1])]
    counts = ",".join(str(count) if k == 1 else f"{count}*{k}" for count, k in runs)
    channels = "-"
    if s.channel_min is not None and s.channel_max is not None and s.channel_mean is not None:
        arrays = zip((s.channel_min, s.channel_max, s.channel_mean), CHANNEL_TYPES, strict=True)
        channels = ",".join(base64.b64encode(a.astype(t).tobytes()).decode() for a, t in arrays)
    exponent = "-" if h.exponent is None else h.exponent
    peaks = "-"
    if s.peak_mean is not None and s.peak_spread is not None:
        parts = [base64.b64encode(a.astype("<f8").tobytes()).decode() for a in (s.peak_mean, s.peak_spread)]
        peaks = f"{s.samples}:{','.join(parts)}"
    return f"{s.count} {float(s.mean)!r} {h.zeros} {exponent} {first}:{counts} {channels} {peaks}"


def _graph(line: str) -> str:
    word, _, digest = line.partition(" ")
    if word != "graph" or not digest:
        raise ValueError(f"{line[:40]!r} where `graph HASH` is expected")
    return digest.strip()


def _named(line: str) -> tuple[str, list[str]]:
    name, end = json.JSONDecoder().raw_decode(line)
    if not isinstance(name, str):
        raise ValueError("a line begins with a tensor's name in quotes")
    return name, line[end:].split()


def _fields(fields: list[str], names: str) -> Iterator[str]:
    if len(fields) != len(names.split(", ")):
        raise ValueError(f"{len(fields)} fields after the name; {names} are expected")
    return iter(fields)


def _range(fields: list[str]) -> tuple[float, float]:
    with np.errstate(over="ignore"):
        lo, hi = (float(np.float32(field)) for field in _fields(fields, "min, max"))
    if not (math.isfinite(lo) and math.isfinite(hi)) or lo > hi:
        raise ValueError(f"a range from {lo} to {hi}; min and max are finite and in this order")
    return lo, hi


def _parse(fields: list[str]) -> TensorStats:
    fields = fields if len(fields) != 6 else [*fields, "-"]
    names = "count, mean, zeros, exponent, bins, channels, peaks"
    count, mean, zeros, exponent, histogram, channels, peaks = _fields(fields, names)
    numbers = [int(count), int(zeros), 0 if exponent == "-" else int(exponent)]
    if min(numbers[:2]) < 0 or not EXPONENTS[0] <= numbers[2] <= EXPONENTS[1] or not math.isfinite(float(mean)):
        raise ValueError(f"count {count}, mean {mean}, zeros {zeros} or exponent {exponent} is out of range")
    stats = TensorStats(count=numbers[0], mean=float(mean))
    stats.histogram = Histogram(None if exponent == "-" else numbers[2], numbers[1], _counts(histogram))
    if channels != "-":
        arrays = [base64.b64decode(part, validate=True) for part in channels.split(",")]
        if len(arrays) != 3 or len(arrays[0]) != len(arrays[1]) or 2 * len(arrays[0]) != len(arrays[2]):
            raise ValueError("the channels are three arrays of one length")
        decoded = [np.frombuffer(a, t).astype(t[1:]) for a, t in zip(arrays, CHANNEL_TYPES, strict=True)]
        stats.channel_min, stats.channel_max, stats.channel_mean = decoded
    if peaks != "-":
        samples, _, arrays_of_peaks = peaks.partition(":")
        peak_arrays = [
            np.frombuffer(base64.b64decode(part, validate=True), "<f8") for part in arrays_of_peaks.split(",")
        ]
        if len(peak_arrays) != 2 or len(peak_arrays[0]) != len(peak_arrays[1]) or int(samples) < 1:
            raise ValueError("the peaks are a number of samples and two arrays of one length")
        if not all(np.isfinite(a).all() and (a >= 0).all() for a in peak_arrays):
            raise ValueError("a peak is negative or not finite")
        stats.samples, (stats.peak_mean, stats.peak_spread) = int(samples), (a.astype("f8") for a in peak_arrays)
    return stats


def _counts(text: str) -> np.ndarray:
    first, _, runs = text.partition(":")
    counts, at = np.zeros(BINS, np.int64), int(first)
    for run in filter(None, runs.split(",")):
        value, _, repeat = run.partition("*")
        end = at + int(repeat or 1)
        if not 0 <= at < end <= BINS or not 0 <= int(value) < 2**62:
            raise ValueError(f"a run {run!r} at bin {at} of {BINS}")
        counts[at:end] = int(value)
        at = end
    return counts
