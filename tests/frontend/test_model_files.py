"""Model files: shapes and outputs that the user asks for, damaged files."""

from __future__ import annotations

import gc

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx_text import build
from test_lowering import run

from nmpconv.errors import InputError, InvalidModel, NmpError, UnsupportedModel, UsageError
from nmpconv.frontend.onnx import load
from nmpconv.frontend.to_onnx import to_onnx

TEXT = "(float[N,4,H,W] x) => (y) <float[2,4,1,1] w> { t = Conv(x, w) y = Relu(t) }"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.onnx"


def refusal(call, *arguments, **options) -> tuple[type, str]:
    with pytest.raises(NmpError) as caught:
        call(*arguments, **options)
    return type(caught.value), str(caught.value)


def test_a_model_is_gone_when_it_is_loaded(path):
    """Without a collection of garbage: a large one would need its weights once more."""
    build(TEXT, 13, path, arrays={"w": np.ones((2, 4, 1, 1))})

    def models():
        return sum(isinstance(thing, onnx.ModelProto) for thing in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = models()
        load(path, input_shapes={"x": (1, 4, 5, 6)})
        assert models() == before
    finally:
        gc.enable()


# -- shapes -----------------------------------------------------------------------------------------------------------


def test_dynamic_batch_is_one(path):
    build("(float[N,4] x) => (y) { y = Relu(x) }", 13, path)
    assert load(path)["x"].shape == (1, 4)


def test_bound_shape(path):
    build(TEXT, 13, path)
    graph = load(path, input_shapes={"x": (1, 4, 5, 6)})
    assert graph["x"].shape == (1, 4, 5, 6)
    assert graph["y"].shape == (1, 2, 5, 6)


SHAPES = [
    ("unbound", TEXT, {}, "input 'x' has dimensions without a size: 2 (H), 3 (W) "
                          "(bind them, for example --input-shape x=1x4x224x224)"),
    ("rows and columns", "(float[N,C,H,W] x) => (y) { y = Relu(x) }", {}, "input 'x' has dimensions without a size: "
        "1 (C), 2 (H), 3 (W) (bind them, for example --input-shape x=1x3x224x224)"),
    ("channels last", "(float[N,H,W,4] x) => (y) { y = Relu(x) }", {}, "input 'x' has dimensions without a size: "
        "1 (H), 2 (W) (bind them, for example --input-shape x=1x224x224x4)"),
    ("many last", "(float[N,C,H,5] x) => (y) { y = Relu(x) }", {}, "input 'x' has dimensions without a size: "
        "1 (C), 2 (H) (bind them, for example --input-shape x=1x3x224x5)"),
    ("vector", "(float[N,K] x) => (y) { y = Relu(x) }", {}, "input 'x' has dimensions without a size: "
        "1 (K) (bind them, for example --input-shape x=1x100)"),
    ("contradiction", TEXT, {"x": (1, 3, 5, 6)}, "--input-shape: input 'x' cannot be 1x3x5x6; the model says Nx4xHxW"),
    ("rank", TEXT, {"x": (1, 4, 5)}, "--input-shape: input 'x' cannot be 1x4x5; the model says Nx4xHxW"),
    ("name", TEXT, {"z": (1, 4, 5, 6)}, "--input-shape: the model has no input 'z' (inputs: x)"),
    ("batch asked for", TEXT, {"x": (2, 4, 5, 6)}, "input 'x' has batch 2; models are converted for batch 1 "
        "(export it with a batch of 1, or try --input-shape x=1x4x5x6)"),
    ("fixed batch", "(float[8,4,5,6] x) => (y) { y = Relu(x) }", {}, "input 'x' has batch 8; models are converted for "
        "batch 1 (export it with a batch of 1, or try --input-shape x=1x4x5x6)"),
    ("zero", TEXT, {"x": (1, 4, 0, 6)}, "--input-shape x=1x4x0x6: input 'x' needs positive sizes"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "given", "message"), [pytest.param(*row[1:], id=row[0]) for row in SHAPES])
def test_shape_refusals(text, given, message, path):
    build(text, 13, path)
    assert refusal(load, path, input_shapes=given) == (UsageError, message)


def test_fixed_batch_can_be_set_to_one(path):
    build("(float[8,4,5,6] x) => (y) { y = Relu(x) }", 13, path)
    assert load(path, input_shapes={"x": (1, 4, 5, 6)})["y"].shape == (1, 4, 5, 6)


def test_sizes_follow_a_fixed_batch(path):
    """Resize, Reshape and Expand; onnxruntime computes the same of the first of two samples."""
    maximum = "m = ReduceMax<axes=[1]>(a) z = Expand(m, e)"
    nodes = f"{{ r = Resize(x, , , u) a = Reshape(r, s) {maximum} b = Mul(a, z) y = MatMul(b, w) }}"
    k = "int64[2] e = {2, 8}, int64[4] u = {2,8,1,1}"
    w = f"float[8,4] w = {{{', '.join(str(i % 5 - 2) for i in range(32))}}}"
    build(f"(float[2,8,1,1] x) => (float[2,4] y) <int64[2] s = {{2, -1}}, {k}, {w}> {nodes}", 13, path)
    x = np.arange(16, dtype=np.float32).reshape(2, 8, 1, 1)
    wanted = run(onnx.load(path), {"x": x})[0]
    graph = load(path, input_shapes={"x": (1, 8, 1, 1)})
    assert np.array_equal(run(to_onnx(graph, graph.outputs), {"x": x[:1]})[0], wanted[:1])


def test_constants_that_begin_with_as_many_by_chance(path):
    nodes = "{ f = Flatten(x) g = Reshape(f, s) r = Reshape(c, s) t = ReduceSum(r, n) m = ReduceMax(t) y = Mul(g, m) }"
    constants = "float[6] c = {1,2,3,4,5,6}, int64[2] s = {2, -1}, int64[1] n = {1}"
    build(f"(float[2,1,1,6] x) => (float[2,6] y) <{constants}> {nodes}", 13, path)
    x = np.arange(12, dtype=np.float32).reshape(2, 1, 1, 6)
    graph = load(path, input_shapes={"x": (1, 1, 1, 6)})
    assert np.array_equal(run(to_onnx(graph, graph.outputs), {"x": x[:1]})[0], run(onnx.load(path), {"x": x})[0][:1])


def test_sizes_that_do_not_follow(path):
    nodes = "{ a = Transpose<perm=[1,0,2,3]>(x) b = Reshape(a, s) y = ReduceSum<keepdims=0>(b, n) }"
    build(f"(float[2,8,1,1] x) => (float[8] y) <int64[2] s = {{2, 8}}, int64[1] n = {{0}}> {nodes}", 13, path)
    with pytest.raises(UnsupportedModel, match="the model's own batch, which is not axis 0 everywhere"):
        load(path, input_shapes={"x": (1, 8, 1, 1)})


def test_nodes_of_another_batch(path):
    weights = "<float[8,4] w, int64[2] s = {2, 8}>"
    build("(float[2,8,1,1] x) => (float[2,9] y) <float[2,1] w> { a = Flatten(x) y = Concat<axis=1>(a, w) }", 13, path)
    with pytest.raises(InvalidModel, match="an export with a batch of 1, or of any size"):
        load(path, input_shapes={"x": (1, 8, 1, 1)})
    weights = "<float[8,4] w, int64[2] s = {2, 8}>"
    build(f"(float[N,8,1,1] x) => (float[2,4] y) {weights} {{ a = Reshape(x, s) y = MatMul(a, w) }}", 13, path)
    with pytest.raises(InvalidModel, match="another exporter"):
        load(path, input_shapes={"x": (1, 8, 1, 1)})


def test_unused_input_is_dropped(path):
    build("(float[1,4] x, float[N,K] z) => (y) { y = Relu(x) }", 13, path)
    assert load(path).inputs == ("x",)


# -- outputs and names ------------------------------------------------------------------------------------------------


def test_cut(path):
    build("(float[1,4,5,6] x) => (y) <float[2,4,1,1] w> { t = Conv(x, w) u = Relu(t) y = Det(u) }", 13, path)
    graph = load(path, outputs=["u", "t"])
    assert graph.outputs == ("u", "t")
    assert graph["t"].shape == (1, 2, 5, 6)


def test_unknown_output(path):
    build("(float[1,4] x) => (y) { conv_1 = Relu(x) y = Tanh(conv_1) }", 13, path)
    expected = "--outputs: the model has no tensor 'conv_11' (close to it: conv_1)"
    assert refusal(load, path, outputs=["conv_11"]) == (UsageError, expected)


def test_unknown_output_like_nothing(path):
    build("(float[1,4] x) => (y, z) { y = Relu(x) z = Tanh(y) }", 13, path)
    expected = "--outputs: the model has no tensor 'detections' (the model's outputs: y, z)"
    assert refusal(load, path, outputs=["detections"]) == (UsageError, expected)


def test_names_are_kept_and_unique(path):
    build(
        "(float[1,4,5,6] x) => (y) <float[4,4,1,1] w> { [twice] t = Conv(x, w) [twice] u = Relu(t) y = Conv(u, w) }",
        13,
        path,
    )
    graph = load(path)
    assert [node.name for node in graph.nodes] == [
        "twice.transpose", "twice", "twice.transpose_1", "twice_1", "y.transpose", "y", "y.transpose_1",
    ]  # fmt: skip
    assert {"x", "t", "u", "y", "w", "w_1"} <= graph.values.keys()


def test_nodes_without_a_name_have_that_of_their_result(path):
    """It says which node it is, and stays where nodes are added: recipes have these names."""
    text = "(float[1,4,3,3] x) => (y) <float[4,4,1,1] w> { %s t = Conv(x, w) u = Sigmoid(t) y = Conv(u, w) }"
    build(text % "", 13, path)
    plain = [node.name for node in load(path).nodes if node.op != "transpose"]
    assert plain == ["t", "u", "y"]
    build(text.replace("Conv(x, w)", "Conv(s, w)") % "r = Conv(x, w) s = Sigmoid(r)", 13, path)
    assert [node.name for node in load(path).nodes if node.op != "transpose"] == ["r", "s", *plain]


def test_constant_output(path):
    """A number is one; truth about what no integer is, as infinity, is refused."""
    build("(float[1,4] x) => (y, s) { y = Relu(x) s = Shape(x) }", 13, path)
    assert load(path).outputs == ("y", "s")
    build("(float[1,4] x) => (y, s) { y = Relu(x) s = IsInf(x) }", 13, path)
    assert refusal(load, path) == (InputError, f"{path}: output 's' does not depend on the input")


def test_no_input(path):
    build("() => (y) <float[1,4] c> { y = Relu(c) }", 13, path)
    assert refusal(load, path) == (InputError, f"{path}: the outputs do not depend on any input")


def test_initializer_that_is_an_input_too(path):
    model = build("(float[1,4] x, float[1,4] c) => (y) { y = Add(x, c) }", 7)
    model.graph.initializer.append(numpy_helper.from_array(np.ones((1, 4), np.float32), "c"))
    onnx.save(model, path)
    assert load(path).inputs == ("x",)


# -- damaged files ----------------------------------------------------------------------------------------------------


def test_not_there(path):
    assert refusal(load, path) == (InputError, f"{path}: cannot be read: No such file or directory")


@pytest.mark.parametrize(
    "data", [b"", b"PK\x03\x04 not a model at all", b"\x08\x08"], ids=["empty", "zip", "nothing in it"]
)
def test_not_a_model(data, path):
    path.write_bytes(data)
    kind, message = refusal(load, path)
    assert kind is InputError
    assert message.startswith(f"{path}: not an ONNX model")


def test_truncated_anywhere(path):
    """Every prefix of a model is refused, never half read."""
    data = build(TEXT, 13).SerializeToString()
    for size in range(0, len(data) - 1, 7):
        path.write_bytes(data[:size])
        kind, _ = refusal(load, path, input_shapes={"x": (1, 4, 5, 6)})
        assert kind is InputError, size


@pytest.mark.parametrize("opset", [6, onnx.defs.onnx_opset_version() + 1])
def test_opset(opset, path):
    build("(float[1,4] x) => (y) { y = Relu(x) }", opset, path)
    newest = onnx.defs.onnx_opset_version()
    expected = f"{path}: has opset {opset}; 7 to {newest} can be read"
    kind, message = refusal(load, path)
    assert kind is InputError
    assert message.startswith(expected)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (np.nan, "tensor 'w' holds NaN (check the training or the export)"),
        (np.inf, "tensor 'w' holds infinity; instead: a finite number"),
    ],
)
def test_weights_that_are_no_numbers(bad, why, path):
    model = build("(float[1,4] x) => (y) <float[4,2] w, float[2] c> { t = MatMul(x, w) y = Add(t, c) }", 13)
    [w] = [tensor for tensor in model.graph.initializer if tensor.name == "w"]
    data = numpy_helper.to_array(w).copy()
    data[1, 1] = bad
    w.CopyFrom(numpy_helper.from_array(data, "w"))
    onnx.save(model, path)
    kind, message = refusal(load, path)
    assert kind is (InputError if np.isnan(bad) else UnsupportedModel)
    assert why in message


