"""`--faithful`: the integers of a quantized model are those of the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_text import build
from qdq_nets import Residual, pictures
from quantized_runs import converted, outputs

from nmpconv.conversion.pipeline import Result
from nmpconv.errors import UsageError
from nmpconv.ir import Preprocess

FINE = {"faithful": True, "bits": "a16w8"}


def made(model: onnx.ModelProto, folder: Path, samples: np.ndarray | None, **options: object) -> Result:
    return converted(model, folder, samples, **{"faithful": True, **options})


def steps_apart(model: onnx.ModelProto, result: Result, samples: np.ndarray) -> np.ndarray:
    """Differences of the outputs to the model's own in onnxruntime, in steps."""
    wanted, got = outputs(model, result, samples)
    return np.rint((got - wanted) / result.graph.given[model.graph.output[0].name].scale)


@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_every_grid_is_the_models(kind: str, tmp_path: Path) -> None:
    result = made(Residual(kind=kind).model(), tmp_path, pictures(32))
    assert len(result.report.legalized) == 9
    for row in result.report.legalized:
        assert row.bits_lost == 0
        low, high = row.new_range
        if row.bits == 8:  # a grid of unsigned integers is stored less its middle
            assert high - low == 255 * row.scale or low == 0  # a Relu before int8


@pytest.mark.parametrize("bias", ["int32", "int8"])
@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_finer_sums_keep_the_biases(kind: str, bias: str, tmp_path: Path) -> None:
    """Only ties are left, which are rounded otherwise, through five layers."""
    model, samples = Residual(kind=kind, bias=bias).model(), pictures(64, seed=9)
    free, strict, fine = (
        np.abs(steps_apart(model, made(model, tmp_path, pictures(32), **options), samples))
        for options in ({"faithful": False}, {}, FINE)
    )
    assert (fine <= 2).all()
    assert np.mean(fine <= 1) > 0.97
    assert np.mean(fine == 0) > max(np.mean(strict == 0), np.mean(free == 0))


def one_layer(bias: np.ndarray, step: float = 2.0**-4) -> onnx.ModelProto:
    """A convolution between grids that are powers of two. step: of the result."""
    rng = np.random.default_rng(4)
    arrays = {
        "w": rng.integers(-127, 128, (8, 3, 3, 3)).astype(np.int8),
        "sw": np.full(8, 2.0**-8, np.float32),
        "b": bias.astype(np.float32),
        "sx": np.float32(2.0**-6),
        "sy": np.float32(step),
        "z": np.int8(0),
        "zw": np.zeros(8, np.int8),
    }
    return build(
        """(float[1,3,12,12] x) => (float[1,8,12,12] y) {
            xq = QuantizeLinear(x, sx, z)
            xd = DequantizeLinear(xq, sx, z)
            wd = DequantizeLinear<axis=0>(w, sw, zw)
            c = Conv<pads=[1,1,1,1]>(xd, wd, b)
            cq = QuantizeLinear(c, sy, z)
            y = DequantizeLinear(cq, sy, z)
        }""",
        17,
        arrays=arrays,
        name="layer",
    )


def test_the_last_layer_has_finer_sums(tmp_path: Path) -> None:
    """A Transpose to the model's layout stands between it and the grid of the output."""
    model, samples = one_layer(np.random.default_rng(5).normal(0, 1, 8)), pictures(32, seed=9)
    fine = steps_apart(model, made(model, tmp_path, pictures(32), **FINE), samples)
    assert np.abs(fine).max() <= 1
    assert np.mean(fine == 0) > 0.99


def test_two_roundings_of_whole_products_are_one(tmp_path: Path) -> None:
    """Steps of the finer sums are those of the products, so that only biases are rounded: down, and nothing is lost."""
    model = one_layer(np.random.default_rng(5).normal(0, 1, 8), 2.0**-6)
    result = made(model, tmp_path, pictures(32), **FINE)
    assert not steps_apart(model, result, pictures(32, seed=9)).any()


def two_grids(step: float, kind: str, zero: int, between: str) -> onnx.ModelProto:
    """Two layers; what is between them goes from a grid of 2^-4 to another one. between: an operator, or none."""
    rng = np.random.default_rng(4)
    arrays = {
        "w": rng.integers(-127, 128, (8, 3, 3, 3)).astype(np.int8),
        "v": rng.integers(-127, 128, (4, 8, 1, 1)).astype(np.int8),
        "sw": np.float32(2.0**-8),
        "sx": np.float32(2.0**-6),
        "sy": np.float32(2.0**-4),
        "sz": np.float32(step),
        "z": np.int8(0),
        "zz": np.array(zero, kind),
    }
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
    result = made(model, tmp_path, samples)
    found = result.report.against_quantized
    assert found is not None
    assert found.equal is not None
    assert found.equal > 99
    free = made(model, tmp_path, samples, faithful=False)
    assert [node.op for node in free.graph.nodes].count("requantize") == 0


