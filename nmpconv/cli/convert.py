"""nmpconv convert: quantizes a model."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmpconv.cli import options, show
from nmpconv.cli.report import show_needs, show_report
from nmpconv.errors import UsageError
from nmpconv.ir import Preprocess

if TYPE_CHECKING:
    from nmpconv.targets import Needs

NAME = "convert"
QUANTIZATION, INPUT, CALIBRATION, OUTPUT = "Quantization", "Image preprocessing", "Calibration", "Output"


def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="The float model.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="The file to write; default: the model's name with .nmp here."),
    ] = None,
    calib: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]SOURCE",
            help=f"Calibration data: {options.SOURCE_HELP}. Once per input when there are several.",
            rich_help_panel=CALIBRATION,
        ),
    ] = None,
    calib_limit: Annotated[
        int | None, typer.Option(min=1, help="Use only the first N samples.", rich_help_panel=CALIBRATION)
    ] = None,
    method: Annotated[
        options.Method, typer.Option(help="How ranges are chosen.", rich_help_panel=CALIBRATION)
    ] = options.Method.MSE,
    percentile: Annotated[
        float, typer.Option(min=50, max=100, help="For --method percentile.", rich_help_panel=CALIBRATION)
    ] = 99.99,
    save_profile: Annotated[
        Path | None, typer.Option(help="Write the observed ranges to this text file.", rich_help_panel=CALIBRATION)
    ] = None,
    load_profile: Annotated[
        Path | None, typer.Option(help="Take the ranges from this file instead.", rich_help_panel=CALIBRATION)
    ] = None,
    bits: Annotated[
        options.Bits,
        typer.Option(
            help="8: int8, and int16 where nearly free; 16: int16 x int16; a16w8: int16 activations, int8 weights.",
            rich_help_panel=QUANTIZATION,
        ),
    ] = options.Bits.INT8,
    strict: Annotated[
        bool, typer.Option("--strict", help="With --bits 8: int8 everywhere.", rich_help_panel=QUANTIZATION)
    ] = False,
    precise: Annotated[
        bool, typer.Option("--precise", help="With --bits 8: int16 in more places.", rich_help_panel=QUANTIZATION)
    ] = False,
    per_tensor: Annotated[
        bool,
        typer.Option(
            "--per-tensor", help="One weight exponent a layer, not one a channel.", rich_help_panel=QUANTIZATION
        ),
    ] = False,
    equalize: Annotated[
        options.Equalize, typer.Option(help="Cross-layer equalization.", rich_help_panel=QUANTIZATION)
    ] = options.Equalize.AUTO,
    rounding: Annotated[
        options.Rounding, typer.Option(help="How weights are rounded.", rich_help_panel=QUANTIZATION)
    ] = options.Rounding.AUTO,
    bias_correction: Annotated[
        bool,
        typer.Option(
            "--bias-correction/--no-bias-correction",
            help="Correct biases layer by layer on calibration data.",
            rich_help_panel=QUANTIZATION,
        ),
    ] = True,
    bias_bits: Annotated[
        options.BiasBits,
        typer.Option(help="Width of all biases; auto: the narrowest that holds them.", rich_help_panel=QUANTIZATION),
    ] = options.BiasBits.NARROWEST,
    drop_channels: Annotated[
        bool,
        typer.Option(
            "--drop-channels/--keep-channels",
            help="Leave out channels that no result depends on, whatever the input.",
            rich_help_panel=QUANTIZATION,
        ),
    ] = True,
    max_ram: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="BYTES",
            help="Most RAM for activations, with --target of a microcontroller for a whole run: results lie over their "
            "inputs, and stretches of layers are computed in bands of rows, where that is needed. The outputs stay the "
            "same, the work grows.",
            rich_help_panel=QUANTIZATION,
            show_default=False,
        ),
    ] = None,
    input_shape: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=1x3x48x192", help="Bind the dynamic dimensions of an input; repeatable."),
    ] = None,
    outputs: Annotated[
        list[str] | None, typer.Option(metavar="A,B", help="Cut the model at these tensors; repeatable.")
    ] = None,
    mean: Annotated[
        str | None,
        typer.Option(
            metavar="M|R,G,B", help="x = (pixel - mean) / std, in the model's channel order.", rich_help_panel=INPUT
        ),
    ] = None,
    std: Annotated[str | None, typer.Option(metavar="S|R,G,B", rich_help_panel=INPUT)] = None,
    pixel_range: Annotated[
        str | None,
        typer.Option(
            "--range", metavar="LO,HI", help="What pixels 0 and 255 stand for. [0,255]", rich_help_panel=INPUT
        ),
    ] = None,
    layout: Annotated[
        options.Layout | None,
        typer.Option(help="Of the model's input; default: by its shape.", rich_help_panel=INPUT),
    ] = None,
    channel_order: Annotated[
        options.ChannelOrder | None, typer.Option(help="That the model expects. [rgb]", rich_help_panel=INPUT)
    ] = None,
    resize: Annotated[
        options.Resize | None,
        typer.Option(
            help="shorter side to fit, squash both, letterbox, or none: refuse. [squash]", rich_help_panel=INPUT
        ),
    ] = None,
    crop: Annotated[
        float | None,
        typer.Option(min=0.01, max=1, help="Resize to size / CROP, then cut the centre. [1]", rich_help_panel=INPUT),
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="Class names, one a line; kept in the file.", rich_help_panel=OUTPUT)
    ] = None,
    test_vectors: Annotated[
        int, typer.Option(min=0, max=100, help="Embed N inputs with their expected outputs.", rich_help_panel=OUTPUT)
    ] = 0,
    dump_ir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write the graph as text after every pass.", rich_help_panel=OUTPUT),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Write no file, and say what RAM and flash it takes: exactly with --calib, nearly without.",
        ),
    ] = False,
    machine: Annotated[
        options.Target | None,
        typer.Option("--target", help="The machine that the memory plan is for: its RAM is shown, the file names it."),
    ] = None,
    json: options.Json = False,
) -> None:
    """Quantize an ONNX model with calibration data into one .nmp file.

    \b
    Examples:
      nmpconv convert model.onnx --calib images/
      nmpconv convert model.onnx --calib train.csv --mean 123.675,116.28,103.53 --std 58.395,57.12,57.375 \\
          --resize shorter --crop 0.875 --labels classes.txt -o model8.nmp
      nmpconv convert model.onnx --calib features.npy --bits 16
      nmpconv convert model.onnx --calib left=l/ --calib right=r/
      nmpconv convert model.onnx --dry-run
      nmpconv convert model.onnx --calib images/ --dry-run --target cortex-m4
    """
    if (strict or precise) and (bits is not options.Bits.INT8 or (strict and precise)):
        raise UsageError("--strict and --precise each refine --bits 8, not both and no other width")
    target = output or Path(f"{model.stem}.nmp")
    if not dry_run:
        options.check_output(target, model)
    if save_profile is not None:
        options.check_output(save_profile, model)

    found = options.sources(calib or (), "--calib")
    shapes = options.shapes(input_shape or ())
    pictures = _preprocess(mean, std, pixel_range, layout, channel_order, resize, crop)
    classes = options.labels(labels) if labels is not None else ()

    # The engines behind these take a second to load: --help and usage errors do not wait for them.
    from nmpconv import convert as converter
    from nmpconv.files import write_file

    chosen = converter.Options(
        bits=bits.value,
        widths="strict" if strict else "precise" if precise else "default",
        per_tensor=per_tensor,
        method=method.value,
        percentile=percentile,
        equalize=equalize.value,
        rounding=rounding.value,
        bias_correction=bias_correction,
        bias_bits=0 if bias_bits is options.BiasBits.NARROWEST else int(bias_bits.value),
        drop_channels=drop_channels,
        max_ram=max_ram,
        target=machine and machine.value,
        input_shapes=shapes,
        outputs=options.names(outputs or ()),
        preprocess=pictures,
        labels=classes,
        test_vectors=test_vectors,
        dump_ir=dump_ir,
        load_profile=load_profile,
        save_profile=save_profile,
        max_images=calib_limit,
    )
    sketch = dry_run and not found and load_profile is None
    if sketch:
        result = converter.plan(model, chosen)
    else:
        with show.progress() as progress:
            result = converter.convert(model, found, chosen, progress)
        if not dry_run:
            write_file(target, result.data)
    needs = _needs(result.data, machine, sketch=sketch) if dry_run or machine else []
    report, written = result.report, None if dry_run else target
    if json:
        figures = {"flash_bytes": len(result.data), "ram": [asdict(row) for row in needs]} if needs else {}
        show.as_json({"model": str(model), "output": written and str(written), **report.to_json(), **figures})
    else:
        show_report(report, model, written, planned=sketch)
        show_needs(needs, len(result.data), planned=sketch)


def _needs(data: bytes, machine: options.Target | None, *, sketch: bool) -> list[Needs]:
    """Of one machine or of all; a sketch cannot run here, so this machine's needs are not known yet."""
    from nmpconv import reader, targets

    model = reader.read(data)
    wanted = targets.TARGETS if machine is None else (machine.value,)
    return [targets.needs(model, data, name) for name in wanted if not (sketch and name == targets.HOST)]


def _preprocess(
    mean: str | None,
    std: str | None,
    pixel_range: str | None,
    layout: options.Layout | None,
    channel_order: options.ChannelOrder | None,
    resize: options.Resize | None,
    crop: float | None,
) -> Preprocess | None:
    """The flags that were given over the defaults; None when none was given."""
    given = {
        "mean": None if mean is None else options.numbers(mean, "--mean", (1, 3)),
        "std": None if std is None else options.numbers(std, "--std", (1, 3)),
        "range": None if pixel_range is None else options.numbers(pixel_range, "--range", (2,)),
        "layout": layout and layout.value,
        "channel_order": channel_order and channel_order.value,
        "resize": resize and resize.value,
        "crop": crop,
    }
    given = {name: value for name, value in given.items() if value is not None}
    return Preprocess(**{"layout": "auto", **given}) if given else None  # type: ignore[arg-type]
