"""nmpconv inspect of several models: what they need when they take turns in one arena."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmpconv.cli import console
from nmpconv.errors import UsageError

if TYPE_CHECKING:
    from nmpconv.file.reader import Model
    from nmpconv.runtime.shared_arena import Together, Turn


def show(models: Sequence[tuple[Path, bytes, Model]], target: str | None, json: bool) -> None:
    """Shows a row for each file, and all of them together. target: None: on whatever microcontroller."""
    from nmpconv.runtime import targets  # they know all ops, which take a tenth of a second
    from nmpconv.runtime.shared_arena import Together, Turn

    if target == targets.HOST:
        allowed = ", ".join(targets.MICROCONTROLLERS)
        raise UsageError(
            "on this machine each model has an arena of its own", where=f"--target {target}", allowed=allowed
        )
    names = [str(path) for path, _, _ in models]
    wanted = (None, *targets.MICROCONTROLLERS) if json and target is None else (target,)
    groups = [Together([Turn(data, model, machine) for _, data, model in models]) for machine in wanted]
    if json:
        console.as_json({"models": names, "together": [_json(group) for group in groups]})
    else:
        _show(names, groups[0])


def _show(names: Sequence[str], group: Together) -> None:
    rows = [[name, *map(str, _bytes(turn))] for name, turn in zip(names, group.turns, strict=True)]
    whole = (group.arena, None, group.suspended, group.stack, group.flash)
    rows.append(["together", *("" if n is None else str(n) for n in whole)])
    place = group.target or "the hungriest target"
    console.table(
        ("model", ">arena", ">of it scratch", ">suspended", ">stack", ">flash"),
        rows,
        title=f"Models that take turns in one arena, on {place}, in bytes (suspended: handle and states)",
    )
    together = group.arena + group.suspended
    better = "" if together < group.apart else ": they need less apart"
    code = (
        ""
        if group.interpreter is None
        else "{} to {} kB of flash, measured with other nets; ".format(*group.interpreter)
    )
    console.facts(
        [
            ("RAM", f"{together} B: the arena, and what is suspended"),
            ("apart", f"{group.apart} B, an arena each{better}"),
            ("stack", f"{group.stack} B at most, on Cortex-M with DSP instructions"),
            ("interpreter", f"{code}ops: {', '.join(group.kinds)}"),
        ]
    )


def _bytes(turn: Turn) -> tuple[int, ...]:
    return turn.arena, turn.scratch, turn.suspended, turn.stack, turn.flash


def _json(group: Together) -> dict[str, Any]:
    keys = ("arena_bytes", "scratch_bytes", "suspended_bytes", "stack_bytes", "flash_bytes")
    return {
        "target": group.target,
        "arena_bytes": group.arena,
        "suspended_bytes": group.suspended,
        "apart_bytes": group.apart,
        "stack_bytes": group.stack,
        "flash_bytes": group.flash,
        "interpreter": group.interpreter,
        "ops": group.kinds,
        "models": [{**dict(zip(keys, _bytes(turn), strict=True)), "state_bytes": turn.states} for turn in group.turns],
    }
