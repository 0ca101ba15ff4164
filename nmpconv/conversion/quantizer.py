"""Fitting an integer graph to a float graph by a recipe, on all images or on two thirds of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import product
from typing import Any

import numpy as np

from nmpconv.base.memo import Is, Memo, Once
from nmpconv.calib import activation_cache as calibration
from nmpconv.calib import noise_budget, parity
from nmpconv.calib.activation_cache import Evidence, Feeds, RowsAndOutputs
from nmpconv.calib.engine import FloatEngine
from nmpconv.calib.fake_quantization import Switched
from nmpconv.calib.float_noise import Known
from nmpconv.calib.observers import OutOfRange, TensorStats, observe
from nmpconv.calib.sampled_rows import Rows
from nmpconv.conversion import node_runner
from nmpconv.errors import VerifyError
from nmpconv.frontend.to_onnx import to_onnx
from nmpconv.graph.trace import Trace
from nmpconv.ir import Graph, Node
from nmpconv.ops import OPS, WEIGHTED
from nmpconv.passes import residual_operands
from nmpconv.passes.quantize import (
    equalize,
    exact_square_roots,
    exponents,
    idle_requantizes,
    legalize,
    offsets,
    requantize_concat,
    split_activations,
    table_resolution,
    table_segments,
    trained_exponents,
    widths,
)
from nmpconv.passes.quantize import rounding as quantize
from nmpconv.passes.quantize.balance import fewest_bits
from nmpconv.passes.quantize.exponents import Method
from nmpconv.passes.quantize.heads import heads
from nmpconv.passes.quantize.overrides import NOTHING, Choices
from nmpconv.passes.quantize.rounding import Rounding
from nmpconv.passes.quantize.shared_grids import grid_groups

DRAWN_ELEMENTS = 1 << 22  # elements of the inputs that are drawn where there are no images, but for one of each
GUARD_IMAGES = 4  # that an equalized float model is compared with the original on
HELD_OUT = 6  # images that are enough to hold a third of them out: see `is_held_out`

EQUALIZATIONS = ("none", "scalar", "vector", "streams")  # the plainer, the fewer factors
BY_CHANNEL = EQUALIZATIONS[2:]  # streams: as vector, with long residual streams filled more evenly

ONE = np.ones(1)
UNCHECKED = Trace(checks=False)  # of graphs that compete: the one that is taken is made or checked again
Equalized = tuple[Graph, Mapping[str, TensorStats], Mapping[str, int], Mapping[str, np.ndarray]]
"""A float graph, statistics and widths of its activations, and their factors [C] or [1]."""


class Unequal(VerifyError):
    """An equalization, or origins, that change the float function by more than its rounding does."""


@dataclass(frozen=True)
class Recipe:
    """One way to quantize.

    equalize: one of EQUALIZATIONS. gptq: round weights with second moments. zero_points, corrected: False where zero
    points, or corrections of biases, were left out. amplified: weights make up for a factor, too.
    """

    equalize: str
    gptq: bool
    zero_points: bool = True
    corrected: bool = True
    amplified: bool = False

    @staticmethod
    def of(text: str) -> Recipe | None:
        """Parses the text of `str`; None of any other text."""
        every = (Recipe(mode, *row) for mode in EQUALIZATIONS for row in product((False, True), repeat=4))
        return next((recipe for recipe in every if str(recipe) == text), None)

    def __str__(self) -> str:
        rounding = "gptq" if self.gptq else "nearest"
        left_out = ("" if self.zero_points else ", no zero points") + ("" if self.corrected else ", plain biases")
        return f"equalize {self.equalize}, {rounding} rounding{left_out}{', amplified weights' * self.amplified}"


@dataclass(frozen=True)
class Prepared:
    """A float graph (equalized or not), the same with grids for its activations, and what it did on the images.

    chosen: with the grids as they were chosen, before what is not legal is changed. seen: gives what it did. free: the
    activations that could have an origin. notes: what was considered and left out. stats: of the activations of ranged.
    factors: of those of float_graph, [C] or [1].
    """

    float_graph: Graph
    chosen: Graph
    ranged: Graph
    seen: Once[Evidence]
    free: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    stats: Mapping[str, TensorStats] = field(default_factory=dict)
    factors: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def evidence(self) -> Evidence:
        """It is gathered when it is asked for."""
        return self.seen()

    @cached_property
    def _memo(self) -> Memo:
        return Memo()

    def switched(self, names: Sequence[str]) -> Switched:
        """A session in which each grid has a switch; names: the outputs of it."""
        make = partial(noise_budget.switched, self.ranged, grid_groups(self.ranged), names)
        return self._memo("switched", tuple(names), make)


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
        self._method, self.rounding, self.zero_points, self.choices = method, rounding, zero_points, choices
        self._notes: tuple[str, ...] | None = None  # of a graph alike, where it is known
        self._memo = Memo()  # shared by all that are made of this one

    def without_zero_points(self) -> Fitter:
        """The same where no tensor has an origin."""
        return self._but(zero_points=False)

    def of(self, recipe: Recipe) -> Fitter:
        """The same without what the recipe leaves out, and with what it adds."""
        fitter = self if recipe.zero_points else self.without_zero_points()
        how = self.rounding if recipe.corrected else replace(self.rounding, bias_correction=False, amplify=False)
        return fitter._but(rounding=replace(how, amplify=True) if recipe.amplified else how)

    def with_choices(self, choices: Choices) -> Fitter:
        """The same where these are not to be decided."""
        return self._but(choices=choices)

    def with_bits(self, bits: Mapping[str, int]) -> Fitter:
        """The same with these widths of the activations; nothing that was made of the others is known to it."""
        return self._but(bits=bits, _memo=Memo())

    def with_stats(self, stats: Mapping[str, TensorStats], notes: tuple[str, ...]) -> Fitter:
        """The same with these statistics, and the images' own results. notes: of a graph nearly alike, which holds."""
        return self._but(stats=stats, _notes=notes, _memo=self._memo.only("rows", "inputs", "heads"))

    def without_images(self) -> Fitter:
        """The same, fitted to nothing."""
        return self._but(images=[], _memo=Memo())

    def _but(self, **changed: Any) -> Fitter:
        other = copy(self)
        vars(other).update(changed)
        return other

    def keep_only(self, recipe: Recipe) -> None:
        """Releases what other recipes made. Rows of the images that recipes compete on stay for candidates that are
        fitted on the same."""
        memo, begin = self._memo, (recipe.equalize, recipe.zero_points)
        asked = (self._of(self.images), self._of(parted(self.images)[0]))
        memo.keep("equalized", lambda key: key[:2] == begin)
        memo.keep("prepared", lambda key: key[:2] == begin)
        left = {Is(prepared) for _, prepared in memo.of("prepared")}
        memo.keep("integer", lambda key: key[0] in left and key[1] == recipe.gptq)
        memo.keep("rows", lambda key: key in asked)

    def let_go(self, prepared: Prepared) -> None:
        """Releases rows, for who quantizes nothing more; they are gathered again where they are asked for."""
        self._memo.keep("rows", lambda key: False)
        prepared.seen.let_go()

    @property
    def corrects(self) -> bool:
        """Checks that biases are corrected."""
        return self.rounding.bias_correction

    @property
    def weight_bits(self) -> int:
        return self.rounding.weight_bits

    def prepare(self, mode: str, images: Feeds, trace: Trace, *, keep: bool = False) -> Prepared:
        """Everything before the rounding; mode: the equalization. keep: for `fitted`, and what is
        quantized of it, too. Raises Unequal."""
        key = self._key(mode, images)
        alike = [
            earlier for of, earlier in self._memo.of("prepared") if of[:3] == key[:3] and not self._by_channel(mode)
        ]
        if trace.writes or not alike:
            base = self._on_grids(mode, images, trace)
        else:
            base = alike[0]
            trace(base.ranged, "RANGED", "residual_operands")  # what was tried was not checked
        prepared = replace(base, seen=Once(lambda: self._evidence(base.float_graph, base.factors, images)))
        return self._memo("prepared", key, lambda: prepared) if keep else prepared

    def _on_grids(self, mode: str, images: Feeds, trace: Trace) -> Prepared:
        """Chooses grids; of the images, only factors by channel depend on what they are."""
        try:
            return self._ranged(mode, images, trace)
        except OutOfRange as error:
            if mode == "none":
                raise
            raise Unequal(error.message, where=f"equalization ({mode})") from error

    def _ranged(self, mode: str, images: Feeds, trace: Trace) -> Prepared:
        graph, stats, bits, factors = self._equalized(mode, images)
        equalized = graph
        bits = widths.by_name(graph, bits, self.choices)
        trace(graph, "FLOAT", "equalize")
        graph, stats, bits = table_resolution.run(graph, stats, bits)
        trace(graph, "FLOAT", "table_resolution")
        graph, stats, bits = exact_square_roots.run(graph, stats, bits)
        trace(graph, "FLOAT", "exact_square_roots")
        departing = mode in BY_CHANNEL
        free = offsets.free(graph, stats, departing=departing) if self.zero_points else {}
        with_offsets = graph, stats, bits
        if self.zero_points:
            with_offsets = offsets.run(
                graph, stats, bits, self.choices, self._method.saturated, free, departing=departing
            )
            trace(with_offsets[0], "FLOAT", "offsets")
        notes = self._changed(mode, equalized, with_offsets[0]) if self._notes is None else self._notes
        if not notes:
            graph, stats, bits = with_offsets
        untied, stats, bits = requantize_concat.run(graph, stats, bits)
        trace(untied, "FLOAT", "requantize_concat")
        chosen = trace(exponents.run(untied, stats, bits, self._method, self.choices), "RANGED", "exponents")
        chosen = trace(table_segments.run(chosen, stats), "RANGED", "table_segments")
        ranged = trace(legalize.run(chosen), "RANGED", "legalize")
        exponents.check_given(ranged, self.choices)
        ranged = trace(idle_requantizes.run(ranged), "RANGED", "idle_requantizes")
        model_grids = ranged.given if self.rounding.faithful else ()
        ranged = trace(residual_operands.grids(ranged, self._weight_bits, model_grids), "RANGED", "residual_operands")
        return Prepared(graph, chosen, ranged, Once(Evidence), offsets.own(free), notes, stats, factors)

    def _weight_bits(self, node: Node) -> int:
        return self.rounding.of(node, self.choices).weight_bits

    def _key(self, mode: str, images: Feeds) -> tuple[Any, ...]:
        return mode, self.zero_points, Is(self.choices), self._of(images)

    @staticmethod
    def _of(images: Feeds) -> tuple[Is, ...]:
        return tuple(Is(images[i]) for i in range(len(images)))

    def fitted(self, recipe: Recipe, images: Feeds) -> tuple[Prepared, Graph]:
        """The graph prepared and quantized. Raises Unequal."""
        mode = recipe.equalize
        prepared = self._memo.find("prepared", self._key(mode, images)) or self.prepare(mode, images, UNCHECKED)
        return prepared, self.quantize(prepared, recipe.gptq, UNCHECKED)

    def quantize(self, prepared: Prepared, gptq: bool, trace: Trace) -> Graph:
        """The integer graph."""

        def make() -> tuple[Graph, node_runner.Outcome]:
            how, outcome = self.rounding.with_gptq(gptq), node_runner.Outcome(heads(self.graph))
            return quantize.run(prepared.ranged, how, prepared.evidence, self.choices, outcome.step), outcome

        memoized = any(earlier is prepared for _, earlier in self._memo.of("prepared"))
        key = (Is(prepared), gptq, Is(self.choices), self.corrects, self.rounding.amplify)
        integer, _ = self._memo("integer", key, make) if memoized else make()
        return trace(integer, "INT", "quantize")

    def outcome(self, integer: Graph) -> dict[str, np.ndarray]:
        """Heads of a graph by `quantize` on the images of its fit, [N, ...], handed over once; none where not known."""
        outcomes = (outcome for _, (graph, outcome) in self._memo.of("integer") if graph is integer)
        return next((outcome.taken(integer) for outcome in outcomes), {})

    def regridded(self, prepared: Prepared, exponents: Mapping[str, int]) -> tuple[Prepared, Graph]:
        """The same with other exponents, by `trained_exponents.run`, and its integer graph, rounded to nearest without
        samples."""
        moved = replace(prepared, ranged=trained_exponents.run(prepared.ranged, exponents))
        return moved, self.quantize(replace(moved, seen=Once(Evidence)), False, Trace())

    def rows(self, images: Feeds, *, others: bool = False) -> Mapping[str, Rows]:
        """Returns sampled rows of the float graph. others: with them come those of all of the fitter's images, and the
        heads, which are asked for later."""
        key, every = self._of(images), self._of(self.images)
        if others and key != every and self._memo.find("rows", every) is None:
            results = self._run_once(self.images, (key, every), heads(self.graph))
            if results.whole:
                self._memo("heads", every, lambda: results.whole)
            self._memo("rows", every, lambda: results.rows[1])
            return self._memo("rows", key, lambda: results.rows[0])
        return self._memo("rows", key, lambda: self._run_once(images, (key,)).rows[0])

    def _run_once(self, feeds: Feeds, parts: Sequence[tuple[Is, ...]], whole: Sequence[str] = ()) -> RowsAndOutputs:
        """Rows of parts of these feeds, from one run of each."""
        at = {Is(feeds[i]): i for i in range(len(feeds))}
        indices = [[at[image] for image in part] for part in parts]
        return calibration.run_once(self.graph, feeds, WEIGHTED, indices, whole)

    def _evidence(self, graph: Graph, factors: Mapping[str, np.ndarray], images: Feeds) -> Evidence:
        """Returns the evidence of a graph made of the float graph by these factors [C], and origins; what is new in it
        is run."""
        rows, inputs = self.rows(images) if len(images) else {}, self._inputs(images)
        asked = [node.outputs[0] for node in calibration.sampled_nodes(graph, WEIGHTED)]
        if len(images) and not all(name in rows for name in asked):
            return calibration.collect(graph, images, WEIGHTED, inputs)
        moved = {name: (factors.get(name, ONE), graph[name].origin - self._origin(name)) for name in asked}
        return replace(inputs, rows=calibration.Moved(rows, moved))

    def _origin(self, name: str) -> float:
        """Origin of a tensor of the float graph, whose rows are less it."""
        return self.graph[name].origin if name in self.graph.values else 0.0

    def _inputs(self, images: Feeds) -> Evidence:
        return self._memo("inputs", self._of(images), lambda: calibration.inputs_of(self.graph, images))

    def outputs(self, images: Feeds) -> Mapping[str, np.ndarray]:
        """The heads of the float graph on these images, [N, ...]."""
        asked, every = self._of(images), self._of(self.images)
        known = self._memo.find("heads", every)
        if known and asked == every:
            return known
        if known and set(asked) <= set(every):
            at = {image: i for i, image in enumerate(every)}
            places = np.array([at[image] for image in asked], np.intp)
            return {name: calibration.of_images(x, places, len(every)) for name, x in known.items()}
        return self._memo("heads", asked, partial(calibration.outputs, self.graph, images, heads(self.graph)))

    def _equalized(self, mode: str, images: Feeds) -> Equalized:
        if mode == "none":
            return self.graph, self.stats, self.bits, {}
        exempt = self.choices.kept()
        key = (mode, self.zero_points, exempt, self._of(images) if self._by_channel(mode) else ())
        return self._memo("equalized", key, lambda: self._equalize(mode, images, exempt))

    def _by_channel(self, mode: str) -> bool:
        """Checks that channels have factors of their own, so that statistics are seen again on the images."""
        return mode in BY_CHANNEL or (mode == "scalar" and any(OPS[node.op].absorbs for node in self.graph.nodes))

    def _equalize(self, mode: str, images: Feeds, exempt: frozenset[str]) -> Equalized:
        graph, stats, bits = self.graph, self.stats, self.bits
        by_channel: Mapping[str, np.ndarray] = {}
        if mode in BY_CHANNEL:
            graph = split_activations.run(graph, stats, bits)
            names = [value.name for value in graph.activations()]
            bits = {**dict.fromkeys(names, fewest_bits(graph, bits)), **bits}
            balance = equalize.streams if mode == "streams" else equalize.vector
            graph, by_channel = balance(graph, stats, bits, exempt)
        elif self._by_channel(mode):
            graph, by_channel = equalize.by_layer(graph, stats, bits, exempt)
        if by_channel:
            stats = self._carried(mode, graph, by_channel, images)
        free = offsets.own(offsets.free(graph, stats, departing=mode in BY_CHANNEL)) if self.zero_points else ()
        graph, factors = equalize.fill(graph, stats, bits, free, exempt, self._method.saturated)
        by_channel = {name: by_channel.get(name, ONE) * factor for name, factor in factors.items()}
        return graph, {name: s.scaled(factors[name]) for name, s in stats.items()}, bits, by_channel

    def _carried(
        self, mode: str, graph: Graph, factors: Mapping[str, np.ndarray], images: Feeds
    ) -> dict[str, TensorStats]:
        """Statistics of the graph whose channels have these factors [C], from those of the float graph.

        Ranges are what they were, of all samples and as they were edited, times the factors. How values lie within them
        is seen on the images: on those that recipes are fitted on while they compete, and on the others, so that it
        does not matter which were asked for first.
        """
        names = [value.name for value in graph.activations()]
        limits = {name: self.stats[name].ends(factors[name]) for name in names if name in self.stats}
        limits = {name: ends for name, ends in limits.items() if self.stats[name].count}
        first, engine = set(self._of(parted(self.images)[0])), Once(lambda: FloatEngine(graph, names, threads=1))
        stats: dict[str, TensorStats] = {name: TensorStats() for name in names}

        def seen(part: Sequence[Mapping[str, np.ndarray]]) -> Mapping[str, TensorStats]:
            return observe(engine(), part, names, limits=limits) if part else {}

        for part in ([i for i in images if Is(i) in first], [i for i in images if Is(i) not in first]):
            statistics = self._memo("carried", (mode, self.choices.kept(), self._of(part)), partial(seen, part))
            stats.update({name: TensorStats.merged(stats[name], more) for name, more in statistics.items()})
        return {name: s.within(*limits[name]) if name in limits else s for name, s in stats.items()}

    def _drawn(self) -> Feeds:
        """Seeded inputs within the known ranges, where there are no images: fewer of large ones."""
        rng, ends = np.random.default_rng(0), {name: self.stats[name] for name in self.graph.inputs}
        shapes = {name: self.graph[name].shape for name in ends}
        count = min(GUARD_IMAGES, max(DRAWN_ELEMENTS // max(sum(map(math.prod, shapes.values())), 1), 1))
        draw = {name: rng.uniform(s.min, s.max, (count, *shapes[name])) for name, s in ends.items()}
        return [{name: x[i].astype(np.float32) for name, x in draw.items()} for i in range(count)]

    def _changed(self, mode: str, equalized: Graph, with_offsets: Graph) -> tuple[str, ...]:
        """Notes how origins change the function, where they do. Raises Unequal where the equalization does.

        What holds with both holds for each of them: a second look is for graphs that do not."""
        images = self.images[:GUARD_IMAGES]
        notes: tuple[str, ...] = ()
        if self.zero_points and len(images):
            try:
                self._guard("zero points", with_offsets, images)
            except Unequal as error:
                notes = (f"zero points left out: {error.message}",)
            else:
                return ()
        self._guard(f"equalization ({mode})", equalized, images)
        return notes

    def _guard(self, step: str, graph: Graph, images: Feeds) -> None:
        """Raises Unequal where a graph is another function than the float graph. images: the same for all graphs, or
        none, and some are drawn."""
        if graph is self.graph:
            return
        images = images if len(images) else self._drawn()
        names = heads(self.graph)
        model = partial(to_onnx, self.graph, names)
        known = self._memo("guard", (), lambda: Known(model, names, images))
        comparison = parity.compare(model, graph, [(image, image) for image in images], names, known)
        if not comparison.holds:
            raise Unequal(f"it changes the float function: {comparison}", where=step)


def parted(images: Feeds) -> tuple[list[Mapping[str, np.ndarray]], list[Mapping[str, np.ndarray]]]:
    """Two thirds, which recipes are fitted on while they compete, and those that they are measured on: none where there
    are fewer than HELD_OUT."""
    every = [images[i] for i in range(len(images))]
    held = [image for i, image in enumerate(every) if len(every) >= HELD_OUT and is_held_out(i)]
    return [image for i, image in enumerate(every) if not held or not is_held_out(i)], held


def is_held_out(place: int) -> bool:
    """Checks that an image is one of the third that is held out. place: among the images that are fitted on."""
    return place % 3 == 0
