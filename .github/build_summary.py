"""Runs `nmpconv build` for the action, here and as it was before, and writes the difference as a job's summary.

    python build_summary.py nmpconv.toml --before ../base/nmpconv.toml --device sim:mps2-an386

The summary is Markdown. It is printed, and added to the file that $GITHUB_STEP_SUMMARY names. The exit code is that
of the build; what was before may fail, and is then left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# The console script: `python -m` would import what lies in the current folder, which is the pull request's.
NMPCONV = Path(sysconfig.get_path("scripts"), "nmpconv")

Rows = dict[str, dict[str, Any]]
"""Facts about each target, by its name."""

# Of a target's row: what it is called, its unit, its digits, and whether more is better.
FIGURES = {
    "top1": ("top-1", " %", 2, True),
    "agreement": ("agreement", " %", 2, True),
    "sqnr": ("SQNR", " dB", 2, True),
    "ram": ("RAM", " B", 0, False),
    "flash": ("flash", " B", 0, False),
    "instructions": ("instructions", "", 0, False),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="nmpconv build, with a summary of what has changed.")
    parser.add_argument("project", type=Path)
    parser.add_argument("--before", type=Path, help="the same project at another commit")
    parser.add_argument("--device", help="counts instructions, as of nmpconv bench")
    asked = parser.parse_args(arguments)
    code, now, error = built(asked.project, asked.device)
    before: Rows = {}
    if asked.before is not None and asked.before.exists():
        _, before, _ = built(asked.before, asked.device)
    text = summary(now, before, error)
    if path := os.environ.get("GITHUB_STEP_SUMMARY"):
        with open(path, "a", encoding="utf-8") as file:
            file.write(text)
    print(text, end="", flush=True)
    return code


def built(project: Path, device: str | None) -> tuple[int, Rows, str]:
    """The exit code of the build, its targets, and its error."""
    code, found = asked("build", str(project))
    rows = {row["target"]: row for row in found.get("targets", [])}
    if device is not None:
        for row in rows.values():
            _, bench = asked("bench", row["file"], "--device", device, "--runs", "1")
            row["instructions"] = bench.get("instructions", row["instructions"])
    return code, rows, found.get("error", {}).get("message", "")


def asked(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Returns nmpconv's answer to --json; its talk goes to stderr."""
    ran = subprocess.run([NMPCONV, *arguments, "--json"], stdout=subprocess.PIPE, check=False)
    try:
        return ran.returncode, json.loads(ran.stdout)
    except ValueError:
        return ran.returncode or 1, {}


def summary(now: Rows, before: Rows, error: str = "") -> str:
    """Markdown: a table for each target, what gates were missed, what is warned of, and what is gone."""
    parts = ["## nmpconv build", ""]
    if error:
        parts += [f"**{_plain(error)}**", ""]
    for name, row in now.items():
        parts += [f"### {_plain(name)}", "", *_table(row, before.get(name)), ""]
        parts += [
            f"- missed: {gate['gate']} {gate['allowed']:g}, found {gate['found']:.6g}"
            for gate in row["gates"]
            if not gate["met"]
        ]
        parts += [f"- warning: {_plain(text)}" for text in row["warnings"]]
    gone = [name for name in before if name not in now]
    parts += [f"No longer there: {', '.join(map(_plain, gone))}", ""] if gone else []
    return "\n".join(parts) + "\n"


def _table(row: Mapping[str, Any], old: Mapping[str, Any] | None) -> list[str]:
    lines = ["| | before | now | difference |", "|---|---:|---:|---:|"]
    for key, (title, unit, digits, more_is_better) in FIGURES.items():
        found, was = row.get(key), None if old is None else old.get(key)
        if found is None and was is None:
            continue
        cells = ["–" if value is None else f"{value:,.{digits}f}{unit}" for value in (was, found)]
        lines.append(f"| {title} | {cells[0]} | {cells[1]} | {_difference(found, was, digits, unit, more_is_better)} |")
    return lines


def _difference(found: float | None, was: float | None, digits: int, unit: str, more_is_better: bool) -> str:
    """With a word where it is worse."""
    if found is None or was is None:
        return "new" if was is None else "–"
    more = round(found - was, digits)
    if not more:
        return "0"
    worse = "" if (more > 0) == more_is_better else ", worse"
    share = f" ({100 * more / was:+.1f} %)" if digits == 0 and was else ""
    return f"{more:+,.{digits}f}{unit}{share}{worse}"


def _plain(text: str) -> str:
    """A name is no Markdown."""
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#" else " " if c.isspace() else c for c in text)


if __name__ == "__main__":
    sys.exit(main())
