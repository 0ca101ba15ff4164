"""The verifier: a legal graph passes; every rule of every stage is broken once, and named with pass and node."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from nmpconv.errors import VerifyError
from nmpconv.graph.text import parse, to_text
from nmpconv.graph.verify import RULES, verify
from nmpconv.ir import Graph
from nmpconv.ops import OPS

FLOAT = """\
graph small
input x : float32[1,4,4,2]
const w : float32[2,1,1,2] = [1,2,3,4]
const b : float32[2] = [1,2]
const k : float32[2] = [0,1]
const v : float32[1] = [0]
conv = conv2d(x, w, b, k) pad_top=1
  c : float32[1,5,4,2] clamp=[0.0,6.0]
border = pad(c, v) pads=[0,0,0,0,1,1,0,0]
  p : float32[1,5,6,2]
sum = add(p, p)
  s : float32[1,5,6,2]
flat = reshape(s) shape=[1,60]
  y : float32[1,60]
output y
"""
RANGED = re.sub(r"(input x|  \w) : (\S+)", r'\1 : \2 observed=[-1.0,1.0,"mse"] bits=8 exp=[-4] lo=-128 hi=127', FLOAT)
INT = """\
graph small
input x : int8[1,4,4,2] observed=[-128.0,127.0,"fixed"] bits=8 exp=[0] lo=-128 hi=127
const w : int8[2,1,1,2] bits=8 exp=[-7,-8] lo=-128 hi=127 axis=0 = [1,2,3,4]
const b : int16[2] bits=16 exp=[-4] lo=-32768 hi=32767 = [1,200]
const k : int8[2] bits=8 exp=[0] lo=-128 hi=127 = [0,-128]
const v : int8[1] bits=8 exp=[-4] lo=-128 hi=127 = [0]
conv = conv2d(x, w, b, k) pad_top=1
  c : int8[1,5,4,2] observed=[0.0,6.0,"mse"] bits=8 exp=[-4] lo=0 hi=96 offset=32
border = pad(c, v) pads=[0,0,0,0,1,1,0,0]
  p : int8[1,5,6,2] observed=[0.0,6.0,"mse"] bits=8 exp=[-4] lo=-128 hi=127 offset=80
sum = add(p, p)
  s : int8[1,5,6,2] observed=[0.0,12.0,"mse"] bits=8 exp=[-3] lo=-128 hi=127 offset=80
flat = reshape(s) shape=[1,60]
  y : int8[1,60] observed=[0.0,12.0,"mse"] bits=8 exp=[-3] lo=-128 hi=127 offset=80
