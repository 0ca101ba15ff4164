"""Keywords, read and checked: by their annotations, by bounds that flags share, under their older names, in any case
and with units."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin

from nmpconv.api.progress_bars import bars
from nmpconv.base import units
from nmpconv.base.near_names import check_keywords
from nmpconv.base.type_check import allowed_instead
from nmpconv.conversion import keywords as conversion_keywords
from nmpconv.conversion import options as conversion_options
from nmpconv.conversion.keywords import FLAGS
from nmpconv.errors import NmpError, UsageError, refusal

P = ParamSpec("P")
K = TypeVar("K")
T = TypeVar("T")

# Least and most of numbers by their names, those of the flags.
BOUNDS: dict[str, tuple[float | None, float | None]] = {
    **{name: (flag.low, flag.high) for name, flag in FLAGS.items() if flag.low is not None},
    "runs": (1, 1_000_000),
    "warmup": (0, None),
    "wait": (0, 86400),
    "baud": (1, None),
}
FREE = {"model", "files", "data", "example_inputs", "reference"}  # read by those that know all of their forms


def check(function: Callable[..., Any], keywords: Mapping[str, Any]) -> None:
    """UsageError for a keyword of another type than the function's annotation says, or out of `BOUNDS`."""
    for name, value in keywords.items():
        if name in FREE:
            continue
        if allowed := allowed_instead(value, kind_of(function, name), *BOUNDS.get(name, (None, None))):
            example = FLAGS[name].example if name in FLAGS else ""
            raise refusal(value, allowed, name, f"for example {example}" if example else "")


def kind_of(function: Callable[..., Any], name: str) -> Any:
    """The annotation of a keyword, evaluated alone: others name packages that are not imported."""
    plain = inspect.unwrap(function)
    return eval(
        plain.__annotations__[name], {**vars(conversion_options), **vars(conversion_keywords), **plain.__globals__}
    )


def forgiving(**older: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A function whose keywords are read as flags are: under older names, too (older=today's), and see `plain`. The
    nearest name is suggested for a mistyped one."""

    def wrap(function: Callable[P, T]) -> Callable[P, T]:
        known = tuple(inspect.signature(function).parameters)

        @functools.wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> T:
            kwargs.update(_today(kwargs, older))
            for old in older.keys() & kwargs.keys():
                del kwargs[old]
            check_keywords(function, kwargs, known)
            kwargs.update(plain(function, kwargs))
            with _naming(known), bars() if kwargs.get("progress") is True else nullcontext() as shown:
                kwargs.update({} if shown is None else {"progress": shown})
                return function(*args, **kwargs)

        return called

    return wrap


@contextmanager
def _naming(keywords: Collection[str]) -> Iterator[None]:
    """Errors of what is called name its keywords in place of flags."""
    try:
        yield
    except NmpError as error:
        error.keywords = tuple(keywords)
        raise


def _today(keywords: Mapping[str, Any], older: Mapping[str, str]) -> dict[str, Any]:
    """Keywords that are given under older names, by today's."""
    for old in older.keys() & keywords.keys():
        if older[old] in keywords:
            raise UsageError(f"{old} was renamed {older[old]}; give only {older[old]}", where=old)
    return {older[old]: keywords[old] for old in older.keys() & keywords.keys()}


def taking(keywords: Callable[P, K], **older: str) -> Callable[[Callable[[K], T]], Callable[P, T]]:
    """A function whose keywords are the fields of a dataclass; read as by `forgiving`, and checked."""
    signature = inspect.signature(keywords)

    def wrap(function: Callable[[K], T]) -> Callable[P, T]:
        def called(*args: P.args, **kwargs: P.kwargs) -> T:
            today = {name: value for name, value in kwargs.items() if name not in older} | _today(kwargs, older)
            check_keywords(function, today, signature.parameters)
            today |= plain(called, today)
            check(called, today)
            try:
                signature.bind(*args, **today)
            except TypeError as error:
                raise TypeError(f"{function.__name__}() got wrong arguments: {error}") from None
            shows = bars() if today.get("progress") is True else nullcontext()
            with _naming(signature.parameters), shows as shown:
                return function(keywords(*args, **(today if shown is None else {**today, "progress": shown})))  # type: ignore[arg-type]

        functools.update_wrapper(called, function)
        del called.__wrapped__  # type: ignore[attr-defined]
        called.__signature__ = signature.replace(return_annotation=inspect.signature(function).return_annotation)  # type: ignore[attr-defined]
        called.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
        return called

    return wrap


def plain(function: Callable[..., Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords as the function wants them: words that it knows in any case, whole numbers with units. What is none of
    these is left as it is; a number with a wrong unit is a UsageError."""
    known = inspect.unwrap(function).__annotations__
    return {
        name: _plain_text(name, value, kind_of(function, name)) if isinstance(value, str) and name in known else value
        for name, value in keywords.items()
        if name not in FREE
    }


def _plain_text(name: str, text: str, kind: Any) -> Any:
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    words = [word for member in kinds if get_origin(member) is Literal for word in get_args(member)]
    if words:
        return next((word for word in words if isinstance(word, str) and word == text.lower()), text)
    if int in kinds and not {str, Path}.intersection(kinds):
        low, high = BOUNDS.get(name, (None, None))
        return units.whole(
            text,
            units.BYTES if name in FLAGS and FLAGS[name].metavar == units.SIZE else units.COUNT,
            where=name,
            low=low,
            high=high,
        )
    return text
