"""16 bits unasked: for what makes the noise, where that costs nearly nothing, and for nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from float_nets import RELU, feeds, in_bits, observed
from nets import Net

from nmpconv.conversion import cheap_promotions
from nmpconv.conversion.candidates import AssumedWidths, CandidateEvaluator, ValidationSet, work
from nmpconv.conversion.quantizer import Fitter, Recipe
from nmpconv.errors import Unsupported
from nmpconv.graph.trace import Trace
from nmpconv.ir import Graph
from nmpconv.passes.memory import plan_memory, wider_tensors
from nmpconv.passes.memory.placement import Buffer
from nmpconv.passes.quantize.exponents import Method
from nmpconv.passes.quantize.overrides import NOTHING, Choices, Said
from nmpconv.passes.quantize.rounding import Rounding

MEAN, SMALL, OUT = "m", "s", "y"


def net() -> Graph:
    """A convolution, means of it that average its noise away, and a small layer whose own noise stays."""
    made = Net(2)
    made.input("x", 1, 16, 16, 3)
    made.conv("x", "a", 16, 3, clamp=RELU)
    made.conv("a", "b", 16, 3, clamp=RELU)
    made.op("average_pool", "b", MEAN, kernel_h=8, kernel_w=8, stride_h=8, stride_w=8)
    made.conv(MEAN, SMALL, 8, clamp=RELU)
    made.op("reshape", SMALL, "v", shape=(1, 32))
    made.dense("v", OUT, 5)
    return made.graph(OUT)


def found(
    graph: Graph,
    choices: Choices = NOTHING,
    finish: Callable[[Graph], Graph] = plan_memory.run,
    most: float = cheap_promotions.WORK,
    allows: Callable[[Fitter], bool] = lambda fitter: True,
):
    images = feeds(graph, 12)
    bits = in_bits(graph, 8, x=16, y=16)
    fitter = Fitter(graph, observed(graph, images), bits, Method(), Rounding(), images, choices=choices)
    trials = CandidateEvaluator(fitter, Recipe("none", False), ValidationSet(images[::3], None, images, finish))
    prepared = fitter.prepare("none", images, Trace())
    return cheap_promotions.run(trials, prepared, most, SimpleNamespace(allows=allows))


def test_the_loud_and_small() -> None:
    base, wide, _ = found(net())
    assert {MEAN, SMALL} & {*wide.wide}
    assert not {"a", "b"} & {*wide.wide}
    assert wide.db >= base.db + cheap_promotions.GAIN
    assert wide.ram <= base.ram
    assert wide.work <= (1 + cheap_promotions.WORK) * base.work
    assert cheap_promotions.note(base, wide).startswith(f"16 bits for {wide.wide[0]}")


def test_costs_of_a_few_grids_are_those_of_the_whole_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers at no changed tensor are those of the graph without wide tensors."""
    graph = net()
    fitter = SimpleNamespace(graph=graph, bits=in_bits(graph, 8, x=16, y=16))
    widths = AssumedWidths(fitter)
    plain, planned = widths.graph(()), list[int]()
    buffers_of = plan_memory.buffers_of

    def counted(*arguments: Any, **options: Any) -> list[Buffer]:
        planned.append(len(buffers_of(*arguments, **options)))
        return buffers_of(*arguments, **options)

    monkeypatch.setattr(wider_tensors, "buffers_of", counted)
    is_cheap, ram = cheap_promotions._costs(fitter, 0.1), plan_memory.lower_bound(plain)
    names = [(value.name,) for value in graph.activations()]
    answers = []
    for wide in [*names, (MEAN, SMALL), ("a", MEAN, "v")]:
        whole = widths.graph(wide)
        enough = work(whole) <= 1.1 * work(plain)
        answers.append(is_cheap(*wide))
        assert answers[-1] == (enough and plan_memory.lower_bound(whole) <= ram)
    assert {*answers} == {True, False}
    assert len(planned) > 1 and max(planned[1:]) < planned[0]


def test_instructions_are_counted_once_where_all_may_be_wide() -> None:
    asked = list[int]()
    _, wide, _ = found(net(), allows=lambda fitter: asked.append(len(fitter.choices.tensors)) or True)
    assert asked == [2] and len(wide.wide) <= 2


@pytest.mark.parametrize("limit", ["SHARE", "FLASH", "GAIN"])
def test_every_limit_counts(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(cheap_promotions, limit, {"SHARE": 1.5, "FLASH": -0.5, "GAIN": 60.0}[limit])
    assert found(net()) is None


def test_work_and_instructions_are_limited() -> None:
    assert found(net(), most=0.0) is None
    assert found(net(), most=inf) is not None
    _, wide, _ = found(net(), allows=lambda fitter: SMALL not in fitter.choices.tensors)
    assert wide.wide == (MEAN,)
    assert found(net(), allows=lambda fitter: False) is None


def is_wide(graph: Graph) -> bool:
    return any(graph[name].quant.bits == 16 for name in (MEAN, SMALL) if name in graph.values)


def larger(graph: Graph) -> Graph:
    """A plan that takes more RAM for what is wide."""
    planned = plan_memory.run(graph)
    ends = [value for value in planned.activations() if value.offset is not None and is_wide(graph)]
    return planned.with_values(*(replace(value, offset=value.offset + 1024) for value in ends))


def none(graph: Graph) -> Graph:
    if is_wide(graph):
        raise Unsupported("it does not fit")
    return plan_memory.run(graph)


@pytest.mark.parametrize("finish", [larger, none])
def test_ram_stays(finish: Callable[[Graph], Graph]) -> None:
    assert found(net(), finish=finish) is None


def test_widths_that_were_given_stay() -> None:
    narrow = Choices({name: {"bits": Said(8, "here")} for name in (MEAN, SMALL)})
    assert found(net(), narrow) is None
