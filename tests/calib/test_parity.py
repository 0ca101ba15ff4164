"""Two float models of one function agree within float32's own noise; where they do not, the first node is named."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).parents[1] / "frontend"))

from onnx_text import build, feeds

from nmpconv.base.sqnr import SAME_DB
from nmpconv.calib import engine, parity
from nmpconv.calib.engine import Engine
from nmpconv.calib.float_noise import Known
from nmpconv.calib.original_model import behind_jumps, original
from nmpconv.calib.parity import Parity
from nmpconv.frontend.onnx import load
from nmpconv.frontend.read import read
from nmpconv.frontend.to_onnx import to_onnx
from nmpconv.ir import Graph, Node, Value
from nmpconv.passes.float import FLOAT

IMAGE = "(float[1,4,6,5] x) => (y)"
CONV = "Conv<pads=[1,1,1,1]>"
PARAMETERS = "<float[4,4,3,3] w, float[4] b, float[4,4,3,3] v, float[4] s, float[4] m, float[4] var>"
NET = (
    f"{IMAGE} {PARAMETERS} {{ c = {CONV}(x, w, b) n = BatchNormalization(c, s, b, m, var) r = Relu(n) "
    f"d = {CONV}(r, v) t = Tanh(d) a = Add(t, r) y = {CONV}(a, w) }}"
)


def passed(path: Path) -> Graph:
    """The float graph of a file."""
    graph = load(path)
    for _, function in FLOAT:
        graph = function(graph)
    return graph


def against_its_file(path: Path, graph: Graph, count: int = 2, scale: float = 1.0) -> Parity:
    samples = [{name: x * np.float32(scale) for name, x in feeds(graph, seed).items()} for seed in range(count)]
    return parity.compare(lambda: original(read(path), graph), graph, [(x, x) for x in samples])


def clipped(graph: Graph, name: str) -> Graph:
    return graph.with_values(replace(graph[name], clamp=(-0.5, 0.5)))


def first_layer(graph: Graph, change: Callable[[np.ndarray], np.ndarray], constant: int) -> Graph:
    """The graph with another weight (1) or bias (2) of its first convolution."""
    name = next(node for node in graph.nodes if node.op == "conv2d").inputs[constant]
    return graph.with_values(replace(graph[name], data=change(graph[name].data).astype(np.float32)))


def test_the_passes_keep_the_function(tmp_path: Path) -> None:
    build(NET, 13, tmp_path / "m.onnx")
    found = against_its_file(tmp_path / "m.onnx", passed(tmp_path / "m.onnx"))
    assert found.holds
    assert (found.db > 110, found.required) == (True, SAME_DB)


@pytest.mark.parametrize(
    ("wrong", "tensor", "node", "before"),
    [
        (lambda graph: first_layer(graph, np.zeros_like, 2), "r", "Relu", ()),
        (lambda graph: clipped(graph, "t"), "t", "Tanh", ("d",)),
        (lambda graph: clipped(graph, "a"), "a", "Add", ("t", "r")),
        (lambda graph: clipped(graph, "y"), "y", "Conv", ("a",)),
    ],
)
def test_a_wrong_graph_is_found(
    wrong: Callable[[Graph], Graph], tensor: str, node: str, before: tuple[str, ...], tmp_path: Path
) -> None:
    build(NET, 13, tmp_path / "m.onnx")
    found = against_its_file(tmp_path / "m.onnx", wrong(passed(tmp_path / "m.onnx")))
    assert not found.holds
    assert (found.tensor, found.before) == (tensor, before)
    assert found.parts.startswith(f"the {node} that makes '{tensor}'")
    assert found.db < 60


def test_a_pass_by_itself(tmp_path: Path) -> None:
    """Float graphs are compared with each other in the same way."""
    build(NET, 13, tmp_path / "m.onnx")
    before = load(tmp_path / "m.onnx")
    feed = feeds(before)
    for name, function in FLOAT:
        after = function(before)
        assert parity.compare(partial(to_onnx, before, before.outputs), after, [(feed, feed)]).holds, name
        before = after
    found = parity.compare(partial(to_onnx, before, before.outputs), clipped(before, "t"), [(feed, feed)])
    assert (found.holds, found.tensor, found.before) == (False, "t", ("d",))


def test_a_net_that_amplifies_rounding_has_a_bound_of_its_own(tmp_path: Path) -> None:
    """x + 1e5 - 1e5 loses 17 bits: x is right and 50 dB away. Weights that are 10 % larger are wrong."""
    text = f"{IMAGE} <float c = {{100000.0}}, float[4,4,1,1] w> {{ a = Add(x, c) s = Sub(a, c) y = Conv(s, w) }}"
    build(text, 13, tmp_path / "m.onnx")
    build(f"{IMAGE} <float[4,4,1,1] w> {{ y = Conv(x, w) }}", 13, tmp_path / "short.onnx")
    graph = load(tmp_path / "short.onnx")
    found = against_its_file(tmp_path / "m.onnx", graph)
    assert found.holds
    assert 20 < found.required < found.db < 65
    wrong = first_layer(graph, lambda weights: weights * 1.1, 1)
    assert not against_its_file(tmp_path / "m.onnx", wrong).holds


def test_the_rounding_of_very_many_nodes_is_measured_without_optimizations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take onnxruntime longer than a conversion; the bound is about the same."""
    text = f"{IMAGE} <float c = {{100000.0}}, float[4,4,1,1] w> {{ a = Add(x, c) s = Sub(a, c) y = Conv(s, w) }}"
    build(text, 13, tmp_path / "m.onnx")
    graph = load(tmp_path / "m.onnx")
    exported = partial(to_onnx, graph, graph.outputs)
    pairs = [(feed, feed) for feed in (feeds(graph, 0), feeds(graph, 1))]
    asked: list[bool] = []
    real = Engine.__init__

    def counted(self: Engine, *args: object, optimize: bool = True, **named: object) -> None:
        asked.append(optimize)
        real(self, *args, optimize=optimize, **named)

    monkeypatch.setattr(Engine, "__init__", counted)
    wrong = first_layer(graph, lambda weights: weights * 1.001, 1)
    bounds = []
    for most, known in ((3000, False), (1, False), (3000, True), (1, True)):
        monkeypatch.setattr(engine, "NODES_MANY", most)
        outputs = list(graph.outputs)
        first = Known(exported, outputs, [feed for feed, _ in pairs]) if known else None
        asked.clear()
        bounds.append(parity.compare(exported, wrong, pairs, outputs, first).required)
        assert any(asked) == (most > 1)
    assert bounds == pytest.approx([bounds[0]] * 4, abs=3)


