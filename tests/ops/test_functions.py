"""Functions of tables, against the operators of ONNX that become them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from onnx_text import build

from nmpconv.frontend.onnx import load

EVERYWHERE = (
    *("Sigmoid", "Tanh", "Softplus", "Softsign", "Erf", "Exp", "Abs", "Elu", "Selu", "LeakyRelu", "HardSigmoid"),
    *("Elu<alpha=0.3>", "LeakyRelu<alpha=0.2>", "HardSigmoid<alpha=0.3,beta=0.4>", "Selu<alpha=1.5,gamma=1.2>"),
)
ABOVE_0 = ("Log", "Sqrt", "Reciprocal")


@pytest.mark.parametrize(
    ("operator", "low"), [*((kind, -6.0) for kind in EVERYWHERE), *((kind, 0.01) for kind in ABOVE_0)]
)
def test_it_is_the_operator(operator: str, low: float, tmp_path: Path) -> None:
    name, _, attributes = operator.partition("<")
    call = f"{name}<{attributes}(x)" if attributes else f"{name}(x)"
    model = build(f"(float[1,97] x) => (y) {{ y = {call} }}", 17, tmp_path / "m.onnx")
    x = np.linspace(low, 6, 97).astype(np.float32)
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x[None]})
    (node,) = load(tmp_path / "m.onnx").nodes
    assert node.op == "lookup"
    np.testing.assert_allclose(node.params(x.astype(np.float64)), wanted[0], rtol=1e-5, atol=1e-6)
