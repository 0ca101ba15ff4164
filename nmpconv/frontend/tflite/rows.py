"""Functions that write a TFLite operator: they take the call and return the names of its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nmpconv.frontend.tflite.onnx_writer import OperatorCall

Write = Callable[[OperatorCall], str | Sequence[str]]


def same(kind: str, count: int = 1, **attributes: Any) -> Write:
    """ONNX's operator of the same meaning, of the first ``count`` inputs."""

    def write(call: OperatorCall) -> str:
        return call(kind, *(call.input(place) for place in range(count)), **attributes)

    return write


def chain(*kinds: str) -> Write:
    """ONNX's operators of one input, one after the other."""

    def write(call: OperatorCall) -> str:
        name = call.input(0)
        for kind in kinds:
            name = call(kind, name)
        return name

    return write


def passed(call: OperatorCall) -> str:
    """The input as it is: what the operator does to it is between its grid and that of the result."""
    return call.input(0)
