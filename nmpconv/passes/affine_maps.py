"""Affine maps by channel, and layers that take them up."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from nmpconv.ir import Node
from nmpconv.ops import WEIGHTED
from nmpconv.ops.common.weighted import groups_of
from nmpconv.passes.rewrite import Editor


class Affine(NamedTuple):
    """y[i] = scale[i] * x[source[i]] + shift[i]; float64 [C], int [C]. ``x`` is a value's name."""

    x: str
    scale: np.ndarray
    shift: np.ndarray
    source: np.ndarray

    @property
    def keeps_order(self) -> bool:
        return bool(np.array_equal(self.source, np.arange(len(self.source))))


def pad_before(editor: Editor, layer: Node, affine_map: Affine) -> np.ndarray | None:
    """Value of x that the padding of y stands for, per channel of y; infinite where no x gives it. None: there is no
    padding."""
    padding = WEIGHTED[layer.op].padding(layer.params, [editor[name] for name in layer.inputs])
    if padding is None:
        return None
    gap = padding - affine_map.shift
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(gap == 0, 0.0, gap / affine_map.scale)


def merge_into_reader(editor: Editor, layer: Node, affine_map: Affine) -> None:
    """Lets a layer read x where it read y: its weights, bias and padding take up the map."""
    w, b = editor.data(layer.inputs[1]), editor.data(layer.inputs[2])
    groups, (outs, per_group) = groups_of(layer), (w.shape[0], w.shape[-1])
    split = w.reshape(groups, outs // groups, -1, per_group)
    shift, scale = (a.reshape(groups, 1, 1, per_group) for a in (affine_map.shift, affine_map.scale))
    bias = b + (split * shift).sum(axis=(2, 3)).ravel()
    scaled = (split * scale).reshape(w.shape)
    weights = np.empty_like(scaled)
    order = affine_map.source if groups == 1 else np.arange(per_group)
    weights[..., order] = scaled
    inputs = [affine_map.x, editor.const(layer.inputs[1], weights), editor.const(layer.inputs[2], bias)]
    if (before := pad_before(editor, layer, affine_map)) is not None:
        pad = np.zeros_like(affine_map.scale)
        pad[affine_map.source] = before
        if pad.any():
            inputs.append(editor.const(f"{layer.name}.pad", pad))
    editor.set(replace(layer, inputs=tuple(inputs)))
