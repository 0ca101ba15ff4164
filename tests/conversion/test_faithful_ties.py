"""`--faithful --bits a16w8`: sums of two tensors and means are rounded with ties to even."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_text import build
from qdq_nets import pictures
from test_faithful import FINE, made, steps_apart


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
    plain, fine = (steps_apart(model, made(model, tmp_path, samples, **more), samples) for more in ({}, FINE))
    assert np.mean(plain == 0) < 0.95
    assert (fine == 0).all()


def test_a_mean_of_nine_has_no_table(tmp_path: Path) -> None:
    """It would be rounded twice, of finer operands too."""
    model = ties("AveragePool<kernel_shape=[3,3]>(a)", 2, "int8")
    result = made(model, tmp_path, np.rint(pictures(4) * 64) / 64, **FINE)
    assert "lookup" not in {node.op for node in result.graph.nodes}


@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.parametrize("silu", [False, True])
def test_tables_round_as_the_model_does(silu: bool, kind: str, tmp_path: Path) -> None:
    """HardSigmoid of multiples of 3 steps are ties; a SiLU is rounded twice."""
    signed = kind == "int8"
    arrays = {
        "sx": np.float32(2.0**-5),
        "sg": np.float32(2.0**-7 if signed else 2.0**-8),
        "sy": np.float32(2.0**-5),
        "z": np.array(0 if signed else 128, kind),
        "zg": np.array(0, kind),
    }
    functions = """g = Sigmoid(a)
            gq = QuantizeLinear(g, sg, zg)
            gd = DequantizeLinear(gq, sg, zg)
            f = Mul(a, gd)"""
    model = build(
        f"""(float[1,3,12,12] x) => (float[1,3,12,12] y) {{
            xq = QuantizeLinear(x, sx, z)
            a = DequantizeLinear(xq, sx, z)
            {functions if silu else "f = HardSigmoid<alpha=0.16666667163372040, beta=0.5>(a)"}
            fq = QuantizeLinear(f, sy, z)
            y = DequantizeLinear(fq, sy, z)
        }}""",
        17,
        arrays=arrays,
        name="tables",
    )
    samples = np.rint(2 * pictures(16) * 32) / 32
    result = made(model, tmp_path, samples)
    assert not steps_apart(model, result, samples).any()
    assert [node.op for node in result.graph.nodes] == ["lookup"]
