"""The rows as a Markdown table and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from peers.rounds import DEFAULT, OURS, SPREAD_MOST, Footprint, Row, geometric_mean

TITLES = {
    OURS: "nmpconv",
    DEFAULT: "nmpconv, default widths",
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "litert": "LiteRT",
    "executorch": "ExecuTorch",
}


def groups(rows: Sequence[Row]) -> dict[tuple[str, int], list[Row]]:
    """Rows of the same precision and number of threads, in order."""
    by_run: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        by_run.setdefault((row.bits, row.threads), []).append(row)
    return by_run


def heading(bits: str, threads: int) -> str:
    rivals = "peers at float32, " if bits == "int16" else ""
    return f"{bits}, {rivals}{threads} thread{'s' if threads > 1 else ''}"


def markdown(rows: Sequence[Row], peak: float | None) -> str:
    """One table for each precision and number of threads. peak: MAC/s of one core."""
    return "\n".join(line for key, group in groups(rows).items() for line in _section(*key, group, peak))


def _section(bits: str, threads: int, rows: Sequence[Row], peak: float | None) -> Iterator[str]:
    names = [name for name in TITLES if any(name in row.times or name in row.missing for row in rows)]
    header = ["model", *(TITLES[name] for name in names), "best peer / nmpconv", "GMAC/s", "% of VNNI peak"]
    yield f"### {heading(bits, threads)}: ms, best round (CPU ms of it)\n"
    yield _line(header)
    yield _line(["---"] + ["---:"] * (len(header) - 1))
    for row in rows:
        model = f"{row.model} (disturbed)" if row.disturbed else row.model
        yield _line([model, *(_time(row, name) for name in names), _ratio(row.ratio), *_rates(row, peak)])
    mean = _ratio(geometric_mean(row.ratio for row in rows))
    yield _line(["geometric mean", *[""] * len(names), mean, "", ""])
    yield ""


def loading(footprints: Sequence[Footprint]) -> str:
    """Milliseconds to load and megabytes of the process, by model and engine; empty of none."""
    names = [name for name in TITLES if any(name in footprint.engines for footprint in footprints)]
    if not names:
        return ""
    lines = [
        "### int8, 1 thread: ms to load / MB of a process that loads and runs, at its peak\n",
        _line(["model", *(TITLES[name] for name in names)]),
        _line(["---"] + ["---:"] * len(names)),
        *(_line([footprint.model, *(_footprint(footprint, name) for name in names)]) for footprint in footprints),
        "",
    ]
    return "\n".join(lines)


def _footprint(footprint: Footprint, name: str) -> str:
    if name not in footprint.engines:
        return "-"
    seconds, peak = footprint.engines[name]
    return f"{seconds * 1e3:.1f} / {peak / 1e6:.0f}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _time(row: Row, name: str) -> str:
    """The best peer's is bold."""
    if name not in row.times:
        return "-"
    times = row.times[name]
    text = _digits(times.best * 1e3)
    return f"{f'**{text}**' if name == row.best_peer else text} ({_digits(times.best_cpu * 1e3)})"


def _digits(value: float) -> str:
    """Three figures that count, as long as there are some behind the point."""
    return f"{value:.4f}" if value < 0.1 else f"{value:.3f}" if value < 10 else f"{value:.1f}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _rates(row: Row, peak: float | None) -> tuple[str, str]:
    if OURS not in row.times:
        return "-", "-"
    rate = row.macs / row.times[OURS].best
    share = "-" if not peak else f"{100 * rate / (peak * row.threads):.0f}"
    return f"{rate / 1e9:.1f}", share


def notes(rows: Sequence[Row]) -> list[str]:
    """Notes on omitted cells, each reason once, and on nets that are int8 in parts only."""
    places_of: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for name, why in row.missing.items():
            places_of.setdefault((name, why), []).append(f"{row.model} {row.bits} {row.threads}t")
    return [
        f"{TITLES[name]} is left out{'' if len(places) == len(rows) else ' of ' + ', '.join(places)}: {why}"
        for (name, why), places in places_of.items()
    ] + [*_disturbed(rows), *_partly(rows)]


def _disturbed(rows: Sequence[Row]) -> Iterator[str]:
    """Rows that were disturbed each time that they were measured."""
    for row in rows:
        if row.disturbed:
            names = " and ".join(TITLES[name] for name in row.disturbed)
            yield (
                f"{row.model} {row.bits} {row.threads}t was disturbed: the median of {names} is more than "
                f"{SPREAD_MOST:.0%} above the best round"
            )


def kinds(found: Mapping[str, Sequence[tuple[str, float, int]]]) -> str:
    """Tables of the time that kinds of ops take, by model: seconds and multiply-accumulates of each."""
    lines = ["### nmpconv, int8, 1 thread: ms by kind of op\n"] if found else []
    lines += [_line(["model", "op", "ms", "share", "G/s"]), _line(["---", "---"] + ["---:"] * 3)] if found else []
    for model, rows in found.items():
        total = sum(seconds for _, seconds, _ in rows)
        for kind, seconds, macs in rows:
            share, rate = 100 * seconds / total, macs / seconds / 1e9
            lines.append(_line([model, kind, _digits(seconds * 1e3), f"{share:.0f} %", f"{rate:.0f}" if macs else "-"]))
    return "\n".join([*lines, ""])


def _partly(rows: Sequence[Row]) -> list[str]:
    """Peers with layers of an int8 row that they do not run on int8 kernels."""
    layers_of: dict[str, dict[str, None]] = {}
    for row in rows:
        for name, (narrow, layers) in row.kernels.items():
            if row.bits == "int8" and narrow < layers and name != DEFAULT:
                layers_of.setdefault(name, {})[f"{narrow} of {layers} in {row.model}"] = None
    return [
        f"{TITLES[name]} runs not all layers on int8 kernels: {', '.join(places)}" for name, places in layers_of.items()
    ]


def as_json(rows: Sequence[Row], about: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that was measured; seconds of each round, too."""
    return {
        **about,
        "rows": [
            {**asdict(row), "times": {name: list(t.seconds) for name, t in row.times.items()}}
            | {"cpu": {name: list(t.cpu) for name, t in row.times.items()}, "disturbed": row.disturbed}
            | {"best_peer": row.best_peer, "ratio": row.ratio}
            for row in rows
        ],
        "geometric_mean": {
            heading(*key): geometric_mean(row.ratio for row in group) for key, group in groups(rows).items()
        },
    }