def test_a_signal_that_is_zero(tmp_path: Path) -> None:
    """There is no ratio; an error is one anyway."""
    build(f"{IMAGE} <float low = {{9000.0}}> {{ s = Sub(x, low) y = Relu(s) }}", 13, tmp_path / "m.onnx")
    graph = passed(tmp_path / "m.onnx")
    assert against_its_file(tmp_path / "m.onnx", graph).db == math.inf
    wrong = graph.with_values(replace(graph["y"], clamp=(1e-3, math.inf)))
    found = against_its_file(tmp_path / "m.onnx", wrong)
    assert (found.holds, found.db) == (False, -math.inf)


def test_rounding_errors_of_a_signal_that_is_zero(tmp_path: Path) -> None:
    """(x + 3) - x - 3 is 0 but for rounding, in whatever order."""
    text = f"{IMAGE} <float c = {{3.0}}> {{ a = Add(x, c) s = Sub(a, x) y = Sub(s, c) }}"
    build(text, 13, tmp_path / "m.onnx")
    build(text.replace("a = Add(x, c) s = Sub(a, x)", "a = Sub(x, c) s = Sub(x, a)"), 13, tmp_path / "other.onnx")
    found = against_its_file(tmp_path / "m.onnx", load(tmp_path / "other.onnx"))
    assert found.holds
    assert 0 > found.db > -20


JUMPS = (
    f"(float[1,4,16,20] x) => (y) <float[4,4,3,3] w, float[4] b> {{ c = {CONV}(x, w, b) "
    "i = ArgMax<axis=1,keepdims=0>(c) y = Cast<to=1>(i) }"
)


