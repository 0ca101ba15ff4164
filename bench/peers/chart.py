"""Bars of speed beside the best peer as SVG; bench/chart.svg, of the tables in docs/speed.md: `python -m peers.chart`.

A row is a model: a bar of ours, a tick for each peer. 1 is the best peer of the row, and longer is faster.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from peers import table
from peers.rounds import Row

ROOT = Path(__file__).resolve().parents[2]
# Headings of docs/speed.md with what stands above the bars, and whether a larger number is better.
TABLES = {
    "int8, 1 thread: ms, best round": ("int8, one thread", False),
    "int8, 2 threads: ms, best round": ("int8, two threads (*: disturbed)", False),
    "int16, the others at float32, 1 thread: ms, best round": (
        "int16, the others float32, one thread (2026-11-22)",
        False,
    ),
    "Batches": ("Batches of 64, int8, two cores", True),
}
OURS = "nmpconv"
COLORS = {
    OURS: "#d1495b",
    "ONNX Runtime": "#30638e",
    "OpenVINO": "#00798c",
    "LiteRT": "#8d96a3",
    "ExecuTorch": "#edae49",
}
LEFT, SCALE, BAR, STEP = 160, 116, 11, 17  # pixels; SCALE: of a bar as long as the best peer's

Speeds = Mapping[str, float]  # by engine, in any unit: larger is faster


class Section(NamedTuple):
    """rows: speeds of each model."""

    title: str
    rows: Sequence[tuple[str, Speeds]]


def svg(sections: Sequence[Section], title: str) -> str:
    """The chart. Models that no peer runs are left out."""
    parts, y = [_text(8, 20, title, 'font-size="14" font-weight="bold"')], 42
    x = 8
    for name, color in COLORS.items():
        wide = 12 if name == OURS else 4
        parts.append(f'<rect x="{x}" y="{y - 9}" width="{wide}" height="10" fill="{color}"/>')
        parts.append(_text(x + wide + 4, y, name))
        x += wide + 30 + 7 * len(name)
    most = 1.0
    for section in sections:
        y += 30
        parts.append(_text(8, y, section.title, 'font-size="12" font-weight="bold"'))
        y, top = y + 8, y + 4
        for model, speeds in section.rows:
            peers = {name: speed for name, speed in speeds.items() if name in COLORS and name != OURS}
            if not peers:
                continue
            best = max(peers, key=lambda name: peers[name])
            ratio = speeds[OURS] / peers[best]
            most = max(most, ratio)
            wide = round(SCALE * ratio)
            parts.append(_text(LEFT - 8, y + BAR - 1, model, 'text-anchor="end"'))
            parts.append(f'<rect x="{LEFT}" y="{y}" width="{wide}" height="{BAR}" fill="{COLORS[OURS]}"/>')
            for name, speed in peers.items():
                at = LEFT + round(SCALE * speed / peers[best])
                parts.append(f'<rect x="{at - 2}" y="{y - 1}" width="4" height="{BAR + 2}" fill="{COLORS[name]}"/>')
            parts.append(_text(LEFT + max(wide, SCALE + 2) + 5, y + BAR - 1, f"{ratio:.2f} x {best}"))
            y += STEP
        parts.insert(0, f'<path d="M{LEFT + SCALE} {top}V{y - 2}" stroke="#999" stroke-dasharray="3 3"/>')
    wide, high = LEFT + round(SCALE * most) + 120, y + 8
    size = f'width="{wide}" height="{high}" viewBox="0 0 {wide} {high}"'
    style = 'font-family="sans-serif" font-size="11"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n<rect width="100%" height="100%" fill="white"/>'
    return "\n".join([head, *parts, "</svg>\n"])


def measured(rows: Sequence[Row], title: str) -> str:
    """The chart of what `make bench` measured."""
    sections = []
    for key, group in table.groups(rows).items():
        speeds = [{table.TITLES[name]: 1 / times.best for name, times in row.times.items()} for row in group]
        names = [row.model for row in group]
        sections.append(Section(table.heading(*key), list(zip(names, speeds, strict=True))))
    return svg(sections, title)


def _text(x: int, y: int, text: str, style: str = "") -> str:
    return f'<text x="{x}" y="{y}"{" " + style if style else ""}>{escape(text)}</text>'


def published(page: str) -> str:
    """The chart of a page's tables."""
    sections = []
    for heading, (title, is_rate) in TABLES.items():
        _, _, part = page.partition(f" {heading}\n")
        rows = re.findall(r"^\|.*\|$", part.split("\n#")[0], re.M)
        names, _, *cells = ([cell.strip() for cell in row.strip("|").split("|")] for row in rows)
        sections.append(Section(title, [(row[0], _speeds(names, row, is_rate)) for row in cells if row[1]]))
    [date] = re.findall(r"## x86-64\n\n- Date: ([-0-9]+)", page)
    return svg(sections, f"Speed next to the best peer (1), x86-64, {date}")


def _speeds(names: Sequence[str], row: Sequence[str], is_rate: bool) -> dict[str, float]:
    """The fastest number of each engine; columns of a rate are ways to use one. Ours is what the ratio says, which was
    computed of more digits."""
    speeds: dict[str, float] = {}
    for name, cell in zip(names[1:], row[1:], strict=True):
        engine = "ONNX Runtime" if name in ("ONNX Runtime, batch", "calls", "row") else name
        if engine in COLORS and cell != "-":
            number = float(cell.strip("*").replace(",", ""))
            speeds[engine] = max(speeds.get(engine, 0.0), number if is_rate else 1 / number)
        if name in ("best peer / nmpconv", "nmpconv / best") and cell != "-":
            speeds[OURS] = float(cell) * max(speed for engine, speed in speeds.items() if engine != OURS)
    return speeds


if __name__ == "__main__":
    (ROOT / "bench" / "chart.svg").write_text(published((ROOT / "docs" / "speed.md").read_text()))
