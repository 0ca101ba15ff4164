"""Base of ops along one axis, which their parameters name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nmpconv.ir import Value
from nmpconv.ops.op import Op


class AlongAxis(Op):
    def keeps_batch(self, params: Any, inputs: Sequence[Value], output: Value) -> bool:
        return bool(params.axis % len(output.shape) != 0)

    def renamed(self, params: Any, axes: Sequence[int]) -> Any:
        return replace(params, axis=axes[params.axis])
