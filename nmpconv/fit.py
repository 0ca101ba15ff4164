"""Fitting an integer graph to a float graph by a recipe, and choosing the recipe on images held out from the fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from nmpconv.calib import evidence as calibration
from nmpconv.calib.engine import FloatEngine, cpu_count
from nmpconv.calib.evidence import Evidence, Feeds
from nmpconv.calib.observers import TensorStats, observe
from nmpconv.compare import sqnr_db
from nmpconv.errors import VerifyError
from nmpconv.ir import Graph
from nmpconv.ops import WEIGHTED
from nmpconv.passes import equalize, exponents, gates, legalize, quantize
from nmpconv.passes.exponents import Method
from nmpconv.passes.quantize import Rounding, integers
from nmpconv.passes.trace import Trace
from nmpconv.reference import run as run_reference

GUARD_DB = 90.0  # how close an equalized float model must stay to the original; float32 noise alone leaves over 110
GUARD_IMAGES = 8
BATCH = 8  # images that go through the integer reference at a time
WORKERS = 2  # recipes tried at a time; each holds the activations of its images

T = TypeVar("T")


@dataclass(frozen=True)
class Recipe:
    """One way to quantize. equalize: none, scalar or vector; gptq: round weights with second moments."""

    equalize: str
    gptq: bool

    def __str__(self) -> str:
        return f"equalize {self.equalize}, {'gptq' if self.gptq else 'nearest'} rounding"


@dataclass(frozen=True)
class Prepared:
    """A float graph (equalized or not), the same with grids for its activations, and what it did on the images."""

    float_graph: Graph
    ranged: Graph
    evidence: Evidence


class Fitter:
    """stats: of the float graph's activations. images: float feeds that biases and rounding are fitted on, or none."""

    def __init__(
        self,
        graph: Graph,
        stats: Mapping[str, TensorStats],
        bits: Mapping[str, int],
        method: Method,
        rounding: Rounding,
        images: Feeds,
    ) -> None:
        self.graph, self.stats, self.bits, self.images = graph, stats, bits, images
        self._method, self._rounding = method, rounding

    def prepare(self, mode: str, images: Feeds, trace: Trace) -> Prepared:
        """Everything before the rounding; mode: none, scalar or vector equalization."""
        graph, stats, bits = self._equalized(mode, images)
        trace(graph, "FLOAT", "equalize")
        ranged = trace(exponents.run(graph, stats, bits, self._method), "RANGED", "exponents")
        ranged = trace(legalize.run(ranged), "RANGED", "legalize")
        return Prepared(graph, ranged, calibration.collect(graph, images, WEIGHTED) if len(images) else Evidence())

    def quantize(self, prepared: Prepared, gptq: bool, trace: Trace) -> Graph:
        """The integer graph."""
        integer = quantize.run(prepared.ranged, self._rounding.with_gptq(gptq), prepared.evidence)
        return trace(integer, "INT", "quantize")

    def scores(self, recipes: Sequence[Recipe], progress: Callable[[int, int], None]) -> list[float]:
        """SQNR in dB of the heads (their mean) on every third image, each recipe fitted on the other two thirds."""
        held = [image for i, image in enumerate(self.images) if i % 3 == 0]
        rest = [image for i, image in enumerate(self.images) if i % 3]
        names = heads(self.graph)
        wanted = calibration.outputs(self.graph, held, names)
        steps = len({recipe.equalize for recipe in recipes}) + len(recipes)
        finished = 0

        def step(done: T) -> T:
            nonlocal finished
            finished += 1
            progress(finished, steps)
            return done

        def score(recipe: Recipe) -> float:
            integer = self.quantize(prepared[recipe.equalize], recipe.gptq, Trace())
            got = integer_outputs(integer, held, names)
            return float(np.mean([sqnr_db(wanted[name], got[name]) for name in names]))

        # Most of the work is numpy's, outside the interpreter lock.
        with ThreadPoolExecutor(min(WORKERS, cpu_count())) as pool:
            modes = list(dict.fromkeys(recipe.equalize for recipe in recipes))
            ready = pool.map(lambda mode: self.prepare(mode, rest, Trace()), modes)
            prepared = {mode: step(p) for mode, p in zip(modes, ready, strict=True)}
            return [step(s) for s in pool.map(score, recipes)]

    def _equalized(self, mode: str, images: Feeds) -> tuple[Graph, Mapping[str, TensorStats], Mapping[str, int]]:
        graph, stats, bits = self.graph, self.stats, self.bits
        if mode == "none":
            return graph, stats, bits
        if mode == "vector":
            graph = gates.run(graph, stats, bits)
            names = [value.name for value in graph.activations()]
            bits = {**dict.fromkeys(names, equalize.fewest_bits(graph, bits)), **bits}
            graph = equalize.vector(graph, stats, bits)
            stats = observe(FloatEngine(graph, names), images, names)
        graph, factors = equalize.fill(graph, stats, bits)
        self._guard(mode, graph, images[:GUARD_IMAGES])
        return graph, {name: s.scaled(factors[name]) for name, s in stats.items()}, bits

    def _guard(self, mode: str, graph: Graph, images: Feeds) -> None:
        if not len(images):
            return
        names = heads(self.graph)
        before, after = calibration.outputs(self.graph, images, names), calibration.outputs(graph, images, names)
        for name in names:
            found = sqnr_db(before[name], after[name])
            if found < GUARD_DB:
                raise VerifyError(
                    f"equalization ({mode}) changed the float output {name!r}: {found:.1f} dB, {GUARD_DB:.0f} allowed"
                )


def heads(graph: Graph) -> list[str]:
    """What accuracy is measured on: the outputs, or the inputs of the Softmax that makes them."""
    producers = graph.producers()
    found = []
    for name in graph.outputs:
        node = producers.get(name)
        while node is not None and node.op in ("softmax", "reshape"):
            name = node.inputs[0] if node.op == "softmax" else name
            if node.op == "softmax":
                break
            node = producers.get(node.inputs[0])
        found.append(name)
    return list(dict.fromkeys(found))


def integer_outputs(graph: Graph, images: Feeds, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Real values of these tensors for all images through the integer reference, [N, ...]."""
    parts: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for start in range(0, len(images), BATCH):
        some = [images[i] for i in range(start, min(start + BATCH, len(images)))]
        feeds = {
            n: integers(np.concatenate([np.atleast_1d(image[n]) for image in some]), graph[n]) for n in graph.inputs
        }
        result = run_reference(graph, feeds, keep=names)
        for name in names:
            quant = graph[name].quant
            assert quant is not None
            parts[name].append(np.ldexp(result[name].astype(np.float64), quant.exponent))
    return {name: np.concatenate(arrays) for name, arrays in parts.items()}
