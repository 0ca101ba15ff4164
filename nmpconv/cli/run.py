"""nmpconv run: samples in, classes or arrays out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nmpconv.base.files import npz
from nmpconv.cli import console, shared_flags
from nmpconv.errors import UsageError

if TYPE_CHECKING:
    import numpy as np

    from nmpconv.base.progress import Progress
    from nmpconv.device.client import Device
    from nmpconv.runtime.feed import Arrays, Feed
    from nmpconv.runtime.interpreter import Net

NAME = "run"


def command(
    model: shared_flags.ModelFile,
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME=]SOURCE...",
            help=f"Data to run on: {shared_flags.SOURCE_HELP}, or - for stdin. With several inputs, NAME=SOURCE each.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]SOURCE", help="The same, as other commands have it.", show_default=False),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many classes to show; with 1, a line a sample.")] = 5,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Write all outputs to this .npz; default: only where they are no class scores."
        ),
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Write integers, not reals.")] = False,
    max_pixels: shared_flags.MaxPixels = None,
    cpu: shared_flags.Cpu = None,
    threads: shared_flags.Threads = None,
    device: shared_flags.DeviceName = None,
    wait: shared_flags.Wait = 10.0,
    no_reset: shared_flags.NoReset = False,
    baud: shared_flags.Baud = None,
    json: shared_flags.Json = False,
) -> None:
    """Run a model on images, sounds or arrays.

    Prints the best classes of each image, or all outputs as arrays. A file with states takes sequences: each source is
    one, or a stack of them, and its calls follow each other.

    \b
    Examples:
      nmpconv run model.nmp cat.jpg dog.jpg --top 3
      nmpconv run detector.nmp photos/ -o boxes.npz
      nmpconv run model.nmp left=l.npy right=r.npy
      nmpconv run step.nmp speech.wav
    """
    sources = [*(inputs or ()), *(data or ())]
    _check(model, sources, output)

    from nmpconv.runtime.input_range import joined
    from nmpconv.runtime.interpreter import load

    source = shared_flags.file_or_stdin(model)
    net = load(source, cpu=cpu, threads=threads)
    ranked = len(net.outputs) == 1 and sum(dim > 1 for dim in net.outputs[0].shape) == 1
    path = output if output is not None or ranked else Path(f"{shared_flags.stem(model)}.npz")
    if path is not None:
        shared_flags.check_output(path, model, json=json)
    with shared_flags.samples(sources) as values:
        feeds = _feeds(net, values, max_pixels)
        sequences = [[feed.integers(feed[i]) for i in range(a, b)] for feed in feeds for _, a, b in feed.sequences]
        files = [_named(file, values, sources) for feed in feeds for file, _, _ in feed.sequences]
    warnings: list[str] = []
    if device is None:
        results = _here(net, sequences)
    else:
        from nmpconv.device.connect import opened

        content = shared_flags.content(source)
        with (
            console.progress() as progress,
            opened(device, progress, wait, no_reset=no_reset, baud=baud, model=content) as board,
        ):
            results = _on_device(content, net, board, sequences, progress)
            warnings = board.warnings
    if path is not None:
        shared_flags.write(path, _npz(net, results, raw))
    ranges = joined(input_range for feed in feeds for input_range in feed.ranges.values())
    warnings += dict.fromkeys(text for feed in feeds for text in feed.remarks)
    warnings += [text for input_range in ranges for text in input_range.warnings]
    rows = [_result(net, file, calls, top if ranked else 0) for file, calls in zip(files, results, strict=True)]
    if json:
        places = {"model": str(model), "output": None if path is None else str(path)}
        fed = [input_range.to_json() for input_range in ranges]
        console.as_json({**places, "samples": rows, "inputs": fed, "warnings": warnings})
        return
    with console.on_stderr(path == shared_flags.STREAM):
        if ranked:
            _show_classes(rows, in_one=top == 1 and len(rows) > 1 and not net.has_states)
        if path is not None:
            amount = f"{sum(map(len, results))} {'call' if net.has_states else 'sample'}(s)"
            console.line(f"{amount} -> {path} ({', '.join(port.name for port in net.outputs)})")
        for text in warnings:
            console.line(f"warning: {text}")


def _check(model: Path, sources: Sequence[str], output: Path | None) -> None:
    """UsageError for sources that are missing or before the model, and for an output of another format."""
    if not sources:
        raise UsageError("SOURCE is missing", where="nmpconv run", hint="name images, arrays or a folder to run on")
    if model.suffix.lower() != ".nmp" and any(Path(source).suffix.lower() == ".nmp" for source in sources):
        raise UsageError("the model comes first", where="nmpconv run", hint="nmpconv run MODEL.nmp SOURCE...")
    if output is not None and output.suffix.lower() in (".csv", ".json", ".npy", ".txt"):
        raise UsageError("outputs are written as an .npz", where=f"-o {output}", hint="--json prints the best classes")


def _show_classes(rows: Sequence[dict[str, Any]], *, in_one: bool) -> None:
    """Prints the best classes of samples. in_one: in one table, a line a sample."""
    if in_one:
        columns = ["sample", ">class", "label", ">score"]
        console.table(columns, [[row["file"], *_cells(row["top"][0])] for row in rows])
        return
    for row in rows:
        _show(row)


def _result(net: Net, file: str, calls: Sequence[Sequence[np.ndarray]], top: int) -> dict[str, Any]:
    """The row of a sample, or of a sequence of calls. top: classes, 0 for a model without."""
    row: dict[str, Any] = {"file": file}
    if top:
        row["top"] = _best(net, calls[-1], top)
    if net.has_states:
        row["calls"] = len(calls)
    if net.has_states and top:
        row["stretches"] = _stretches([_best(net, call, 1)[0] for call in calls])
    return row


def _stretches(best: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Calls in a row with one best class; the score is the highest of them."""
    stretches: list[dict[str, Any]] = []
    for i, row in enumerate(best):
        if stretches and stretches[-1]["class"] == row["class"]:
            stretches[-1] |= {"last": i, "score": max(stretches[-1]["score"], row["score"])}
        else:
            stretches.append({"first": i, "last": i, **row})
    return stretches


