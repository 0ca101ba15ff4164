"""Tables of the memory plan: tensor by step, then step by step."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from nmpconv.cli import console

if TYPE_CHECKING:
    from nmpconv.file.memory_map import Life, Memory, Step
    from nmpconv.file.reader import Model

WIDTH = 100  # columns of the picture where there is no terminal, names and figures included
NAME = 24  # columns of a name, at most a fourth of all
LEAST = 10
BAR = 24
MOVED = (">moved fast", ">moved slow")


def show_memory(model: Model, scratch: Sequence[int], target: str) -> None:
    """The figures, the picture, and the steps with what they need. scratch: bytes of each op on the target, a text."""
    from nmpconv.file.memory_map import memory

    plan = memory(model, scratch)
    if plan is None:
        console.line("no ops, no memory")
        return
    edge = console.columns() or WIDTH
    console.facts(_facts(model, plan, target))
    for line in _picture(model, plan, edge):
        console.line(line)
    console.line()
    ops = _names(model, NAME)
    rows = [_step_row(i, model, plan, ops) for i in range(len(plan.steps))]
    console.table(
        ("#", "op", "name", ">alive", ">ends at", ">scratch", *MOVED * bool(model.fast_bytes), "of the arena"),
        rows,
        title="Steps (# alive, . between, + scratch)",
    )


def _facts(model: Model, plan: Memory, target: str) -> list[tuple[str, str]]:
    op, step = model.ops[plan.peak], plan.steps[plan.peak]
    short = console.of_files([model])
    live = [f"{model.tensors[i].nbytes:>10} B  {short[model.tensors[i].name]}" for i in step.live]
    return [
        ("activations", f"{model.arena_bytes} B, of which at least {plan.lower_bound} B are alive at once"),
        ("with scratch", f"{plan.with_scratch} B on {target}"),
        ("memories", _memories(model, plan)),
        ("peak", f"step {plan.peak}, {op.kind} {short[op.name]}: {step.bytes} B are alive"),
        ("", ""),
        ("alive then", "\n".join(live)),
    ]


def _memories(model: Model, plan: Memory) -> str:
    """Sizes and traffic of two memories; '' of one."""
    from nmpconv.file.memory_map import least_slow

    if not model.fast_bytes:
        return ""
    fast, slow = (sum(step.moved[i] for step in plan.steps) for i in range(2))
    least = least_slow(model)
    bound = "" if least is None else f", at least {least} B"
    copied = [step.copied for step in plan.steps if step.copied]
    copies = f"; weights of {len(copied)} op(s) are copied there first, {sum(copied)} B" if copied else ""
    return f"{model.fast_bytes} B fast, then slow; ops move {fast} B fast, {slow} B slow{bound}{copies}"


def _picture(model: Model, plan: Memory, edge: int) -> Iterator[str]:
    """Pages of steps, each with the tensors that are alive then. edge: columns of all."""
    room = max(LEAST, min(NAME, edge // 4))
    names = _names(model, room)
    sizes = [tensor.nbytes for tensor in model.tensors if tensor.offset is not None]
    digits = max(7, len(str(model.arena_bytes)), len(str(max(sizes, default=0))))
    head = f"{'offset':>{digits}} {'bytes':>{digits}}  {'tensor':{room}} "
    cell = max(1, min(3, (edge - len(head)) // len(plan.steps)))
    per_page = max(1, (edge - len(head)) // cell)
    lives = sorted(plan.lives, key=lambda life: (model.tensors[life.tensor].offset or 0, life.first))
    held = "█" if console.decorated(sys.stdout) else "="
    yield f"Memory plan, tensor by step: W made, @ made over its input, r read, {held} kept"
    for first in range(0, len(plan.steps), per_page):
        steps = range(first, min(first + per_page, len(plan.steps)))
        yield (head + _numbers(steps, cell)).rstrip()
        for life in lives:
            if not any(life.alive(step) for step in steps):
                continue
            tensor = model.tensors[life.tensor]
            cells = "".join(_mark(life, step, model, held) * cell for step in steps).rstrip()
            yield f"{tensor.offset:>{digits}} {tensor.nbytes:>{digits}}  {names[tensor.name]:{room}} {cells}"
        yield f"{'alive, in % of the arena':>{len(head) - 1}} {_levels(plan, model, steps, cell)}".rstrip()


def _numbers(steps: range, cell: int) -> str:
    """Every fifth step's number, above it."""
    return "".join(f"{step:<{5 * cell}}" for step in steps if (step - steps.start) % 5 == 0)


def _mark(life: Life, step: int, model: Model, held: str) -> str:
    if not life.alive(step):
        return "."
    if step == life.first:
        return "W" if life.over is None else "@"
    return "r" if life.tensor in model.ops[step].inputs else held


def _levels(plan: Memory, model: Model, steps: range, cell: int) -> str:
    """A digit a step: tenths of the arena that are alive; # where it is all of it."""
    tenths = [10 * plan.steps[step].bytes // max(model.arena_bytes, 1) for step in steps]
    return "".join(("#" if tenth >= 10 else str(tenth)) * cell for tenth in tenths)


def _names(model: Model, room: int) -> dict[str, str]:
    """As people read them, in so many columns: the end of a long name tells more than its beginning."""
    clean = {name: console.clean(short) for name, short in console.of_files([model]).items()}
    return {name: text if len(text) <= room else ".." + text[2 - room :] for name, text in clean.items()}


def _step_row(index: int, model: Model, plan: Memory, names: Mapping[str, str]) -> list[str]:
    op, step = model.ops[index], plan.steps[index]
    mark = "  <- peak" if index == plan.peak else ""
    return [
        str(index),
        op.kind,
        names[op.name],
        str(step.bytes),
        str(step.end),
        str(step.scratch) if step.scratch else console.NOTHING,
        *(str(moved) if moved else console.NOTHING for moved in step.moved if model.fast_bytes),
        _bar(step, plan.with_scratch) + mark,
    ]


def _bar(step: Step, whole: int) -> str:
    filled, end = (round(BAR * n / max(whole, 1)) for n in (step.bytes, min(step.end + step.scratch, whole)))
    scratch = round(BAR * step.scratch / max(whole, 1))
    return "#" * filled + "." * max(end - scratch - filled, 0) + "+" * scratch
