"""16 bits unasked in nets of vectors: no target takes more than 1.3 times the instructions of --strict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from float_nets import residual
from onnx_net import Net

from nmpconv.base.progress import silent
from nmpconv.conversion import candidates, costly_widths
from nmpconv.conversion.options import Options
from nmpconv.conversion.pipeline import Result, convert, plan
from nmpconv.conversion.quantizer import Fitter
from nmpconv.file.reader import read
from nmpconv.runtime import costs
from nmpconv.runtime.targets import MICROCONTROLLERS


def dense(net: Net, x: str, outputs: int, *, relu: bool = True) -> str:
    inputs = net.shape(x)[1]
    y = net.add("Gemm", x, net.weights(inputs, outputs, spread=(2 / inputs) ** 0.5), net.weights(outputs, spread=0.2))
    return net.add("Relu", y) if relu else y


def autoencoder(path: Path, *sizes: int) -> int:
    """sizes: of the input and of each layer's output."""
    net, x = Net((1, sizes[0])), "x"
    for i, size in enumerate(sizes[1:]):
        x = dense(net, x, size, relu=i < len(sizes) - 2)
    net.save(path, x)
    return sizes[0]


def with_heads(path: Path) -> int:
    net = Net((1, 320))
    trunk = dense(net, dense(net, "x", 160), 96)
    heads = [dense(net, dense(net, trunk, 64), 12, relu=False), dense(net, trunk, 200, relu=False)]
    net.save(path, *heads, net.add("Sigmoid", dense(net, trunk, 5, relu=False)))
    return 320


NETS: dict[str, Callable[[Path], int]] = {
    "deep": lambda path: autoencoder(path, 400, 96, 96, 96, 12, 96, 96, 96, 400),
    "odd": lambda path: autoencoder(path, 129, 77, 33, 77, 129),
    "waist": lambda path: autoencoder(path, 200, 31, 200),  # work counts the least of it
    "one layer": lambda path: autoencoder(path, 512, 512),
    "heads": with_heads,
}


def converted(tmp_path: Path, make: Callable[[Path], int], **options: object) -> Result:
    size = make(tmp_path / "net.onnx")
    np.save(tmp_path / "x.npy", np.random.default_rng(1).normal(0, 1, (12, size)).astype(np.float32))
    chosen = Options(bits="8", fast=True, **options)  # type: ignore[arg-type]
    return convert(tmp_path / "net.onnx", {"": tmp_path / "x.npy"}, chosen, silent)


def times(default: bytes, strict: bytes) -> dict[str, float]:
    """Estimated instructions on each target, by those of --strict."""
    return {
        target: sum(costs.estimated(default, target)) / sum(costs.estimated(strict, target))
        for target in MICROCONTROLLERS
    }


@pytest.mark.parametrize("make", NETS.values(), ids=list(NETS))
def test_no_target_takes_more(tmp_path: Path, make: Callable[[Path], int]) -> None:
    result, strict = converted(tmp_path, make), converted(tmp_path, make, widths="strict")
    assert max(times(result.data, strict.data).values()) <= 1.3
    assert any(note.startswith("16 bits for ") for note in result.report.notes)


def test_the_limit_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    strict = converted(tmp_path, NETS["heads"], widths="strict")
    monkeypatch.setattr(costly_widths, "MOST", 9.0)
    assert max(times(converted(tmp_path, NETS["heads"]).data, strict.data).values()) > 1.3


def test_a_net_of_a_few_thousand_instructions_keeps_its_16_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three sensors and 24 units: 35.5 dB without, 45.4 with."""
    result, strict = (
        converted(tmp_path, lambda path: autoencoder(path, 3, 24, 1), widths=w) for w in ("default", "strict")
    )
    assert max(times(result.data, strict.data).values()) > 1.3
    assert read(result.data).tensors[read(result.data).inputs[0].tensor].dtype == "int16"
    monkeypatch.setattr(costly_widths, "LITTLE", 0)
    assert max(times(converted(tmp_path, lambda path: autoencoder(path, 3, 24, 1)).data, strict.data).values()) <= 1.3


def test_of_a_target_alone(tmp_path: Path) -> None:
    result = converted(tmp_path, NETS["deep"], target="rv32")
    assert not any(note.startswith("16 bits for ") for note in result.report.notes)
    assert {tensor.dtype for tensor in read(result.data).tensors if tensor.data is None} == {"int16"}


def test_inputs_stay_where_they_can(tmp_path: Path) -> None:
    """A first layer that is little of the work leaves the input its range."""
    model = read(converted(tmp_path, lambda path: autoencoder(path, 40, 256, 256, 8)).data)
    assert model.tensors[model.inputs[0].tensor].dtype == "int16"


def test_the_loudest_stay(tmp_path: Path) -> None:
    """An output far from 0 has a coarse grid at 8 bits, which makes nearly all of the noise. What it drowns out counts
    once it is int16."""

    def far(path: Path) -> int:
        net = Net((1, 200))
        x = dense(net, dense(net, dense(net, "x", 200), 200), 40, relu=False)
        net.save(path, net.add("Add", x, net.const(np.asarray(100, np.float32))))
        return 200

    model = read(converted(tmp_path, far).data)
    assert model.tensors[model.outputs[0].tensor].dtype == "int16"
    assert [model.tensors[op.outputs[0]].dtype for op in model.ops] == ["int8", "int16", "int16"]


def pooled(path: Path) -> None:
    """Nearly all of the work is the first layer's, nearly all of the noise that of what comes after the means."""
    net = Net((1, 16, 16, 16))
    x = net.add("Relu", net.conv("x", 16, 3))
    x = net.add("AveragePool", x, kernel_shape=[8, 8], strides=[8, 8])
    net.save(path, dense(net, net.add("Flatten", net.add("Relu", net.conv(x, 8, 1)), axis=1), 5, relu=False))


