"""Check of values against type annotations: numbers and sequences may be numpy's, and numbers have bounds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

FAR = 1e300  # a number that a float holds is nearer to 0


def allowed_instead(value: Any, kind: Any, low: float | None = None, high: float | None = None) -> str:
    """Text of what is allowed in place of a value; "" where the value is fine. kind: an annotation."""
    if not _fits(value, kind):
        return _words(kind)
    if isinstance(value, Real):
        number = _number(value)
        if (low is not None and number < low) or (high is not None and number > high):
            return f"{low} and more" if high is None else f"{low} to {high}"
    return ""


def _fits(value: Any, kind: Any) -> bool:
    """Checks a value against an annotation. A truth value is no number, and a number no truth value."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_fits(value, member) for member in inner)
    if origin is Literal:
        return any(type(value) is type(literal) and value == literal for literal in inner)
    if origin is tuple:
        return _is_sequence(value) and len(value) == len(inner) and all(map(_fits, value, inner))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(isinstance(k, str) and _fits(v, inner[1]) for k, v in value.items())
    if isinstance(origin, type) and issubclass(origin, Iterable):
        text = inner == (str,) and isinstance(value, str)  # one word stands for a list of one
        return text or (_is_sequence(value) and all(_fits(element, inner[0]) for element in value))
    if kind is Any or origin is not None or not isinstance(kind, type):
        return kind is Any or callable(value)
    if kind in (int, float):
        number = isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
        return number and _is_finite(value)
    if kind is bool:
        return type(value).__name__ in ("bool", "bool_")  # the latter is numpy's, which is not imported for this
    return isinstance(value, str | PathLike) if kind is Path else isinstance(value, kind)


def _number(value: Any) -> Any:
    """A float, or an integer that may be larger than any float."""
    return int(value) if isinstance(value, Integral) else float(value)


def _is_finite(value: Any) -> bool:
    """Checks that a float holds the number."""
    number = _number(value)
    return -FAR < number < FAR if isinstance(number, int) else math.isfinite(number)


def _is_sequence(value: Any) -> bool:
    """Checks for numbers or words in a row, arrays among them; no text, no mapping."""
    if getattr(value, "ndim", 1) == 0 or isinstance(value, str | bytes | Mapping):
        return False
    return hasattr(value, "__len__") and hasattr(value, "__iter__")


def _words(kind: Any) -> str:
    """Text of an annotation, for messages."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_words(member) for member in inner))
    if origin is Literal:
        return ", ".join(map(repr, inner))
    if origin is tuple:
        return f"{len(inner)} numbers"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"a mapping of names to {_words(inner[1])}"
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return {str: "a list of words", float: "numbers", int: "integers"}.get(inner[0], "a sequence")
    names = {int: "an integer", float: "a number", bool: "True or False", str: "a text", Path: "a path"}
    return {**names, NoneType: "None"}.get(kind, "a function")


def is_frame(value: Any) -> bool:
    """Checks for a DataFrame of pandas."""
    return hasattr(value, "to_csv") and hasattr(value, "columns")
