"""Warnings of the report: a poor result, and pixels that were not normalized."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import zoo_quick
from onnx import helper, numpy_helper

from nmpconv.calib.observers import TensorStats
from nmpconv.conversion.calibration import float_passes
from nmpconv.conversion.diagnostics import (
    JUDGED,
    better,
    information,
    misnamed,
    normalization,
    quality,
    unlike_ranges,
    unsure,
    unused,
)
from nmpconv.data.samples import Feeds, open_samples
from nmpconv.frontend.onnx import load
from nmpconv.graph.text import parse
from nmpconv.graph.trace import Trace
from nmpconv.ir import Graph, Preprocess, Value
from nmpconv.passes.quantize import exponents
from nmpconv.passes.quantize.exponents import Method

# The zoo's classifiers of images that want other numbers than pixels, and whether it shows: in their results, or
# in how often they are right. Without its mean, SqueezeNet is as sure, and right 17 points less often, which 100 images
# do not prove.
CLASSIFIERS = {
    "mlperf_vww_mobilenet025_nchw": True,
    "cifar10_resnet20": True,
    "cifar10_se_mbv3_local": True,
    "mobilenetv1_025_224": True,
    "mobilenetv2_100_224_ptqdeq": True,
    "squeezenet1.1_227": False,
    "ppocr_cls": True,
}
SAMPLES = {
    "shapes": Preprocess((123.675, 116.28, 103.53), (58.395, 57.12, 57.375), layout="auto"),
    "digits": Preprocess((0.0,), (255.0,), layout="auto"),
}
PLAIN = Preprocess(layout="auto")


def vectors(best: list[int], height: float, classes: int = 10) -> np.ndarray:
    return np.array([height * np.eye(classes)[i] for i in best])


def test_unsure_results_of_a_classifier() -> None:
    mixed = [i % 10 for i in range(20)]
    assert unsure(vectors(mixed, 5.0)) == unsure(vectors([3] * 20, 5.0)) == ()
    assert "the best class has 15 %" in unsure(vectors(mixed, 0.5))[0]
    assert "the best class has 57 %" in unsure(vectors([0, 1] * 10, 0.3, classes=2))[0]


def test_information_of_results() -> None:
    mixed = [i % 10 for i in range(20)]
    assert information(vectors(mixed, 50.0)) == pytest.approx(math.log(10))
    assert information(vectors([3] * 20, 50.0)) == pytest.approx(0)
    assert information(vectors(mixed, 0.0)) == pytest.approx(0)
    assert information(vectors(mixed, 3.0)) == pytest.approx(1.004, abs=1e-3)
    assert information(np.array([[9e9, 0, 0], [0, 9e9, 0]])) == pytest.approx(math.log(2))
    assert information(np.array([[math.inf, 0], [0, 1]])) == 0


def test_results_on_images_that_were_fitted_to_are_judged_where_there_are_no_others() -> None:
    [poor] = quality("8", "default", 40, 40, None, {"y": 9.0}, "images")
    assert poor.startswith(
        "poor, even on images that it was fitted to: 9.0 dB on 40 images; try --precise, --bits a16w8"
    )
    assert quality("8", "default", 40, 40, None, {"y": 16.0}, "images") == ()
    [poor] = quality("16", "default", 200, 200, None, {"zeros": -math.inf, "exact": math.inf}, "images")
    assert poor.startswith("poor, even on images that it was fitted to: -inf dB on 200 images; try")
    assert quality("8", "default", 0, 0, None, {}, "images") == ()


def test_a_faithful_file_is_not_told_to_take_other_bits() -> None:
    """The rounding is the quantized model's own, and --bits 16 is refused with --faithful."""
    [poor] = quality("a16w8", "default", 40, 40, None, {"y": 9.0}, "images", faithful=True)
    assert "the quantized model's own rounding is part of it" in poor and "--bits" not in poor


@pytest.mark.parametrize(("images", "warnings"), [(1, 1), (31, 1), (32, 0), (0, 0)])
def test_few_images_are_fewer_than_32(images: int, warnings: int) -> None:
    assert len(quality("8", "default", images, images, None, {"y": 40.0}, "images")) == warnings


def test_of_images_that_only_some_were_fitted_to_both_counts_are_told() -> None:
    few, poor = quality("8", "default", 20, 8, None, {"y": 9.0}, "images")
    assert few.startswith("20 calibration images, 8 of which biases were fitted to, are few: ")
    assert poor.endswith("9.0 dB on 8 images; try more images, other preprocessing")
    assert quality("8", "default", 40, 8, None, {"y": 16.0}, "images") == ()


