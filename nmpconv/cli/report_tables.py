"""Tables of a conversion's report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nmpconv.cli import console

STYLES = ("bold green", "bold yellow", "bold red", "bold")  # of the words of a verdict

if TYPE_CHECKING:
    from nmpconv.base.verdict import Verdict
    from nmpconv.conversion.candidates import Candidate
    from nmpconv.conversion.report import Layer, Report
    from nmpconv.conversion.sensitivity import Lever
    from nmpconv.file.reader import FilePort
    from nmpconv.ir import Preprocess
    from nmpconv.runtime.targets import Needs

COLUMNS = (
    *("layer", "op", ">in/w/out", ">e in", ">e w", ">e out", ">shift", ">bias", ">bits", ">MACs", ">clipped"),
    *(">own dB", ">dB"),
)


def preparation(preprocess: Preprocess) -> str:
    """Describes how pictures become an input."""
    mean, std = ("/".join(f"{x:g}" for x in values) for values in (preprocess.mean, preprocess.std))
    crop = f", crop {preprocess.crop:g}" if preprocess.crop != 1 else ""
    low, high = preprocess.range
    return f"{preprocess.channel_order}, {preprocess.resize}{crop}, range {low:g}..{high:g}, mean {mean}, std {std}"


def show_report(
    report: Report,
    model: Path,
    path: Path | None,
    short: Mapping[str, str],
    inputs: Sequence[FilePort],
    *,
    planned: bool,
) -> None:
    """The verdict comes again at the end, where the table of layers has moved it out of sight.

    path: the file that was written, if any; short: names of it; inputs: of it; planned: there are no exponents yet.
    """
    show_verdict(report.verdict)
    console.table(
        COLUMNS,
        [_row(layer, planned=planned) for layer in report.layers],
        title="Layers (e: exponent; own dB: rounding of this output alone; dB: with all before)",
        short=short,
    )
    if report.front:
        show_front(report.front)
    show_levers(report.levers, short)
    size, quality = _size(report, path, planned=planned), _quality(report, short, planned=planned)
    console.facts([("model", str(model)), ("pictures", _pictures(inputs)), *size, *quality])
    for warning in report.warnings:
        console.line(f"warning: {warning}")
    if len(report.layers) > (console.rows() or math.inf):
        show_verdict(report.verdict)
    console.line(f"quantized {report.quantized_nodes}/{report.total_nodes} nodes")


def _pictures(inputs: Sequence[FilePort]) -> str:
    """Describes how pictures become inputs, and how to change that where nothing normalizes them."""
    lines = []
    for port in inputs:
        if port.preprocess is not None:
            plain = set(port.preprocess.mean) == {0.0} and set(port.preprocess.std) == {1.0}
            more = "; --mean, --std and --range normalize them" if plain and port.preprocess.range == (0, 255) else ""
            name = f"{port.name}: " if len(inputs) > 1 else ""
            lines.append(f"{name}{preparation(port.preprocess)}{more}")
    return "\n".join(lines)


def show_verdict(verdict: Verdict, about: str = "") -> None:
    """Shows a verdict in two or three lines. about: what it is on, where there are several."""
    from nmpconv.base.verdict import UNSURE, WORDS  # with numpy, which --help does without

    style = dict(zip((*WORDS, UNSURE), STYLES, strict=True)).get(verdict.word, "")
    console.facts(
        [
            ("target" if about else "", about),
            ("verdict", f"{verdict.word}: {verdict.sentence}" if verdict.quality.basis else verdict.sentence),
            ("needs", "" if verdict.footprint is None else verdict.footprint.words),
            ("nearness", verdict.nearness),
        ],
        {"verdict": (verdict.word, style)},
    )


def _size(report: Report, path: Path | None, *, planned: bool) -> list[tuple[str, str]]:
    """Bytes and work."""
    spare = f", at least {console.size(report.arena_lower_bound)}" if report.arena_lower_bound else ""
    window = f"{console.scaled(report.window_macs)}MAC, as a step of a stream" if report.window_macs else ""
    return [
        ("file", _file(report, path, planned=planned)),
        ("activations", f"{console.size(report.arena_bytes)}{spare}"),
        ("memories", "" if report.memories is None else _memories(*report.memories)),
        ("work", f"{console.scaled(report.macs)}MAC"),
        ("left out", _left_out(report)),
        ("of a window", window),
        ("in bands", f"{console.scaled(report.banded_macs)}MAC more, to save RAM" if report.banded_macs else ""),
    ]


def _memories(fast: int, moved: int, least: int) -> str:
    more = f" ({100 * (moved / least - 1):.1f} % more)" if least else ""
    return f"{console.size(fast)} fast; ops move {console.size(moved)} slow, at least {console.size(least)}{more}"


def _quality(report: Report, short: Mapping[str, str], *, planned: bool) -> list[tuple[str, str]]:
    """Describes the choice of the integers, and how near the float model they are."""
    from nmpconv.conversion.validation import Considered  # with it the engines, which are there by now

    names = {**console.shortened(report.sqnr_by_head), **short}
    heads, others = report.shown_heads
    sqnr = [f"{console.decibels(db)}  {names[name]}" for name, db in heads]
    return [
        ("recipe", report.recipe),
        ("not done", "\n".join(note for note in report.notes if not isinstance(note, Considered))),
        ("float graph", _float(report)),
        ("SQNR", "\n".join([*sqnr, *filter(None, [others])])),
        ("against the quantized model", report.against_quantized.sentence if report.against_quantized else ""),
        ("given ranges", "" if planned else _legalized(report)),
        ("costliest", _costliest(report, short)),
        ("bias rule", _bias_rule(report)),
    ]


def _costliest(report: Report, names: Mapping[str, str]) -> str:
    """The tensors that make most of the noise at the heads; where that is not known, the layer that loses most."""
    if report.costliest:
        grids = {name: report.noise.on_grid(name) for name in report.costliest}
        every = [name for grid in grids.values() for name in grid]
        short = {**console.shortened(every), **names}
        parts = report.costliest.items()
        return "\n".join(f"{100 * part:.0f} % of the noise  {on_one_grid(grids[name], short)}" for name, part in parts)
    worst = report.steepest
    if worst is None:
        return ""
    fall = f"{worst.name} ({worst.op}): {console.decibels(worst.fall)} less than before it"
    return "; ".join(filter(None, [fall, report.noise.skipped]))


def _bias_rule(report: Report) -> str:
    cost = report.bias_rule_cost_db
    known = cost is not None and math.isfinite(cost)
    return f"costs {cost:.2f} dB against biases on s_x*s_w (both simulated)" if known else ""


NAMED = 3  # tensors of a candidate or of a grid; --json has all


def on_one_grid(names: Sequence[str], short: Mapping[str, str]) -> str:
    """Names tensors that share a grid; short: their names for people."""
    listed = [short[name] for name in names[:NAMED]]
    more = [f"{len(names) - NAMED} more"] if len(names) > NAMED else []
    if len(names) == 1:
        return listed[0]
    *first, last = listed + more
    return f"{', '.join(first)} and {last}, on one grid"


def show_front(front: Sequence[Candidate]) -> None:
    """Shows the candidates that no other one betters in all of RAM, instructions and SQNR."""

    def percent(value: float | None) -> str:
        return console.NOTHING if value is None else f"{value:.1f}"

    def named(candidate: Candidate) -> str:
        more = f" and {len(candidate.wide) - NAMED} more" if len(candidate.wide) > NAMED else ""
        return ", ".join(short[name] for name in candidate.wide[:NAMED]) + more

    short = console.shortened(name for candidate in front for name in candidate.wide)
    rows = [
        [
            "*" if candidate.taken else "",
            str(len(candidate.wide)),
            console.db(candidate.db),
            percent(candidate.agreement),
            percent(candidate.top1_drop),
            str(candidate.ram),
            str(candidate.flash),
            console.scaled(candidate.instructions).strip(),
            named(candidate),
        ]
        for candidate in front
    ]
    columns = ("", ">int16", ">dB", ">agreement", ">top-1 drop", ">RAM", ">flash", ">instructions", "tensors")
    title = "Candidates (* is taken; on images that nothing was fitted to; RAM, flash in bytes; instructions estimated)"
    console.table(columns, rows, title=title)


def show_levers(levers: Sequence[Lever], short: Mapping[str, str]) -> None:
    """Shows the measurements of each choice, alone: what helps, and what does not. short: names of the file."""
    columns = ("name", "what", ">gain dB", ">+/-", ">agreement", ">work", ">instructions", ">RAM", ">flash")
    for helps, heading in ((True, "What would help most"), (False, "What was tried, and gains no more than chance")):
        rows = [lever for lever in levers if lever.helps is helps]
        if rows:
            target = rows[0].target
            counting = "instructions counted" if target is None else f"instructions estimated for {target}"
            title = f"{heading}, each alone, on {rows[0].images} samples (RAM, flash in bytes; {counting})"
            console.table(columns, [_lever(lever) for lever in rows], title=title, short=short)


def _lever(lever: Lever) -> list[str]:
    return [
        lever.name,
        lever.words,
        f"{lever.db:+.2f}",
        console.NOTHING if lever.db_margin is None else f"{lever.db_margin:.2f}",
        "" if lever.agreed is None else f"{lever.agreed:+d} of {lever.images}",
        f"{100 * lever.work:+.1f} %",
        f"{100 * lever.instructions:+.1f} %",
        f"{lever.ram:+d}",
        f"{lever.flash:+d}",
    ]


def _float(report: Report) -> str:
    from nmpconv.base.sqnr import SAME_DB  # numpy is not loaded for --help

    if report.float_db is None or report.float_required_db is None:
        return ""
    noisy = report.float_required_db < SAME_DB
    noise = f" ({console.db(report.float_required_db)} required, by its own float32 noise)" if noisy else ""
    return f"{console.decibels(report.float_db)} against the ONNX model{noise}"


def _file(report: Report, path: Path | None, *, planned: bool) -> str:
    size = console.size(report.file_bytes)
    return f"{path}, {size}" if path else f"about {size}" if planned else f"{size}, not written"


RAM = "RAM in bytes (arena: all of it; handle: with scratch that finds no room among the activations)"


def show_ram(rows: Sequence[Needs]) -> None:
    """RAM of a run by machine."""
    columns = ("target", ">arena", ">activations", ">packed weights", ">scratch", ">handle", "")
    cells = [
        [row.target, *map(str, (row.arena, row.activations, row.packed, row.scratch, row.handle)), _how(row)]
        for row in rows
    ]
    console.table(columns, cells, title=RAM)


def show_needs(rows: Sequence[Needs], flash: int, *, planned: bool) -> None:
    """The same, and flash; that is the file's."""
    if not rows:
        return
    show_ram(rows)
    about = "about " if planned else ""
    ranges = ", ".join(f"{r.target} {r.interpreter[0]} to {r.interpreter[1]}" for r in rows if r.interpreter)
    measured = f"; kB in a bundle, measured with other nets: {ranges}" if ranges else ""
    console.line(f"flash: {about}{flash} bytes of the model, and the interpreter{measured}")


