"""Keywords of `nmpconv.convert`: the options, and what becomes options or is of the call alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmpconv.base.progress import Progress
from nmpconv.conversion.option_types import ChannelOrder, Layout, Resize, as_flag, option_flag
from nmpconv.conversion.options import MODEL, OUTPUT, PREPROCESSING, QUANTIZATION, Options

if TYPE_CHECKING:
    from nmpconv.data.samples import Data
    from nmpconv.ir import Preprocess


@dataclass(frozen=True)
class Keywords(Options):
    """Keywords of `nmpconv.convert`: the options, and what programs hand over with them."""

    model: Any
    data: Data | Mapping[str, Data] | None = None
    _: KW_ONLY
    example_inputs: Any = None
    mean: float | Sequence[float] | None = field(
        default=None,
        metadata=as_flag(
            PREPROCESSING,
            "x = (pixel - mean) / std, in the model's channel order.",
            counts=(1, 3),
            metavar="M|R,G,B",
            example="mean=(123.675, 116.28, 103.53)",
        ),
    )
    std: float | Sequence[float] | None = field(
        default=None,
        metadata=as_flag(PREPROCESSING, counts=(1, 3), metavar="S|R,G,B", example="std=(58.395, 57.12, 57.375)"),
    )
    range: tuple[float, float] | None = field(
        default=None,
        metadata=as_flag(
            PREPROCESSING,
            "Values that pixels 0 and 255 map to. [0,255]",
            counts=(2,),
            metavar="LO,HI",
            example="range=(0, 1)",
        ),
    )
    layout: Layout | None = field(
        default=None, metadata=as_flag(PREPROCESSING, "Layout of the model's input; default: inferred.")
    )
    channel_order: ChannelOrder | None = field(
        default=None, metadata=as_flag(PREPROCESSING, "Channel order the model expects. [rgb]")
    )
    resize: Resize | None = field(
        default=None,
        metadata=as_flag(PREPROCESSING, "shorter side to fit, squash both, letterbox, or none: refuse. [squash]"),
    )
    crop: float | None = field(
        default=None,
        metadata=as_flag(PREPROCESSING, "Resize to size / CROP, then cut the centre. [1]", low=0.01, high=1),
    )
    strict: bool = field(
        default=False, metadata=as_flag(QUANTIZATION, "With --bits 8: all activations and weights int8.")
    )
    precise: bool = field(default=False, metadata=as_flag(QUANTIZATION, "With --bits 8: int16 in more places."))
    dry_run: bool = field(
        default=False,
        metadata=as_flag(
            MODEL,
            "Write no file, and say what RAM and flash it takes: exactly with --data, nearly without.",
            project=False,
        ),
    )
    report: Path | None = field(
        default=None,
        metadata=as_flag(
            OUTPUT,
            "Write a report to look at in a browser: layers, graph, histograms.",
            metavar="FILE.html",
            writes=True,
            project=False,
            command=False,
        ),
    )
    title: str | None = None
    progress: Progress | bool | None = None
    preprocess: Mapping[str, Preprocess] | Preprocess | None = field(default=None, init=False)


FLAGS = {option.name: flag for option in fields(Keywords) if (flag := option_flag(option)) is not None}
"""Flags of the options, by name."""
