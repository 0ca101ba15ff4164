"""Flags that belong together, declared as the fields of a dataclass; and how the text of any flag is read."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from inspect import Parameter
from types import NoneType
from typing import Any, ClassVar, get_args, get_type_hints

from typer.models import ArgumentInfo

OLDER = {"calib": "data", "calib-limit": "limit", "input": "data"}  # what flags were called before 0.2.0


def today(name: str) -> str:
    """Today's name of a flag."""
    return OLDER.get(name, name)


@dataclass(frozen=True)
class Group:
    """Base of dataclasses whose fields are Annotated[type, typer.Option(...)] with a default.

    PANEL: the title over these flags in --help.
    """

    PANEL: ClassVar[str]

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
        from nmpconv.base import units  # not loaded for commands without numbers

        known = units.BYTES if info.metavar == units.SIZE else units.COUNT
        info.parser = units.reader(kind, known, flag_of(parameter), info.min, info.max)
        info.metavar = info.metavar or "N"
    return parameter
