"""The float passes in order, as (name, function) with Graph -> Graph.

Passes that need more than the graph are called where that is known: fold_input, plan_memory and fold_affine once more
(padding) by `nmpconv.conversion.pipeline`, equalize, exponents, legalize and quantize by
`nmpconv.conversion.quantizer`.
"""

from __future__ import annotations

from collections.abc import Callable

from nmpconv.ir import Graph
from nmpconv.passes.float import (
    centred_squares,
    channel_moves,
    constant_chains,
    fold_affine,
    fold_norm,
    fold_pad,
    frames,
    fuse_clamp,
    fuse_norm,
    fuse_pointwise,
    fuse_table,
    idle_clamps,
    infinite_ends,
    input_scales,
    layer_pairs,
    layout,
    masked_sums,
    modulations,
    power_mean,
    prune,
    quotients,
    row_factors,
    shared_layers,
    shortcuts,
    slices,
    stacks,
    variance,
    wide_sums,
)

Pass = Callable[[Graph], Graph]

# Functions are recognised as exporters write them, norms once more where a transpose lay between. Affine maps go before
# clamps, which would end up between them and the layer; pads come last, as they may need to know clamps, and set free
# the affine maps above them. Tables take in what no layer could, and a layer the units of inputs. Slices go up where
# nothing is to be recognised any more, after `shortcuts` and `shared_layers`, which take some.
FLOAT: tuple[tuple[str, Pass], ...] = (
    ("prune", prune.run),
    ("infinite_ends", infinite_ends.run),
    ("masked_sums", masked_sums.run),
    ("variance", variance.run),
    ("centred_squares", centred_squares.run),
    ("fuse_norm", fuse_norm.run),
    ("quotients", quotients.run),
    ("row_factors", row_factors.run),
    ("fuse_pointwise", fuse_pointwise.run),
    ("constant_chains", constant_chains.run),
    ("fold_norm", fold_norm.run),
    ("idle_clamps", idle_clamps.run),
    ("layout", layout.run),
    ("channel_moves", channel_moves.run),
    ("fuse_norm", fuse_norm.run),
    ("power_mean", power_mean.run),
    ("fold_affine", fold_affine.run),
    ("fuse_clamp", fuse_clamp.run),
    ("fold_pad", fold_pad.run),
    ("fold_affine", fold_affine.run),
    ("input_scales", input_scales.run),
    ("stacks", stacks.run),
    ("fuse_table", fuse_table.run),
    ("wide_sums", wide_sums.run),
    ("channel_moves", channel_moves.run),
    ("shortcuts", shortcuts.run),
    ("shared_layers", shared_layers.run),
    ("slices", slices.run),
    ("layer_pairs", layer_pairs.run),
    ("frames", frames.run),
    ("modulations", modulations.run),
    ("prune", prune.run),
)