def test_a_spectrum_of_a_length_with_a_large_prime_factor(tmp_path: Path) -> None:
    """onnxruntime's own has 89 dB in float32."""
    build("(float[1,309,1] x) => (y) <int64 a = {1}> { y = DFT(x, , a) }", 20, tmp_path / "m.onnx")
    graph = passed(tmp_path / "m.onnx")
    feed = {"x": np.random.default_rng(0).normal(0, 1, (1, 309, 1)).astype(np.float32)}
    assert parity.compare(lambda: original(read(tmp_path / "m.onnx"), graph), graph, [(feed, feed)]).db > 100


@pytest.mark.parametrize("p", [1, 2])
def test_rounding_errors_of_a_spectrum_may_have_length_1(p: int, tmp_path: Path) -> None:
    """The imaginary parts of the first bin are 0 but for rounding, in three channels."""
    text = "(float[1,3,8,1] x) => (y) <int64 a = {2}>"
    build(f"{text} {{ d = DFT(x, , a) y = LpNormalization<axis=1,p={p}>(d) }}", 20, tmp_path / "m.onnx")
    found = against_its_file(tmp_path / "m.onnx", passed(tmp_path / "m.onnx"))
    assert found.holds
    assert found.db < 20
    build(f"{text} {{ y = DFT(x, , a) }}", 20, tmp_path / "bare.onnx")
    assert against_its_file(tmp_path / "bare.onnx", passed(tmp_path / "bare.onnx")).required == 90


@pytest.mark.parametrize("size", [1, 2, 3, 9])
def test_lrn_with_a_large_number_beside_small_ones(tmp_path: Path, size: int) -> None:
    """onnxruntime's own has 81.8 dB with size 3: the square of 80 is rounded into the sums of the channels after it."""
    build(f"(float[1,5,1,1] x) => (y) {{ y = LRN<size={size},alpha=1.0>(x) }}", 13, tmp_path / "m.onnx")
    graph = passed(tmp_path / "m.onnx")
    feed = {"x": np.array([-1, 1, -80, -0.6, 1], np.float32).reshape(1, 5, 1, 1)}
    assert parity.compare(lambda: original(read(tmp_path / "m.onnx"), graph), graph, [(feed, feed)]).db > 110


def test_infinite_masks_have_no_noise(tmp_path: Path) -> None:
    """Rounding -inf once more made NaN of it, and then any function would do."""
    text = "{ a = Add(x, m) s = Softmax<axis=-1>(a) y = Tanh(s) }"
    build(f"(float[1,1,3,3] x) => (y) <float[3,3] m = {{0,-inf,-inf,0,0,-inf,0,0,0}}> {text}", 13, tmp_path / "m.onnx")
    graph = passed(tmp_path / "m.onnx")
    assert against_its_file(tmp_path / "m.onnx", graph).required == SAME_DB
    assert not against_its_file(tmp_path / "m.onnx", clipped(graph, "s")).holds


