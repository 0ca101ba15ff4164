"""A whole stream on simulated boards: every call has the bytes that numpy and C give."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from onnx_text import build

import nmpconv
from nmpconv.base.progress import silent
from nmpconv.calib.activation_cache import integers
from nmpconv.device import simulator
from nmpconv.device.connect import opened
from nmpconv.graph.reference import steps
from nmpconv.runtime import on_device

WINDOW = """(float[1,6,24] x) => (y)
<float[8,6,3] w0, float[8] b0, float[8,8,3] w1, float[8] b1, float[3,8] w2, float[3] b2> {
  a0 = Conv<pads=[2,0]>(x, w0, b0)  a = Relu(a0)  c0 = Conv<pads=[2,0], strides=[2]>(a, w1, b1)  c = Relu(c0)
  g = GlobalAveragePool(c)  f = Flatten(g)  y = Gemm<transB=1>(f, w2, b2)
}"""
LSTM = """(float[1,1,6] x, float[1,1,5] h, float[1,1,5] c) => (float[1,1,5] hn, float[1,1,5] cn, float[1,1,3] y)
<float[1,20,6] w, float[1,20,5] r, float[1,40] b, float[5,3] o> {
  s, hn, cn = LSTM<hidden_size=5>(x, w, r, b, , h, c)  y = MatMul(hn, o)
}"""
SEQUENCES, CALLS = 2, 14  # twelve fill the window


def walks(*shape: int) -> np.ndarray:
    """float32 that wanders along the second axis."""
    return np.cumsum(np.random.default_rng(1).normal(size=shape) * 0.4, axis=1).astype(np.float32)


@cache
def converted(kind: str, bits: str) -> tuple[nmpconv.Converted, np.ndarray]:
    """The file, and sequences of the inputs of its calls [sequences, calls, ...]."""
    if kind == "stream":
        found = nmpconv.convert(
            build(WINDOW, 13), walks(16, 24, 6).transpose(0, 2, 1), bits=bits, stream="axis=2,hop=2", rounding="nearest"
        )
        frames = walks(SEQUENCES, 2 * CALLS, 6).reshape(SEQUENCES, CALLS, 2, 6)
        return found, frames.transpose(0, 1, 3, 2)[:, :, None]
    found = nmpconv.convert(build(LSTM, 14), walks(4, 30, 1, 6), bits=bits, state=["hn=h", "cn=c"], rounding="nearest")
    return found, walks(SEQUENCES, CALLS, 1, 6)[:, :, None]


@pytest.mark.slow
@pytest.mark.parametrize(
    "board", ["mps2-an386", pytest.param("mps2-an500", marks=pytest.mark.soak), "mps3-an547", "rv32", "lx60"]
)
def test_every_call(board: str, firmware: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = firmware(board).parent
    monkeypatch.setattr(simulator, "_folders", lambda: [folder])
    files = [(kind, *converted(kind, bits)) for kind, bits in (("stream", "8"), ("stream", "16"), ("lstm", "8"))]
    for kind, found, sequences in files:
        with opened(f"sim:{board}", silent, model=found.data) as device:
            net = found.load()
            on_device.load(device, net, found.data)
            for calls in sequences:
                on_device.restart(device, net)
                wanted = steps(found.graph, [{"x": integers(x, found.graph["x"])} for x in calls])
                outputs = []
                for x, want in zip(calls, wanted, strict=True):
                    outputs.append(on_device.run(device, net, [x])[0])
                    assert outputs[-1].tobytes() == want["y"].tobytes() == net.run(x)[0].tobytes(), kind
                assert len({y.tobytes() for y in outputs}) > len(calls) // 2
    found, sequences = files[0][1:]
    data = sequences[0].transpose(1, 2, 0, 3).reshape(1, 6, 2 * CALLS)
    assert nmpconv.bench(nmpconv.load(found), device=f"sim:{board}", data=data, runs=1).verified == CALLS