def test_short_initializer(path):
    model = build("(float[1,4] x) => (y) <float[1,4] c> { y = Add(x, c) }", 13)
    model.graph.initializer[0].raw_data = b"\0" * 12
    onnx.save(model, path)
    kind, message = refusal(load, path)
    assert kind is InputError
    assert message.startswith(f"{path}: the data of tensor 'c' is damaged: ")


def test_unknown_tensor(path):
    build("(float[1,4] x) => (y) { y = Add(x, ghost) }", 13, path)
    assert refusal(load, path) == (InputError, f"{path}: node '' (Add) reads 'ghost', which nothing makes")


# -- the order of nodes ------------------------------------------------------------------------------------------------


def test_nodes_in_any_order(path):
    """The file's order stays where it can."""
    build("(float[1,4] x) => (y) { y = Add(b, c) d = Neg(x) c = Tanh(a) b = Relu(a) a = Abs(d) }", 13, path)
    assert [node.outputs[0] for node in load(path).nodes] == ["d", "a", "c", "b", "y"]


def test_casts_at_the_end_of_the_file(path):
    """As a converter to float16 leaves them."""
    text = "{ c = Conv(h, w) r = Relu(c) y = Cast<to=1>(r) h = Cast<to=10>(x) }"
    build(f"(float[1,4,5,6] x) => (y) <float16[2,4,1,1] w> {text}", 13, path)
    graph = load(path)
    assert graph["y"].shape == (1, 2, 5, 6)


