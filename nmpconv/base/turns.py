"""Orders of dimensions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import permutations

DIMENSIONS = 6  # of shapes that are turned: 720 orders


def turn_of(shape: Sequence[int], wanted: Collection[tuple[int, ...]]) -> tuple[int, ...] | None:
    """The first order of a shape's dimensions that gives one of the wanted shapes: x.transpose(it) of an array x."""
    orders = permutations(range(len(shape))) if len(shape) <= DIMENSIONS else ()
    return next((order for order in orders if tuple(shape[i] for i in order) in wanted), None)
