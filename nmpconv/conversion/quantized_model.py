"""Comparison with a quantized model as it is: with its own rounding, run by onnxruntime on the same samples.

The float graph has the model's grids but not its rounding. SQNR against the float graph therefore says nothing of the
distance to the quantized model's own results, which is measured here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from nmpconv.base.quantities import decibels
from nmpconv.base.sqnr import mean_db, sqnr_db
from nmpconv.calib.activation_cache import Evidence, integers
from nmpconv.calib.engine import EngineRefused, OnnxEngine
from nmpconv.conversion import node_runner
from nmpconv.conversion.context import Context
from nmpconv.conversion.import_check import pairs_of
from nmpconv.conversion.validation import Score, scored
from nmpconv.data.samples import Samples, spread
from nmpconv.frontend import integer_operators
from nmpconv.frontend.read import read
from nmpconv.ir import Graph
from nmpconv.ops.op import quant_of
from nmpconv.passes.quantize import bias_rule

SAMPLES = 32  # that the two are compared on


@dataclass(frozen=True)
class AgainstQuantized:
    """The outputs beside those of the quantized model.

    db: SQNR, the mean over the outputs. equal: of the outputs whose grid in the model has a step that is a power of
    two, the share of elements that are the model's integers, in %; None without such outputs. steps: the largest
    difference there, in steps of the model's grid. samples: number of them. equal_own_biases: the share of equal
    integers where biases are on s_x * s_w; simulated where the model's grids are kept and biases are on the outputs'.
    """

    db: float
    equal: float | None
    steps: int | None
    samples: int
    equal_own_biases: float | None = None

    @property
    def sentence(self) -> str:
        """For people: "38.1 dB, 97.31 % of integers equal, others at most 1 step away, of 32 samples"."""
        parts = ["no difference" if self.db == math.inf else decibels(self.db)]
        if self.equal is not None and self.steps is not None:
            parts.append(f"{_share(self.equal)} of integers equal")
            if self.steps:
                parts.append(f"others at most {self.steps} step{'s' if self.steps > 1 else ''} away")
        if self.equal_own_biases is not None:
            parts.append(f"{_share(self.equal_own_biases)} with biases on s_x*s_w (simulated)")
        return f"{', '.join(parts)}, of {self.samples} samples"


def compared(
    context: Context, samples: Mapping[str, Samples], count: int, whole: Graph, floats: Graph
) -> tuple[AgainstQuantized, Score] | None:
    """Runs the user's model and the integer graph on the samples of `compared_on`, and scores the outputs; None where
    there are none, the model is not quantized, or onnxruntime does not take it.

    floats: the graph that was quantized. InputError where a run of the model fails.
    """
    values, shapes = context.options.bound_inputs
    if not count or not integer_operators.is_quantized(read(context.model, values, shapes, on_reals=False).graph):
        return None
    engine = _engine(context, whole)
    if engine is None:
        return None
    pairs = pairs_of(whole, samples, {}, count, SAMPLES)
    fed = [{name: integers(whole[name].stored(x), whole[name]) for name, x in ours.items()} for _, ours in pairs]
    names = list(whole.outputs)
    got = [_reals(whole, names, run) for run in node_runner.tensors(whole, fed, names)]
    wanted = [engine.run(theirs) for theirs, _ in pairs]
    agreement = _against(whole, names, wanted, got)
    shapes = {name: whole[name].shape for name in names}
    score = scored(_joined(wanted, shapes), _joined(got, shapes), names, len(pairs))
    if not context.options.faithful or context.options.bits != "8":
        return agreement, score
    inputs = {
        name: np.concatenate([np.atleast_1d(whole[name].stored(ours[name])) for _, ours in pairs]) for name in fed[0]
    }
    outputs = bias_rule.own_biases(whole, floats, Evidence(inputs), names, node_runner.step)
    reals = [
        _reals(whole, names, [_real(whole, name, np.split(outputs[name], len(pairs))[i]) for name in names])
        for i in range(len(pairs))
    ]
    return replace(agreement, equal_own_biases=_against(whole, names, wanted, reals).equal), score


def compared_on(count: int) -> Sequence[int]:
    """Returns the samples of so many that the two run on: at most SAMPLES."""
    return spread(count, SAMPLES)


def _joined(runs: Sequence[Mapping[str, np.ndarray]], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """The outputs of all runs, one after the other."""
    return {
        name: np.concatenate([np.atleast_1d(np.reshape(run[name], shape)) for run in runs])
        for name, shape in shapes.items()
    }


def _share(percents: float) -> str:
    """No less than 100 % is rounded to it."""
    return f"{math.floor(100 * percents) / 100:.2f} %"


def _real(graph: Graph, name: str, q: np.ndarray) -> np.ndarray:
    return np.ldexp(q.astype(np.float64), quant_of(graph[name]).exponent) + graph[name].origin


def _engine(context: Context, whole: Graph) -> OnnxEngine | None:
    """The model as it is; where onnxruntime lacks its operators on integers, those on reals between roundings.

    It is not optimized: onnxruntime 1.32 refuses to where two layers quantize one constant.
    """
    values, shapes = context.options.bound_inputs
    for on_reals in (False, True):
        try:
            model = read(context.model, values, shapes, on_reals=on_reals)
            sizes = {name: whole.source_shapes[name] for name in whole.inputs}
            return OnnxEngine(model, sizes, whole.outputs, optimize=False)
        except EngineRefused:
            continue
    return None


def _reals(graph: Graph, names: list[str], stored: list[np.ndarray]) -> dict[str, np.ndarray]:
    """The float model's numbers of these tensors."""
    return {name: x / graph[name].factors for name, x in zip(names, stored, strict=True)}


def _against(
    graph: Graph, names: list[str], wanted: list[dict[str, np.ndarray]], got: list[dict[str, np.ndarray]]
) -> AgainstQuantized:
    dbs, apart = [], []
    for name in names:
        theirs, ours = (np.stack([np.ravel(run[name]) for run in runs]).astype(np.float64) for runs in (wanted, got))
        dbs.append(sqnr_db(theirs, ours))
        if (grid := graph.given.get(name)) is not None and grid.is_power:
            apart.append(np.abs(np.rint((ours - theirs) / grid.scale)).ravel())
    if not apart:
        return AgainstQuantized(mean_db(dbs), None, None, len(wanted))
    steps = np.concatenate(apart)
    return AgainstQuantized(mean_db(dbs), 100 * float(np.mean(steps == 0)), int(steps.max()), len(wanted))
