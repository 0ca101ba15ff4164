"""A torch module that computes what a .nmp file computes, in integers, with gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nmpconv.errors import InputError, UnsupportedModel
from nmpconv.graph import reference
from nmpconv.ir import Graph, Node, Value
from nmpconv.ops import OPS, WEIGHTED, keeps_batch
from nmpconv.ops.op import quant_of
from nmpconv.runtime.ports import Port
from nmpconv.torch.gradients import MEANINGS, is_exact, step_of
from nmpconv.torch.layers import TrainableLayer, graph_order
from nmpconv.torch.learned_exponents import TrainableExponents, held


class _Instead(torch.autograd.Function):
    """exact, with the gradient of what it is nearly equal to."""

    @staticmethod
    def forward(ctx: Any, nearly: Tensor, exact: Tensor) -> Tensor:
        return exact

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0], None


class TrainableNet(nn.Module):
    """The integer graph of a conversion, whose weights and biases are parameters.

    Called with the tensors that the original module takes, [n, ...], samples along the first axis; returns what that
    returns: one tensor, or a tuple of them. Activations are integers in float tensors, on the grids that the conversion
    chose, or of the exponents that are trained. In eval mode they are the integers of the file that
    `nmpconv.torch.convert` makes. In training sums of products are of float32, which differs where they pass 2^24.
    Gradients go straight through roundings and stop at saturations. Normalizations are folded as they were when the
    module was prepared.

    Names without an underscore are left to the layers. Parameters have the names and the shapes that they have in the
    original module, where the weights of a layer are that module's times a factor for each channel; elsewhere those of
    the node in the graph.
    """

    def __init__(
        self,
        graph: Graph,
        ports: Sequence[Port],
        layers: Mapping[str, tuple[str, TrainableLayer]],
        exponents: TrainableExponents | None = None,
    ) -> None:
        """ports: of the graph's inputs. layers: of each node with weights its place among modules, and the layer.
        exponents: of activations, where they are trained, too."""
        super().__init__()
        self._exponents = exponents
        self._graph, self._ports = graph, tuple(ports)
        self._places = {node: place for node, (place, _) in layers.items()}
        for place, layer in layers.values():
            parent: nn.Module = self
            *path, last = place.split(".")
            for name in path:
                if name not in parent._modules:
                    parent.add_module(name, nn.Module())
                parent = parent.get_submodule(name)
            parent.add_module(last, layer)
        trained_behind(graph)

    def _layer(self, node: str) -> TrainableLayer:
        """The layer of a node with weights."""
        layer = self.get_submodule(self._places[node])
        assert isinstance(layer, TrainableLayer)
        return layer

    def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Reals of the outputs, [n, ...], from those of the inputs."""
        self._follow()
        if len(inputs) != len(self._ports):
            raise InputError(f"{len(inputs)} inputs were given, the model has {len(self._ports)}")
        env = {port.name: self._entered(port, x) for port, x in zip(self._ports, inputs, strict=True)}
        integers = self._integers(env, self._graph.outputs)
        reals = tuple(self._left(self._graph[name], integers[name]) for name in self._graph.outputs)
        return reals if len(reals) > 1 else reals[0]

    def _follow(self) -> Graph:
        """The graph with the exponents that there are now, which the layers take over."""
        graph = self._graph if self._exponents is None else self._exponents.follow(self._graph)
        if graph is not self._graph:
            self._graph = graph
            for node in graph.nodes:
                if node.name in self._places:
                    self._layer(node.name).place(node, graph)
        return graph

    def _unit(self, name: str) -> Tensor | None:
        return None if self._exponents is None else self._exponents.unit(name)

    def _integers(self, env: Mapping[str, Tensor], names: Sequence[str]) -> dict[str, Tensor]:
        """Integers of these activations, from those of the inputs, as `nmpconv.graph.reference.run`: [n * d0, ...]."""
        env = dict(env)
        integers = {name: env[name] for name in names if name in env}
        for node in reference.walk(self._graph, env):
            env.update(self._step(node, env))
            integers.update((name, env[name]) for name in node.outputs if name in names)
        return integers

    def _constants(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Weights and biases as they are now, integers in the graph's order, by node."""
        self._follow()
        constants = {}
        with torch.no_grad():
            for node in self._places:
                weight, bias = (x.cpu().numpy().astype(np.int64) for x in self._layer(node).integers())
                constants[node] = graph_order(weight), bias
        return constants

    def _entered(self, port: Port, x: Tensor) -> Tensor:
        """Integers of an input. That of pixels has no gradient."""
        value = self._graph[port.name]
        q = torch.as_tensor(port.integers(x), dtype=torch.float32, device=x.device)
        q = q.reshape(-1, *q.shape[2:]) if value.shape else q
        if not (x.requires_grad and torch.is_grad_enabled()) or port.pixels:
            return q
        reals = x.reshape(q.shape)
        if value.shifts is not None:
            rank = max(len(value.shape), 1)
            origins, factors = (
                torch.as_tensor(a, dtype=x.dtype, device=x.device)
                for a in (value.shifts.origins(rank), value.shifts.factors(rank))
            )
            reals = (reals - origins) * factors
        return _Instead.apply((reals / step_of(value)).clamp(port.lo - 0.5, port.hi + 0.5), q)

    def _left(self, value: Value, q: Tensor) -> Tensor:
        """The ONNX model's numbers of an output."""
        reals = _times(q, self._unit(value.name)) * step_of(value)
        if value.shifts is not None:
            samples = reals.reshape(-1, *value.shape)
            rank = samples.ndim
            axis = None if value.shifts.axis is None else value.shifts.axis + 1
            shifts = replace(value.shifts, axis=axis)
            factors, origins = (
                torch.as_tensor(a, dtype=q.dtype, device=q.device) for a in (shifts.factors(rank), shifts.origins(rank))
            )
            reals = (samples / factors + origins).reshape(q.shape)
        shape = self._graph.source_shapes.get(value.name, value.shape)
        return reals.reshape(-1, *shape[1:])

    def _step(self, node: Node, env: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The output of one node: of all samples at once, where the op keeps them apart."""
        graph, (output,) = self._graph, node.outputs
        active = [value for value in graph.ins(node) if not value.is_const]
        samples = env[active[0].name].numel() // active[0].size if active else 1
        y = graph[output]
        if samples == 1 or keeps_batch(graph, node):
            shape = (samples * y.shape[0], *y.shape[1:]) if y.shape else (samples,)
            return {output: self._compute(node, env, Value(y.name, shape, quant=y.quant))}
        parts = {v.name: env[v.name].reshape(samples, *v.shape).unbind(0) for v in active}
        results = [self._compute(node, {n: rows[i] for n, rows in parts.items()}, y) for i in range(samples)]
        return {output: torch.cat([torch.atleast_1d(x) for x in results])}

    def _compute(self, node: Node, env: Mapping[str, Tensor], y: Value) -> Tensor:
        """y: with the shape of what is made."""
        if node.op in WEIGHTED:
            x, unit = (self._unit(name) for name in (node.inputs[0], node.outputs[0]))
            result: Tensor = self._layer(node.name)(_times(env[node.inputs[0]], x), unit)
            return result.reshape(y.shape)
        operands = self._graph.ins(node)
        tensors = [env[v.name] for v in operands if not v.is_const]
        nearly = None
        if is_exact(node.op) or (torch.is_grad_enabled() and any(x.requires_grad for x in tensors)):
            nearly = self._meant(node, operands, env, y)
        if nearly is not None and is_exact(node.op):
            return nearly
        arrays = {v.name: env[v.name].detach().cpu().numpy().astype(v.dtype) for v in operands if not v.is_const}
        specified = reference.step(self._graph, node, arrays)[y.name].astype(np.float32)
        exact = torch.as_tensor(specified, device=tensors[0].device if tensors else None).reshape(y.shape)
        if nearly is None:
            return exact
        grid = quant_of(y)
        result = _Instead.apply(nearly.clamp(grid.lo - 0.5, grid.hi + 0.5), exact)
        return held(result, nearly, grid, self._unit(y.name))

    def _meant(self, node: Node, operands: Sequence[Value], env: Mapping[str, Tensor], y: Value) -> Tensor | None:
        """The result in steps, before it is rounded; None of an op without a gradient."""
        meaning = MEANINGS.get(node.op)
        if meaning is None:
            return None
        device = next((env[v.name].device for v in operands if not v.is_const), None)
        # What is on one grid with its operands does not depend on its step.
        unit = (lambda name: None) if is_exact(node.op) else self._unit
        reals = [
            _times(env[v.name], unit(v.name)) * step_of(v) if v.data is None else _constant(v, device) for v in operands
        ]
        result, own = meaning(node.params, reals, operands, y) / step_of(y), unit(y.name)
        return result if own is None else result / own


def _times(x: Tensor, unit: Tensor | None) -> Tensor:
    return x if unit is None else x * unit


def _constant(value: Value, device: torch.device | None) -> Tensor:
    """Reals of a constant."""
    assert value.data is not None
    grid = quant_of(value)
    shape = [1] * value.data.ndim
    if grid.axis is not None:
        shape[grid.axis] = len(grid.exponents)
    steps = np.exp2(np.array(grid.exponents, np.float64)).reshape(shape)
    return torch.as_tensor(value.data * steps, dtype=torch.float32, device=device)


def trained_behind(graph: Graph) -> set[str]:
    """Activations that layers reach, with a gradient. UnsupportedModel where it ends at an op without one."""
    behind: set[str] = set()
    rows = []
    for node in graph.nodes:
        trained = not behind.isdisjoint(node.inputs)
        if trained and node.op not in MEANINGS and node.op not in WEIGHTED:
            if not OPS[node.op].counted:
                rows.append((node.name, node.op, "an op without a gradient", ", ".join([*WEIGHTED, *MEANINGS])))
            continue
        if trained or node.op in WEIGHTED:
            behind.update(node.outputs)
    if rows:
        raise UnsupportedModel(rows)
    return behind
