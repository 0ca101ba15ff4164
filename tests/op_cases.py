"""The cases of all ops, made once in a process, and in groups: an item for each of 5000 would take longer than they."""

from __future__ import annotations

from collections.abc import Iterable

import installed_ops  # noqa: F401

from nmpconv.ops import OPS, Case

BY_OP = {name: list(op.cases()) for name, op in OPS.items()}
CASES = [case for cases in BY_OP.values() for case in cases]


def grouped(cases: Iterable[Case]) -> dict[str, list[Case]]:
    """By the op and the first word after it, as "conv2d/3x3"."""
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault("/".join(case.id.split("/")[:2]), []).append(case)
    return groups
