"""nmpconv.convert."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmpconv.api import forms
from nmpconv.api.file_argument import sources
from nmpconv.api.keyword_checks import taking
from nmpconv.api.log import log
from nmpconv.api.models import on_disk
from nmpconv.api.pages import of_conversion
from nmpconv.base.files import check_output, write_file
from nmpconv.base.progress import reporter
from nmpconv.base.summary import Chart, Summarized, Summary
from nmpconv.base.verdict import Verdict
from nmpconv.conversion import pipeline
from nmpconv.conversion.keywords import FLAGS, Keywords
from nmpconv.conversion.report import Report
from nmpconv.errors import as_keywords, refusal
from nmpconv.ir import Graph
from nmpconv.runtime.interpreter import Net, load

if TYPE_CHECKING:
    from nmpconv.calib.observers import TensorStats


@dataclass(frozen=True, repr=False)
class Converted(Summarized):
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

    def summary(self) -> Summary:
        return replace(self.report.summary(), title="Converted")

    @property
    def verdict(self) -> Verdict:
        """The verdict on the conversion."""
        return self.report.verdict

    def records(self) -> list[dict[str, Any]]:
        return self.report.records()

    def chart(self) -> Chart:
        return self.report.chart()

    def save(self, path: str | PathLike[str]) -> Path:
        """Writes the file, whole or not at all, and returns its path. Raises OutputError."""
        if not isinstance(path, str | PathLike):
            raise refusal(path, "a path", "path")
        write_file(Path(path), self.data)
        return Path(path)

    def load(self, *, cpu: str | None = None, threads: int | None = None) -> Net:
        """The net, ready to run; see `nmpconv.load`."""
        return load(self.data, cpu=cpu, threads=threads)


@taking(Keywords, calib_limit="limit")
def convert(keywords: Keywords) -> Converted:
    """Quantizes an ONNX model with calibration data. Nothing is written but what ``save_profile``,
    ``save_recipe``, ``journal`` and ``dump_ir`` name.

    model: a path, the bytes of an ONNX file, an onnx.ModelProto, a program of torch.export, or a torch module, which
    is exported by calling it with ``example_inputs`` (a tensor, or a tuple of them; None: the first sample of data,
    where that is an array). A path in .pt2 is a saved program: torch loads it, and may run code that it holds.
    data: calibration samples, about 100, labels are not needed: a path (a folder of images, a .csv, .txt, .npy or
    .npz), an array [n, ...] of model inputs or uint8 [n,H,W,C] of pictures, or any iterable of arrays, (array, label)
    pairs, pictures of Pillow, paths, or rows with named columns: a torch DataLoader, a dataset of Hugging Face; or a
    tuple (array, labels). With several inputs, a mapping from the input's name to one of these. None: the ranges that a
    quantized model has, a loaded profile, or with ``dry_run`` sizes only (`Converted.sketch`).
    mean, std: x = (pixel - mean) / std, one number or one a channel in the model's order, for pixels in ``range``
    (0, 255 unless given). labels: class names, or a text file with one a line. max_ram: bytes. input_shape: sizes of
    dynamic dimensions by input. input_value: numbers of inputs that are the same in every run, by input: one for all
    elements, or an array; they become constants, and an If that they decide its branch. outputs: tensors to cut the
    model at. progress: is called with (stage, done, total); True shows bars. journal: a file in which bits "auto" keeps
    what it has measured, to go on after a kill; whoever gives it removes it. report: an HTML file to write, see
    `nmpconv.html_report`. title: of that report; None: the model's file name. levers: measure the 16 bits that
    would help most, which takes four more fits (`Report.levers`); None: where there is a report. workers: how many
    processes fit recipes, levers and candidates of bits "auto", or the address of a dask scheduler; the file is the
    same.

    The others are as `nmpconv convert --help` tells. Raises InputError for what cannot be read, UsageError for
    arguments that do not fit, UnsupportedModel with a row for each node that cannot be converted. `node`, `found`,
    `allowed` and `hint` of an error say more where it is known.

    For example:

        converted = nmpconv.convert("model.onnx", "images/", mean=127.5, std=127.5)
        converted.save("model.nmp")
    """
    options, progress, report = forms.options(keywords), reporter(keywords.progress), keywords.report
    for name, flag in FLAGS.items():
        if flag.writes and (file := getattr(keywords, name)) is not None:
            check_output(file)
    samples = {} if keywords.data is None else sources(keywords.data)
    sketch = keywords.dry_run and not samples and options.load_profile is None and options.bits != "auto"
    with on_disk(keywords.model, keywords.example_inputs, samples) as path:
        result = pipeline.plan(path, options) if sketch else pipeline.convert(path, samples, options, progress)
        converted = Converted(result.data, result.report, result.graph, result.stats, sketch)
        if report is not None:
            command = forms.command(path.name, samples, keywords)
            title = keywords.title or path.name
            text = of_conversion(converted, title, path, samples, command, options.decoder, progress)
            write_file(report, text.encode())
        log.info("%s: %d bytes, %s", path.name, len(result.data), result.report.recipe or "not calibrated")
    for note in result.report.notes:
        log.info("considered: %s", as_keywords(note))
    for warning in result.report.warnings:
        log.warning("%s", as_keywords(warning))
    return converted
