"""The flags that every command has: how much it says, and in colour or not."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from nmpconv.cli import console
from nmpconv.cli.flags import Group, understood
from nmpconv.errors import UsageError


def _plain(asked: bool) -> bool:
    """Before anything is shown, a help page included."""
    if asked:
        os.environ["NO_COLOR"] = "1"
        os.environ.pop("FORCE_COLOR", None)
    return asked


@dataclass(frozen=True)
class Flags(Group):
    PANEL = "Messages"

    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Only errors and warnings on stderr.")] = False
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Notes, and how long stages take.")] = False
    no_color: Annotated[
        bool, typer.Option("--no-color", callback=_plain, is_eager=True, help="No colours; as NO_COLOR=1 does.")
    ] = False


@functools.cache
def _log() -> tuple[Any, Any]:
    """The logger of the package, and a handler that makes talk of its notes; loaded where somebody wants these."""
    import logging

    class ToStderr(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno < logging.WARNING:  # warnings are in what the command shows
                console.say(record.getMessage())

    return logging.getLogger("nmpconv"), ToStderr()


def reset() -> None:
    """The defaults, in which a command starts."""
    _set(quiet=False, verbose=False)


def _set(*, quiet: bool, verbose: bool) -> None:
    if quiet and verbose:
        raise UsageError("--quiet and --verbose exclude each other")
    console.Talk.quiet, console.Talk.verbose = quiet, verbose
    if verbose:
        log, handler = _log()
        log.addHandler(handler)
        log.setLevel("INFO")
    elif _log.cache_info().currsize:
        log, handler = _log()
        log.removeHandler(handler)
        log.setLevel("NOTSET")


def talking(command: Callable[..., None]) -> Callable[..., None]:
    """The command with these flags after its own, as typer is to see it."""
    flags = Flags.parameters()
    kinds = inspect.get_annotations(command, eval_str=True)
    own = [understood(p.replace(annotation=kinds[name])) for name, p in inspect.signature(command).parameters.items()]

    @functools.wraps(command)
    def called(**values: Any) -> None:
        asked = {flag.name: values.pop(flag.name) for flag in flags}
        _set(quiet=asked["quiet"] or console.Talk.quiet, verbose=asked["verbose"] or console.Talk.verbose)
        command(**values)

    called.__signature__ = inspect.Signature([*own, *flags])  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in [*own, *flags]}
    return called
