"""nmpconv.evaluate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmpconv.api import forms
from nmpconv.api.file_argument import NmpFile, net_of, sources
from nmpconv.api.keyword_checks import FREE, check, forgiving
from nmpconv.api.log import log
from nmpconv.api.models import names_in, on_disk, picture_in
from nmpconv.base.progress import Progress, reporter, silent
from nmpconv.base.workers import opened
from nmpconv.conversion.option_types import Decoder
from nmpconv.data.samples import Data
from nmpconv.errors import as_keywords
from nmpconv.evaluation import accuracy
from nmpconv.evaluation.accuracy import Evaluation
from nmpconv.evaluation.task_metrics import named
from nmpconv.runtime.interpreter import Net

if TYPE_CHECKING:
    import onnx


@forgiving()
def evaluate(
    model: NmpFile | Net,
    data: Data | Mapping[str, Data],
    *,
    reference: str | Path | bytes | onnx.ModelProto | Any = None,
    example_inputs: Any = None,
    limit: int | None = None,
    label_offset: int = 0,
    max_pixels: int | None = None,
    metric: Sequence[str] | None = None,
    decoder: Decoder | None = None,
    boxes: str | Path | None = None,
    cpu: str | None = None,
    threads: int | None = None,
    workers: int | str | None = None,
    progress: Progress | bool = silent,
) -> Evaluation:
    """Measures a converted model on labelled data (top-1 and top-5 in percent), and against the float model (agreement
    in percent, SQNR in dB).

    model: a path, the bytes of a .nmp file, what `nmpconv.convert` returned, or a loaded net. data: as for
    `nmpconv.convert`; with labels where rates are wanted, such as (array, labels). reference: the model that was
    converted, and example_inputs for a torch module, as for `nmpconv.convert`. limit: most samples. label_offset: added
    to every label to get the index of its class. metric, decoder: see `nmpconv.evaluation.task_metrics`. boxes: a file,
    see `nmpconv.data.box_labels`. workers: how many processes run the models, or the address of a dask scheduler; the
    result is the same. Raises ModelError for a refused file, InputError for what cannot be read, UsageError for sources
    that do not fit.

    For example:

        accuracy = nmpconv.evaluate("model.nmp", "images/labels.csv", reference="model.onnx")
        print(accuracy.top1, accuracy.agreement)
    """
    check(evaluate, {name: value for name, value in locals().items() if name not in FREE})
    progress = reporter(progress)
    net, samples = net_of(model, cpu, threads), sources(data)
    options: dict[str, Any] = {"limit": limit, "label_offset": label_offset, "max_pixels": max_pixels}
    options |= {
        "metrics": tuple(map(named, forms.several(metric))),
        "decoder": decoder,
        "boxes": forms.path(boxes),
    }
    with opened(workers) as pool:
        options |= {"workers": pool, "progress": progress}
        if reference is None:
            judged = accuracy.evaluate(net, samples, **options)
        else:
            with on_disk(
                reference, example_inputs, samples, names_in(net.model, reference), picture_in(net.model)
            ) as path:
                judged = accuracy.evaluate(net, samples, reference=path, **options)
    for warning in judged.warnings:
        log.warning("%s", as_keywords(warning))
    return judged
