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
        builds = nmpconv.build(project, force=force, outside=outside, progress=progress)
    missed = [(build.target, gate) for build in builds for gate in build.missed]
    words = "; ".join(f"{name}: {gate.name} {gate.allowed:g}, found {gate.found:.6g}" for name, gate in missed)
    error = GateError(f"missed gates: {words}") if missed else None
    if json:
        failed = {} if error is None else {"error": error.to_json()}
        console.as_json({"targets": [_row(build) for build in builds], **failed})
    else:
        _show(builds)
    if error is not None:
        console.say(f"error: {error.message}")
        raise typer.Exit(ExitCode.GATE)


def _row(build: nmpconv.Built) -> dict[str, object]:
    gates = [{"gate": g.name, "allowed": g.allowed, "found": g.found, "met": g.met} for g in build.gates]
    measured = asdict(build.measured)
    return {
        "target": build.target,
        "file": str(build.path),
        "sha256": build.sha256,
        "made": build.fresh,
        "verdict": build.verdict.to_json(),
        **measured,
        "gates": gates,
        "warnings": list(build.warnings),
    }


def _show(builds: list[nmpconv.Built]) -> None:
    for build in builds:
        show_verdict(build.verdict, build.target)
    columns = ("target", "file", "", ">flash", ">RAM", ">top-1", ">agreement", ">SQNR", ">instructions", "gates")
    rows = []
    for build in builds:
        m = build.measured
        gates = f"{len(build.missed)} of {len(build.gates)} missed" if build.missed else "met" if build.gates else ""
        sqnr = "" if m.sqnr is None else console.decibels(m.sqnr)
        state = "made" if build.fresh else "up to date"
        rates = [console.rate(m.top1), console.rate(m.agreement)]
        count = "" if m.instructions is None else str(m.instructions)
        sizes = [console.size(m.flash), console.size(m.ram)]
        rows.append([build.target, str(build.path), state, *sizes, *rates, sqnr, count, gates])
    console.table(columns, rows)
    for build in builds:
        for text in build.warnings:
            console.line(f"warning: {build.target}: {text}")
