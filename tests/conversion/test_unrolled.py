"""Recurrent nets as exporters unroll them: what the input adds to the gates of all steps is one product."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from nmpconv.conversion.calibration import float_passes
from nmpconv.frontend.onnx import load
from nmpconv.frontend.to_onnx import to_onnx
from nmpconv.graph.trace import Trace
from nmpconv.ir import Graph

STEPS, HIDDEN, FEATURES = 6, 4, 5


class Steps:
    """Nodes of a net whose input is [1, STEPS, FEATURES]."""

    def __init__(self) -> None:
        self.rng, self.nodes, self.weights = np.random.default_rng(0), [], {}  # type: ignore[var-annotated]

    def __call__(self, kind: str, *inputs: str, count: int = 1, **attributes: Any) -> list[str]:
        names = [f"{kind}{len(self.nodes)}.{i}" for i in range(count)]
        self.nodes.append(helper.make_node(kind, inputs, names, names[0], **attributes))
        return names

    def const(self, name: str, data: object) -> str:
        self.weights[name] = np.asarray(data)
        return name

    def draw(self, name: str, *shape: int) -> str:
        return self.const(name, (0.5 * self.rng.standard_normal(shape)).astype(np.float32))

    def model(self, rows: list[str]) -> ModelProto:
        [y] = self("Concat", *rows, axis=0)
        return helper.make_model(
            helper.make_graph(
                self.nodes,
                "net",
                [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, STEPS, FEATURES))],
                [helper.make_tensor_value_info(y, TensorProto.FLOAT, None)],
                [numpy_helper.from_array(array, name) for name, array in self.weights.items()],
            ),
            opset_imports=[helper.make_opsetid("", 13)],
            ir_version=8,
        )


def lstm_cells() -> ModelProto:
    """LSTMCell of torch: Gather, two Gemm, Add, Split."""
    to, rows, parts = Steps(), list[str](), [HIDDEN] * 4
    to.const("parts", np.array(parts, np.int64))
    h, c = (to.const(name, np.full((1, HIDDEN), 0.1, np.float32)) for name in ("h", "c"))
    layers = [
        (to.draw(f"w{i}", 4 * HIDDEN, size), to.draw(f"b{i}", 4 * HIDDEN)) for i, size in enumerate((FEATURES, HIDDEN))
    ]
    for t in range(STEPS):
        [x] = to("Gather", "x", to.const(f"t{t}", np.int64(t)), axis=1)
        sums = [to("Gemm", row, *layer, transB=1)[0] for row, layer in zip((x, h), layers, strict=True)]
        i, f, g, o = to("Split", *to("Add", *sums), "parts", count=4, axis=1)
        forget, new = to("Mul", *to("Sigmoid", f), c), to("Mul", *to("Sigmoid", i), *to("Tanh", g))
        [c] = to("Add", *forget, *new)
        [h] = to("Mul", *to("Sigmoid", o), *to("Tanh", c))
        rows.append(h)
    return to.model(rows)


def gru_cells() -> ModelProto:
    """GRU of Keras with unroll=True, from the last step on: StridedSlice, MatMul, BiasAdd, Split."""
    to, rows = Steps(), list[str]()
    to.const("parts", np.int64([HIDDEN] * 3)), to.const("one", np.float32(1)), to.const("axis", np.array([1], np.int64))
    w, r = to.draw("w", FEATURES, 3 * HIDDEN), to.draw("r", HIDDEN, 3 * HIDDEN)
    biases = to.draw("b", 3 * HIDDEN), to.draw("rb", 3 * HIDDEN)
    [h] = to("Mul", to.const("start", np.full((1, HIDDEN), 0.1, np.float32)), "one")
    for t in reversed(range(STEPS)):
        ends = [to.const(f"{side}{t}", np.array([t + i], np.int64)) for i, side in enumerate(("from", "to"))]
        [x] = to("Squeeze", *to("Slice", "x", *ends, "axis"), "axis")
        sums = [to("Add", *to("MatMul", row, m), b)[0] for row, m, b in zip((x, h), (w, r), biases, strict=True)]
        (xz, xr, xn), (hz, hr, hn) = (to("Split", total, "parts", count=3, axis=-1) for total in sums)
        [z], [reset] = (to("Sigmoid", *to("Add", *pair)) for pair in ((xz, hz), (xr, hr)))
        [n] = to("Tanh", *to("Add", xn, *to("Mul", reset, hn)))
        [h] = to("Add", *to("Mul", z, h), *to("Mul", *to("Sub", "one", z), n))
        rows.append(h)
    return to.model(rows)


def imported(model: ModelProto, folder: Path) -> Graph:
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return float_passes(load(folder / "m.onnx"), {}, Trace())


@pytest.mark.parametrize("cells", [lstm_cells, gru_cells])
def test_inputs_of_all_steps_are_multiplied_at_once(cells: Callable[[], ModelProto], tmp_path: Path) -> None:
    model = cells()
    graph = imported(model, tmp_path)
    x = np.random.default_rng(1).standard_normal((1, STEPS, FEATURES)).astype(np.float32)
    wanted, got = (
        onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})[0]
        for proto in (model, to_onnx(graph, graph.outputs))
    )
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    layers = [graph[node.inputs[0]] for node in graph.nodes if node.op == "fully_connected"]
    products = [value for value in layers if value.shape[-1] == FEATURES]
    assert max(value.size // FEATURES for value in products) >= STEPS - 1  # a constant state may be in the first bias
    assert len(products) <= 2
    assert len(layers) <= STEPS + 2
