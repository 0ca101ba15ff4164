"""Take channels at once, where several moves of data only take some of the channels or put them in another order.

1. A chain of reshapes, transposes, slices and gathers whose result has the pixels of its source in their order, each
   with the same of its channels: one slice or, of several pixels, one gather, and a reshape where it has other axes.
   Shuffles and splits of ShuffleNets are such, and the real parts of a spectrum. Factors by channel pass these, but not
   what lies in between, whose last axis is another one.
2. A Concat of channels, of such chains that have one source, likewise.
3. Where a layer, or a sum that is looked up, reads channels in another order, its weights change places instead.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np

from nmpconv.ir import Graph, Node, Quant, Value
from nmpconv.ops import OPS
from nmpconv.ops.gather import GatherParams
from nmpconv.ops.op import QArray
from nmpconv.ops.slice import SliceParams
from nmpconv.passes.rewrite import MOVES, Editor, apply

ALL_MOVES = (*MOVES, "slice", "gather")
LARGEST = 2**24  # of a tensor whose places are followed
PLACES = Quant(32, (0,), 0, 0)


def run(graph: Graph) -> Graph:
    return apply(graph, _at_once, _joined, partial(_in_weights, graph), moves=True)


def _at_once(editor: Editor, node: Node) -> bool:  # case 1
    if node.op not in ALL_MOVES:
        return False
    out, chain = editor[node.outputs[0]], [node]
    while (above := editor.producer(chain[0].inputs[0])) is not None and above.op in ALL_MOVES:
        if editor[above.outputs[0]].clamp:
            return False
        chain.insert(0, above)
        source = editor[above.inputs[0]]
        if not (out.shape and source.shape and any(move.op != "reshape" for move in chain)):
            continue
        shape, alike = (*source.shape[:-1], out.shape[-1]), source.shape[:-1] == out.shape[:-1]
        if math.prod(shape) != out.size or not (alike or _only_reshaped(chain)):
            continue
        choice = _chosen(_channels(editor, chain), shape)
        if choice is not None:
            op, params = choice
            if alike:
                editor.set(replace(node, op=op, inputs=(source.name,), params=params))
            else:
                editor.remove(node)
                is_whole = op == "slice" and shape == source.shape
                y = source.name if is_whole else editor.emit(op, (source.name,), params, at=node, name=node.name)
                editor.reshape(y, out.shape, at=node, out=out.name)
            return True
    return False


def _only_reshaped(chain: list[Node]) -> bool:
    """Checks for a chain that begins with a reshape and has no transpose, which would seldom leave pixels in order."""
    return chain[0].op == "reshape" and all(move.op != "transpose" for move in chain)


def _joined(editor: Editor, node: Node) -> bool:  # case 2
    out = editor[node.outputs[0]]
    if node.op != "concat" or node.params.axis != len(out.shape) - 1:
        return False
    chains = [moves_before(editor, name) for name in node.inputs]
    sources = {chain[0].inputs[0] if chain else name for chain, name in zip(chains, node.inputs, strict=True)}
    source = editor[sources.pop()]
    if sources or source.is_const or not source.shape or source.size > LARGEST:
        return False
    places = np.concatenate([places_of(editor, source, chain) for chain in chains], axis=-1)
    choice = _chosen(_alike(source, places), out.shape)
    if choice is None:
        return False
    op, params = choice
    editor.remove(node)
    x = editor.reshape(source.name, (*out.shape[:-1], source.shape[-1]), at=node)
    editor.emit(op, (x,), params, at=node, name=node.name, out=out.name, clamp=out.clamp)
    return True


def _in_weights(graph: Graph, editor: Editor, node: Node) -> bool:  # case 3
    gather = editor.producer(node.inputs[0])
    if node.op not in ("fully_connected", "sum_lookup") or gather is None or gather.op != "gather":
        return False
    if editor[gather.outputs[0]].clamp:
        return False
    x, index, weights = gather.inputs[0], gather.params.index, node.inputs[1]
    channels = editor[x].shape[-1]
    if gather.params.axis != len(editor[x].shape) - 1 or sorted(index) != list(range(channels)):
        return False
    if weights in graph.given or not editor[weights].is_const or editor[weights].shape[1] != channels:
        return False
    ordered = editor.const(weights, editor.data(weights)[:, np.argsort(index)])
    editor.set(replace(node, inputs=(x, ordered, *node.inputs[2:])))
    return True


def moves_before(editor: Editor, name: str) -> list[Node]:
    """The moves that make the tensor, downwards."""
    chain: list[Node] = []
    while (node := editor.producer(name)) is not None and node.op in ALL_MOVES and not editor[name].clamp:
        chain.insert(0, node)
        name = node.inputs[0]
    return chain


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
    source = editor[chain[0].inputs[0]]
    return np.zeros(0, np.int64) if source.size > LARGEST else _alike(source, places_of(editor, source, chain))


def places_of(editor: Editor, source: Value, chain: list[Node]) -> np.ndarray:
    """The places in the source of what a chain of moves makes of it, int64."""
    places = np.arange(source.size, dtype=np.int64).reshape(source.shape)
    for node in chain:
        (places,) = OPS[node.op].reference(node.params, [QArray(places, PLACES)], [editor[node.outputs[0]]])
    return places


def _alike(source: Value, places: np.ndarray) -> np.ndarray:
    """The channels of these places, int [C], if they are the same of each pixel and the pixels are in their order."""
    pixels, rows = np.arange(0, source.size, source.shape[-1])[:, None], places.reshape(-1, places.shape[-1])
    fits = len(rows) == len(pixels) and np.array_equal(rows, pixels + rows[0])
    return rows[0] if fits else np.zeros(0, np.int64)
