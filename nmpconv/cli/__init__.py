"""The command line: one command a file; here is the only place where an error becomes a message and an exit code."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from nmpconv import __version__
from nmpconv.cli import bench, bundle, compare, convert, device, eval, export, html_report, inspect, ops, run, show
from nmpconv.errors import ExitCode, InputError, NmpError, OutputError

INTERRUPTED = 130  # what a shell reports for a process that Ctrl-C ended

app = typer.Typer(
    name="nmpconv",
    help="Quantizes ONNX CNNs for integer-only devices with power-of-two scales, and runs them with the same bits "
    "everywhere.",
    epilog=f"Exit codes: {', '.join(f'{code.value} {code.meaning}' for code in ExitCode)}. NMP_DEBUG=1 shows where an "
    "unexpected error comes from. Every command has its own --help.",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (convert, inspect, html_report, run, eval, bench, compare, bundle, export, ops):
    app.command(command.NAME, no_args_is_help=command is not ops)(command.command)
app.add_typer(device.app, name=device.NAME)


def _version(asked: bool) -> None:
    if asked:
        show.line(f"nmpconv {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback with an unexpected error.")] = False,
) -> None:
    if debug:
        os.environ["NMP_DEBUG"] = "1"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; arguments: those of the process when None."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a narrow encoding must not turn a name into a crash
            stream.reconfigure(errors="replace")
    app.rich_markup_mode = "rich" if sys.stdout.isatty() and sys.stderr.isatty() else None
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.INTERNAL
    except Exception as error:
        return _explain(error)
    except KeyboardInterrupt:
        code = INTERRUPTED
    if code == INTERRUPTED:
        show.say("interrupted")
    return code


def _run(arguments: Sequence[str] | None) -> int:
    try:
        app(args=arguments, prog_name="nmpconv")
    except SystemExit as end:  # typer always ends so; usage errors are shown by then
        return end.code if isinstance(end.code, int) else ExitCode.OK
    return ExitCode.OK


def _explain(error: Exception) -> int:
    """The message on stderr; the exit code."""
    known = _of_system(error) if isinstance(error, OSError) else error
    if not isinstance(known, NmpError):
        known = NmpError(
            f"nmpconv failed: {type(error).__name__}: {error}", hint="this is a bug of nmpconv; NMP_DEBUG=1 shows where"
        )
    if os.environ.get("NMP_DEBUG"):
        traceback.print_exception(error, file=sys.stderr)
    show.say(f"error: {known.where}: {known.message}" if known.where else f"error: {known.message}")
    if known.hint:
        show.say(f"hint: {known.hint}")
    return known.code


def _of_system(error: OSError) -> NmpError:
    """What the operating system refused, where no part of nmpconv had a better word for it."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
    kind = OutputError if full or error.filename is None else InputError
    return kind(error.strerror or str(error), where=str(error.filename or "stdout"))
