"""Take channels at once, where several moves of data only take some of the channels or put them in another order.

1. A chain of reshapes, transposes, slices and gathers whose result has the pixels of its source in their order, each
   with the same of its channels: one slice or, of several pixels, one gather. Shuffles and splits of ShuffleNets are
   such. Factors by channel pass these, but not what lies in between, whose last axis is another one.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from nmpconv.ir import Graph, Node, Quant
from nmpconv.ops import OPS
from nmpconv.ops.gather import GatherParams
from nmpconv.ops.op import QArray
from nmpconv.ops.slice import SliceParams
from nmpconv.passes.rewrite import MOVES, Editor, apply

ALL_MOVES = (*MOVES, "slice", "gather")
LARGEST = 2**24  # of a tensor whose places are followed
PLACES = Quant(32, (0,), 0, 0)


def run(graph: Graph) -> Graph:
    return apply(graph, _at_once)


def _at_once(editor: Editor, node: Node) -> bool:  # case 1
    if node.op not in ALL_MOVES:
        return False
    out, chain = editor[node.outputs[0]], [node]
    while (above := editor.producer(chain[0].inputs[0])) is not None and above.op in ALL_MOVES:
        if editor[above.outputs[0]].clamp:
            return False
        chain.insert(0, above)
        source = editor[above.inputs[0]]
        if out.shape and source.shape[:-1] == out.shape[:-1] and any(move.op != "reshape" for move in chain):
            choice = _chosen(_channels(editor, chain), out.shape)
            if choice is not None:
                op, params = choice
                editor.set(replace(node, op=op, inputs=(source.name,), params=params))
                return True
    return False


def _chosen(channels: np.ndarray, shape: tuple[int, ...]) -> tuple[str, SliceParams | GatherParams] | None:
    """The op that takes these channels, for a result of this shape, and its params; None for no channels."""
    axis, steps = len(shape) - 1, set(np.diff(channels).tolist())
    if not channels.size:
        return None
    if len(steps) < 2 and min(steps, default=1) > 0:
        return "slice", SliceParams((*(0,) * axis, int(channels[0])), (*(1,) * axis, *(steps or (1,))), shape)
    if math.prod(shape) > channels.size:
        return "gather", GatherParams(axis, tuple(channels.tolist()))
    return None


def _channels(editor: Editor, chain: list[Node]) -> np.ndarray:
    """The channels of the source that a chain of moves leaves, int [C]; none: it moves pixels, or not all alike."""
    source, none = editor[chain[0].inputs[0]], np.zeros(0, np.int64)
    if source.size > LARGEST:
        return none
    places = np.arange(source.size, dtype=np.int64).reshape(source.shape)
    for node in chain:
        (places,) = OPS[node.op].reference(node.params, [QArray(places, PLACES)], [editor[node.outputs[0]]])
    channels = places.reshape(-1, editor[node.outputs[0]].shape[-1])[0]
    pixels = np.arange(0, source.size, source.shape[-1]).reshape(*source.shape[:-1], 1)
    return channels if np.array_equal(places, pixels + channels) else none
