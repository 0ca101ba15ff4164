"""The cases of all ops in groups: a pytest item for each of 5000 cases would take longer than the cases."""

from __future__ import annotations

from collections.abc import Iterable

from nmpconv.ops import OPS, Case

CASES = [case for op in OPS.values() for case in op.cases()]


def grouped(cases: Iterable[Case]) -> dict[str, list[Case]]:
    """By the op and the first word after it, as "conv2d/3x3"."""
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault("/".join(case.id.split("/")[:2]), []).append(case)
    return groups
