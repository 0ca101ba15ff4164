"""Sizes and counts as people write them: 65536, 64k, 64 KiB, 5M.

Of bytes `k`, `Ki` and `KiB` are 1024 and `kB` is 1000, as GNU's coreutils have it; of all else `k` is 1000. Capital or
small letters mean the same. `M` and `G` follow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from math import isfinite
from numbers import Integral, Real
from typing import Any

from nmpconv.errors import refusal

SIZE = "BYTES"  # how --help calls the value of a flag that is a size
PREFIXES = "kmg"
COUNT: Mapping[str, int] = {"": 1, **{prefix: 1000 ** (i + 1) for i, prefix in enumerate(PREFIXES)}}
BYTES: Mapping[str, int] = {
    **{"": 1, "b": 1},
    **{f"{p}{end}": 1024 ** (i + 1) for i, p in enumerate(PREFIXES) for end in ("", "i", "ib")},
    **{f"{p}b": 1000 ** (i + 1) for i, p in enumerate(PREFIXES)},
}
EXAMPLES = ((BYTES, "bytes, such as 65536, 64k, 64KiB or 64kB"), (COUNT, "a whole number, such as 5000 or 5k"))
NUMBER = re.compile(r"(-?)([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([a-z]*)")


def whole(
    raw: Any,
    units: Mapping[str, int] = COUNT,
    *,
    where: str = "",
    low: float | None = None,
    high: float | None = None,
) -> int:
    """A size or a count of text with or without a unit, or a whole number as it is. units: COUNT or BYTES. where: the
    flag or key. low, high: the least and the most. Raises UsageError."""
    match = NUMBER.fullmatch(raw.strip().lower()) if isinstance(raw, str) else None
    if match is not None and match[3] in units:
        value = Fraction(match[2]) * units[match[3]] * (-1 if match[1] else 1)
    elif isinstance(raw, Integral) and not isinstance(raw, bool):
        value = Fraction(int(raw))
    else:
        raise refusal(raw, _allowed(units, low, high), where)
    if value.denominator != 1 or not _within(value, low, high):
        raise refusal(raw, _allowed(units, low, high), where)
    return int(value)


def number(raw: Any, *, where: str = "", low: float | None = None, high: float | None = None) -> float:
    """A finite number of text, or as it is. low, high: the least and the most. Raises UsageError."""
    try:
        value = float(raw) if isinstance(raw, str | Real) and not isinstance(raw, bool) else None
    except ValueError:
        value = None
    if value is None or not isfinite(value) or not _within(value, low, high):
        raise refusal(raw, f"a number{_bounds(low, high)}", where)
    return value


def reader(
    kind: type, units: Mapping[str, int], where: str, low: float | None, high: float | None
) -> Callable[[Any], Any]:
    """The function that reads the text of a flag of this kind, int or float. The others are those of `whole`."""
    read = partial(whole, units=units) if kind is int else number
    return lambda text: read(text, where=where, low=low, high=high)


def _within(value: Any, low: float | None, high: float | None) -> bool:
    return (low is None or value >= low) and (high is None or value <= high)


def _allowed(units: Mapping[str, int], low: float | None, high: float | None) -> str:
    words = next(words for known, words in EXAMPLES if known == units)
    return words + _bounds(low, high)


def _bounds(low: float | None, high: float | None) -> str:
    """For a message."""
    if low is not None and high is not None and isfinite(high):
        return f", from {low:,} to {high:,}"
    return "" if low is None else f", at least {low:,}"
