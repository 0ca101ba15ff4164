"""The float passes against golden texts: tests/passes/<pass>/<case>.txt is '# what', a graph, '---', the graph after.

``pytest --bless`` writes what the passes make now. Every case must also keep the float function, by onnxruntime.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from float_run import run_float

from nmpconv.ir import Graph
from nmpconv.text import parse, to_text
from nmpconv.verify import verify

FOLDER = Path(__file__).parent
CASES = sorted(FOLDER.glob("*/*.txt"))


def run_pass(name: str, graph: Graph) -> Graph:
    module = import_module(f"nmpconv.passes.{name}")
    if name == "fold_input":
        result: Graph = module.run(replace(graph, preprocess={}), graph.preprocess)
    else:
        result = module.run(graph)
    return result


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_golden(path: Path, bless: bool) -> None:
    before, _, expected = path.read_text(encoding="utf-8").partition("---\n")
    graph = parse(before)
    verify(graph, "FLOAT", "the case")
    after = run_pass(path.parent.name, graph)
    verify(after, "FLOAT", path.parent.name)
    if bless:
        path.write_text(f"{before}---\n{to_text(after)}", encoding="utf-8")
    else:
        assert to_text(after) == expected
    if path.parent.name != "fold_input":
        assert_same_function(graph, after)


def assert_same_function(before: Graph, after: Graph, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    feeds = {name: rng.standard_normal(before[name].shape).astype(np.float32) for name in before.inputs}
    for name, wanted, found in zip(before.outputs, run_float(before, feeds), run_float(after, feeds), strict=True):
        scale = float(np.abs(wanted).max()) + 1e-6
        np.testing.assert_allclose(found / scale, wanted / scale, atol=2e-4, err_msg=name)


def test_every_case_says_what() -> None:
    assert [path.name for path in CASES if not path.read_text(encoding="utf-8").startswith("# ")] == []
    assert len(CASES) >= 30
