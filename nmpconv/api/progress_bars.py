"""Progress that `progress=True` asks for: bars in a notebook and on a terminal, else a line as each stage ends."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from nmpconv.base.progress import Progress


@contextmanager
def bars() -> Iterator[Progress]:
    """A function that shows progress on stderr, or below a notebook's cell where tqdm is installed. Bars go away at
    the end, after an error, too."""
    if "ipykernel" in sys.modules and find_spec("tqdm") is not None:
        with _by_tqdm() as shown:
            yield shown
    elif sys.stderr.isatty():
        with _by_rich() as shown:
            yield shown
    else:
        yield _line


def _line(stage: str, done: int, total: int) -> None:
    if done == total:
        print(f"{stage}: {done}/{total}", file=sys.stderr, flush=True)


@contextmanager
def _by_tqdm() -> Iterator[Progress]:
    from tqdm.auto import tqdm

    open_bars: dict[str, Any] = {}

    def shown(stage: str, done: int, total: int) -> None:
        if stage not in open_bars:
            open_bars[stage] = tqdm(desc=stage, leave=False)
        bar = open_bars[stage]
        bar.total, bar.n = total, done
        bar.refresh()

    try:
        yield shown
    finally:
        for bar in open_bars.values():
            bar.close()


@contextmanager
def _by_rich() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import Progress as Bars

    tasks: dict[str, Any] = {}
    with Bars(console=Console(stderr=True), transient=True) as drawn:

        def shown(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = drawn.add_task(stage, total=total)
            drawn.update(tasks[stage], completed=done, total=total)

        yield shown
