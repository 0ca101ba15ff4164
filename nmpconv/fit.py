"""Fitting an integer graph to a float graph by a recipe, and choosing the recipe on images held out from the fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple, TypeVar

import numpy as np

from nmpconv import interpreted
from nmpconv.calib import evidence as calibration
from nmpconv.calib import parity
from nmpconv.calib.engine import FloatEngine, cpu_count
from nmpconv.calib.evidence import Evidence, Feeds
from nmpconv.calib.observers import TensorStats, observe
from nmpconv.errors import VerifyError
from nmpconv.frontend.export import to_onnx
from nmpconv.graph.trace import Trace
from nmpconv.ir import Graph
from nmpconv.metrics import head, mean_db, sqnr_db
from nmpconv.ops import WEIGHTED
from nmpconv.passes.quantize import equalize, exponents, gates, legalize, origins, pieces, powers, steps, untie, widths
from nmpconv.passes.quantize import rounding as quantize
from nmpconv.passes.quantize.choices import NOTHING, Choices
from nmpconv.passes.quantize.exponents import Method
from nmpconv.passes.quantize.rounding import Rounding, integers

GUARD_IMAGES = 8  # that an equalized float model is compared with the original on
BATCH = 8  # images that go through the integer reference at a time
WORKERS = 2  # recipes tried at a time; each holds the activations of its images

EQUALIZATIONS = ("none", "scalar", "vector")  # the plainer, the fewer factors

T = TypeVar("T")


class Unequal(VerifyError):
    """An equalization, or origins, that change the float function by more than its rounding does."""


@dataclass(frozen=True)
class Recipe:
    """One way to quantize.

    equalize: none, scalar or vector. gptq: round weights with second moments. zero_points: False where they were left
    out.
    """

    equalize: str
    gptq: bool
    zero_points: bool = True

    @staticmethod
    def of(text: str) -> Recipe | None:
        """What `str` made a text of; None of any other text."""
        every = (Recipe(*one) for one in product(EQUALIZATIONS, (False, True), (False, True)))
        return next((recipe for recipe in every if str(recipe) == text), None)

    def __str__(self) -> str:
        rounding = "gptq" if self.gptq else "nearest"
        return f"equalize {self.equalize}, {rounding} rounding{'' if self.zero_points else ', no zero points'}"


class Score(NamedTuple):
    """On images that nothing was fitted to. db: SQNR of the heads, their mean. agreement: in %, of the first head; None
    where that is no vector of scores. images: how many there were."""

    db: float
    agreement: float | None
    images: int


@dataclass(frozen=True)
class Prepared:
    """A float graph (equalized or not), the same with grids for its activations, and what it did on the images.

    chosen: with the grids as they were chosen, before what is not legal is changed. free: the activations that could
    have an origin. notes: what was considered and left out. stats: of the activations of ranged.
    """

    float_graph: Graph
    chosen: Graph
    ranged: Graph
    evidence: Evidence
    free: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    stats: Mapping[str, TensorStats] = field(default_factory=dict)


class Fitter:
    """stats: of the float graph's activations. images: float feeds that biases and rounding are fitted on, or none.

    zero_points: whether tensors may have an origin. choices: what is not to be decided here.
    """

    def __init__(
        self,
        graph: Graph,
        stats: Mapping[str, TensorStats],
        bits: Mapping[str, int],
        method: Method,
        rounding: Rounding,
        images: Feeds,
        zero_points: bool = True,
        choices: Choices = NOTHING,
    ) -> None:
        self.graph, self.stats, self.bits, self.images = graph, stats, bits, images
        self._method, self._rounding, self.zero_points, self.choices = method, rounding, zero_points, choices

    def without_zero_points(self) -> Fitter:
        """The same where no tensor has an origin."""
        method, rounding = self._method, self._rounding
        return Fitter(self.graph, self.stats, self.bits, method, rounding, self.images, False, self.choices)

    def with_choices(self, choices: Choices) -> Fitter:
        """The same where these are not to be decided."""
        method, rounding = self._method, self._rounding
        return Fitter(self.graph, self.stats, self.bits, method, rounding, self.images, self.zero_points, choices)

    @property
    def weight_bits(self) -> int:
        return self._rounding.weight_bits

    def prepare(self, mode: str, images: Feeds, trace: Trace) -> Prepared:
        """Everything before the rounding; mode: none, scalar or vector equalization. Raises Unequal."""
        graph, stats, bits = self._equalized(mode, images)
        bits = widths.by_name(graph, bits, self.choices)
        trace(graph, "FLOAT", "equalize")
        graph, stats, bits = steps.run(graph, stats, bits)
        trace(graph, "FLOAT", "steps")
        graph, stats, bits = powers.run(graph, stats, bits)
        trace(graph, "FLOAT", "powers")
        notes: tuple[str, ...] = ()
        free = tuple(origins.free(graph, stats)) if self.zero_points else ()
        if self.zero_points:
            stored = trace(origins.run(graph, stats, bits, self.choices), "FLOAT", "origins")
            try:
                self._guard("zero points", stored, images[:GUARD_IMAGES])
                graph = stored
            except Unequal as error:
                notes = (f"zero points left out: {error.message}",)
        untied, stats, bits = untie.run(graph, stats, bits)
        trace(untied, "FLOAT", "untie")
        chosen = trace(exponents.run(untied, stats, bits, self._method, self.choices), "RANGED", "exponents")
        chosen = trace(pieces.run(chosen, stats), "RANGED", "pieces")
        ranged = trace(legalize.run(chosen), "RANGED", "legalize")
        exponents.check_given(ranged, self.choices)
        evidence = calibration.collect(graph, images, WEIGHTED) if len(images) else Evidence()
        return Prepared(graph, chosen, ranged, evidence, free, notes, stats)

    def quantize(self, prepared: Prepared, gptq: bool, trace: Trace) -> Graph:
        """The integer graph."""
        how = self._rounding.with_gptq(gptq)
        integer = quantize.run(prepared.ranged, how, prepared.evidence, self.choices, interpreted.step)
        return trace(integer, "INT", "quantize")

    def scores(
        self,
        recipes: Sequence[Recipe],
        progress: Callable[[int, int], None],
        leave_out: Callable[[str, Unequal], None],
    ) -> dict[Recipe, Score]:
        """On every third image, each recipe fitted on the other two thirds.

        leave_out: gets the modes of equalization that change the function; their recipes have no score.
        """
        held = [image for i, image in enumerate(self.images) if i % 3 == 0]
        rest = [image for i, image in enumerate(self.images) if i % 3]
        names = heads(self.graph)
        wanted = calibration.outputs(self.graph, held, names)
        total = len({recipe.equalize for recipe in recipes}) + len(recipes)
        finished = 0

        def step(done: T) -> T:
            nonlocal finished
            finished += 1
            progress(finished, total)
            return done

        def score(recipe: Recipe) -> Score:
            integer = self.quantize(prepared[recipe.equalize], recipe.gptq, Trace())
            return scored(wanted, integer_outputs(integer, held, names), names)

        def prepare(mode: str) -> Prepared | Unequal:
            try:
                return self.prepare(mode, rest, Trace())
            except Unequal as error:
                return error

        # Most of the work is numpy's, outside the interpreter lock.
        with ThreadPoolExecutor(min(WORKERS, cpu_count())) as pool:
            modes = list(dict.fromkeys(recipe.equalize for recipe in recipes))
            prepared: dict[str, Prepared] = {}
            for mode, made in zip(modes, pool.map(prepare, modes), strict=True):
                step(made)
                if isinstance(made, Unequal):
                    leave_out(mode, made)
                else:
                    prepared[mode] = made
            left = [recipe for recipe in recipes if recipe.equalize in prepared]
            return dict(zip(left, map(step, pool.map(score, left)), strict=True))

    def _equalized(self, mode: str, images: Feeds) -> tuple[Graph, Mapping[str, TensorStats], Mapping[str, int]]:
        graph, stats, bits, kept = self.graph, self.stats, self.bits, self.choices.kept()
        if mode == "none":
            return graph, stats, bits
        if mode == "vector":
            graph = gates.run(graph, stats, bits)
            names = [value.name for value in graph.activations()]
            bits = {**dict.fromkeys(names, equalize.fewest_bits(graph, bits)), **bits}
            graph, by_channel = equalize.vector(graph, stats, bits, kept)
            stats = _carried(graph, stats, by_channel, images)
        free = origins.free(graph, stats) if self.zero_points else ()
        graph, factors = equalize.fill(graph, stats, bits, free, kept)
        self._guard(f"equalization ({mode})", graph, images[:GUARD_IMAGES] or self._drawn())
        return graph, {name: s.scaled(factors[name]) for name, s in stats.items()}, bits

    def _drawn(self) -> Feeds:
        """Seeded inputs within the known ranges, where there are no images."""
        rng, ends = np.random.default_rng(0), {name: self.stats[name] for name in self.graph.inputs}
        shapes = {name: self.graph[name].shape for name in ends}
        draw = {name: rng.uniform(s.min, s.max, (GUARD_IMAGES, *shapes[name])) for name, s in ends.items()}
        return [{name: x[i].astype(np.float32) for name, x in draw.items()} for i in range(GUARD_IMAGES)]

    def _guard(self, what: str, graph: Graph, images: Feeds) -> None:
        if graph is self.graph or not len(images):
            return
        names = heads(self.graph)
        found = parity.compare(to_onnx(self.graph, names), graph, [(image, image) for image in images], names)
        if not found.holds:
            raise Unequal(f"it changes the float function: {found}", where=what)


def _carried(
    graph: Graph, stats: Mapping[str, TensorStats], factors: Mapping[str, np.ndarray], images: Feeds
) -> dict[str, TensorStats]:
    """Statistics of the graph whose channels have these factors [C], from those before.

    Ranges are what they were, of all samples and as they were edited, times the factors. How values lie within them
    is seen on the images.
    """
    names = [value.name for value in graph.activations()]
    limits = {name: stats[name].ends(factors[name]) for name in names if name in stats and stats[name].count}
    seen = observe(FloatEngine(graph, names), images, names, limits=limits)
    return {name: s.within(*limits[name]) if name in limits else s for name, s in seen.items()}


def scored(wanted: Mapping[str, np.ndarray], got: Mapping[str, np.ndarray], names: Sequence[str]) -> Score:
    """Of these heads, [N, ...] each: of the float graph, and of an integer graph."""
    db = mean_db(sqnr_db(wanted[name], got[name]) for name in names)
    first = wanted[names[0]]
    ranked = sum(dim > 1 for dim in first.shape[1:]) == 1
    best = [np.argmax(x[names[0]].reshape(len(first), -1), axis=1) for x in (wanted, got)]
    return Score(db, 100 * float(np.mean(best[0] == best[1])) if ranked else None, len(first))


def heads(graph: Graph) -> list[str]:
    """What accuracy is measured on: the outputs, or the inputs of the Softmax that makes them."""
    makers = {name: (node.op, node.inputs[0]) for name, node in graph.producers().items()}
    return list(dict.fromkeys(head(name, makers.get) for name in graph.outputs))


def integer_outputs(graph: Graph, images: Feeds, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Real values of these tensors for all images through the integer reference, [N, ...]."""
    parts: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for start in range(0, len(images), BATCH):
        some = [images[i] for i in range(start, min(start + BATCH, len(images)))]
        feeds = {
            n: integers(np.concatenate([np.atleast_1d(image[n]) for image in some]), graph[n]) for n in graph.inputs
        }
        result = interpreted.run(graph, feeds, names)
        for name in names:
            quant = graph[name].quant
            assert quant is not None
            parts[name].append(np.ldexp(result[name].astype(np.float64), quant.exponent))
    return {name: np.concatenate([np.atleast_1d(array) for array in arrays]) for name, arrays in parts.items()}
