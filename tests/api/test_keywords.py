"""Every flag of a command is a keyword of its function: same name, same default, same choices."""

from __future__ import annotations

import inspect
from enum import Enum
from typing import Any, NamedTuple, get_args, get_type_hints

import pytest
from typer.models import OptionInfo

import nmpconv
from nmpconv.api.choices import CHOICES
from nmpconv.cli import app

COMMANDS = {
    "convert": "convert",
    "eval": "evaluate",
    "inspect": "inspect",
    "bench": "bench",
    "bundle": "bundle",
    "export": "export",
    "report": "html_report",
}
# Flags that say what is printed, or where to: a program has the result in hand.
PRINTED = {
    "convert": {"output", "json"},  # Converted.save
    "eval": {"json"},
    "inspect": {"tensors", "memory", "json"},
    "bench": {"json"},
    "bundle": {"json"},
    "export": {"output", "json"},  # the function returns the bytes
    "report": {"output", "json"},  # the function returns the text
}
RENAMED = {"calib": "data"}  # what all functions call their samples
OURS = {"model", "files", "data", "example_inputs", "journal", "progress"}  # keywords without a flag


class Flag(NamedTuple):
    default: Any
    choices: list[str]


def flags(command: str) -> dict[str, Flag]:
    """The options of a command by the keyword that each is to be."""
    callback = next(known.callback for known in app.registered_commands if known.name == command)
    assert callback is not None
    kinds = get_type_hints(callback, include_extras=True)
    found = {}
    for parameter in inspect.signature(callback).parameters.values():
        kind, option = kinds[parameter.name].__origin__, kinds[parameter.name].__metadata__[0]
        if isinstance(option, OptionInfo):
            written = (option.default, *(option.param_decls or ()))  # typer calls the first one the default
            long = [text.split("/")[0] for text in written if isinstance(text, str) and text.startswith("--")]
            name = long[0].lstrip("-").replace("-", "_") if long else parameter.name
            enums = [one for one in (kind, *get_args(kind)) if isinstance(one, type) and issubclass(one, Enum)]
            choices = [member.value for one in enums for member in one]
            found[RENAMED.get(name, name)] = Flag(parameter.default, choices)
    return found


def keywords(command: str) -> dict[str, Any]:
    """Keyword to default of the function that a command is."""
    signature = inspect.signature(getattr(nmpconv, COMMANDS[command]))
    return {name: parameter.default for name, parameter in signature.parameters.items()}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_flag_is_a_keyword(command: str) -> None:
    names = set(flags(command))
    assert PRINTED[command] <= names
    assert names - PRINTED[command] == set(keywords(command)) - (OURS - names)


@pytest.mark.parametrize("command", COMMANDS)
def test_defaults_are_the_same(command: str) -> None:
    ours = keywords(command)
    given = {name: flag.default for name, flag in flags(command).items() if flag.default is not inspect.Parameter.empty}
    plain = {name: getattr(default, "value", default) for name, default in given.items() if name in ours}
    assert {name: ours[name] for name in plain} == plain


@pytest.mark.parametrize("command", COMMANDS)
def test_choices_are_the_same(command: str) -> None:
    for name, flag in flags(command).items():
        if flag.choices:
            allowed = get_args(CHOICES[name])
            assert [value for value in allowed if isinstance(value, str)] == flag.choices, name
            assert {str(value) for value in allowed} == set(flag.choices), name


def test_the_flags_of_convert_are_found() -> None:
    found = flags("convert")
    assert {"data", "bits", "calib_limit", "drop_channels", "mean", "dry_run"} <= set(found)
    assert "a16w8" in found["bits"].choices
