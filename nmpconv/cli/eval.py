"""nmpconv eval: how good a converted model is on a labelled set, and against the float model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmpconv.cli import console, shared_flags
from nmpconv.cli.report_tables import show_verdict

if TYPE_CHECKING:
    from nmpconv.evaluation.accuracy import Evaluation

NAME = "eval"


def command(
    model: shared_flags.ModelFile,
    data: Annotated[
        list[str],
        typer.Option(
            metavar="[NAME=]SOURCE", help=f"Test data: {shared_flags.SOURCE_HELP}. Once per input.", show_default=False
        ),
    ],
    reference: Annotated[
        Path | None, typer.Option(metavar="MODEL.onnx", help="The float model, for agreement and SQNR.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Use only the first N samples.")] = None,
    label_offset: Annotated[int, typer.Option(help="Added to every label to get the index of its class.")] = 0,
    max_pixels: shared_flags.MaxPixels = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|FILE.py:FUNCTION",
            help="psnr or miou against the float model, ap of boxes, or a function or class of yours, called with "
            "outputs, label and reference of each sample. Repeatable.",
            show_default=False,
        ),
    ] = None,
    decoder: shared_flags.DecoderName = None,
    boxes: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The boxes that ap wants: COCO JSON, a CSV of file,labels, or a folder of YOLO's texts.",
        ),
    ] = None,
    cpu: shared_flags.Cpu = None,
    threads: Annotated[
        int | None,
        typer.Option(metavar="N", help="Use up to N threads; default: $NMP_THREADS or one per core, as 0 does."),
    ] = None,
    workers: shared_flags.Workers = None,
    json: shared_flags.Json = False,
) -> None:
    """Measure accuracy on labelled data.

    Reports agreement and SQNR against the float model, too. Preprocessing is the file's own. The SQNR is taken at the
    input of a final Softmax where there is one, over the whole set. A file with states takes sequences: one with a
    label is judged by its last call, others by all of them. Of an output that is indices or truth, elements are counted
    that are equal to the float model's. A class that ArgMax gives is an answer, as the best of scores is.

    \b
    Examples:
      nmpconv eval model.nmp --data test.csv
      nmpconv eval model.nmp --data test.csv --reference model.onnx --json
      nmpconv eval model.nmp --data test.csv --metric ap --decoder yolox --boxes instances.json
    """
    import nmpconv  # not loaded for --help

    with console.progress() as progress:
        evaluation = nmpconv.evaluate(
            shared_flags.file_or_stdin(model),
            shared_flags.sources(data, "--data"),
            reference=reference,
            limit=limit,
            label_offset=label_offset,
            max_pixels=max_pixels,
            metric=metric,
            decoder=shared_flags.value(decoder),
            boxes=boxes,
            cpu=cpu,
            threads=threads,
            workers=workers,
            progress=progress,
        )
    if json:
        console.as_json(_json(evaluation))
        return
    show_verdict(evaluation.verdict)
    _show(evaluation)
    if evaluation.top1 is None and not (evaluation.sqnr or evaluation.equal or evaluation.metrics):
        ways = "or a CSV of files and labels, or a folder for each class as --data"
        console.line(f"hint: --reference MODEL.onnx, {ways}, gives an answer")
    for warning in evaluation.warnings:
        console.line(f"warning: {warning}")


def _json(evaluation: Evaluation) -> dict[str, object]:
    return {
        "verdict": evaluation.verdict.to_json(),
        "n": evaluation.n,
        "sequences": evaluation.sequences,
        "labels": evaluation.labelled or None,
        "top1": evaluation.top1,
        "top5": evaluation.top5,
        "reference_top1": evaluation.reference_top1,
        "reference_top5": evaluation.reference_top5,
        "agreement": evaluation.agreement,
        "agreed": evaluation.agreed,
        "agreement_range": evaluation.agreement_range,
        "sqnr_db": evaluation.mean_sqnr_db,
        "metrics": dict(evaluation.metrics),
        "outputs": [{"name": name, "sqnr_db": value} for name, value in evaluation.sqnr.items()]
        + [{"name": name, "equal": value} for name, value in evaluation.equal.items()],
        "inputs": [input_range.to_json() for input_range in evaluation.inputs],
        "warnings": list(evaluation.warnings),
    }


def _show(evaluation: Evaluation) -> None:
    columns = ("", ">top-1", ">top-5")
    rows = [
        ["quantized", console.rate(evaluation.top1), console.rate(evaluation.told_top5[0])],
        ["float", console.rate(evaluation.reference_top1), console.rate(evaluation.told_top5[1])],
    ]
    if evaluation.top1 is not None:
        console.table(columns, rows if evaluation.reference_top1 is not None else rows[:1])
    console.facts(
        [
            ("samples", str(evaluation.n) if evaluation.sequences is None else ""),
            (
                "sequences",
                "" if evaluation.sequences is None else f"{evaluation.sequences}, {evaluation.n} call(s) judged",
            ),
            ("labels", evaluation.labelled),
            ("agreement", _agreement(evaluation)),
            ("SQNR", "\n".join(f"{console.decibels(value)}  {name}" for name, value in evaluation.sqnr.items())),
            ("saturated", "\n".join(input_range.words for input_range in evaluation.inputs if input_range.beyond)),
            *((name, f"{value:.4g}") for name, value in evaluation.metrics.items()),
            (
                "equal",
                "\n".join(f"{console.rate(value)} of the elements  {name}" for name, value in evaluation.equal.items()),
            ),
        ]
    )


def _agreement(evaluation: Evaluation) -> str:
    from nmpconv.base import confidence

    if evaluation.agreed is None:
        return ""
    return f"{console.rate(evaluation.agreement)}, {confidence.counted(evaluation.agreed, evaluation.n, 'samples')}"
