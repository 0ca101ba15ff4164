"""Checks that the imported float graph is equivalent to the ONNX model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from nmpconv.calib import parity
from nmpconv.calib.engine import EngineRefused
from nmpconv.calib.observers import TensorStats
from nmpconv.calib.original_model import original
from nmpconv.calib.parity import Parity
from nmpconv.conversion.options import Options
from nmpconv.data.samples import Samples, graph_input, model_input, spread
from nmpconv.errors import InputError, VerifyError
from nmpconv.frontend.read import read
from nmpconv.ir import Graph

SAME_IMAGES = 4  # that the two are compared on


def compared(
    model: Path,
    options: Options,
    graph: Graph,
    samples: Mapping[str, Samples],
    stats: Mapping[str, TensorStats],
    count: int,
) -> Parity | str:
    """Compares the float graph with the user's model, or says why that is not possible.

    VerifyError where it is another function, InputError where the user's model cannot be run.
    """
    pairs = pairs_of(graph, samples, stats, count)
    try:
        comparison = parity.compare(lambda: original(read(model, *options.bound_inputs), graph), graph, pairs)
    except EngineRefused as error:
        return f"not compared with the ONNX model: {error.message}"
    if not comparison.holds:
        _refuse_reals(graph, pairs, model)
        cut = f"; --outputs {','.join(comparison.before)} leaves that to the host" if comparison.before else ""
        raise VerifyError(
            f"the float graph is another function than the model: {comparison}; they part at {comparison.parts}",
            where=str(model),
            hint=f"this is a bug of nmpconv, please report it with the model{cut}",
        )
    return comparison


def _refuse_reals(graph: Graph, pairs: Sequence[parity.Pair], model: Path) -> None:
    """InputError where samples for an input of integers have fractions, or numbers beyond its type: only the graph
    keeps them."""
    for name, dtype in graph.plain_ports().items():
        numbers = [theirs[name] for theirs, _ in pairs if name in theirs]
        ends = np.iinfo(dtype)
        if any(np.any(x % 1) for x in numbers):
            wrong = "have fractions"
        elif any(np.any((x < ends.min) | (x > ends.max)) for x in numbers):
            wrong = f"go from {min(x.min() for x in numbers):g} to {max(x.max() for x in numbers):g}"
        else:
            continue
        raise InputError(
            f"input '{name}' is {dtype}, and its samples {wrong}",
            where=str(model),
            hint="integers, as the model takes them: x / scale + zero point, rounded",
        )


def pairs_of(
    graph: Graph,
    samples: Mapping[str, Samples],
    stats: Mapping[str, TensorStats],
    count: int,
    most: int = SAME_IMAGES,
) -> list[parity.Pair]:
    """Samples for the user's model and for the float graph: at most ``most`` of the first ``count``, or SAME_IMAGES
    seeded ones of the known ranges."""
    shapes = {name: graph.source_shapes[name] for name in graph.inputs}
    looks = {name: graph.preprocess[name] for name in graph.pixels} | {n: s.preprocess for n, s in samples.items()}
    rng, whole = np.random.default_rng(0), graph.plain_ports()

    def drawn(name: str) -> np.ndarray:
        value = graph[name]
        if name in graph.pixels:
            return rng.integers(0, 256, value.shape[1:]).astype(np.uint8)
        numbers = rng.uniform(stats[name].min, stats[name].max, value.shape).astype(np.float32)
        return np.rint(numbers) if name in whole else numbers

    chosen = [{name: s[i] for name, s in samples.items()} for i in spread(count, most)]
    chosen = chosen or [{name: drawn(name) for name in graph.inputs} for _ in range(SAME_IMAGES)]
    return [
        (
            {n: model_input(x, looks.get(n), shapes[n]) for n, x in sample.items()},
            {n: graph_input(x, looks.get(n), shapes[n], pixels=n in graph.pixels) for n, x in sample.items()},
        )
        for sample in chosen
    ]
