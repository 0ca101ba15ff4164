"""Checks that two float models are equivalent: the user's model, the float graph, the graph after a pass.

The noise is the difference between the results of the two models. These bounds allow for rounding:

1. Its power is at least 90 dB below that of the results. Another order of sums and weights that are rounded once more
   leave 100 dB and more.
2. A net that amplifies the rounding of float32 may have the noise of that rounding in the first model, plus 20 dB.
   That noise is measured: every float operand of an arithmetic op is moved by up to one unit, results of functions
   that saturate by a unit of 1, and onnxruntime's optimizations change the order of sums, but in very large models.
3. An output behind an op with jumps (a comparison, ArgMax) may also differ in one of a hundred elements, if the inputs
   of the jumps agree: one rounding there changes an element by any amount.

Where a result differs more, the first tensor in the first model's order that differs tells the node. Tensors are found
by their names, which passes keep. Their layouts may differ, so sorted elements are compared: what agrees in any order
of elements agrees there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import onnx

from nmpconv.base.sqnr import SAME_DB
from nmpconv.calib import original_model
from nmpconv.calib.engine import Engine, FloatEngine, is_small
from nmpconv.calib.float_noise import Known, rounded_more
from nmpconv.frontend.toposort import reads
from nmpconv.ir import Graph
from nmpconv.ops.lookup import LookupParams

MARGIN_DB = 20.0  # case 2; SqueezeNet's float graph has 19 dB more: its first layer subtracts the mean of raw pixels
FEW = 0.01  # case 3: the share of elements
MOVES = ("transpose", "reshape")
LAYOUT_OPS = ("Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
SATURATING = {"HardSigmoid": "hard_sigmoid", "Sigmoid": "sigmoid", "Softmax": "softmax", "Tanh": "tanh"}  # ONNX: ours
NAMED = 3  # nodes that a message names besides the one
CHUNK = 64 << 20  # bytes of one model's tensors that are compared at a time

Feed = Mapping[str, np.ndarray]
Pair = tuple[Feed, Feed]
"""One sample for both models, float inputs by name."""


@dataclass(frozen=True)
class Parity:
    """Agreement of the second model at the tensor where the least is left of what is allowed.

    db: of its signal to the difference; required: the least that is allowed; holds: whether that is so. parts: where it
    is not, and was traced, this is the tensor where the two begin to differ; its node in the first model, as text, and
    ``before``: the tensors before it that agree.
    """

    tensor: str
    db: float
    required: float
    holds: bool = True
    parts: str = ""
    before: tuple[str, ...] = ()

    def __str__(self) -> str:
        own = "" if self.required >= SAME_DB else f", {self.required:.1f} for this net's own float32 noise"
        return f"{self.tensor!r} has {self.db:.1f} dB, {SAME_DB:.0f} are required{own}"


def compare(
    model: Callable[[], onnx.ModelProto],
    graph: Graph,
    pairs: Sequence[Pair],
    outputs: Sequence[str] = (),
    known: Known | None = None,
) -> Parity:
    """The float graph against a float model that has its tensors' names.

    model: makes it, in float32, nodes in order, as `original` and `to_onnx` do; called once, and not where ``known``
    is enough. pairs: at least one sample. outputs: tensors of both in one layout, and a failure is not traced; default:
    the graph's outputs, and what a last Softmax or Sigmoid makes them of, since those hide differences where they
    saturate. known: what the model makes of the samples, of ``outputs``; it is run where that is not known.
    """
    names = list(dict.fromkeys(outputs or graph.outputs))
    comparison = _Both(model, graph, pairs, names)
    if not outputs:
        names += [name for name in comparison.saturating(names) if name not in names]
    gaps = comparison.gaps(names, known)
    if any(gap.db < SAME_DB for gap in gaps.values()):
        gaps = comparison.noisy(gaps, known)
    wrong = [name for name, gap in gaps.items() if not gap.holds]
    if wrong:
        gaps |= comparison.after_jumps(wrong)
    worst = min(gaps, key=lambda name: gaps[name].spare)
    parity = Parity(worst, gaps[worst].db, gaps[worst].required, gaps[worst].holds)
    return parity if parity.holds or outputs else comparison.located(parity)


@dataclass(frozen=True)
class _Gap:
    """Powers of a tensor over all samples. noise: of float32 in the first model."""

    signal: float = 0.0
    error: float = 0.0
    noise: float = 0.0

    @staticmethod
    def of(wanted: np.ndarray, got: np.ndarray, noisy: np.ndarray | None = None, *, few: float = 0.0) -> _Gap:
        """few: the share of elements that may differ. Elements without a finite value in the first model are free."""
        reference = np.asarray(wanted, np.float64).ravel()
        if reference.size != np.size(got):
            return _Gap(float(np.dot(reference, reference)), math.inf)
        if noisy is None and not few:
            error = reference - np.asarray(got).ravel()
            gap = _Gap(float(np.dot(reference, reference)), float(np.dot(error, error)))
            if math.isfinite(gap.signal) and math.isfinite(gap.error):
                return gap
        free = ~np.isfinite(reference)
        reference = np.where(free, 0.0, reference)
        error = np.where(free, 0.0, reference - np.asarray(got, np.float64).ravel())
        squares = np.where(np.isnan(error), math.inf, np.square(error))
        if few:
            squares = np.sort(squares)[: squares.size - math.ceil(few * squares.size)]
        noise = 0.0
        if noisy is not None:
            moved = np.where(free, 0.0, reference - np.asarray(noisy, np.float64).ravel())
            noise = float(np.square(moved[np.isfinite(moved)]).sum())
        return _Gap(float(np.dot(reference, reference)), float(squares.sum()), noise)

    def __add__(self, other: _Gap) -> _Gap:
        return _Gap(self.signal + other.signal, self.error + other.error, self.noise + other.noise)

    @property
    def allowed(self) -> float:
        return max(self.signal * 10 ** (-SAME_DB / 10), self.noise * 10 ** (MARGIN_DB / 10))

    @property
    def holds(self) -> bool:
        return self.error <= self.allowed

    @property
    def db(self) -> float:
        return _db(self.signal, self.error)

    @property
    def required(self) -> float:
        return _db(self.signal, self.allowed)

    @property
    def spare(self) -> float:
        """dB by which the error is less than what is allowed."""
        return _db(self.allowed, self.error)


def _db(power: float, error: float) -> float:
    """10 log10(power / error); inf without an error, -inf where there is one and nothing else."""
    if error == 0:
        return math.inf
    return 10 * math.log10(power / error) if power > 0 and error < math.inf else -math.inf


class _Both:
    """outputs: tensors that are in one layout. Others are compared by their sorted elements."""

    def __init__(
        self, model: Callable[[], onnx.ModelProto], graph: Graph, pairs: Sequence[Pair], outputs: Sequence[str]
    ) -> None:
        self._make, self._graph, self._pairs, self._outputs = model, graph, pairs, frozenset(outputs)
        self._rounded: onnx.ModelProto | None = None

    @cached_property
    def _model(self) -> onnx.ModelProto:
        return self._make()

    @cached_property
    def _twins(self) -> dict[str, str]:
        return _twins(self._graph, original_model.activations(self._model.graph))

    def saturating(self, outputs: Sequence[str]) -> list[str]:
        """Returns the inputs of a last function with a bounded result, where the graph ends with it, too.

        Names do not tell what that is in the graph: a pass may have moved data before the function, or after it.
        """
        makers = {name: node for node in self._model.graph.node for name in node.output}
        inputs = []
        for output in outputs:
            node = makers.get(output)
            while node is not None and node.op_type in LAYOUT_OPS:
                node = makers.get(node.input[0])
            if node is not None and node.op_type in SATURATING and node.input[0] in makers:
                twin = _operand_of_last(self._graph, output, SATURATING[node.op_type])
                if twin:
                    self._twins[node.input[0]] = twin
                    inputs.append(node.input[0])
        return inputs

    def gaps(self, names: Sequence[str], known: Known | None = None) -> dict[str, _Gap]:
        """Over all samples, one at a time, without the noise. known: see `compare`."""
        first, second = known or self._first(names), self._second(names)
        totals = dict.fromkeys(names, _Gap())
        for i, (ours, theirs) in enumerate(self._pairs):
            wanted = first.plain()[i] if isinstance(first, Known) else self._run(first, ours, names)
            got = self._run(second, theirs, names)
            totals = {name: gap + _Gap.of(wanted[name], got[name]) for name, gap in totals.items()}
        return totals

    def noisy(self, gaps: Mapping[str, _Gap], known: Known | None = None) -> dict[str, _Gap]:
        """The same with the noise of case 2."""
        names = list(gaps)
        runs: Iterable[tuple[Feed, Feed]]
        if known:
            runs = zip(known.plain(), known.moved(), strict=True)
        else:
            first, rounded = self._first(names), self._first(names, rounded=True)
            runs = ((self._run(first, feed, names), self._run(rounded, feed, names)) for feed, _ in self._pairs)
        noise = dict.fromkeys(names, _Gap())
        for wanted, moved in runs:
            noise = {name: gap + _Gap.of(wanted[name], moved[name]) for name, gap in noise.items()}
        return {name: replace(gap, noise=noise[name].error) for name, gap in gaps.items()}

    def after_jumps(self, names: Sequence[str]) -> dict[str, _Gap]:
        """Applies case 3 to those of these tensors that it is about."""
        graph = self._model.graph
        jumped = original_model.behind_jumps(graph)
        late = [name for name in names if name in jumped]
        moving = original_model.activations(graph) - jumped
        jumping = [node for node in original_model.needed(graph, late) if jumped.intersection(node.output)]
        edge = dict.fromkeys(name for node in jumping for name in reads(node) if name in moving)
        common = self._common(list(edge))
        if not late or not all(gap.holds for pair in self._pairs for _, gap in self._inner(pair, common)):
            return {}
        first, second = self._first(late), self._second(late)
        runs = [(self._run(first, a, late), self._run(second, b, late)) for a, b in self._pairs]
        gaps = {}
        for name in late:
            wanted, got = (np.concatenate([run[side][name].ravel() for run in runs]) for side in (0, 1))
            gaps[name] = _Gap.of(wanted, got, few=FEW)
        return {name: gap for name, gap in gaps.items() if gap.holds}

    def located(self, parity: Parity) -> Parity:
        """The same with the place where the two part, on the sample that shows it best."""
        names = [parity.tensor]
        first, second = self._first(names), self._second(names)
        runs = [(self._run(first, a, names), self._run(second, b, names)) for a, b in self._pairs]
        spare = [_Gap.of(wanted[parity.tensor], got[parity.tensor]).db for wanted, got in runs]
        pair = self._pairs[int(np.argmin(spare))]
        order = [name for node in original_model.needed(self._model.graph, names) for name in node.output]
        gaps = dict(self._inner(pair, self._common(order))) | {parity.tensor: _Gap(error=math.inf)}
        above = self._above(gaps)
        agree = {name for name, gap in gaps.items() if gap.holds}
        # A name that a pass gave to something else is no trace: what depends on that tensor agrees.
        misnamed = {name for reader in agree for name in above[reader]} - agree
        first_wrong = next(name for name in order if name in gaps and name not in agree | misnamed)
        if first_wrong != parity.tensor:
            parity = replace(parity, tensor=first_wrong, db=gaps[first_wrong].db, required=gaps[first_wrong].required)
        return self._at(parity, agree)

    def _above(self, names: Collection[str]) -> dict[str, set[str]]:
        """For each of these tensors of the first model those of them that it depends on without another between."""
        sources: dict[str, set[str]] = {}
        direct: dict[str, set[str]] = {}
        for node in self._model.graph.node:
            above = set().union(*(sources.get(name, set()) for name in reads(node)))
            for name in node.output:
                direct[name] = above
                sources[name] = {name} if name in names else above
        return {name: direct[name] for name in names}

    def _at(self, parity: Parity, agree: Collection[str]) -> Parity:
        """agree: tensors of both models that were found to be the same."""
        graph = self._model.graph
        moving = original_model.activations(graph)
        makers = {name: node for node in graph.node for name in node.output if name in moving}
        inside, waiting = [], [parity.tensor]
        while waiting:
            node = makers.get(waiting.pop(0))
            if node is not None and node not in inside:
                inside.append(node)
                waiting += [name for name in reads(node) if name not in agree]
        read = dict.fromkeys(name for node in inside for name in reads(node) if name in agree)
        node, *others = inside
        earlier = ", ".join(_label(other) for other in others[:NAMED]) + (", ..." if others[NAMED:] else "")
        return replace(
            parity, parts=_label(node) + (f" (or before it: {earlier})" if others else ""), before=tuple(read)
        )

    def _common(self, names: Sequence[str]) -> list[str]:
        """Those of the first model's tensors that the graph has, too."""
        return [name for name in names if name in self._twins]

    def _inner(self, pair: Pair, names: Sequence[str]) -> Iterator[tuple[str, _Gap]]:
        """Returns the tensors of one sample; tensors of other sizes are left out, their names mean something else."""
        if not names:
            return
        first, rounded, second = self._first(names), self._first(names, rounded=True), self._second(names)
        for chunk in _chunks(names, [self._graph[self._twin(name)].nbytes for name in names]):
            wanted, moved = self._run(first, pair[0], chunk), self._run(rounded, pair[0], chunk)
            got = self._run(second, pair[1], chunk)
            for name in chunk:
                if wanted[name].size == got[name].size:
                    yield name, _Gap.of(wanted[name], got[name], moved[name])

    def _twin(self, name: str) -> str:
        """The graph's name for a tensor of the first model."""
        return name if name in self._outputs else self._twins[name]

    def _run(self, engine: Engine, feed: Feed, names: Sequence[str]) -> dict[str, np.ndarray]:
        """These tensors of the first model, or what stands for them."""
        asked = [self._twin(name) for name in names] if isinstance(engine, FloatEngine) else names
        tensors = engine.run(feed, asked)
        return {
            name: tensors[a] if name in self._outputs else np.sort(tensors[a], axis=None)
            for name, a in zip(names, asked, strict=True)
        }

    def _second(self, names: Sequence[str]) -> FloatEngine:
        return FloatEngine(self._graph, [self._twin(name) for name in names])

    def _first(self, names: Sequence[str], *, rounded: bool = False) -> Engine:
        if rounded and self._rounded is None:
            self._rounded = rounded_more(self._model)
        model = self._rounded if rounded and self._rounded is not None else self._model
        del model.graph.output[:]
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
        return Engine(model, names, optimize=rounded and is_small(self._model))