def test_an_index_may_flip_where_what_it_is_made_of_agrees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements of an ArgMax have no distance: one of 320 that is another class is 20 to 30 dB."""
    build(JUMPS, 13, tmp_path / "m.onnx")
    graph = passed(tmp_path / "m.onnx")
    feed = feeds(graph)
    real = parity.FloatEngine.run

    def flipped(how_many: int) -> Parity:
        def run(self, feed, names=()):
            found = real(self, feed, names)
            if "y" in found:
                found["y"].reshape(-1)[:how_many] += 1
            return found

        monkeypatch.setattr(parity.FloatEngine, "run", run)
        return parity.compare(lambda: original(read(tmp_path / "m.onnx"), graph), graph, [(feed, feed)])

    assert flipped(0).db == math.inf
    assert flipped(2).holds
    assert not flipped(40).holds


@pytest.mark.parametrize(("mode", "jumps"), [("nearest", {"y", "z"}), ("linear", set())])
def test_the_nearest_pixel_jumps(mode: str, jumps: set[str]) -> None:
    text = f'(float[1,1,4,4] x, float[1,2,2,2] g) => (z) {{ y = GridSample<mode="{mode}">(x, g) z = Relu(y) }}'
    assert behind_jumps(build(text, 20).graph) == jumps


def test_a_wrong_tensor_before_a_jump_is_found(tmp_path: Path) -> None:
    build(JUMPS, 13, tmp_path / "m.onnx")
    graph = passed(tmp_path / "m.onnx")
    wrong = first_layer(graph, lambda bias: np.add(bias, [0.5, 0, 0, 0]), 2)
    found = against_its_file(tmp_path / "m.onnx", wrong)
    assert (found.holds, found.tensor) == (False, "c")
    assert found.parts.startswith("the Conv that makes 'c'")


def retyped(model: onnx.ModelProto, kind: int) -> onnx.ModelProto:
    """All reals of another type."""
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = kind
    for tensor in model.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(dtype), tensor.name))
    return model


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.DOUBLE])
def test_other_types_of_reals(kind: int, tmp_path: Path) -> None:
    """Their tensors are what counts, not their arithmetic: the same bound."""
    onnx.save(retyped(build(NET, 15), kind), tmp_path / "m.onnx")
    found = against_its_file(tmp_path / "m.onnx", passed(tmp_path / "m.onnx"))
    assert found.holds
    assert found.db > 110


@pytest.mark.parametrize(("scale", "outcome"), [(0.03, "saturates"), (1.0, "does not")])
def test_a_quantized_model_without_its_rounding(scale: float, outcome: str, tmp_path: Path) -> None:
    """A grid from 0 on is a Relu with an end; a grid with a sign says nothing."""
    text = (
        f"{IMAGE} <float[4,4,3,3] w, float[4] b, float s = {{{scale}}}, uint8 zero = {{0}}, uint8 middle = {{128}}> "
        f"{{ q0 = QuantizeLinear(x, s, middle) x1 = DequantizeLinear(q0, s, middle) c = {CONV}(x1, w, b) "
        "q = QuantizeLinear(c, s, zero) r = DequantizeLinear(q, s, zero) p = MaxPool<kernel_shape=[2,2]>(r) "
        "q2 = QuantizeLinear(p, s, zero) d = DequantizeLinear(q2, s, zero) y = Neg(d) }"
    )
    build(text, 13, tmp_path / "m.onnx")
    graph = passed(tmp_path / "m.onnx")
    found = against_its_file(tmp_path / "m.onnx", graph)
    assert found.holds
    assert found.db > 110
    unclamped = replace(graph, values={n: replace(v, clamp=None) for n, v in graph.values.items()})
    assert not against_its_file(tmp_path / "m.onnx", unclamped).holds


def test_a_saturation_inside_of_a_table(tmp_path: Path) -> None:
    text = (
        f"{IMAGE} <float[4,4,3,3] w, float s = {{0.01}}, uint8 zero = {{0}}, float one = {{1.0}}> {{ c = {CONV}(x, w) "
        "a = Abs(c) q = QuantizeLinear(a, s, zero) r = DequantizeLinear(q, s, zero) y = Add(r, one) }"
    )
    build(text, 13, tmp_path / "m.onnx")
    graph = passed(tmp_path / "m.onnx")
    assert [node.op for node in graph.nodes if node.op in ("lookup", "requantize", "add")] == ["lookup"]
    assert against_its_file(tmp_path / "m.onnx", graph).db > 110


def test_inputs_that_nobody_reads_and_cuts(tmp_path: Path) -> None:
    """The part behind a cut need not run: here it cannot."""
    text = (
        f"(float[1,4,6,5] x, float[3] unused) => (z) <float[4,4,3,3] w> {{ y = {CONV}(x, w) "
        "n = Neg(unused) z = Nonsense(y, n) }"
    )
    build(text, 13, tmp_path / "m.onnx")
    graph = load(tmp_path / "m.onnx", outputs=["y"])
    assert against_its_file(tmp_path / "m.onnx", graph).holds


def test_what_has_no_value_is_not_compared(tmp_path: Path) -> None:
    """The square root of a negative number is NaN in ONNX and 0 here."""
    build(f"{IMAGE} {{ y = Sqrt(x) }}", 13, tmp_path / "m.onnx")
    assert against_its_file(tmp_path / "m.onnx", passed(tmp_path / "m.onnx")).holds


def test_the_text_says_what_is_required() -> None:
    assert str(Parity("y", 8.71, 90.0)) == "'y' has 8.7 dB, 90 are required"
    assert re.search(r"61\.2 for this net's own float32 noise", str(Parity("y", 8.71, 61.2)))


def test_what_a_last_softmax_hides(tmp_path: Path) -> None:
    """The result is the same for other scores where it saturates."""
    made = "c = Conv(x, w, b) s = Mul(c, k) y = Softmax<axis=1>(s)"
    text = f"{IMAGE} <float[4,4,1,1] w, float[4] b, float k = {{3000.0}}> {{ {made} }}"
    build(text, 13, tmp_path / "m.onnx")
    graph = passed(tmp_path / "m.onnx")
    assert against_its_file(tmp_path / "m.onnx", graph).holds
    wrong = first_layer(graph, lambda bias: bias * 1.01, 2)
    found = against_its_file(tmp_path / "m.onnx", wrong)
    assert (found.holds, found.tensor) == (False, "s")


def renamed(graph: Graph, names: dict[str, str]) -> Graph:
    """The graph with these values under other names."""

    def of(values: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(names.get(name, name) for name in values)

    return replace(
        graph,
        outputs=of(graph.outputs),
        nodes=tuple(replace(n, inputs=of(n.inputs), outputs=of(n.outputs)) for n in graph.nodes),
        values={names.get(n, n): replace(v, name=names.get(n, n)) for n, v in graph.values.items()},
    )


MOVED = (
    "(float[1,2,2,1] x) => (y, z) <float[2,1,1,2] w, float[2] b> { t = Transpose<perm=[0,1,3,2]>(x) y = Sigmoid(t) "
    "c = Conv<group=2>(y, w, b) z = Sigmoid(c) }"
)


def test_a_name_that_moved_is_not_what_a_last_function_reads(tmp_path: Path) -> None:
    """The graph's 'c' is what its convolution reads: as if a pass had given the name to a transpose."""
    build(MOVED, 13, tmp_path / "m.onnx")
    graph = passed(tmp_path / "m.onnx")
    conv = next(node for node in graph.nodes if node.op == "conv2d")
    graph = renamed(graph, {conv.outputs[0]: "c.conv2d", conv.inputs[0]: "c"})
    conv = next(node for node in graph.nodes if node.op == "conv2d")
    assert against_its_file(tmp_path / "m.onnx", graph).holds
    wrong = graph.with_values(replace(graph[conv.inputs[2]], data=graph[conv.inputs[2]].data + np.float32(50)))
    found = against_its_file(tmp_path / "m.onnx", wrong)
    assert (found.holds, found.tensor) == (False, "c")


