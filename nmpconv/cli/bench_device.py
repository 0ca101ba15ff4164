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
        found = nmpconv.bench(
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
        console.as_json(_json(name, net, found))
    else:
        _show(name, net, found)


def _json(name: str, net: Net, found: Measured) -> dict[str, Any]:
    unit, count, seconds = found.counter.unit, found.counter.count, found.counter.seconds
    hello, short = found.hello, console.of_files([net.model])
    return {
        "device": name,
        "board": hello.board,
        "cpu": hello.cpu,
        "clock_hz": hello.clock_hz,
        "counter": hello.counter,
        "counter_hz": hello.counter_hz,
        "simulated": seconds is None,
        "runs": len(found.runs),
        "latency_ms": None
        if seconds is None
        else {"min": 1e3 * found.least * seconds, "median": 1e3 * found.median * seconds},
        unit: count(found.least),
        "ops": [
            {"name": op.name, "short": short[op.name], "kind": op.kind, unit: count(ticks), "macs": op.macs}
            for op, ticks in zip(net.model.ops, found.ops, strict=True)
        ],
        "arena_bytes": found.loaded.arena_bytes,
        "arena_available": hello.arena_bytes,
        "model_bytes": found.upload.size,
        "firmware_bytes": hello.program_bytes,
        "upload_bytes_per_second": found.upload.rate,
        "upload_resumed_at": found.upload.resumed,
        "baud": found.baud,
        "verified": found.verified > 0,
        "verified_inputs": found.verified,
        "warnings": list(found.warnings),
    }


def _show(name: str, net: Net, found: Measured) -> None:
    unit, count = found.counter.unit, found.counter.count
    total, most = sum(found.ops) or 1, max(found.ops) or 1
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
            for i, (op, ticks) in enumerate(zip(net.model.ops, found.ops, strict=True))
        ],
        title="Ops",
        short=console.of_files([net.model]),
    )
    macs = sum(op.macs for op in net.model.ops)
    console.facts(
        [
            ("device", name),
            *devices.facts(found.hello),
            ("counter", _counter(found)),
            ("runs", str(len(found.runs))),
            (unit, f"{count(found.least)} (min), {count(round(found.median))} (median)"),
            *_latency(found),
            ("work", f"{console.scaled(macs)}MAC, {_per(macs, count(found.least))} MAC per {_ONE[unit]}"),
            ("arena", f"{console.size(found.loaded.arena_bytes)} of {console.size(found.hello.arena_bytes)}"),
            ("model", f"{console.size(found.upload.size)}, {_arrival(found)}"),
            ("verified", f"{found.verified} input(s): the same bytes as here"),
        ]
    )
    for text in found.warnings:
        console.line(f"warning: {text}")


def _counter(found: Measured) -> str:
    unit = found.counter.unit
    what = found.hello.counter if found.hello.counter == unit else f"{found.hello.counter}: {unit}"
    what += f" of {console.scaled(found.hello.counter_hz)}Hz" if unit == "ticks" else ""
    return f"{what}, not time: no memory, no pipeline" if found.counter.seconds is None else what


def _latency(found: Measured) -> list[tuple[str, str]]:
    """Its row; none where there is no clock."""
    if (tick := found.counter.seconds) is None:
        return []
    least, middle = console.duration(found.least * tick), console.duration(found.median * tick)
    return [("latency", f"{least} (min), {middle} (median)")]


def _arrival(found: Measured) -> str:
    upload = found.upload
    if upload.resumed == upload.size:
        return "was there already"
    resumed = f", resumed at {upload.resumed}" if upload.resumed else ""
    baud = f" and {found.baud} baud" if found.baud else ""
    return f"uploaded at {console.scaled(upload.rate)}B/s{baud}{resumed}"


def _per(macs: int, count: int) -> str:
    return f"{macs / count:.3f}" if macs and count else console.NOTHING
