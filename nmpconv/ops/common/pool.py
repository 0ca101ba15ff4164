"""Base of pools, which slide a window over H and W of x [N,H,W,C]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from nmpconv.ir import Value
from nmpconv.ops.common.rules import rank
from nmpconv.ops.common.traits import Rule
from nmpconv.ops.common.window import pool_out, renamed_window
from nmpconv.ops.op import Op


class Pool(Op):
    monotone = True
    homogeneous = True

    def infer(self, params: Any, inputs: Sequence[Value]) -> list[tuple[int, ...]]:
        return [pool_out(params, inputs[0].shape)]

    def rules(self, params: Any, inputs: Sequence[Value], output: Value) -> Iterator[Rule]:
        """Conditions that `pool_out` relies on."""
        yield rank(inputs[0], 4)
        yield f"a kernel of {params.kernel_h} x {params.kernel_w}", min(params.kernel_h, params.kernel_w) >= 1

    def work(self, params: Any, inputs: Sequence[Value], output: Value) -> int:
        """Elements of all windows; padding costs nothing."""
        _, height, width, _ = inputs[0].shape
        return output.size * min(params.kernel_h, height) * min(params.kernel_w, width)

    def reads(self, params: Any, inputs: Sequence[Value], output: Value) -> list[int]:
        return [self.work(params, inputs, output)]

    def by_channel(self, params: Any, inputs: Sequence[Value], output: Value) -> bool:
        return True

    def renamed(self, params: Any, axes: Sequence[int]) -> Any | None:
        return renamed_window(params, axes)
