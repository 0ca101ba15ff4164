"""nmpconv.bisect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmpconv import bisection
from nmpconv.api.file_argument import NmpFile, data_of, sources
from nmpconv.api.file_commands import bench
from nmpconv.api.keyword_checks import FREE, check, forgiving
from nmpconv.api.models import on_disk
from nmpconv.base.files import check_folder, write_folder
from nmpconv.base.progress import Progress, reporter, silent
from nmpconv.bisection import Bisected
from nmpconv.conversion.option_types import Decoder
from nmpconv.data.samples import Data
from nmpconv.evaluation.task_metrics import named

if TYPE_CHECKING:
    import onnx

__all__ = ["Bisected", "bisect"]


@forgiving()
def bisect(
    model: str | Path | bytes | onnx.ModelProto | Any,
    file: NmpFile,
    data: Data | Mapping[str, Data],
    *,
    example_inputs: Any = None,
    recipe: Path | None = None,
    metric: str | None = None,
    decoder: Decoder | None = None,
    device: str | None = None,
    output: Path | None = None,
    progress: Progress | bool = silent,
) -> Bisected:
    """Finds the tensors that lose most, by what is gained when each alone is float, and measures what helps.

    model, example_inputs, data: what ``file`` was converted from, as for `nmpconv.convert`. recipe: that it was
    converted by, where this said more than bits and exponents. metric, decoder: see `nmpconv.evaluation.task_metrics`;
    the rows are then ordered by its first number, else by the SQNR in dB. device: counts the instructions of what
    helps, see `nmpconv.bench`. output: a new or empty folder for `Bisected.files`: recipe.toml with the lines that
    help, and the smallest model that shows the loss of the first row (small.onnx), its inputs (small.npz) and recipe
    (small.toml). Raises InputError where model or data are not those of the file, ModelError, UsageError, OutputError,
    DeviceError.

    For example:

        bisected = nmpconv.bisect("model.onnx", "model.nmp", "images/")
        print(bisected.rows[0], bisected.recipe)
    """
    check(bisect, {name: value for name, value in locals().items() if name not in {*FREE, "file"}})
    if output is not None:
        check_folder(Path(output))
    progress = reporter(progress)
    content, samples = data_of(file), sources(data)
    path = Path(file) if isinstance(file, str | Path) else Path("the file")
    options: dict[str, Any] = {
        "recipe": recipe and Path(recipe),
        "metric": metric and named(metric),
        "decoder": decoder,
    }
    with on_disk(model, example_inputs, samples) as onnx_file:
        result, base, candidates = bisection.bisect(onnx_file, path, content, samples, **options, progress=progress)
    if device is not None:
        counts = [bench(candidate.data, device=device, runs=1, progress=progress) for candidate in (base, *candidates)]
        first, *others = [count.counter.count(count.least) for count in counts]
        pairs = zip(result.levers, others, strict=True)
        result = replace(
            result, levers=tuple(replace(lever, instructions=n / first - 1, target=None) for lever, n in pairs)
        )
    if output is not None:
        write_folder(Path(output), result.files)
    return result
