"""Small nets for bundles; the small models and images of tests/cli."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx_text import build

from nmpconv.conversion.pipeline import Options, convert

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "cli"))  # its small models and images

Make = Callable[..., Path]


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder at the same place for each test of a process: ccache has what others have compiled there."""
    folder = tmp_path_factory.getbasetemp() / "same"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Makes a small convolutional net with one test vector."""

    def make_net(*, kernel: int = 3, channels: int = 8, bits: str = "8") -> Path:
        folder = tmp_path_factory.mktemp("bundle")
        rng = np.random.default_rng(0)
        np.save(folder / "x.npy", rng.normal(size=(8, 3, 8, 8)).astype(np.float32))
        weights = {
            "w": rng.normal(0, 0.3, (channels, 3, kernel, kernel)),
            "b": rng.normal(0, 1, channels),
            "v": rng.normal(0, 1, (5, channels)),
        }
        side = kernel // 2
        text = f"""(float[1,3,8,8] x) => (float[1,5] y) {{
            c = Conv<pads=[{side},{side},{side},{side}]>(x, w, b)
            r = Relu(c)
            g = GlobalAveragePool(r)
            f = Flatten(g)
            y = Gemm<transB=1>(f, v)
        }}"""
        build(text, 13, folder / "net.onnx", arrays=weights, name="net")
        options = Options(bits=bits, widths="strict", test_vectors=1)
        result = convert(folder / "net.onnx", {"": folder / "x.npy"}, options, lambda *progress: None)
        (folder / "net.nmp").write_bytes(result.data)
        return folder / "net.nmp"

    return make_net


@pytest.fixture(scope="session")
def model(make: Make) -> Path:
    return make()
