"""A keyword net over a window of frames, and the step of a stream that it is converted to: instructions on boards.

The net has the layers of MLPerf Tiny's DS-CNN, with padding in front of time alone; its weights are random, which
instructions do not depend on. Every call of a stream of two windows has to give the same bytes in numpy, in C and on
the board, and the whole net's outputs when the first window is full.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import nmpconv
from nmpconv.api.conversion import Converted
from nmpconv.calib.activation_cache import integers
from nmpconv.cli import console
from nmpconv.graph.reference import steps
from nmpconv.runtime.feed import given
from nmpconv.runtime.interpreter import load

FRAMES, BANDS, HOP, CHANNELS, CLASSES = 50, 10, 2, 64, 12
BOARDS = {"mps2-an386": "M4", "mps2-an500": "M7", "mps3-an547": "M55", "rv32": "rv32"}
SETTINGS: dict[str, dict[str, object]] = {
    "strict": {"bits": "8", "strict": True},
    "8": {"bits": "8"},
    "16": {"bits": "16"},
}


def net() -> onnx.ModelProto:
    rng, weights, nodes, last = np.random.default_rng(0), [], [], "x"

    def weight(name: str, *shape: int) -> str:
        spread = (2 / np.prod(shape[1:])) ** 0.5 if len(shape) > 1 else 0.1
        weights.append(numpy_helper.from_array((rng.normal(size=shape) * spread).astype(np.float32), name))
        return name

    def layer(name: str, shape: Sequence[int], pads: Sequence[int], **how: object) -> None:
        nonlocal last
        inputs = [last, weight(f"{name}.w", *shape), weight(f"{name}.b", shape[0])]
        nodes.append(helper.make_node("Conv", inputs, [f"{name}.c"], name, pads=pads, **how))
        nodes.append(helper.make_node("Relu", [f"{name}.c"], [f"{name}.r"]))
        last = f"{name}.r"

    layer("first", (CHANNELS, 1, 10, 4), (8, 1, 0, 1), strides=[2, 2])
    for i in range(4):
        layer(f"depthwise{i}", (CHANNELS, 1, 3, 3), (2, 1, 0, 1), group=CHANNELS)
        layer(f"pointwise{i}", (CHANNELS, CHANNELS, 1, 1), (0, 0, 0, 0))
    nodes.append(helper.make_node("GlobalAveragePool", [last], ["pooled"]))
    nodes.append(helper.make_node("Flatten", ["pooled"], ["flat"]))
    dense = ["flat", weight("dense.w", CLASSES, CHANNELS), weight("dense.b", CLASSES)]
    nodes.append(helper.make_node("Gemm", dense, ["y"], transB=1))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, FRAMES, BANDS])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, CLASSES])
    graph = helper.make_graph(nodes, "keywords", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def walks(count: int, frames: int, seed: int) -> np.ndarray:
    """float32 [count, 1, frames, BANDS] that wander."""
    x = np.random.default_rng(seed).normal(size=(count, 1, frames, BANDS))
    return np.asarray(np.cumsum(x, axis=2) * 0.3, np.float32)


def check(whole: Converted, step: Converted, stream: np.ndarray) -> None:
    """Numpy and C, call by call; and the whole net on the first window. RuntimeError where bytes differ."""
    c = load(step.data)
    [calls] = given(c, {"": stream})
    wanted = steps(step.graph, [{"x": integers(x, step.graph["x"])} for [x] in calls])
    results = []
    for [x], want in zip(calls, wanted, strict=True):
        results.append(c.run(x)[0])
        if results[-1].tobytes() != want["y"].tobytes():
            raise RuntimeError("C and numpy differ")
    if load(whole.data).run(stream[:, :, :FRAMES])[0].tobytes() != results[FRAMES // HOP - 1].tobytes():
        raise RuntimeError("the step and the whole net differ")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--boards", nargs="+", choices=list(BOARDS), default=list(BOARDS))
    parser.add_argument("--bits", nargs="+", choices=list(SETTINGS), default=["8", "16"])
    args = parser.parse_args()
    rows, stream = [], walks(1, 2 * FRAMES, seed=1)
    for bits in args.bits:
        how = {"data": walks(16, FRAMES, seed=2), "rounding": "nearest", "equalize": "none", **SETTINGS[bits]}
        whole = nmpconv.convert(net(), **how)
        step = nmpconv.convert(net(), stream=f"axis=2,hop={HOP}", **how)
        check(whole, step, stream)
        for board in args.boards:
            window = nmpconv.bench(whole, device=f"sim:{board}", data=stream[:, :, :FRAMES], runs=1)
            hop = nmpconv.bench(step, device=f"sim:{board}", data=stream, runs=1)
            counts = [timing.counter.count(timing.least) for timing in (window, hop)]
            cells = [f"{count / 1e6:.3f}" for count in counts]
            arenas = [f"{timing.loaded.arena_bytes}" for timing in (window, hop)]
            rows.append([bits, BOARDS[board], *cells, f"{counts[0] / counts[1]:.1f}", *arenas, str(hop.verified)])
            console.say(" ".join(rows[-1]))
    console.table(("bits", "CPU", ">M insn window", ">hop", ">ratio", ">arena", ">hop", ">calls"), rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
