"""A .nmp file as ONNX: onnxruntime, as people run it, computes the same integers."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from op_cases import BY_OP

import nmpconv
from nmpconv.errors import UnsupportedModel
from nmpconv.exporters.qdq import to_onnx
from nmpconv.file import reader
from nmpconv.file.writer import to_bytes
from nmpconv.graph.reference import run as run_reference
from nmpconv.ir import Graph, Node, Value
from nmpconv.ops import OPS, Case
from nmpconv.ops.common.case import Operand, grid, single
from nmpconv.ops.lookup import LookupParams
from nmpconv.passes.memory import plan_memory
from nmpconv.runtime.feed import Feed

CASES = 8  # of an op, spread over all that qualify


def session(data: bytes) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def narrow(case: Case) -> bool:
    """int8 in and out, where float32 is wide enough; exponents that it has."""
    active = [value.quant for value in case.graph.values.values() if not value.is_const]
    return all(quant.bits == 8 and abs(quant.exponent) < 30 for quant in active)


def chosen(op: str) -> list[Case]:
    found = [case for case in BY_OP[op] if narrow(case)]
    return found[:: max(1, len(found) // CASES)]


TABLES_ALONE = {"sum_lookup"}  # a file has the table of its function, not the function


@pytest.mark.parametrize("op", sorted(TABLES_ALONE))
def test_what_a_file_does_not_tell_is_refused(op):
    with pytest.raises(UnsupportedModel, match="only its integer tables"):
        to_onnx(reader.read(to_bytes(plan_memory.run(chosen(op)[0].graph), {})))


@pytest.mark.parametrize("op", [op for op in OPS if op not in TABLES_ALONE])
def test_every_op(op):
    wrong, cases = [], chosen(op)
    assert cases
    for case in cases:
        model = to_onnx(reader.read(to_bytes(plan_memory.run(case.graph), {})))
        onnx.checker.check_model(model, full_check=True)
        grids = [case.graph[name].quant.exponent for name in case.graph.inputs]
        feeds = {
            port.name: np.ldexp(q.astype(np.float32), e)
            for port, q, e in zip(model.graph.input, case.feeds, grids, strict=True)
        }
        got = session(model.SerializeToString()).run(None, feeds)
        wanted = run_reference(case.graph, dict(zip(case.graph.inputs, case.feeds, strict=True)))
        for name, real in zip(case.graph.outputs, got, strict=True):
            q = np.ldexp(real.astype(np.float64), -case.graph[name].quant.exponent)
            off = np.abs(q - wanted[name])
            if off.max() > 1 or (off > 0).mean() > 0.02:
                wrong.append((case.id, float(off.max()), float((off > 0).mean())))
    assert not wrong


MATRICES = ("fully_connected", (900, 500), (8, 500)), ("conv2d", (1, 30, 30, 500), (8, 1, 1, 500))


@pytest.mark.parametrize(("op", "x", "w"), MATRICES)
@pytest.mark.parametrize("origin", [0.0, 0.3])
def test_sums_wider_than_float32_are_exact(op, x, w, origin):
    """Logits in int16: one step of one is several steps of a probability."""
    rng = np.random.default_rng(5)
    shapes = {"x": x, "w": w, "b": (8,)}
    q = {name: rng.integers(-32768, 32768, shape).astype(np.int16) for name, shape in shapes.items()}
    q["w"], q["b"] = (q["w"] >> 8).astype(np.int8), q["b"] >> 2
    values = {
        "x": Value("x", x, "int16", quant=grid(16, -11)),
        "w": Value("w", w, "int8", q["w"], quant=grid(8, *[-7, -6] * 4)),
        "b": Value("b", (8,), "int16", q["b"], quant=grid(16, -5)),
        "y": Value("y", (*x[:-1], 8), "int16", quant=grid(16, -5), origin=origin),
    }
    graph = Graph("wide", ("x",), ("y",), (Node(op, "n", ("x", "w", "b"), ("y",), OPS[op].Params()),), values)
    model = to_onnx(reader.read(to_bytes(plan_memory.run(graph), {})))
    onnx.checker.check_model(model, full_check=True)
    (got,) = session(model.SerializeToString()).run(None, {"x": np.ldexp(q["x"].astype(np.float32), -11)})
    wanted = run_reference(graph, {"x": q["x"]})["y"]
    np.testing.assert_array_equal(np.rint((got.astype(np.float64) - origin) * 32), wanted)


def test_tables_of_int16_saturate_as_they_do_in_the_file():
    """A piece that saturates ends at the largest integer of 32 bits, which float32 does not hold."""
    function = LookupParams("exp")
    x = Operand(np.arange(-32768, 32768, dtype=np.int16).reshape(1, 256, 256), grid(16, -11))
    case = single(OPS["lookup"], "steep", function, [x], grid(16, -2), quantize=True)
    model = to_onnx(reader.read(to_bytes(plan_memory.run(case.graph), {})))
    (got,) = session(model.SerializeToString()).run(None, {"x0": np.ldexp(x.q.astype(np.float32), -11)})
    (wanted,) = run_reference(case.graph, {"x0": x.q}).values()
    np.testing.assert_array_equal(np.ldexp(got.astype(np.float64), 2), wanted)
    assert wanted.max() == 32767


def test_inputs_and_outputs_are_those_of_the_model_that_was_converted(samples):
    """Pixels are made of the model's input again: NCHW floats, less a mean."""
    model, folder = samples / "shapes" / "model.onnx", samples / "shapes" / "calib"
    converted = nmpconv.convert(
        model,
        folder,
        calib_limit=12,
        mean=(123.675, 116.28, 103.53),
        std=(58.395, 57.12, 57.375),
        bias_correction=False,
    )
    data = nmpconv.export(converted)
    assert nmpconv.export(converted) == data
    original, ours, net = session(model.read_bytes()), session(data), converted.load()
    assert [port.name for port in ours.get_inputs()] == [port.name for port in original.get_inputs()]
    assert [port.name for port in ours.get_outputs()] == [port.name for port in original.get_outputs()]
    feed = Feed(net, {"": folder})
    for i in range(0, len(feed), 7):
        (got,) = ours.run(None, feed.floats(feed[i]))
        (wanted,) = net.run(*feed.integers(feed[i]).values())
        np.testing.assert_array_equal(np.ldexp(got.astype(np.float64), -net.outputs[0].exponent), wanted)


def test_integers_are_in_it(samples):
    """Weights of a convolution are int8, with one scale a channel; activations are uint8 with zero points."""
    converted = nmpconv.convert(samples / "digits" / "model.onnx", samples / "digits" / "calib", calib_limit=12)
    model = onnx.load_from_string(nmpconv.export(converted))
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    grids = [node.input for node in model.graph.node if node.op_type == "DequantizeLinear"]
    weights = [constants[x] for x, *_ in grids if x in constants and constants[x].ndim == 4]
    zeros = {constants[zero].dtype for x, _, zero in grids if x not in constants}
    assert weights
    assert all(w.dtype == np.int8 for w in weights)
    assert np.dtype(np.uint8) in zeros
    assert np.log2([constants[scale] for _, scale, _ in grids if constants[scale].ndim == 0]) % 1 == pytest.approx(0)