JOINED = """graph net
input x : float32[1,4]
input t : float32[1,2]
const w : float32[2,4] = [0.01, 0.02, 0.01, -0.02, 0.02, 0.01, -0.01, 0.01]
const b : float32[2] = [0.0, 0.0]
n_a = fully_connected(x, w, b)
  a : float32[1,2]
n_f = lookup(a) function="tanh"
  f : float32[1,2]
n_z = concat(f, t) axis=1
  z : float32[1,4]
output z
"""


@pytest.mark.parametrize(("reach", "few"), [((2.0, 900.0), True), ((0.05, 0.08), False)])
def test_what_shares_a_grid_is_named_with_its_range(reach: tuple[float, float], few: bool) -> None:
    graph, spread = parse(JOINED), np.linspace(-1, 1, 999)[:, np.newaxis]
    ends = {"x": np.ones(4), "t": np.array(reach), "a": np.full(2, 0.1), "f": np.full(2, 0.1), "z": [0.1, 0.1, *reach]}
    stats = {name: TensorStats.of((spread * most).astype(np.float32)) for name, most in ends.items()}
    ranged = exponents.run(graph, stats, dict.fromkeys(stats, 8), Method("max"))
    found = unlike_ranges(ranged, stats)
    if not few:
        assert found == ()
        return
    parts, channels = found
    assert parts.startswith("'f' (-0.1 to 0.1) and 't' (-900 to 900)")
    assert "in 'n_z', which leaves the former 0.01 steps" in parts
    assert channels.startswith("channel 0 (up to 2) and 1 (up to 900)")
    assert "of input 't'" in channels
    [poor, *causes] = quality("8", "strict", 200, 200, None, {"z": 9.0}, "samples", found)
    assert poor.startswith("poor")
    assert tuple(causes) == found
    assert quality("8", "strict", 200, 200, None, {"z": 30.0}, found) == ()


