"""Terminal output: stdout is the result, stderr the talk; rich on a terminal, plain text in a pipe."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any, TextIO

from nmpconv.base.quantities import JOINT, joined
from nmpconv.base.quantities import NOTHING as NOTHING
from nmpconv.base.quantities import clean as clean
from nmpconv.base.quantities import db as db
from nmpconv.base.quantities import decibels as decibels
from nmpconv.base.quantities import duration as duration
from nmpconv.base.quantities import percent as percent
from nmpconv.base.quantities import rate as rate
from nmpconv.base.quantities import scaled as scaled
from nmpconv.base.quantities import size as size
from nmpconv.base.short_names import of_files as of_files
from nmpconv.base.short_names import shortened as shortened

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

LONG = 4000  # characters of a line of talk
OFF = ("", "0", "false")  # values of FORCE_COLOR that force nothing
FOLD = 16  # text columns of a table on a terminal may fold to this width
NAMES = ("layer", "name", "tensor", "output")  # columns of tables with names of the model's tensors and nodes
SCHEMA = 1  # of what --json prints: raised when a key goes or changes its sense, not when one comes


class Talk:
    """Verbosity of a command on stderr; `main` starts every command with the defaults."""

    quiet = False  # errors and warnings only
    verbose = False  # notes, and how long stages take


def decorated(stream: TextIO | None) -> bool:
    """Checks that a stream gets boxes and blocks: a terminal, or any where FORCE_COLOR is set and not off."""
    return stream is not None and (stream.isatty() or os.environ.get("FORCE_COLOR", "").lower() not in OFF)


def say(text: str) -> None:
    """Talk; a line with a name too long to read is cut. On a terminal, words stay whole. Where nobody can hear it, the
    work goes on.
    """
    if sys.stderr is None:  # of pythonw; print would take stdout
        return
    rows = [row if len(row) <= LONG else f"{row[: LONG // 2]} ... {row[-LONG // 2 :]}" for row in text.split("\n")]
    try:
        edge = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):  # no terminal, no file
        edge = 0
    rows = [part for row in rows for part in _wrapped(clean(row), edge)] if edge else rows
    try:
        print(clean("\n".join(rows)), file=sys.stderr, flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def line(text: str = "") -> None:
    """A line of the result."""
    print(clean(text))


def note(text: str) -> None:
    """A line of talk that --quiet leaves out."""
    if not Talk.quiet:
        say(text)


def as_json(value: Mapping[str, Any]) -> None:
    """The one JSON object of a command; what is infinite or undefined becomes null. Letters are as they are; characters
    that steer a terminal are escaped.
    """
    text = json.dumps(_finite({"schema": SCHEMA, **value}), indent=2, allow_nan=False, ensure_ascii=False)
    print("".join(c if c.isprintable() or c == "\n" else _escaped(c) for c in text))


def _escaped(character: str) -> str:
    """As JSON has it: in units of UTF-16."""
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))


@contextmanager
def on_stderr(asked: bool) -> Iterator[None]:
    """Sends what a person is to see to stderr, as a file goes to stdout."""
    if asked:
        with redirect_stdout(sys.stderr):
            yield
    else:
        yield


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    short: Mapping[str, str] | None = None,
) -> None:
    """A table of the result. A column whose name starts with '>' is aligned to the right; columns without any entry are
    left out; names in those of `NAMES` are short, but with --verbose.

    short: names of a file with short ones; None: those of the column alone are `shortened`.
    """
    known = None if short is None else {clean(name): clean(text) for name, text in short.items()}
    cells, title = [[clean(cell) for cell in row] for row in rows], clean(title)
    for i in (i for i, name in enumerate(columns) if name in NAMES):
        texts = {} if Talk.verbose else shortened(row[i] for row in cells) if known is None else known
        cells = [[*row[:i], texts.get(row[i], row[i]), *row[i + 1 :]] for row in cells]
    used = [i for i in range(len(columns)) if any(row[i] not in ("", NOTHING) for row in cells)]
    names = [columns[i].removeprefix(">") for i in used]
    right = [columns[i].startswith(">") for i in used]
    cells = [[row[i] for i in used] for row in cells]
    if not cells or not used:
        return
    if decorated(sys.stdout):
        from nmpconv.cli.terminal import show_table

        show_table(title, names, right, cells)
    else:
        _plain_table(title, names, right, cells)


def _plain_table(title: str, names: list[str], right: list[bool], cells: list[list[str]]) -> None:
    widths = [max(len(row[i]) for row in [names, *cells]) for i in range(len(names))]
    if title:
        print(title)
    for row in [names, *cells]:
        padded = [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        ]
        print("  ".join(padded).rstrip())
    print()


def columns() -> int | None:
    """Width of the terminal; None where stdout has no edge: in a pipe, in a file."""
    if not decorated(sys.stdout):
        return None
    from nmpconv.cli.terminal import console_of

    return console_of(sys.stdout).width


def rows() -> int | None:
    """Height of the terminal; None where stdout is none."""
    return shutil.get_terminal_size().lines if decorated(sys.stdout) else None


def facts(rows: Iterable[tuple[str, str]], styles: Mapping[str, tuple[str, str]] | None = None) -> None:
    """Named facts, one a line; on a terminal, long ones go on below themselves. Words stay whole.

    styles: by name, the beginning of a value and rich's style of it on a terminal.
    """
    entries = [(clean(name), clean(value)) for name, value in rows if value]
    width, edge = max((len(name) for name, _ in entries), default=0), columns()
    for name, value in entries:
        lines = value.splitlines()
        if edge is not None:
            lines = [part for text in lines for part in _wrapped(text, max(edge - width - 2, FOLD))]
        word, style = (styles or {}).get(name, ("", ""))
        for label, text in zip([name, *[""] * len(lines)], lines, strict=False):
            styled = bool(label and style and edge is not None and text.startswith(word))
            print(f"{label.ljust(width)}  ", end="")
            if styled:
                from nmpconv.cli.terminal import show_styled

                show_styled(word, style)
            print(text[len(word) :] if styled else text)
    print()


def _wrapped(text: str, width: int) -> list[str]:
    parts = textwrap.wrap(joined(text), width, break_long_words=False, break_on_hyphens=False, drop_whitespace=True)
    return [part.replace(JOINT, " ") for part in parts] or [""]


class Reporter:
    """Shows how far the stages of a long command are; callable as progress(stage, done, total)."""

    def __init__(self, bar: Progress | None) -> None:
        self._bar = bar
        self._tasks: dict[str, TaskID] = {}
        self._since = time.monotonic()

    def __call__(self, stage: str, done: int, total: int) -> None:
        if self._bar is not None:
            if stage not in self._tasks:
                self._tasks[stage] = self._bar.add_task(stage, total=total)
            self._bar.update(self._tasks[stage], completed=done, total=total)
        if done == total and (self._bar is None or Talk.verbose):
            note(f"{stage}: {done}/{total}{self._seconds()}")

    def _seconds(self) -> str:
        """Since the last stage ended, where that is wanted."""
        since, self._since = self._since, time.monotonic()
        return f", {duration(self._since - since)}" if Talk.verbose else ""


@contextmanager
def progress() -> Iterator[Reporter]:
    """Bars on a terminal; otherwise, and with --verbose, one line as each stage ends. Both on stderr."""
    if Talk.quiet or not decorated(sys.stderr):
        yield Reporter(None)
        return
    from nmpconv.cli.terminal import bars  # with it rich, which only a terminal needs

    with bars() as bar:
        yield Reporter(bar)


def span(low: int, high: int) -> str:
    """-7, or -7..-3."""
    return str(low) if low == high else f"{low}..{high}"


def exponents(values: Sequence[int]) -> str:
    """The exponent of a tensor, or the range over its channels."""
    return span(min(values), max(values)) if values else NOTHING


def shape(dims: Sequence[int]) -> str:
    return "x".join(map(str, dims)) or "scalar"


def bar(fraction: float, width: int = FOLD) -> str:
    """A horizontal bar of a fraction of ``width`` characters."""
    mark = "█" if decorated(sys.stdout) else "#"
    return mark * round(fraction * width)
