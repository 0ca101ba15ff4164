"""The command line: one command a file; here is the only place where an error becomes a message and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Collection, Sequence
from functools import cache
from importlib import import_module
from shutil import get_terminal_size
from typing import Annotated

import typer

from nmpconv import __version__
from nmpconv.cli import console
from nmpconv.cli.flags import today
from nmpconv.cli.plain_values import PlainCommand, PlainGroup
from nmpconv.cli.verbosity import reset, talking
from nmpconv.errors import INTERRUPTED, ExitCode, InputError, NmpError, OutputError

PANELS = 100  # columns of a terminal: in a narrower one, panels of a help page cut the names of options
BROKEN_PIPE = 141  # what a shell reports for a process that lost the reader of its pipe
# Commands in the order of --help, with the first sentence of their own: a command's module is imported when it runs.
COMMANDS = {
    "convert": "Quantize an ONNX model into one .nmp file.",
    "inspect": "Show inputs, ops, tensors and memory of a .nmp file.",
    "report": "Write a report as one HTML page.",
    "page": "Write one HTML page that runs the model.",
    "run": "Run a model on images, sounds or arrays.",
    "eval": "Measure accuracy on labelled data.",
    "bisect": "Rank tensors by quantization loss.",
    "bench": "Measure latency, op by op, here or on a device.",
    "compare": "Compare each op on a device with this machine.",
    "bundle": "Write C sources with models as a package for firmware.",
    "export": "Write the model as quantized (QDQ) ONNX.",
    "init": "Write a project file for `nmpconv build`.",
    "build": "Convert and check the targets of nmpconv.toml.",
    "ops": "List the ops and the ONNX types they cover.",
    "device": "List devices, show one, or flash a board.",
}
MODULES = {"report": "html_report", "page": "web_page"}  # those that are not called like their command
WITH_PRODUCTS = ("convert", "bisect", "build")  # of matrices: elsewhere BLAS is told to start no threads
WITHOUT_ARGUMENTS = ("build", "ops", "device")  # commands that mean something alone


def _version(asked: bool) -> None:
    if asked:
        console.line(f"nmpconv {__version__}")
        raise typer.Exit


@talking
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback with an unexpected error.")] = False,
) -> None:
    if debug:
        os.environ["NMP_DEBUG"] = "1"


def app_with(loaded: Collection[str]) -> typer.Typer:
    """The program, of whose commands only these can run; of others there is what --help says of them."""
    app = typer.Typer(
        name="nmpconv",
        cls=PlainGroup,
        help="Quantizes ONNX CNNs for integer-only devices with power-of-two scales, and runs them with the same bits "
        "everywhere.",
        epilog=f"Exit codes: {', '.join(f'{code.value} {code.meaning}' for code in ExitCode)}. NMP_DEBUG=1 shows where "
        "an unexpected error comes from. Every command has its own --help.",
        context_settings={"help_option_names": ["-h", "--help"], "token_normalize_func": today},
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(_options)
    for name, summary in COMMANDS.items():
        if name not in loaded:
            app.command(name, help=summary)(_not_loaded)
            continue
        module = import_module(f"nmpconv.cli.{MODULES.get(name, name)}")
        if name == "device":
            app.add_typer(module.app, name=name)
        else:
            bare = name in WITHOUT_ARGUMENTS
            app.command(name, cls=PlainCommand, no_args_is_help=not bare)(talking(module.command))
    return app


@cache
def whole_app() -> typer.Typer:
    """The program with all of its commands."""
    return app_with(COMMANDS)


def _not_loaded() -> None:
    raise AssertionError("the command that runs is loaded")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; arguments: those of the process when None."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a narrow encoding must not turn a name into a crash
            stream.reconfigure(errors="replace")
    drawn = console.decorated(sys.stdout) and console.decorated(sys.stderr) and get_terminal_size().columns >= PANELS
    words = list(sys.argv[1:] if arguments is None else arguments)
    completes = any(name.endswith("_COMPLETE") and name.startswith("_NMPCONV") for name in os.environ)
    app = app_with(COMMANDS if completes else [word for word in words if not word.startswith("-")][:1])
    app.rich_markup_mode = "rich" if drawn else None
    if words[:1] and words[0] not in WITH_PRODUCTS and "numpy" not in sys.modules:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    json = "--json" in words
    reset()
    try:
        code = _run(app, words)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of a pipe has seen enough
        return _unread()
    except Exception as error:
        if not _is_interrupt(error):
            from nmpconv.cli.refusals import is_usage, translated  # not loaded where nothing is refused

            return _explain(translated(error, words) if is_usage(error) else error, json)
        code = INTERRUPTED
    except KeyboardInterrupt:
        code = INTERRUPTED
    if code == INTERRUPTED:
        console.say("interrupted")
    return code


def _run(app: typer.Typer, arguments: Sequence[str]) -> int:
    """Runs a command; errors of the command line are raised as typer has them."""
    try:
        code = app(args=arguments, prog_name="nmpconv", standalone_mode=False)
    except SystemExit as end:  # of a pipe whose reader is gone
        if isinstance(end.__context__, BrokenPipeError):
            raise end.__context__ from None
        code = end.code
    except Exception as error:
        if type(error).__name__ != "NoArgsIsHelpError":
            raise
        error.show()  # type: ignore[attr-defined]
        code = ExitCode.USAGE
    return code if isinstance(code, int) else ExitCode.OK


def _unread() -> int:
    """Python would complain about the stream once more at its end, with an exit code of its own."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return BROKEN_PIPE


def _is_interrupt(error: BaseException | None) -> bool:
    """Ctrl-C while a library in C is imported becomes that library's own error."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _explain(error: Exception, json: bool) -> int:
    """The message on stderr, with --json the same as an object on stdout; the exit code."""
    known = _of_system(error) if isinstance(error, OSError | MemoryError) else error
    if not isinstance(known, NmpError):
        known = NmpError(
            f"nmpconv failed: {type(error).__name__}: {error}", hint="this is a bug of nmpconv; NMP_DEBUG=1 shows where"
        )
    if os.environ.get("NMP_DEBUG"):
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    console.say(f"error: {known.where}: {known.message}" if known.where else f"error: {known.message}")
    if known.hint:
        console.say(f"hint: {known.hint}")
    try:
        if json:
            console.as_json({"error": known.to_json()})
        sys.stdout.flush()
    except OSError:  # stderr has it
        _unread()
    return known.code


def _of_system(error: OSError | MemoryError) -> NmpError:
    """Error of an operating system's refusal, where no part of nmpconv had a better word for it."""
    if isinstance(error, MemoryError):
        hint = "a smaller model or a smaller --input-shape, fewer --workers, or a machine with more memory"
        return InputError(f"there is not enough memory{f': {error}' if str(error) else ''}", hint=hint)
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
    kind = OutputError if full or error.filename is None else InputError
    return kind(error.strerror or str(error), where=str(error.filename or "stdout"))
