"""Models of fewer bits than a type has: QuantizeLinear, Clip, DequantizeLinear, and QONNX's Quant and BipolarQuant."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_text import build
from test_lowering import run

import nmpconv
from nmpconv.calib.original_model import original
from nmpconv.errors import InputError, UnsupportedModel
from nmpconv.frontend.onnx import load
from nmpconv.frontend.read import read
from nmpconv.frontend.to_onnx import to_onnx
from nmpconv.graph.text import parse, to_text
from nmpconv.ir import Given
from nmpconv.passes.float import FLOAT

IMAGE = "(float[1,4,9,8] x) => (float[1,2,9,8] y) <float[2,4,1,1] w"


def qcdq(kind: str, zero: int, lo: int, hi: int) -> str:
    return (
        f"{IMAGE}, float s = {{0.25}}, {kind} z = {{{zero}}}, {kind} lo = {{{lo}}}, {kind} hi = {{{hi}}}> "
        "{ c = Conv(x, w) q = QuantizeLinear(c, s, z) n = Clip(q, lo, hi) d = DequantizeLinear(n, s, z) y = Mul(d, s) }"
    )


@pytest.mark.parametrize(("kind", "zero", "lo", "hi"), [("int8", 0, -7, 7), ("uint8", 0, 0, 15), ("uint8", 3, 1, 6)])
def test_a_clip_of_integers_narrows_the_grid(kind, zero, lo, hi, tmp_path: Path):
    model = build(qcdq(kind, zero, lo, hi), 13, tmp_path / "m.onnx")
    graph = load(tmp_path / "m.onnx")
    assert graph.given["n"] == Given(0.25, zero, kind).within(lo, hi)
    assert (graph.given["n"].min, graph.given["n"].max) == ((lo - zero) / 4, (hi - zero) / 4)
    assert parse(to_text(graph), {n: v.data for n, v in graph.values.items() if v.is_const}) == graph
    for _, function in FLOAT:
        graph = function(graph)
    (conv,) = [node for node in graph.nodes if node.op == "conv2d"]
    low, high = graph[conv.outputs[0]].clamp
    rng = np.random.default_rng(0)
    feed = {"x": rng.normal(0, 2, (1, 4, 9, 8)).astype(np.float32)}
    plain = load(tmp_path / "m.onnx")
    [got], [wanted] = run(to_onnx(plain, plain.outputs), feed), run(model, feed)
    assert np.abs(got - wanted).max() <= 0.25 * 0.25 * 0.51
    assert wanted.min() == got.min() == np.float32((lo - zero) / 16)
    assert wanted.max() == got.max() == np.float32((hi - zero) / 16)
    assert (high - low) == pytest.approx((hi - lo) / 4 * (0.25 if graph[conv.outputs[0]].name == "y" else 1))
    [same] = run(original(read(tmp_path / "m.onnx"), plain), feed)
    np.testing.assert_allclose(got, same, atol=1e-6)


def test_an_empty_range_is_refused(tmp_path: Path):
    build(qcdq("int8", 0, 5, -5), 13, tmp_path / "m.onnx")
    with pytest.raises(UnsupportedModel, match="an empty range, 5 to -5"):
        load(tmp_path / "m.onnx")


def quantize(x, scale, zero, bits, *, signed, narrow):
    """QONNX's own definition."""
    low = (-(2 ** (bits - 1)) + narrow) if signed else 0
    high = 2 ** (bits - 1) - 1 if signed else 2**bits - 1 - narrow
    return (np.round(np.clip(x / scale + zero, low, high)) - zero) * scale


