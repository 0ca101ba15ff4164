"""A deterministic choice of rows (output positions) spread over the images, the same for every tensor of one size."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np


class Places(NamedTuple):
    """Row r is the flat position positions[r] (all axes but the last) of image images[r]; in ascending order."""

    images: np.ndarray
    positions: np.ndarray


class Rows(NamedTuple):
    """The rows [R, C] of a tensor that lie at these places."""

    images: np.ndarray
    positions: np.ndarray
    values: np.ndarray


@lru_cache(maxsize=64)
def spread(images: int, positions: int, limit: int) -> Places:
    """At most ``limit`` of the images x positions rows, as many of each image: a function of these numbers alone.

    The arrays are kept, and are not to be written to.
    """
    if images * positions <= limit:
        at = np.arange(images * positions)
        return Places(at // max(positions, 1), at % max(positions, 1))
    chosen = []
    for image in range(images):
        quota = (image + 1) * limit // images - image * limit // images
        generator = np.random.default_rng((image, positions))
        chosen.append(np.sort(generator.choice(positions, min(quota, positions), replace=False)))
    return Places(np.repeat(np.arange(images), [len(c) for c in chosen]), np.concatenate(chosen))
