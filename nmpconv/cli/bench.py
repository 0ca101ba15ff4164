"""nmpconv bench: how long a model takes, here or on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from nmpconv.cli import console, shared_flags

if TYPE_CHECKING:
    from nmpconv.runtime.benchmark import Timing
    from nmpconv.runtime.interpreter import Net

NAME = "bench"
BINS = 10


def command(
    model: shared_flags.ModelFile,
    runs: Annotated[
        int | None,
        typer.Option(
            min=1, max=1_000_000, help="Measured runs; default: two seconds' worth, 10 to 1000; on a device 3."
        ),
    ] = None,
    warmup: Annotated[int, typer.Option(min=0, help="Runs before, that do not count.")] = 3,
    cpu: shared_flags.Cpu = None,
    threads: shared_flags.Threads = None,
    device: shared_flags.DeviceName = None,
    wait: shared_flags.Wait = 10.0,
    no_reset: shared_flags.NoReset = False,
    baud: shared_flags.Baud = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]SOURCE",
            help="Measure on these, and verify a device on them; default: random inputs, on a device the file's test "
            "vectors. Of a file with states they are sequences, whose calls follow each other.",
            show_default=False,
        ),
    ] = None,
    json: shared_flags.Json = False,
) -> None:
    """Measure latency, op by op, here or on a device.

    Here: the distribution of the latency, and the time of each op. On a device: counts, latency where it has a clock,
    and the outputs are verified against this machine's (exit code 4 if they differ).

    \b
    Examples:
      nmpconv bench model.nmp
      nmpconv bench model.nmp --runs 500 --cpu portable --json
      nmpconv bench model.nmp --device /dev/ttyUSB0
      nmpconv bench model.nmp --device sim:mps2-an386
      nmpconv bench step.nmp --device sim:mps2-an386 --data speech.wav
    """
    if device is not None:
        from nmpconv.cli.bench_device import bench

        source = shared_flags.file_or_stdin(model)
        bench(source, device, data or [], runs=runs, cpu=cpu, wait=wait, no_reset=no_reset, baud=baud, json=json)
        return
    import nmpconv  # not loaded for --help

    net = nmpconv.load(shared_flags.file_or_stdin(model), cpu=cpu, threads=threads)
    chosen = shared_flags.sources(data or (), "--data") or None
    with console.progress() as progress:
        timing = nmpconv.bench(net, runs=runs, warmup=warmup, data=chosen, progress=progress)
    if json:
        console.as_json(_json(timing, net))
    else:
        _show(timing, net)


def _json(timing: Timing, net: Net) -> dict[str, object]:
    figures = {"min": 0.0, "median": 0.5, "p90": 0.9, "max": 1.0}
    short = console.of_files([net.model])
    latency = {name: 1e3 * timing.quantile(fraction) for name, fraction in figures.items()}
    return {
        "device": "host",
        "cpu": net.cpu,
        "threads": net.threads,
        "runs": len(timing.latencies),
        "latency_ms": {**latency, "mean": 1e3 * timing.mean},
        "arena_bytes": net.arena_bytes,
        "ops": [
            {
                "first": op.first,
                "count": op.count,
                "name": op.name,
                "short": short[op.name],
                "kind": op.kind,
                "ms": 1e3 * op.seconds,
                "macs": op.macs,
            }
            for op in timing.ops
        ],
    }


def _show(timing: Timing, net: Net) -> None:
    _show_ops(timing, net)
    slices = timing.histogram(BINS)
    most = max(count for _, _, count in slices)
    console.table(
        (">from", ">to", ">runs", ""),
        [[console.duration(a), console.duration(b), str(n), console.bar(n / most)] for a, b, n in slices],
        title="Latency",
    )
    macs = sum(op.macs for op in timing.ops)
    median = timing.quantile(0.5)
    console.facts(
        [
            ("device", f"host, {net.cpu}, {net.threads} thread{'s' * (net.threads > 1)}"),
            ("runs", str(len(timing.latencies))),
            ("min", console.duration(timing.quantile(0))),
            ("median", console.duration(median)),
            ("p90", console.duration(timing.quantile(0.9))),
            ("mean", console.duration(timing.mean)),
            ("work", f"{console.scaled(macs)}MAC, {console.scaled(macs / median)}MAC/s"),
            ("arena", console.size(net.arena_bytes)),
        ]
    )


def _show_ops(timing: Timing, net: Net) -> None:
    total = sum(op.seconds for op in timing.ops) or 1.0
    longest = max(op.seconds for op in timing.ops) or 1.0
    console.table(
        ("#", "op", "name", ">time", ">share", ">MACs", ">MAC/s", "of the time"),
        [
            [
                str(op.first) if op.count == 1 else f"{op.first}-{op.first + op.count - 1}",
                op.kind,
                op.name,
                console.duration(op.seconds),
                console.percent(op.seconds / total, 1),
                console.scaled(op.macs) if op.macs else console.NOTHING,
                console.scaled(op.macs / op.seconds) if op.macs and op.seconds else console.NOTHING,
                console.bar(op.seconds / longest),
            ]
            for op in timing.ops
        ],
        title="Ops",
        short=console.of_files([net.model]),
    )
