"""nmpconv bisect: which tensor it is that a converted model loses accuracy at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nmpconv.cli import console, shared_flags
from nmpconv.cli.report_tables import on_one_grid, show_levers
from nmpconv.errors import OutputError, UsageError

if TYPE_CHECKING:
    import nmpconv
    from nmpconv.bisection import Row

NAME = "bisect"
SHOWN = 10  # tensors; --json has all


def _in_order(context: typer.Context, file: Path) -> Path:
    """Refuses a converted file in front of its model, before anything is missing."""
    model = context.params.get("model")
    if isinstance(model, Path) and model.suffix == ".nmp" and file.suffix != ".nmp":
        raise UsageError("the float model comes first", where="nmpconv bisect", hint=f"nmpconv bisect {file} {model}")
    return file


def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="The float model.", show_default=False)],
    file: Annotated[
        Path,
        typer.Argument(metavar="MODEL.nmp", help="What it was converted to.", show_default=False, callback=_in_order),
    ],
    data: Annotated[
        list[str],
        typer.Option(
            metavar="[NAME=]SOURCE", help="The data that it was calibrated with. Once per input.", show_default=False
        ),
    ],
    recipe: Annotated[
        Path | None, typer.Option(help="The recipe that it was converted by.", show_default=False)
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE.py:FUNCTION", help="Rank by this, as of eval; default: SQNR.", show_default=False
        ),
    ] = None,
    decoder: shared_flags.DecoderName = None,
    device: Annotated[
        str | None,
        typer.Option(
            metavar=shared_flags.DEVICE_NAME, help="Count the instructions of what helps, too.", show_default=False
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="A new folder; default: the file's name with .bisect here.")
    ] = None,
    json: shared_flags.Json = False,
) -> None:
    """Rank tensors by quantization loss.

    The loss of a tensor is the SQNR gained when it alone is float. At the first tensors, measures what helps.

    Writes a folder: recipe.toml has the lines that help. small.onnx is the smallest part of the model that still shows
    the loss of the first tensor, small.npz its inputs and small.toml its recipe.

    \b
    Examples:
      nmpconv bisect model.onnx model.nmp --data calib/
      nmpconv bisect model.onnx model.nmp --data calib/ --device sim:mps2-an386
    """
    from nmpconv.file.reader import read

    path = output or Path(f"{shared_flags.stem(file)}.bisect")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise OutputError("is there already", where=str(path), hint="give another -o, or remove it")

    import nmpconv  # not loaded for --help

    source, content = shared_flags.file_or_stdin(model), shared_flags.file_or_stdin(file)
    with console.progress() as progress:
        bisection = nmpconv.bisect(
            source,
            content,
            shared_flags.sources(data, "--data"),
            recipe=recipe,
            metric=metric,
            decoder=shared_flags.value(decoder),
            device=device,
            output=path,
            progress=progress,
        )
    every = (name for row in bisection.rows for name in (row.name, *row.grid))
    short = {**console.shortened(every), **console.of_files([read(content)])}
    if json:
        console.as_json(_json(bisection, path, short))
    else:
        _show(bisection, path, metric, short)


def _json(bisection: nmpconv.Bisected, path: Path, short: Mapping[str, str]) -> dict[str, Any]:
    small = (
        None
        if bisection.small is None
        else {"db": bisection.small.db, "nodes": bisection.small.nodes, "of": bisection.small.of}
    )
    return {
        "output": str(path),
        "files": sorted(bisection.files),
        "sqnr_db": bisection.score.db,
        "agreement": bisection.score.agreement,
        "simulated_db": bisection.simulated_db,
        "metric": bisection.metric,
        "anew_db": bisection.anew_db,
        "tensors": [{**asdict(row), "short": short[row.name]} for row in bisection.rows],
        "levers": [{**asdict(lever), "short": short.get(lever.name, lever.name)} for lever in bisection.levers],
        "small": small,
    }


def _show(bisection: nmpconv.Bisected, path: Path, metric: str | None, short: Mapping[str, str]) -> None:
    rows = bisection.rows[:SHOWN]
    shown = {name: name for name in short} if console.Talk.verbose else short
    console.table(
        ("name", ">gain dB", ">metric", "what", ">bits", ">e", ""),
        [
            [
                on_one_grid(row.grid, shown) if len(row.grid) > 1 else row.name,
                f"{row.db:+.2f}",
                "" if row.metric is None else f"{row.metric:+.4g}",
                "weights" if row.table == "ops" else "tensor",
                str(row.bits),
                console.span(*row.exponents),
                _odd(row),
            ]
            for row in rows
        ],
        title="Gain when this alone is float",
        short=short,
    )
    show_levers(bisection.levers, short)
    small = bisection.small
    console.facts(
        [
            ("SQNR", f"{console.decibels(bisection.score.db)}, simulated {console.decibels(bisection.simulated_db)}"),
            (metric or "", "" if bisection.metric is None else f"{bisection.metric:.4g}"),
            (
                "converted anew",
                "" if bisection.anew_db is None else f"{bisection.anew_db:+.2f} dB: the file was changed since",
            ),
            ("shown by", "" if small is None else f"{small.nodes} of {small.of} nodes, {small.db:.2f} dB"),
            ("files", f"{path}: {', '.join(sorted(bisection.files))}"),
        ]
    )


def _odd(row: Row) -> str:
    return f"{row.moved:+d} by name" if row.moved else "changed" if row.edited else ""