def qonnx(domain: str, nodes: list[tuple], constants: dict[str, np.ndarray]) -> onnx.ModelProto:
    made = [helper.make_node(kind, ins, outs, domain=where, **how) for kind, ins, outs, where, how in nodes]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 6, 6])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5, 6, 6])
    data = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(made, "g", [x], [y], data)
    opsets = [helper.make_opsetid("", 14), helper.make_opsetid(domain, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize("domain", ["qonnx.custom_op.general", "finn.custom_op.general", "onnx.brevitas"])
@pytest.mark.parametrize(
    ("bits", "signed", "narrow", "per_channel"),
    [(4, 1, 1, False), (2, 0, 0, False), (8, 1, 0, False), (3, 1, 0, True), (12, 1, 0, False)],
)
def test_quant(domain, bits, signed, narrow, per_channel, tmp_path: Path):
    """Weights of 3 bits, one scale a channel, are rounded; activations saturate where the model does."""
    rng = np.random.default_rng(bits)
    weights = rng.normal(0, 0.5, (5, 4, 1, 1)).astype(np.float32)
    scales = rng.uniform(0.1, 0.3, (5, 1, 1, 1)).astype(np.float32)
    step = rng.uniform(0.1, 0.2, (1, 5, 1, 1)).astype(np.float32) if per_channel else np.float32(0.2)
    step = step * np.float32(2.0 ** (-max(bits - 4, 0)))
    how = {"signed": signed, "narrow": narrow, "rounding_mode": "ROUND"}
    nodes = [
        ("Quant", ["w", "ws", "zero", "three"], ["wq"], domain, {"signed": 1, "narrow": 1, "rounding_mode": "ROUND"}),
        ("Conv", ["x", "wq"], ["c"], "", {}),
        ("Quant", ["c", "s", "zero", "bits"], ["y"], domain, how),
    ]
    zero = np.float32(0)
    constants = {"w": weights, "ws": scales, "zero": zero, "three": np.float32(3), "s": step, "bits": np.float32(bits)}
    path = tmp_path / "m.onnx"
    onnx.save(qonnx(domain, nodes, constants), path)
    x = rng.normal(0, 3, (1, 4, 6, 6)).astype(np.float32)
    real = quantize(weights, scales, 0, 3, signed=True, narrow=1)[:, :, 0, 0]
    c = np.einsum("oc,nchw->nohw", real, x)
    wanted = quantize(c, step, 0, bits, signed=signed, narrow=narrow)
    assert np.abs(wanted).max() < np.abs(c).max()  # something saturates
    graph = load(path)
    [got] = run(to_onnx(graph, graph.outputs), {"x": x})
    if bits == 8:  # nothing of a Relu can be left in it: calibration has its range, and the type saturates
        got = np.clip(got, -128 * step, 127 * step)
    assert np.abs(got - wanted).max() <= step.max() * 0.51
    bound = read(path)
    [same] = ort.InferenceSession(bound.SerializeToString()).run(None, {"x": x})
    assert np.abs(same - wanted).max() <= step.max() * (0.51 if per_channel or bits > 8 else 1.01)
    samples = list(rng.normal(0, 3, (30, 1, 4, 6, 6)).astype(np.float32))
    assert nmpconv.convert(path, samples).report.float_db > 90


def test_bipolar(tmp_path: Path):
    """Weights and activations of one bit; 0 counts as positive."""
    domain = "qonnx.custom_op.general"
    rng = np.random.default_rng(2)
    weights = rng.normal(0, 0.5, (5, 4, 1, 1)).astype(np.float32)
    nodes = [
        ("BipolarQuant", ["w", "ws"], ["wq"], domain, {}),
        ("Conv", ["x", "wq"], ["c"], "", {}),
        ("BipolarQuant", ["c", "s"], ["y"], domain, {}),
    ]
    constants = {"w": weights, "ws": np.float32(0.5), "s": np.float32(0.25)}
    onnx.save(qonnx(domain, nodes, constants), tmp_path / "m.onnx")
    x = rng.integers(-2, 3, (1, 4, 6, 6)).astype(np.float32)
    c = np.einsum("oc,nchw->nohw", np.where(weights >= 0, 0.5, -0.5)[:, :, 0, 0], x)
    assert (c == 0).any()
    graph = load(tmp_path / "m.onnx")
    [got] = run(to_onnx(graph, graph.outputs), {"x": x})
    np.testing.assert_array_equal(got, np.where(c >= 0, 0.25, -0.25).astype(np.float32))


def test_a_rounding_that_is_not_known(tmp_path: Path):
    domain = "qonnx.custom_op.general"
    nodes = [
        ("Conv", ["x", "w"], ["c"], "", {}),
        ("Quant", ["c", "s", "z", "b"], ["y"], domain, {"rounding_mode": "FLOOR"}),
    ]
    constants = {"w": np.ones((5, 4, 1, 1), np.float32), "s": np.float32(1), "z": np.float32(0), "b": np.float32(4)}
    onnx.save(qonnx(domain, nodes, constants), tmp_path / "m.onnx")
    with pytest.raises(InputError, match="has rounding_mode FLOOR"):
        load(tmp_path / "m.onnx")