def test_what_is_nearly_free_gets_what_is_left(tmp_path: Path) -> None:
    """An input of 16 bits is too much here; small tensors fit, and no target takes more for them than the limit."""
    path = tmp_path / "net.onnx"
    pooled(path)
    data = np.random.default_rng(1).normal(0, 1, (12, 1, 16, 16, 16)).astype(np.float32)
    result, strict = (convert(path, {"": data}, Options(bits="8", widths=w), silent) for w in ("default", "strict"))
    assert read(result.data).tensors[read(result.data).inputs[0].tensor].dtype == "int8"
    narrowed, *_, cheap = [note for note in result.report.notes if note.startswith("16 bits for ")]
    assert "x: a microcontroller" in narrowed
    assert "on held-out images" in cheap
    assert max(times(result.data, strict.data).values()) <= 1.3


def test_the_limit_is_that_of_all_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose widths by shape take all instructions that it may gets no more, however little work that is."""
    path = tmp_path / "net.onnx"
    pooled(path)
    data = np.random.default_rng(1).normal(0, 1, (12, 1, 16, 16, 16)).astype(np.float32)
    monkeypatch.setattr(costly_widths, "WORK", 9.0)
    result = convert(path, {"": data}, Options(bits="8"), silent)
    assert not any(note.startswith("16 bits for ") for note in result.report.notes)


def test_sizes_without_data_hold_it(tmp_path: Path) -> None:
    NETS["deep"](tmp_path / "net.onnx")
    default, strict = (plan(tmp_path / "net.onnx", Options(bits="8", widths=w)).data for w in ("default", "strict"))
    assert max(times(default, strict).values()) <= 1.3


def test_widths_are_assumed_without_exponents() -> None:
    graph = residual()
    wide = candidates.AssumedWidths(SimpleNamespace(graph=graph, bits={})).graph(["p"])  # type: ignore[arg-type]
    grids = {value.name: value.quant for value in wide.activations()}
    assert {name for name, quant in grids.items() if quant.bits == 16} >= {"p"}  # type: ignore[union-attr]
    assert {quant.exponents for quant in grids.values()} == {(0,)}  # type: ignore[union-attr]


def test_the_loud_ones() -> None:
    assert [*costly_widths.loud({"a": 0.6, "b": 0.1, "c": 0.09, "d": 0.09})] == ["a", "b"]
    assert [*costly_widths.loud({"a": 0.96, "b": 0.017, "c": 0.002, "d": 0.002})] == ["a", "b"]
    assert [*costly_widths.loud({"a": 0.0})] == []
    assert [*costly_widths.loud({"a": 1.0, "b": 0.0})] == ["a"]
    assert [*costly_widths.loud({})] == []


class Loads:
    """Loads of grids, and how many were asked for."""

    def __init__(self, load: Callable[[int], float]) -> None:
        self.load, self.asked = load, list[int]()

    def __call__(self, grids: Sequence[costly_widths._WideGrid]) -> float:
        self.asked.append(len(grids))
        return self.load(sum(grid.work for grid in grids))


@pytest.mark.parametrize("fit", [0, 1, 2, 400, 997, 998])
@pytest.mark.parametrize("power", [1.0, 0.3, 3.0])
def test_how_many_fit_is_guessed_from_the_work(fit: int, power: float) -> None:
    grids = [costly_widths._WideGrid([str(i)], 10 + i) for i in range(999)]
    most = sum(grid.work for grid in grids[:fit]) + 5
    loads = Loads(lambda work: (work / most) ** power)
    assert costly_widths._affordable(grids, loads, 0.0) == grids[:fit]
    assert len(loads.asked) <= (4 if power == 1 else 16)


def test_smaller_ones_are_looked_at_where_one_does_not_fit() -> None:
    """Not such as add as much as b: e and c are never tried again."""
    names = {"a": 30, "b": 80, "c": 90, "d": 20, "e": 80, "f": 40}
    grids = {name: costly_widths._WideGrid([name], work) for name, work in names.items()}
    tried = list[str]()

    def load(wide: Sequence[costly_widths._WideGrid]) -> float:
        tried.append("".join(grid.names[0] for grid in wide))
        return sum(grid.work for grid in wide) / 100

    assert costly_widths._affordable([*grids.values()], load, 0.0) == [grids[name] for name in "adf"]
    assert [name for name in tried if name.startswith("ad")] == ["adf"]


def test_what_all_grids_take_is_estimated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    estimate, narrowed = costly_widths.InstructionLimit.load, list[int]()

    def counted(limit: costly_widths.InstructionLimit, fitter: Fitter) -> float:
        narrowed.append(sum(bits == 8 for bits in fitter.bits.values()))
        return estimate(limit, fitter)

    monkeypatch.setattr(costly_widths.InstructionLimit, "load", counted)
    NETS["deep"](tmp_path / "net.onnx")
    plan(tmp_path / "net.onnx", Options(bits="8"))
    assert len(set(narrowed)) == len(narrowed) > 1
