"""Gates: tables of sums, whose terms need no range that the table does not tell apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_net
import pytest
from nets import Net

import nmpconv
from nmpconv.base.sqnr import sqnr_db
from nmpconv.calib.engine import OnnxEngine
from nmpconv.calib.observers import TensorStats
from nmpconv.ir import Graph
from nmpconv.ops.common.traits import Bounds
from nmpconv.passes.quantize import table_readers


def gate(function: str, *outputs: str, reader: str = "add") -> Graph:
    """function(slice of a + u), and the rest of a likewise with itself shifted."""
    net = Net(1)
    net.input("x", 1, 2, 4)
    net.dense("x", "a", 4)
    net.input("u", 1, 1, 4)
    net.op("slice", "a", "first", starts=(0, 0, 0), steps=(1, 1, 1), sizes=(1, 1, 4))
    net.op("slice", "a", "second", starts=(0, 1, 0), steps=(1, 1, 1), sizes=(1, 1, 4))
    net.op(reader, "first u", "s")
    net.op("lookup", "s", "y", function=function)
    net.op(reader, "second u", "t")
    net.op("lookup", "t", "z", function=function)
    return net.graph("y", "z", *outputs)


def counted(graph: Graph, name: str, bits: int = 8) -> Bounds:
    reach = {"a": 60.0, "first": 60.0, "second": 30.0, "u": 2.0, "s": 62.0, "t": 32.0}
    names = [value.name for value in graph.activations()]
    stats = {key: TensorStats.of(np.linspace(-reach.get(key, 1), reach.get(key, 1), 512)) for key in names}
    found = table_readers.counting(graph, stats, dict.fromkeys(names, bits))[name]
    assert (found.histogram.total, found.count) == (stats[name].histogram.total, stats[name].count)
    return found.min, found.max


@pytest.mark.parametrize("name", ["a", "first", "second"])
def test_terms_reach_as_far_as_the_other_one_leads_out_of_what_is_flat(name: str) -> None:
    for function, bits, end in (("sigmoid", 8, 5.5), ("tanh", 8, 2.8), ("sigmoid", 16, 11.1)):
        low, high = counted(gate(function), name, bits)
        assert high == -low
        assert end + 2 - 0.2 < high < end + 2 + 0.2


@pytest.mark.parametrize("name", ["u", "s"])
def test_what_does_not_reach_so_far_stays(name: str) -> None:
    """The sum itself is the table's own input: `exponents` sees what the table makes of it."""
    assert counted(gate("sigmoid"), name)[1] == {"u": 2.0, "s": 62.0}[name]


FUNCTIONS = [gate(name) for name in ("exp", "softplus", "reciprocal", "sin", "log")]


@pytest.mark.parametrize("graph", [*FUNCTIONS, gate("sigmoid", "a"), gate("sigmoid", reader="mul")])
def test_other_readers_see_all(graph: Graph) -> None:
    assert counted(graph, "a") == (-60.0, 60.0)


@pytest.mark.slow
def test_recurrent_net_whose_input_drives_gates_far(tmp_path: Path) -> None:
    """Six steps of an LSTM; some products of its input are 50, those of the state 3."""
    net, path = onnx_net.Net((6, 1, 24)), tmp_path / "m.onnx"
    weights, recurrent = net.weights(1, 64, 24, spread=3.0), net.weights(1, 64, 16, spread=0.5)
    net.save(path, net.add("LSTM", "x", weights, recurrent, hidden_size=16))
    draws = np.random.default_rng(3).normal(0, 1, (60, 6, 1, 24)).astype(np.float32)
    engine = OnnxEngine(path, {"x": (6, 1, 24)})
    wanted = np.stack([engine.run({"x": x})[engine.fetch[0]] for x in draws[40:]])
    model = nmpconv.convert(path, draws[:40], widths="strict").load()
    got = np.stack([model.run_float(x)[0] for x in draws[40:]]).reshape(wanted.shape)
    assert sqnr_db(wanted, got) >= 23.8
