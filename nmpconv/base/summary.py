"""First sight of a result in Python: one line in a console, a sentence, figures and a table in a notebook."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from nmpconv.base.quantities import NOTHING, clean, joined
from nmpconv.base.verdict import UNSURE, WORDS
from nmpconv.errors import UsageError, as_keywords

ROWS_MAX = 200  # of a table in a notebook; the object has all
LINE_MAX = 240  # characters of the line in a console
BOX = "border:1px solid rgba(128,128,128,.4);border-radius:6px;padding:4px 10px;margin:0 6px 6px 0;display:inline-block"
COLOURS = dict(zip((*WORDS, UNSURE), ("#1a7f37", "#965800", "#c62828", "#6a6a6a"), strict=True))  # behind white
BADGE = "color:#fff;border-radius:6px;padding:1px 7px"  # readable on light and dark pages
SMALL = "opacity:.7;font-size:85%"


@dataclass(frozen=True)
class Summary:
    """title: of the kind of result. verdict: a sentence. tiles: named figures. columns, rows: a table of text, folded
    away; a column whose name starts with '>' is aligned to the right, one without entries is left out.
    warnings: for people. word: of a verdict, one of COLOURS, or ''.
    """

    title: str
    verdict: str
    tiles: Sequence[tuple[str, str]] = ()
    table: str = ""
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    warnings: Sequence[str] = ()
    word: str = ""

    def line(self) -> str:
        """The text of `repr`: at most LINE_MAX characters, none of which steers a terminal."""
        tiles = ", ".join(f"{name} {value}" for name, value in self.tiles if value)
        verdict = f"{self.word}: {self.verdict}" if self.word in COLOURS else self.verdict
        text = " ".join(clean("; ".join(filter(None, [f"{self.title}: {verdict}", tiles]))).split())
        return f"<{text if len(text) <= LINE_MAX - 2 else text[: LINE_MAX - 5] + '...'}>"

    def html(self) -> str:
        """A fragment without scripts, styles of a page or anything from elsewhere; what files name is escaped."""
        colour = COLOURS.get(self.word)
        badge = f'<b style="background:{colour};{BADGE}">{_text(self.word)}</b> ' if colour else ""
        parts = [f"<p><b>{_text(self.title)}</b> {badge}{_text(self.verdict)}</p>"]
        tiles = (
            f'<span style="{BOX}"><span style="{SMALL}">{_text(name)}</span><br><b>{_text(value)}</b></span>'
            for name, value in self.tiles
            if value
        )
        parts += ["<p>", *tiles, "</p>"]
        parts += [f"<p>warning: {_text(as_keywords(warning))}</p>" for warning in self.warnings]
        if self.rows:
            parts.append(f"<details><summary>{_text(self.table)} ({len(self.rows)})</summary>{self._table()}</details>")
        return f"<div>{''.join(parts)}</div>"

    def _table(self) -> str:
        used = [i for i in range(len(self.columns)) if any(row[i] not in ("", NOTHING) for row in self.rows)]
        ends = ["right" if self.columns[i].startswith(">") else "left" for i in used]
        head = _row("th", ((self.columns[i].removeprefix(">"), end) for i, end in zip(used, ends, strict=True)))
        shown = self.rows[:ROWS_MAX]
        body = "".join(_row("td", ((row[i], end) for i, end in zip(used, ends, strict=True))) for row in shown)
        left = len(self.rows) - len(shown)
        return f"<table>{head}{body}</table>" + (f"<p>and {left} more</p>" if left else "")


@dataclass(frozen=True)
class Chart:
    """A figure by name, in the order of the model. label: of the figure, with its unit. None: not known."""

    label: str
    names: Sequence[str]
    values: Sequence[float | None]


class Summarized:
    """Objects that show themselves by a `Summary`; a dataclass among them is declared with repr=False."""

    def records(self) -> list[dict[str, Any]]:
        """Rows of the table, with numbers as they are: of the same keys."""
        raise NotImplementedError

    def chart(self) -> Chart:
        """The figure that `plot` draws."""
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """A DataFrame of `records`. Raises UsageError where pandas is not installed."""
        return _package("pandas", "to_pandas").DataFrame(self.records())

    def plot(self, ax: Any = None) -> Any:
        """Axes with a bar for each figure of `chart`, the first at the top.

        ax: of matplotlib, to draw into; None: a new figure's. Raises UsageError where matplotlib is not installed.
        """
        pyplot = _package("matplotlib.pyplot", "plot")
        chart = self.chart()
        rows = range(len(chart.names))
        if ax is None:
            _, ax = pyplot.subplots(figsize=(7, 1 + 0.22 * len(rows)), layout="constrained")
        ax.barh(rows, [math.nan if v is None or not math.isfinite(v) else v for v in chart.values])
        ax.set_yticks(rows, labels=[clean(name) for name in chart.names])
        for label in ax.get_yticklabels():
            label.set_parse_math(False)  # names may hold dollars
        ax.invert_yaxis()
        ax.set_xlabel(chart.label)
        return ax

    def summary(self) -> Summary:
        """First sight of the object."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.summary().line()

    def _repr_html_(self) -> str:
        return self.summary().html()


def _package(module: str, method: str) -> Any:
    """An optional package. Raises UsageError."""
    name = module.partition(".")[0]
    try:
        return import_module(module)
    except ImportError:
        raise UsageError(f"{method}() needs {name}, which is not installed", hint=f"pip install {name}") from None


def _row(tag: str, cells: Iterable[tuple[str, str]]) -> str:
    filled = (f'<{tag} style="text-align:{end};padding:1px 8px">{_text(text)}</{tag}>' for text, end in cells)
    return f"<tr>{''.join(filled)}</tr>"


def _text(text: str) -> str:
    from html import escape

    return joined(escape(clean(text)))
