"""Figures and names as people read them: 95.2 kB, 3.41 M, 34.1 ms, 31.2 dB."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

UNIT = re.compile(r"(?<=\d) (?=(?:%|[mun]?s|dB|[kMGT]?B|[kMGT](?:MACs?)?)(?!\w))")
JOINT = "\xa0"  # a space at which no line ends
NOTHING = "-"  # what is not known


def clean(text: str) -> str:
    """Names come from files: what is not printable is escaped, so that no file can steer a terminal."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def utf8(text: str) -> str:
    """The text with bytes that are not UTF-8, of a file's name, escaped, so that it can be written."""
    return text.encode(errors="backslashreplace").decode()


def joined(text: str) -> str:
    """The text with figures that stay in the line of their unit."""
    return UNIT.sub(JOINT, text)


def size(count: int) -> str:
    """Bytes: 812 B, 95.2 kB, 3.41 MB (powers of 1000)."""
    return f"{count} B" if count < 1000 else f"{scaled(count)}B"


def scaled(value: float) -> str:
    """Three digits and a prefix: 812, 95.2 k, 3.41 M; a unit can follow."""
    power = next((power for power in range(4) if value < 999.5 * 1000**power), 4)
    value /= 1000**power
    whole = power == 0 and value == int(value)
    digits = 0 if whole or value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f} {' kMGT'[power].strip()}"


def db(value: float | None) -> str:
    """SQNR in dB; 'exact' where there is no error at all."""
    return NOTHING if value is None or math.isnan(value) else "exact" if value == math.inf else f"{value:.1f}"


def decibels(value: float | None) -> str:
    """`db` with its unit, where it is a number."""
    text = db(value)
    return text if value is None or not math.isfinite(value) else f"{text} dB"


def ends(numbers: Sequence[int]) -> str:
    """The least and the largest one: -9..-7, or -9 where they are one; 0 of none."""
    low, high = min(numbers, default=0), max(numbers, default=0)
    return str(low) if low == high else f"{low}..{high}"


def percent(fraction: float | None, digits: int = 2) -> str:
    return NOTHING if fraction is None else f"{100 * fraction:.{digits}f} %"


def rate(percents: float | None) -> str:
    return NOTHING if percents is None else f"{percents:.2f} %"


def duration(seconds: float) -> str:
    """Three digits: 812 ns, 9.52 us, 34.1 ms, 2.40 s."""
    units = (("s", 1.0), ("ms", 1e3), ("us", 1e6), ("ns", 1e9))
    unit, factor = next((pair for pair in units if seconds * pair[1] >= 0.9995), units[-1])
    return f"{scaled(seconds * factor).strip()} {unit}"
