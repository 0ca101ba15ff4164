"""Attention and embeddings of transformers as onnxruntime's optimizers fuse them. Source: its ContribOperators.md."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from nmpconv.errors import Unsupported
from nmpconv.frontend.expand.contrib import SKIP_EPSILON
from nmpconv.frontend.expand.node_builder import Body
from nmpconv.ops.onnx_node import OnnxNode

_FILTER = -10000.0  # what is added to the scores of a masked key where the node does not say


def attention(node: OnnxNode, body: Body) -> None:
    """Attention of x to itself: x, weights of three projections side by side, biases, mask, past, bias of scores."""
    _refuse(node, {4: "a past"})
    x, weights = node.input(0), body.array(1, "weights")
    assert weights is not None
    sizes = [int(size) for size in node.attributes.get("qkv_hidden_sizes", ())] or [weights.shape[1] // 3] * 3
    parts = np.split(weights, np.cumsum(sizes)[:-1], axis=1)
    projected = [body("MatMul", x, part) for part in parts]
    _attend(node, body, _biased(node, body, projected, sizes, 2), mask=3, scores=5)


def multi_head_attention(node: OnnxNode, body: Body) -> None:
    """Attention of queries, keys and values: these, biases, mask, bias of scores, past keys, past values.

    Keys and values by heads have their biases already: onnxruntime adds those of the queries alone.
    """
    _refuse(node, {6: "a past", 7: "a past"})
    sides = _sides(node, body)
    biased = _biased(node, body, sides, [body.shape(side)[-1] for side in sides], 3)
    ranks = (len(body.shape(name)) for name in node.inputs[:3])
    sides = [side if rank == 4 else total for side, total, rank in zip(sides, biased, ranks, strict=True)]
    _attend(node, body, sides, mask=4, scores=5)


def _sides(node: OnnxNode, body: Body) -> list[str]:
    """Queries, keys and values, [batch, tokens, width] each; keys and values may come by heads, [batch, heads, tokens,
    size]."""
    names = list(filter(None, node.inputs[:3]))
    if len(names) != 3 or any(len(body.shape(name)) == 5 for name in names):
        why = "queries, keys and values in one tensor, which onnxruntime has on GPUs alone"
        raise Unsupported(why, hint="an optimized export for CPUs, or one without onnxruntime's optimizer")
    heads = [body("Transpose", name, perm=[0, 2, 1, 3]) if len(body.shape(name)) == 4 else name for name in names]
    return [body("Reshape", side, np.array([0, 0, -1])) if len(body.shape(side)) == 4 else side for side in heads]


def _refuse(node: OnnxNode, names: dict[int, str]) -> None:
    for index, name in names.items():
        if node.input(index):
            raise Unsupported(f"{name} ('{node.input(index)}')", hint="an export without onnxruntime's optimizer")
    if node.integer("do_rotary", 0):
        raise Unsupported("do_rotary", hint="an export without onnxruntime's optimizer")


def _biased(node: OnnxNode, body: Body, sides: Sequence[str], sizes: Sequence[int], index: int) -> list[str]:
    """Queries, keys and values with their parts of one vector of biases."""
    biases = body.array(index, "biases")
    if biases is None:
        return list(sides)
    return [body("Add", x, part) for x, part in zip(sides, np.split(biases, np.cumsum(sizes)[:-1]), strict=True)]


def _attend(node: OnnxNode, body: Body, sides: Sequence[str], mask: int, scores: int) -> None:
    """softmax(q k^T scale + masks) v by heads. mask, scores: the inputs that hide keys and that are added."""
    heads = node.integer("num_heads", 1)
    sizes = [body.shape(side)[-1] for side in sides]
    if any(size % heads for size in sizes):
        raise Unsupported(f"{heads} heads of {max(sizes)} numbers", hint="a number of heads that divides them")
    q, k, v = (
        body("Transpose", body("Reshape", side, np.array([0, 0, heads, size // heads])), perm=perm)
        for side, size, perm in zip(sides, sizes, ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)), strict=True)
    )
    scale = node.number("scale", 0.0) or (sizes[0] // heads) ** -0.5
    logits = body("MatMul", body("Mul", q, float(scale)), k)
    queries, keys = body.shape(logits)[-2:]
    if node.input(scores):
        logits = body("Add", logits, node.input(scores))
    hidden = node.number("mask_filter_value", _FILTER)
    shown = _kept(node, body, mask, keys) if node.input(mask) else ""
    if shown and not (body.to.is_const(shown) and np.ptp(body.to.constants[shown]) == 0):  # all alike: no difference
        logits = body("Add", logits, body("Mul", body("Sub", 1.0, shown), hidden))
    if node.integer("unidirectional", 0):
        if queries != keys:
            raise Unsupported(f"unidirectional with {queries} queries and {keys} keys", hint="as many of both")
        later = np.triu(np.ones((queries, keys), np.float32), 1)
        logits = body("Add", logits, later * np.float32(hidden))
    y = body("Transpose", body("MatMul", body("Softmax", logits, axis=-1), v), perm=[0, 2, 1, 3])
    body("Reshape", y, np.array([0, 0, sizes[2]]), output=node.outputs[0])


def _kept(node: OnnxNode, body: Body, index: int, keys: int) -> str:
    """1 for keys that count, 0 for the others, of a shape that scores [1, heads, queries, keys] take."""
    name = node.input(index)
    shape = body.shape(name)
    if shape == (1,):  # how many count
        places = np.arange(keys, dtype=np.float32)
        within = body("Less", places, body("Cast", name, to=TensorProto.FLOAT))
        return body("Reshape", body("Cast", within, to=TensorProto.FLOAT), np.array([1, 1, 1, keys]))
    if len(shape) not in (2, 3) or shape[-1] != keys:
        raise Unsupported(f"a mask of shape {list(shape)}", hint=f"[1], [1, {keys}] or [1, queries, {keys}]")
    spread = [shape[0], 1, *(shape[1:] if len(shape) == 3 else (1, keys))]
    ones = body("Clip", body("Cast", name, to=TensorProto.FLOAT), 0.0, 1.0)  # any number above 0 counts
    return body("Reshape", ones, np.array(spread))


def embed(node: OnnxNode, body: Body) -> None:
    """Normalized sums of embeddings of words, places and segments; how many words count, 0 without a mask; the sums."""
    words, segments, mask = node.input(0), node.input(1), node.input(7)
    tokens = body.shape(words)[-1]
    places = node.input(8) or body.operand(np.arange(tokens, dtype=np.int64).reshape(1, -1))
    total = body("Add", body("Gather", node.input(2), words), body("Gather", node.input(3), places))
    if segments:
        total = body("Add", total, body("Gather", node.input(4), segments))
    if len(node.outputs) > 1 and node.outputs[1]:
        if mask:
            body("ReduceSum", mask, np.array([1]), output=node.outputs[1], keepdims=0)
        else:
            body.rename(body.operand(np.zeros(1, np.int32)), node.outputs[1])
    if len(node.outputs) > 2 and node.outputs[2]:
        body.rename(total, node.outputs[2])
    epsilon = node.number("epsilon", SKIP_EPSILON)
    body("LayerNormalization", total, *node.inputs[5:7], output=node.outputs[0], axis=-1, epsilon=epsilon)


ALWAYS = {
    "com.microsoft.Attention": attention,
    "com.microsoft.EmbedLayerNormalization": embed,
    "com.microsoft.MultiHeadAttention": multi_head_attention,
}
