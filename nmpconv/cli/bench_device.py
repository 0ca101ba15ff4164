"""nmpconv bench --device: a model on a device, verified and measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmpconv.cli import console, shared_flags
from nmpconv.cli import device as devices

if TYPE_CHECKING:
    from nmpconv.runtime.interpreter import Net
    from nmpconv.runtime.on_device import Measured

_ONE = {"instructions": "instruction", "cycles": "cycle", "ns": "ns", "ticks": "tick"}


def bench(
    model: Path | bytes,
    name: str,
    sources: Sequence[str],
    *,
    runs: int | None,
    cpu: str | None,
    wait: float,
    no_reset: bool,
    baud: int | None,
    json: bool,
) -> None:
    """cpu: the level of this machine that the device is verified against."""
    import nmpconv

    net = nmpconv.load(model, cpu=cpu)
    chosen = shared_flags.sources(sources, "--data") or None
    with console.progress() as progress:
        measurement = nmpconv.bench(
            model,
            runs=runs,
            cpu=cpu,
            device=name,
            wait=wait,
            no_reset=no_reset,
            baud=baud,
            data=chosen,
            progress=progress,
        )
    if json:
        console.as_json(_json(name, net, measurement))
    else:
        _show(name, net, measurement)


def _json(name: str, net: Net, measurement: Measured) -> dict[str, Any]:
    unit, count, seconds = measurement.counter.unit, measurement.counter.count, measurement.counter.seconds
    hello, short = measurement.hello, console.of_files([net.model])
    return {
        "device": name,
        "board": hello.board,
        "cpu": hello.cpu,
        "clock_hz": hello.clock_hz,
        "counter": hello.counter,
        "counter_hz": hello.counter_hz,
        "simulated": seconds is None,
        "runs": len(measurement.runs),
        "latency_ms": None
        if seconds is None
        else {"min": 1e3 * measurement.least * seconds, "median": 1e3 * measurement.median * seconds},
        unit: count(measurement.least),
        "ops": [
            {"name": op.name, "short": short[op.name], "kind": op.kind, unit: count(ticks), "macs": op.macs}
            for op, ticks in zip(net.model.ops, measurement.ops, strict=True)
        ],
        "arena_bytes": measurement.loaded.arena_bytes,
        "arena_available": hello.arena_bytes,
        "model_bytes": measurement.upload.size,
        "firmware_bytes": hello.program_bytes,
        "upload_bytes_per_second": measurement.upload.rate,
        "upload_resumed_at": measurement.upload.resumed,
        "baud": measurement.baud,
        "verified": measurement.verified > 0,
        "verified_inputs": measurement.verified,
        "warnings": list(measurement.warnings),
    }


def _show(name: str, net: Net, measurement: Measured) -> None:
    unit, count = measurement.counter.unit, measurement.counter.count
    total, most = sum(measurement.ops) or 1, max(measurement.ops) or 1
    console.table(
        ("#", "op", "name", f">{unit}", ">share", ">MACs", f">MAC/{_ONE[unit]}", ""),
        [
            [
                str(i),
                op.kind,
                op.name,
                str(count(ticks)),
                console.percent(ticks / total, 1),
                console.scaled(op.macs) if op.macs else console.NOTHING,
                _per(op.macs, count(ticks)),
                console.bar(ticks / most),
            ]
            for i, (op, ticks) in enumerate(zip(net.model.ops, measurement.ops, strict=True))
        ],
        title="Ops",
        short=console.of_files([net.model]),
    )
    macs = sum(op.macs for op in net.model.ops)
    console.facts(
        [
            ("device", name),
            *devices.facts(measurement.hello),
            ("counter", _counter(measurement)),
            ("runs", str(len(measurement.runs))),
            (unit, f"{count(measurement.least)} (min), {count(round(measurement.median))} (median)"),
            *_latency(measurement),
            ("work", f"{console.scaled(macs)}MAC, {_per(macs, count(measurement.least))} MAC per {_ONE[unit]}"),
            (
                "arena",
                f"{console.size(measurement.loaded.arena_bytes)} of {console.size(measurement.hello.arena_bytes)}",
            ),
            ("model", f"{console.size(measurement.upload.size)}, {_arrival(measurement)}"),
            ("verified", f"{measurement.verified} input(s): the same bytes as here"),
        ]
    )
    for text in measurement.warnings:
        console.line(f"warning: {text}")


def _counter(measurement: Measured) -> str:
    unit = measurement.counter.unit
    counted = measurement.hello.counter if measurement.hello.counter == unit else f"{measurement.hello.counter}: {unit}"
    counted += f" of {console.scaled(measurement.hello.counter_hz)}Hz" if unit == "ticks" else ""
    return f"{counted}, not time: no memory, no pipeline" if measurement.counter.seconds is None else counted


def _latency(measurement: Measured) -> list[tuple[str, str]]:
    """Its row; none where there is no clock."""
    if (tick := measurement.counter.seconds) is None:
        return []
    least, middle = console.duration(measurement.least * tick), console.duration(measurement.median * tick)
    return [("latency", f"{least} (min), {middle} (median)")]


def _arrival(measurement: Measured) -> str:
    upload = measurement.upload
    if upload.resumed == upload.size:
        return "was there already"
    resumed = f", resumed at {upload.resumed}" if upload.resumed else ""
    baud = f" and {measurement.baud} baud" if measurement.baud else ""
    return f"uploaded at {console.scaled(upload.rate)}B/s{baud}{resumed}"


def _per(macs: int, count: int) -> str:
    return f"{macs / count:.3f}" if macs and count else console.NOTHING