def test_labels_tell_where_results_are_as_sure() -> None:
    """A model that answers all images alike is right as often as the commonest label: that is no evidence."""
    usual = ((0.0,), (255.0,))
    labels = [i % 2 for i in range(64)]
    right, wrong = vectors(labels, 9.0, 2), vectors([i % 4 // 2 for i in range(64)], 9.0, 2)
    [text] = better(wrong, {usual: right}, labels)
    assert text == "the float model gets 64 of 64 images right, not 32, with, for example, --mean 0 --std 255"
    assert better(right, {usual: wrong}, labels) == better(wrong, {usual: right}, None) == ()
    assert better(wrong, {usual: vectors([1] * 64, 9.0, 2)}, [1] * 64) == ()
    assert better(wrong[:8], {usual: right[:8]}, labels[:8]) == ()
    assert better(wrong, {usual: right}, [2**60, -1] * 32) == ()
    assert better(wrong, {usual: right}, [*labels[1:], None]) == ()


def test_mean_and_std_are_for_images() -> None:
    floats = open_samples(np.zeros((20, 3, 8, 8), np.float32), (1, 3, 8, 8), PLAIN)
    pixels = open_samples(np.zeros((20, 8, 8, 3), np.uint8), (1, 3, 8, 8), PLAIN)
    [text] = unused({"x": floats}, SAMPLES["shapes"])
    assert text.startswith("mean and std are for images: ")
    assert unused({"x": pixels}, SAMPLES["shapes"]) == unused({"x": floats, "y": pixels}, SAMPLES["shapes"]) == ()
    assert unused({"x": floats}, None) == unused({"x": floats}, PLAIN) == ()


def said(model: Path, shapes: Mapping[str, tuple[int, ...]], data: Path, look: Preprocess | None) -> tuple[str, ...]:
    """Questions about a model that is fed so."""
    graph = load(model, input_shapes=shapes, outputs=())
    [inlet] = graph.inputs
    samples = {inlet: open_samples(data, graph[inlet].shape, look)}
    pictures = {inlet: samples[inlet].preprocess} if samples[inlet].preprocess else {}
    graph = float_passes(graph, pictures, Trace(None))
    feeds = Feeds(samples, graph.pixels)
    return normalization(graph, samples, feeds)


def asked(zoo: Path, name: str, right: bool, folder: Path) -> tuple[str, ...]:
    """About a model of the zoo whose data is normalized, or else is not."""
    about = json.loads((zoo / "zoo.json").read_text())[name]
    data = zoo_quick.HARNESS.split(zoo, name, about, folder)
    look = data.preprocess
    if not right and look is not None:
        look = replace(PLAIN, resize=look.resize, crop=look.crop, channel_order=look.channel_order)
    return said(zoo / "models" / f"{name}.onnx", zoo_quick.HARNESS.shapes(zoo, name, about), data.calib, look)


@pytest.mark.parametrize("name", SAMPLES)
def test_samples(samples: Path, name: str) -> None:
    """Their classes are not known, and no Softmax shows that there are any."""
    model, data = samples / name / "model.onnx", samples / name / "calib"
    assert said(model, {}, data, SAMPLES[name]) == ()
    [found] = said(model, {}, data, PLAIN)
    assert found.startswith("the float model tells images apart better with, for example, --mean ")
    assert found.endswith("; did you forget --mean and --std?")
    assert said(model, {}, data, replace(PLAIN, range=(0.0, 1.0))) == ()
    torchs = replace(PLAIN, mean=(0.5,), std=(0.5,))
    assert said(model, {}, data, torchs) == (
        "pixels from 0 to 255 are divided by less than 1; did you forget --range 0,1?",
    )
    assert said(model, {}, data, replace(torchs, range=(0.0, 1.0))) == ()


def test_a_model_that_wants_pixels_is_not_asked_about(samples: Path, tmp_path: Path) -> None:
    """The shapes model with its preprocessing inside, and all images of one class."""
    look = SAMPLES["shapes"]
    model = onnx.load(samples / "shapes" / "model.onnx")
    [image] = model.graph.input
    mean, std = (numpy_helper.from_array(np.float32(one).reshape(1, 3, 1, 1)) for one in (look.mean, look.std))
    mean.name, std.name = "mean", "std"
    model.graph.initializer.extend([mean, std])
    for node in model.graph.node:
        node.input[:] = ["normal" if name == image.name else name for name in node.input]
    model.graph.node.insert(0, helper.make_node("Sub", [image.name, "mean"], ["less"]))
    model.graph.node.insert(1, helper.make_node("Div", ["less", "std"], ["normal"]))
    onnx.save(model, tmp_path / "model.onnx")
    calib = samples / "shapes" / "calib"
    assert said(tmp_path / "model.onnx", {}, calib, PLAIN) == ()
    (tmp_path / "one").mkdir()
    for path in [*calib.glob("*_ring.png")] * 2:
        shutil.copy(path, tmp_path / "one" / f"{len(list((tmp_path / 'one').iterdir()))}.png")
    assert len(list((tmp_path / "one").iterdir())) >= JUDGED
    assert said(tmp_path / "model.onnx", {}, tmp_path / "one", PLAIN) == ()


@pytest.mark.slow
@pytest.mark.zoo
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers_that_are_not_fed_right(zoo: Path, name: str, tmp_path: Path) -> None:
    found = asked(zoo, name, False, tmp_path)
    assert bool(found) is CLASSIFIERS[name]
    assert all(text.endswith("did you forget --mean and --std?") for text in found)


@pytest.mark.zoo
@pytest.mark.parametrize(
    "name", [*CLASSIFIERS, "mnist_cntk", "mlperf_ic_resnet8_nchw", "mlperf_kws_dscnn", "super_resolution_224"]
)
def test_no_false_alarm(zoo: Path, name: str, tmp_path: Path) -> None:
    """The last four want the pixels as they are, or arrays."""
    assert asked(zoo, name, True, tmp_path) == ()


@pytest.mark.parametrize(
    ("labels", "shapes", "warns"),
    [
        (5, [(1, 8)], True),
        (3, [(1, 2)], True),
        (8, [(1, 8)], False),
        (0, [(1, 8)], False),
        (80, [(1, 85, 10)], False),
        (3, [(1, 8), (1, 3)], False),
    ],
)
def test_labels_that_are_too_few(labels: int, shapes: list[tuple[int, ...]], warns: bool) -> None:
    values = {f"y{i}": Value(f"y{i}", shape) for i, shape in enumerate(shapes)}
    graph = Graph("net", (), tuple(values), (), values, labels=tuple(map(str, range(labels))))
    found = f"there are {labels} label(s), but 'y0' has {shapes[0][1]} classes"
    wanted = (f"{found}: no names will be shown; --labels wants a name for each class",)
    assert misnamed(graph) == (wanted if warns else ())
