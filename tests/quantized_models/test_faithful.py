"""`--faithful`: the integers of a quantized model are those of the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_text import build
from qdq_nets import Residual, pictures
from quantized_runs import FINE, faithful, steps_apart

from nmpconv.errors import UsageError
from nmpconv.ir import Preprocess


@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_every_grid_is_the_models(kind: str, tmp_path: Path) -> None:
    result = faithful(Residual(kind=kind).model(), tmp_path, pictures(32))
    assert len(result.report.legalized) == 9
    for row in result.report.legalized:
        assert row.bits_lost == 0
        low, high = row.new_range
        if row.bits == 8:  # a grid of unsigned integers is stored less its middle
            assert high - low == 255 * row.scale or low == 0  # a Relu before int8


@pytest.mark.slow
@pytest.mark.parametrize("bias", ["int32", "int8"])
@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_finer_sums_keep_the_biases(kind: str, bias: str, tmp_path: Path) -> None:
    """Only ties are left, which are rounded otherwise, through five layers."""
    model, samples = Residual(kind=kind, bias=bias).model(), pictures(64, seed=9)
    free, strict, fine = (
        np.abs(steps_apart(model, faithful(model, tmp_path, pictures(32), **options), samples))
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
    fine = steps_apart(model, faithful(model, tmp_path, pictures(32), **FINE), samples)
    assert np.abs(fine).max() <= 1
    assert np.mean(fine == 0) > 0.99


def test_two_roundings_of_whole_products_are_one(tmp_path: Path) -> None:
    """Steps of the finer sums are those of the products, so that only biases are rounded: down, and nothing is lost."""
    model = one_layer(np.random.default_rng(5).normal(0, 1, 8), 2.0**-6)
    result = faithful(model, tmp_path, pictures(32), **FINE)
    assert not steps_apart(model, result, pictures(32, seed=9)).any()


def test_biases_on_the_outputs_grid_cost_nothing(tmp_path: Path) -> None:
    """Only ties are left: one of 2^10 sums, of which every other one is rounded up by us alone."""
    model, samples = one_layer(np.arange(-4, 4) * 2.0**-4), np.rint(pictures(16) * 64) / 64
    result = faithful(model, tmp_path, samples)
    apart, found = steps_apart(model, result, samples), result.report.against_quantized
    assert np.abs(apart).max() <= 1
    assert np.mean(apart == 0) > 0.999
    assert (apart >= 0).all()  # ties
    assert found is not None
    assert found.equal == found.equal_own_biases


def test_the_cost_of_the_bias_rule_is_told(tmp_path: Path) -> None:
    """Biases half-way between two steps: half of the integers are the model's, and all with biases on s_x * s_w."""
    model = one_layer(np.full(8, 2.0**-5 - 2.0**-10))
    found = faithful(model, tmp_path, pictures(16)).report.against_quantized
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
    graph = faithful(model, tmp_path, samples).graph
    (node,) = [node for node in graph.nodes if node.op == "conv2d"]
    weight = graph[node.inputs[1]]
    assert weight.data is not None
    assert weight.quant is not None
    exponents = np.array(weight.quant.exponents).reshape(-1, 1, 1, 1)
    real = np.ldexp(weight.data.astype(np.float64), exponents).transpose(0, 3, 1, 2)
    own = next(onnx.numpy_helper.to_array(t) for t in model.graph.initializer if t.name == "w")
    np.testing.assert_array_equal(real, own * 2.0**-8)


def test_steps_that_are_no_powers_become_the_nearest(tmp_path: Path) -> None:
    report = faithful(Residual(powers=False, kind="uint8").model(), tmp_path, pictures(16)).report
    assert any("9 of the model's 9 steps are no powers of two" in text for text in report.warnings)
    assert all(-0.5 <= row.bits_lost < 1 for row in report.legalized)
    assert report.against_quantized is not None
    assert report.against_quantized.db > 20


def test_saturation_is_the_models(tmp_path: Path) -> None:
    """Grids that hold a half of what comes: without them the float graph is another function."""
    model, samples = Residual(share=0.45).model(), pictures(64, seed=9)
    free, fine = (faithful(model, tmp_path, pictures(32), **o) for o in ({"faithful": False}, FINE))
    assert np.mean(np.abs(steps_apart(model, fine, samples)) <= 1) > 0.97
    assert free.report.against_quantized is not None
    assert fine.report.against_quantized is not None
    assert fine.report.against_quantized.db > free.report.against_quantized.db + 3


def test_pixels_are_to_lie_on_the_models_grid(tmp_path: Path) -> None:
    model = one_layer(np.zeros(8))
    images = np.random.default_rng(0).integers(0, 256, (8, 12, 12, 3)).astype(np.uint8)
    onto = Preprocess(mean=(2.0,), std=(1.0,), range=(0.0, 255.0 / 64), layout="nchw")  # pixel - 128 is the integer
    found = faithful(model, tmp_path, images, preprocess=onto).report.against_quantized
    assert found is not None
    assert found.equal is not None
    assert found.equal > 99.9
    with pytest.raises(UsageError, match=r"pixels do not lie on the grid of input 'x', whose step is 0\.015625"):
        faithful(model, tmp_path, images, preprocess=Preprocess(mean=(120.0,), std=(60.0,), layout="nchw"))


def test_what_it_cannot_be_combined_with(samples: Path, tmp_path: Path) -> None:
    model = one_layer(np.zeros(8))
    for options in ({"equalize": "vector"}, {"rounding": "gptq"}, {"per_tensor": True}):
        with pytest.raises(UsageError, match="changes the integers that --faithful keeps"):
            faithful(model, tmp_path, pictures(8), **options)
    with pytest.raises(UsageError, match="--bits is 8, or a16w8"):
        faithful(model, tmp_path, pictures(8), bits="16")
    with pytest.raises(UsageError, match="no grids of its own"):
        faithful(onnx.load(samples / "digits" / "model.onnx"), tmp_path, np.zeros((8, 1, 16, 16), np.float32))


def test_its_recipe_makes_the_same_bytes(tmp_path: Path) -> None:
    model = Residual(kind="uint8").model()
    first = faithful(model, tmp_path, pictures(16), **FINE, save_recipe=tmp_path / "r.toml")
    again = faithful(model, tmp_path, pictures(16), faithful=False, recipe=tmp_path / "r.toml")
    assert again.data == first.data


def test_without_samples(tmp_path: Path) -> None:
    model = Residual().model()
    with_samples, without = (faithful(model, tmp_path, some) for some in (pictures(16), None))
    grids = [{v.name: v.quant for v in result.graph.activations()} for result in (with_samples, without)]
    assert grids[0] == grids[1]
    np.testing.assert_array_equal(*(steps_apart(model, one, pictures(8)) for one in (with_samples, without)))
