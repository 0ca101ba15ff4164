"""The zoo's models: the floors of bench/zoo.py, and the same bytes from numpy and from C."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from zoo_quick import HARNESS, converted

from nmpconv.base import fixed_point
from nmpconv.graph.reference import run as run_reference
from nmpconv.passes.memory import two_memories
from nmpconv.runtime.feed import Feed
from nmpconv.runtime.interpreter import cpus, load
from nmpconv.runtime.ports import Port

pytestmark = pytest.mark.zoo


def _on_grid(array: np.ndarray, port: Port) -> np.ndarray:
    """Pixels are integers already; other inputs are rounded as the runtime does it."""
    if port.pixels:
        return array
    return fixed_point.quantize(array, port.exponent, port.lo, port.hi).astype(port.dtype).reshape(port.shape)


# What is small enough to be converted with all its images here; `make zoo` does it with every model.
SMALL = (
    "mnist_cntk",
    "mlperf_ic_resnet8_nchw",
    "mlperf_ic_resnet8_nhwc",
    "mlperf_vww_mobilenet025_nchw",
    "mlperf_kws_dscnn",
    "mlperf_ad_autoencoder",
    "cifar10_resnet20",
    "cifar10_se_mbv3_local",
    "mobilenetv1_025_224",
)
SLOW = ("mobilenetv2_100_224_ptqdeq", "squeezenet1.1_227", "ppocr_cls")
# What is converted with few images, at 16 bits: three detectors.
LARGE = ("ultraface_rfb_320", "yunet_n_320", "yolox_nano_416")
FEW = 8
TWIN = "mlperf_ic_resnet8_nhwc"  # of the same net in another layout
# What only test_same_bytes converts, from one image: their floors take minutes, and `make zoo` has them.
REST = ("fastestdet_352", "deeplabv3_mnv2_dm05_513_qatdeq", "super_resolution_224", "fsrcnn_x2")


def test_no_model_is_forgotten() -> None:
    assert {*SMALL, *SLOW, *LARGE, *REST} == set(HARNESS.FLOORS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "bits"),
    [
        (name, bits)
        for name in (*SMALL, *SLOW)
        for bits in HARNESS.FLOORS[name]
        if (name not in SLOW or bits == "8") and (name != TWIN or bits == "8")  # these take minutes; `make zoo`
    ],
)
def test_floors(name: str, bits: str, zoo: Path) -> None:
    (row,) = HARNESS.measure(zoo, name, [bits], None)
    assert row.misses(HARNESS.FLOORS[name][bits]) == [], row


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_floors_with_few_images(name: str, zoo: Path) -> None:
    # 16 bits leave more room where fewer images were seen: 8 would cost 5 dB.
    (row,) = HARNESS.measure(zoo, name, ["16"], FEW, 2 * FEW)
    assert row.misses(HARNESS.FLOORS[name]["16"]) == [], row


@pytest.mark.parametrize("bits", ["8", "16"])
@pytest.mark.parametrize(
    "name", [*SMALL, *(pytest.param(name, marks=pytest.mark.slow) for name in (*SLOW, *LARGE, *REST))]
)
def test_same_bytes(name: str, bits: str, zoo: Path, tmp_path: Path) -> None:
    quick = {"limit": 1} if name in REST else {"equalize": "vector"} if name in LARGE else {}
    result, samples = converted(zoo, name, bits, tmp_path, **quick)
    nets = [load(result.data, cpu=level, threads=threads) for level in cpus() for threads in (1, 2)]
    feed = Feed(nets[0], {"": samples})
    for i in range(2):
        sample = feed.integers(feed[i])
        inputs = {port.name: _on_grid(sample[port.name], port) for port in nets[0].inputs}
        wanted = run_reference(result.graph, inputs)
        for net in nets:
            for port, array in zip(net.outputs, net.run(inputs), strict=True):
                np.testing.assert_array_equal(
                    array, wanted[port.name], f"{name}, {net.cpu}, {net.threads} threads, image {i}, {port.name}"
                )


@pytest.mark.slow
def test_little_is_moved_in_the_slow_memory(zoo: Path, tmp_path: Path) -> None:
    """Tensors of a good choice find their places if the search is long enough."""
    memories = {"target": "cortex-m4", "ram": "fast=512k,slow=8M"}
    result, _ = converted(zoo, "yolox_nano_416", "8", tmp_path, limit=1, widths="strict", **memories)
    moved, least = two_memories.slow_traffic(result.graph), result.graph.least_slow
    assert least < moved <= 1.05 * least
