"""Let image inputs be raw pixels: the preprocessing becomes part of the graph, and so of the first layer.

1. An input with a Preprocess becomes pixels - 128 of the same name, [1,H,W,C], RGB or gray.
2. A 1x1 convolution computes what the model expects, x = (pixels in `range` - mean) / std in the model's channel order;
   mean and std are in that order too. fold_affine merges it into the first layer.
3. A transpose to the model's own layout, if that is nchw.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from nmpconv.errors import UsageError
from nmpconv.ir import Graph, Node, Preprocess, Value
from nmpconv.ops.conv2d import Conv2DParams
from nmpconv.ops.transpose import TransposeParams
from nmpconv.passes.float.layout import TO_NCHW


def run(graph: Graph, preprocess: Mapping[str, Preprocess]) -> Graph:
    """preprocess: by input name. UsageError when an input is no image or mean or std do not fit its channels."""
    for name, how in preprocess.items():
        graph = _fold(graph, name, how)
    return graph


def _fold(graph: Graph, name: str, how: Preprocess) -> Graph:
    if name not in graph.inputs:
        raise UsageError(f"the model has no input '{name}'", hint=f"inputs: {', '.join(graph.inputs)}")
    shape = graph[name].shape
    nchw = how.layout == "nchw"
    channels = shape[1 if nchw else -1] if len(shape) == 4 else 0
    if channels not in (1, 3):
        raise UsageError(
            f"input '{name}' {list(shape)} is no image in {how.layout}; that has 4 dimensions and 1 or 3 channels",
            hint="choose the other --layout" if len(shape) == 4 else "give its data as .npy or .npz",
        )
    pixels = (shape[0], *shape[2:], channels) if nchw else shape
    image, planes = f"{name}~image", f"{name}~nchw"
    source = planes if nchw else image
    nodes = [_redirect(node, name, source) for node in graph.nodes]
    w, b = weights_of(name, how, channels)
    weights = Value(f"{name}~scale", w.shape, data=w)
    bias = Value(f"{name}~shift", b.shape, data=b)
    values = [Value(name, pixels), weights, bias, Value(image, pixels)]
    first = [Node("conv2d", image, (name, weights.name, bias.name), (image,), Conv2DParams())]
    if nchw:
        values.append(Value(planes, shape))
        first.append(Node("transpose", planes, (image,), (planes,), TransposeParams(TO_NCHW)))
    return replace(
        graph.with_values(*values),
        nodes=(*first, *nodes),
        preprocess={**graph.preprocess, name: how},
        pixels=graph.pixels | {name},
        source_shapes={name: shape, **graph.source_shapes},
        given={other: grid for other, grid in graph.given.items() if other != name},
    )


def _redirect(node: Node, old: str, new: str) -> Node:
    return replace(node, inputs=tuple(new if name == old else name for name in node.inputs))


def weights_of(name: str, how: Preprocess, channels: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights [C,1,1,C] and bias [C] of the convolution that turns pixel - 128 into the model's input, for UsageError's
    words the input's name."""
    for field in ("mean", "std"):
        count = len(getattr(how, field))
        if count not in (1, channels):
            raise UsageError(
                f"--{field} has {count} values, the {channels} channels of input '{name}' need 1 or {channels}"
            )
    mean, std = (np.broadcast_to(np.asarray(a, dtype=np.float64), channels) for a in (how.mean, how.std))
    if (std == 0).any():
        raise UsageError("--std has a zero", hint="pixels are divided by it")
    low, high = how.range
    scale = (high - low) / 255.0 / std
    shift = (low + 128.0 * (high - low) / 255.0 - mean) / std
    order = np.arange(channels)[:: -1 if how.channel_order == "bgr" else 1]
    weights = np.zeros((channels, 1, 1, channels), dtype=np.float32)
    weights[np.arange(channels), 0, 0, order] = scale
    return weights, shift.astype(np.float32)
