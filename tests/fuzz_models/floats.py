"""The float graph, after the import and after each pass, against onnxruntime on the original."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from fuzz_models import noise
from fuzz_models.case import Arrays, Case, run_model
from fuzz_models.outcome import Outcome
from nmpconv.frontend.to_onnx import to_onnx
from nmpconv.graph.trace import Trace
from nmpconv.ir import Graph
from nmpconv.passes.float import FLOAT, Pass

LEAST_DB = 90.0
SLACK = 12.0  # dB that may be lost where the case's own float32 noise leaves less
TINY = 1e-6  # of the largest value, where nothing is wanted


def float_bounds(case: Case, values: Arrays) -> dict[str, float]:
    """Least SQNR in dB by output."""
    wanted = {name: values[name] for name in case.outputs}
    return {name: min(LEAST_DB, db - SLACK) for name, db in noise.float_noise(case, wanted, values).items()}


def check_floats(
    case: Case,
    graph: Graph,
    values: Arrays,
    bounds: Mapping[str, float],
    outcome: Outcome,
    passes: Mapping[str, Pass],
) -> None:
    """The imported graph against the original, each pass against the graph before it, then all of them together."""
    wanted = {name: values[name] for name in case.outputs}
    tiny = TINY * max(float(np.abs(x).max(initial=0)) for x in values.values() if x.dtype.kind == "f")
    before = _float_run("import", case, graph, outcome)
    if before is None or not _near("float: import", wanted, before, bounds, tiny, outcome):
        return
    for name, _ in FLOAT:
        changed = outcome.guarded(f"float: {name}", partial(_passed, passes[name], graph, name))
        if changed is None:
            return
        if not _same(changed, graph):
            after = _float_run(name, case, changed, outcome)
            if after is None or not _near(f"float: {name}", before, after, bounds, tiny, outcome):
                return
            before = after
        graph = changed
    outcome.figures["float"] = min(noise.worst(wanted, before).values())
    _near("float: all passes", wanted, before, {n: b - 6 for n, b in bounds.items()}, tiny, outcome)


def _same(a: Graph, b: Graph) -> bool:
    """Also in the data of constants, which no comparison of values looks at."""
    return a == b and all(value.data is b[name].data for name, value in a.values.items())


def _passed(function: Pass, graph: Graph, name: str) -> Graph:
    return Trace()(function(graph), "FLOAT", name)


def _float_run(name: str, case: Case, graph: Graph, outcome: Outcome) -> Arrays | None:
    """Outputs of a float graph; one that cannot be exported or run is a failure of its pass."""
    return outcome.guarded(
        f"float: {name}", lambda: run_model(to_onnx(graph, graph.outputs), case.feeds, graph.outputs)
    )


def _near(kind: str, wanted: Arrays, got: Arrays, bounds: Mapping[str, float], tiny: float, outcome: Outcome) -> bool:
    for name, db in noise.worst(wanted, got).items():
        if db >= bounds[name]:
            continue
        # Nothing was wanted: the rest of what cancels.
        if not wanted[name].any() and float(np.abs(got[name]).max()) <= tiny:
            continue
        outcome.failures[kind] = f"output {name}: {db:.1f} dB, {bounds[name]:.1f} allowed"
        return False
    return True
