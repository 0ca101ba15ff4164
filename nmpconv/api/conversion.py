"""nmpconv.convert."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmpconv.api import literals
from nmpconv.api.file_argument import sources
from nmpconv.api.keywords import check, forgiving
from nmpconv.api.models import on_disk
from nmpconv.api.pages import of_conversion
from nmpconv.base.files import check_output, write_file
from nmpconv.base.progress import Progress, silent
from nmpconv.conversion import pipeline
from nmpconv.conversion.options import Options
from nmpconv.conversion.report import Report
from nmpconv.data.samples import Data
from nmpconv.ir import Graph
from nmpconv.runtime.interpreter import Net, load

if TYPE_CHECKING:
    import onnx

    from nmpconv.calib.observers import TensorStats

OURS = (
    "model",
    "data",
    "example_inputs",
    "journal",
    "report",
    "levers",
    "workers",
    "progress",
)  # keywords that change nothing of a conversion
log = logging.getLogger("nmpconv")
log.addHandler(logging.NullHandler())  # nothing is printed unless a program asks for it


@dataclass(frozen=True)
class Converted:
    """A conversion's result.

    data: the bytes of the .nmp file, also as bytes(converted). report: sizes, and what was measured. graph: the integer
    graph that the file was written from. stats: what calibration saw of the activations, by name. sketch: nothing was
    calibrated, so sizes count and the integers do not.
    """

    data: bytes
    report: Report
    graph: Graph
    stats: Mapping[str, TensorStats] = field(default_factory=dict)
    sketch: bool = False

    def __bytes__(self) -> bytes:
        return self.data

    def save(self, path: str | PathLike[str]) -> Path:
        """Writes the file, whole or not at all, and returns its path. Raises OutputError."""
        write_file(Path(path), self.data)
        return Path(path)

    def load(self, *, cpu: str | None = None, threads: int | None = None) -> Net:
        """The net, ready to run; see `nmpconv.load`."""
        return load(self.data, cpu=cpu, threads=threads)


@forgiving(calib_limit="limit")
def convert(
    model: str | Path | bytes | onnx.ModelProto | Any,
    data: Data | Mapping[str, Data] | None = None,
    *,
    example_inputs: Any = None,
    limit: int | None = None,
    method: literals.Method = "mse",
    percentile: float = 99.99,
    save_profile: Path | None = None,
    load_profile: Path | None = None,
    recipe: Path | None = None,
    save_recipe: Path | None = None,
    bits: literals.Bits = "8",
    goal: str | None = None,
    decoder: literals.Decoder | None = None,
    budget: Sequence[str] | None = None,
    journal: Path | None = None,
    strict: bool = False,
    precise: bool = False,
    per_tensor: bool = False,
    equalize: literals.Equalize = "auto",
    rounding: literals.Rounding = "auto",
    bias_correction: bool = True,
    bias_bits: literals.BiasBits = "auto",
    zero_points: bool = True,
    drop_channels: bool = True,
    max_ram: int | None = None,
    input_shape: Mapping[str, Sequence[int]] | None = None,
    outputs: Sequence[str] | None = None,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
    range: tuple[float, float] | None = None,
    layout: literals.Layout | None = None,
    channel_order: literals.ChannelOrder | None = None,
    resize: literals.Resize | None = None,
    crop: float | None = None,
    max_pixels: int | None = None,
    labels: Path | str | Sequence[str] | None = None,
    test_vectors: int = 0,
    dump_ir: Path | None = None,
    dry_run: bool = False,
    target: literals.Target | None = None,
    stream: str | None = None,
    state: Sequence[str] | None = None,
    audio: str | None = None,
    report: Path | None = None,
    levers: bool | None = None,
    workers: int | str | None = None,
    progress: Progress = silent,
) -> Converted:
    """Quantizes an ONNX model with calibration data. Nothing is written but what ``save_profile``,
    ``save_recipe``, ``journal`` and ``dump_ir`` name.

    model: a path, the bytes of an ONNX file, an onnx.ModelProto, or a torch module, which is exported by calling it
    with ``example_inputs`` (a tensor, or a tuple of them).
    data: calibration samples, about 100, labels are not needed: a path (a folder of images, a .csv, .txt, .npy or
    .npz), an array [n, ...] of model inputs or uint8 [n,H,W,C] of pictures, or any iterable of arrays, (array, label)
    pairs, pictures of Pillow, paths, or rows with named columns: a torch DataLoader, a dataset of Hugging Face. With
    several inputs, a mapping from the input's name to one of these. None: the ranges that a quantized model has, a
    loaded profile, or with ``dry_run`` sizes only (`Converted.sketch`).
    mean, std: x = (pixel - mean) / std, one number or one a channel in the model's order, for pixels in ``range``
    (0, 255 unless given). labels: class names, or a text file with one a line. max_ram: bytes. input_shape: sizes of
    dynamic dimensions by input. outputs: tensors to cut the model at. progress: is called with (stage, done, total).
    journal: a file in which bits "auto" keeps what it has measured, to go on after a kill; whoever gives it removes it.
    report: an HTML file to write, see `nmpconv.html_report`. levers: measure the 16 bits that would help most, which
    takes four more fits (`Report.levers`); None: where there is a report. workers: how many processes fit recipes,
    levers and candidates of bits "auto", or the address of a dask scheduler; the file is the same. The others are as
    `nmpconv convert --help` tells.

    Raises InputError for what cannot be read, UsageError for arguments that do not fit, UnsupportedModel with a row for
    each node that cannot be converted. `node`, `found`, `allowed` and `hint` of an error say more where it is known.
    """
    told = {name: value for name, value in locals().items() if name not in OURS}
    ours = {"progress": progress, "journal": journal, "report": report, "levers": levers, "workers": workers}
    check(convert, told | ours)
    width, bias = str(bits), str(bias_bits)
    look: dict[str, Any] = {"mean": mean, "std": std, "range": range, "layout": layout, "channel_order": channel_order}
    look |= {"resize": resize, "crop": crop}
    chosen = Options(
        bits=width,
        goal=goal,
        decoder=decoder,
        budget=literals.several(budget),
        journal=literals.path(journal),
        widths=literals.widths(width, strict, precise),
        per_tensor=per_tensor,
        method=method,
        percentile=percentile,
        equalize=equalize,
        rounding=rounding,
        bias_correction=bias_correction,
        bias_bits=0 if bias == "auto" else int(bias),
        zero_points=zero_points,
        drop_channels=drop_channels,
        max_ram=max_ram,
        target=target,
        stream=stream,
        state=literals.several(state),
        audio=audio,
        input_shapes={name: tuple(shape) for name, shape in (input_shape or {}).items()},
        outputs=literals.several(outputs),
        preprocess=literals.preprocess(look),
        labels=literals.labels(labels),
        test_vectors=test_vectors,
        dump_ir=literals.path(dump_ir),
        load_profile=literals.path(load_profile),
        save_profile=literals.path(save_profile),
        recipe=literals.path(recipe),
        save_recipe=literals.path(save_recipe),
        levers=report is not None if levers is None else levers,
        workers=None if workers is None else str(workers),
        max_images=limit,
        max_pixels=max_pixels,
    )
    for path in (journal, report, save_profile, save_recipe):
        if path is not None:
            check_output(Path(path))
    found = {} if data is None else sources(data)
    sketch = dry_run and not found and load_profile is None and width != "auto"
    with on_disk(model, example_inputs) as path:
        result = pipeline.plan(path, chosen) if sketch else pipeline.convert(path, found, chosen, progress)
        converted = Converted(result.data, result.report, result.graph, result.stats, sketch)
        if report is not None:
            defaults = {name: parameter.default for name, parameter in signature(convert).parameters.items()}
            command = literals.command(path.name, found, told, defaults)
            text = of_conversion(converted, f"{path.stem}.nmp", path, found, command, progress)
            write_file(Path(report), text.encode())
        log.info("%s: %d bytes, %s", path.name, len(result.data), result.report.recipe or "not calibrated")
    for note in result.report.notes:
        log.info("%s", note)
    for warning in result.report.warnings:
        log.warning("%s", warning)
    return converted