def _how(row: Needs) -> str:
    return "" if row.exact else "about"


def _left_out(report: Report) -> str:
    if not report.dropped_channels:
        return ""
    return f"{report.dropped_channels} channels that no result depends on, {console.scaled(report.dropped_macs)}MAC"


def _legalized(report: Report) -> str:
    """Describes the effect of power-of-two grids on a model that was quantized before."""
    rows = report.legalized
    if not rows:
        return ""
    not_wider = [row for row in rows if row.bits <= int(row.dtype.lstrip("uint"))]
    same = sum(row.bits_lost == 0 for row in rows)
    parts = [f"of {len(rows)} tensors are the model's"] + ([f"{same} have its steps"] if same else [])
    if not_wider:
        worst, mean = (
            max(not_wider, key=lambda row: row.bits_lost),
            sum(row.bits_lost for row in not_wider) / len(not_wider),
        )
        name = console.shortened(row.name for row in rows)[worst.name]
        most = f"{worst.bits_lost:.2f} ({worst.dtype} to int{worst.bits}: {name})"
        parts.append(f"{len(not_wider)} lose {mean:.2f} bits on average to power-of-two grids, at most {most}")
    if len(not_wider) < len(rows):
        parts.append(f"{len(rows) - len(not_wider)} have more bits now")
    return "; ".join(parts)


def _row(layer: Layer, *, planned: bool) -> list[str]:
    """planned: there are no exponents yet."""
    bits = [str(b) for b in layer.bits if b is not None]
    return [
        layer.name,
        layer.op,
        "/".join(bits),
        console.NOTHING if planned else str(layer.exponent_in),
        console.NOTHING if layer.exponent_weights is None else console.span(*layer.exponent_weights),
        console.NOTHING if planned else str(layer.exponent_out),
        console.NOTHING if layer.shift is None else console.span(*layer.shift),
        console.NOTHING if layer.bias is None else console.span(*layer.bias),
        console.NOTHING if layer.bias_bits is None else str(layer.bias_bits),
        console.scaled(layer.macs) if layer.macs else console.NOTHING,
        console.percent(layer.clipped),
        console.db(layer.sqnr_isolated),
        console.db(layer.sqnr_cumulative),
    ]
