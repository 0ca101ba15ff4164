"""Choices of a bundle's build.h, built for a microcontroller: the same bytes, by the kernels that are quick."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from pathlib import Path

import nets
import numpy as np
import pytest
from zoo_quick import bench_module

from nmpconv.exporters.c_sources import bundle
from nmpconv.file.reader import read
from nmpconv.file.writer import to_bytes
from nmpconv.graph.text import parse

BENCH = bench_module("mcu_run")
BOARDS = {
    "mps2-an386": ("arm-none-eabi-gcc", "qemu-system-arm"),
    "mps3-an547": ("arm-none-eabi-gcc", "qemu-system-arm"),
}


def depthwise(bits: int, kernel: int, **params: int) -> bytes:
    """A depthwise layer of 12 channels; the bytes of its file."""
    net = nets.Net(1, nets.grid(bits, -3))
    net.input("x", 1, 9, 9, 12, quant=nets.grid(bits, -4))
    net.integers("w", 12, kernel, kernel, 1, most=100, quant=nets.grid(8, *[-6] * 12, axis=0))
    net.integers("b", 12, most=50, quant=nets.grid(16, -3))
    net.op("conv2d", "x w b", "y", groups=12, pad_top=2, pad_left=2, pad_bottom=2, pad_right=2, **params)
    return to_bytes(nets.placed(net.graph("y")), {})


def pointwise(side: int) -> bytes:
    """A 1x1 layer of side x side pixels."""
    net = nets.Net(1, nets.grid(8, -3))
    net.input("x", 1, side, side, 12, quant=nets.grid(8, -4))
    net.integers("w", 6, 1, 1, 12, most=100, quant=nets.grid(8, *[-6] * 6, axis=0))
    net.integers("b", 6, most=50, quant=nets.grid(16, -3))
    net.op("conv2d", "x w b", "y")
    return to_bytes(nets.placed(net.graph("y")), {})


def attention(bits: int) -> bytes:
    """A product of two activations, whose sums are longer than those of the only weights, and a softmax of it."""
    net = nets.Net(2, nets.grid(8, -4))
    net.input("a", 1, 33, 40)
    net.input("b", 1, 35, 40, quant=nets.grid(bits, -4))
    net.op("batch_matmul", "a b", "scores", quant=nets.grid(8, 0))
    exponents = np.rint(2.0**30 * np.exp(-np.arange(256) / 8))
    net.const("t", exponents, nets.grid(32, -30))
    net.op("softmax", "scores t", "p", axis=2, quant=nets.grid(8, -7))
    net.integers("w", 4, 35, most=90, quant=nets.grid(8, *[-6] * 4, axis=0))
    net.integers("bias", 4, most=50, quant=nets.grid(16, -4))
    net.op("fully_connected", "p w bias", "y")
    return to_bytes(nets.placed(net.graph("y")), {})


def choice(data: bytes, name: str, **more: bytes) -> str:
    """A choice of a bundle of the model, and of more models."""
    built = bundle({"model": data, **more})["src/base/build.h"].decode()
    return built.partition(f"#define {name} ")[2].partition("\n")[0]


@pytest.fixture
def measured(need_tool: Callable[..., str], tmp_path: Path) -> Callable[[str, bytes], int]:
    """Instructions of a run of a bundle, whose outputs have to be this machine's."""

    def run(board: str, data: bytes) -> int:
        for tool in BOARDS[board]:
            need_tool(tool)
        (tmp_path / "net.nmp").write_bytes(data)
        return BENCH.measured(board, tmp_path / "net.nmp", tmp_path).instructions

    return run


@pytest.mark.parametrize(("sides", "alone"), [((1,), "1"), ((4,), "1"), ((3,), "0"), ((64,), "0"), ((64, 1), "1")])
def test_pixels_alone(sides: tuple[int, ...], alone: str) -> None:
    """Code of their own is worth it where they do a share of the work of a model."""
    first, *others = [pointwise(side) for side in sides]
    assert choice(first, "NMP_CONV_SINGLE", **{f"model{i}": data for i, data in enumerate(others)}) == alone


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bits", "kernel", "params", "taps"),
    [
        (8, 5, {}, "1"),
        (8, 3, {"dilation_h": 2, "dilation_w": 2}, "1"),
        (8, 3, {"dilation_h": 2}, "0"),
        (8, 1, {}, "1"),
        (16, 5, {}, "1"),
        (16, 3, {"dilation_h": 2}, "0"),
        pytest.param(16, 3, {"dilation_h": 2, "dilation_w": 2}, "1", marks=pytest.mark.soak),
        pytest.param(16, 1, {}, "1", marks=pytest.mark.soak),
    ],
)
def test_depthwise_kernels(
    bits: int, kernel: int, params: dict[str, int], taps: str, measured: Callable[[str, bytes], int]
) -> None:
    data = depthwise(bits, kernel, **params)
    assert choice(data, "NMP_CONV_TAPS") == taps
    outputs = prod(read(data).tensors[-1].shape)
    assert measured("mps2-an386", data) < outputs * (8 * kernel**2 + 70) + 4000


