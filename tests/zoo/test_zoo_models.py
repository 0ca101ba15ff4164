"""The zoo's models: the floors of bench/zoo.py, and the same bytes from numpy and from C."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from nmpconv import fixed
from nmpconv.convert import Options, convert
from nmpconv.feed import Feed
from nmpconv.reference import run as run_reference
from nmpconv.runtime import Port, cpus, load

pytestmark = pytest.mark.zoo


def _harness() -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "bench" / "zoo.py"
    spec = importlib.util.spec_from_file_location("bench_zoo", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


HARNESS = _harness()


def _on_grid(array: np.ndarray, port: Port) -> np.ndarray:
    """Pixels are integers already; other inputs are rounded as the runtime does it."""
    if port.pixels:
        return array
    return fixed.quantize(array, port.exponent, port.lo, port.hi).astype(port.dtype).reshape(port.shape)


def quiet(stage: str, done: int, total: int) -> None:
    pass


@pytest.mark.slow
@pytest.mark.parametrize("bits", HARNESS.DEFAULT_SETTINGS)
@pytest.mark.parametrize("name", HARNESS.FLOORS)
def test_floors(name: str, bits: str, zoo: Path) -> None:
    (row,) = HARNESS.measure(zoo, name, [bits], None)
    assert row.misses(HARNESS.FLOORS[name].get(bits, HARNESS.Floor())) == [], row


@pytest.mark.parametrize("bits", ["8", "16"])
@pytest.mark.parametrize("name", HARNESS.FLOORS)
def test_same_bytes(name: str, bits: str, zoo: Path, tmp_path: Path) -> None:
    """A quick conversion: which recipe makes the weights does not matter here."""
    about = json.loads((zoo / "zoo.json").read_text())[name]
    data = HARNESS.split(zoo, name, about, tmp_path)
    options = Options(bits=bits, preprocess=data.preprocess, equalize="none", rounding="nearest", max_images=4)
    result = convert(zoo / "models" / f"{name}.onnx", {"": data.calib}, options, quiet)
    nets = [load(result.data, cpu=level) for level in cpus()]
    feed = Feed(nets[0], {"": data.measure})
    for i in range(2):
        sample = feed.integers(feed[i])
        inputs = {port.name: _on_grid(sample[port.name], port) for port in nets[0].inputs}
        wanted = run_reference(result.graph, inputs)
        for net in nets:
            for port, array in zip(net.outputs, net.run(inputs), strict=True):
                np.testing.assert_array_equal(array, wanted[port.name], f"{name}, {net.cpu}, image {i}, {port.name}")
