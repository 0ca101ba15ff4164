"""Samples for every input of a model, before anything is quantized: opened, or what the float model feeds back.

An input that is a state holds 0 in the first call of a sequence, and in the next ones what an output was (see
`passes.quantize.recurrent_states`). The float model computes that frame by frame. From there on a state is an input
like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from nmpconv.base.progress import Progress
from nmpconv.base.sqnr import score_count
from nmpconv.calib.engine import FloatEngine
from nmpconv.data.audio import FrontEnd, ears
from nmpconv.data.containers import for_inputs
from nmpconv.data.samples import Data, Feeds, Samples, open_samples
from nmpconv.data.sequences import open_frames
from nmpconv.data.sources import Items
from nmpconv.errors import InputError, UsageError
from nmpconv.ir import Graph, Preprocess
from nmpconv.passes.quantize import recurrent_states
from nmpconv.passes.quantize.heads import heads_of


def open_inputs(
    graph: Graph,
    data: Mapping[str, Data],
    look: Callable[[str], Preprocess | None],
    state: Sequence[str],
    front: FrontEnd | None,
    *,
    limit: int | None,
    max_pixels: int | None,
    progress: Progress,
) -> dict[str, Samples]:
    """Samples of all inputs, as many of each; {} without data.

    graph: the float graph as it was imported. data: a source by input name ('' for the only one that is no state).
    look: how the images of an input are prepared. front: what makes inputs of .wav files. state: see
    `passes.quantize.recurrent_states.checked`. limit: most samples that are taken of an iterable, and most frames that
    are fed back. Raises UsageError and InputError.
    """
    taken = recurrent_states.checked(graph, state)
    if not data:
        return {}
    fed = [name for name in graph.inputs if name not in taken]
    data = _by_name(data, fed, taken)
    opened: dict[str, Samples] = {}
    starts: dict[str, tuple[int, ...]] = {}
    for name in fed:
        shape, source = graph[name].shape, data[name]
        options: dict[str, Any] = {
            "input_name": name,
            "max_pixels": max_pixels,
            "limit": limit,
            "classes": graph.labels,
            "scores": score_count(graph[heads_of(graph, graph.outputs[0])[0]].shape),
        }
        if taken:
            pair = open_frames(source, shape, look(name), front=front, **options)
            opened[name], starts[name] = pair
        else:
            opened[name] = open_samples(
                source, shape, look(name), ears=ears(front, shape, None, is_whole=True), **options
            )
    if taken:
        first = fed[0]
        for name in fed:
            if starts[name] != starts[first]:
                raise InputError(f"the sequences of {first!r} and {name!r} differ in length", where="--data")
        opened |= _fed_back(graph, opened, starts[first], taken, limit, progress)
    return {name: opened[name] for name in graph.inputs}


def _by_name(data: Mapping[str, Data], fed: Sequence[str], taken: Collection[str]) -> Mapping[str, Data]:
    """A source for each of these inputs."""
    data = for_inputs(data, fed)
    if set(data) == {""} and len(fed) == 1:
        return {fed[0]: data[""]}
    if "" in data:
        hint = f"give --data {fed[0]}=SOURCE, and so on; from Python a dict, {{{fed[0]!r}: ...}}"
        raise UsageError(f"the model has several inputs: {', '.join(fed)}; a source names none", hint=hint)
    for name in data:
        if name in taken:
            raise UsageError(f"input {name!r} is a state, which the model feeds", hint="leave its --data out")
        if name not in fed:
            message = f"the model has no input {name!r} that an output depends on; it has {', '.join(fed)}"
            raise UsageError(message, hint="give --data INPUT=SOURCE for each of these, and no other")
    missing = [name for name in fed if name not in data]
    if missing:
        raise UsageError(f"no calibration source for input {missing[0]!r}", hint=f"give --data {missing[0]}=SOURCE")
    return data


def _fed_back(
    graph: Graph,
    opened: Mapping[str, Samples],
    starts: Collection[int],
    taken: Mapping[str, str],
    limit: int | None,
    progress: Progress,
) -> dict[str, Samples]:
    """All samples, of the states, too; of as many frames as there may be. taken: the output that a state takes over."""
    engine, feeds = FloatEngine(graph, list(taken.values())), Feeds(opened)
    count = len(feeds) if limit is None else min(limit, len(feeds))
    first = set(starts)
    held: dict[str, list[np.ndarray]] = {name: [] for name in taken}
    now: dict[str, np.ndarray] = {}
    for i in range(count):
        if i in first:
            now = {name: np.zeros(graph[name].shape, np.float32) for name in taken}
        for name, array in now.items():
            held[name].append(array)
        results = engine.run({**feeds[i], **now})
        now = {name: results[output] for name, output in taken.items()}
        progress("states", i + 1, count)
    order = range(count)
    state_samples = {
        name: Samples("array", graph[name].shape, None, Items(arrays, name=f"state {name!r}"), tuple(order))
        for name, arrays in held.items()
    }
    return {**{name: samples.subset(order) for name, samples in opened.items()}, **state_samples}
