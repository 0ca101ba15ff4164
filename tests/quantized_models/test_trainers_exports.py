"""Quantized nets in the forms in which Brevitas and torchao export them, node by node.

docs/quantized-models.md has what the two themselves give.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_text import build
from qdq_nets import pictures
from quantized_runs import converted, outputs


def brevitas(bits: int) -> onnx.ModelProto:
    """QCDQ: float weights that are quantized, clipped and dequantized; layers have constants for steps in common."""
    rng, most = np.random.default_rng(6), 2 ** (bits - 1) - 1
    arrays = {
        "w1": rng.normal(0, 0.2, (8, 3, 3, 3)).astype(np.float32),
        "w2": rng.normal(0, 0.3, (8, 1, 3, 3)).astype(np.float32),
        "w3": rng.normal(0, 0.1, (6, 8 * 36)).astype(np.float32),
        "b1": rng.normal(0, 0.2, 8).astype(np.float32),
        "b2": rng.normal(0, 0.2, 8).astype(np.float32),
        "b3": rng.normal(0, 0.2, 6).astype(np.float32),
        "sx": np.float32(2.0**-5),
        "sw": np.float32(2.0 ** (1 - bits)),
        "sr": np.float32(2.0 ** (3 - bits)),
        "sy": np.float32(2.0**-4),
        "z": np.int8(0),
        "u": np.uint8(0),
        "low": np.int8(-most),
        "high": np.int8(most),
        "top": np.uint8(2**bits - 1),
        "n": np.array([1, 8 * 36]),
    }

    def weights(name: str) -> str:
        return f"""{name}q = QuantizeLinear({name}, sw, z)
            {name}c = Clip({name}q, low, high)
            {name}d = DequantizeLinear({name}c, sw, z)"""

    def relu(x: str, y: str) -> str:
        return f"""{y}r = Relu({x})
            {y}q = QuantizeLinear({y}r, sr, u)
            {y}c = Clip({y}q, u, top)
            {y} = DequantizeLinear({y}c, sr, u)"""

    return build(
        f"""(float[1,3,12,12] x) => (float[1,6] y) {{
            xq = QuantizeLinear(x, sx, z)
            xd = DequantizeLinear(xq, sx, z)
            {weights("w1")}
            c1 = Conv<pads=[1,1,1,1]>(xd, w1d, b1)
            {relu("c1", "a1")}
            {weights("w2")}
            c2 = Conv<pads=[1,1,1,1], group=8>(a1, w2d, b2)
            {relu("c2", "a2")}
            p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(a2)
            f = Reshape(p, n)
            {weights("w3")}
            g = Gemm<transB=1>(f, w3d, b3)
            gq = QuantizeLinear(g, sy, z)
            y = DequantizeLinear(gq, sy, z)
        }}""",
        17,
        arrays=arrays,
        name="brevitas",
    )


def torchao() -> onnx.ModelProto:
    """QDQ: all activations int8 with a zero point, steps of any size, int8 weights with a step for each channel, a
    residual sum, a float bias."""
    rng = np.random.default_rng(7)
    arrays = {
        "w1": rng.integers(-127, 128, (8, 3, 3, 3)).astype(np.int8),
        "s1": rng.uniform(0.002, 0.004, 8).astype(np.float32),
        "w2": rng.integers(-127, 128, (8, 8, 3, 3)).astype(np.int8),
        "s2": rng.uniform(0.001, 0.002, 8).astype(np.float32),
        "w3": rng.integers(-127, 128, (6, 8 * 36)).astype(np.int8),
        "s3": rng.uniform(0.0005, 0.0008, 6).astype(np.float32),
        "b": rng.normal(0, 0.2, 8).astype(np.float32),
        "b3": rng.normal(0, 0.2, 6).astype(np.float32),
        "zw": np.zeros(8, np.int8),
        "z3": np.zeros(6, np.int8),
        "n": np.array([1, 8 * 36]),
    }
    grids = {"x": (0.0173, -1), "a": (0.0212, -128), "t": (0.0231, -128), "m": (0.0374, -128), "p": (0.0374, -128)}
    for name, (step, zero) in (grids | {"g": (0.0431, 7)}).items():
        arrays |= {f"s_{name}": np.float32(step), f"z_{name}": np.int8(zero)}

    def pair(x: str, name: str, out: str = "") -> str:
        return f"""{name}q = QuantizeLinear({x}, s_{name}, z_{name})
            {out or name + "d"} = DequantizeLinear({name}q, s_{name}, z_{name})"""

    return build(
        f"""(float[1,3,12,12] x) => (float[1,6] y) {{
            {pair("x", "x")}
            w1d = DequantizeLinear<axis=0>(w1, s1, zw)
            c1 = Conv<pads=[1,1,1,1]>(xd, w1d, b)
            r1 = Relu(c1)
            {pair("r1", "a")}
            w2d = DequantizeLinear<axis=0>(w2, s2, zw)
            c2 = Conv<pads=[1,1,1,1]>(ad, w2d, b)
            r2 = Relu(c2)
            {pair("r2", "t")}
            sum = Add(ad, td)
            {pair("sum", "m")}
            p1 = MaxPool<kernel_shape=[2,2], strides=[2,2]>(md)
            {pair("p1", "p")}
            f = Reshape(pd, n)
            w3d = DequantizeLinear<axis=0>(w3, s3, z3)
            g = Gemm<transB=1>(f, w3d, b3)
            {pair("g", "g", "y")}
        }}""",
        17,
        arrays=arrays,
        name="torchao",
    )


@pytest.mark.parametrize("bits", [4, 8])
def test_brevitas(bits: int, tmp_path: Path) -> None:
    """The same integers, but for a tie in a thousand; a free conversion has fewer of them."""
    model = brevitas(bits)
    result = converted(model, tmp_path, pictures(24), faithful=True, bits="a16w8")
    wanted, got = outputs(model, result, pictures(40, seed=11))
    assert np.mean(wanted == got) > 0.9
    assert np.abs(wanted - got).max() <= 2.0**-4
    free = converted(model, tmp_path, pictures(24)).report.against_quantized
    kept = result.report.against_quantized
    assert free is not None
    assert kept is not None
    assert free.equal is not None
    assert kept.equal is not None
    assert kept.equal > free.equal
    assert all(row.bits_lost == 0 for row in result.report.legalized)


def test_torchao(tmp_path: Path) -> None:
    model = torchao()
    for options in ({}, {"faithful": True}, {"faithful": True, "bits": "a16w8"}):
        result = converted(model, tmp_path, pictures(24), **options)
        assert result.report.quantized_nodes == result.report.total_nodes
        wanted, got = outputs(model, result, pictures(40, seed=11))
        noise = 10 * np.log10(np.square(wanted).sum() / np.square(wanted - got).sum())
        assert noise > 22, options
        assert result.report.against_quantized is not None
        assert result.report.against_quantized.equal is None
