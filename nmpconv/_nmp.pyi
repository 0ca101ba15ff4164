"""The compiled binding of the C API: see interpreter/python/module.cpp."""

from collections.abc import Sequence
from typing import Any, overload

from numpy import bool_, float32, float64, int8, int16, int32, int64, uint8
from numpy.typing import NDArray

THREADS_MAX: int  # of a net

class Fault(Exception):
    """args: status, its text, what, found, allowed, op, tensor (-1 where a number means nothing)."""

class Net:
    cpu: str
    fed: list[int]
    told: list[int]
    @overload
    def __init__(
        self,
        model: NDArray[uint8],
        arena: NDArray[uint8],
        cpu: str | None,
        threads: int = 1,
        custom: int = 0,
        fast: NDArray[uint8] | None = None,
    ) -> None: ...
    @overload
    def __init__(self, other: Net, arena: NDArray[uint8], threads: int = 0) -> None: ...
    def write(self, i: int, integers: NDArray[uint8], /) -> None: ...
    def read(self, tensors: list[int], to: list[NDArray[uint8]], /) -> None: ...
    def run_ops(self, first: int, last: int, /) -> None: ...
    def run_each(
        self,
        inputs: Sequence[NDArray[uint8] | NDArray[float32]],
        outputs: Sequence[NDArray[uint8] | NDArray[float64]],
        first: int,
        last: int,
        /,
    ) -> bool: ...
    def reset(self) -> None: ...
    def steps(self) -> list[tuple[int, int]]: ...
    def threads(self) -> list[int] | None: ...

def inspect(model: NDArray[uint8], cpu: str | None = None, threads: int = 1, custom: int = 0) -> dict[str, Any]: ...
def inspect_target(model: NDArray[uint8], target: str) -> dict[str, Any]: ...
def targets() -> list[str]: ...
def cpus() -> list[str]: ...
def version() -> str: ...

# For nmpconv/sums.py: the last arrays are the results.
def differences(
    product: NDArray[float64],
    wanted: NDArray[float32],
    to: NDArray[float64],
    of: NDArray[float64],
    sums: NDArray[float64],
    /,
) -> None: ...
def squares(
    product: NDArray[float64],
    wanted: NDArray[float32],
    by: NDArray[float64],
    output: NDArray[float64],
    before: bool,
    biases: NDArray[float64],
    sums: NDArray[float64],
    /,
) -> None: ...
def on_grid(x: NDArray[float32], scale: float, lo: float, hi: float, to: NDArray[int8] | NDArray[int16], /) -> bool: ...
def moments(rows: NDArray[int8], products: NDArray[int32], totals: NDArray[int32], /) -> None: ...
def by_channel(rows: NDArray[int8] | NDArray[int16], weights: NDArray[int16], out: NDArray[float64], /) -> None: ...
def extremes(x: NDArray[float32], found: NDArray[float32], /) -> None: ...
def bins(x: NDArray[float32], scale: float, counts: NDArray[int64], /) -> int: ...
def bin_errors(
    table: NDArray[float64],
    ends: NDArray[bool_],
    grids: NDArray[float64],
    lo: float,
    hi: float,
    saturated: float,
    found: NDArray[float64],
) -> None: ...
def points(
    bins: NDArray[int64],
    counts: NDArray[float64],
    of: tuple[float, float, float, float],
    grids: NDArray[float64],
    sizes: NDArray[int64],
    x: NDArray[float64],
    weight: NDArray[float64],
    /,
) -> None: ...
def nearest(
    x: NDArray[float64],
    sizes: NDArray[int64],
    steps: NDArray[float64],
    origins: NDArray[float64],
    ends: tuple[float, float],
    table: NDArray[float64],
    got: NDArray[float64],
    /,
) -> None: ...
def errors_after(
    x: NDArray[float64],
    weight: NDArray[float64],
    signal: NDArray[float64],
    got: NDArray[float64],
    sizes: NDArray[int64],
    steps: NDArray[float64],
    origins: NDArray[float64],
    ends: tuple[float, float],
    saturated: float,
    power: NDArray[float64],
    errors: NDArray[float64],
    /,
) -> None: ...
def round_columns(
    w: NDArray[float64],
    goal: NDArray[float64],
    shares: NDArray[float64],
    step: NDArray[float64],
    limits: NDArray[float64],
    start: int,
    q: NDArray[float64],
    errors: NDArray[float64],
    /,
) -> None: ...
