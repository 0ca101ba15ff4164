"""The fuzzer itself, by planted faults; a few graphs in every run of the tests, more in the slow ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fuzz_models import hunt, noise, patterns
from fuzz_models.case import Case, Node, load, save, single
from fuzz_models.checks import check
from fuzz_models.draw import draw
from fuzz_models.integers import heads
from fuzz_models.limits import limited
from fuzz_models.net import USUAL, Net
from fuzz_models.outcome import Outcome
from fuzz_models.shrink import shrink
from nmpconv.ir import Graph
from nmpconv.ops import OPS
from nmpconv.ops.lookup import LookupParams
from nmpconv.passes.float import FLOAT, Pass

QUICK, SLOW = range(9000, 9012), range(100_000, 100_040)  # the latter take half a minute


def floats(*shape: int) -> np.ndarray:
    """The same ones for a shape."""
    return np.random.default_rng(shape).normal(size=shape).astype(np.float32)


def net(*nodes: Node, outputs: tuple[str, ...] = ("y",), **constants: np.ndarray | float) -> Case:
    """With an input x [1,3,5,5]."""
    arrays = {name: np.asarray(data, np.float32) for name, data in constants.items()}
    return Case(17, nodes, arrays, {"x": 10 * floats(6, 1, 3, 5, 5)}, outputs).trimmed()


def big() -> Case:
    """A convolution with bias and a SiLU among other nodes."""
    return net(
        Node("Relu", ("x",), ("a",)),
        Node("Conv", ("a", "w", "bias"), ("b",), {"pads": [1, 1, 1, 1]}),
        Node("Sigmoid", ("b",), ("c",)),
        Node("Mul", ("b", "c"), ("d",)),
        Node("Add", ("d", "k"), ("e",)),
        Node("MaxPool", ("e",), ("y",), {"kernel_shape": [2, 2]}),
        w=floats(4, 3, 3, 3),
        bias=floats(4),
        k=0.25,
    )


def without_bias(graph: Graph) -> Graph:
    biases = [graph[node.inputs[2]] for node in graph.nodes if node.op == "conv2d"]
    return graph.with_values(*(replace(b, data=np.zeros(b.shape, np.float32)) for b in biases))


def confused(graph: Graph) -> Graph:
    """Takes a SiLU for its piecewise form."""
    after = dict(FLOAT)["fuse_pointwise"](graph)
    named = [replace(n, params=LookupParams("hard_swish")) if n.op == "lookup" else n for n in after.nodes]
    return replace(after, nodes=tuple(named))


def broken(_: Graph) -> Graph:
    raise KeyError("planted")


def with_passes(passes: Mapping[str, Pass]) -> hunt.Check:
    return lambda case, folder, stages: check(case, folder, stages, passes)


# -- the checks -------------------------------------------------------------------------------------------------------


def test_a_sound_case_has_no_failures(tmp_path: Path) -> None:
    outcome = check(big(), tmp_path)
    assert outcome.failures == {} and not outcome.refused and not outcome.invalid
    assert outcome.figures["float"] > 100 and outcome.figures["16"] > 60


@pytest.mark.parametrize(
    ("passes", "kind", "left"),
    [
        ({"layout": without_bias}, "float: layout", {"Conv"}),
        ({"fuse_pointwise": confused}, "float: fuse_pointwise", {"Sigmoid"}),
        ({"fold_pad": broken}, "float: fold_pad: KeyError in ?", set()),
    ],
)
def test_a_planted_fault_is_named_and_shrunk(passes: dict[str, Pass], kind: str, left: set[str]) -> None:
    checked = with_passes(passes)
    fails = hunt.fails_with(kind, checked)
    assert fails(big())
    small = shrink(big(), fails)
    assert fails(small)
    assert len(small.nodes) <= 2 and {node.kind for node in small.nodes} >= left
    assert small.count <= 4 and all(x.size <= 4 * 25 for x in small.feeds.values())


def test_refusals_are_no_failures(tmp_path: Path) -> None:
    outcome = check(net(Node("Det", ("x",), ("y",))), tmp_path)
    assert outcome.failures == {} and "no such op" in outcome.refused


def test_the_bound_is_the_cases_own_noise() -> None:
    plain = net(Node("Relu", ("x",), ("y",)))
    cancels = net(Node("Add", ("x", "k"), ("a",)), Node("Sub", ("a", "k"), ("y",)), k=1e6)
    for case, low, high in ((plain, 120, math.inf), (cancels, 30, 70)):
        values = case.run([name for node in case.nodes for name in node.outputs])
        found = noise.float_noise(case, {"y": values["y"]}, values)
        assert low < found["y"] < high


def test_rounding_to_16_bits() -> None:
    case = big()
    values = case.run([name for node in case.nodes for name in node.outputs]) | dict(case.feeds)
    inputs, grids = (
        noise.rounded(case, {"y": values["y"]}, values, {}, inputs_only=only)["y"] for only in (True, False)
    )
    assert 70 < grids < inputs < 100


def test_rows_of_nothing_have_the_correction_of_the_others() -> None:
    """All places but one lose 0.03 where x is rounded to 1/16; a bias, where there is one, gives it back everywhere."""
    here = np.zeros((1, 3, 5, 5), np.float32)
    here[..., 0, 0] = 1
    nodes = Node("Sub", ("x", "k"), ("a",)), Node("Conv", ("a", "w", "b"), ("c",)), Node("Mul", ("c", "m"), ("y",))
    case = net(*nodes, k=100 * (1 - here), w=np.ones((1, 3, 1, 1)), b=np.full(1, 0.05), m=here[:, :1])
    case = replace(case, feeds={"x": np.repeat(100.03 * (1 - here)[None], 2, axis=0).astype(np.float32)})
    values = case.run([name for node in case.nodes for name in node.outputs]) | dict(case.feeds)
    bare = replace(
        case, nodes=(*nodes[:1], Node("Conv", ("a", "w"), ("d",)), Node("Add", ("d", "b"), ("c",)), nodes[2])
    )
    found = [
        noise.rounded(one, {"y": values["y"]}, values | {"d": values["c"]}, {"x": 2.0**-4}, inputs_only=False)["y"]
        for one in (case, bare)
    ]
    assert found[0] < 0 and found[1] > 40


def test_comparisons_end_before_jumps() -> None:
    greater = Node("Greater", ("a", "x"), ("b",)), Node("Where", ("b", "a", "x"), ("y",))
    case = net(Node("Relu", ("x",), ("a",)), *greater, outputs=("y", "a"))
    assert heads(case) == ("a",)
    case = net(Node("Floor", ("x",), ("a",)), Node("Mul", ("a", "x"), ("b",)), Node("Ceil", ("b",), ("y",)))
    assert heads(case) == ("b",)


def test_half_precision_is_a_way_of_writing() -> None:
    half = replace(big(), feeds={"x": np.full((2, 1, 3, 5, 5), 0.1, np.float16)})
    half = replace(half, constants={name: x.astype(np.float16) for name, x in half.constants.items()})
    assert single(half).run()["y"].dtype == np.float32
    assert noise.sqnr(single(half).run()["y"], half.run()["y"]) > 50


# -- cases ------------------------------------------------------------------------------------------------------------


def test_a_seed_is_a_case() -> None:
    for seed in range(8):
        one, other = draw(seed), draw(seed)
        assert one.model() == other.model()
        assert all(np.array_equal(x, other.feeds[name]) for name, x in one.feeds.items())


@pytest.mark.slow
def test_every_operator_is_drawn() -> None:
    wanted = {kind for op in OPS.values() for kind in op.onnx}
    found: set[str] = set()
    for seed in range(3000):
        found |= {node.kind for node in draw(seed).nodes}
        if found >= wanted:
            break
    assert found >= wanted, wanted - found


def test_files(tmp_path: Path) -> None:
    for seed in range(8):
        save(tmp_path / "a.onnx", draw(seed), kind="float: layout")
        again, metadata = load(tmp_path / "a.onnx")
        assert metadata == {"kind": "float: layout"}
        for name, x in draw(seed).run().items():
            np.testing.assert_array_equal(again.run()[name], x)


def _runs(case: Case) -> bool:
    try:
        return bool(case.run())
    except Exception:  # onnxruntime has no base class of its own
        return False


def test_shrinking_reaches_the_operator() -> None:
    for seed in range(3):
        case = draw(seed)
        last = case.makers()[case.outputs[0]].kind
        small = shrink(case, lambda c, last=last: any(node.kind == last for node in c.nodes) and _runs(c))
        assert [node.kind for node in small.nodes] == [last]


# -- hunting ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_groups(tmp_path: Path) -> None:
    """Two faults, found again and again, are two groups with a file each."""

    def checked(case: Case, folder: Path, stages: tuple[str, ...]) -> Outcome:
        kinds = {node.kind for node in case.nodes}
        return Outcome(failures={f"float: {kind}": "planted" for kind in ("Relu", "Conv") if kind in kinds})

    found = hunt.hunt(iter(range(60)), 60.0, 2, tmp_path, lambda _: None, checked)
    assert found.graphs == 60
    assert sorted(found.groups) == [("float: Conv", ("Conv",)), ("float: Relu", ("Relu",))]
    assert sorted(load(path)[1]["kind"] for path in tmp_path.glob("*.onnx")) == ["float: Conv", "float: Relu"]
    assert "60 graphs" in found.summary() and "planted" in found.summary()


@pytest.mark.slow
def test_a_few_graphs(tmp_path: Path) -> None:
    found = hunt.hunt(iter(QUICK), math.inf, 1, tmp_path, lambda _: None)
    assert found.graphs == len(QUICK) and not found.groups, found.summary()


@pytest.mark.slow
@pytest.mark.soak
def test_more_graphs(tmp_path: Path) -> None:
    found = hunt.hunt(iter(SLOW), math.inf, 1, tmp_path, lambda _: None)
    assert found.graphs == len(SLOW) and not found.groups, found.summary()
    assert sum(found.refused.values()) < 0.1 * found.graphs


# -- found once -------------------------------------------------------------------------------------------------------


def found() -> dict[str, Case]:
    """Findings of the fuzzer, as small as they came out: none may fail again."""
    x, w = floats(8, 1, 3, 6, 6), floats(4, 3, 3, 3)
    steep = Node("Mul", ("x", "a"), ("b",))
    norm = {"s": np.array([1, 1, 1e-3, 1]), "z": np.full(4, 0.8), "o": np.ones(4)}
    layers = (
        Node("Conv", ("x", "w"), ("a",)),
        Node("Relu", ("a",), ("b",)),
        Node("BatchNormalization", ("b", "s", "z", "z", "o"), ("c",)),
        Node("Conv", ("c", "v"), ("y",), {"pads": [1, 1, 1, 1]}),
    )
    differences = floats(3, 4, 1, 1)
    differences -= differences.mean(axis=1, keepdims=True)
    silu = Node("Sigmoid", ("x",), ("a",)), Node("Mul", ("x", "a"), ("b",))
    cases = {
        "affine": net(steep, Node("Add", ("b", "c"), ("y",)), a=0.01, c=0.5),
        "clipped": net(*silu, Node("Clip", ("b", "low", "high"), ("y",)), low=-1, high=20),
        "constant first": net(Node("Sub", ("k", "x"), ("y",)), k=1),
        "constant beside": net(
            Node("Conv", ("x", "w"), ("a",)),
            Node("Concat", ("a", "k"), ("b",), {"axis": 1}),
            Node("Conv", ("b", "v"), ("y",)),
            w=w,
            k=floats(1, 2, 4, 4),
            v=floats(2, 6, 1, 1),
        ),
        "cancelling": net(
            Node("Conv", ("x", "w", "bias"), ("a",)),
            Node("Conv", ("a", "v"), ("y",)),
            w=w,
            bias=np.full(4, 1e4),
            v=differences,
        ),
        "steep sum": net(  # a ramp of 20 steps of x
            Node("Add", ("x", "a"), ("b",)),
            Node("Mul", ("b", "k"), ("c",)),
            Node("HardSigmoid", ("c",), ("y",)),
            a=1,
            k=9e3,
        ),
        "floor": net(Node("Floor", ("x",), ("y",))),
        "saturated": net(steep, Node("Tanh", ("b",), ("y",)), a=1000),
        "padding": net(*layers, w=w, v=floats(2, 4, 3, 3), **norm),
        "rows of equals": net(
            Node("LayerNormalization", ("x", "ones", "zeros"), ("y",)), ones=np.ones(6), zeros=np.zeros(6)
        ),
        "length and one": net(  # one sum of all: two values of a curve lie on a line
            Node("ReduceL2", ("x",), ("a",)), Node("Add", ("a", "k"), ("b",)), Node("Div", ("x", "b"), ("y",)), k=1
        ),
        "small length": net(  # not far above its lower bound
            Node("ReduceL2", ("x",), ("a",)),
            Node("Clip", ("a", "low"), ("b",)),
            Node("Div", ("x", "b"), ("y",)),
            low=1e-6,
        ),
        "weighted length": net(  # one sum of all: a sum with weights is a multiple of the mean
            Node("Mul", ("x", "x"), ("a",)),
            Node("Flatten", ("a",), ("b",)),
            Node("MatMul", ("b", "w"), ("c",)),
            Node("Sqrt", ("c",), ("d",)),
            Node("Div", ("x", "d"), ("y",)),
            w=np.arange(1, 109).reshape(108, 1),
        ),
        "small keys": net(
            Node("Mul", ("x", "tenth"), ("a",)),
            Node("Relu", ("a",), ("k",)),
            Node("Mul", ("x", "x"), ("q",)),
            Node("MatMul", ("k", "x"), ("s",)),
            Node("MatMul", ("q", "s"), ("top",)),
            Node("MatMul", ("q", "k"), ("dots",)),
            Node("ReduceSum", ("dots", "last"), ("total",)),
            Node("Add", ("total", "one"), ("bottom",)),
            Node("Div", ("top", "bottom"), ("y",)),
            tenth=0.1,
            one=0.5,
        ),
        "length of one": net(
            Node("Pow", ("x", "three"), ("a",)), Node("ReduceL2", ("a",), ("y",), {"axes": [0]}), three=3.0
        ),
        "small gate": net(Node("Sub", ("x", "k"), ("a",)), Node("Sigmoid", ("a",), ("y",)), k=8),
        "root of a reciprocal": net(
            Node("Mul", ("x", "x"), ("a",)),
            Node("Pow", ("a", "k"), ("b",)),
            Node("Relu", ("b",), ("c",)),
            Node("Sqrt", ("c",), ("y",)),
            k=-0.5,
        ),
        "square of a reciprocal": net(Node("Mul", ("x", "x"), ("a",)), Node("Reciprocal", ("a",), ("y",))),
        "hardly anything and one": net(Node("Sub", ("x", "k"), ("y",)), k=1),
        "scalar": net(Node("ReduceMax", ("x",), ("y",), {"keepdims": 0})),
    }
    scales = {"hardly anything and one": 1e-20, "small gate": 0.01, "affine": 50, "clipped": 50, "small length": 2e-7}
    keys = cases["small keys"]
    cases["small keys"] = replace(keys, constants={**keys.constants, "last": np.array([-1])})
    fed = {name: replace(case, feeds={"x": x * scales.get(name, 1)}) for name, case in cases.items()}
    share = np.array([0.6, 1, 2, 0.06, 2, 0.9, 0.7, 2, 0.1, 0.02, 1, 0.3, 0.04, 2, 0.5, 1], np.float32).reshape(2, 1, 8)
    sums = {
        f"{kind} of x + {number}": Case(
            17,
            (Node("Add", ("x", "k"), ("a",)), Node(kind, ("a",), ("y",))),
            {"k": np.float32(number)},
            {"x": share},
            ("y",),
        )
        for kind, number in (("Reciprocal", 0.0), ("Reciprocal", 0.003))
    }
    beside = Case(
        12,
        (
            Node("Concat", ("x", "z"), ("a",), {"axis": -1}),
            Node("Mul", ("a", "k"), ("b",)),
            Node("Concat", ("x", "b"), ("y",), {"axis": -1}),
        ),
        {"k": np.full((1, 1), 0.005, np.float32)},
        {"x": np.float32([[[0.1]], [[1]]]), "z": np.float32([[[50]], [[70]]])},
        ("y",),
    )
    response = Case(
        11,
        (Node("LRN", ("x",), ("y",), {"size": 3, "alpha": 1.0}),),
        {},
        {"x": np.float32([[-1, 1, -80, -0.6, 1], [-0.4, 0.2, 50, -1, 1]]).reshape(2, 1, 5, 1, 1)},
        ("y",),
    )
    nothing = Case(
        12,
        (
            Node("BatchNormalization", ("x", "zero", "one", "zero", "zero"), ("a",)),
            Node("Clip", ("a", "low", "high"), ("b",)),
            Node("Sigmoid", ("b",), ("y",)),
        ),
        {"zero": np.zeros(1, np.float32), "one": np.ones(1, np.float32), "low": np.float32(0), "high": np.float32(1)},
        {"x": np.full((2, 1, 1, 1), 10, np.float32)},
        ("y",),
    )
    number = Case(17, (Node("LogSoftmax", ("x",), ("y",)),), {}, {"x": floats(8, 1)}, ("y",))
    equals = 100 * np.where(x[..., :1, :1] > 0, x, x[..., :1])
    slopes, negative = np.array([0.1731, -0.6973, -0.7007, 1.52]), np.array([[[100, -100, -300, -90]]])
    half = Case(
        17,
        (Node("PRelu", ("x", "k"), ("y",)),),
        {"k": slopes.astype(np.float16)},
        {"x": np.concatenate([negative, 3 * negative]).astype(np.float16)},
        ("y",),
    )
    beside_jumps = np.float32([1.55, 0.675, -0.7, 1.00147, 0.025, -1.00147, -2.1, 1.5]).reshape(4, 1, 1, 2)
    few = {
        "floor": beside_jumps,
        "padding": x[:4],
        "length of one": x[:2],
        "rows of equals": equals,
        "small keys": x / 30,
        "root of a reciprocal": np.float32([0.6, 0.7, 0.8, 1]).reshape(4, 1, 1, 1),
        "square of a reciprocal": np.float32([1, -1, 2, 0.3]).reshape(4, 1, 1, 1),
    }
    return (
        fed
        | {name: replace(fed[name], feeds={"x": rows}) for name, rows in few.items()}
        | {
            "one number": number,
            "half slopes": half,
            "two concats": beside,
            "large square": response,
            "scale 0": nothing,
        }
        | sums
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", list(found()))
def test_found_once(name: str) -> None:
    outcome = hunt.outcome_of(limited(lambda folder: check(found()[name], folder)))
    assert not outcome.failures and not outcome.refused and not outcome.invalid, outcome


@pytest.mark.parametrize("pattern", [patterns.rare, patterns.wake_word])
def test_logits_far_below_0_are_drawn(pattern: Callable[[Net, str], str]) -> None:
    """Their Sigmoid is far smaller than what other tensors are drawn with."""
    small = 0
    for seed in range(8):
        net = Net(seed)
        net.input((1, 4), net.noise.normal(size=(net.samples, 1, 4)))
        y = net.attempt(pattern, next(iter(net.feeds)))
        small += y is not None and net.largest(y) < USUAL[0]
    assert small >= 4


def test_numbers_enter_by_channel(tmp_path: Path) -> None:
    """An input with an exponent and an offset for each channel: 16 bits are not blamed for what was fed wrong."""
    net = Net(20)
    units = np.array([1.0, 0.01, 30.0, 4.0])
    net.input((1, 4), units * (net.noise.uniform(size=(net.samples, 1, 4)) + 1))
    score = net.attempt(patterns.wake_word, next(iter(net.feeds)))
    assert score
    outcome = check(net.case([score]), tmp_path, ("16",))
    assert outcome.figures["16"] > 50 and not outcome.failures, outcome