def test_nodes_of_functions_and_subgraphs_in_any_order(path):
    nodes = [helper.make_node("Add", ["t", "a"], ["b"]), helper.make_node("Relu", ["a"], ["t"])]
    function = helper.make_function("local", "Twice", ["a"], ["b"], nodes, [helper.make_opsetid("", 13)])
    model = build("(float[1,4] x) => (y) { y = Neg(t) t = local.Twice(x) }", 13, header=', "local" : 1')
    model.functions.append(function)
    onnx.save(model, path)
    assert [node.op for node in load(path).nodes] == ["requantize", "add", "mul"]
    branch = lambda *nodes: helper.make_graph(  # noqa: E731
        nodes, "g", [], [helper.make_tensor_value_info("r", onnx.TensorProto.FLOAT, None)]
    )
    taken = branch(helper.make_node("Neg", ["s"], ["r"]), helper.make_node("Relu", ["x"], ["s"]))
    model = build("(float[1,4] x) => (y) <bool c = {1}> { y = Tanh(t) }", 13)
    other = branch(helper.make_node("Abs", ["x"], ["r"]))
    model.graph.node.append(helper.make_node("If", ["c"], ["t"], then_branch=taken, else_branch=other))
    onnx.save(model, path)
    assert [node.op for node in load(path).nodes] == ["requantize", "mul", "lookup"]


