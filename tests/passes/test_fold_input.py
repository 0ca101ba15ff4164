"""Pixels in: the graph computes the preprocessing itself, and refuses what is no image."""

from __future__ import annotations

import numpy as np
import pytest
from float_run import run_float
from nets import Net

from nmpconv.errors import UsageError
from nmpconv.ir import Graph, Preprocess
from nmpconv.passes.float import FLOAT, fold_input

RNG = np.random.default_rng(5)


def padded_conv(layout: str, channels: int) -> Graph:
    """A 3x3 convolution with zero padding over an image 4 x 5 in this layout."""
    net = Net(5)
    image = net.input("x", *((1, channels, 4, 5) if layout == "nchw" else (1, 4, 5, channels)))
    if layout == "nchw":
        image = net.op("transpose", "x", "t", perm=(0, 2, 3, 1))
    net.conv(image, "y", 2, 3)
    return net.graph("y")


HOWS = [
    Preprocess(),
    Preprocess(mean=(104.0, 117.0, 123.0), channel_order="bgr"),
    Preprocess(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), range=(0.0, 1.0)),
    Preprocess(mean=(0.5,), std=(0.5,), range=(0.0, 1.0), layout="nhwc"),
    Preprocess(mean=(127.5,), std=(127.5,), layout="nhwc", channel_order="bgr"),
    Preprocess(range=(-1.0, 1.0)),
    Preprocess(mean=(33.0,), std=(78.0,), channel_order="gray"),
]


@pytest.mark.parametrize("how", HOWS)
def test_it_is_the_preprocessing(how: Preprocess) -> None:
    graph = padded_conv(how.layout, 1 if how.channel_order == "gray" else 3)
    folded = fold_input.run(graph, {"x": how})
    pixels = RNG.integers(0, 256, folded["x"].shape).astype(np.float32)
    low, high = how.range
    x = (low + pixels[..., :: -1 if how.channel_order == "bgr" else 1] * (high - low) / 255 - how.mean) / how.std
    x = x.transpose(0, 3, 1, 2) if how.layout == "nchw" else x
    (wanted,) = run_float(graph, {"x": x.astype(np.float32)})
    for name, function in (("fold_input", None), *FLOAT):
        folded = function(folded) if function else folded
        (found,) = run_float(folded, {"x": pixels - 128})
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4, err_msg=name)
    assert [node.op for node in folded.nodes] == ["conv2d"]
    assert folded.pixels == {"x"}
    assert folded.preprocess == {"x": how}


def test_padding_is_the_mean_pixel() -> None:
    graph = fold_input.run(padded_conv("nchw", 3), {"x": HOWS[1]})
    for _, function in FLOAT:
        graph = function(graph)
    pad = graph[graph.nodes[0].inputs[3]].data
    assert pad is not None
    assert pad.tolist() == [123 - 128, 117 - 128, 104 - 128]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (Preprocess(layout="nhwc"), "no image in nhwc"),
        (Preprocess(mean=(1.0, 2.0)), "--mean has 2 values"),
        (Preprocess(std=(0.0,)), "--std has a zero"),
    ],
)
def test_refused(how: Preprocess, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        fold_input.run(padded_conv("nchw", 3), {"x": how})


def test_unknown_input() -> None:
    with pytest.raises(UsageError, match="no input 'image'"):
        fold_input.run(padded_conv("nchw", 3), {"image": Preprocess()})
