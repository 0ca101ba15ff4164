"""nmpconv convert: quantizes a model."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nmpconv.cli import console, shared_flags
from nmpconv.cli.option_flags import with_options
from nmpconv.cli.report_tables import show_needs, show_report
from nmpconv.conversion.keywords import FLAGS, Keywords
from nmpconv.conversion.options import CALIBRATION
from nmpconv.errors import UsageError

if TYPE_CHECKING:
    from nmpconv.runtime.targets import Needs

NAME = "convert"


@with_options(Keywords)
def command(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL.onnx", help="The float model, ONNX, TFLite or .pt2; - is stdin.", show_default=False
        ),
    ],
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="The file to write, - for stdout; default: the model's name with .nmp here."
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]SOURCE",
            help=f"Calibration data: {shared_flags.SOURCE_HELP}. Once per input when there are several.",
            rich_help_panel=CALIBRATION,
        ),
    ] = None,
    json: shared_flags.Json = False,
    **options: Any,
) -> None:
    """Quantize an ONNX model into one .nmp file.

    \b
    Examples:
      nmpconv convert model.onnx --data images/
      nmpconv convert model.onnx --data train.csv --mean 123.675,116.28,103.53 --std 58.395,57.12,57.375 \\
          --resize shorter --crop 0.875 --labels classes.txt -o model8.nmp
      nmpconv convert model.onnx --data features.npy --bits 16
      nmpconv convert model.onnx --data left=l/ --data right=r/
      nmpconv convert model.onnx --dry-run
      nmpconv convert model.onnx --data images/ --dry-run --target cortex-m4
    """
    path = output or Path(f"{shared_flags.stem(model)}.nmp")
    if output is None and path == model:
        already = "nmpconv inspect shows it; an ONNX model of such a name needs -o"
        raise UsageError("a .nmp file is converted already", where=str(model), hint=already)
    dry_run, target = options["dry_run"], options["target"]
    for file in (None if dry_run else path, *(options.get(name) for name, flag in FLAGS.items() if flag.writes)):
        if file is not None:
            shared_flags.check_output(file, model, json=json)
    sources = shared_flags.sources(data or (), "--data")
    destination = path if path != shared_flags.STREAM else Path(f"{shared_flags.stem(model)}.nmp")
    journal = destination.with_name(f"{destination.name}.auto.json") if options["bits"] == "auto" else None

    import nmpconv  # the engines behind it take a second to load: --help and usage errors do not wait for them
    from nmpconv.file.reader import read

    with console.progress() as progress:
        result = nmpconv.convert(
            shared_flags.file_or_stdin(model),
            sources,
            **options,
            journal=journal,
            title=destination.name,
            progress=progress,
        )
    if not dry_run:
        shared_flags.write(path, result.data)
    if journal is not None:
        journal.unlink(missing_ok=True)
    needs = _needs(result.data, target, sketch=result.sketch) if dry_run or target else []
    report, written = result.report, None if dry_run else path
    file = read(result.data, verified=True)
    short = console.of_files([file])
    if json:
        fields = report.to_json()
        fields["layers"] = [{**row, "short": short[row["name"]]} for row in fields["layers"]]
        fields["levers"] = [{**row, "short": short.get(row["name"], row["name"])} for row in fields["levers"]]
        figures = {"flash_bytes": len(result.data), "ram": [asdict(row) for row in needs]} if needs else {}
        console.as_json({"model": str(model), "output": written and str(written), **fields, **figures})
        return
    with console.on_stderr(written == shared_flags.STREAM):
        show_report(report, model, written, short, file.inputs, planned=result.sketch)
        show_needs(needs, len(result.data), planned=result.sketch)


def _needs(data: bytes, target: str | None, *, sketch: bool) -> list[Needs]:
    """Needs of one machine or of all. What a sketch's integers decide may come out otherwise: on this machine most."""
    from nmpconv.runtime import targets

    wanted = targets.TARGETS if target is None else (target,)
    return [targets.needs(data, name, exact=not sketch) for name in wanted if not (sketch and name == targets.HOST)]
