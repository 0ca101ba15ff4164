"""What `nmpconv convert` can be told, in the groups that its --help shows.

``chosen`` of a group: these keywords of `nmpconv.convert`; UsageError for text that cannot be read.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from nmpconv.base import units
from nmpconv.cli import shared_flags
from nmpconv.cli.flags import Group

COUNTS = {"mean": (1, 3), "std": (1, 3), "range": (2,)}  # of the numbers that these flags take


@dataclass(frozen=True)
class Calibration(Group):
    PANEL = "Calibration"

    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]SOURCE",
            help=f"Calibration data: {shared_flags.SOURCE_HELP}. Once per input when there are several.",
        ),
    ] = None
    limit: Annotated[int | None, typer.Option(min=1, help="Use only the first N samples.")] = None

    def chosen(self) -> dict[str, Any]:
        found = self.given()
        del found["data"]  # what is to be read: no keyword
        return found


@dataclass(frozen=True)
class Quantization(Group):
    PANEL = "Quantization"

    bits: Annotated[
        shared_flags.Bits,
        typer.Option(
            help="8: int8, and int16 where nearly free; 16: int16 x int16; a16w8: int16 activations, int8 weights; "
            "auto: 8, and int16 where --goal and --budget want it."
        ),
    ] = shared_flags.Bits.INT8
    goal: Annotated[
        str | None,
        typer.Option(
            metavar="KIND=N",
            help="Of --bits auto, on images that nothing is fitted to: sqnr=30 (dB), agreement=99 (%), top1-drop=0.5 "
            "(points; needs labels), or against the float model psnr=40 (dB), miou=95 (%) or ap50=95 (%; of boxes).",
            show_default=False,
        ),
    ] = None
    decoder: Annotated[
        shared_flags.Decoder | None,
        typer.Option(help="What --goal ap50 reads the outputs as."),
    ] = None
    budget: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COST=N",
            help="Of --bits auto: ram=64k, flash=200k, instructions=+10% (estimated for --target, a microcontroller); "
            "+N% is against 8 bits. Repeatable.",
            show_default=False,
        ),
    ] = None
    strict: Annotated[bool, typer.Option("--strict", help="With --bits 8: all activations and weights int8.")] = False
    precise: Annotated[bool, typer.Option("--precise", help="With --bits 8: int16 in more places.")] = False
    recipe: Annotated[
        Path | None,
        typer.Option(
            help="Take these choices from a TOML file, and choices for single tensors and ops by name.",
            show_default=False,
        ),
    ] = None
    save_recipe: Annotated[
        Path | None, typer.Option(help="Write what was decided to a file for --recipe.", show_default=False)
    ] = None
    max_ram: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar=units.SIZE,
            help="Most RAM for activations, such as 64k, with --target of a microcontroller for a whole run: results "
            "lie over their inputs, and stretches of layers are computed in bands of rows, where that is needed. The "
            "outputs stay the same, the work grows.",
            show_default=False,
        ),
    ] = None

    def chosen(self) -> dict[str, Any]:
        return self.given() | {"budget": shared_flags.names(self.budget or ())}


@dataclass(frozen=True)
class Preprocessing(Group):
    PANEL = "Image preprocessing"

    mean: Annotated[
        str | None,
        typer.Option(metavar="M|R,G,B", help="x = (pixel - mean) / std, in the model's channel order."),
    ] = None
    std: Annotated[str | None, typer.Option(metavar="S|R,G,B")] = None
    range: Annotated[
        str | None,
        typer.Option(metavar="LO,HI", help="What pixels 0 and 255 stand for. [0,255]"),
    ] = None
    layout: Annotated[
        shared_flags.Layout | None,
        typer.Option(help="Of the model's input; default: by its shape."),
    ] = None
    channel_order: Annotated[shared_flags.ChannelOrder | None, typer.Option(help="That the model expects. [rgb]")] = (
        None
    )
    resize: Annotated[
        shared_flags.Resize | None,
        typer.Option(help="shorter side to fit, squash both, letterbox, or none: refuse. [squash]"),
    ] = None
    crop: Annotated[
        float | None,
        typer.Option(min=0.01, max=1, help="Resize to size / CROP, then cut the centre. [1]"),
    ] = None

    max_pixels: shared_flags.MaxPixels = None

    def chosen(self) -> dict[str, Any]:
        found = self.given()
        texts = {name: shared_flags.numbers(found[name], f"--{name}", COUNTS[name]) for name in COUNTS if found[name]}
        return found | texts


@dataclass(frozen=True)
class Contents(Group):
    PANEL = "Output"

    labels: Annotated[Path | None, typer.Option(help="Class names, one a line; kept in the file.")] = None
    test_vectors: Annotated[int, typer.Option(min=0, max=100, help="Embed N inputs with their expected outputs.")] = 0
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Write a report to look at in a browser: layers, graph, histograms."),
    ] = None
    levers: Annotated[
        bool | None,
        typer.Option(
            "--levers/--no-levers",
            help="Measure what 16 bits at the costliest tensors would bring: four more fits; default: with --report.",
            show_default=False,
        ),
    ] = None
    workers: shared_flags.Workers = None

    def chosen(self) -> dict[str, Any]:
        return self.given()


@dataclass(frozen=True)
class Expert(Group):
    PANEL = "For experts"

    method: Annotated[shared_flags.Method, typer.Option(help="How ranges are chosen.")] = shared_flags.Method.MSE
    percentile: Annotated[float, typer.Option(min=50, max=100, help="For --method percentile.")] = 99.99
    per_tensor: Annotated[
        bool,
        typer.Option("--per-tensor", help="One weight exponent a layer, not one a channel."),
    ] = False
    equalize: Annotated[
        shared_flags.Equalize,
        typer.Option(
            help="Cross-layer equalization. One that changes the float model is left out, for the next plainer one."
        ),
    ] = shared_flags.Equalize.AUTO
    rounding: Annotated[shared_flags.Rounding, typer.Option(help="How weights are rounded.")] = (
        shared_flags.Rounding.AUTO
    )
    bias_correction: Annotated[
        bool,
        typer.Option(
            "--bias-correction/--no-bias-correction", help="Correct biases layer by layer on calibration data."
        ),
    ] = True
    bias_bits: Annotated[
        shared_flags.BiasBits,
        typer.Option(help="Width of all biases; auto: the narrowest that holds them."),
    ] = shared_flags.BiasBits.NARROWEST
    zero_points: Annotated[
        bool,
        typer.Option(
            "--zero-points/--no-zero-points",
            help="Let one-sided int8 tensors fill the type: biases, paddings and tables take up the zero point.",
        ),
    ] = True
    drop_channels: Annotated[
        bool,
        typer.Option(
            "--drop-channels/--keep-channels", help="Leave out channels that no result depends on, whatever the input."
        ),
    ] = True
    save_profile: Annotated[Path | None, typer.Option(help="Write the observed ranges to this text file.")] = None
    load_profile: Annotated[Path | None, typer.Option(help="Take the ranges from this file instead.")] = None
    dump_ir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write the graph as text after every pass."),
    ] = None

    def chosen(self) -> dict[str, Any]:
        return self.given()
