"""Text of flags, read."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nmpconv.errors import UsageError


def shapes(values: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """NAME=1x3x48x192, repeated."""
    found = {}
    for value in values:
        name, _, dims = value.rpartition("=")
        if not name or not re.fullmatch(r"\d+([x,]\d+)*", dims):
            raise UsageError(
                f"{value!r} is not NAME=SIZES", where="--input-shape", hint="for example --input-shape x=1x3x48x192"
            )
        found[name] = tuple(int(dim) for dim in re.split("[x,]", dims))
    return found


def names(values: Sequence[str]) -> tuple[str, ...]:
    """Comma-separated, repeated."""
    return tuple(name.strip() for value in values for name in value.split(",") if name.strip())


def numbers(text: str, flag: str, counts: Sequence[int]) -> tuple[float, ...]:
    """Comma-separated numbers, as many as one of ``counts``."""
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"{text!r} is not a number or a comma-separated list of numbers", where=flag) from None
    if len(found) not in counts or any(x - x != 0 for x in found):
        allowed = " or ".join(map(str, counts))
        raise UsageError(f"{text!r}: {allowed} finite numbers are allowed", where=flag)
    return found
