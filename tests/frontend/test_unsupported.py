"""Nodes that cannot be converted are listed completely, with op, why and the nearest supported form."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper
from onnx_text import build

from nmpconv.conversion.pipeline import Options, plan
from nmpconv.errors import ExitCode, UnsupportedModel
from nmpconv.frontend.onnx import load
from nmpconv.runtime import interpreter

IMAGE = "(float[1,4,9,8] x) => (y)"
SIZES = "fixed sizes; of a detector, what comes before boxes are selected"

# (id, opset, model, the row of node y without its name)
ROWS = [
    ("unknown op", 13, "(float[1,4,8,8] x) => (y) { y = Det(x) }", "Det: nmpconv has no such op"),
    (
        "a shape of data",
        13,
        "(float[1,4] x) => (y) { s = Cast<to=7>(x) t = Squeeze(s) y = ConstantOfShape(t) }",
        f"ConstantOfShape: the shape of its result depends on data; {SIZES}",
    ),
    (
        "computed index",
        18,
        '(float[1,4] x, int64[1,2] i, float[1] u) => (y) { y = ScatterND<reduction="max">(x, i, u) }',
        "ScatterND: reduction max at computed places; none or add",
    ),
    (
        "cast to float8",
        19,
        f"{IMAGE} {{ r = Neg(x) y = Cast<to=17>(r) }}",
        "Cast: a cast of a computed tensor to a type that is neither float nor integer; float types",
    ),
    (
        "infinite logarithm",
        13,
        f"{IMAGE} <float i = {{-inf}}> {{ l = Log(x) a = Abs(l) y = Equal(a, i) }}",
        "Equal: tensor 'i' holds infinity; a finite number, as -1e4 in a mask",
    ),
    (
        "4d convolution",
        13,
        "(float[1,2,4,4,4,4] x) => (y) <float[2,2,1,1,1,1] w> { y = Conv(x, w) }",
        "Conv: its input has 6 dimensions; [N,C,H,W] or [N,C,W]",
    ),
    (
        "kernel too large",
        13,
        f"{IMAGE} <float[2,4,11,1] w> {{ y = Conv(x, w) }}",
        "Conv: its result would be empty, with shape [1, -1, 8, 2]",
    ),
    (
        "division",
        13,
        f"{IMAGE} <float[2,1,1,1] t = {{1, 0}}> {{ y = Div(x, t) }}",
        "Div: its divisor 't' holds a zero",
    ),
    (
        "reflection",
        13,
        f'{IMAGE} <int64[8] p = {{0,0,1,1,0,0,1,1}}> {{ y = Pad<mode="mirror">(x, p) }}',
        "Pad: mode mirror; constant, reflect, edge or wrap",
    ),
    (
        "infinite pad",
        7,
        f"{IMAGE} <int64[8] p = {{0,0,1,1,0,0,1,1}}> {{ y = Pad<pads=[0,0,1,1,0,0,1,1],value=-inf>(x) }}",
        "Pad: padding with -inf; a finite value, or -inf before MaxPool or Softmax only",
    ),
    (
        "cubic places",
        20,
        f'{IMAGE} <float[1,2,2,2] g> {{ y = GridSample<mode="cubic">(x, g) }}',
        "GridSample: mode cubic; linear or nearest",
    ),
    (
        "places in a volume",
        20,
        "(float[1,2,4,4,4] x, float[1,2,2,2,3] g) => (y) { y = GridSample(x, g) }",
        "GridSample: an input of 5 dimensions; [N,C,H,W]",
    ),
    (
        "training",
        14,
        f"{IMAGE} <float[4] s, float[4] var> {{ y, m, v = BatchNormalization<training_mode=1>(x, s, s, s, var) }}",
        "BatchNormalization: training mode; an export in inference mode",
    ),
    (
        "indices of the maxima",
        12,
        "(float[1,4,9,8] x) => (i) { y, i = MaxPool<kernel_shape=[2,2]>(x) }",
        "MaxPool: its output 'i' is used; only the first output",
    ),
    (
        "padding alone",
        12,
        f"{IMAGE} {{ y = MaxPool<kernel_shape=[2,2],pads=[2,0,0,0]>(x) }}",
        "MaxPool: a window can lie in the padding alone; pads smaller than the kernel",
    ),
    (
        "padding alone below",
        12,
        f"{IMAGE} {{ y = MaxPool<kernel_shape=[2,2],pads=[0,0,2,0]>(x) }}",
        "MaxPool: a window can lie in the padding alone; pads smaller than the kernel",
    ),
    (
        "padding alone at the left",
        12,
        f"{IMAGE} {{ y = MaxPool<kernel_shape=[2,2],pads=[0,2,0,0]>(x) }}",
        "MaxPool: a window can lie in the padding alone; pads smaller than the kernel",
    ),
    (
        "padding alone at the right",
        12,
        f"{IMAGE} {{ y = MaxPool<kernel_shape=[2,2],pads=[0,0,0,2]>(x) }}",
        "MaxPool: a window can lie in the padding alone; pads smaller than the kernel",
    ),
    (
        "seven dimensions",
        13,
        f"{IMAGE} <int64[7] s = {{1,2,2,3,3,4,2}}> {{ y = Reshape(x, s) }}",
        "Reshape: it needs a tensor of 7 dimensions; at most 6",
    ),
    (
        "seven dimensions that are more than moved",
        13,
        f"{IMAGE} <int64[7] s = {{1,2,2,3,3,4,2}}> {{ r = Reshape(x, s) y = Relu(r) }}",
        "Relu: its input has 7 dimensions; at most 6",
    ),
    (
        "infinite choice",
        13,
        f"{IMAGE} <bool[8] c = {{1,0,1,0,0,1,0,1}}, float n = {{-inf}}> {{ y = Where(c, n, x) }}",
        "Where: its operand 'n' holds infinity or NaN; a finite number",
    ),
    (
        "infinite everywhere",
        13,
        f"{IMAGE} <bool[8] c = {{1,1,1,1,1,1,1,1}}, float n = {{-inf}}> {{ t = Where(c, n, x) y = Mul(t, x) }}",
        "Mul: tensor 't' holds infinity; a finite number, as -1e4 in a mask",
    ),
    (
        "slopes",
        9,
        f"{IMAGE} <float[4] a> {{ y = PRelu(x, a) }}",
        "PRelu: slopes of shape [4] do not broadcast to [1, 4, 9, 8]; [C,1,1]",
    ),
    (
        "too large",
        13,
        f"{IMAGE} {{ y = MaxPool<kernel_shape=[1,1],strides=[3000000000,1]>(x) }}",
        "MaxPool: a stride, dilation or padding of 3000000000; 1 to 32767",
    ),
    (
        "too large a constant",
        13,
        "(float[1,4] x) => (y, z) <int64[2] s = {1000000,1000000}> "
        "{ y = ConstantOfShape(s) z = Relu(x) }",
        "ConstantOfShape: its result of shape [1000000, 1000000] is too large; 268435456 elements",
    ),
    (
        "too large an input",
        13,
        "(float[1,3,20000,20000] x) => (y) { y = MaxPool<kernel_shape=[1,1],strides=[1000,1000]>(x) }",
        "input: its shape [1, 3, 20000, 20000] is too large; 268435456 elements",
    ),
    (
        "too many repeats",
        13,
        f"{IMAGE} <int64[4] r = {{1,1,1,1099511627776}}> {{ y = Tile(x, r) }}",
        "Tile: its result of shape [1, 4, 9, 8796093022208] is too large; 268435456 elements",
    ),
    (
        "operands",
        13,
        f"{IMAGE} {{ y = Sum({', '.join(['x'] * 1001)}) }}",
        "Sum: 1001 operands; at most 1000; a sum of sums, or one Reduce of a Concat",
    ),
    ("dice", 13, f"{IMAGE} {{ t = RandomNormal<shape=[1]>() y = Add(x, t) }}", "RandomNormal: nmpconv has no such op"),
]  # fmt: skip


@pytest.mark.parametrize(("opset", "text", "expected"), [pytest.param(*row[1:], id=row[0]) for row in ROWS])
def test_row(opset, text, expected, tmp_path):
    path = tmp_path / "model.onnx"
    build(text, opset, path)
    with pytest.raises(UnsupportedModel) as caught:
        load(path)
    [(_, kind, why, form)] = caught.value.rows
    assert f"{kind}: {why}" + (f"; {form}" if form else "") == expected
    assert caught.value.code == ExitCode.UNSUPPORTED


def test_all_are_listed_and_followers_are_not(tmp_path):
    """b, d and e cannot be converted; c follows b with a known shape; f follows e, whose shape nobody knows."""
    path = tmp_path / "model.onnx"
    build(
        "(float[1,4,6,6] x) => (y, z) <int64[8] p = {0,0,1,1,0,0,1,1}, int64 k = {3}> {"
        '  a = Relu(x)  b = Pad<mode="mirror">(a, p)  c = Relu(b)  d = PRelu(c, b)  y = Sigmoid(d)'
        "  e = NonZero(a)  f = Cast<to=1>(e)  z = Det(f) }",
        13,
        path,
    )
    with pytest.raises(UnsupportedModel) as caught:
        load(path)
    assert str(caught.value) == (
        f"{path}: 4 node(s) cannot be converted:\n"
        "  b (Pad): mode mirror; instead: constant, reflect, edge or wrap\n"
        "  d (PRelu): its slope 'b' is computed from the input; instead: a constant slope\n"
        "  e (NonZero): the shape of its result depends on data\n"
        "  z (Det): nmpconv has no such op "
        "(to leave 7 of 8 nodes and 0 % of the MACs to the host, cut the graph: --outputs a)"
    )
    load(path, outputs=["a"])


def test_more_ops_than_there_is_room_for(tmp_path, monkeypatch):
    """The node that is one too many, not those after it; what is before it can be had."""
    monkeypatch.setattr("nmpconv.frontend.importer.OPS_MAX", 4)
    path = tmp_path / "model.onnx"
    text = "a = Neg(x) b = Relu(a) c = Exp(b) d = Tanh(c) e = Add(d, a) f = Sin(e) y = Mul(f, c)"
    build(f"(float[1,4] x) => (y) {{ {text} }}", 13, path)
    with pytest.raises(UnsupportedModel) as caught:
        load(path)
    [(name, *_, why, _)] = caught.value.rows
    assert (name, why) == ("e", "it would be one of more than 4 ops")
    assert caught.value.cut == ("d", "a", "c")
    assert load(path, outputs=["auto"]).outputs == ("d", "a", "c")


def test_dead_nodes_do_not_matter(tmp_path):
    build("(float[1,4] x) => (y) { t = Det(x) y = Relu(x) }", 13, tmp_path / "model.onnx")
    assert [node.op for node in load(tmp_path / "model.onnx").nodes] == ["requantize"]


def test_other_domains(tmp_path):
    """Imported but unused is fine, used is not."""
    path, header = tmp_path / "model.onnx", ', "com.example" : 1'
    build("(float[1,4] x) => (y) { y = Relu(x) }", 13, path, header)
    load(path)
    build("(float[1,4] x) => (y) { y = com.example.Twirl(x) }", 13, path, header)
    with pytest.raises(UnsupportedModel, match=r"y \(com.example.Twirl\): nmpconv has no such op"):
        load(path)


def test_an_input_that_is_no_numbers(tmp_path):
    build("(string[1,4] x) => (y) { y = Equal(x, x) }", 19, tmp_path / "model.onnx")
    with pytest.raises(UnsupportedModel, match=r"x \(input\): is string; instead: an input of numbers"):
        load(tmp_path / "model.onnx")


def _conditional() -> onnx.NodeProto:
    """An If on data whose branches read tensors of the graph around them, one by what cannot be converted."""
    branches = {
        f"{kind}_branch": helper.make_graph(
            [helper.make_node(op, [source], [kind])], kind, [], [helper.make_tensor_value_info(kind, 1, None)]
        )
        for kind, source, op in (("then", "left", "Relu"), ("else", "right", "Unique"))
    }
    return helper.make_node("If", ["c"], ["y"], "choice", **branches)


def _tail(nodes: list[onnx.NodeProto], *outputs: str) -> onnx.ModelProto:
    """x -> left, right; scores -> what nodes make of them."""
    kinds = {"left": "Relu", "right": "Neg", "n": "Abs"}
    makers = [helper.make_node(kind, ["x"], [name]) for name, kind in kinds.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 6, 4])
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph([*makers, *nodes], "g", [x], results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)


@pytest.mark.parametrize(
    ("nodes", "outputs", "rows", "cut", "left"),
    [
        pytest.param(
            [helper.make_node("NonMaxSuppression", ["left", "right"], ["y"], "nms")],
            ("y", "n"),
            [("nms", "NonMaxSuppression", "the shape of its result depends on data", SIZES)],
            "left,right,n",
            "1 of 4",
            id="boxes",
        ),
        pytest.param(
            [
                helper.make_node("ReduceMax", ["n"], ["m"], keepdims=0),
                helper.make_node("Cast", ["m"], ["c"], to=9),
                _conditional(),
            ],
            ("y",),
            [("else", "Unique", "the shape of its result depends on data", "")],
            "m,right,left",
            "2 of 6",
            id="if",
        ),
        pytest.param(
            [
                helper.make_node("Unique", ["x"], ["d"], "sum"),
                helper.make_node("Relu", ["d"], ["y"]),
            ],
            ("y",),
            [("sum", "Unique", "the shape of its result depends on data", "")],
            "",
            "",
            id="nothing before it",
        ),
    ],
)
def test_the_cut_that_is_suggested(nodes, outputs, rows, cut, left, tmp_path):
    """It names tensors of the model, and the graph before them can be converted: --outputs auto does."""
    onnx.save(_tail(nodes, *outputs), tmp_path / "model.onnx")
    with pytest.raises(UnsupportedModel) as caught:
        load(tmp_path / "model.onnx")
    assert caught.value.rows == rows
    told = f"to leave {left} nodes and 0 % of the MACs to the host, cut the graph: --outputs {cut}"
    assert caught.value.hint == (told if cut else "")
    if cut:
        assert load(tmp_path / "model.onnx", outputs=["auto"]).outputs == tuple(cut.split(","))
        assert set(load(tmp_path / "model.onnx", outputs=cut.split(",")).outputs) == set(cut.split(","))


def test_nodes_of_one_cause_are_one_line(tmp_path):
    text = "(float[1,4,4] x) => (y) { a = Det(x) b = Relu(x) c = Det(b) d = Det(b) e = Det(b) y = Sum(a, c, d, e) }"
    build(text, 13, tmp_path / "model.onnx")
    with pytest.raises(UnsupportedModel) as caught:
        load(tmp_path / "model.onnx")
    assert "\n  a, c, d and 1 more (Det): nmpconv has no such op" in str(caught.value)
    assert [row[0] for row in caught.value.rows] == ["a", "c", "d", "e"]


def test_the_work_that_a_cut_leaves(tmp_path):
    """A tenth of the products come after the node that is refused."""
    text = (
        "(float[1,90] x) => (y) <float[90,10] w, float[10,10] v> "
        '{ a = MatMul(x, w) b = Pad<mode="mirror">(a, p) c = MatMul(b, v) y = Relu(c) }'
    )
    build(text.replace("> {", ", int64[4] p = {0,0,0,0}> {"), 13, tmp_path / "m.onnx")
    with pytest.raises(UnsupportedModel, match="to leave 3 of 4 nodes and 10 % of the MACs to the host"):
        load(tmp_path / "m.onnx")


def test_a_cut_that_leaves_all_products_to_the_host_is_not_offered(tmp_path):
    """Not even the shapes of the weights are known."""
    text = "(float[1,4] x) => (y) { a = Neg(x) b = NonZero(a) c = Cast<to=1>(b) y = MatMul(a, c) }"
    build(text, 13, tmp_path / "m.onnx")
    with pytest.raises(UnsupportedModel) as caught:
        load(tmp_path / "m.onnx")
    assert caught.value.hint == ""


def test_the_optimizers_ops_say_so(tmp_path):
    text = "(float[1,4] x) => (y) { a = Relu(x) y = com.microsoft.Twirl(a) }"
    build(text, 13, tmp_path / "model.onnx", ', "com.microsoft" : 1')
    with pytest.raises(UnsupportedModel, match=r"no such op; instead: an export without onnxruntime's optimizer"):
        load(tmp_path / "model.onnx")


def test_infinity_does_not_blame_the_training(tmp_path):
    build("(float[1,4] x) => (y) <float[4] c = {-inf,0,0,0}> { y = Add(x, c) }", 13, tmp_path / "model.onnx")
    with pytest.raises(
        UnsupportedModel, match="tensor 'c' holds infinity; instead: a finite number, as -1e4 in a mask"
    ):
        load(tmp_path / "model.onnx")


def test_auto_is_the_whole_model_where_that_can_be(tmp_path):
    build("(float[1,4] x) => (y) { y = Relu(x) }", 13, tmp_path / "model.onnx")
    assert load(tmp_path / "model.onnx", outputs=["auto"]).outputs == ("y",)


@pytest.mark.slow
def test_more_readers_than_a_verifier_follows(tmp_path: Path) -> None:
    """It was the verifier that refused the file, when all was done."""
    build(chain(1001), 17, tmp_path / "m.onnx")
    with pytest.raises(UnsupportedModel, match=r"'x' is read by 1001 nodes.* at most 1000 readers of a tensor"):
        load(tmp_path / "m.onnx")
    build(chain(1000), 17, tmp_path / "m.onnx")
    interpreter.load(plan(tmp_path / "m.onnx", Options()).data)


@pytest.mark.slow
def test_more_outputs_than_a_verifier_follows(tmp_path: Path) -> None:
    """Each is read by the caller, after the last op."""
    build(comb(1000), 17, tmp_path / "m.onnx")
    with pytest.raises(UnsupportedModel, match=r"'y0' is read, or handed out, 1000 nodes after .* at most 640000"):
        load(tmp_path / "m.onnx")
    build(comb(640), 17, tmp_path / "m.onnx")
    assert len(interpreter.load(plan(tmp_path / "m.onnx", Options()).data).outputs) == 640


def comb(count: int) -> str:
    nodes = " ".join(f"y{i} = Relu(x)" for i in range(count))
    return f"(float[1,2] x) => ({', '.join(f'y{i}' for i in range(count))}) {{ {nodes} }}"


def chain(count: int) -> str:
    """x + x + ..., a node for each sum."""
    sums = [f"y{i} = Add(y{i - 1}, x)" for i in range(1, count)]
    return f"(float[1,2] x) => (y{count - 1}) {{ y0 = Relu(x) {' '.join(sums)} }}"
