"""Alternative conversions, evaluated by the C interpreter on validation images.

RAM and flash are exact: the plan's, or a microcontroller's arena, and the bytes of the file without test vectors.
Instructions are estimated (`nmpconv.runtime.costs`). Work belongs to no machine: multiply-accumulates times the bytes
of an element of the wider of their two operands, and the bytes of all results.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from nmpconv.base import fixed_point
from nmpconv.base.workers import Here, Workers
from nmpconv.calib import activation_cache as calibration
from nmpconv.calib.activation_cache import Feeds
from nmpconv.conversion.quantizer import Fitter, Recipe
from nmpconv.conversion.validation import Noises, Score, effects, scored
from nmpconv.errors import Unsupported
from nmpconv.evaluation.float_reference import infer
from nmpconv.evaluation.task_metrics import Measure
from nmpconv.file.reader import FileTensor
from nmpconv.file.writer import to_bytes
from nmpconv.ir import FLOAT, Graph, Node
from nmpconv.ops import OPS
from nmpconv.passes.memory import plan_memory
from nmpconv.passes.quantize.exponents import provisional, saturating
from nmpconv.passes.quantize.heads import heads
from nmpconv.passes.quantize.overrides import Choices, Said
from nmpconv.passes.quantize.shared_grids import grid_groups
from nmpconv.runtime import costs, interpreter, targets


@dataclass(frozen=True)
class Candidate:
    """wide: tensors promoted to int16, the first one of each grid. db, agreement (%), top1_drop (points): on validation
    images. ram, flash: bytes. work, instructions: see above; the latter on the trial's target, or
    on `costs.DEFAULT` where that is no microcontroller. metric: where one was asked for.
    db_margin: see `nmpconv.conversion.validation.Score`."""

    wide: tuple[str, ...]
    db: float
    agreement: float | None
    top1_drop: float | None
    ram: int
    flash: int
    work: int
    instructions: int
    taken: bool = False
    metric: float | None = None
    db_margin: float | None = None

    def cost(self, name: str) -> int:
        return {"instructions": self.instructions, "ram": self.ram, "flash": self.flash}[name]


@dataclass(frozen=True)
class ValidationSet:
    """Images and labels that candidates are measured on. images, labels: that nothing is fitted to; a label is a class,
    or boxes for a metric of these. fitted: those that biases are fitted on. finish: the planned graph of an integer
    one. metadata: of the file. target: whose RAM counts; None: that of activations. metric: begun anew, and what it
    is called. indices: of the images among the samples."""

    images: Feeds
    labels: Sequence[Any] | None
    fitted: Feeds
    finish: Callable[[Graph], Graph]
    metadata: Mapping[str, str] = field(default_factory=dict)
    target: str | None = None
    metric: tuple[Callable[[], Measure], str] | None = None
    indices: tuple[int, ...] = ()

    def fingerprint(self, recipe: bytes) -> str:
        """Digest of all that a candidate's measurements depend on. recipe: the file, if there is one."""
        called = self.metric[1] if self.metric else None
        facts = json.dumps([dict(self.metadata), self.labels, called, self.target], sort_keys=True).encode()
        digest = hashlib.sha256(facts + recipe)
        for feeds in (self.fitted, self.images):
            for i in range(len(feeds)):
                for name, x in feeds[i].items():
                    digest.update(name.encode() + np.ascontiguousarray(x).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class EvaluatedCandidate:
    """A candidate's figures, its float graph with grids, and the bytes of its file. effects: of each image on the
    figures' db, see `nmpconv.conversion.validation.effects`. score: on the images."""

    figures: Candidate
    ranged: Graph
    data: bytes
    effects: np.ndarray
    score: Score


class CandidateEvaluator:
    """Converts candidates of one model by one recipe, and measures them. judged: what a metric's result comes to."""

    def __init__(
        self, fitter: Fitter, recipe: Recipe, trial: ValidationSet, judged: Callable[[Measure], Any] | None = None
    ) -> None:
        self.fitter, self.recipe, self.trial, self._judged = fitter, recipe, trial, judged
        self.heads = heads(fitter.graph)
        names = dict.fromkeys([*self.heads, *(fitter.graph.outputs if trial.metric else ())])
        if list(names) == self.heads and isinstance(trial.images, list):  # what is in memory is known again
            self._wanted = fitter.outputs(trial.images)
        else:
            self._wanted = calibration.outputs(fitter.graph, trial.images, list(names))
        self.classes = self._wanted[self.heads[0]][0].size
        self.float_top1 = self.top1(self._wanted[self.heads[0]])

    def convert(self, choices: Choices, wide: tuple[str, ...] = ()) -> EvaluatedCandidate:
        """By these choices. wide: what the candidate is called by."""
        fitter, trial = self.fitter.with_choices(choices), self.trial
        prepared, whole = fitter.fitted(self.recipe, trial.fitted)
        planned = trial.finish(whole)
        data = to_bytes(planned, dict(trial.metadata))
        got, metric = self._outputs(to_bytes(plan_memory.run(whole), {}))
        count = len(trial.images)
        score, top1 = scored(self._wanted, got, self.heads, count), self.top1(got[self.heads[0]])
        drop = None if top1 is None or self.float_top1 is None else self.float_top1 - top1
        micro = trial.target in targets.MICROCONTROLLERS
        ram = targets.needs(data, str(trial.target)).arena if micro else plan_memory.peak(planned)
        [steps] = costs.totals(data, planned, [costs.stand_in(trial.target)])
        db, sure = round(score.db, 3), score.db_margin
        candidate = Candidate(
            *(wide, db, score.agreement, drop, ram, len(data), work(planned), steps), metric=metric, db_margin=sure
        )
        return EvaluatedCandidate(
            candidate, prepared.ranged, data, effects(self._wanted, got, self.heads, count), score
        )

    def all(
        self, asked: Sequence[tuple[Choices, tuple[str, ...]]], workers: Workers | None = None
    ) -> Generator[EvaluatedCandidate | None]:
        """Converts each by `convert`, when it is taken; None where it does not fit a given RAM. workers: what converts
        them, maybe before they are taken."""
        return (workers or Here()).map(_converted, self, asked)

    def run(self, data: bytes, seen: Noises = ()) -> tuple[Score, float | None, float | None]:
        """A file of this model on the images: how near the float model, top-1 in %, and the metric. seen: noises of one
        whose grids had seen the images, see `nmpconv.conversion.validation.scored`."""
        got, metric = self._outputs(data)
        score = scored(self._wanted, got, self.heads, len(self.trial.images), seen)
        return score, self.top1(got[self.heads[0]]), metric

    def top1(self, scores: np.ndarray) -> float | None:
        """In %; None without labels, or where these are no scores of classes."""
        labels = self.trial.labels
        if labels is None or sum(dim > 1 for dim in scores.shape[1:]) != 1:
            return None
        return 100 * float(np.mean(np.argmax(scores.reshape(len(scores), -1), axis=1) == np.asarray(labels)))

    def _outputs(self, data: bytes) -> tuple[dict[str, np.ndarray], float | None]:
        """Real values of the heads of all images, by the C interpreter; and the metric."""
        net = interpreter.load(data)
        places = {tensor.name: i for i, tensor in enumerate(net.model.tensors)}
        keep = [places[name] for name in self.heads]
        measure = self.trial.metric[0]() if self.trial.metric else None
        runs = []
        for i in range(len(self.trial.images)):
            image = self.trial.images[i]
            feeds = {
                port.name: _integers(image[port.name], net.model.tensors[port.tensor]) for port in net.model.inputs
            }
            outputs, activations = infer(net, feeds, keep)
            runs.append(activations)
            if measure is not None:
                names = [port.name for port in net.model.outputs]
                floats = [self._wanted[name][i] / self.fitter.graph[name].factors for name in names]
                label = None if self.trial.labels is None else self.trial.labels[i]
                measure.add(self._shaped(outputs), label, self._shaped(floats))
        reals = {
            name: np.stack([run[i] for run in runs]) * self.fitter.graph[name].factors
            for i, name in enumerate(self.heads)
        }
        return reals, None if measure is None or self._judged is None else self._judged(measure)

    def _shaped(self, outputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """As the ONNX model has them."""
        graph = self.fitter.graph
        return [x.reshape(graph.source_shapes[name]) for name, x in zip(graph.outputs, outputs, strict=True)]


def _converted(trials: CandidateEvaluator, asked: tuple[Choices, tuple[str, ...]]) -> EvaluatedCandidate | None:
    with threadpool_limits(1):  # as a conversion has it
        try:
            return trials.convert(*asked)
        except Unsupported:
            return None


def _integers(x: np.ndarray, tensor: FileTensor) -> np.ndarray:
    return fixed_point.quantize(x, tensor.exponents[0], tensor.clip_min, tensor.clip_max).astype(tensor.dtype)


def narrow(graph: Graph, choices: Choices, ranged: Graph) -> dict[str, list[str]]:
    """The grids that could get 16 bits, as their width is not given: the members by the first one, those that have
    names in the float graph in front. graph: the float graph; ranged: the same with grids."""
    known, ports = {value.name for value in graph.activations()}, graph.plain_ports().keys()
    grids: dict[str, list[str]] = {}
    for group in grid_groups(ranged):
        quant = ranged[group[0]].quant
        decided = quant is None or quant.bits == 16 or not ports.isdisjoint(group)
        if not decided and not any("bits" in choices.tensors.get(name, {}) for name in group):
            grids[group[0]] = sorted(group, key=lambda name: name not in known)
    return {first: named for first, named in grids.items() if named[0] in known}


class AssumedWidths:
    """The float graph with the widths that it has where some tensors get 16 bits, without exponents."""

    def __init__(self, fitter: Fitter) -> None:
        self._plain = provisional(fitter.graph, fitter.bits)
        self._groups = {name: group for group in grid_groups(fitter.graph) for name in group}

    def widened(self, wide: Sequence[str]) -> set[str]:
        """The tensors that are on the grids of these."""
        return {member for name in wide for member in self._groups.get(name, ())}

    def graph(self, wide: Sequence[str]) -> Graph:
        """wide: tensors that get 16 bits, with all that are on their grids."""
        names = self.widened(wide)
        quant = saturating(16, 0, None)
        return self._plain.with_values(*(replace(self._plain[n], quant=quant, dtype=quant.dtype) for n in names))


def widened(choices: Choices, wide: Sequence[str], place: str) -> Choices:
    """The choices, and 16 bits for these tensors; place: who said so."""
    rows = dict(choices.tensors)
    for name in wide:
        rows[name] = {**rows.get(name, {}), "bits": Said(16, place)}
    return Choices(rows, choices.ops)


def work(graph: Graph) -> int:
    """Work of all nodes."""
    return sum(work_of(graph, node) for node in graph.nodes)


def work_of(graph: Graph, node: Node) -> int:
    """Multiply-accumulates times the bytes of an element of the wider of their two operands, and the bytes of all
    results. Operands that are not integers yet do not count."""
    macs = OPS[node.op].macs(node.params, graph.ins(node), graph.outs(node))
    widths = [np.dtype(value.dtype).itemsize for value in graph.ins(node)[:2] if value.dtype != FLOAT]
    return macs * max(widths, default=1) + sum(value.nbytes for value in graph.outs(node))
