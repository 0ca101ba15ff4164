"""nmpconv report: one file, or two side by side, to look at in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nmpconv.cli import console, shared_flags
from nmpconv.cli.report_tables import show_verdict
from nmpconv.errors import UsageError

NAME = "report"


def command(
    models: Annotated[
        list[Path],
        typer.Argument(metavar="A.nmp [B.nmp]", help="The converted model, or two to compare.", show_default=False),
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="The file to write; default: the model's name with .html here."),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]SOURCE", help=f"Samples to run: {shared_flags.SOURCE_HELP}. Once per input."),
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(metavar="MODEL.onnx", help="The float model: what samples come out worst.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Run only the first N samples.")] = 64,
    time: Annotated[
        bool, typer.Option("--time", help="Measure the ops on this machine; the report then differs from run to run.")
    ] = False,
    decoder: shared_flags.DecoderName = None,
    json: shared_flags.Json = False,
) -> None:
    """Write a report as one HTML page.

    Layers, graph, memory plan, weights; histograms and worst samples where there is data. The page opens without a
    network. SQNR layer by layer needs the float model's values: `nmpconv convert --report` has it.

    \b
    Examples:
      nmpconv report model.nmp
      nmpconv report model.nmp --data test.csv --reference model.onnx
      nmpconv report detector.nmp --data photos/ --reference detector.onnx --decoder yolox
      nmpconv report before.nmp after.nmp -o difference.html
    """
    if len(models) > 2:
        raise UsageError(f"{len(models)} files; a report is about one, or compares two", where="A.nmp [B.nmp]")
    path = output or Path(f"{shared_flags.stem(models[0])}.html")
    shared_flags.check_output(path, *models, json=json)

    import nmpconv  # not loaded for --help

    sources = shared_flags.sources(data or (), "--data") or None
    with console.progress() as progress:
        page = nmpconv.html_report(
            [shared_flags.file_or_stdin(model) for model in models],
            data=sources,
            reference=reference,
            limit=limit,
            time=time,
            decoder=shared_flags.value(decoder),
            progress=progress,
        )
    text = page.encode()
    shared_flags.write(path, text)
    names = [str(model) for model in models]
    if json:
        verdicts = [verdict.to_json() for verdict in page.verdicts]
        console.as_json({"models": names, "output": str(path), "bytes": len(text), "verdicts": verdicts})
    elif path != shared_flags.STREAM:
        for name, verdict in zip(names, page.verdicts, strict=True):
            show_verdict(verdict, name if len(names) > 1 else "")
        console.line(f"{path}, {console.size(len(text))}")
