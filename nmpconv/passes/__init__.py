"""The pipeline by stage, as (name, function) with Graph -> Graph.

Passes that need more than the graph (fold_input, and those with statistics) are called by `nmpconv.convert`.
"""

from __future__ import annotations

from collections.abc import Callable

from nmpconv.ir import Graph
from nmpconv.passes import fold_affine, fold_pad, fuse_clamp, layout, plan_memory, prune

Pass = Callable[[Graph], Graph]

# Affine maps go before clamps, which would end up between them and the layer; pads come last, as they may need to know
# clamps, and set free the affine maps above them.
FLOAT: tuple[tuple[str, Pass], ...] = (
    ("prune", prune.run),
    ("layout", layout.run),
    ("fold_affine", fold_affine.run),
    ("fuse_clamp", fuse_clamp.run),
    ("fold_pad", fold_pad.run),
    ("fold_affine", fold_affine.run),
    ("prune", prune.run),
)
PLANNED: tuple[tuple[str, Pass], ...] = (("plan_memory", plan_memory.run),)
