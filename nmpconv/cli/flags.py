"""Flags that belong together, declared as the fields of a dataclass; and how the text of any flag is read."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import Field, dataclass, fields
from enum import Enum
from inspect import Parameter
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, ClassVar, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo

from nmpconv.base import units
from nmpconv.cli import texts
from nmpconv.conversion.option_types import kinds_of, option_flag, words_of
from nmpconv.conversion.options import EXPERTS, MODEL, PANELS_IN_ORDER


@dataclass(frozen=True)
class Group:
    """Base of dataclasses whose fields are Annotated[type, typer.Option(...)] with a default.

    PANEL: the title over these flags in --help.
    """

    PANEL: ClassVar[str]

    def given(self) -> dict[str, Any]:
        """The values by the names of the fields; of an enum, its own value."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value.value if isinstance(value, Enum) else value for name, value in values.items()}

    @classmethod
    def parameters(cls) -> list[Parameter]:
        """These flags as parameters of a command."""
        kinds = get_type_hints(cls, include_extras=True)
        for field in fields(cls):
            kinds[field.name].__metadata__[0].rich_help_panel = cls.PANEL
        return [
            Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=kinds[field.name])
            for field in fields(cls)
        ]


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
        def called(**given: Any) -> None:
            command(**given | {option.name: _value(option, given[option.name]) for option in known})

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


def _value(option: Field[Any], given: Any) -> Any:
    """The value of an option's flag as a program gives it. UsageError for text that cannot be read."""
    flag, (kind, *_) = option.metadata["flag"], kinds_of(str(option.type))
    if isinstance(given, Enum):
        return given.value
    if flag.counts and given is not None:
        return texts.numbers(given, f"--{option.name}", flag.counts)
    if get_origin(kind) is not None and isinstance(given, list):
        if kind == Sequence[str]:
            return texts.names(given)
        return texts.shapes(given) if get_args(kind)[1] == Sequence[int] else texts.values(given)
    return given


def kind_of(parameter: Parameter) -> Any:
    """The type of a command's parameter: of `Annotated[int | None, ...]`, int."""
    kinds = [kind for kind in get_args(parameter.annotation.__origin__) if kind is not NoneType]
    return kinds[0] if kinds else parameter.annotation.__origin__


def info_of(parameter: Parameter) -> Any:
    """The typer.Option or typer.Argument of a command's parameter."""
    return parameter.annotation.__metadata__[0]


def flag_of(parameter: Parameter) -> str:
    """Name of a command's parameter for people: --its-name, or of an argument its metavar."""
    info = info_of(parameter)
    if isinstance(info, ArgumentInfo):
        return str(info.metavar or parameter.name)
    written = (info.default, *(info.param_decls or ()))  # typer calls the first one the default
    longs = [text for text in written if isinstance(text, str) and text.startswith("--")]
    return longs[0].partition("/")[0] if longs else f"--{parameter.name.replace('_', '-')}"


def understood(parameter: Parameter) -> Parameter:
    """The same parameter: words count in any case, and numbers may have units and are refused in our own words."""
    kind, info = kind_of(parameter), info_of(parameter)
    if isinstance(kind, type) and issubclass(kind, Enum):
        info.case_sensitive = False
    elif kind in (int, float) and info.parser is None:
        known = units.BYTES if info.metavar == units.SIZE else units.COUNT
        info.parser = units.reader(kind, known, flag_of(parameter), info.min, info.max)
        info.metavar = info.metavar or "N"
    return parameter
