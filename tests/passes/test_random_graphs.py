"""Random graphs through all float passes: the function stays, the stage's rules hold, the text reads back, it plans."""

from __future__ import annotations

from dataclasses import replace

import pytest
from random_graphs import Maker
from test_passes import assert_same_function

from nmpconv.graph.text import parse, to_text
from nmpconv.graph.verify import _intact, _places, verify
from nmpconv.passes.float import FLOAT
from nmpconv.passes.memory import plan_memory

BLOCK = 20


def check(seed: int) -> None:
    before = Maker(seed).graph()
    if not before.outputs:
        return
    after = before
    for name, function in FLOAT:
        after = function(after)
        verify(after, "FLOAT", name)
    assert after.outputs == before.outputs
    assert_same_function(before, after, seed)
    text = to_text(after)
    again = parse(text, {name: value.data for name, value in after.values.items() if value.data is not None})
    assert again == after
    assert to_text(again) == text
    planned = plan_memory.run(after.with_values(*(replace(value, dtype="int8") for value in after.activations())))
    assert list(_places(planned)) == []
    assert list(_intact(planned)) == []


@pytest.mark.parametrize("block", range(10))
def test_random_graphs(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10, 80))
def test_many_random_graphs(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        check(seed)
