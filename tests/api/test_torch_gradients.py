"""Gradients of ops: what is differentiated is nearly what the op computes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from op_cases import BY_OP

from nmpconv.graph import reference
from nmpconv.ir import Value
from nmpconv.ops import OPS, WEIGHTED, Case
from nmpconv.ops.op import quant_of

# A table of 256 has the line through both neighbours; the others are steps, which a gradient does not see.
STEPWISE = re.compile(r"lookup/\w+/8to|divide/down/|grid_sample/nearest/")
ALONE = {"conv_add", "custom"}  # made after the graph that is trained; of the user's
DIFFERENTIATED = {name for name, op in OPS.items() if not op.counted} - {*WEIGHTED} - ALONE


@pytest.fixture
def gradients() -> Any:
    pytest.importorskip("torch", reason="hundreds of MB that no lock has")
    from nmpconv.torch import gradients

    return gradients


def test_every_op_has_a_gradient(gradients: Any) -> None:
    """But for those whose results are places or truth."""
    without = {name for name, op in OPS.items() if name not in (*gradients.MEANINGS, *WEIGHTED) and not op.counted}
    assert without == ALONE


@pytest.mark.parametrize("op", sorted(DIFFERENTIATED))
def test_a_meaning_is_what_the_op_computes(gradients: Any, op: str) -> None:
    """Within a step: half of one for its rounding, the rest for those of tables, places and factors."""
    off = {case.id: distance(gradients, case) for case in BY_OP[op] if not STEPWISE.match(case.id)}
    assert off
    assert {name: steps for name, steps in off.items() if steps >= 1} == {}


def distance(gradients: Any, case: Case) -> float:
    """Steps of the result between the meaning and the reference, at most."""
    graph = case.graph
    (node,) = graph.nodes
    y, env = graph[node.outputs[0]], dict(zip(graph.inputs, case.feeds, strict=True))
    operands = [reals(env[v.name] if v.data is None else v.data, v) for v in graph.ins(node)]
    meant = gradients.MEANINGS[node.op](node.params, operands, graph.ins(node), y) / gradients.step_of(y)
    found = np.clip(meant.numpy(), quant_of(y).lo, quant_of(y).hi)
    return float(np.abs(found - reference.step(graph, node, env)[y.name]).max(initial=0))


def reals(q: np.ndarray, value: Value) -> Any:
    import torch

    grid = quant_of(value)
    shape = [1] * q.ndim
    if grid.axis is not None:
        shape[grid.axis] = len(grid.exponents)
    return torch.as_tensor(q * np.exp2(np.array(grid.exponents, np.float64)).reshape(shape))


def test_a_net_is_trained_through_a_norm_of_rows(gradients: Any) -> None:
    """Rows of length 1, as in attention over channels: `lrn`. Slopes are those of the float module."""
    import torch

    import nmpconv.torch

    class Rows(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = torch.nn.Linear(12, 16), torch.nn.Linear(16, 3)

        def forward(self, x: Any) -> Any:
            return self.two(torch.nn.functional.normalize(self.one(x), dim=-1))

    torch.manual_seed(0)
    module, x = Rows().eval(), torch.randn(64, 12)
    prepared = nmpconv.torch.prepare(module, x[:1], x.numpy(), bits=16)
    assert "lrn" in {node.op for node in prepared._graph.nodes}
    for net in (module, prepared):
        net(x)[:, 0].sum().backward()
    (slope,) = torch.autograd.grad(prepared(leaf := (1e-6 * x[:2]).requires_grad_()).sum(), leaf)
    assert slope.isfinite().all()
    wanted, found = module.one.weight.grad, prepared.get_parameter("one.weight").grad
    assert (found / found.norm() - wanted / wanted.norm()).abs().max() < 0.01
    prepared.eval()
    np.testing.assert_array_equal(nmpconv.torch.convert(prepared).load()(x.numpy())[0], prepared(x).detach().numpy())
