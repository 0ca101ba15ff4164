"""Metadata and test vectors that a conversion writes into the file beside the graph."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

from nmpconv import __version__
from nmpconv.base.files import read_file
from nmpconv.base.quantities import utf8
from nmpconv.calib.activation_cache import integers
from nmpconv.conversion.options import Options
from nmpconv.conversion.quantizer import Recipe
from nmpconv.data.samples import Feeds
from nmpconv.file.memory_map import LEAST_SLOW
from nmpconv.graph.reference import run as run_reference
from nmpconv.ir import Graph


def test_vectors(graph: Graph, feeds: Feeds, count: int) -> list[tuple[list[bytes], list[bytes]]]:
    """Inputs and the reference's outputs of the first samples, or of seeded random integers: without any, for steps."""
    rng = np.random.default_rng(0)
    vectors = []
    for i in range(count):
        if i < len(feeds) and not graph.states:
            x = {name: integers(a, graph[name]) for name, a in feeds[i].items()}
        else:
            x = {n: rng.integers(-128, 128, graph[n].shape).astype(graph[n].dtype) for n in graph.inputs}
        y = run_reference(graph, x)
        vectors.append(([x[n].tobytes() for n in graph.inputs], [y[n].tobytes() for n in graph.outputs]))
    return vectors


def metadata(model: Path, options: Options, recipe: Recipe, images: int) -> dict[str, str]:
    """Facts about the conversion; nothing that differs between two runs of the same command."""
    target = {"target": options.target} if options.target else {}
    return target | {
        "producer": f"nmpconv {__version__}",
        "source": utf8(model.name),
        "source_sha256": hashlib.sha256(read_file(model)).hexdigest(),
        "config": json.dumps(options.recorded(), sort_keys=True, default=str),
        "calibration": json.dumps({"images": images, "method": options.method, "recipe": str(recipe)}, sort_keys=True),
    }


def traffic(graph: Graph) -> dict[str, str]:
    """The least traffic in the slow memory, of a graph planned for two."""
    return {LEAST_SLOW: str(graph.least_slow)} if graph.fast_bytes else {}