def _show(sample: dict[str, Any]) -> None:
    rows = [_cells(row) for row in sample["top"]]
    columns = [">class", "label", ">score"]
    if "stretches" in sample:
        heard = sample["stretches"]
        spans = [str(s["first"]) if s["first"] == s["last"] else f"{s['first']}-{s['last']}" for s in heard]
        rows = [[span, *_cells(row)] for span, row in zip(spans, heard, strict=True)]
        columns = [">calls", ">class", "label", ">score"]
    console.table(columns, rows, title=sample["file"])


def _cells(best: dict[str, Any]) -> list[str]:
    return [str(best["class"]), best["label"] or "", f"{best['score']:.4f}"]


def _named(file: str, values: Sequence[str], inputs: Sequence[str]) -> str:
    """A sample's name: that of stdin is - whatever file it lay in."""
    read = next((value for value, source in zip(values, inputs, strict=True) if value != source), None)
    return str(shared_flags.STREAM) if read is not None and file == read.rpartition("=")[2] else file


def _feeds(net: Net, values: Sequence[str], max_pixels: int | None) -> list[Feed]:
    """With one input, every source is one to run on; with several, each is one input's."""
    from nmpconv.runtime.feed import Feed

    groups = [[value] for value in values] if len(net.inputs) == 1 else [values]
    return [Feed(net, shared_flags.sources(group, "SOURCE"), max_pixels) for group in groups]


Results = list[list[list["np.ndarray"]]]  # outputs, by sequence and call


def _here(net: Net, sequences: Sequence[Sequence[Arrays]]) -> Results:
    results = []
    for sequence in sequences:
        net.reset()
        results.append([list(net.run(sample)) for sample in sequence])
    return results


def _on_device(
    model: bytes, net: Net, device: Device, sequences: Sequence[Sequence[Arrays]], progress: Progress
) -> Results:
    """The outputs of every sample, computed by a device."""
    from nmpconv.runtime import on_device

    results: Results = []
    count, done = sum(map(len, sequences)), 0
    on_device.load(device, net, model)
    for sequence in sequences:
        on_device.restart(device, net)
        results.append([])
        for sample in sequence:
            results[-1].append(on_device.run(device, net, [sample[port.name] for port in net.inputs]))
            done += 1
            progress("run", done, count)
    return results


def _best(net: Net, result: Sequence[np.ndarray], count: int) -> list[dict[str, Any]]:
    """The best classes of the only output."""
    from nmpconv.base.sqnr import top_k

    port = net.outputs[0]
    scores = port.dequantize(result[0]).ravel()
    return [
        {"class": i, "label": port.labels[i] if port.labels else None, "score": float(scores[i])}
        for i in top_k(scores, count)
    ]


def _npz(net: Net, results: Results, raw: bool) -> bytes:
    """All samples' outputs by name, stacked: float32 reals, or raw integers; with states also where sequences start.
    The same results give the same bytes."""
    import numpy as np  # not loaded for --help

    arrays = {"starts": np.cumsum([0, *map(len, results[:-1])])} if net.has_states else {}
    for i, port in enumerate(net.outputs):
        array = np.concatenate([result[i] for calls in results for result in calls])
        arrays[port.name] = array if raw else port.dequantize(array).astype(np.float32)
    return npz(arrays)
