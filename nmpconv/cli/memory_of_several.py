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
    found = [Together([Turn(data, model, machine) for _, data, model in models]) for machine in wanted]
    if json:
        console.as_json({"models": names, "together": [_json(one) for one in found]})
    else:
        _show(names, found[0])


def _show(names: Sequence[str], found: Together) -> None:
    rows = [[name, *map(str, _bytes(turn))] for name, turn in zip(names, found.turns, strict=True)]
    whole = (found.arena, None, found.suspended, found.stack, found.flash)
    rows.append(["together", *("" if n is None else str(n) for n in whole)])
    place = found.target or "the hungriest target"
    console.table(
        ("model", ">arena", ">of it scratch", ">suspended", ">stack", ">flash"),
        rows,
        title=f"Models that take turns in one arena, on {place}, in bytes (suspended: handle and states)",
    )
    together = found.arena + found.suspended
    better = "" if together < found.apart else ": they need less apart"
    code = (
        ""
        if found.interpreter is None
        else "{} to {} kB of flash, measured with other nets; ".format(*found.interpreter)
    )
    console.facts(
        [
            ("RAM", f"{together} B: the arena, and what is suspended"),
            ("apart", f"{found.apart} B, an arena each{better}"),
            ("stack", f"{found.stack} B at most, on Cortex-M with DSP instructions"),
            ("interpreter", f"{code}ops: {', '.join(found.kinds)}"),
        ]
    )


def _bytes(turn: Turn) -> tuple[int, ...]:
    return turn.arena, turn.scratch, turn.suspended, turn.stack, turn.flash


def _json(found: Together) -> dict[str, Any]:
    keys = ("arena_bytes", "scratch_bytes", "suspended_bytes", "stack_bytes", "flash_bytes")
    return {
        "target": found.target,
        "arena_bytes": found.arena,
        "suspended_bytes": found.suspended,
        "apart_bytes": found.apart,
        "stack_bytes": found.stack,
        "flash_bytes": found.flash,
        "interpreter": found.interpreter,
        "ops": found.kinds,
        "models": [{**dict(zip(keys, _bytes(turn), strict=True)), "state_bytes": turn.states} for turn in found.turns],
    }
