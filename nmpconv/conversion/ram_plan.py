"""Memory plan for a limit of RAM: bands of lines, separate pools, and the offset of each activation."""

from __future__ import annotations

from collections.abc import Callable

from nmpconv.base.memory_spec import Memories
from nmpconv.errors import Unsupported
from nmpconv.file.writer import to_bytes
from nmpconv.ir import Graph
from nmpconv.passes import residual_operands
from nmpconv.passes.memory import bands, plan_memory, separate_pools, two_memories
from nmpconv.runtime import targets

Checked = Callable[[Graph, str, str], Graph]  # passes.trace

EXTRA_WORK = 0.01  # of all work, that bands of lines may cost where the target is a microcontroller
ATTEMPTS = 6


def planned(
    graph: Graph, max_ram: int | None, target: str | None, trace: Checked, memories: Memories | None = None
) -> Graph:
    """The graph in bands where it has to be, with offsets.

    max_ram: bytes of activations; for a microcontroller of all that a run takes. memories: in place of it. Raises
    Unsupported where it does not fit.
    """
    if memories is not None:
        return _in_two(graph, memories, target, trace)
    if target not in targets.MICROCONTROLLERS:
        # On a PC RAM is plenty, and an op whose result overlaps its input copies that first.
        return _within(graph, max_ram, 0.0, trace)
    plan = _within(graph, max_ram, EXTRA_WORK, trace)
    for _ in range(ATTEMPTS):
        over = targets.needs(to_bytes(plan, {}), target).arena - (max_ram or 0)
        if max_ram is None or over <= 0:
            return plan
        room = plan_memory.peak(plan) - over
        try:
            plan = _within(graph, room, EXTRA_WORK, trace)
        except Unsupported as error:
            message = f"{error.message}: {max_ram - room} of {max_ram} are for scratch and handle"
            raise Unsupported(message, hint="more RAM, a smaller input, or 8 bits") from error
    raise Unsupported(
        f"no plan for {max_ram} bytes in {ATTEMPTS} attempts: each needs more scratch than the one before left to it",
        where="--max-ram",
        hint="a little more RAM",
    )


def _in_two(graph: Graph, memories: Memories, target: str | None, trace: Checked) -> Graph:
    """In the fast memory alone where all of a run fits, else in both.

    An op whose result lies over its input, or in the slow memory, has other scratch. So each attempt reserves the
    scratch that the plan before it needed. If an op still needs more after the last attempt, its scratch lies in the
    slow memory.
    """
    single = planned(graph, None, target, trace)
    data = to_bytes(single, {})
    alone = _arena(data, target)
    if alone <= memories.fast:
        return single
    scratch = targets.scratch(data, target)
    for _ in range(ATTEMPTS):
        two = two_memories.run(single, memories.fast, scratch)
        split_scratch = targets.scratch(to_bytes(two, {}), target)
        if all(now <= before for now, before in zip(split_scratch, scratch, strict=True)):
            break
        scratch = [max(sizes) for sizes in zip(split_scratch, scratch, strict=True)]
    two = trace(two, "PLANNED", "two_memories")
    needs = _arena(to_bytes(two, {}), target)
    if needs - two.fast_bytes > memories.slow:
        raise Unsupported(
            f"fast={two.fast_bytes},slow={needs - two.fast_bytes} is needed in bytes, "
            f"fast={memories.fast},slow={memories.slow} is there; {alone} bytes of one memory would do",
            hint="more RAM, a smaller input, 8 bits, or --max-ram, which computes in bands",
        )
    return two


def _arena(data: bytes, target: str | None) -> int:
    """Bytes of the arena on a microcontroller; None or the host: the most of all of them."""
    wanted = (target,) if target in targets.MICROCONTROLLERS else targets.MICROCONTROLLERS
    return max(targets.needs(data, name).arena for name in wanted)


def _within(graph: Graph, room: int | None, share: float, trace: Checked) -> Graph:
    banded = residual_operands.run(graph)
    if room is not None and plan_memory.peak(plan_memory.run(banded, room, share=share)) > room:
        banded = residual_operands.run(bands.run(graph, room, residual_operands.run))
    plan = trace(plan_memory.run(trace(banded, "INT", "bands"), room, share=share), "PLANNED", "plan_memory")
    if (apart := separate_pools.run(banded)) is banded:
        return plan
    quick = plan_memory.run(apart, share=share)
    return trace(quick, "PLANNED", "separate_pools") if plan_memory.peak(quick) <= plan_memory.peak(plan) else plan