output y
"""
PLANNED = INT.replace("[1,4,4,2] observed", "[1,4,4,2] offset=0 observed")
TEXTS = {"FLOAT": FLOAT, "RANGED": RANGED, "INT": INT, "PLANNED": PLANNED}

# stage, rule, the node or value that is named, (what is replaced in the text, by what).
BREAKS: list[tuple[str, str, str, tuple[str, str]]] = [
    ("FLOAT", "names are unique", "conv", ("border = ", "conv = ")),
    ("FLOAT", "names are unique", "border", ("  p : float32[1,5,6,2]", "  c : float32[1,5,6,2]")),
    ("FLOAT", "values exist", "sum", ("add(p, p)", "add(p, q)")),
    ("FLOAT", "values exist", "z", ("output y", "output z")),
    ("FLOAT", "values exist", "c", ("  c : float32[1,5,4,2]", "  c : float32[1,5,4,2] pixels=true")),
    ("FLOAT", "produced before use", "border", ("pad(c, v)", "pad(s, v)")),
    ("FLOAT", "produced before use", "b", ("output y", "output y\noutput b")),
    ("FLOAT", "constants are not computed", "c", ("[0.0,6.0]", f"[0.0,6.0] = [{','.join('0' * 40)}]")),
    ("FLOAT", "operands fit", "conv", ("b : float32[2] = [1,2]", "b : float32[3] = [1,2,3]")),
    ("FLOAT", "operands fit", "border", ("v : float32[1] = [0]", "v : float32[] = [0]")),
    ("FLOAT", "operands fit", "border", ("const v : float32[1] = [0]", "input v : float32[1]")),
    ("FLOAT", "shapes are inferred", "flat", ("y : float32[1,60]", "y : float32[60]")),
    ("FLOAT", "shapes are inferred", "x", ("x : float32[1,4,4,2]", "x : float32[0,4,4,2]")),
    ("FLOAT", "clamps saturate", "p", ("p : float32[1,5,6,2]", "p : float32[1,5,6,2] clamp=[0,1]")),
    ("FLOAT", "clamps saturate", "c", ("[0.0,6.0]", "[6.0,0.0]")),
    ("FLOAT", "origins go together", "border", ("p : float32[1,5,6,2]", "p : float32[1,5,6,2] origin=1.0")),
    ("FLOAT", "origins go together", "sum", ("s : float32[1,5,6,2]", "s : float32[1,5,6,2] origin=0.5")),
    ("FLOAT", "states go with outputs", "x", ("input x : float32[1,4,4,2]", "input x : float32[1,4,4,2] state=\"y\"")),
    ("FLOAT", "values are float", "x", ("input x : float32", "input x : int8")),
    ("FLOAT", "no grids yet", "s", ("s : float32[1,5,6,2]", "s : float32[1,5,6,2] offset=0")),
    ("RANGED", "values are float", "x", ("input x : float32", "input x : int8")),
    ("RANGED", "activations are observed", "y", ('y : float32[1,60] observed=[-1.0,1.0,"mse"]', "y : float32[1,60]")),
    ("RANGED", "activations have one grid", "x", (" bits=8 exp=[-4] lo=-128 hi=127", "")),
    ("INT", "activations are observed", "c", ('c : int8[1,5,4,2] observed=[0.0,6.0,"mse"]', "c : int8[1,5,4,2]")),
    ("INT", "everything is integer", "b", (" bits=16 exp=[-4] lo=-32768 hi=32767", "")),
    ("INT", "everything is integer", "b", ("bits=16", "bits=32")),
    ("INT", "everything is integer", "x", ("exp=[0]", "exp=[64]")),
    ("INT", "everything is integer", "c", ("lo=0 hi=96", "lo=0 hi=128")),
    ("INT", "everything is integer", "w", ("exp=[-7,-8]", "exp=[-7,-8,-9]")),
    ("INT", "activations have one grid", "c", ('c : int8[1,5,4,2] observed=[0.0,6.0,"mse"] bits=8',
                                                'c : int32[1,5,4,2] observed=[0.0,6.0,"mse"] bits=32')),
    ("INT", "data is in range", "k", ("bits=8 exp=[0] lo=-128 hi=127 =", "bits=8 exp=[0] lo=-127 hi=127 =")),
    ("INT", "weights are 8 or 16 bits", "conv", ("axis=0", "axis=3")),
    ("INT", "bias is on the output's grid", "conv", ("bits=16 exp=[-4]", "bits=16 exp=[-5]")),
    ("INT", "padding is on the input's grid", "conv", ("k : int8[2] bits=8 exp=[0]", "k : int8[2] bits=8 exp=[1]")),
    ("INT", "padding is on the input's grid", "border", ("v : int8[1] bits=8 exp=[-4]", "v : int8[1] bits=8 exp=[1]")),
    ("INT", "data movement keeps the grid", "flat", ("mse\"] bits=8 exp=[-3] lo=-128 hi=127 offset=80\nflat",
                                                    "mse\"] bits=8 exp=[-2] lo=-128 hi=127 offset=80\nflat")),
    ("INT", "shifts are legal", "conv", ("exp=[-7,-8]", "exp=[-7,-60]")),
    ("PLANNED", "offsets are aligned", "c", ("offset=32", "offset=24")),
    ("PLANNED", "offsets are aligned", "x", ("offset=0 ", "")),
    ("PLANNED", "nothing is overwritten", "conv", ("offset=32", "offset=16")),
    ("PLANNED", "nothing is overwritten", "border", ("hi=127 offset=80\nsum", "hi=127 offset=64\nsum")),
    ("PLANNED", "nothing is overwritten", "sum", ("offset=80\nflat", "offset=96\nflat")),
    ("PLANNED", "nothing is overwritten", "p", ("output y", "output y\noutput p")),
]  # fmt: skip


@pytest.mark.parametrize("stage", TEXTS)
def test_legal(stage: str) -> None:
    verify(parse(TEXTS[stage]), stage, "test")


@pytest.mark.parametrize(("stage", "rule", "about", "change"), BREAKS)
def test_rule(stage: str, rule: str, about: str, change: tuple[str, str]) -> None:
    old, new = change
    assert old in TEXTS[stage]
    expect(parse(TEXTS[stage].replace(old, new, 1)), stage, rule, about)


def expect(graph: Graph, stage: str, rule: str, about: str) -> None:
    with pytest.raises(VerifyError) as caught:
        verify(graph, stage, "the_pass")
    assert f"after the_pass ({stage}), rule '{rule}'" in caught.value.message
    assert caught.value.where == about


GRID = 'observed=[-1.0,1.0,"mse"] bits=16 exp=[-4] lo=-32768 hi=32767'
PLACED = f"""\
graph placed
input x : int16[1,2,8] {GRID} offset=0
first = requantize(x)
  a : int16[1,2,8] {GRID} offset=32
