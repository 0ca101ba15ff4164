"""Errors of the command line, in the words of all other errors: typer says it in its own, click's and pydantic's, which
differ from version to version."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from importlib import import_module
from inspect import Parameter
from itertools import pairwise
from pathlib import PurePath
from typing import Any

from typer.models import OptionInfo

from nmpconv.base.near_names import nearest
from nmpconv.cli.flags import OLDER, flag_of, info_of, kind_of, today
from nmpconv.cli.verbosity import talking
from nmpconv.errors import UsageError, refusal

# Words that are commands of other programs, and files, where a command should stand: what to type. {}: the program.
ELSEWHERE_COMMANDS = {
    "help": "{} -h tells more",
    "version": "{} --version",
    "quantize": "{} convert",
}
FILE_COMMANDS = {".onnx": "convert", ".tflite": "convert", ".pt2": "convert", ".nmp": "inspect"}


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
        hint = "; ".join(filter(None, [_elsewhere(typed), _nearest(typed, names)])) or help_
        return UsageError(f"there is no option {typed}", where=where, found=typed, hint=hint)
    if own is not None and type(error).__name__ == "MissingParameter":
        example = re.search(r"^\s*(nmpconv .+)", context.command.help or "", re.MULTILINE)
        hints = [info_of(own).help, f"For example: {example[1].strip()}" if example else help_]
        return UsageError(f"{flag_of(own)} is missing", where=where, hint=" ".join(filter(None, hints)))
    if own is not None:
        return _bad(error, own, opts, arguments, help_)
    if match := re.search(r"No such command '(.*?)'", message):
        commands = context.command.list_commands(context)
        hint = _as_a_command(match[1], where) or _nearest(match[1], commands) or f"there are {', '.join(commands)}"
        return UsageError(f"there is no command {match[1]!r}", where=where, found=match[1], hint=hint)
    if match := re.search(r"extra argument(?:s|\(s\))? \((.*)\)$", message):
        flags = [flag_of(parameter) for parameter in known.values()]
        hint = _beyond(match[1].split(), arguments, flags, where) or help_
        return UsageError(f"more arguments than it takes: {match[1]}", where=where, found=match[1], hint=hint)
    return UsageError(message, where=where, hint=help_)


def _as_a_command(word: str, where: str) -> str:
    """A hint for a word that stands where a command should: other programs have it, or it is a file."""
    if word.lower() in ELSEWHERE_COMMANDS:
        return ELSEWHERE_COMMANDS[word.lower()].format(where)
    suffix = PurePath(word).suffix.lower()
    return f"{where} {FILE_COMMANDS[suffix]} {word}" if suffix in FILE_COMMANDS else ""


def _beyond(words: Sequence[str], arguments: Sequence[str], flags: Sequence[str], where: str) -> str:
    """A hint for arguments that are too many.

    1. Numbers behind the one of a flag: a list of them has commas.
    2. Data, where the command has a flag for it: a folder's files, as the shell makes them of a pattern, or any.
    """
    before = [first.rpartition("=")[2] for first, second in pairwise(arguments) if second == words[0]]
    if all(map(_is_number, words)) and any(map(_is_number, before)):
        return "a list of numbers has commas and no spaces: 0.5,0.4,0.3"
    if "--data" not in flags:
        return ""
    if (data := _value(("--data",), arguments)) is None:
        return f"data are named by a flag: {where} MODEL --data SOURCE"
    kind, *kinds = ((path.parent, path.suffix) for path in map(PurePath, (data, *words)))
    is_expanded = kind in kinds and kind[1]
    return "--data takes a folder, not each of its files: leave out the pattern" if is_expanded else ""


def _is_number(word: str) -> bool:
    """Checks for one as it is typed in a list, a comma behind it or not."""
    return re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?,?", word, re.IGNORECASE) is not None


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
    words = [word.partition("=")[0] for word in arguments]
    long = (word for word in words if re.match(r"-\w{2,}", word) and word.startswith(name) and len(name) == 2)
    return next((word for word in words if _today(word) == name), next(long, name))


def _today(word: str) -> str:
    return f"--{today(word[2:])}" if word.startswith("--") else word


def _nearest(word: str, known: Iterable[str] | Mapping[str, str]) -> str:
    """A hint; '' where nothing is like it. known: names, or what to call each of them."""
    named = known if isinstance(known, Mapping) else {name: name for name in known}
    names = {name.lstrip("-"): shown for name, shown in named.items()}  # all options have hyphens: no likeness
    near = nearest(word.lower().lstrip("-"), names)
    return f"did you mean {names[near]}?" if near else ""
