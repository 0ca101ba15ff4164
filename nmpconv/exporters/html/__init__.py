"""A report as one HTML file that asks nothing of the network: text, tables and SVG, the same bytes for the same files.

Whatever comes from a file or a name is escaped by the templates.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from nmpconv import __version__
from nmpconv.base.quantities import joined, utf8
from nmpconv.base.short_names import of_files
from nmpconv.errors import UsageError
from nmpconv.exporters.html import diff, page
from nmpconv.exporters.html.subject import Subject, of_file

__all__ = ["Subject", "of_file", "render"]


def render(subjects: Sequence[Subject]) -> str:
    """The report of one file, or of two with what differs between them. UsageError for another number."""
    if not 1 <= len(subjects) <= 2:
        raise UsageError(f"{len(subjects)} files; a report is about one, or compares two")
    loader = PackageLoader("nmpconv.exporters.html", "templates")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    known = of_files(subject.model for subject in subjects)
    environment.filters |= {
        "short": lambda name: known.get(name, name),
        "fitted": lambda name, most: _fitted(str(known.get(name, name)), most),
        "named": lambda name: _breakable(str(known.get(name, name))),
        "grouped": "{:,}".format,
        "joined": joined,
    }
    # The project's own style and script stand in the page as they are; both are free of "</".
    source = {name: Markup(loader.get_source(environment, name)[0]) for name in ("style.css", "script.js")}
    text = environment.get_template("page.html").render(
        version=__version__,
        style=source["style.css"],
        script=source["script.js"],
        title=" and ".join(subject.name for subject in subjects),
        views=[_view(subject, f"f{i}") for i, subject in enumerate(subjects)],
        totals=diff.totals(*subjects) if len(subjects) == 2 else [],
        changed=list(diff.ops(*subjects)) if len(subjects) == 2 else [],
        compared=len(subjects) == 2,
    )
    return utf8(text)


def _fitted(name: str, most: int) -> str:
    """The end of a name that has room, begun with a word of it."""
    ends = [f"*{name[i:]}" for i in range(1, len(name)) if name[i] in "/_.:" and len(name) - i < most]
    return name if len(name) <= most else ends[0] if ends else "…" + name[1 - most :]


def _breakable(name: str) -> Markup:
    """A name that a line may end in, but not amid its words."""
    return Markup("<wbr>").join(re.split(r"(?<=[/_.:;*])(?=[^/_.:;*])", name))


def _view(subject: Subject, prefix: str) -> dict[str, object]:
    """prefix: of this file's anchors."""
    return {
        "prefix": prefix,
        "subject": subject,
        "verdict": subject.verdict,
        "results": list(page.results(subject)),
        "facts": page.facts(subject),
        "options": page.options(subject.model),
        "warnings": subject.warnings,
        "is_conversion": subject.report is not None,
        "notes": subject.report.notes if subject.report else (),
        "rows": list(page.rows(subject)),
        "sqnr": page.sqnr_chart(subject),
        "graph": page.graph(subject),
        "memory": page.memory(subject),
        "activations": list(page.activations(subject)),
        "weights": list(page.weights(subject)),
        "levers": page.levers(subject),
        "times": page.times(subject),
    }
