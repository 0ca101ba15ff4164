"""With `--faithful` no float pass looks across a tensor that the model rounds: its integers are to be the model's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nmpconv.graph.text import parse
from nmpconv.ir import Given, Graph
from nmpconv.ops import OPS
from nmpconv.passes.float import FLOAT

PASSES = dict(FLOAT)
FOLDER = Path(__file__).parent / "float"
# What these leave out moves data, or saturates on one grid.
MOVING = {"fuse_clamp", "idle_clamps", "layout", "identity_of_ports"}
CASES = [
    path for name in PASSES for path in sorted(FOLDER.glob(f"{name}/*.txt")) if MOVING.isdisjoint((name, path.stem))
]


def kept(graph: Graph, step: float) -> Graph:
    """The same where the model rounds every activation to this step."""
    grid = Given(step, 0, "int8")
    return replace(graph, given={value.name: grid for value in graph.activations()}, faithful=True)


def computed(graph: Graph) -> set[str]:
    """Results that more than moves make, and that something needs."""
    needed = {*graph.outputs, *(name for node in graph.nodes for name in node.inputs)}
    return {
        name
        for node in graph.nodes
        for name in node.outputs
        if OPS[node.op].grid != "same" and node.op != "requantize" and name in needed
    }


def graph_of(path: Path) -> Graph:
    lines = path.read_text(encoding="utf-8").partition("---")[0].splitlines()
    return parse("\n".join(line for line in lines if not line.startswith("#")))


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_rounded_tensors_stay(path: Path) -> None:
    graph = graph_of(path)
    after = PASSES[path.parent.name](kept(graph, 2.0**-4))
    assert computed(graph) <= after.values.keys()


@pytest.mark.parametrize("name", ["prune/multiples", "fold_affine/after_conv", "variance/sums", "fuse_norm/unit"])
def test_other_steps_round_to_other_integers_anyway(name: str) -> None:
    graph = graph_of(FOLDER / f"{name}.txt")
    run = PASSES[Path(name).parent.name]
    assert {*run(kept(graph, 0.1)).values} == {*run(graph).values}
    assert {*run(kept(graph, 0.125)).values} != {*run(graph).values}


@pytest.mark.parametrize(("steps", "left"), [((0.25, 0.25), 1), ((0.25, 0.1), 2)])
def test_equal_ops_on_two_grids_are_two(steps: tuple[float, float], left: int) -> None:
    graph = parse(
        """graph net
input x : float32[1,4]
const c : float32[1] = [3.0]
a_op = add(x, x)
  a : float32[1,4]
b_op = add(x, x)
  b : float32[1,4]
y_op = maximum(a, c)
  y : float32[1,4]
z_op = maximum(b, c)
  z : float32[1,4]
output y
output z
"""
    )
    given = {name: Given(step, 0, "int8") for name, step in zip("ab", steps, strict=True)}
    after = PASSES["prune"](replace(graph, given=given, faithful=True))
    assert len({node.inputs[0] for node in after.nodes if node.op == "maximum"}) == left


@pytest.mark.parametrize(("step", "whole"), [(0.25, "a"), (0.5, "c")])
def test_a_part_of_a_concat_on_another_grid_is_rounded_there(step: float, whole: str) -> None:
    graph = parse(
        """graph net
input a : float32[1,4]
input b : float32[1,4]
c_op = concat(a, b) axis=1
  c : float32[1,8]
s_op = slice(c) starts=[0,1] steps=[1,1] sizes=[1,3]
  s : float32[1,3]
y_op = lookup(s) function="tanh"
  y : float32[1,3]
output y
output c
"""
    )
    given = {"a": Given(0.25, 0, "int8"), "c": Given(step, 0, "int8")}
    after = PASSES["prune"](replace(graph, given=given, faithful=True))
    assert [node.inputs for node in after.nodes if node.op == "slice"] == [(whole,)]


@pytest.mark.parametrize(("middle", "left"), [(0.0625, 0), (0.25, 2)])
def test_moves_on_another_grid_are_not_merged(middle: float, left: int) -> None:
    graph = parse(
        """graph net
input x : float32[1,4,6]
a_op = transpose(x) perm=[0,2,1]
  a : float32[1,6,4]
b_op = transpose(a) perm=[0,2,1]
  b : float32[1,4,6]
y_op = lookup(b) function="tanh"
  y : float32[1,4,6]
output y
"""
    )
    given = {"x": Given(0.0625, 0, "int8"), "a": Given(middle, 0, "int8")}
    after = PASSES["layout"](replace(graph, given=given, faithful=True))
    assert sum(node.op == "transpose" for node in after.nodes) == left
