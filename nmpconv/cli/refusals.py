"""Errors of the command line, in the words of all other errors: typer says it in its own, click's and pydantic's, which
differ from version to version."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from importlib import import_module
from inspect import Parameter
from typing import Any

from typer.models import OptionInfo

from nmpconv.base.near_names import nearest
from nmpconv.cli.flags import OLDER, flag_of, info_of, kind_of, today
from nmpconv.cli.verbosity import talking
from nmpconv.errors import UsageError, refusal


def is_usage(error: BaseException) -> bool:
    """Says that typer refuses the command line."""
    return hasattr(error, "format_message")


def translated(error: Any, arguments: Sequence[str]) -> UsageError:
    """typer's error in our own words. error: for which `is_usage` holds. arguments: of the command line."""
    context, message = getattr(error, "ctx", None), error.format_message()
    name, param = getattr(error, "option_name", ""), getattr(error, "param", None)
    if context is None:
        needs = f"the flag takes {'no' if 'not take' in message else 'a'} value"
        return UsageError(needs, where=_typed(name, arguments)) if name else UsageError(message)
    where, help_ = context.command_path, f"{context.command_path} -h tells more"
    known = {} if context.command.callback is None else inspect.signature(context.command.callback).parameters
    own, opts = (None, ()) if param is None else (known.get(param.name), param.opts)
    if hasattr(error, "possibilities"):
        typed = _typed(name, arguments)
        flags = [flag_of(parameter) for parameter in known.values() if isinstance(info_of(parameter), OptionInfo)]
        older = {f"--{old}": f"--{new}" for old, new in OLDER.items() if f"--{new}" in flags}
        names = {**older, **{flag: flag for flag in flags}}
        hint = _nearest(typed, names) or _elsewhere(typed) or help_
        return UsageError(f"there is no option {typed}", where=where, found=typed, hint=hint)
    if own is not None and type(error).__name__ == "MissingParameter":
        example = re.search(r"^\s*(nmpconv .+)", context.command.help or "", re.MULTILINE)
        hints = [info_of(own).help, f"For example: {example[1].strip()}" if example else help_]
        return UsageError(f"{flag_of(own)} is missing", where=where, hint=" ".join(filter(None, hints)))
    if own is not None:
        return _bad(error, own, opts, arguments, help_)
    if match := re.search(r"No such command '(.*?)'", message):
        commands = context.command.list_commands(context)
        hint = _nearest(match[1], commands) or f"there are {', '.join(commands)}"
        return UsageError(f"there is no command {match[1]!r}", where=where, found=match[1], hint=hint)
    if match := re.search(r"extra argument(?:s|\(s\))? \((.*)\)$", message):
        return UsageError(f"more arguments than it takes: {match[1]}", where=where, found=match[1], hint=help_)
    return UsageError(message, where=where, hint=help_)


def _elsewhere(flag: str) -> str:
    """A hint that names the commands that have a flag; "" where none has it."""
    from nmpconv.cli import COMMANDS, MODULES  # it imports this module

    having = []
    for name in COMMANDS:
        module = import_module(f"nmpconv.cli.{MODULES.get(name, name)}")
        parameters = inspect.signature(talking(module.command)).parameters if hasattr(module, "command") else {}
        if flag in (flag_of(own) for own in parameters.values() if isinstance(info_of(own), OptionInfo)):
            having.append(f"nmpconv {name}")
    return f"{', '.join(having)} {'has' if len(having) == 1 else 'have'} it" if having else ""


def _bad(error: Any, own: Parameter, names: Iterable[str], arguments: Sequence[str], hint: str) -> UsageError:
    """A value that the parameter cannot have. names: of its flag."""
    kind, value = kind_of(own), _value(names, arguments)
    if value is None or not issubclass(kind, Enum):
        return UsageError(error.message, where=flag_of(own), hint=hint)
    allowed = [str(member.value) for member in kind]
    return refusal(value, ", ".join(allowed), flag_of(own), _nearest(value, allowed))


def _value(names: Iterable[str], arguments: Sequence[str]) -> str | None:
    """The value of a flag that is given last."""
    for i in range(len(arguments) - 1, -1, -1):
        name, equals, value = arguments[i].partition("=")
        if _today(name) in names:
            return value if equals else next(iter(arguments[i + 1 : i + 2]), None)
    return None


def _typed(name: str, arguments: Sequence[str]) -> str:
    """A flag as it was typed: typer knows older names by today's only."""
    words = (word.partition("=")[0] for word in arguments)
    return next((word for word in words if _today(word) == name), name)


def _today(word: str) -> str:
    return f"--{today(word[2:])}" if word.startswith("--") else word


def _nearest(word: str, known: Iterable[str] | Mapping[str, str]) -> str:
    """A hint; '' where nothing is like it. known: names, or what to call each of them."""
    named = known if isinstance(known, Mapping) else {name: name for name in known}
    names = {name.lstrip("-"): shown for name, shown in named.items()}  # all options have hyphens: no likeness
    near = nearest(word.lower().lstrip("-"), names)
    return f"did you mean {names[near]}?" if near else ""
