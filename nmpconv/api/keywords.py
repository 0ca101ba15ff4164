"""What keywords may be: by their annotations, by bounds that flags share, under their older names, in any case and with
units."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin

from nmpconv.base import units
from nmpconv.errors import UsageError, refusal

P = ParamSpec("P")
T = TypeVar("T")

# Least and most, the same as those of the flags.
BOUNDS: dict[str, tuple[float, float]] = {
    "limit": (1, math.inf),
    "percentile": (50, 100),
    "max_ram": (1, math.inf),
    "crop": (0.01, 1),
    "max_pixels": (1, 178_956_970),
    "test_vectors": (0, 100),
    "runs": (1, 1_000_000),
    "warmup": (0, math.inf),
    "wait": (0, 86400),
}
EXAMPLES = {
    "limit": "limit=100",
    "goal": "goal='sqnr=30'",
    "budget": "budget=['ram=64k']",
    "max_ram": "max_ram=65536, in bytes",
    "mean": "mean=(123.675, 116.28, 103.53)",
    "std": "std=(58.395, 57.12, 57.375)",
    "range": "range=(0, 1)",
    "outputs": "outputs=['logits']",
    "input_shape": "input_shape={'x': (1, 3, 48, 192)}",
    "labels": "labels='classes.txt', or a list of names",
}
SIZES = {"max_ram"}  # in bytes; other whole numbers are counts
FAR = 1e300  # a number that a float holds is nearer to 0
FREE = {"model", "files", "data", "example_inputs", "reference"}  # read by those that know all of their forms


def check(function: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """UsageError for a keyword of another type than the function's annotation says, or out of `BOUNDS`."""
    for name, value in given.items():
        if name in FREE:
            continue
        kind = kind_of(function, name)
        if not _fits(value, kind):
            _refuse(name, value, _words(kind))
        low, high = BOUNDS.get(name, (-math.inf, math.inf))
        if isinstance(value, Real) and not low <= _number(value) <= high:
            _refuse(name, value, f"{low} to {high}" if math.isfinite(high) else f"{low} and more")


def kind_of(function: Callable[..., Any], name: str) -> Any:
    """The annotation of a keyword, evaluated alone: others name packages that are not imported."""
    plain = inspect.unwrap(function)
    return eval(plain.__annotations__[name], plain.__globals__)


def forgiving(**older: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A function whose keywords are read as flags are: under older names, too (older=today's), and see `plain`."""

    def wrap(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> T:
            for old in older.keys() & kwargs.keys():
                if older[old] in kwargs:
                    raise UsageError(f"{old} was renamed {older[old]}; give only {older[old]}", where=old)
                kwargs[older[old]] = kwargs.pop(old)
            kwargs.update(plain(function, kwargs))
            return function(*args, **kwargs)

        return called

    return wrap


def plain(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords as the function wants them: words that it knows in any case, whole numbers with units. What is none of
    these is left as it is; a number with a wrong unit is a UsageError."""
    known = inspect.unwrap(function).__annotations__
    return {
        name: _plain_text(name, value, kind_of(function, name)) if isinstance(value, str) and name in known else value
        for name, value in given.items()
        if name not in FREE
    }


def _plain_text(name: str, text: str, kind: Any) -> Any:
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    words = [word for one in kinds if get_origin(one) is Literal for word in get_args(one)]
    if words:
        return next((word for word in words if isinstance(word, str) and word == text.lower()), text)
    if int in kinds and not {str, Path}.intersection(kinds):
        low, high = BOUNDS.get(name, (None, None))
        return units.whole(text, units.BYTES if name in SIZES else units.COUNT, where=name, low=low, high=high)
    return text


def _refuse(name: str, value: Any, allowed: str) -> None:
    raise refusal(value, allowed, name, f"for example {EXAMPLES[name]}" if name in EXAMPLES else "")


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value is of the kind that an annotation says. Numbers and truth values may be numpy's; a truth value is
    no number, and a number no truth value."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in inner)
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in inner)
    if origin is tuple:
        return _is_sequence(value) and len(value) == len(inner) and all(map(_fits, value, inner))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(isinstance(k, str) and _fits(v, inner[1]) for k, v in value.items())
    if isinstance(origin, type) and issubclass(origin, Iterable):
        text = inner == (str,) and isinstance(value, str)  # one word stands for a list of one
        return text or (_is_sequence(value) and all(_fits(one, inner[0]) for one in value))
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
    """As a float."""
    number = _number(value)
    return -FAR < number < FAR if isinstance(number, int) else math.isfinite(number)


def _is_sequence(value: Any) -> bool:
    """A sequence of numbers or words, arrays among them; no text, no mapping."""
    if getattr(value, "ndim", 1) == 0 or isinstance(value, str | bytes | Mapping):
        return False
    return hasattr(value, "__len__") and hasattr(value, "__iter__")


def _words(kind: Any) -> str:
    """For a message."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_words(one) for one in inner))
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
