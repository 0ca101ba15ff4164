"""nmpconv run: samples in, classes or arrays out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nmpconv.cli import options, show
from nmpconv.files import npz

if TYPE_CHECKING:
    import numpy as np

    from nmpconv.run.feed import Arrays, Feed
    from nmpconv.run.runtime import Net

NAME = "run"


def command(
    model: options.ModelFile,
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]SOURCE...",
            help=f"What to run on: {options.SOURCE_HELP}, or - for stdin. With several inputs, NAME=SOURCE for each.",
            show_default=False,
        ),
    ],
    top: Annotated[int, typer.Option(min=1, help="How many classes to show.")] = 5,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Write all outputs to this .npz; default: only where they are no class scores."
        ),
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Write integers, not reals.")] = False,
    max_pixels: options.MaxPixels = None,
    cpu: options.Cpu = None,
    threads: options.Threads = None,
    device: options.DeviceName = None,
    json: options.Json = False,
) -> None:
    """Run a model: the best classes of each image, or all outputs as arrays.

    \b
    Examples:
      nmpconv run model.nmp cat.jpg dog.jpg --top 3
      nmpconv run detector.nmp photos/ -o boxes.npz
      nmpconv run model.nmp left=l.npy right=r.npy
    """
    from nmpconv.run.runtime import load

    source = options.given(model)
    net = load(source, cpu=cpu, threads=threads)
    ranked = len(net.outputs) == 1 and sum(dim > 1 for dim in net.outputs[0].shape) == 1
    path = output if output is not None or ranked else Path(f"{options.stem(model)}.npz")
    if path is not None:
        options.check_output(path, model, json=json)
    with options.samples(inputs) as values:
        feeds = _feeds(net, values, max_pixels)
        samples = [feed.integers(feed[i]) for feed in feeds for i in range(len(feed))]
        files = [_named(file, values, inputs) for feed in feeds for file in feed.paths]
    results = [net.run(sample) for sample in samples] if device is None else _on_device(source, net, device, samples)
    if path is not None:
        options.write(path, _npz(net, results, raw))
    best = [_best(net, result, top) if ranked else [] for result in results]
    if json:
        found = [
            {"file": file, "top": rows} if ranked else {"file": file} for file, rows in zip(files, best, strict=True)
        ]
        show.as_json({"model": str(model), "output": None if path is None else str(path), "samples": found})
        return
    with show.on_stderr(path == options.STREAM):
        for file, rows in zip(files, best, strict=True):
            cells = [[str(row["class"]), row["label"] or "", f"{row['score']:.4f}"] for row in rows]
            show.table((">class", "label", ">score"), cells, title=file)
        if path is not None:
            show.line(f"{len(results)} sample(s) -> {path} ({', '.join(port.name for port in net.outputs)})")


def _named(file: str, values: Sequence[str], inputs: Sequence[str]) -> str:
    """A sample's name: that of stdin is - whatever file it lay in."""
    read = next((value for value, given in zip(values, inputs, strict=True) if value != given), None)
    return str(options.STREAM) if read is not None and file == read.rpartition("=")[2] else file


def _feeds(net: Net, values: Sequence[str], max_pixels: int | None) -> list[Feed]:
    """With one input, every source is one to run on; with several, each is one input's."""
    from nmpconv.run.feed import Feed

    groups = [[value] for value in values] if len(net.inputs) == 1 else [values]
    return [Feed(net, options.sources(group, "SOURCE"), max_pixels) for group in groups]


def _on_device(model: Path | bytes, net: Net, name: str, samples: Sequence[Arrays]) -> list[list[np.ndarray]]:
    """The outputs of every sample, computed by a device."""
    from nmpconv.device.connect import opened
    from nmpconv.run import ondevice

    results = []
    with show.progress() as progress, opened(name, progress) as device:
        ondevice.load(device, net, options.content(model))
        for i, sample in enumerate(samples):
            results.append(ondevice.run(device, net, [sample[port.name] for port in net.inputs]))
            progress("run", i + 1, len(samples))
    return results


def _best(net: Net, result: Sequence[np.ndarray], count: int) -> list[dict[str, Any]]:
    """The best classes of the only output."""
    from nmpconv import fixed
    from nmpconv.metrics import top_k

    port = net.outputs[0]
    scores = fixed.dequantize(result[0].ravel(), port.exponent)
    return [
        {"class": i, "label": port.labels[i] if port.labels else None, "score": float(scores[i])}
        for i in top_k(scores, count)
    ]


def _npz(net: Net, results: Sequence[Sequence[np.ndarray]], raw: bool) -> bytes:
    """All samples' outputs by name, stacked: float32 reals, or raw integers. The same results give the same bytes."""
    import numpy as np  # not loaded for --help

    from nmpconv import fixed

    arrays = {}
    for i, port in enumerate(net.outputs):
        array = np.concatenate([result[i] for result in results])
        arrays[port.name] = array if raw else fixed.dequantize(array, port.exponent).astype(np.float32)
    return npz(arrays)
