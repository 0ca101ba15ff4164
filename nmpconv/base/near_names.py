"""The name that a mistyped one is meant for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that a mistyped one is nearest to; "" where none is near."""
    return next(iter(get_close_matches(name, list(known), n=1)), "")


def suggestion(name: str, known: Iterable[str]) -> str:
    """Text "did you mean 'mean'?"; "" where no name is near."""
    near = nearest(name, known)
    return f"did you mean {near!r}?" if near else ""


def check_keywords(function: Callable[..., Any], keywords: Iterable[str], known: Iterable[str]) -> None:
    """Raises TypeError for the first keyword that a function does not have, with the nearest that it has."""
    names = list(known)
    for name in keywords:
        if name not in names:
            near = suggestion(name, names)
            raise TypeError(f"{function.__name__}() has no keyword {name!r}{'; ' if near else ''}{near}")


def suggesting(function: Callable[P, T]) -> Callable[P, T]:
    """The same function, whose errors about mistyped keywords name the nearest one."""
    known = tuple(inspect.signature(function).parameters)

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        check_keywords(function, kwargs, known)
        return function(*args, **kwargs)

    return called