def forked(one: float, other: float, kind: str, before: str) -> onnx.ModelProto:
    """A float tensor that goes to two grids, each with a layer behind it. before: the operator that makes it."""
    rng = np.random.default_rng(4)
    arrays = {
        "w": rng.integers(-127, 128, (8, 3, 3, 3)).astype(np.int8),
        "v": rng.integers(-127, 128, (4, 8, 1, 1)).astype(np.int8),
        "sw": np.float32(2.0**-8),
        "sx": np.float32(2.0**-6),
        "sy": np.float32(2.0**-3),
        "sa": np.float32(one),
        "sb": np.float32(other),
        "z": np.int8(0),
        "zb": np.array(0, kind),
    }
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
    found = made(forked(one * large, other * large, kind, before), tmp_path, samples).report.against_quantized
    assert found is not None
    assert found.equal_own_biases is not None
    assert found.equal_own_biases > 99


@pytest.mark.parametrize("move", ["Reshape(x, to)", "Transpose<perm=[0,1,3,2]>(x)"])
def test_the_grid_of_a_moved_input_is_the_inputs(move: str, tmp_path: Path) -> None:
    """Its steps are a quarter of what the pictures reach; the move itself is left out, or goes elsewhere."""
    arrays = {
        "w": np.random.default_rng(4).integers(-127, 128, (8, 3, 3, 3)).astype(np.int8),
        "to": np.array([1, 3, 12, 12]),
        "sw": np.float32(2.0**-8),
        "sx": np.float32(2.0**-2),
        "sy": np.float32(2.0**-1),
        "z": np.int8(0),
    }
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
    found = made(model, tmp_path, pictures(16).reshape(16, 3, 1, 144)).report.against_quantized
    assert found is not None
    assert found.equal is not None
    assert found.equal > 98
    assert made(model, tmp_path, None, faithful=False).report.quantized_nodes  # its range is known without samples


def test_an_input_on_two_grids_is_named(tmp_path: Path) -> None:
    arrays = {
        "w": np.random.default_rng(4).integers(-127, 128, (8, 3, 3, 3)).astype(np.int8),
        "sw": np.float32(2.0**-8),
        "sx": np.float32(2.0**-6),
        "sy": np.float32(2.0**-3),
        "z": np.int8(0),
    }
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
    warnings = made(model, tmp_path, pictures(16)).report.warnings
    assert [text for text in warnings if "input 'x' to several grids" in text]


def test_biases_on_the_outputs_grid_cost_nothing(tmp_path: Path) -> None:
    """Only ties are left: one of 2^10 sums, of which every other one is rounded up by us alone."""
    model, samples = one_layer(np.arange(-4, 4) * 2.0**-4), np.rint(pictures(16) * 64) / 64
    result = made(model, tmp_path, samples)
    apart, found = steps_apart(model, result, samples), result.report.against_quantized
    assert np.abs(apart).max() <= 1
    assert np.mean(apart == 0) > 0.999
    assert (apart >= 0).all()  # ties
    assert found is not None
    assert found.equal == found.equal_own_biases


def test_the_cost_of_the_bias_rule_is_told(tmp_path: Path) -> None:
    """Biases half-way between two steps: half of the integers are the model's, and all with biases on s_x * s_w."""
    model = one_layer(np.full(8, 2.0**-5 - 2.0**-10))
    found = made(model, tmp_path, pictures(16)).report.against_quantized
    assert found is not None
    assert found.equal is not None
    assert found.equal_own_biases is not None
    assert 40 < found.equal < 60
    assert found.equal_own_biases > 99.9
    assert "with biases on s_x*s_w (simulated)" in found.sentence