def _twins(graph: Graph, moving: Collection[str]) -> dict[str, str]:
    """Maps tensors of the first model to those of the graph: the elements of each, in some order.

    moving: the tensors whose values depend on the inputs. One that is made by moving elements of another one of them
    only has that one's; a tensor whose name it took is called ``name.op``, as the importer does it.
    """
    source: dict[str, str] = {}
    twins: dict[str, str] = {}
    for node in graph.nodes:
        for name in node.outputs:
            x = node.inputs[0]
            source[name] = source.get(x, x) if node.op in MOVES and x not in moving else name
            if name in moving and (node.op not in MOVES or (x not in moving and source[name] not in graph.inputs)):
                twins[name] = name
    for node in graph.nodes:
        for name in node.outputs:
            tensor = name.removesuffix(f".{node.op}")
            if node.op not in MOVES and tensor in moving and tensor in graph.values and tensor not in twins:
                twins[tensor] = name
    return twins


def _operand_of_last(graph: Graph, output: str, function: str) -> str:
    """Name of the operand of the graph's last function of this kind, but for moves of data; '' where there is none."""
    makers = {name: node for node in graph.nodes for name in node.outputs}
    node = makers.get(output)
    while node is not None and node.op in MOVES:
        node = makers.get(node.inputs[0])
    if node is None or node.inputs[0] not in makers:
        return ""
    plain = node.op == "lookup" and node.params == LookupParams(function, node.params.alpha, node.params.beta)
    return node.inputs[0] if plain or node.op == function else ""


def _label(node: onnx.NodeProto) -> str:
    return f"node {node.name!r} ({node.op_type})" if node.name else f"the {node.op_type} that makes {node.output[0]!r}"


def _chunks(names: Sequence[str], sizes: Sequence[int]) -> Iterator[list[str]]:
    """Runs of names of at most CHUNK bytes, or of one."""
    chunk: list[str] = []
    total = 0
    for name, size in zip(names, sizes, strict=True):
        if chunk and total + size > CHUNK:
            yield chunk
            chunk, total = [], 0
        chunk.append(name)
        total += size
    yield chunk
