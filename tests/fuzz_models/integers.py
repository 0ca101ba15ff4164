"""Conversions, and what 16 bits are against floats."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from fuzz_models import noise
from fuzz_models.case import Arrays, Case
from fuzz_models.outcome import Outcome
from nmpconv.calib.activation_cache import integers
from nmpconv.conversion.pipeline import Options, Result, convert
from nmpconv.errors import NmpError
from nmpconv.file.reader import dequantize
from nmpconv.graph.reference import run as run_reference
from nmpconv.ir import Graph
from nmpconv.ops.op import quant_of
from nmpconv.runtime import interpreter

LEAST_DB = 45.0
INPUT_SLACK = 9.0  # below what rounding the inputs to 16 bits leaves
GRID_SLACK = 12.0  # below what rounding every tensor to 16 bits leaves
JUMPS = ("ArgMax", "ArgMin", "Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal", "QuantizeLinear")
ROUNDING = ("Ceil", "Floor", "Mod", "Round")  # these jump, too; of an input, they are right within half a step of it


def check_conversion(
    path: Path, graph: Graph, case: Case, bits: str, outputs: tuple[str, ...], outcome: Outcome
) -> Result | None:
    read = {name for node in replace(case, outputs=outputs or case.outputs).trimmed().nodes for name in node.inputs}
    sources = {}
    for i, name in enumerate(name for name in graph.inputs if name in read):
        sources[name] = path.parent / f"samples{i}.npy"
        np.save(sources[name], case.feeds[name].astype(np.float32))
    options = Options(bits=bits, outputs=outputs)
    return outcome.guarded(f"{bits} bits", lambda: convert(path, sources, options, lambda *_: None))


def heads(case: Case) -> tuple[str, ...]:
    """The outputs; where one depends on an op that jumps, the operands of the first such op instead."""
    makers, names = case.makers(), dict[str, None]()
    above: dict[str, bool] = {}

    def jumps(name: str) -> bool:
        if name not in above:
            node = makers.get(name)
            above[name] = node is not None and (
                node.kind in JUMPS
                or (node.kind in ROUNDING and node.inputs[0] not in case.feeds)
                or (node.kind == "Cast" and node.attributes["to"] == 9)
                or (node.kind == "TopK" and name == node.outputs[1])
                or (node.kind == "GridSample" and node.attributes["mode"] == "nearest")
                or any(map(jumps, node.inputs))
            )
        return above[name]

    def depends(name: str) -> bool:
        return name in case.feeds or any(map(depends, makers[name].inputs if name in makers else ()))

    def visit(name: str) -> None:
        node = makers.get(name)
        if not jumps(name):
            if node is not None and depends(name):
                names[name] = None
        elif node is not None:
            for source in node.inputs:
                visit(source)

    for name in case.outputs:
        visit(name)
    return tuple(names)


def check_accuracy(case: Case, path: Path, graph: Graph, values: Arrays, outcome: Outcome, measured: bool) -> None:
    """At 16 bits. measured: compare with floats; not where those are wrong already."""
    ends = tuple(n for n in heads(case) if n in values and values[n].dtype.kind == "f")
    cut = () if ends == case.outputs or not ends else ends
    result = check_conversion(path, graph, case, "16", (), outcome)
    if cut and result is not None:
        result = check_conversion(path, graph, case, "16", cut, outcome)
    if result is None or not ends or not measured:
        return
    integer, real = _integer_runs(result, case)
    outcome.guarded("16 bits, C", lambda: _same_in_c(result, integer))
    trimmed = replace(case, outputs=ends).trimmed()
    wanted = {name: values[name] for name in ends}
    ratios = noise.worst(wanted, real)
    outcome.figures["16"] = min(ratios.values())
    if outcome.figures["16"] >= LEAST_DB:
        return
    steps = {v.name: 2.0 ** quant_of(v).exponent for v in result.graph.activations()}
    inputs, grids = (
        noise.rounded(trimmed, wanted, values | case.feeds, steps, inputs_only=only) for only in (True, False)
    )
    for name, db in ratios.items():
        quant = result.graph[name].quant
        assert quant is not None
        off = float(np.abs(wanted[name].astype(np.float64).ravel() - real[name].ravel()).max())
        if db >= min(LEAST_DB, inputs[name] - INPUT_SLACK) or (not wanted[name].any() and off <= 2.0**quant.exponent):
            continue
        if db >= min(LEAST_DB, grids[name] - GRID_SLACK):
            outcome.tight = min(outcome.tight, db)
            continue
        outcome.failures["16 bits: lost"] = (
            f"output {name}: {db:.1f} dB; {inputs[name]:.1f} with rounded inputs, {grids[name]:.1f} with all rounded"
        )


def _integer_runs(result: Result, case: Case) -> tuple[list[tuple[dict, dict]], Arrays]:
    """The reference on each sample: integers in and out, and the outputs as reals [n, ...]."""
    graph, rows = result.graph, []
    for i in range(case.count):
        feed = {
            name: integers(graph[name].stored(case.feeds[name][i].astype(np.float32)), graph[name])
            for name in graph.inputs
        }
        rows.append((feed, run_reference(graph, feed)))
    real = {}
    for name in graph.outputs:
        value = graph[name]
        exponent = quant_of(value).exponent
        real[name] = np.stack([dequantize(out[name], exponent, value.shifts) for _, out in rows])
    return rows, real


def _same_in_c(result: Result, rows: list[tuple[dict, dict]]) -> None:
    """The interpreter returns the reference's bytes."""
    try:
        net = interpreter.load(result.data)
    except NmpError as error:
        raise AssertionError(f"the file is refused: {error}") from error
    for feed, wanted in rows[:2]:
        for name, got in zip(result.graph.outputs, net.run(feed), strict=True):
            if not np.array_equal(got.ravel(), wanted[name].ravel()):
                raise AssertionError(f"output {name} differs")
