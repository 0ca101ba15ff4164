"""ONNX operators that are written as simpler ones before they are lowered, and the few forms of others that need it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from nmpconv.frontend.expand import (
    contrib,
    coordinate_grids,
    deformable,
    einsum,
    filters,
    functions,
    fused_attention,
    indices,
    known_booleans,
    linear_models,
    masks,
    node_builder,
    onnx_functions,
    pads,
    pooling,
    powers,
    quantized,
    recurrent,
    regions,
    rounding_trick,
    spectra,
    tensor_lists,
    unpooling,
    volumes,
)
from nmpconv.frontend.importer import Importer
from nmpconv.ops.onnx_node import OnnxNode

# By ONNX op type, with the domain before a dot where it is not ONNX's own.
ALWAYS: Mapping[str, node_builder.Expansion] = {
    **contrib.ALWAYS,
    **einsum.ALWAYS,
    **filters.ALWAYS,
    **functions.ALWAYS,
    **fused_attention.ALWAYS,
    **coordinate_grids.ALWAYS,
    **deformable.ALWAYS,
    **indices.ALWAYS,
    **linear_models.ALWAYS,
    **pooling.ALWAYS,
    **recurrent.ALWAYS,
    **regions.ALWAYS,
    **onnx_functions.ALWAYS,
    **tensor_lists.ALWAYS,
    **spectra.ALWAYS,
    **unpooling.ALWAYS,
}
# Of op types that ops lower themselves: forms (when, expansion) that they cannot, the first that applies.
_FORMS = (
    known_booleans.FORMS,
    filters.FORMS,
    functions.FORMS,
    indices.FORMS,
    pads.FORMS,  # what they leave may be a mask
    masks.FORMS,
    pooling.FORMS,
    powers.FORMS,
    quantized.FORMS,
    rounding_trick.FORMS,
    unpooling.FORMS,
    volumes.FORMS,
)
FORMS: Mapping[str, Sequence[tuple[Callable[[OnnxNode, Importer], bool], node_builder.Expansion]]] = {
    kind: [form for forms in _FORMS for form in forms.get(kind, ())] for forms in _FORMS for kind in forms
}


def expansion_of(kind: str, node: OnnxNode, to: Importer) -> node_builder.Expansion | None:
    """Returns the expansion that writes this node as others, None where an op lowers it."""
    forms = (expansion for when, expansion in FORMS.get(kind, ()) if when(node, to))
    return ALWAYS.get(kind) or next(forms, None)
