"""Needs of a file on each kind of machine, before it is there: the interpreter tells, for all of them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from nmpconv.runtime import interpreter

HOST = "host"
# kB of flash that a bundle's interpreter takes, least and most: what bench/mcu.py measures for the MLPerf Tiny nets.
INTERPRETER = {
    "cortex-m0plus": (16, 38),
    "cortex-m3": (13, 32),
    "cortex-m4": (12, 28),
    "cortex-m55": (9, 25),
    "rv32": (17, 42),
}
# Bytes of stack of any file, and of one without ops and convolutions that multiply rows (tests/bench/test_stack.py).
DEEP_STACK, STACK = 3328, 2048
DEEP = frozenset({"conv_transpose"})
MICROCONTROLLERS = tuple(INTERPRETER)
TARGETS = (HOST, *MICROCONTROLLERS)


@dataclass(frozen=True)
class Needs:
    """Bytes of RAM. arena: all that a run takes, as the interpreter reports it there with all ops and one thread.
    handle: of the arena, with scratch for which there is no room among the activations. scratch: of the hungriest op.
    exact: the file's integers are those that will run. interpreter: kB of flash, see INTERPRETER.
    """

    target: str
    arena: int
    activations: int
    handle: int
    scratch: int
    packed: int
    exact: bool
    interpreter: tuple[int, int] | None = None


def needs(data: bytes, target: str, *, exact: bool = True) -> Needs:
    """data: the file. target: of `TARGETS`. Raises ModelError where the interpreter refuses the file."""
    if target == HOST:
        info = interpreter.needs(data)
        arena, scratch, packed = (info[f"{part}_bytes"] for part in ("arena", "scratch", "packed"))
    else:
        there = interpreter.needs_of_target(data, target)
        info, arena, scratch, packed = vars(there), there.arena_bytes, max(there.scratch_bytes, default=0), 0
    activations = info["activation_bytes"]
    rest = arena - activations - packed
    return Needs(target, arena, activations, rest, scratch, packed, exact, INTERPRETER.get(target))


def scratch(data: bytes, target: str | None) -> list[int]:
    """Bytes of scratch of each op on a microcontroller; None or the host: the most of all of them."""
    wanted = (target,) if target in MICROCONTROLLERS else MICROCONTROLLERS
    return [
        max(sizes) for sizes in zip(*(interpreter.needs_of_target(data, t).scratch_bytes for t in wanted), strict=True)
    ]


def needs_portable(data: bytes, target: str) -> bool:
    """Checks that a microcontroller's own kernels leave a convolution of the file to the portable ones."""
    return any(interpreter.needs_of_target(data, target).portable)


def most(data: bytes) -> int:
    """Bytes of the arena, on whatever machine runs the interpreter with the kernels of its compiler's target."""
    return max(interpreter.needs_of_target(data, target).arena_bytes for target in interpreter.targets())


def stack(data: bytes, kinds: Collection[str]) -> int:
    """Bytes of stack that `nmp_create` and `nmp_run` take at most on a Cortex-M with DSP instructions, compiled by gcc
    (bench/stack.py). kinds: the file's ops.
    """
    deep = not DEEP.isdisjoint(kinds) or needs_portable(data, "cortex-m4")
    return DEEP_STACK if deep else STACK
