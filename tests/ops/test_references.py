"""The references against the equations computed element by element, and the batches that only the converter feeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from brute import BRUTE
from op_cases import CASES, grouped

from nmpconv.graph import reference
from nmpconv.graph.text import parse
from nmpconv.ops import OPS, Case
from nmpconv.ops.common.accumulate import accumulate, accumulator_bound, exact_type, magnitude

STEPS = 40_000  # what brute force may spend on a case
MANY, EVERY = 15_000, 4  # of those that take more, how many there are to one that it computes


def cost(case: Case) -> int:
    node = case.graph.nodes[0]
    ins, outs = case.graph.ins(node), case.graph.outs(node)
    kernel = getattr(node.params, "kernel_h", 1) * getattr(node.params, "kernel_w", 1)
    line = ins[0].shape[node.params.axis] if node.op == "softmax" else 1
    if node.op == "normalize":
        line = int(np.prod([ins[0].shape[axis] for axis in node.params.axes]))
    return max(OPS[node.op].macs(node.params, ins, outs), outs[0].size * kernel * line)


def run(case: Case) -> np.ndarray:
    feeds = dict(zip(case.graph.inputs, case.feeds, strict=True))
    return reference.run(case.graph, feeds)["y"]


SMALL = [case for case in CASES if case.graph.nodes[0].op in BRUTE and cost(case) <= STEPS]
IS_LARGE = [i % EVERY != 0 and cost(case) > MANY for i, case in enumerate(SMALL)]
GROUPS, REST = (
    grouped(case for case, large in zip(SMALL, IS_LARGE, strict=True) if large == later) for later in (False, True)
)


@pytest.mark.parametrize("group", GROUPS)
def test_reference_is_the_equation(group: str) -> None:
    check(GROUPS[group])


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("group", REST)
def test_reference_is_the_equation_of_large_cases(group: str) -> None:
    check(REST[group])


def check(cases: list[Case]) -> None:
    for case in cases:
        graph, node = case.graph, case.graph.nodes[0]
        feeds = dict(zip(graph.inputs, case.feeds, strict=True))
        arrays = [feeds[v.name] if v.data is None else v.data for v in graph.ins(node)]
        equation = BRUTE[node.op](graph, node, arrays).astype(np.int64)
        np.testing.assert_array_equal(run(case), equation, err_msg=case.id)


def test_brute_force_reaches_every_op() -> None:
    assert {case.graph.nodes[0].op for case in SMALL} == set(BRUTE)
    assert set(OPS) - set(BRUTE) == {"concat", "reshape", "custom"}  # numpy's own, and users'


def joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.atleast_1d(part) for part in parts])


SCALARS = [c for c in CASES if () in (*(x.shape for x in c.feeds), c.graph["y"].shape)]


@pytest.mark.parametrize("case", [*SCALARS, *[c for c in CASES if cost(c) <= STEPS][::7]], ids=lambda case: case.id)
def test_a_batch_is_its_samples(case: Case) -> None:
    """Three samples at once are the three one by one, along axis 0; scalars are [3]."""
    samples = [case.feeds, tuple(np.flip(x) for x in case.feeds), tuple(x // 2 for x in case.feeds)]
    alone = [run(Case(case.id, case.graph, feeds)) for feeds in samples]
    feeds = tuple(joined(parts) for parts in zip(*samples, strict=True))
    np.testing.assert_array_equal(run(Case(case.id, case.graph, feeds)), joined(alone))


STRAIGHT = """\
graph straight
input x : int8[2] bits=8 exp=[0] lo=-128 hi=127
first = add(x, x)
  a : int8[2] bits=8 exp=[0] lo=-128 hi=127
unread = add(a, a)
  b : int8[2] bits=8 exp=[0] lo=-128 hi=127
second = add(x, a)
  y : int8[2] bits=8 exp=[0] lo=-128 hi=127
output y
"""


def test_what_no_later_node_reads_is_dropped() -> None:
    graph = parse(STRAIGHT)
    env = {"x": np.array([1, 2], np.int8)}
    alive = []
    for node in reference.walk(graph, env):
        alive.append(set(env))
        env.update(reference.step(graph, node, env))
    assert alive == [{"x"}, {"x", "a"}, {"x", "a"}]
    assert env == {}
    kept = reference.run(graph, {"x": np.array([1, 2], np.int8)}, keep=["b", "x"])
    assert {name: array.tolist() for name, array in kept.items()} == {"x": [1, 2], "b": [4, 8], "y": [3, 6]}


@pytest.mark.parametrize("k", [1, 63, 64, 1024, 4096])
@pytest.mark.parametrize(("x_bits", "w_bits"), [(8, 8), (8, 16), (16, 16)])
@pytest.mark.parametrize("low", [False, True])
def test_sums_by_blas_are_exact(k: int, x_bits: int, w_bits: int, low: bool) -> None:
    """At the bound of float32 (2^24), beyond it, and with nothing that cancels."""
    rng = np.random.default_rng(k)
    x = rng.integers(-(2 ** (x_bits - 1)), 2 ** (x_bits - 1), (5, 1, k))
    w = rng.integers(-(2 ** (w_bits - 1)), 2 ** (w_bits - 1), (3, k))
    if low:
        x[:], w[:] = -(2 ** (x_bits - 1)), -(2 ** (w_bits - 1))
    kind = exact_type(accumulator_bound(magnitude(x), w))
    exact = [[sum(int(a) * int(b) for a, b in zip(row[0], channel, strict=True)) for channel in w] for row in x]
    np.testing.assert_array_equal(accumulate(x, w, kind).astype(np.int64), np.array(exact))


def test_exact_types() -> None:
    assert exact_type(2**24) is np.float32
    assert exact_type(2**24 + 1) is np.float64
    assert exact_type(2**53) is np.int64
