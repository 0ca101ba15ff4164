"""The front end of sound in integers as an input of the file has it: with the grid of the input."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from nmpconv.base import sound, stream_spec
from nmpconv.base.sound import SoundFront
from nmpconv.conversion.calibration import front_end
from nmpconv.conversion.options import Options
from nmpconv.data.audio import FrontEnd, time_axis
from nmpconv.errors import UsageError
from nmpconv.ir import Graph, Value

HINT = "integers=0 leaves it in floats, which no device computes"


def chosen(graph: Graph, options: Options) -> tuple[dict[str, SoundFront], tuple[str, ...]]:
    """Front ends by input, and a warning where frames stay in floats since the input's grids allow no others.

    graph: as it is written. Raises UsageError where the options ask for integers by name.
    """
    axis = None if options.stream is None else stream_spec.parse(options.stream).axis
    try:
        return fronts(graph, front_end(options), axis, graph.states), ()
    except UsageError as error:
        if "integers" in (options.audio or ""):
            raise
        return {}, (f"frames of sound are computed in floats, which no device does: {error.message}",)


def fronts(graph: Graph, front: FrontEnd | None, axis: int | None, states: Collection[str]) -> dict[str, SoundFront]:
    """Front ends by input: of the only one that is no state, where ``front`` is in integers.

    graph: as it is written. axis: that of time, in the ONNX model; None: see `time_axis`. Raises UsageError where other
    inputs are fed, too, time and bands are mixed, or frames differ in their grids.
    """
    fed = [name for name in graph.inputs if name not in states]
    if front is None or not front.integers:
        return {}
    if len(fed) != 1:
        several = f"the model has {len(fed)} inputs, {', '.join(fed)}; a file knows sound as the only one"
        raise UsageError(several, where="--audio", hint=HINT)
    value = graph[fed[0]]
    shape = graph.source_shapes.get(fed[0], value.shape)
    time = time_axis(front, shape, axis)
    # Of each element, in the file's order: its frame and its band.
    places = np.moveaxis(np.arange(value.size).reshape(shape), time, 0).reshape(shape[time], front.width)
    turned = not np.array_equal(places.ravel(), np.arange(value.size))
    if turned and not np.array_equal(places.T.ravel(), np.arange(value.size)):
        raise UsageError(
            f"time is axis {time} of {list(shape)}, between bands", where="--audio", hint=f"time first or last; {HINT}"
        )
    grids = _grids(value)[places]
    if not (grids == grids[0]).all():
        raise UsageError(f"the frames of {fed[0]!r} have grids of their own", where="--audio", hint=HINT)
    is_shared = (grids == grids[:, :1]).all()
    exponents, offsets = (grids[0, : 1 if is_shared else None, i].tolist() for i in (0, 1))
    whole = [offset * 2.0**-sound.EXPONENT for offset in offsets]
    if any(offset != int(offset) for offset in whole):
        raise UsageError(
            f"the bands of {fed[0]!r} hardly differ in the calibration data",
            where="--data",
            hint=f"give other sounds; {HINT}",
        )
    shifts = tuple(int(exponent) - sound.EXPONENT for exponent in exponents)
    written = replace(front.whole, shifts=shifts, offsets=tuple(map(int, whole)), turned=turned)
    for text, holds in sound.rules(written):
        if not holds:
            raise UsageError(f"the front end of {fed[0]!r} has {text}", where="--audio", hint=HINT)
    return {fed[0]: written}


def _grids(value: Value) -> np.ndarray:
    """Exponent and offset of each element, [elements, 2]."""
    exponent, shifts = value.quant.exponent if value.quant else 0, value.shifts
    if shifts is None:
        return np.tile([float(exponent), value.origin], (value.size, 1))
    rank = len(value.shape)
    columns = exponent - np.log2(shifts.factors(rank)), shifts.origins(rank)
    return np.stack([np.broadcast_to(column, value.shape).ravel() for column in columns], axis=1)
