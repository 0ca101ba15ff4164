"""Text of flags, read."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nmpconv.errors import UsageError


def shapes(values: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """NAME=1x3x48x192, repeated."""
    sizes = {}
    for value in values:
        name, _, dims = value.rpartition("=")
        if not name or not re.fullmatch(r"\d+([x,]\d+)*", dims):
            raise UsageError(
                f"{value!r} is not NAME=SIZES", where="--input-shape", hint="for example --input-shape x=1x3x48x192"
            )
        sizes[name] = tuple(int(dim) for dim in re.split("[x,]", dims))
    return sizes


def values(texts: Sequence[str]) -> dict[str, tuple[bool | int | float, ...]]:
    """NAME=0.5 or NAME=0,1,0, repeated; true and false are numbers, too."""
    by_name: dict[str, tuple[bool | int | float, ...]] = {}
    for text in texts:
        name, _, row = text.rpartition("=")
        try:
            by_name[name] = tuple(_number(part.strip()) for part in row.split(","))
        except ValueError:
            name = ""
        if not name:
            hint = "for example --input-value sr=16000, or NAME=0,1,0 for all elements"
            raise UsageError(f"{text!r} is not NAME=VALUE", where="--input-value", hint=hint)
    return by_name


def _number(text: str) -> bool | int | float:
    """Raises ValueError."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return int(text)
    except ValueError:
        return float(text)


def names(values: Sequence[str]) -> tuple[str, ...]:
    """Comma-separated, repeated."""
    return tuple(name.strip() for value in values for name in value.split(",") if name.strip())


def numbers(text: str, flag: str, counts: Sequence[int]) -> tuple[float, ...]:
    """Comma-separated numbers, as many as one of ``counts``; a range as reports print it, ``0..255``, is two."""
    try:
        row = tuple(float(part) for part in text.replace("..", ",").split(","))
    except ValueError:
        raise UsageError(f"{text!r} is not a number or a comma-separated list of numbers", where=flag) from None
    if len(row) not in counts or any(x - x != 0 for x in row):
        allowed = " or ".join(map(str, counts))
        raise UsageError(f"{text!r}: {allowed} finite numbers are allowed", where=flag)
    return row