def test_terms_of_a_sum_before_a_last_log_softmax(tmp_path: Path) -> None:
    """The graph's 's' is one of the two products that it makes a Where of."""
    text = (
        "(float[1,1,2] x) => (y) <float[2,1,1] w, float[2] b, bool[2,2] m = {1, 0, 1, 1}> "
        "{ c = Conv(x, w, b) s = Where(m, c, c) y = LogSoftmax(s) }"
    )
    build(text, 16, tmp_path / "m.onnx")
    assert against_its_file(tmp_path / "m.onnx", passed(tmp_path / "m.onnx")).holds


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_weights_of_an_interpolation_are_not_rounded(mode: str, tmp_path: Path) -> None:
    """Sevenths; multiples of 2^-15 leave 90 to 100 dB."""
    text = f'(float[1,4,7,7] x) => (y) <int64[4] n = {{1, 4, 9, 12}}> {{ y = Resize<mode="{mode}">(x, , , n) }}'
    build(text, 13, tmp_path / "m.onnx")
    found = against_its_file(tmp_path / "m.onnx", passed(tmp_path / "m.onnx"))
    assert found.db > 120


@pytest.mark.parametrize("shape", ["1,3,1", "1,3,1,1", "1,3,2,2"])
def test_normalization_of_a_plane_that_is_almost_constant(shape: str, tmp_path: Path) -> None:
    """onnxruntime subtracts mean * 316 from x * 316; of one pixel the bias is left."""
    text = (
        f"(float[{shape}] x) => (y) <float[3] s, float[3] b, float big = {{40}}, float tiny = {{0.001}}> "
        "{ t = Mul(x, tiny) a = Add(t, big) y = InstanceNormalization(a, s, b) }"
    )
    build(text, 13, tmp_path / "m.onnx")
    graph = passed(tmp_path / "m.onnx")
    assert against_its_file(tmp_path / "m.onnx", graph).holds
    constants = [value for value in graph.values.values() if value.data is not None and value.data.size == 3]
    wrong = graph.with_values(*(replace(value, data=value.data + np.float32(0.05)) for value in constants))
    assert not against_its_file(tmp_path / "m.onnx", wrong).holds


