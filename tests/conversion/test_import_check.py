"""The imported float graph is compared with the model on four samples, spread over all of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx_text import build

import nmpconv
from nmpconv.calib.observers import TensorStats
from nmpconv.conversion.import_check import pairs_of
from nmpconv.data.samples import open_samples
from nmpconv.errors import InputError
from nmpconv.frontend.onnx import load

NET = "(float[1,4] x) => (float[1,4] y) { y = Relu(x) }"


@pytest.mark.parametrize(("count", "chosen"), [(0, 4), (3, 3), (4, 4), (100, 4)], ids=["none", "fewer", "all", "many"])
def test_number_of_samples(tmp_path: Path, count: int, chosen: int) -> None:
    """Without samples, as many random ones of the known range."""
    (tmp_path / "m.onnx").write_bytes(build(NET, 13).SerializeToString())
    graph = load(tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.arange(400, dtype=np.float32).reshape(100, 4))
    samples = {"x": open_samples(tmp_path / "x.npy", (1, 4), None)} if count else {}
    stats = {"x": TensorStats.of(np.array([2.0, 3.0], np.float32))}
    pairs = pairs_of(graph, samples, stats, count)
    assert len(pairs) == chosen
    first = [float(theirs["x"].ravel()[0]) for theirs, _ in pairs]
    assert len(set(first)) == chosen
    assert all(2 <= number <= 3 for number in first) if not count else max(first) > 4 * (count * 3 // 5 - 1)


def test_reals_for_an_input_of_integers(tmp_path: Path) -> None:
    """Real numbers for a full-integer model are the samples' fault, no bug of the import."""
    text = (
        "(int8[1,4] x) => (int8[1,4] y) <float s = {0.5}, int8 z = {3}> "
        "{ d = DequantizeLinear(x, s, z) r = Relu(d) y = QuantizeLinear(r, s, z) }"
    )
    build(text, 13, tmp_path / "m.onnx")
    samples = np.random.default_rng(0).normal(size=(8, 1, 4)).astype(np.float32) * 9
    with pytest.raises(InputError, match=r"input 'x' is int8, and its samples have fractions.*x / scale \+ zero point"):
        nmpconv.convert(tmp_path / "m.onnx", data=samples)
    nmpconv.convert(tmp_path / "m.onnx", data=np.rint(samples))
    with pytest.raises(InputError, match=r"input 'x' is int8, and its samples go from -?\d+ to \d+ \(integers"):
        nmpconv.convert(tmp_path / "m.onnx", data=np.rint(samples * 30))