def test_constants_of_the_branch_that_is_taken(path):
    text = "{ h = Size(x) c = Equal(h, n) y = If<"
    text += "then_branch = t () => (float[1,4] r) <float[4] k = {1,2,3,4}> { r = Mul(x, k) },"
    text += " else_branch = e () => (float[1,4] r) <float[4] k = {5,6,7,8}> { r = Mul(x, k) }>(c) }"
    for number, wanted in ((4, [1, 2, 3, 4]), (5, [5, 6, 7, 8])):
        build(f"(float[1,4] x) => (y) <int64 n = {{{number}}}> {text}", 13, path)
        graph = load(path)
        assert [value.data.ravel().tolist() for value in graph.values.values() if value.data is not None] == [wanted]


def test_a_constant_that_a_branch_makes_has_the_name_of_its_result(path):
    text = "{ h = Size(x) c = Equal(h, n) t = If<"
    text += "then_branch = t () => (float[4] r) { r = Constant<value = float[4] {1, 2, 3, 4}>() },"
    text += " else_branch = e () => (float[4] r) { r = Constant<value = float[4] {5, 6, 7, 8}>() }>(c) y = Mul(x, t) }"
    build(f"(float[1,4] x) => (y) <int64 n = {{4}}> {text}", 13, path)
    [(name, data)] = [(value.name, value.data) for value in load(path).values.values() if value.data is not None]
    assert (name, data.ravel().tolist()) == ("t", [1, 2, 3, 4])


def test_cycle(path):
    build("(float[1,4] x) => (y) { y = Relu(c) [first] a = Add(x, b) [second] b = Neg(a) c = Abs(b) }", 13, path)
    expected = f"{path}: node 'second' (Neg) is on a cycle: it reads what depends on its own result"
    assert refusal(load, path) == (InputError, expected)