second = requantize(x)
  b : int16[1,2,8] {GRID} offset=64
both = concat(a, b) axis=1
  y : int16[1,4,8] {GRID} offset=32
output y
"""


def test_inputs_of_a_concat_lie_where_they_belong() -> None:
    verify(parse(PLACED), "PLANNED", "test")
    swapped = PLACED.replace("concat(a, b)", "concat(b, a)")
    expect(parse(swapped), "PLANNED", "nothing is overwritten", "both")


@pytest.mark.parametrize("offset", [0, 16])
def test_a_tensor_that_is_overwritten_in_part_is_gone(offset: int) -> None:
    """By what begins where it does, or within it: the second op reads x, which s lies upon."""
    third = f"third = slice(a) starts=[0,0,0] steps=[1,1,1] sizes=[1,1,8]\n  s : int16[1,1,8] {GRID} offset="
    text = PLACED.replace("offset=32\nsecond", f"offset=96\n{third}{offset}\nsecond")
    text = text.replace("concat(a, b)", "concat(b, b)").replace("offset=32\noutput", "offset=160\noutput")
    verify(parse(text.replace(f"{offset}\nsecond", "128\nsecond")), "PLANNED", "test")
    expect(parse(text), "PLANNED", "nothing is overwritten", "second")


APART = "states lie apart"
STATE = f"""\
graph state
input x : int16[1,2,8] {GRID} offset=0
input s : int16[1,2,8] state="y" {GRID} offset=32
first = add(x, s)
  a : int16[1,2,8] {GRID} offset=96
second = requantize(a)
  y : int16[1,2,8] {GRID} offset=32
third = requantize(a)
  z : int16[1,2,8] {GRID} offset=128
output y
output z
"""


@pytest.mark.parametrize(("old", "new"), [('state="y"', 'state="z"'), ("offset=32\nthird", "offset=48\nthird")])
def test_a_state_lies_on_its_own_output_alone(old: str, new: str) -> None:
    """A copy after the last op would overwrite another output, or a part of its own."""
    verify(parse(STATE), "PLANNED", "test")
    assert old in STATE
    expect(parse(STATE.replace(old, new)), "PLANNED", APART, "s")


MEMORIES = "there are two memories at most"


@pytest.mark.parametrize(
    ("line", "about"),
    [
        ("fast bytes=48 rooms={}", "s"),
        ('fast bytes=64 rooms={"first":[64,16]}', "first"),
        ('fast bytes=64 rooms={"second":[8,16]}', "second"),
        ('fast bytes=64 rooms={"first":[0,16]}', "first"),
    ],
)
def test_scratch_and_tensors_lie_in_one_memory(line: str, about: str) -> None:
    """Each tensor in one of the two; scratch in the fast one, at a multiple of 16, beside what is alive."""
    good = STATE + 'fast bytes=64 rooms={"second":[0,32]}\n'
    verify(parse(good), "PLANNED", "test")
    assert parse(to_text(parse(good))) == parse(good)
    expect(parse(STATE + line + "\n"), "PLANNED", MEMORIES, about)


def wrong_params(graph: Graph) -> Graph:
    first, *rest = graph.nodes
    return replace(graph, nodes=(replace(first, params=OPS["add"].Params()), *rest))


def wrong_op(graph: Graph) -> Graph:
    first, *rest = graph.nodes
    return replace(graph, nodes=(replace(first, op="conv3d"), *rest))


def wrong_data(graph: Graph) -> Graph:
    data = graph["b"].data
    assert data is not None
    return graph.with_values(replace(graph["b"], data=data.astype("float64")))


def wrong_key(graph: Graph) -> Graph:
    return replace(graph, values={**graph.values, "x": replace(graph["x"], name="z")})


# What the text form cannot say.
BROKEN_BY_HAND: list[tuple[str, str, Callable[[Graph], Graph]]] = [
    ("params are the op's", "conv", wrong_params),
    ("params are the op's", "conv", wrong_op),
    ("data is of the type", "b", wrong_data),
    ("names are unique", "x", wrong_key),
]


@pytest.mark.parametrize(("rule", "about", "break_it"), BROKEN_BY_HAND)
def test_rule_by_hand(rule: str, about: str, break_it: Callable[[Graph], Graph]) -> None:
    expect(break_it(parse(FLOAT)), "FLOAT", rule, about)


def test_every_rule_has_a_test() -> None:
    tested = {rule for _, rule, *_ in BREAKS} | {rule for rule, *_ in BROKEN_BY_HAND} | {APART, MEMORIES}
    assert {rule for rules in RULES.values() for rule in rules} == tested