def test_weights_are_the_models(tmp_path: Path) -> None:
    """Also where calibration, equalization and second moments would choose others; a dead input channel keeps its."""
    model, samples = one_layer(np.zeros(8)), pictures(24)
    samples[:, 1] = 0
    graph = made(model, tmp_path, samples).graph
    (node,) = [node for node in graph.nodes if node.op == "conv2d"]
    weight = graph[node.inputs[1]]
    assert weight.data is not None
    assert weight.quant is not None
    exponents = np.array(weight.quant.exponents).reshape(-1, 1, 1, 1)
    real = np.ldexp(weight.data.astype(np.float64), exponents).transpose(0, 3, 1, 2)
    own = next(onnx.numpy_helper.to_array(t) for t in model.graph.initializer if t.name == "w")
    np.testing.assert_array_equal(real, own * 2.0**-8)


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
    apart = steps_apart(model, made(model, tmp_path, samples), samples)
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
    result = made(model, tmp_path, samples)
    assert [node.op for node in result.graph.nodes if node.op != "transpose"] == ["conv2d", "add"]
    apart = steps_apart(model, result, samples)
    assert set(np.unique(apart)) <= {0, 16}  # a tie
    assert np.mean(apart == 0) > 0.95


def test_steps_that_are_no_powers_become_the_nearest(tmp_path: Path) -> None:
    report = made(Residual(powers=False, kind="uint8").model(), tmp_path, pictures(16)).report
    assert any("9 of the model's 9 steps are no powers of two" in text for text in report.warnings)
    assert all(-0.5 <= row.bits_lost < 1 for row in report.legalized)
    assert report.against_quantized is not None
    assert report.against_quantized.db > 20


def test_saturation_is_the_models(tmp_path: Path) -> None:
    """Grids that hold a half of what comes: without them the float graph is another function."""
    model, samples = Residual(share=0.45).model(), pictures(64, seed=9)
    free, fine = (made(model, tmp_path, pictures(32), **o) for o in ({"faithful": False}, FINE))
    assert np.mean(np.abs(steps_apart(model, fine, samples)) <= 1) > 0.97
    assert free.report.against_quantized is not None
    assert fine.report.against_quantized is not None
    assert fine.report.against_quantized.db > free.report.against_quantized.db + 3


def test_pixels_are_to_lie_on_the_models_grid(tmp_path: Path) -> None:
    model = one_layer(np.zeros(8))
    images = np.random.default_rng(0).integers(0, 256, (8, 12, 12, 3)).astype(np.uint8)
    onto = Preprocess(mean=(2.0,), std=(1.0,), range=(0.0, 255.0 / 64), layout="nchw")  # pixel - 128 is the integer
    found = made(model, tmp_path, images, preprocess=onto).report.against_quantized
    assert found is not None
    assert found.equal is not None
    assert found.equal > 99.9
    with pytest.raises(UsageError, match=r"pixels do not lie on the grid of input 'x', whose step is 0\.015625"):
        made(model, tmp_path, images, preprocess=Preprocess(mean=(120.0,), std=(60.0,), layout="nchw"))


def test_what_it_cannot_be_combined_with(samples: Path, tmp_path: Path) -> None:
    model = one_layer(np.zeros(8))
    for options in ({"equalize": "vector"}, {"rounding": "gptq"}, {"per_tensor": True}):
        with pytest.raises(UsageError, match="changes the integers that --faithful keeps"):
            made(model, tmp_path, pictures(8), **options)
    with pytest.raises(UsageError, match="--bits is 8, or a16w8"):
        made(model, tmp_path, pictures(8), bits="16")
    with pytest.raises(UsageError, match="no grids of its own"):
        made(onnx.load(samples / "digits" / "model.onnx"), tmp_path, np.zeros((8, 1, 16, 16), np.float32))


def test_its_recipe_makes_the_same_bytes(tmp_path: Path) -> None:
    model = Residual(kind="uint8").model()
    first = made(model, tmp_path, pictures(16), **FINE, save_recipe=tmp_path / "r.toml")
    again = made(model, tmp_path, pictures(16), faithful=False, recipe=tmp_path / "r.toml")
    assert again.data == first.data


def test_without_samples(tmp_path: Path) -> None:
    model = Residual().model()
    with_samples, without = (made(model, tmp_path, some) for some in (pictures(16), None))
    grids = [{v.name: v.quant for v in result.graph.activations()} for result in (with_samples, without)]
    assert grids[0] == grids[1]
    np.testing.assert_array_equal(*(steps_apart(model, one, pictures(8)) for one in (with_samples, without)))


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
    result, samples = made(model, tmp_path, pictures(32)), pictures(32, seed=9)
    wanted, got = outputs(model, result, samples)
    apart = np.abs(np.rint((got - wanted) * 32))
    assert apart.max() <= 1
    assert np.mean(apart == 0) > 0.9
