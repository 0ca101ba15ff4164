"""One layer in place of two with nothing between them, where that takes an eighth of the products or less.

W2 (W1 x + b1) + b2 is (W2 W1) x + (W2 b1 + b2): one layer has one rounding, and no tensor between. Band filters behind
the real part of a transform are such, and layers that were wide in training alone, as in SESR (Bhardwaj et al.,
"Collapsible Linear Blocks for Super-Efficient Super Resolution", 2022).

With a larger share two layers of 8 bits can be finer than one, since equalization chooses what lies between: PP-OCR's
classifier has such a pair (three quarters), and 25.7 dB with it, 24.5 with one layer; its detector one (0.21), and 22.2
dB, 21.0 with one layer. Band filters and SESR have 0.02 to 0.06.

The first is a convolution or fully connected layer that nobody else reads, the second looks at one pixel. Between them
may be reshapes that keep the last axis. A quantized model stays as it is.
"""

from __future__ import annotations

from nmpconv.ir import Graph, Node
from nmpconv.passes.rewrite import Editor, apply

SHARE = 1 / 8  # of the products that two layers take


def run(graph: Graph) -> Graph:
    return graph if graph.given else apply(graph, _one_layer)


def _one_layer(editor: Editor, node: Node) -> bool:
    if not _of_pixels(editor, node):
        return False
    first, x = _maker(editor, node.inputs[0])
    if first is None or not _is_plain(editor, first):
        return False
    w, v = editor.data(first.inputs[1]), editor.data(node.inputs[1])
    inner, outer = w.reshape(len(w), -1), v.reshape(len(v), -1)
    if outer.shape[1] != len(inner) or outer.shape[0] * inner.shape[1] > SHARE * (inner.size + outer.size):
        return False
    bias = outer @ editor.data(first.inputs[2]) + editor.data(node.inputs[2])
    constants = (
        editor.const(node.inputs[1], (outer @ inner).reshape(len(outer), *w.shape[1:])),
        editor.const(node.inputs[2], bias),
    )
    out, inputs = editor[node.outputs[0]], (first.inputs[0], *constants, *first.inputs[3:])
    editor.remove(node)
    if (*x[:-1], len(outer)) == out.shape:
        editor.emit(first.op, inputs, first.params, at=node, name=node.name, out=out.name, clamp=out.clamp)
    else:
        y = editor.emit(first.op, inputs, first.params, at=node, name=node.name, clamp=out.clamp)
        editor.reshape(y, out.shape, at=node, out=out.name)
    return True


def _of_pixels(editor: Editor, node: Node) -> bool:
    """Checks for a layer that makes of each pixel what it makes of its channels."""
    if node.op == "conv2d":
        p, (_, height, width, _) = node.params, editor[node.inputs[1]].shape
        alone = (height, width) == (p.stride_h, p.stride_w) == (1, 1) and len(node.inputs) == 3
        if not alone or any((p.pad_top, p.pad_left, p.pad_bottom, p.pad_right)):
            return False
    elif node.op != "fully_connected":
        return False
    return _is_plain(editor, node)


def _is_plain(editor: Editor, node: Node) -> bool:
    """Checks for a layer of one group with constants."""
    if node.op not in ("conv2d", "fully_connected"):
        return False
    x, *constants = (editor[name] for name in node.inputs)
    return all(value.is_const for value in constants) and constants[0].shape[-1] == x.shape[-1]


def _maker(editor: Editor, name: str) -> tuple[Node | None, tuple[int, ...]]:
    """The op that makes a tensor, before reshapes that keep the last axis, and the shape of its result. None where
    something else reads it, too, or it saturates."""
    while True:
        value, maker = editor[name], editor.producer(name)
        if editor.only_user(name) is None or value.clamp is not None or maker is None:
            return None, value.shape
        if maker.op != "reshape":
            return maker, value.shape
        name = maker.inputs[0]
        if editor[name].shape[-1:] != value.shape[-1:]:
            return None, value.shape
