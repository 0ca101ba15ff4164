"""Trace of the passes: the stage's rules are checked, and the text is written on request."""

from __future__ import annotations

from pathlib import Path

from nmpconv.errors import OutputError
from nmpconv.graph.text import to_text
from nmpconv.graph.verify import verify
from nmpconv.ir import Graph


class Trace:
    """folder: gets one numbered text file a pass; None for checking only. checks: False for graphs that are tried, and
    made anew or checked later where they are taken."""

    def __init__(self, folder: Path | None = None, *, checks: bool = True) -> None:
        self._folder, self._checks, self._count = folder, checks, 0
        self._checked: tuple[Graph | None, str] = None, ""

    @property
    def writes(self) -> bool:
        return self._folder is not None

    def __call__(self, graph: Graph, stage: str, name: str) -> Graph:
        """The graph itself, after pass ``name`` of FLOAT, RANGED, INT or PLANNED."""
        if self._folder is not None:
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                (self._folder / f"{self._count:02d}-{name}.txt").write_text(to_text(graph), encoding="utf-8")
            except OSError as error:
                raise OutputError(
                    f"cannot write the graph's text: {error.strerror}", where=str(self._folder)
                ) from error
            self._count += 1
        before, at = self._checked
        if self._checks and not (graph is before and stage == at):  # many passes find nothing to do
            verify(graph, stage, name)
            self._checked = graph, stage
        return graph
