"""What the report warns of: a poor result, and pixels that were not normalized."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import zoo_quick

from nmpconv.advice import JUDGED, normalization, odd, quality
from nmpconv.data.samples import Feeds, open_samples
from nmpconv.frontend.onnx import load
from nmpconv.graph.trace import Trace
from nmpconv.ir import Preprocess
from nmpconv.pipeline import float_passes

# The zoo's classifiers of images that want other numbers than pixels, and whether their results without them are odd:
# of the others' results, a person could not tell either.
CLASSIFIERS = {
    "mlperf_vww_mobilenet025_nchw": False,
    "cifar10_resnet20": True,
    "cifar10_se_mbv3_local": True,
    "mobilenetv1_025_224": True,
    "mobilenetv2_100_224_ptqdeq": True,
    "squeezenet1.1_227": False,
    "ppocr_cls": True,
}


def vectors(best: list[int], height: float, classes: int = 10) -> list[np.ndarray]:
    return [height * np.eye(classes)[[i]] for i in best]


def test_odd_results_of_a_classifier() -> None:
    mixed = [i % 10 for i in range(20)]
    assert odd(vectors(mixed, 5.0)) == ""
    assert "the best class has 15 %" in odd(vectors(mixed, 0.5))
    assert odd(vectors([3] * 14 + mixed[:6], 5.0)) == "the float model puts 15 of 20 images into one class"
    assert odd(vectors([0] * 20, 5.0, classes=2)) == ""
    assert "the best class has 57 %" in odd(vectors([0, 1] * 10, 0.3, classes=2))
    assert odd(vectors([3] * (JUDGED - 1), 0.1)) == ""


def test_results_on_images_that_were_fitted_to_are_judged_where_there_are_no_others() -> None:
    [poor] = quality("8", "default", 40, None, {"y": 9.0})
    assert poor.startswith("poor, even on images that it was fitted to: 9.0 dB; try --precise, --bits a16w8")
    assert quality("8", "default", 40, None, {"y": 16.0}) == ()
    [poor] = quality("16", "default", 200, None, {"zeros": -math.inf, "exact": math.inf})
    assert poor.startswith("poor, even on images that it was fitted to: -inf dB; try")
    assert quality("8", "default", 0, None, {}) == ()


def asked(zoo: Path, name: str, right: bool, folder: Path) -> tuple[str, ...]:
    """What is asked about a model whose data is normalized, or else is not."""
    about = json.loads((zoo / "zoo.json").read_text())[name]
    data = zoo_quick.HARNESS.split(zoo, name, about, folder)
    graph = load(zoo / "models" / f"{name}.onnx", input_shapes=zoo_quick.HARNESS.shapes(zoo, name, about), outputs=())
    [inlet] = graph.inputs
    look = data.preprocess
    if not right and look is not None:
        look = Preprocess(layout="auto", resize=look.resize, crop=look.crop)
    samples = {inlet: open_samples(data.calib, graph[inlet].shape, look)}
    pictures = {inlet: samples[inlet].preprocess} if samples[inlet].preprocess else {}
    graph = float_passes(graph, pictures, Trace(None))
    feeds = Feeds(samples, graph.pixels)
    return normalization(graph, samples, [feeds[i * len(feeds) // 32] for i in range(32)])


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