@pytest.mark.slow
@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("board", BOARDS)
def test_attention(board: str, bits: int, measured: Callable[[str, bytes], int]) -> None:
    data = attention(bits)
    assert choice(data, "NMP_CONV_K_MAX") == "40"
    assert choice(data, "NMP_WEIGHT_BITS") == ("8" if bits == 8 else "0")
    assert choice(data, "NMP_SOFTMAX_LINES") == "1"
    products, scores = 33 * 35 * 40, 33 * 35
    assert measured(board, data) < 3.5 * products + 110 * scores + 20000


SMALL = {
    "concat(a, b, c) axis=1": ("1,8", "1,8", "1,1", "1,17"),
    "slice(a) starts=[0,2,0,0] steps=[1,1,1,1] sizes=[1,3,4,3]": ("1,6,4,3", "1,3,4,3"),
    "requantize(a)": ("1,16", "1,16"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("op", "most"), list(zip(SMALL, (900, 800, 630), strict=True)))
def test_small_ops(op: str, most: int, measured: Callable[[str, bytes], int]) -> None:
    """Rows are copied without the general block's set-up, and 16 bits are shifted in 32."""
    *shapes, y = SMALL[op]
    inputs = "".join(
        f"input {name} : int8[{shape}] bits=8 exp=[0] lo=-128 hi=127\n"
        for name, shape in zip("abc", shapes, strict=False)
    )
    end = f"  y : int8[{y}] bits=8 exp=[{int('requantize' in op)}] lo=-128 hi=127\noutput y\n"
    graph = parse(f"graph small\n{inputs}y_op = {op}\n{end}")
    assert measured("mps2-an386", to_bytes(nets.placed(graph), {})) < most


@pytest.mark.parametrize(
    ("op", "low", "high", "wanted"),
    [
        ("conv2d", -128, 127, "0"),
        ("conv2d", 0, 127, "0"),
        ("conv2d", 0, 96, "1"),
        ("conv2d", -114, 127, "1"),
        ("depthwise", 0, 96, "1"),
        ("conv_add", -128, 127, "0"),
        ("conv_add", 0, 127, "1"),
        ("add", 0, 96, "0"),
    ],
)
def test_ranges_of_results(op: str, low: int, high: int, wanted: str) -> None:
    """Builds leave out what clips results of convolutions to ranges that no model has, and then refuse such models."""
    net = nets.Net(2, nets.grid(8, -4))
    net.input("x", 1, 6, 6, 4)
    net.integers("w", 4, 3, 3, 1 if op == "depthwise" else 4, most=90, quant=nets.grid(8, *[-6] * 4, axis=0))
    net.integers("b", 4, most=50, quant=nets.grid(16, -4))
    kind, inputs = {"depthwise": ("conv2d", "x w b"), "conv_add": ("conv_add", "x x w b"), "add": ("add", "x x")}.get(
        op, ("conv2d", "x w b")
    )
    same = {} if op == "add" else {f"pad_{side}": 1 for side in ("top", "left", "bottom", "right")}
    groups = {"groups": 4} if op == "depthwise" else {}
    net.op(kind, inputs, "y", quant=replace(nets.grid(8, -4), lo=low, hi=high), **same, **groups)
    data = to_bytes(nets.placed(net.graph("y")), {})
    assert choice(data, "NMP_CONV_RANGES") == wanted
    assert choice(data, "NMP_CONV_RANGES", more=data) == wanted
    assert choice(depthwise(8, 3), "NMP_CONV_RANGES", more=data) == wanted


@pytest.mark.slow
def test_depthwise_layers_of_few_channels(measured: Callable[[str, bytes], int]) -> None:
    """Such as of three axes or colours: channel by channel, not as matrix products of one channel."""
    net = nets.Net(1, nets.grid(8, -3))
    net.input("x", 1, 16, 16, 3, quant=nets.grid(8, -4))
    net.integers("w", 3, 3, 3, 1, most=100, quant=nets.grid(8, *[-6] * 3, axis=0))
    net.integers("b", 3, most=50, quant=nets.grid(16, -3))
    net.op("conv2d", "x w b", "y", groups=3, pad_top=1, pad_left=1, pad_bottom=1, pad_right=1)
    data = to_bytes(nets.placed(net.graph("y")), {})
    assert choice(data, "NMP_CONV_TAPS") == "1"
    assert measured("mps2-an386", data) < 16 * 16 * 3 * 200 + 4000
