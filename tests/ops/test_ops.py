"""Every op's C gives the bytes of its reference, through a file and the memory plan."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from op_cases import BY_OP, CASES, data_of, grouped

from nmpconv.file import writer
from nmpconv.graph import reference
from nmpconv.ops import OPS
from nmpconv.passes.memory import plan_memory
from nmpconv.runtime import interpreter

GROUPS = grouped(CASES)
PLACES = {case.id: place for place, case in enumerate(CASES)}


@pytest.mark.parametrize("group", GROUPS)
def test_c_is_reference(group: str) -> None:
    for case in GROUPS[group]:
        graph = case.graph
        wanted = reference.run(graph, dict(zip(graph.inputs, case.feeds, strict=True)))
        data = data_of(PLACES[case.id])
        value = graph[graph.outputs[0]]
        expected = wanted[value.name]
        assert (expected.dtype, expected.shape) == (value.dtype, value.shape), case.id
        for level in interpreter.cpus():
            (got,) = interpreter.load(data, cpu=level).run(*case.feeds)
            assert (got.dtype, got.shape) == (expected.dtype, expected.shape), case.id
            np.testing.assert_array_equal(got, expected, err_msg=f"{case.id}, {level}")


@pytest.mark.parametrize("group", GROUPS)
def test_scratch_elsewhere(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scratch told for another machine with the portable kernels is what they need here."""
    monkeypatch.setenv("NMP_CPU", "portable")
    for case in GROUPS[group]:
        data = data_of(PLACES[case.id])
        here, there = (
            interpreter.needs(data),
            interpreter.needs_of_target(data, f"portable-{sys.maxsize.bit_length() + 1}"),
        )
        assert max(there.scratch_bytes) == here["scratch_bytes"], case.id
        assert there.activation_bytes == here["activation_bytes"], case.id


def test_an_op_that_needs_no_scratch_has_none() -> None:
    first = BY_OP["maximum"][0]
    assert interpreter.needs(writer.to_bytes(plan_memory.run(first.graph), {}))["scratch_bytes"] == 0


@pytest.mark.parametrize("name", OPS)
def test_nothing_behind_a_result_is_written(name: str) -> None:
    """The inputs lie there, and are as they were."""
    cases = [case for case in BY_OP[name] if case.graph[case.graph.outputs[0]].nbytes % 16 == 0]
    for case in cases[:: len(cases) // 16 + 1]:
        graph, (y,) = case.graph, case.graph.outputs
        values, at = [replace(graph[y], offset=0)], graph[y].nbytes
        for x in graph.inputs:
            values.append(replace(graph[x], offset=at))
            at += -(-graph[x].nbytes // 16) * 16
        data = writer.to_bytes(graph.with_values(*values), {})
        for level in (interpreter.cpus()[0], interpreter.cpus()[-1]):
            net = interpreter.load(data, cpu=level)
            for i, feed in enumerate(case.feeds):
                net.set_input(i, feed)
            net.run_ops(0, 1)
            for port, feed in zip(net.model.inputs, case.feeds, strict=True):
                assert net.tensor(port.tensor).tobytes() == feed.tobytes(), (case.id, level)


@pytest.mark.parametrize("name", OPS)
def test_widths_of_every_op(name: str) -> None:
    """The row of each in the table of `nmpconv ops`."""
    graphs = [case.graph for case in CASES if case.id.startswith(f"{name}/")]
    for side in ("inputs", "outputs"):
        found = {graph[n].dtype for graph in graphs for n in getattr(graph, side)}
        narrow = OPS[name].narrow or (name, side) == ("mul_offset", "outputs")
        assert found == {"int8"} | (set() if narrow else {"int16"})


def test_the_format_tells_every_op(root: Path) -> None:
    """The arithmetic of each, and which ones may lie on their first input."""
    text = (root / "schema" / "FORMAT.md").read_text(encoding="utf-8")
    assert [name for name in OPS if f"**{name}**" not in text] == [], "a paragraph of FORMAT.md is missing"
    [told] = re.findall(r"except \*in place\*: (.*?) may\s+put it exactly", text, re.DOTALL)
    in_place = {name for name, op in OPS.items() if op.in_place}
    assert set(re.split(r",\s+|\s+and\s+", told)) == in_place, "FORMAT.md, The memory plan, lists ops in place"


def test_case_ids_are_unique() -> None:
    ids = [case.id for case in CASES]
    assert len(ids) == len(set(ids))
    assert {id.split("/")[0] for id in ids} == set(OPS)
