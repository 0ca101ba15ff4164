"""Differences of two files: totals, options, and op by op."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nmpconv.exporters.html import page
from nmpconv.exporters.html.subject import Subject

COLUMNS = ("kind", "shape", "bits", "exponent", "weights", "macs", "isolated", "cumulative")


def totals(a: Subject, b: Subject) -> list[tuple[str, str, str]]:
    """Results, facts and options of both, where they differ; digests, which nobody reads, come last."""
    rows = []
    for about in (page.results, page.facts, lambda subject: page.options(subject.model)):
        ours, theirs = dict(about(a)), dict(about(b))
        for name in dict.fromkeys((*ours, *theirs)):
            if ours.get(name) != theirs.get(name):
                rows.append((name, ours.get(name, "–"), theirs.get(name, "–")))
    return sorted(rows, key=lambda row: "sha256" in row[0])


def ops(a: Subject, b: Subject) -> Iterator[dict[str, Any]]:
    """By name: ops that only one has, and those that differ, with the cells that do."""
    ours, theirs = ({row["name"]: row for row in page.rows(subject)} for subject in (a, b))
    for name in dict.fromkeys((*ours, *theirs)):
        left, right = ours.get(name), theirs.get(name)
        if left is None or right is None:
            yield {"name": name, "only": "first" if right is None else "second", "cells": []}
        elif cells := [(key, left[key], right[key]) for key in COLUMNS if left[key] != right[key]]:
            yield {"name": name, "only": "", "cells": cells}
