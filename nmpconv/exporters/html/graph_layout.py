"""Places of a graph's ops in the drawing: layers from top to bottom, each op below all that it reads.

The method is that of Sugiyama, Tagawa and Toda (1981): layers by longest path, a point in every layer that an edge
passes, and sweeps that put what is connected above each other (barycentres).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

BOX, POINT = 190, 18  # widths of an op and of an edge that passes a layer
HEIGHT, ROW = 46, 74  # of an op; from layer to layer
GAP = 14
SWEEPS = 6


@dataclass(frozen=True)
class Layout:
    """places: left edge and top of each op. edges: the path of each edge, in the order in which they were given."""

    width: int
    height: int
    places: tuple[tuple[float, float], ...]
    edges: tuple[str, ...]


def layout(count: int, edges: Sequence[tuple[int, int]]) -> Layout:
    """Places ops 0..count-1, each reading only earlier ones. edges: (from, to)."""
    layer = [0] * count
    for source, target in sorted(edges, key=lambda edge: edge[1]):
        layer[target] = max(layer[target], layer[source] + 1)
    rows: list[list[int]] = [[] for _ in range(max(layer, default=0) + 1)]
    for node in range(count):
        rows[layer[node]].append(node)
    chains, neighbours = _chains(edges, layer, rows, count)
    _order(rows, neighbours)
    x, width = _columns(rows, count)
    height = len(rows) * ROW
    places = tuple((x[node] - BOX / 2, layer[node] * ROW + (ROW - HEIGHT) / 2) for node in range(count))
    paths = tuple(_path([(x[node], layer[chain[0]] + i) for i, node in enumerate(chain)]) for chain in chains)
    return Layout(width, height, places, paths)


def _chains(
    edges: Sequence[tuple[int, int]], layer: Sequence[int], rows: list[list[int]], count: int
) -> tuple[list[list[int]], dict[int, list[int]]]:
    """The points of every edge, and what each point and op is connected to; points are put into their rows."""
    chains, neighbours, fresh = [], {node: list[int]() for node in range(count)}, count
    for source, target in edges:
        chain = [source]
        for row in range(layer[source] + 1, layer[target]):
            rows[row].append(fresh)
            neighbours[fresh] = []
            chain.append(fresh)
            fresh += 1
        chain.append(target)
        for above, below in pairwise(chain):
            neighbours[above].append(below)
            neighbours[below].append(above)
        chains.append(chain)
    return chains, neighbours


def _order(rows: list[list[int]], neighbours: dict[int, list[int]]) -> None:
    place = {node: i - len(row) / 2 for row in rows for i, node in enumerate(row)}
    where = {node: number for number, row in enumerate(rows) for node in row}
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for number in range(len(rows)) if down else reversed(range(len(rows))):
            beside = number - 1 if down else number + 1

            def centre(node: int, beside: int = beside) -> float:
                seen = [place[other] for other in neighbours[node] if where[other] == beside]
                return sum(seen) / len(seen) if seen else place[node]

            rows[number].sort(key=lambda node: (centre(node), node))
            place.update({node: i - len(rows[number]) / 2 for i, node in enumerate(rows[number])})


def _columns(rows: list[list[int]], count: int) -> tuple[dict[int, float], int]:
    """The middle of each op and point, rows centred; the width of all."""
    sizes = [sum(BOX if node < count else POINT for node in row) + GAP * (len(row) + 1) for row in rows]
    width, x = max(sizes, default=BOX), {}
    for row, size in zip(rows, sizes, strict=True):
        at = (width - size) / 2 + GAP
        for node in row:
            own = BOX if node < count else POINT
            x[node] = at + own / 2
            at += own + GAP
    return x, width


def _path(points: list[tuple[float, float]]) -> str:
    """A smooth line from the bottom of the first op to the top of the last."""
    at = [(x, row * ROW + ROW / 2) for x, row in points]
    at[0] = (at[0][0], at[0][1] + HEIGHT / 2)
    at[-1] = (at[-1][0], at[-1][1] - HEIGHT / 2)
    parts = [f"M{at[0][0]:g} {at[0][1]:g}"]
    for (x0, y0), (x1, y1) in pairwise(at):
        middle = (y0 + y1) / 2
        parts.append(f"C{x0:g} {middle:g} {x1:g} {middle:g} {x1:g} {y1:g}")
    return "".join(parts)
