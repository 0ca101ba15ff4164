"""Output on a terminal, by rich: boxes, colours and bars. Only what is drawn for a person loads it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NoReturn, TextIO

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from nmpconv.base.quantities import scaled
from nmpconv.base.short_names import folded
from nmpconv.cli.console import FOLD, decorated

PACED = 60  # columns from which on a bar has room for how fast it goes


class _Console(Console):
    """rich's, but for a reader of a pipe that goes away: that is `main`'s business. NO_COLOR is rich's."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


def console_of(stream: TextIO) -> Console:
    return _Console(file=stream, highlight=False, force_terminal=decorated(stream))


def show_table(title: str, names: list[str], right: list[bool], cells: list[list[str]]) -> None:
    """On a terminal that is too narrow for all columns, parts below each other; each has the first column."""
    console = console_of(sys.stdout)

    def drawn(columns: Sequence[int], cells: list[list[str]]) -> Table:
        return _drawn([names[i] for i in columns], [right[i] for i in columns], _picked(cells, columns))

    def least(columns: Sequence[int]) -> int:
        return console.measure(drawn(columns, cells), options=console.options.update(max_width=1000)).minimum

    parts = [[0]]
    for i in range(1, len(names)):
        if len(parts[-1]) > 1 and least([*parts[-1], i]) > console.width:
            parts.append([0])
        parts[-1].append(i)
    if title:
        console.print(Text(title, style="table.title"))
    # Numbers are never cut: a part of two columns that is too wide runs over the edge.
    console.width = max([console.width, *map(least, parts)])
    for columns in parts:
        console.print(drawn(columns, cells), crop=False)


def _picked(cells: Sequence[Sequence[str]], columns: Sequence[int]) -> list[list[str]]:
    return [[row[i] for i in columns] for row in cells]


def _drawn(names: Sequence[str], right: Sequence[bool], cells: Sequence[Sequence[str]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for i, (name, to_right) in enumerate(zip(names, right, strict=True)):
        longest = max(map(cell_len, (name, *(row[i] for row in cells))))
        # "0.00 %" is two words for rich, but stays in one line.
        whole = to_right or longest <= FOLD
        justify: Literal["right", "left"] = "right" if to_right else "left"
        table.add_column(Text(name), justify=justify, no_wrap=whole, min_width=longest if whole else FOLD)
    for row in cells:
        table.add_row(*(Text(cell) if to_right else _Folding(cell) for cell, to_right in zip(row, right, strict=True)))
    return table


@dataclass(frozen=True)
class _Folding:
    """A cell that folds, to FOLD at least: rich parts words at spaces alone, and breaks longer ones anywhere."""

    text: str

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        cells = cell_len(self.text)
        return Measurement(min(FOLD, cells), cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        yield Text("\n".join(folded(self.text, options.max_width)), overflow="fold")  # wide characters


def show_styled(word: str, style: str) -> None:
    """Prints a word on stdout, and goes on in its line."""
    console_of(sys.stdout).print(Text(word, style), end="")


class _Rate(ProgressColumn):
    """Samples a second, bytes a second: whatever a stage counts."""

    def render(self, task: Task) -> Text:
        return Text(f"{scaled(task.speed).strip()}/s" if task.speed else "")


@contextmanager
def bars() -> Iterator[Progress]:
    """Bars on stderr, which vanish at the end."""
    console = console_of(sys.stderr)
    pace = (_Rate(), TimeRemainingColumn()) if console.width >= PACED else ()  # else counts would be cut
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), *pace)
    with Progress(*columns, console=console, transient=True) as bar:
        yield bar
