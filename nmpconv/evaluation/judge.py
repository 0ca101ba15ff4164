"""The outputs of a converted model compared with those of the float model, sample by sample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from nmpconv.base import confidence
from nmpconv.base.sqnr import Sqnr, each_db, effects, head, mean_db, ratio_db
from nmpconv.errors import InputError
from nmpconv.frontend.input_values import of_config
from nmpconv.frontend.read import read
from nmpconv.runtime.feed import Arrays, Feed
from nmpconv.runtime.interpreter import Net

# ONNX ops that keep the order of elements.
MOVES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout")
COUNTED = ("ArgMax", "ArgMin", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal", "Not", "And", "Or", "Xor")


class Judge:
    """The float model next to the net. heads: the tensors of the net that it wants to see."""

    def __init__(self, net: Net, reference: Path, feed: Feed) -> None:
        proto = read(reference, *of_config(net.model.config))
        known = [value.name for value in proto.graph.input]
        if missing := [name for name in feed.shapes() if name not in known]:
            raise InputError(
                f"the reference has no input {missing[0]!r}, which the converted model has",
                where=str(reference),
                hint="give the ONNX file that was converted",
            )
        self.where = str(reference)
        self._outputs = [(port.name, port.tensor) for port in net.outputs]
        self._theirs = _onnx_heads(proto, [name for name, _ in self._outputs])
        self.heads = _heads(net)
        self.fetch = tuple(dict.fromkeys([*(n for n, _ in self._outputs), *self._theirs]))
        self.model = proto.SerializeToString()
        judged = (*self.heads, *(tensor for _, tensor in self._outputs))
        self._weights = {tensor: _weight(net, tensor) for tensor in judged}
        self._counted = [name for name, _ in self._outputs if is_counted(proto, name)]
        self._sqnr = {name: Sqnr() for name, _ in self._outputs if name not in self._counted}
        self._equal: dict[str, list[np.ndarray]] = {name: [] for name in self._counted}

    def add(self, floats: Arrays, outputs: Sequence[np.ndarray], heads: Sequence[np.ndarray]) -> None:
        """Takes in one sample: what `run` gave, and the net's."""
        rows = zip(self._outputs, self._theirs, outputs, self.heads, heads, strict=True)
        for (name, tensor), theirs, output, head_tensor, ours in rows:
            if floats[name].size != output.size:
                raise InputError(
                    f"output {name!r} of the reference has shape {list(floats[name].shape)}, "
                    f"that of the converted model {list(output.shape)}",
                    where=self.where,
                )
            if name in self._counted:
                self._equal[name].append(floats[name].ravel() == output.ravel())
                continue
            # Both before the Softmax, or, where one side has another layout or no Softmax there, both after it.
            vectors = np.squeeze(floats[theirs]).shape == np.squeeze(ours).shape and np.squeeze(ours).ndim <= 2
            cut = vectors and theirs != name and head_tensor != tensor
            pair = (floats[theirs], ours) if cut else (floats[name].reshape(output.shape), output)
            weight = self._weights[head_tensor if cut else tensor]
            self._sqnr[name].add(pair[0] * weight, pair[1] * weight)

    def sqnr(self) -> dict[str, float]:
        return {name: ratio.db for name, ratio in self._sqnr.items()}

    def figures(self) -> dict[str, Any]:
        """Figures of all samples for `nmpconv.base.verdict.quality`; SQNR, or what is equal where no output has one."""
        if not self._sqnr:
            rows = zip(*self._equal.values(), strict=True)
            return {"each_equal": [100 * float(np.mean(np.concatenate(row))) for row in rows]}
        signals, noises = np.array([ratio.pieces for ratio in self._sqnr.values()]).transpose(2, 0, 1)
        db = mean_db(self.sqnr().values())
        margin = confidence.margin(effects(signals, noises)) if math.isfinite(db) else None
        silent = not (signals.any() or noises.any())
        return {"db": db, "db_margin": margin, "each_db": each_db(signals, noises), "silent": silent}

    def last_db(self) -> float | None:
        """The SQNR of the last sample, the mean over its outputs; None without an output that has one."""
        return mean_db(ratio_db(*ratio.pieces[-1]) for ratio in self._sqnr.values()) if self._sqnr else None

    def equal(self) -> dict[str, float]:
        return {name: 100 * float(np.mean(parts)) for name, parts in self._equal.items()}


def _weight(net: Net, tensor: int) -> float | np.ndarray:
    """Weights of errors, so that they count in steps of an output's parts' own grids; 1.0 where there is one grid."""
    output = net.model.tensors[tensor]
    return 1.0 if output.shifts is None else output.shifts.factors(len(output.shape))


def _heads(net: Net) -> list[int]:
    """Tensors that the float model is compared with at each output: tensors."""
    makers = {out: (op.kind, op.inputs[0]) for op in net.model.ops for out in op.outputs}
    return [head(port.tensor, makers.get) for port in net.outputs]


def _onnx_heads(proto: onnx.ModelProto, outputs: Sequence[str]) -> list[str]:
    makers = {name: (node.op_type, node.input[0]) for node in proto.graph.node if node.input for name in node.output}
    return [head(name, makers.get, "Softmax", MOVES) for name in outputs]


def is_counted(proto: onnx.ModelProto, output: str) -> bool:
    """Checks that the elements of an output are indices or truth: right or wrong, without a distance."""
    makers = {name: node for node in proto.graph.node for name in node.output}
    at = output
    while at in makers and makers[at].op_type in (*MOVES, "Cast", "Transpose"):
        at = makers[at].input[0]
    if at in makers and makers[at].op_type == "TopK":
        return at == makers[at].output[1]
    return at in makers and makers[at].op_type in COUNTED