def test_a_node_that_reads_its_own_result(path):
    build("(float[1,4] x) => (y) { [own] a = Add(x, a) y = Relu(a) }", 13, path)
    expected = f"{path}: node 'own' (Add) is on a cycle: it reads what depends on its own result"
    assert refusal(load, path) == (InputError, expected)


def test_local_functions_are_inlined(path):
    function = helper.make_function(
        "local", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 13)]
    )
    model = build("(float[1,4] x) => (y) { y = local.Twice(x) }", 13, header=', "local" : 1')
    model.functions.append(function)
    onnx.save(model, path)
    assert [node.op for node in load(path).nodes] == ["add"]


FUNCTIONS = [
    ("y = l.F(x, x)", "F (a) => (b) { b = Relu(a) }", "node 'n' (F) has 2 inputs; its local function has 1"),
    ("y, z = l.F(x)", "F (a) => (b) { b = Relu(a) }", "node 'n' (F) has 2 outputs; its local function has 1"),
    ("y = l.F(x, x)", "F (a, a) => (b) { b = Relu(a) }", "the local function 'F' has two inputs 'a'"),
    ("y, z = l.F(x)", "F (a) => (b, b) { b = Relu(a) }", "the local function 'F' has two outputs 'b'"),
    ("y = l.F(x)", "F (a) => (b) { b = l.F(a) }", "the local function 'F' calls itself"),
    (
        "y = l.F(x)",
        'F (a) => (b) { [inside] b = l.G(a, a) } <domain: "l", opset_import: ["" : 13]> G (a) => (b) { b = Relu(a) }',
        "node 'inside' (G) has 2 inputs; its local function has 1",
    ),
]


@pytest.mark.parametrize(("call", "function", "expected"), FUNCTIONS)
def test_local_functions_that_make_no_sense(call, function, expected, path):
    text = f"""<ir_version: 8, opset_import: ["" : 13, "l" : 1]>
        g (float[1,4] x) => (float[1,4] y) {{ [n] {call} }}
        <domain: "l", opset_import: ["" : 13, "l" : 1]> {function}"""
    onnx.save(onnx.parser.parse_model(text), path)
    assert refusal(load, path) == (InputError, f"{path}: {expected}")


@pytest.mark.parametrize(("depth", "refused"), [(100, False), (101, True), (5000, True)])
def test_local_functions_that_call_others(depth, refused, path):
    functions = [
        helper.make_function(
            "l",
            f"F{i}",
            ["a"],
            ["b"],
            [helper.make_node(f"F{i - 1}" if i else "Relu", ["a"], ["b"], domain="l" if i else "")],
            [helper.make_opsetid("", 13), helper.make_opsetid("l", 1)],
        )
        for i in range(depth)
    ]
    model = build(f"(float[1,4] x) => (y) {{ y = l.F{depth - 1}(x) }}", 13, header=', "l" : 1')
    model.functions.extend(functions)
    onnx.save(model, path)
    if refused:
        expected = f"{path}: the local function 'F100' calls others more than 100 deep (an export without functions)"
        assert refusal(load, path) == (InputError, expected)
    else:
        assert [node.op for node in load(path).nodes] == ["requantize"]


def test_the_inliner_refuses(path, monkeypatch):
    """Faults that onnx does not see beforehand are errors about the file, too."""

    def refuse(model, functions, exclude):
        raise RuntimeError("assertion failed")

    test_local_functions_are_inlined(path)
    monkeypatch.setattr(onnx.inliner, "inline_selected_functions", refuse)
    expected = f"{path}: its local functions cannot be inlined: assertion failed"
    assert refusal(load, path) == (InputError, expected)


def test_an_output_that_is_listed_twice_is_one(path):
    """torch's older exporter writes that for a module that returns a tensor twice, and onnxruntime runs it."""
    model = build("(float[1,4] x) => (z, y) { z = Neg(x) y = Relu(x) }", 13)
    model.graph.output.append(model.graph.output[0])
    onnx.save(model, path)
    assert load(path).outputs == ("z", "y")


@pytest.mark.parametrize("role", ["input", "initializer"])
def test_names_that_come_twice(role, path):
    model = build("(float[1,4] x) => (y) <float[4] w> { y = Mul(x, w) }", 13)
    named = getattr(model.graph, role)
    named.append(named[0])
    onnx.save(model, path)
    name = named[0].name
    assert refusal(load, path) == (InputError, f"{path}: its {role} '{name}' is there twice (names of their own)")
