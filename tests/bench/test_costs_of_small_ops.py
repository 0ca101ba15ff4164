"""Estimated instructions of whole nets whose ops have few numbers each, beside what QEMU counts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx_net import Net
from zoo_quick import bench_module

from nmpconv.conversion.options import Options
from nmpconv.conversion.pipeline import plan
from nmpconv.device.simulator import COUNTED_ON, MACHINES
from nmpconv.runtime import costs

COSTS = bench_module("costs")


def lstm() -> Net:
    """Six steps of eight units."""
    net, units = Net((1, 6, 5)), 8
    turned = net.add("Transpose", "x", perm=[1, 0, 2])
    weights = [net.weights(1, 4 * units, n, spread=0.3) for n in (5, units)]
    net.add("LSTM", turned, *weights, net.weights(1, 8 * units, spread=0.1), outputs=2, hidden_size=units)
    last = net.nodes[-1].output[1]
    net.add("Gemm", net.add("Reshape", last, net.const([1, units])), net.weights(3, units), net.weights(3), transB=1)
    return net


def tcn() -> Net:
    """Causal, dilated convolutions of sixteen moments, with a way around each."""
    net, at = Net((1, 8, 16)), "x"
    for dilation in (1, 2, 4):
        padded = net.add("Pad", at, net.const([0, 0, 2 * dilation, 0, 0, 0]))
        filtered = net.add("Conv", padded, net.weights(8, 8, 3, spread=0.2), net.weights(8), dilations=[dilation])
        at = net.add("Add", net.add("Tanh", filtered), at)
    last = net.add("Slice", at, net.const([15]), net.const([16]), net.const([2]))
    flat = net.add("Reshape", net.add("Concat", last, net.add("Relu", last), axis=1), net.const([1, 16]))
    net.add("Gemm", flat, net.weights(4, 16), net.weights(4), transB=1)
    return net


def transformer() -> Net:
    """A block of eight tokens, sixteen wide, with two heads."""
    net, (tokens, heads, width) = Net((1, 8, 16)), (8, 2, 16)
    ones, zeros = net.const(np.ones(width, np.float32)), net.const(np.zeros(width, np.float32))

    def linear(x: str, outputs: int) -> str:
        product = net.add("MatMul", x, net.weights(net.shape(x)[-1], outputs, spread=0.25))
        return net.add("Add", product, net.weights(outputs))

    def split(x: str, perm: list[int]) -> str:
        apart = net.add("Reshape", linear(x, width), net.const([1, tokens, heads, width // heads]))
        return net.add("Transpose", apart, perm=perm)

    normal = net.add("LayerNormalization", "x", ones, zeros)
    q, k, v = (split(normal, perm) for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
    weights = net.add("Softmax", net.add("MatMul", q, k), axis=-1)
    mixed = net.add("Transpose", net.add("MatMul", weights, v), perm=[0, 2, 1, 3])
    added = net.add("Add", linear(net.add("Reshape", mixed, net.const([1, tokens, width])), width), "x")
    hidden = net.add("Sigmoid", linear(net.add("LayerNormalization", added, ones, zeros), 32))
    net.add("Add", linear(hidden, width), added)
    return net


NETS = {"lstm": lstm, "tcn": tcn, "transformer": transformer}


def converted(name: str, folder: Path) -> bytes:
    net = NETS[name]()
    net.save(folder / "net.onnx", net.nodes[-1].output[0])
    return plan(folder / "net.onnx", Options(bits="8", widths="strict")).data


@pytest.mark.slow  # for the compiling
@pytest.mark.parametrize(
    "target", [pytest.param("cortex-m0plus", marks=pytest.mark.soak), "cortex-m4", "cortex-m55", "rv32"]
)
def test_estimates(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, need_tool: Callable[..., str]) -> None:
    need_tool(MACHINES[COUNTED_ON[target]].program)
    need_tool("riscv64-unknown-elf-gcc" if target == "rv32" else "arm-none-eabi-gcc")
    monkeypatch.setattr(COSTS, "OUT", tmp_path)
    COSTS.firmware(target)
    for name in NETS:
        data = converted(name, tmp_path)
        counted = sum(COSTS.counts(target, name, data, reuse=False))
        assert sum(costs.estimated(data, target)) == pytest.approx(counted, rel=0.15), name
