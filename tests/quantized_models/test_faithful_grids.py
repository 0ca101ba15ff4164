"""`--faithful`: what goes from one grid to another one is rounded where the file rounds it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_text import build
from qdq_nets import pictures
from quantized_runs import faithful, outputs, steps_apart


def arrays_of(**others: np.generic | np.ndarray) -> dict[str, np.ndarray]:
    """Weights [8, 3, 3, 3] and [4, 8, 1, 1], their step, a step 2^-6 for the input, a zero point, and others."""
    rng = np.random.default_rng(4)
    arrays = {
        "w": rng.integers(-127, 128, (8, 3, 3, 3)).astype(np.int8),
        "v": rng.integers(-127, 128, (4, 8, 1, 1)).astype(np.int8),
        "sw": np.float32(2.0**-8),
        "sx": np.float32(2.0**-6),
        "z": np.int8(0),
    }
    return {name: np.asarray(array) for name, array in {**arrays, **others}.items()}


def two_grids(step: float, kind: str, zero: int, between: str) -> onnx.ModelProto:
    """Two layers; what is between them goes from a grid of 2^-4 to another one. between: an operator, or none."""
    arrays = arrays_of(sy=np.float32(2.0**-4), sz=np.float32(step), zz=np.array(zero, kind))
    return build(
        f"""(float[1,3,12,12] x) => (float[1,4,12,12] y) {{
            xq = QuantizeLinear(x, sx, z)
            xd = DequantizeLinear(xq, sx, z)
            wd = DequantizeLinear(w, sw, z)
            c = Conv<pads=[1,1,1,1]>(xd, wd)
            cq = QuantizeLinear(c, sy, z)
            cd = DequantizeLinear(cq, sy, z)
            r = {between}(cd)
            rq = QuantizeLinear(r, sz, zz)
            rd = DequantizeLinear(rq, sz, zz)
            vd = DequantizeLinear(v, sw, z)
            e = Conv(rd, vd)
            eq = QuantizeLinear(e, sy, z)
            y = DequantizeLinear(eq, sy, z)
        }}""",
        17,
        arrays=arrays,
        name="two_grids",
    )


@pytest.mark.parametrize("between", ["Identity", "Relu"])
@pytest.mark.parametrize(
    ("step", "kind", "zero"),
    [
        (2.0**-2, "int8", 0),
        (2.0**-5, "int8", 0),
        (2.0**-3, "uint8", 0),
        (2.0**-2, "uint8", 128),
        (2.0**-4, "uint8", 128),
    ],
)
def test_a_tensor_that_goes_to_a_second_grid_is_rounded_there(
    step: float, kind: str, zero: int, between: str, tmp_path: Path
) -> None:
    """Ties, of which there are many, to even. Only those of the layers, where a convolution has them, are left."""
    model, samples = two_grids(step, kind, zero, between), np.rint(pictures(16) * 64) / 64
    result = faithful(model, tmp_path, samples)
    found = result.report.against_quantized
    assert found is not None
    assert found.equal is not None
    assert found.equal > 99
    free = faithful(model, tmp_path, samples, faithful=False)
    assert [node.op for node in free.graph.nodes].count("requantize") == 0


def forked(one: float, other: float, kind: str, before: str) -> onnx.ModelProto:
    """A float tensor that goes to two grids, each with a layer behind it. before: the operator that makes it."""
    steps = {"sy": np.float32(2.0**-3), "sa": np.float32(one), "sb": np.float32(other)}
    arrays = arrays_of(**steps, zb=np.array(0, kind))
    return build(
        f"""(float[1,3,12,12] x) => (float[1,4,12,12] y, float[1,4,12,12] u) {{
            xq = QuantizeLinear(x, sx, z)
            xd = DequantizeLinear(xq, sx, z)
            wd = DequantizeLinear(w, sw, z)
            k = Conv<pads=[1,1,1,1]>(xd, wd)
            c = {before}(k)
            aq = QuantizeLinear(c, sa, z)
            ad = DequantizeLinear(aq, sa, z)
            bq = QuantizeLinear(c, sb, zb)
            bd = DequantizeLinear(bq, sb, zb)
            vd = DequantizeLinear(v, sw, z)
            e = Conv(ad, vd)
            eq = QuantizeLinear(e, sy, z)
            y = DequantizeLinear(eq, sy, z)
            f = Conv(bd, vd)
            fq = QuantizeLinear(f, sy, z)
            u = DequantizeLinear(fq, sy, z)
        }}""",
        17,
        arrays=arrays,
        name="forked",
    )


@pytest.mark.parametrize("before", ["Identity", "Relu", "Sigmoid"])
@pytest.mark.parametrize(
    ("one", "other", "kind"), [(2.0**-8, 2.0**-6, "int8"), (2.0**-5, 2.0**-7, "uint8"), (2.0**-6, 2.0**-6, "uint8")]
)
def test_a_float_tensor_on_two_grids_is_rounded_once_to_each(
    one: float, other: float, kind: str, before: str, tmp_path: Path
) -> None:
    """Ties are left, and biases behind tensors that have an offset."""
    large = 1 if before == "Sigmoid" else 16
    samples = np.rint(pictures(16) * 64) / 64
    found = faithful(forked(one * large, other * large, kind, before), tmp_path, samples).report.against_quantized
    assert found is not None
    assert found.equal_own_biases is not None
    assert found.equal_own_biases > 99


@pytest.mark.parametrize("move", ["Reshape(x, to)", "Transpose<perm=[0,1,3,2]>(x)"])
def test_the_grid_of_a_moved_input_is_the_inputs(move: str, tmp_path: Path) -> None:
    """Its steps are a quarter of what the pictures reach; the move itself is left out, or goes elsewhere."""
    arrays = arrays_of(to=np.array([1, 3, 12, 12]), sx=np.float32(2.0**-2), sy=np.float32(2.0**-1))
    model = build(
        f"""(float[1,3,1,144] u) => (float[1,8,12,12] y) {{
            x = Reshape(u, to)
            m = {move}
            mq = QuantizeLinear(m, sx, z)
            md = DequantizeLinear(mq, sx, z)
            wd = DequantizeLinear(w, sw, z)
            c = Conv<pads=[1,1,1,1]>(md, wd)
            cq = QuantizeLinear(c, sy, z)
            y = DequantizeLinear(cq, sy, z)
        }}""",
        17,
        arrays=arrays,
        name="moved",
    )
    found = faithful(model, tmp_path, pictures(16).reshape(16, 3, 1, 144)).report.against_quantized
    assert found is not None
    assert found.equal is not None
    assert found.equal > 98
    assert faithful(model, tmp_path, None, faithful=False).report.quantized_nodes  # its range is known without samples


def test_an_input_on_two_grids_is_named(tmp_path: Path) -> None:
    arrays = arrays_of(sy=np.float32(2.0**-3))
    model = build(
        """(float[1,3,12,12] x) => (float[1,8,12,12] y) {
            aq = QuantizeLinear(x, sx, z)
            ad = DequantizeLinear(aq, sx, z)
            bq = QuantizeLinear(x, sy, z)
            bd = DequantizeLinear(bq, sy, z)
            wd = DequantizeLinear(w, sw, z)
            a = Conv<pads=[1,1,1,1]>(ad, wd)
            b = Conv<pads=[1,1,1,1]>(bd, wd)
            c = Add(a, b)
            cq = QuantizeLinear(c, sy, z)
            y = DequantizeLinear(cq, sy, z)
        }""",
        17,
        arrays=arrays,
        name="two",
    )
    warnings = faithful(model, tmp_path, pictures(16)).report.warnings
    assert [text for text in warnings if "input 'x' to several grids" in text]


def test_a_concat_of_other_grids_rounds_as_the_model_does(tmp_path: Path) -> None:
    arrays = {
        "s": np.float32(2.0**-6),
        "t": np.float32(2.0**-4),
        "u": np.float32(2.0**-5),
        "z": np.int8(0),
        "half": np.float32(0.5),
    }
    model = build(
        """(float[1,3,12,12] x) => (float[1,6,12,12] y) {
            aq = QuantizeLinear(x, s, z)
            a = DequantizeLinear(aq, s, z)
            m = MaxPool<kernel_shape=[3,3],pads=[1,1,1,1]>(a)
            v = AveragePool<kernel_shape=[2,2],pads=[1,1,0,0],count_include_pad=1>(a)
            vq = QuantizeLinear(v, t, z)
            b = DequantizeLinear(vq, t, z)
            c = Concat<axis=1>(m, b)
            cq = QuantizeLinear(c, u, z)
            y = DequantizeLinear(cq, u, z)
        }""",
        17,
        arrays=arrays,
        name="concat",
    )
    samples = np.rint(pictures(16) * 64) / 64
    apart = steps_apart(model, faithful(model, tmp_path, samples), samples)
    assert np.abs(apart).max() <= 2  # ties are rounded up, to a step of 2^-4
    assert set(np.unique(apart[:, :3])) <= {0, 1}
    assert np.mean(apart[:, 3:] == 0) > 0.85  # of AveragePool every eighth sum is a tie


def test_the_result_before_a_residual_sum_keeps_its_grid(tmp_path: Path) -> None:
    """Nobody else reads it, and its steps are 16 times those of the sum, which a convolution could take."""
    arrays = {
        "s": np.float32(2.0**-5),
        "t": np.float32(2.0**-1),
        "z": np.int8(0),
        "w": np.full((3, 3, 1, 1), 2.0**-3, np.float32),
        "b": np.zeros(3, np.float32),
    }
    model = build(
        """(float[1,3,12,12] x) => (float[1,3,12,12] y) {
            xq = QuantizeLinear(x, s, z)
            r = DequantizeLinear(xq, s, z)
            c = Conv(r, w, b)
            cq = QuantizeLinear(c, t, z)
            d = DequantizeLinear(cq, t, z)
            e = Add(d, r)
            eq = QuantizeLinear(e, s, z)
            y = DequantizeLinear(eq, s, z)
        }""",
        17,
        arrays=arrays,
        name="sum",
    )
    samples = np.rint(pictures(16) * 32) / 32
    result = faithful(model, tmp_path, samples)
    assert [node.op for node in result.graph.nodes if node.op != "transpose"] == ["conv2d", "add"]
    apart = steps_apart(model, result, samples)
    assert set(np.unique(apart)) <= {0, 16}  # a tie
    assert np.mean(apart == 0) > 0.95


@pytest.mark.parametrize(
    "behind", ["y = Identity(md)", "c = Conv(md, k) cq = QuantizeLinear(c, sx, z) y = DequantizeLinear(cq, sx, z)"]
)
def test_a_product_of_16_bits_has_no_origin(behind: str, tmp_path: Path) -> None:
    """The first factor has no grid of the model's, so that a product of int8 with offsets is out of the question. The
    result has 16 bits and saturates as the model's does, also where it is moved to another layout first."""
    rng = np.random.default_rng(6)
    arrays = {
        **{name: rng.normal(0, 0.3, (8, 3, 1, 1)).astype(np.float32) for name in "vw"},
        "k": rng.integers(-127, 128, (4, 8, 1, 1)).astype(np.float32) / 256,
        "sx": np.float32(2.0**-5),
        "z": np.int8(0),
        "u": np.uint8(100),
    }
    text = """(float[1,3,12,12] x) => (float[1,N,12,12] y) {
        xq = QuantizeLinear(x, sx, z) xd = DequantizeLinear(xq, sx, z)
        a = Conv(xd, v)
        b = Conv(xd, w) bq = QuantizeLinear(b, sx, z) bd = DequantizeLinear(bq, sx, z)
        m = Mul(a, bd) mq = QuantizeLinear(m, sx, u) md = DequantizeLinear(mq, sx, u)
    """
    model = build(f"{text} {behind} }}", 17, arrays=arrays, name="product")
    result, samples = faithful(model, tmp_path, pictures(32)), pictures(32, seed=9)
    wanted, got = outputs(model, result, samples)
    apart = np.abs(np.rint((got - wanted) * 32))
    assert apart.max() <= 1
    assert np.mean(apart == 0) > 0.9
