"""Flags that belong together, declared as the fields of a dataclass."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import Enum
from inspect import Parameter
from typing import Any, ClassVar, get_type_hints


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
