"""XINT8 models of AMD Quark: uint8 around 128, int8 biases with steps of their own, all steps powers of two.

Its quantizer is not needed: the nets have its form, and no operators of its own. It writes a global mean of n elements
as a mean times n * k / 2^m, since its device multiplies the sum by k / 2^m.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_text import build
from qdq_nets import pictures
from quantized_runs import FINE, faithful, steps_apart


def on_grid(x: str, step: str, name: str) -> str:
    return f"{name}q = QuantizeLinear({x}, {step}, z8) {name} = DequantizeLinear({name}q, {step}, z8)"


def layer(operator: str, x: str, name: str) -> str:
    weights = f"{name}w = DequantizeLinear({name}w8, {name}sw, z)"
    return f"{weights} {name}b = DequantizeLinear({name}b8, {name}sb, z) {name} = {operator}({x}, {name}w, {name}b)"


def xint8(below: int = 8) -> onnx.ModelProto:
    """Conv, Relu, strided Conv, a sum with a Conv 1x1, a scaled mean of 36, Gemm. below: bits of a Conv's products."""
    rng = np.random.default_rng(2)
    shapes = {"a": (16, 3, 3, 3), "b": (16, 16, 3, 3), "c": (16, 16, 1, 1), "g": (10, 16)}
    arrays = {f"{name}w8": rng.integers(-127, 128, shape).astype(np.int8) for name, shape in shapes.items()}
    arrays |= {f"{name}b8": rng.integers(-127, 128, shape[0]).astype(np.int8) for name, shape in shapes.items()}
    arrays |= {
        **{"z": np.int8(0), "z8": np.uint8(128), "scale": np.float32(36 * 7 / 256)},
        **{"sx": np.float32(2.0**-5), "sa": np.float32(2.0**-5), "sb": np.float32(2.0**-4), "sm": np.float32(2.0**-5)},
        **{"asw": np.float32(2.0**-below), "asb": np.float32(2.0**-7), "bsw": np.float32(2.0**-7)},
        **{"bsb": np.float32(2.0**-6), "csw": np.float32(2.0**-7), "csb": np.float32(2.0**-10)},
        **{"gsw": np.float32(2.0**-7), "gsb": np.float32(2.0**-6), "sg": np.float32(2.0**-4)},
    }
    model = build(
        f"""(float[1,3,12,12] x) => (float[1,10] y) {{
            {on_grid("x", "sx", "xd")}
            {layer("Conv<pads=[1,1,1,1]>", "xd", "a")}
            ar = Relu(a)
            {on_grid("ar", "sa", "ad")}
            {layer("Conv<pads=[1,1,1,1],strides=[2,2]>", "ad", "b")}
            {on_grid("b", "sb", "bd")}
            {layer("Conv<strides=[2,2]>", "ad", "c")}
            {on_grid("c", "sb", "cd")}
            s = Add(bd, cd)
            sr = Relu(s)
            {on_grid("sr", "sb", "sd")}
            mean = GlobalAveragePool(sd)
            scaled = Mul(mean, scale)
            {on_grid("scaled", "sm", "md")}
            f = Flatten<axis=1>(md)
            {on_grid("f", "sm", "fd")}
            {layer("Gemm<transB=1>", "fd", "g")}
            {on_grid("g", "sg", "y")}
        }}""",
        17,
        arrays={name: np.asarray(array) for name, array in arrays.items()},
        name="xint8",
    )
    onnx.checker.check_model(model)
    return model


@pytest.mark.parametrize("below", [8, 9])
def test_the_integers_are_the_models(below: int, tmp_path: Path) -> None:
    """All of them: biases are whole in finer steps, and ties go to even integers. The bias rule costs the rest."""
    model, samples = xint8(below), np.rint(pictures(64, seed=9) * 32) / 32
    fine, plain = faithful(model, tmp_path, samples[:32], **FINE), faithful(model, tmp_path, samples[:32])
    assert not steps_apart(model, fine, samples).any()
    report = plain.report.against_quantized
    assert report is not None
    assert report.equal is not None
    assert report.equal_own_biases is not None
    assert report.equal < report.equal_own_biases
    assert fine.report.against_quantized is not None
    assert fine.report.against_quantized.equal == 100


def mean_of_64(step: float) -> onnx.ModelProto:
    """Its result has this step; what it reads has 1/8."""
    text = f"""(float[1,3,8,8] x) => (float[1,3,1,1] y) {{
        {on_grid("x", "s", "xd")}
        mean = GlobalAveragePool(xd)
        {on_grid("mean", "t", "y")}
    }}"""
    arrays = {"s": np.float32(2.0**-3), "t": np.float32(step), "z8": np.uint8(128)}
    return build(text, 17, arrays={name: np.asarray(array) for name, array in arrays.items()}, name="mean")


def eighths(count: int) -> np.ndarray:
    """Samples of `mean_of_64`."""
    return np.random.default_rng(0).integers(-3, 4, (count, 3, 8, 8)).astype(np.float32) / 8


def test_a_mean_of_64_is_the_models(tmp_path: Path) -> None:
    """Its ties are too many for a table."""
    model, samples = mean_of_64(2.0**-3), eighths(400)
    plain, fine = faithful(model, tmp_path, samples[:8]), faithful(model, tmp_path, samples[:8], **FINE)
    assert steps_apart(model, plain, samples).any()
    assert not steps_apart(model, fine, samples).any()


@pytest.mark.parametrize(("step", "op"), [(0.0037, "average_pool"), (2.0**-8, "conv2d")])
def test_steps_that_are_no_powers_of_two_have_no_ties(step: float, op: str, tmp_path: Path) -> None:
    """There a mean stays a mean."""
    ops = [node.op for node in faithful(mean_of_64(step), tmp_path, eighths(16), **FINE).graph.nodes]
    assert {"average_pool", "conv2d"} & {*ops} == {op}


def test_a_sum_beyond_16_bits_is_rounded_twice(tmp_path: Path) -> None:
    """Products 11 bits below the result's steps: a limit of `finer_sums`, and not worse than without it."""
    model, samples = xint8(11), np.rint(pictures(32, seed=9) * 32) / 32
    result = faithful(model, tmp_path, samples[:16], **FINE)
    apart = steps_apart(model, result, samples)
    assert [node.op for node in result.graph.nodes][1:4] == ["conv2d", "requantize", "conv2d"]
    assert np.abs(apart).max() <= 1
    assert np.mean(apart == 0) > 0.85
