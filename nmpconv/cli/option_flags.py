"""Flags of the options of a conversion, which are declared as the fields of a dataclass."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import Field, fields
from enum import Enum
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import typer

from nmpconv.cli import texts
from nmpconv.conversion.option_types import kinds_of, option_flag, words_of
from nmpconv.conversion.options import EXPERTS, MODEL, PANELS_IN_ORDER


def with_options(options: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command with a flag for each option of a dataclass; it gets their values as keywords, as a program gives them.

    The flags stand before the command's last parameter, and those for experts after it.
    """
    known = sorted(
        (option for option in fields(options) if (flag := option_flag(option)) is not None and flag.panel),
        key=lambda option: PANELS_IN_ORDER.index(option.metadata["flag"].panel),
    )

    def wrap(command: Callable[..., None]) -> Callable[..., None]:
        kinds = inspect.get_annotations(command, eval_str=True)  # get_type_hints of Python 3.10 hides those of None
        own = [
            parameter.replace(annotation=kinds[name])
            for name, parameter in inspect.signature(command).parameters.items()
            if parameter.kind is not Parameter.VAR_KEYWORD
        ]
        common = [option for option in known if option.metadata["flag"].panel != EXPERTS]
        flat = [*own[:-1], *map(_parameter, common), own[-1], *map(_parameter, known[len(common) :])]

        @functools.wraps(command)
        def called(**values: Any) -> None:
            command(**values | {option.name: _value(option, values[option.name]) for option in known})

        called.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
        called.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
        return called

    return wrap


def _parameter(option: Field[Any]) -> Parameter:
    """The flag of an option, as typer is to see it."""
    flag, kinds = option.metadata["flag"], kinds_of(str(option.type))
    kind: Any = kinds[0]
    words = {word.upper(): word for word in words_of(kind)}
    if words:
        kind = Enum("Choice", words, type=str)  # type: ignore[misc, no-redef]
    elif get_origin(kind) is not None:  # words, or sizes by name
        kind = list[str]
    if flag.counts or str in kinds:
        kind = Path if Path in kinds else str
    default = kind(option.default) if words and option.default is not None else option.default
    optional = kind | None if option.default is None else kind
    spelling = flag.spelling
    if spelling is None and kind is bool:
        name = f"--{option.name.replace('_', '-')}"
        spelling = f"{name}/--no-{name[2:]}" if option.default else name
    info = typer.Option(
        *([spelling] if spelling else []),
        help=flag.help or None,
        min=flag.low,
        max=flag.high,
        metavar=flag.metavar,
        show_default=flag.shows_default,
        rich_help_panel=None if flag.panel == MODEL else flag.panel,
    )
    return Parameter(option.name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[optional, info])


def _value(option: Field[Any], value: Any) -> Any:
    """The value of an option's flag as a program gives it. UsageError for text that cannot be read."""
    flag, (kind, *_) = option.metadata["flag"], kinds_of(str(option.type))
    if isinstance(value, Enum):
        return value.value
    if flag.counts and value is not None:
        return texts.numbers(value, f"--{option.name}", flag.counts)
    if get_origin(kind) is not None and isinstance(value, list):
        if kind == Sequence[str]:
            return texts.names(value)
        return texts.shapes(value) if get_args(kind)[1] == Sequence[int] else texts.values(value)
    return value
