"""What the onnxruntime that is installed can be compared with."""

from __future__ import annotations

import onnxruntime
import pytest

OLD = "1.23."  # the newest for Python 3.10
# What it has not or gets wrong.
LACKS = {
    "test_expand.py": ("Swish", "AveragePool/ceil", "Attention/hidden row"),
    "test_expand_products.py": ("Einsum/one",),
    "test_lowering.py": ("average pool/counted/11",),
}


@pytest.fixture(autouse=True)
def comparable(request: pytest.FixtureRequest) -> None:
    cases = LACKS.get(request.path.name, ())
    if onnxruntime.__version__.startswith(OLD) and request.node.name.endswith(tuple(f"[{case}]" for case in cases)):
        pytest.skip(f"onnxruntime {onnxruntime.__version__} has it not, or wrong")
