"""nmpconv build: all targets of a project file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmpconv.cli import console, shared_flags
from nmpconv.cli.report_tables import show_verdict
from nmpconv.errors import ExitCode, GateError

if TYPE_CHECKING:
    import nmpconv

NAME = "build"


def command(
    project: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="The project file, or its folder; default: the current folder."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Make all targets anew.")] = False,
    outside: Annotated[
        bool, typer.Option("--outside", help="Let a project write outside of its folder, and through links.")
    ] = False,
    json: shared_flags.Json = False,
) -> None:
    """Convert and check the targets of nmpconv.toml.

    Targets that are up to date are left alone. A gate that is missed ends the command with exit code 9, after all
    targets are made.

    \b
    Examples:
      nmpconv init model.onnx && nmpconv build
      nmpconv build projects/person/nmpconv.toml --json
    """
    import nmpconv  # not loaded for --help

    with console.progress() as progress:
        found = nmpconv.build(project, force=force, outside=outside, progress=progress)
    missed = [(one.target, gate) for one in found for gate in one.missed]
    words = "; ".join(f"{name}: {gate.name} {gate.allowed:g}, found {gate.found:.6g}" for name, gate in missed)
    error = GateError(f"missed gates: {words}") if missed else None
    if json:
        failed = {} if error is None else {"error": error.to_json()}
        console.as_json({"targets": [_row(one) for one in found], **failed})
    else:
        _show(found)
    if error is not None:
        console.say(f"error: {error.message}")
        raise typer.Exit(ExitCode.GATE)


def _row(one: nmpconv.Built) -> dict[str, object]:
    gates = [{"gate": g.name, "allowed": g.allowed, "found": g.found, "met": g.met} for g in one.gates]
    measured = asdict(one.measured)
    return {
        "target": one.target,
        "file": str(one.path),
        "sha256": one.sha256,
        "made": one.fresh,
        "verdict": one.verdict.to_json(),
        **measured,
        "gates": gates,
        "warnings": list(one.warnings),
    }


def _show(found: list[nmpconv.Built]) -> None:
    for one in found:
        show_verdict(one.verdict, one.target)
    columns = ("target", "file", "", ">flash", ">RAM", ">top-1", ">agreement", ">SQNR", ">instructions", "gates")
    rows = []
    for one in found:
        m = one.measured
        gates = f"{len(one.missed)} of {len(one.gates)} missed" if one.missed else "met" if one.gates else ""
        sqnr = "" if m.sqnr is None else console.decibels(m.sqnr)
        state = "made" if one.fresh else "up to date"
        rates = [console.rate(m.top1), console.rate(m.agreement)]
        count = "" if m.instructions is None else str(m.instructions)
        sizes = [console.size(m.flash), console.size(m.ram)]
        rows.append([one.target, str(one.path), state, *sizes, *rates, sqnr, count, gates])
    console.table(columns, rows)
    for one in found:
        for text in one.warnings:
            console.line(f"warning: {one.target}: {text}")
