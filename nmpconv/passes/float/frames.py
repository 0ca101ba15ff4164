"""A convolution of a wave in place of a layer of its frames.

`tf.signal.frame` gathers frames that overlap, and a transform is a layer of each. The frames are several times as large
as the wave, and their places are constants of the file. A layer whose rows are stretches of a tensor, one after another
at equal distances, is a convolution with that stride. Layers of a quantized model stay as they are.
"""

from __future__ import annotations

import numpy as np

from nmpconv.ir import Graph, Node
from nmpconv.ops.conv2d import Conv2DParams
from nmpconv.ops.slice import SliceParams
from nmpconv.passes.float.channel_moves import LARGEST, moves_before, places_of
from nmpconv.passes.rewrite import Editor, apply


def run(graph: Graph) -> Graph:
    return graph if graph.given else apply(graph, _of_wave)


def _of_wave(editor: Editor, node: Node) -> bool:
    if node.op != "fully_connected" or not all(editor[name].is_const for name in node.inputs[1:]):
        return False
    frames, moves = editor[node.inputs[0]], moves_before(editor, node.inputs[0])
    wave = editor[moves[0].inputs[0]] if moves else frames
    if wave.is_const or not wave.size < frames.size <= LARGEST:  # smaller ones do not overlap
        return False
    width = frames.shape[-1]
    places = places_of(editor, wave, moves).reshape(-1, width)
    starts = places[:, 0]
    first, hops = int(starts[0]), set(np.diff(starts).tolist())
    if len(hops) != 1 or min(hops) < 1 or not np.array_equal(places, starts[:, None] + np.arange(width)):
        return False
    hop, out = hops.pop(), editor[node.outputs[0]]
    weights = editor.data(node.inputs[1])
    editor.remove(node)
    x = editor.reshape(wave.name, (1, 1, wave.size, 1), at=node)
    if first or (wave.size - width) // hop + 1 > len(starts):
        taken = SliceParams((0, 0, first, 0), (1, 1, 1, 1), (1, 1, hop * (len(starts) - 1) + width, 1))
        x = editor.emit("slice", (x,), taken, at=node)
    kernel = editor.const(node.inputs[1], weights.reshape(len(weights), 1, width, 1))
    params = Conv2DParams(stride_w=hop)
    y = editor.emit("conv2d", (x, kernel, node.inputs[2]), params, at=node, name=node.name, clamp=out.clamp)
    editor.reshape(y, out.shape, at=node, out=out.name)
    return True
