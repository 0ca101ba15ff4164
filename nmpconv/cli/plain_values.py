"""Values of flags without pydantic, which typer (0.29 and later) reads every one with: its import takes 0.1 s."""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

SUMMARY = 200  # characters of a command's summary: more than any has


class PlainCommand(TyperCommand):
    """A command that reads plain values itself. What it does not take, or refuses, typer reads, and says why."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _read_plainly(super().get_params(ctx))


class PlainGroup(TyperGroup):
    """The same for the flags in front of a command. Summaries of commands go on in the next line, uncut."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _read_plainly(super().get_params(ctx))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, command.get_short_help_str(SUMMARY)) for name, command in commands if command is not None]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _read_plainly(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        theirs = getattr(parameter, "get_runtime_param", None)  # since typer 0.29
        if theirs is not None and not isinstance(theirs.__self__, _PlainValues):
            parameter.get_runtime_param = _PlainValues(theirs).itself
        if getattr(parameter, "is_flag", False):
            parameter.display_type_rich = _no_type
    return parameters


def _no_type(ctx: Any) -> None:
    """In help pages: a flag that takes no value has no type, which typer (0.29 and later) calls <bool>."""


class _PlainValues:
    """In place of typer's reader of a flag. theirs: gives that one."""

    def __init__(self, theirs: Callable[[], Any]) -> None:
        self._theirs = theirs

    def itself(self) -> _PlainValues:
        return self

    def coerce(self, value: Any, param: Any, ctx: typer.Context) -> Any:
        kind, info = param.type_descriptor.annotation, param.type_descriptor.parameter_info
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        try:
            if several and get_origin(kind) is list and isinstance(value, list | tuple):
                return [_plain(element, get_args(kind)[0], info) for element in value]
            return _plain(value, kind, info)
        except Exception:  # whatever a parser raises, it does so once more
            return self._theirs().coerce(value, param=param, ctx=ctx)


def _plain(value: Any, kind: Any, info: Any) -> Any:
    """The value of a flag's text. Raises ValueError for what is not plain."""
    if info.parser is not None:
        return info.parser(value)
    if isinstance(value, str) and kind is str:
        return value
    if isinstance(value, str) and isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if isinstance(value, str) and kind is Path and _is_any_path(info) and not _is_refused(value):
        return Path(value)
    raise ValueError


def _is_any_path(info: Any) -> bool:
    asks = (info.exists, info.writable, info.resolve_path, info.allow_dash, info.path_type)
    return not any(asks) and info.file_okay and info.dir_okay


def _is_refused(path: str) -> bool:
    """Checks for what is there and cannot be read."""
    return os.path.exists(path) and not os.access(path, os.R_OK)