FAR_BELOW = {
    "Sigmoid": "y = Sigmoid(x)",
    "HardSigmoid": "y = HardSigmoid<alpha=0.0714,beta=1.0>(x)",
    "silu": "s = Sigmoid(x) y = Mul(x, s)",
    "written out": "n = Neg(x) e = Exp(n) d = Add(e, one) y = Reciprocal(d)",
    "Tanh": "t = Tanh(x) y = Add(t, one)",
    "Erf": "t = Erf(x) y = Add(t, one)",
    "Softmax": "y = Softmax<axis=3>(x)",
    "Elu": "t = Elu(x) y = Add(t, one)",
    "Gelu": "y = Gelu(x)",
    "Softplus": "y = Softplus(x)",
}


@pytest.mark.parametrize("kind", list(FAR_BELOW))
def test_results_near_0_are_no_relative_matter(kind: str, tmp_path: Path) -> None:
    """Logits as a net has them that was calibrated with negatives alone: onnxruntime's own Sigmoid has 60 dB there."""
    text = f"(float[1,4,6,5] x) => (y) <float one = {{1.0}}> {{ {FAR_BELOW[kind]} }}"
    build(text, 20, tmp_path / "m.onnx")
    graph = passed(tmp_path / "m.onnx")
    rng = np.random.default_rng(0)
    for low, high in ((-14, -8), (-5.5, -4), (-90, -20)):
        samples = [{"x": rng.uniform(low, high, (1, 4, 6, 5)).astype(np.float32)} for _ in range(3)]
        found = parity.compare(lambda: original(read(tmp_path / "m.onnx"), graph), graph, [(x, x) for x in samples])
        assert found.holds, (low, high, found)


GATE = (
    "(float[1,8,1,1] x) => (y) <float[1,8,1,1] w, float[1] s, float[1] b = {-11.0}, float[1] m, float[1] var> "
    "{ c = Conv(x, w) n = BatchNormalization(c, s, b, m, var) y = Sigmoid(n) }"
)


def test_one_gate_near_0(tmp_path: Path) -> None:
    """A wake word that calibration never hears: one result of a sample, and luck decides how it is rounded."""
    build(GATE, 13, tmp_path / "m.onnx")
    graph = passed(tmp_path / "m.onnx")
    model = original(read(tmp_path / "m.onnx"), graph)
    for seed in range(200):
        x = {"x": np.random.default_rng(seed).normal(size=(1, 8, 1, 1)).astype(np.float32)}
        found = parity.compare(lambda: model, graph, [(x, x)])
        assert found.holds, (seed, found)
    wrong = first_layer(graph, lambda weights: weights * 1.001, 1)
    assert not against_its_file(tmp_path / "m.onnx", wrong).holds


def test_what_is_moved_has_the_numbers_of_what_it_was() -> None:
    """Compared once, under the name of what made them; so is what no input reaches, not at all."""
    steps = (("lookup", "c", "k"), ("lookup", "x", "y"), ("reshape", "y", "t"), ("add", "t", "z"))
    nodes = tuple(Node(op, name, (x,), (name,), None) for op, x, name in steps)
    values = {name: Value(name, (1, 4)) for name in ("x", "c", "k", "y", "t", "z")}
    graph = Graph("g", ("x",), ("z",), nodes, values)
    assert parity._twins(graph, {"x", "y", "t", "z"}) == {"y": "y", "z": "z"}
