"""Options of a conversion, each declared once; `keywords.py` has those that only its callers know.

A field has its type, its default and a `Flag`: help, bounds, and where it is kept. The command line, the keywords of
`nmpconv.convert`, the keys of nmpconv.toml and of recipes, their checks, the file's metadata and the command that a
report shows are made of these fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmpconv.base import memory_spec, units
from nmpconv.base.memory_spec import Memories
from nmpconv.conversion.option_types import (
    BiasBits,
    Bits,
    Decoder,
    Equalize,
    Method,
    Rounding,
    Target,
    Widths,
    as_flag,
    normal,
    option_flag,
)

if TYPE_CHECKING:
    from nmpconv.ir import Preprocess

CALIBRATION, PREPROCESSING, QUANTIZATION = "Calibration", "Image preprocessing", "Quantization"
OUTPUT, MODEL, EXPERTS = "Output", "Options", "For experts"
PANELS_IN_ORDER = (CALIBRATION, PREPROCESSING, QUANTIZATION, OUTPUT, MODEL, EXPERTS)  # of --help

PIXELS_MOST = 178_956_970  # Pillow's own limit


def _bias_width(value: str) -> int:
    """Bits of biases; 0 for the narrowest."""
    return int(value) if value.isdecimal() else 0


def _true_or_none(on: bool) -> bool | None:
    """None where files say nothing of an option that is off."""
    return True if on else None


@dataclass(frozen=True, kw_only=True)
class Options:
    """Choices of a conversion. Words and numbers are as `normal` makes them, whatever form they were given in.

    preprocess: of image inputs, by input name or one for all; `Keywords` makes it of its own fields.
    """

    limit: int | None = field(
        default=None,
        metadata=as_flag(
            CALIBRATION, "Use only the first N samples.", low=1, example="limit=100", recorded="max_images"
        ),
    )
    max_pixels: int | None = field(
        default=None,
        metadata=as_flag(
            CALIBRATION,
            "Most pixels of an image; default: 67,108,864.",
            low=1,
            high=PIXELS_MOST,
            metavar="N",
            shows_default=False,
        ),
    )
    bits: Bits = field(
        default="8",
        metadata=as_flag(
            QUANTIZATION,
            "8: int8, and int16 where nearly free; 16: int16 x int16; a16w8: int16 activations, int8 weights; "
            "auto: 8, and int16 where --goal and --budget want it.",
            recorded="bits",
            recipe=("8", "16", "a16w8"),
        ),
    )
    goal: str | None = field(
        default=None,
        metadata=as_flag(
            QUANTIZATION,
            "Target for --bits auto, on validation images: sqnr=30 (dB), agreement=99 (%), top1-drop=0.5 "
            "(points; needs labels), or against the float model psnr=40 (dB), miou=95 (%) or ap50=95 (%; of boxes).",
            metavar="KIND=N",
            example="goal='sqnr=30'",
            shows_default=False,
        ),
    )
    budget: Sequence[str] | None = field(
        default=None,
        metadata=as_flag(
            QUANTIZATION,
            "Limits for --bits auto: ram=64k, flash=200k, instructions=+10% (estimated for --target, a "
            "microcontroller); +N% is against 8 bits. Repeatable.",
            metavar="COST=N",
            example="budget=['ram=64k']",
            shows_default=False,
        ),
    )
    decoder: Decoder | None = field(
        default=None,
        metadata=as_flag(QUANTIZATION, "Detector whose outputs hold boxes: the verdict and --goal ap50 use it."),
    )
    boxes: Path | None = field(
        default=None,
        metadata=as_flag(
            QUANTIZATION,
            "The images' boxes, for AP50 in the verdict, with --decoder: COCO JSON, a CSV of file,labels, or a folder "
            "of YOLO's texts.",
            metavar="FILE",
            shows_default=False,
            project=False,
        ),
    )
    journal: Path | None = field(
        default=None, metadata=as_flag("", spelling="", writes=True, project=False, command=False)
    )
    widths: Widths = field(
        default="default", metadata=as_flag("", spelling="", recorded="widths", recipe=True, command=False)
    )
    fast: bool = field(
        default=False,
        metadata=as_flag(
            QUANTIZATION,
            "Try one recipe instead of comparing several, with biases fitted on 8 samples and no int16 by measurement: "
            "a fraction of the time, for some accuracy.",
            recorded="fast",
            recorded_default=False,
            recipe=True,
            stored=_true_or_none,
        ),
    )
    recipe: Path | None = field(
        default=None,
        metadata=as_flag(
            QUANTIZATION,
            "Take these choices from a TOML file, and choices for single tensors and ops by name.",
            shows_default=False,
        ),
    )
    save_recipe: Path | None = field(
        default=None,
        metadata=as_flag(
            QUANTIZATION,
            "Write what was decided to a file for --recipe.",
            shows_default=False,
            writes=True,
            project=False,
        ),
    )
    max_ram: int | None = field(
        default=None,
        metadata=as_flag(
            QUANTIZATION,
            "Most RAM for activations, such as 64k, with --target of a microcontroller for a whole run: results "
            "lie over their inputs, and stretches of layers are computed in bands of rows, where that is needed. The "
            "outputs stay the same, the work grows.",
            low=1,
            metavar=units.SIZE,
            example="max_ram=65536, in bytes",
            shows_default=False,
            recorded="max_ram",
            recipe=True,
        ),
    )
    ram: str | None = field(
        default=None,
        metadata=as_flag(
            QUANTIZATION,
            "A fast memory and a slow one beside it: tensors lie so that ops move few bytes in the slow one. The "
            "outputs stay the same.",
            metavar=memory_spec.FORM,
            example=f"ram={memory_spec.FORM!r}",
            shows_default=False,
            recorded="ram",
            recorded_default=False,
            recipe=True,
        ),
    )
    target: Target | None = field(
        default=None,
        metadata=as_flag(MODEL, "The machine that the memory plan is for: its RAM is shown, the file names it."),
    )
    input_shape: Mapping[str, Sequence[int]] | None = field(
        default=None,
        metadata=as_flag(
            MODEL,
            "Bind the dynamic dimensions of an input; repeatable.",
            metavar="NAME=1x3x48x192",
            example="input_shape={'x': (1, 3, 48, 192)}",
            recorded="input_shapes",
        ),
    )
    input_value: Mapping[str, bool | float | Sequence[Any]] | None = field(
        default=None,
        metadata=as_flag(
            MODEL,
            "Make an input a constant: one number for all elements, or all of them, as 0,1,0.5; an If that it "
            "decides becomes its branch; repeatable.",
            metavar="NAME=VALUE",
            example="input_value={'sr': 16000}",
            recorded="input_values",
            recorded_default=False,
        ),
    )
    outputs: Sequence[str] | None = field(
        default=None,
        metadata=as_flag(
            MODEL,
            "Cut the model at these tensors; repeatable. auto: where it has to be.",
            metavar="A,B",
            example="outputs=['logits']",
            recorded="outputs",
        ),
    )
    stream: str | None = field(
        default=None,
        metadata=as_flag(
            MODEL,
            "Convert to a step that takes the next N frames along axis A of the input, and keeps the rest.",
            metavar="axis=A,hop=N",
            shows_default=False,
            recorded="stream",
        ),
    )
    state: Sequence[str] | None = field(
        default=None,
        metadata=as_flag(
            MODEL,
            "Keep this output as that input of the next call: a hidden vector; repeatable.",
            metavar="OUTPUT=INPUT",
            shows_default=False,
            recorded="state",
        ),
    )
    audio: str | None = field(
        default=None,
        metadata=as_flag(
            MODEL,
            "How sound becomes the input, so that .wav files can be given: logarithms of energies in mel bands, "
            "of windows of so many samples, with mfcc=N their cosine transform; or rate=HZ for the samples themselves.",
            metavar="rate=HZ,window=N,hop=N,bands=N",
            shows_default=False,
            recorded="audio",
        ),
    )
    labels: Path | str | Sequence[str] | None = field(
        default=None,
        metadata=as_flag(
            OUTPUT,
            "Class names, one a line; kept in the file.",
            example="labels='classes.txt', or a list of names",
        ),
    )
    test_vectors: int = field(
        default=0,
        metadata=as_flag(
            OUTPUT, "Embed N inputs with their expected outputs.", low=0, high=100, recorded="test_vectors"
        ),
    )
    levers: bool | None = field(
        default=None,
        metadata=as_flag(
            OUTPUT,
            "Measure the gain of int16 for the noisiest tensors, by four more fits; default: with --report.",
            spelling="--levers/--no-levers",
            shows_default=False,
            command=False,
        ),
    )
    workers: int | str | None = field(
        default=None,
        metadata=as_flag(
            OUTPUT,
            "Compute in N processes, or in a dask scheduler's (pip install 'nmpconv[dask]'), to the same result.",
            metavar="N|tcp://HOST:PORT",
            shows_default=False,
            project=False,
            command=False,
        ),
    )
    method: Method = field(
        default="mse", metadata=as_flag(EXPERTS, "How ranges are chosen.", recorded="method", recipe=True)
    )
    drop_outliers: bool | None = field(
        default=None,
        metadata=as_flag(
            EXPERTS,
            "Choose grids without the samples that reach much farther than all others; default: where the result is "
            "poor with them.",
            spelling="--drop-outliers/--keep-outliers",
            shows_default=False,
            recorded="drop_outliers",
            recorded_default=False,
            recipe=True,
        ),
    )
    percentile: float = field(
        default=99.99,
        metadata=as_flag(EXPERTS, "For --method percentile.", low=50, high=100, recorded="percentile", recipe=True),
    )
    per_tensor: bool = field(
        default=False,
        metadata=as_flag(
            EXPERTS, "One weight exponent a layer, not one a channel.", recorded="per_tensor", recipe=True
        ),
    )
    equalize: Equalize = field(
        default="auto",
        metadata=as_flag(
            EXPERTS,
            "Cross-layer equalization; a simpler mode where the float function would change. "
            "streams: vector that fills long residual streams more evenly.",
            recipe=True,
        ),
    )
    rounding: Rounding = field(default="auto", metadata=as_flag(EXPERTS, "How weights are rounded.", recipe=True))
    bias_correction: bool = field(
        default=True,
        metadata=as_flag(
            EXPERTS, "Correct biases layer by layer on calibration data.", recorded="bias_correction", recipe=True
        ),
    )
    amplify: bool | None = field(
        default=None,
        metadata=as_flag(
            EXPERTS,
            "Let weights of 8 bits make up for differences that noise has weakened; default: where that is better.",
            shows_default=False,
            recorded="amplify",
            recorded_default=False,
            recipe=True,
        ),
    )
    bias_bits: BiasBits = field(
        default="auto",
        metadata=as_flag(
            EXPERTS,
            "Width of all biases; auto: the narrowest that holds them.",
            recorded="bias_bits",
            recipe=("auto", 0, 8, 16, 32),
            stored=_bias_width,
        ),
    )
    zero_points: bool = field(
        default=True,
        metadata=as_flag(
            EXPERTS,
            "Let one-sided int8 tensors fill the type: biases, paddings and tables take up the zero point.",
            recipe=True,
        ),
    )
    drop_channels: bool = field(
        default=True,
        metadata=as_flag(
            EXPERTS,
            "Leave out channels that no result depends on, whatever the input.",
            spelling="--drop-channels/--keep-channels",
            recorded="drop_channels",
            recipe=True,
        ),
    )
    faithful: bool = field(
        default=False,
        metadata=as_flag(
            EXPERTS,
            "Keep the grids and the integers of a model that was quantized before, and choose nothing: steps that are "
            "no powers of two become the nearest.",
            recorded="faithful",
            recorded_default=False,
            recipe=True,
            stored=_true_or_none,
        ),
    )
    save_profile: Path | None = field(
        default=None,
        metadata=as_flag(EXPERTS, "Write the observed ranges to this text file.", writes=True, project=False),
    )
    load_profile: Path | None = field(
        default=None, metadata=as_flag(EXPERTS, "Take the ranges from this file instead.")
    )
    dump_ir: Path | None = field(
        default=None,
        metadata=as_flag(EXPERTS, "Write the graph as text after every pass.", metavar="DIR", project=False),
    )
    preprocess: Mapping[str, Preprocess] | Preprocess | None = None

    def __post_init__(self) -> None:
        for option in fields(self):
            if option_flag(option) is not None:
                object.__setattr__(self, option.name, normal(option, getattr(self, option.name)))

    def preprocess_of(self, name: str) -> Preprocess | None:
        """Preprocessing of an input."""
        return self.preprocess.get(name) if isinstance(self.preprocess, Mapping) else self.preprocess

    @property
    def bound_inputs(self) -> tuple[Any, Any]:
        """Numbers and sizes of inputs that are given, by name, each a mapping to tuples."""
        return self.input_value, self.input_shape

    @property
    def bias_width(self) -> int:
        """Bits of all biases; 0 for the narrowest."""
        return _bias_width(str(self.bias_bits))

    @property
    def memories(self) -> Memories | None:
        """Bytes of a fast and of a slow memory. Raises UsageError."""
        return None if self.ram is None else memory_spec.parse(self.ram)

    def changed(self) -> dict[str, Any]:
        """Options that are not at their defaults, for the command that does the same."""
        flags = [option for option in fields(self) if (flag := option_flag(option)) is not None and flag.command]
        pairs = [(option, getattr(self, option.name)) for option in flags]
        return {option.name: value for option, value in pairs if value != normal(option, option.default)}

    def in_recipe(self) -> dict[str, Any]:
        """Options of the table [convert] of a recipe."""
        flags = [(option.name, option_flag(option)) for option in fields(self)]
        values = {name: flag.stored(getattr(self, name)) for name, flag in flags if flag is not None and flag.recipe}
        return {name: value for name, value in values.items() if value is not None}

    def recorded(self) -> dict[str, Any]:
        """Options that the file's metadata holds. Of the others the file has what came of them."""
        values = {}
        for option in fields(self):
            flag = option_flag(option)
            if flag is not None and flag.recorded and (flag.recorded_default or getattr(self, option.name)):
                values[flag.recorded] = flag.stored(getattr(self, option.name))
        return values
