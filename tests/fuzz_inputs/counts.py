"""Counts of fuzzing: `counts.csv` has the runs that were recorded, docs/results.md their sums."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).with_name("counts.csv")
# From release 0.3 on, of all targets together and of each.
LEAST_RUNS, LEAST_SECONDS = 10**9, 3600
TABLE = re.compile(r"(<!-- counts: .* -->\n).*?(<!-- end of counts -->)", re.S)
# Columns of the table by target.
TARGETS = {
    "model": ("`.nmp` with mended checksums, in C", "files"),
    "agent": ("conversations with an agent", "conversations"),
    "frame": ("lines for the parser of frames", "lines"),
    "image": ("frames of a camera", "frames"),
    "verifiers": ("both verifiers of a `.nmp`", "files"),
    "wasm": ("`.nmp` in nmp.wasm, against C", "files"),
    "nmp": ("`.nmp`, C and Python", "files"),
    "pages": ("`.nmp`, made a page of", "files"),
    "device": ("a device that misbehaves", "devices"),
    "firmware": ("firmware, into Unicorn", "files"),
    "onnx": ("ONNX", "files"),
    "tflite": ("TFLite", "files"),
    "images": ("images", "files"),
    "arrays": ("arrays", "files"),
    "archives": ("archives", "files"),
    "tables": ("tables of numbers", "files"),
    "lists": ("lists of files", "files"),
    "boxes": ("lists of boxes", "files"),
    "sounds": ("sounds", "files"),
    "profiles": ("profiles", "files"),
    "recipes": ("recipes, as text", "files"),
    "applied": ("recipes, by the names of a model", "files"),
    "projects": ("projects", "files"),
    "graphs": ("random ONNX graphs against onnxruntime", "graphs"),
}


class Count(NamedTuple):
    """A row of the file. sanitized: those of the runs under sanitizers. seconds: None where they were not noted. found:
    different faults.
    """

    date: str
    target: str
    runs: int
    sanitized: int
    seconds: int | None
    found: int


def counts() -> list[Count]:
    with FILE.open(encoding="utf-8", newline="") as file:
        return [
            Count(row["date"], row["target"], int(row["runs"]), int(row["sanitized"]),
                  int(row["seconds"]) if row["seconds"] else None, int(row["found"]))
            for row in csv.DictReader(file)
        ]  # fmt: skip


def record(target: str, runs: int, seconds: float, faults: int, docs: Path, *, sanitized: bool = False) -> None:
    """Adds a row, and the table of the page anew."""
    day = datetime.now(timezone.utc).date().isoformat()
    with FILE.open("a", encoding="utf-8", newline="") as file:
        row = (day, target, runs, runs * sanitized, round(seconds), int(faults))
        csv.writer(file, lineterminator="\n").writerow(row)
    docs.write_text(with_table(docs.read_text(encoding="utf-8"), counts()), encoding="utf-8")


def with_table(text: str, rows: Iterable[Count]) -> str:
    """The page with the sums of these rows. Raises ValueError without a place for them."""
    changed, places = TABLE.subn(lambda match: f"{match[1]}\n{table(rows)}\n{match[2]}", text)
    if places != 1:
        raise ValueError("docs/results.md has no place for the counts of fuzzing")
    return changed


def least_first(targets: Iterable[str], rows: Iterable[Count]) -> list[str]:
    """Targets by the time that they have had."""
    seconds: Counter[str] = Counter()
    for row in rows:
        seconds[row.target] += row.seconds or 0
    return sorted(targets, key=lambda target: seconds[target])


def release_lacks(rows: Sequence[Count]) -> list[str]:
    """Sentences on what a release lacks; none where it may be tagged."""
    sentences = []
    if (runs := sum(row.runs for row in rows)) < LEAST_RUNS:
        sentences.append(f"{runs:,} inputs were tried in all, and a release wants {LEAST_RUNS:,}.")
    for target in TARGETS:
        seconds = sum(row.seconds or 0 for row in rows if row.target == target)
        if seconds < LEAST_SECONDS:
            tool = "fuzz-models ARGS=--record" if target == "graphs" else f"fuzz ARGS='--record --only {target}'"
            sentences.append(f"{target} was fuzzed for {seconds:,} of {LEAST_SECONDS:,} seconds: make {tool}.")
    return sentences


def table(rows: Iterable[Count]) -> str:
    by_target: dict[str, list[Count]] = {}
    rows = list(rows)
    for row in rows:
        by_target.setdefault(row.target, []).append(row)
    lines = ["| target | runs | sanitized | minutes | faults | last |", "|---|---|---|---|---|---|"]
    for target, (name, unit) in TARGETS.items():
        if group := by_target.pop(target, []):
            lines.append(_sums(name, unit, group))
    if by_target:
        raise ValueError(f"no target is called {', '.join(by_target)}")
    lines.append(_sums("all", "inputs", rows))
    return "\n".join(lines) + "\n"


def _sums(name: str, unit: str, rows: Sequence[Count]) -> str:
    seconds = sum(row.seconds or 0 for row in rows)
    more = "+" * any(row.seconds is None for row in rows)
    runs, faults = sum(row.runs for row in rows), sum(row.found for row in rows)
    sanitized = f"{number:,} " if (number := sum(row.sanitized for row in rows)) else ""
    last = max(row.date for row in rows)
    return f"| {name} | {runs:,} {unit} | {sanitized}| {seconds / 60:,.1f}{more} | {faults} | {last} |"
