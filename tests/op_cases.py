"""The cases of all ops, made once in a process, and in groups: an item for each of 5000 would take longer than they."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import installed_ops  # noqa: F401

from nmpconv.file import writer
from nmpconv.graph import reference
from nmpconv.ops import OPS, Case
from nmpconv.ops.common.case import FILLS
from nmpconv.passes.memory import plan_memory

BY_OP = {name: list(op.cases()) for name, op in OPS.items()}
CASES = [case for cases in BY_OP.values() for case in cases]


def grouped(cases: Iterable[Case]) -> dict[str, list[Case]]:
    """By the op and the first word after it, as "conv2d/3x3"."""
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault("/".join(case.id.split("/")[:2]), []).append(case)
    return groups


VALUES = re.compile(rf"/({'|'.join(FILLS)})\b")
MOST = 12  # of a group in `few`


def few() -> list[Case]:
    """One of those that differ in what values their inputs have, and of a group at most `MOST`, from all of it: where a
    file is to be run, but not for its numbers."""
    apart = {VALUES.sub("", case.id): case for case in CASES}.values()
    return [case for group in grouped(apart).values() for case in group[:: -(-len(group) // MOST)]]


@cache
def data_of(index: int) -> bytes:
    """The file of a case, without a test vector. index: its place in CASES."""
    return writer.to_bytes(plan_memory.run(CASES[index].graph), {})


def file_of(folder: Path, case: Case) -> Path:
    """Its place in a folder of `write_files`."""
    return folder / f"{case.id.replace('/', '-')}.nmp"


def write_files(folder: Path) -> None:
    """Every case of every op as a file with a test vector: what the reference makes of its inputs."""
    for case in CASES:
        graph = case.graph
        wanted = reference.run(graph, dict(zip(graph.inputs, case.feeds, strict=True)))
        vector = ([x.tobytes() for x in case.feeds], [wanted[name].tobytes() for name in graph.outputs])
        file_of(folder, case).write_bytes(writer.to_bytes(plan_memory.run(graph), {}, [vector]))
