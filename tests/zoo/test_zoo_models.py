"""The zoo's models: the floors of bench/zoo.py, and the same bytes from numpy and from C."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from zoo_quick import HARNESS, converted

from nmpconv import fixed
from nmpconv.feed import Feed
from nmpconv.reference import run as run_reference
from nmpconv.runtime import Port, load

pytestmark = pytest.mark.zoo


def _on_grid(array: np.ndarray, port: Port) -> np.ndarray:
    """Pixels are integers already; other inputs are rounded as the runtime does it."""
    if port.pixels:
        return array
    return fixed.quantize(array, port.exponent, port.lo, port.hi).astype(port.dtype).reshape(port.shape)


@pytest.mark.slow
@pytest.mark.parametrize("bits", HARNESS.DEFAULT_SETTINGS)
@pytest.mark.parametrize("name", HARNESS.FLOORS)
def test_floors(name: str, bits: str, zoo: Path) -> None:
    (row,) = HARNESS.measure(zoo, name, [bits], None)
    assert row.misses(HARNESS.FLOORS[name].get(bits, HARNESS.Floor())) == [], row


@pytest.mark.parametrize("bits", ["8", "16"])
@pytest.mark.parametrize("name", HARNESS.FLOORS)
def test_same_bytes(name: str, bits: str, zoo: Path, tmp_path: Path) -> None:
    result, samples = converted(zoo, name, bits, tmp_path)
    net = load(result.data)
    feed = Feed(net, {"": samples})
    for i in range(2):
        sample = feed.integers(feed[i])
        inputs = {port.name: _on_grid(sample[port.name], port) for port in net.inputs}
        wanted = run_reference(result.graph, inputs)
        got = net.run(inputs)
        for port, array in zip(net.outputs, got, strict=True):
            np.testing.assert_array_equal(array, wanted[port.name], err_msg=f"{name}, image {i}, {port.name}")
