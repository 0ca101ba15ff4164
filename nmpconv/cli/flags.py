"""Flags that belong together, declared as the fields of a dataclass; and how the text of any flag is read."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import Enum
from inspect import Parameter
from types import NoneType
from typing import Any, ClassVar, get_args, get_type_hints

from typer.models import ArgumentInfo

from nmpconv.base import units


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


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer is to see it: with the flags of a Group in place of each parameter that is one."""
    kinds = inspect.get_annotations(command, eval_str=True)  # get_type_hints of Python 3.10 hides those of None
    groups = {name: kind for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, Group)}
    flat: list[Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        flat += groups[name].parameters() if name in groups else [parameter.replace(annotation=kinds[name])]

    @functools.wraps(command)
    def called(**given: Any) -> None:
        made = {name: kind(**{f.name: given.pop(f.name) for f in fields(kind)}) for name, kind in groups.items()}
        command(**given, **made)

    called.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    return called


def kind_of(parameter: Parameter) -> Any:
    """The type of a command's parameter: of `Annotated[int | None, ...]`, int."""
    kinds = [kind for kind in get_args(parameter.annotation.__origin__) if kind is not NoneType]
    return kinds[0] if kinds else parameter.annotation.__origin__


def info_of(parameter: Parameter) -> Any:
    """The typer.Option or typer.Argument of a command's parameter."""
    return parameter.annotation.__metadata__[0]


def flag_of(parameter: Parameter) -> str:
    """What a person calls a command's parameter: --its-name, or of an argument its metavar."""
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
