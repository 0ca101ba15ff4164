"""RNN, GRU and LSTM, unrolled over time. Source of the formulas: ONNX, RNN-22, GRU-22 and LSTM-22.

What the input contributes to the gates of all steps is one matrix product; each step adds what its state does. The
axis of time stays, with one element, through all of a step: [1, batch, hidden] needs no reshape to become a row of Y.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from nmpconv.errors import Invalid, Unsupported
from nmpconv.frontend.expand.node_builder import Body
from nmpconv.ops.onnx_node import OnnxNode

STEPS_MAX = 1024  # of time, in both directions together
Activation = Callable[[str], str]
Recurrence = Callable[[int, int], str]  # weights of the gates from the first one to the last one
# Attributes of activations, with defaults where the op has others than ONNX's recurrent ops, or has none.
_NUMBERS = {
    "Affine": (1.0, 0.0),
    "Elu": (1.0,),
    "HardSigmoid": (0.2, 0.5),
    "LeakyRelu": (0.01,),
    "ScaledTanh": (1.0, 1.0),
    "ThresholdedRelu": (1.0,),
}
_PLAIN = ("Relu", "Sigmoid", "Softplus", "Softsign", "Tanh")
_DEFAULTS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


@dataclass(frozen=True)
class _Sizes:
    steps: int
    batch: int
    hidden: int


@dataclass(frozen=True)
class _Direction:
    """Weights and states of one direction. inputs: of each step, [1, batch, gates * hidden], without the state's part.

    recurrence: [hidden, gates * hidden]; bias: of that part, apart from the inputs' where the op needs it apart.
    """

    sizes: _Sizes
    inputs: Sequence[str]
    recurrence: np.ndarray
    bias: np.ndarray
    peepholes: np.ndarray | None
    activations: Sequence[Activation]
    clip: float


def recurrent(node: OnnxNode, body: Body) -> None:
    """Y [steps, directions, batch, hidden], Y_h and for an LSTM Y_c [directions, batch, hidden]; batch first where
    layout is 1.
    """
    x = node.input(0)
    first = bool(node.integer("layout", 0))
    if first:
        x = body("Transpose", x, perm=[1, 0, 2])
    steps, batch, _ = body.shape(x)
    w, r = (body.to.array(node.input(i), role).astype(np.float32) for i, role in ((1, "weight"), (2, "recurrence")))
    sizes = _Sizes(steps, batch, r.shape[-1])
    count = {"forward": 1, "reverse": 1, "bidirectional": 2}.get(node.text("direction", "forward"))
    gates = _GATES[node.op_type]
    if count is None or w.shape[:2] != (count, gates * sizes.hidden) or r.shape[:2] != w.shape[:2]:
        raise Invalid(f"weights {list(w.shape)} and {list(r.shape)} of direction {node.text('direction', 'forward')}")
    if steps * count > STEPS_MAX:
        raise Unsupported(f"{steps * count} steps of time", hint=f"at most {STEPS_MAX}, in windows")
    lengths = body.array(4, "sequence_lens")
    alive = _alive(lengths, sizes)
    states = [_initial(node, body, place, first) for place in ((5, 6) if node.op_type == "LSTM" else (5,))]
    results: list[list[str]] = [[] for _ in range(1 + len(states))]  # of each direction: Y, Y_h, Y_c
    for d in range(count):
        direction = _direction(node, body, x, sizes, d, w[d], r[d])
        backwards = d == 1 or node.text("direction", "forward") == "reverse"
        start = [_of_direction(body, state, d) for state in states]
        for parts, part in zip(results, _run(node, body, direction, start, alive, backwards), strict=True):
            parts.append(part)
    joined = [parts[0] if count == 1 else body("Concat", *parts, axis=1 - bool(i)) for i, parts in enumerate(results)]
    orders = ([2, 0, 1, 3], [1, 0, 2], [1, 0, 2])
    for result, output, perm in zip(joined, node.outputs, orders, strict=False):
        if output:
            if first:
                body("Transpose", result, perm=perm, output=output)
            else:
                body.rename(result, output)


def _alive(lengths: np.ndarray | None, sizes: _Sizes) -> np.ndarray:
    """[steps, batch, 1]: 1 where a sequence has not ended."""
    if lengths is None:
        return np.ones((sizes.steps, sizes.batch, 1), np.float32)
    if lengths.shape != (sizes.batch,) or lengths.min() < 0 or lengths.max() > sizes.steps:
        raise Invalid(f"sequence_lens {lengths.tolist()}", hint=f"{sizes.batch} numbers from 0 to {sizes.steps}")
    return (np.arange(sizes.steps)[:, None, None] < lengths[:, None]).astype(np.float32)


def _initial(node: OnnxNode, body: Body, place: int, first: bool) -> str:
    """[directions, batch, hidden], '' for zeros."""
    name = node.input(place)
    if not name or (body.to.is_const(name) and not body.to.constants[name].any()):
        return ""
    return body("Transpose", name, perm=[1, 0, 2]) if first else name


def _of_direction(body: Body, state: str, d: int) -> str:
    """[1, batch, hidden]."""
    return body("Gather", state, np.array([d]), axis=0) if state else ""


def _direction(node: OnnxNode, body: Body, x: str, sizes: _Sizes, d: int, w: np.ndarray, r: np.ndarray) -> _Direction:
    biases = body.array(3, "bias")
    width = w.shape[0]
    input_bias, bias = np.split(np.zeros(2 * width, np.float32) if biases is None else biases[d].astype(np.float32), 2)
    apart = node.op_type == "GRU" and bool(node.integer("linear_before_reset", 0))
    if apart:  # the reset gate is applied to the hidden gate's own bias, too
        hidden_gate = np.arange(width) >= 2 * sizes.hidden
        input_bias, bias = (
            input_bias + np.where(hidden_gate, 0, bias),
            np.where(hidden_gate, bias, 0).astype(np.float32),
        )
    else:
        input_bias, bias = input_bias + bias, np.zeros_like(bias)
    rows = body("Add", body("MatMul", x, np.ascontiguousarray(w.T)), input_bias)
    steps = [body("Gather", rows, np.array([t]), axis=0) for t in range(sizes.steps)]
    peepholes = body.array(7, "peepholes") if node.op_type == "LSTM" else None
    clip = node.number("clip", 0.0)
    return _Direction(
        sizes, steps, np.ascontiguousarray(r.T), bias, None if peepholes is None else peepholes[d],
        _activations(node, body, d), clip,
    )  # fmt: skip


def _activations(node: OnnxNode, body: Body, d: int) -> list[Activation]:
    defaults = _DEFAULTS[node.op_type]
    names = [str(name if isinstance(name, str) else name.decode()) for name in node.attributes.get("activations", ())]
    names = names or [name for _ in range(d + 1) for name in defaults]
    alphas, betas = list(node.attributes.get("activation_alpha", ())), list(node.attributes.get("activation_beta", ()))
    activations = []
    for name in names:
        activation = next((kind for kind in (*_NUMBERS, *_PLAIN) if kind.lower() == name.lower()), None)
        if activation is None:
            raise Unsupported(f"activation {name}", hint=", ".join((*_PLAIN, *_NUMBERS)))
        numbers = list(_NUMBERS.get(activation, ()))
        for place, values in enumerate((alphas, betas)):
            if place < len(numbers) and values:
                numbers[place] = float(values.pop(0))
        activations.append(_activation(body, activation, numbers))
    return activations[d * len(defaults) : (d + 1) * len(defaults)]


def _activation(body: Body, kind: str, numbers: Sequence[float]) -> Activation:
    if kind == "Affine":
        return lambda x: body("Add", body("Mul", x, numbers[0]), numbers[1])
    if kind == "ScaledTanh":
        return lambda x: body("Mul", body("Tanh", body("Mul", x, numbers[1])), numbers[0])
    options: dict[str, Any] = dict(zip(("alpha", "beta"), numbers, strict=False))
    return lambda x: body(kind, x, **options)


def _run(
    node: OnnxNode, body: Body, at: _Direction, states: list[str], alive: np.ndarray, backwards: bool
) -> list[str]:
    """[Y, last states], with the axis of directions, of size 1, in which the states have that of time."""
    step = _STEPS[node.op_type]
    recurrence = _recurrence(body, at)
    outputs: list[str] = [""] * at.sizes.steps
    zeros = np.zeros((1, at.sizes.batch, at.sizes.hidden), np.float32)
    for t in range(at.sizes.steps)[:: -1 if backwards else 1]:
        if not alive[t].any():
            outputs[t] = body.operand(zeros)
            continue
        new = step(node, body, at, at.inputs[t], states, recurrence)
        if alive[t].all():
            outputs[t] = new[0]
        else:
            outputs[t] = body("Mul", new[0], alive[t])
            new = [
                body("Add", body("Mul", value, alive[t]), body("Mul", old, 1 - alive[t])) if old
                else body("Mul", value, alive[t])
                for value, old in zip(new, states, strict=True)
            ]  # fmt: skip
        states = new
    whole = body("Concat", *outputs, axis=0) if len(outputs) > 1 else outputs[0]
    return [body("Unsqueeze", whole, np.array([1])), *(state or body.operand(zeros) for state in states)]


def _recurrence(body: Body, at: _Direction) -> Recurrence:
    """Returns what gives one constant, for all steps, [hidden, gates * hidden]."""
    hidden = at.sizes.hidden
    return cache(
        lambda first, last: body.operand(np.ascontiguousarray(at.recurrence[:, first * hidden : (last + 1) * hidden]))
    )


def _gates(body: Body, at: _Direction, x: str, h: str, recurrence: Recurrence, gates: Sequence[int]) -> list[str]:
    """x + h @ R + bias for these gates, clipped; without h where it is 0. gates: consecutive ones."""
    hidden = at.sizes.hidden
    bounds = np.array([gates[0] * hidden]), np.array([(gates[-1] + 1) * hidden]), np.array([-1])
    total = body("Slice", x, *bounds)
    bias = at.bias[gates[0] * hidden : (gates[-1] + 1) * hidden]
    if h:
        total = body("Add", body("MatMul", h, recurrence(gates[0], gates[-1])), total)
    if bias.any():
        total = body("Add", total, bias)
    total = _clipped(body, at, total)
    if len(gates) == 1:
        return [total]
    names = [body.name("gate") for _ in gates]
    return body.several("Split", (total,), names, axis=-1, num_outputs=len(gates))


def _clipped(body: Body, at: _Direction, x: str) -> str:
    return body("Clip", x, -at.clip, at.clip) if at.clip else x


def _rnn(node: OnnxNode, body: Body, at: _Direction, x: str, states: list[str], recurrence: Recurrence) -> list[str]:
    """h = f(x + h @ R)."""
    [gate] = _gates(body, at, x, states[0], recurrence, (0,))
    return [at.activations[0](gate)]


def _gru(node: OnnxNode, body: Body, at: _Direction, x: str, states: list[str], recurrence: Recurrence) -> list[str]:
    """z, r = f(..), c = g(x + (r * h) @ R) or g(x + r * (h @ R + b)); h = c + z * (h - c)."""
    [h], (f, g), hidden = states, at.activations, at.sizes.hidden
    z, r = (f(gate) for gate in _gates(body, at, x, h, recurrence, (0, 1)))
    third = np.array([2 * hidden]), np.array([3 * hidden]), np.array([-1])
    total = body("Slice", x, *third)
    bias = at.bias[2 * hidden :]
    if node.integer("linear_before_reset", 0):
        own = body("MatMul", h, recurrence(2, 2)) if h else ""
        if own or bias.any():
            own = body("Add", own, bias) if own else body.operand(bias.reshape(1, 1, hidden))
            total = body("Add", total, body("Mul", r, own))
    elif h:
        total = body("Add", body("MatMul", body("Mul", r, h), recurrence(2, 2)), total)
    candidate = g(_clipped(body, at, total))
    if not h:
        return [body("Sub", candidate, body("Mul", z, candidate))]
    return [body("Add", candidate, body("Mul", z, body("Sub", h, candidate)))]


def _lstm(node: OnnxNode, body: Body, at: _Direction, x: str, states: list[str], recurrence: Recurrence) -> list[str]:
    """i, o, f = f(..), c = f * c + i * g(..), h = o * h(c); peepholes add what the cell sees to the gates."""
    (h, c), (f, g, last), hidden = states, at.activations, at.sizes.hidden
    clip, at = at.clip, _unclipped(at)
    gates = _gates(body, at, x, h, recurrence, (0, 1, 2, 3))
    peepholes = None if at.peepholes is None else np.split(at.peepholes.astype(np.float32), 3)  # of i, o, f

    def gate(index: int, cell: str) -> str:
        total = gates[index]
        if peepholes is not None and cell:
            total = body("Add", total, body("Mul", cell, peepholes[index].reshape(1, hidden)))
        return body("Clip", total, -clip, clip) if clip else total

    i = f(gate(0, c))
    new = body("Mul", i, g(gate(3, "")))
    if c:
        forget = body("Sub", 1.0, i) if node.integer("input_forget", 0) else f(gate(2, c))
        new = body("Add", body("Mul", forget, c), new)
    return [body("Mul", f(gate(1, new)), last(new)), new]


def _unclipped(at: _Direction) -> _Direction:
    return _Direction(at.sizes, at.inputs, at.recurrence, at.bias, at.peepholes, at.activations, 0.0)


_STEPS = {"RNN": _rnn, "GRU": _gru, "LSTM": _lstm}
ALWAYS = dict.fromkeys(_STEPS, recurrent)
