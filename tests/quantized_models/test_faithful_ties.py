"""`--faithful --bits a16w8`: sums of two tensors and means are rounded with ties to even."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_text import build
from qdq_nets import pictures
from quantized_runs import FINE, faithful, steps_apart


def ties(operation: str, finer: int, kind: str) -> onnx.ModelProto:
    """finer: steps of an operand in one of the result."""
    zero = np.array(128 if kind == "uint8" else 0, kind)
    arrays = {"step": np.float32(2.0**-6), "coarse": np.float32(finer * 2.0**-6), "z": zero}
    return build(
        f"""(float[1,3,12,12] x) => (float[N,C,H,W] y) {{
            aq = QuantizeLinear(x, step, z)
            a = DequantizeLinear(aq, step, z)
            m = MaxPool<kernel_shape=[3,3],pads=[1,1,1,1]>(a)
            s = Add(a, m)
            r = {operation}
            rq = QuantizeLinear(r, coarse, z)
            y = DequantizeLinear(rq, coarse, z)
        }}""",
        17,
        arrays=arrays,
        name="ties",
    )


@pytest.mark.parametrize(
    ("operation", "finer", "kind"),
    [
        ("Add(a, m)", 2, "uint8"),
        ("Relu(s)", 2, "int8"),
        ("Sub(a, m)", 4, "int8"),
        ("AveragePool<kernel_shape=[2,2]>(a)", 1, "uint8"),
        ("AveragePool<kernel_shape=[2,2],pads=[1,1,1,1]>(a)", 2, "int8"),
    ],
)
def test_ties_of_sums_and_means_are_the_models_with_finer_sums(
    operation: str, finer: int, kind: str, tmp_path: Path
) -> None:
    model = ties(operation, finer, kind)
    samples = np.rint(pictures(16) * 64) / 64
    plain, fine = (steps_apart(model, faithful(model, tmp_path, samples, **more), samples) for more in ({}, FINE))
    assert np.mean(plain == 0) < 0.95
    assert (fine == 0).all()


def test_a_mean_of_nine_has_no_table(tmp_path: Path) -> None:
    """It would be rounded twice, of finer operands too."""
    model = ties("AveragePool<kernel_shape=[3,3]>(a)", 2, "int8")
    result = faithful(model, tmp_path, np.rint(pictures(4) * 64) / 64, **FINE)
    assert "lookup" not in {node.op for node in result.graph.nodes}


def table(kind: str, function: str, outputs: str = "float[1,3,12,12] y") -> onnx.ModelProto:
    """function: what makes f of a, on the grid of x; SILU or others."""
    signed = kind == "int8"
    arrays = {
        "sx": np.float32(2.0**-5),
        "sg": np.float32(2.0**-7 if signed else 2.0**-8),
        "sy": np.float32(2.0**-5),
        "z": np.array(0 if signed else 128, kind),
        "zg": np.array(0, kind),
    }
    return build(
        f"""(float[1,3,12,12] x) => ({outputs}) {{
            xq = QuantizeLinear(x, sx, z)
            a = DequantizeLinear(xq, sx, z)
            {function}
            fq = QuantizeLinear(f, sy, z)
            y = DequantizeLinear(fq, sy, z)
        }}""",
        17,
        arrays=arrays,
        name="tables",
    )


SILU = """g = Sigmoid(a)
            gq = QuantizeLinear(g, sg, zg)
            gd = DequantizeLinear(gq, sg, zg)
            f = Mul(a, gd)"""


@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.parametrize(
    "function",
    [
        "f = HardSigmoid<alpha=0.16666667163372040, beta=0.5>(a)",
        SILU,
        SILU.replace("f =", "m =") + " f = Relu(m)",
        SILU.replace("f =", "m =") + " low = Constant<value_float=-0.2>() high = Constant<value_float=1.3>()"
        " f = Clip(m, low, high)",
    ],
    ids=["hard_sigmoid", "silu", "silu_relu", "silu_clip"],
)
def test_tables_round_as_the_model_does(function: str, kind: str, tmp_path: Path) -> None:
    """HardSigmoid of multiples of 3 steps are ties; a SiLU is rounded twice."""
    model = table(kind, function)
    samples = np.rint(2 * pictures(16) * 32) / 32
    result = faithful(model, tmp_path, samples)
    assert not steps_apart(model, result, samples).any()
    assert [node.op for node in result.graph.nodes] == ["lookup"]


def test_the_sigmoid_of_a_silu_may_be_an_output(tmp_path: Path) -> None:
    model = table("int8", SILU, "float[1,3,12,12] y, float[1,3,12,12] gd")
    samples = np.rint(2 * pictures(8) * 32) / 32
    result = faithful(model, tmp_path, samples)
    assert [node.op for node in result.graph.nodes] == ["lookup", "mul"]
    assert np.abs(steps_apart(model, result, samples)).max() <= 1
