"""Checks of a case, stage by stage. A failure has a kind, the same for all cases that fail in the same way."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, MutableSequence
from pathlib import Path

import numpy as np
import onnx

from fuzz_models.case import Case, single
from fuzz_models.floats import check_floats, float_bounds
from fuzz_models.integers import check_accuracy, check_conversion
from fuzz_models.outcome import Outcome
from nmpconv.conversion.pipeline import Options, plan
from nmpconv.frontend.onnx import load
from nmpconv.passes.float import FLOAT, Pass

STAGES = ("broken", "float", "plan", "16", "8")


def check(
    case: Case, folder: Path, stages: tuple[str, ...] = STAGES, passes: Mapping[str, Pass] | None = None
) -> Outcome:
    """folder: for the files of the conversion. passes: FLOAT passes that are replaced, for tests of this test."""
    outcome, plain = Outcome(), single(case)
    try:
        values = plain.run(plain.tensors())
        if not all(np.isfinite(x).all() for x in values.values() if x.dtype.kind == "f"):
            outcome.invalid = "not finite"
        bounds = float_bounds(plain, values)
    except Exception as error:  # onnxruntime has no base class of its own
        outcome.invalid = re.sub(r"\d+", "#", str(error))
    if outcome.invalid:
        return outcome
    path = folder / "model.onnx"
    path.write_bytes(case.model().SerializeToString())
    graph = outcome.guarded("import", lambda: load(path))
    if graph is None:
        return outcome
    if "broken" in stages:
        _check_refusals(case.model(), path.with_name("broken.onnx"), outcome)
    if "float" in stages:
        check_floats(plain, graph, values, bounds, outcome, {**dict(FLOAT), **(passes or {})})
    if "plan" in stages:
        outcome.guarded("plan", lambda: plan(path, Options(bits="8")))
    if "16" in stages:
        wrong = any(kind.startswith("float") for kind in outcome.failures)
        check_accuracy(plain, path, graph, values, outcome, measured=not wrong)
    if "8" in stages:
        check_conversion(path, graph, plain, "8", (), outcome)
    return outcome


def _twice(named: MutableSequence) -> None:
    named.append(named[0])


def _of_nobody(node: onnx.NodeProto) -> None:
    node.input[0] = "nobody"


# What ONNX forbids, by how it is brought about.
BREAKS: dict[str, Callable[[onnx.GraphProto], None]] = {
    "an input twice": lambda graph: _twice(graph.input),
    "a node twice": lambda graph: _twice(graph.node),
    "a tensor that nobody makes": lambda graph: _of_nobody(graph.node[-1]),
}


def _check_refusals(model: onnx.ModelProto, path: Path, outcome: Outcome) -> None:
    """Graphs that ONNX forbids are refused, by an error that is meant for a person."""
    for name, break_it in BREAKS.items():
        broken = onnx.ModelProto()
        broken.CopyFrom(model)
        break_it(broken.graph)
        path.write_bytes(broken.SerializeToString())
        before = outcome.refused
        if outcome.guarded("broken", lambda: load(path)) is not None:
            outcome.failures[f"broken: {name}"] = "is taken"
        outcome.refused = before
