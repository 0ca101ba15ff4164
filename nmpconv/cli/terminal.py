"""Output on a terminal, by rich: boxes, colours and bars. Only what is drawn for a person loads it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, NoReturn, TextIO

from rich import box
from rich.console import Console
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

    # A name is one word for rich, but folds.
    folded = [[cell if to_right else cell[:FOLD] for cell, to_right in zip(row, right, strict=True)] for row in cells]

    def least(columns: Sequence[int]) -> int:
        return console.measure(drawn(columns, folded), options=console.options.update(max_width=1000)).minimum

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
        longest = max(len(name), *(len(row[i]) for row in cells))
        # "0.00 %" is two words for rich, but stays in one line. What folds, folds to FOLD at least, or rich may give it
        # less room than it needs, and draw over the edge.
        whole = to_right or longest <= FOLD
        least = longest if whole else FOLD
        justify: Literal["right", "left"] = "right" if to_right else "left"
        table.add_column(Text(name), justify=justify, overflow="fold", no_wrap=whole, min_width=least)
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    return table


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
