"""nmpconv.html_report and nmpconv.page, and the report of a conversion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nmpconv.api.file_argument import NmpFile, contents_of, sources
from nmpconv.api.keyword_checks import check, forgiving
from nmpconv.api.models import names_in, on_disk, picture_in
from nmpconv.base.progress import Progress, reporter, silent
from nmpconv.base.verdict import Verdict
from nmpconv.conversion.option_types import Decoder
from nmpconv.data.samples import Data
from nmpconv.evaluation.detection.decoders import DECODERS
from nmpconv.evaluation.task_metrics import SURE, decoded
from nmpconv.exporters import browser, html
from nmpconv.exporters.html.charts import Bars, rebinned
from nmpconv.exporters.html.subject import Subject, of_file
from nmpconv.exporters.html.worst_samples import Judged, judge
from nmpconv.runtime.benchmark import measure
from nmpconv.runtime.interpreter import load

if TYPE_CHECKING:
    import onnx

    from nmpconv.api.conversion import Converted

SAMPLES = 64  # that the worst ones are looked for among


class ReportPage(str):
    """Text of a report's HTML file. verdicts: on each of its files."""

    verdicts: tuple[Verdict, ...] = ()

    @classmethod
    def of(cls, subjects: Sequence[Subject]) -> ReportPage:
        page = cls(html.render(subjects))
        page.verdicts = tuple(subject.verdict for subject in subjects)
        return page


@forgiving()
def html_report(
    files: NmpFile | Sequence[NmpFile],
    *,
    data: Data | Mapping[str, Data] | None = None,
    reference: str | Path | bytes | onnx.ModelProto | Any = None,
    example_inputs: Any = None,
    limit: int = SAMPLES,
    time: bool = False,
    decoder: Decoder | None = None,
    progress: Progress | bool = silent,
) -> ReportPage:
    """The report of a .nmp file, or of two and what differs between them, as one HTML file that needs no network.

    files: paths, bytes, or what `nmpconv.convert` returned, whose report and histograms are then in it. data, as for
    `nmpconv.convert`: ``limit`` samples are run, for histograms and for the worst of them; not an iterator where there
    are two files. reference: the model that they are compared with, and example_inputs for a torch module, as for
    `nmpconv.convert`. time: measure the ops on this machine; only then do two reports of the same arguments differ.
    decoder: how boxes, drawn over the worst samples, are read from a detector's outputs, as of `nmpconv.evaluate`.

    The page is a str, whose ``verdicts`` are those on the files. Raises ModelError, InputError, UsageError.

    For example:

        Path("model.html").write_text(nmpconv.html_report("model.nmp"))
    """
    check(html_report, {"limit": limit, "time": time, "decoder": decoder, "progress": progress})
    progress = reporter(progress)
    models: Sequence[Any] = files if isinstance(files, list | tuple) else [files]
    subjects, samples = [], None if data is None else sources(data)
    first = contents_of(models[0])[1] if reference is not None and models else None
    about: tuple[Any, ...] = () if first is None else (names_in(first, reference), picture_in(first))
    with nullcontext() if reference is None else on_disk(reference, example_inputs, samples, *about) as path:
        for number, file in enumerate(models):
            subjects.append(_subject(file, number, samples, path, limit, time, decoder, progress))
    return ReportPage.of(subjects)


@forgiving()
def page(file: NmpFile, *, decoder: Decoder | None = None) -> str:
    """One HTML file that runs a .nmp file in a browser, on pictures or sounds.

    They are dropped, chosen, or taken by the camera or the microphone. file: a path, bytes, or what `nmpconv.convert`
    returned, with one input: an image whose preprocessing is in the file, or sound whose front end is. decoder: how
    boxes that are drawn are read from a detector's outputs, as of `nmpconv.evaluate`.

    The outputs there are, byte for byte, those of `nmpconv.load` on the same pixels or frames of sound. Needs the
    interpreter as WebAssembly: a wheel has it; else the first page compiles it by PyPI's ziglang and make, in seconds.
    Raises ModelError, InputError, UsageError, DeviceError.

    For example:

        Path("page.html").write_text(nmpconv.page("model.nmp"))
    """
    check(page, {"decoder": decoder})
    content, model = contents_of(file)
    name = Path(file).stem if isinstance(file, str | Path) else "model"
    detection = None
    if decoder is not None:
        _, *size, _ = model.tensors[browser.image(model, name).tensor].shape
        decoded(decoder, [np.zeros(shape) for shape in browser.outputs(model).values()], (size[0], size[1]))
        detection = browser.Detection(decoder, DECODERS[decoder].overlap, SURE)
    return browser.page(name, model, content, detection)


def _subject(
    file: NmpFile,
    number: int,
    data: Mapping[str, Data] | None,
    reference: Path | None,
    limit: int,
    time: bool,
    decoder: Decoder | None,
    progress: Progress,
) -> Subject:
    content, model = contents_of(file)
    net = load(content) if data is not None or time else None
    judged = Judged()
    if net is not None and data is not None:
        judged = judge(net, data, reference, limit, progress, decoder)
    times = measure(net, runs=None, warmup=3, progress=progress).ops if net is not None and time else ()
    converted = None if isinstance(file, str | Path | bytes) else file
    bars = {**judged.bars, **observed(converted)}
    return of_file(
        Path(file).name if isinstance(file, str | Path) else f"file {number + 1}",
        content,
        model,
        report=getattr(converted, "report", None),
        bars=bars,
        judged=judged,
        times=times,
    )


def observed(converted: Any) -> dict[str, Bars]:
    """Histograms of the floats that calibration saw, by tensor; none of what was not converted just now."""
    histograms = {}
    for name, stats in getattr(converted, "stats", {}).items():
        low, high, weight = stats.histogram.bins()
        bars = rebinned(low, high, weight, stats.histogram.zeros)
        if bars is not None:
            histograms[name] = bars
    return histograms


def of_conversion(
    converted: Converted,
    name: str,
    model: Path,
    data: Mapping[str, Data],
    command: str,
    decoder: Decoder | None,
    progress: Progress,
) -> str:
    """The report of a conversion. model: that was converted, which the samples are compared with; iterators are used up
    and give no samples, and a step takes none of them."""
    judged = Judged()
    net = converted.load()
    if data and not net.has_states and not any(isinstance(source, Iterator) for source in data.values()):
        judged = judge(net, data, model, SAMPLES, progress, decoder)
    subject = of_file(
        name,
        *contents_of(converted),
        report=converted.report,
        bars={**judged.bars, **observed(converted)},
        judged=judged,
        command=command,
    )
    return html.render([subject])
