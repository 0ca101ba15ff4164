"""The choice of rows: complete when few, spread when many, always the same."""

from __future__ import annotations

import numpy as np
import pytest

from nmpconv.calib.sampled_rows import spread


def test_few_rows_are_all_taken() -> None:
    places = spread(3, 4, 12)
    assert places.images.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
    assert places.positions.tolist() == [0, 1, 2, 3] * 3


@pytest.mark.parametrize(("images", "positions", "limit"), [(7, 100, 50), (100, 9, 30), (3, 1000, 2999), (0, 9, 5)])
def test_many_rows_are_spread_over_the_images(images: int, positions: int, limit: int) -> None:
    places = spread(images, positions, limit)
    assert len(places.images) == min(limit, images * positions)
    assert (np.diff(places.images) >= 0).all()
    counts = np.bincount(places.images, minlength=images)
    assert images == 0 or counts.max() - counts.min() <= 1
    pairs = set(zip(places.images.tolist(), places.positions.tolist(), strict=True))
    assert len(pairs) == len(places.images)
    assert all(0 <= p < positions for _, p in pairs)


def test_the_choice_depends_on_the_numbers_alone() -> None:
    first, second = spread(5, 100, 60), spread(5, 100, 60)
    assert (first.positions == second.positions).all()
    assert not (first.positions[:12] == first.positions[12:24]).all()
