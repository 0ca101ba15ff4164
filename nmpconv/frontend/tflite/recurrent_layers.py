"""Recurrent operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from nmpconv.errors import Unsupported
from nmpconv.frontend.tflite.onnx_writer import OperatorCall
from nmpconv.frontend.tflite.rows import Write
from nmpconv.frontend.tflite.tflite_schema import ACTIVATIONS

_TANH = ACTIVATIONS.index("TANH")
_INPUT, _RECURRENT, _BIASES = (1, 5, 12)  # the first of four inputs, of the gates i, f, c, o
_UNREAD = (9, 10, 11, 16, 17, 20, 21, 22, 23)  # peepholes, a projection, normalization


def unidirectional_sequence_lstm(call: OperatorCall) -> str:
    """[N,T,C] or, by an option, [T,N,C]. States begin at 0. Source: LiteRT, unidirectional_sequence_lstm.cc."""
    if any(call.has(place) for place in _UNREAD):
        raise Unsupported("peepholes, a projection or layer normalization", hint="a plain LSTM")
    if not call.has(_INPUT):
        raise Unsupported("an input gate that is coupled with the forget gate", hint="a plain LSTM")
    if call.options.get("cell_clip") or call.options.get("proj_clip"):
        raise Unsupported("clipped states", hint="a plain LSTM")
    x, turned = call.input(0), not call.options.get("time_major")
    if turned:
        x = call("Transpose", x, perm=[1, 0, 2])
    w, r, b = (
        _gates(call, first, role) for first, role in ((_INPUT, "weights"), (_RECURRENT, "weights"), (_BIASES, "bias"))
    )
    bias = np.concatenate([b, np.zeros_like(b)], axis=1)
    y = call("LSTM", x, w, r, bias, hidden_size=r.shape[2])
    y = call("Squeeze", y, np.array([1], np.int64))
    return call("Transpose", y, perm=[1, 0, 2]) if turned else y


def _gates(call: OperatorCall, first: int, role: str) -> np.ndarray:
    """Constants of four gates in ONNX's order i, o, f, c, for one direction."""
    gates: Sequence[np.ndarray] = [call.array(first + gate, role) for gate in (0, 3, 1, 2)]
    return np.concatenate(gates)[np.newaxis].astype(np.float32)


def _with_tanh(call: OperatorCall) -> str:
    """The cell's activation, which the option names, is not the result's."""
    if call.options.get("fused_activation_function") != _TANH:
        raise Unsupported("another activation than TANH", hint="TANH")
    call.options = {name: value for name, value in call.options.items() if name != "fused_activation_function"}
    return unidirectional_sequence_lstm(call)


ROWS: Mapping[str, Write] = {"UNIDIRECTIONAL_SEQUENCE_LSTM": _with_tanh}
