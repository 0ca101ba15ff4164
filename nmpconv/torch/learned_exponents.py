"""Exponents of activations as parameters, and the graph that has them.

Gradients are those of trained thresholds (S. Jain et al., "Trained Quantization Thresholds for Accurate and Efficient
Fixed-Point Inference", 2019): of the logarithm of a step, straight through its rounding to a whole exponent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from nmpconv.base.fixed_point import INT_MAX, INT_MIN
from nmpconv.ir import Graph, Quant
from nmpconv.ops.op import quant_of

Regrid = Callable[[Mapping[str, int]], Graph]
"""Takes exponents by the names of activations; returns the integer graph with them, or with larger ones where these
cannot run."""


class TrainableExponents(nn.Module):
    """Exponents of groups of activations, each group on one grid.

    log2_steps: the parameter, float32 [groups]; the exponents are these numbers, rounded.
    """

    def __init__(self, graph: Graph, groups: Sequence[tuple[str, ...]], regrid: Regrid) -> None:
        """graph: the integer graph that training begins with. regrid: makes the others of it."""
        super().__init__()
        self._groups, self._regrid = tuple(groups), regrid
        self._place = {name: i for i, group in enumerate(groups) for name in group}
        self.log2_steps = nn.Parameter(torch.tensor(self._of(graph), dtype=torch.float32))

    def _of(self, graph: Graph) -> list[int]:
        return [quant_of(graph[group[0]]).exponent for group in self._groups]

    def follow(self, graph: Graph) -> Graph:
        """The graph with the exponents that the parameter has now. What cannot run is raised, in the parameter, too."""
        rounded = torch.floor(self.log2_steps.detach() + 0.5)
        wanted = [int(e) for e in rounded.tolist()]
        if wanted == self._of(graph):
            return graph
        graph = self._regrid({name: wanted[i] for name, i in self._place.items()})
        legal = torch.tensor(self._of(graph), dtype=torch.float32, device=rounded.device)
        with torch.no_grad():
            self.log2_steps.copy_(torch.where(rounded == legal, self.log2_steps, legal))
        return graph

    def of(self, graph: Graph) -> dict[str, int]:
        """Trained exponents in a graph, by the names of activations."""
        return {name: quant_of(graph[name]).exponent for name in self._place}

    def unit(self, name: str) -> Tensor | None:
        """1, with the gradient of the step of this activation; None where its exponent is fixed."""
        if name not in self._place:
            return None
        log2_step = self.log2_steps[self._place[name]]
        return torch.exp2(log2_step - log2_step.detach())


def held(q: Tensor, before: Tensor, grid: Quant, unit: Tensor | None) -> Tensor:
    """The integers q that these numbers are rounded to; those that a clamp cuts off do not follow the step: the clamp
    is a real number, the ends of the type are not."""
    if unit is None:
        return q
    above = (before > grid.hi + 0.5) & (grid.hi < INT_MAX[grid.bits])
    below = (before < grid.lo - 0.5) & (grid.lo > INT_MIN[grid.bits])
    return torch.where(above | below, q / unit, q)
