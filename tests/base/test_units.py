"""Sizes and counts as people write them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nmpconv.base.units import BYTES, COUNT, number, whole
from nmpconv.errors import UsageError

SIZES = {
    "65536": 65536,
    "64k": 65536,
    "64K": 65536,
    "64Ki": 65536,
    "64KiB": 65536,
    "64 kib": 65536,
    "64kB": 64000,
    "64 KB": 64000,
    "100B": 100,
    "1.5M": 3 << 19,
    "1.5MB": 1_500_000,
    "2g": 2 << 30,
    " 7 ": 7,
}
COUNTS = {"5000": 5000, "5k": 5000, "5K": 5000, "2.5m": 2_500_000, "1G": 10**9, "-3": -3}


def test_sizes_and_counts() -> None:
    assert {text: whole(text, BYTES) for text in SIZES} == SIZES
    assert {text: whole(text, COUNT) for text in COUNTS} == COUNTS
    assert whole(np.int64(3), BYTES) == 3


@pytest.mark.parametrize(
    "given", ["", "k", "64q", "64kk", "1e3", "1_000", "1,000", "0.3k", "١", "9" * 19, True, 1.0, None]
)
def test_what_is_no_size(given: Any) -> None:
    with pytest.raises(UsageError, match="is not allowed; allowed: bytes, such as 65536, 64k, 64KiB or 64kB"):
        whole(given, BYTES)


@pytest.mark.parametrize("given", ["5kB", "5Ki", "5B", "1.5", "0.0001k"])
def test_what_is_no_count(given: Any) -> None:
    with pytest.raises(UsageError, match="allowed: a whole number, such as 5000 or 5k") as error:
        whole(given, COUNT, where="--limit")
    assert error.value.where == "--limit"


def test_bounds() -> None:
    assert whole("1k", low=1000, high=1000) == 1000
    with pytest.raises(UsageError, match=r"5k, at least 1$"):
        whole("0", low=1)
    with pytest.raises(UsageError, match=r"5k, from 1 to 2,000$"):
        whole("2.001k", low=1, high=2000)
    assert number("1e-3", low=0) == 1e-3
    for wrong in ("nan", "inf", "x", "", "-1", True, None):
        with pytest.raises(UsageError, match="allowed: a number, at least 0"):
            number(wrong, low=0)
