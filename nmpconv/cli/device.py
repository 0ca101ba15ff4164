"""nmpconv device: what is at the other end of a line."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmpconv.cli import console, shared_flags
from nmpconv.cli.plain_values import PlainCommand, PlainGroup
from nmpconv.cli.verbosity import talking

if TYPE_CHECKING:
    from nmpconv.device.protocol import Hello

NAME = "device"
app = typer.Typer(cls=PlainGroup, help="List devices, show one, or flash a board.", no_args_is_help=True)


class WayChoice(str, Enum):
    DRIVE = "drive"
    ESPTOOL = "esptool"
    PYOCD = "pyocd"


def facts(hello: Hello) -> list[tuple[str, str]]:
    return [
        ("board", f"{hello.board}, {hello.cpu}, {console.scaled(hello.clock_hz)}Hz"),
        (
            "firmware",
            f"nmpconv {hello.version}" + (f", {console.size(hello.program_bytes)}" if hello.program_bytes else ""),
        ),
    ]


@app.command("info", cls=PlainCommand)
@talking
def info(
    name: Annotated[
        str, typer.Argument(metavar=shared_flags.DEVICE_NAME, help="The device, or auto.", show_default=False)
    ],
    wait: shared_flags.Wait = 10.0,
    no_reset: shared_flags.NoReset = False,
    json: shared_flags.Json = False,
) -> None:
    """Ask a device what it is."""
    from nmpconv.device.connect import opened  # not loaded for --help

    with console.progress() as progress, opened(name, progress, wait, no_reset=no_reset) as device:
        hello = device.hello
    if json:
        about = {key: getattr(hello, key) for key in ("board", "cpu", "version", "counter", "clock_hz", "counter_hz")}
        sizes = {key: getattr(hello, key) for key in ("program_bytes", "model_bytes", "arena_bytes")}
        console.as_json({"device": name, **about, **sizes})
        return
    memory = f"{console.size(hello.model_bytes)} for models, {console.size(hello.arena_bytes)} for activations"
    counter = f"{hello.counter}, {console.scaled(hello.counter_hz)}Hz"
    console.facts([("device", name), *facts(hello), ("memory", memory), ("counter", counter)])


@app.command("list", cls=PlainCommand)
@talking
def listed(json: shared_flags.Json = False) -> None:
    """List serial ports, drives and simulated boards."""
    from nmpconv.device import simulator
    from nmpconv.device.drives import drives
    from nmpconv.device.serial_ports import serial_ports

    ports, boards = serial_ports(), {f"sim:{board}": simulator.missing(board) for board in simulator.boards()}
    if json:
        simulated = [{"device": name, "missing": lacks or None} for name, lacks in boards.items()]
        serial = [
            {"device": p.device, "description": p.description, "usb": p.usb or None, "board": p.board or None}
            for p in ports
        ]
        shown = [
            {"drive": str(d.path), "takes": d.way, "model": d.model or None, "board": d.board or None} for d in drives()
        ]
        console.as_json({"ports": serial, "drives": shown, "simulated": simulated})
        return
    rows = [[port.device, port.usb, port.board or port.description or "serial port"] for port in ports]
    rows += [[str(d.path), "drive", d.board or d.model or "a board"] for d in drives()]
    rows += [[name, "", lacks or "ready"] for name, lacks in boards.items()]
    console.table(("device", "USB", "description"), rows)


@app.command("build", cls=PlainCommand)
@talking
def build(
    board: Annotated[str, typer.Argument(metavar="BOARD", help="Its name, e.g. mps2-an386.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="The file to write; default: where sim:BOARD finds it.", show_default=False
        ),
    ] = None,
    op: Annotated[
        list[str] | None,
        typer.Option(
            "--op", metavar="NAME", help="An installed custom op that it shall have. Repeatable.", show_default=False
        ),
    ] = None,
    json: shared_flags.Json = False,
) -> None:
    """Compile nmpconv's firmware for a board.

    Takes this machine's make and the board's compiler.

    \b
    Examples:
      nmpconv device build mps2-an386
      nmpconv device build nucleo-f446re -o firmware.elf
      nmpconv device build mps2-an386 --op my.domain::MyOp
    """
    from nmpconv.device import firmware  # not loaded for --help
    from nmpconv.ops.custom_op import c_source

    if output is not None:
        shared_flags.check_output(output, json=json)
    path = firmware.build(board, output, dict(c_source(name) for name in op or ()))
    if json:
        console.as_json({"board": board, "output": str(path), "bytes": path.stat().st_size})
        return
    console.facts([("board", board), ("firmware", str(path))])


@app.command("flash", cls=PlainCommand)
@talking
def flash(
    board: Annotated[
        str, typer.Argument(metavar="BOARD", help="Its name, or auto: the only drive that is here.", show_default=False)
    ],
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="A .uf2, .bin or ELF file.", show_default=False)],
    by: Annotated[
        WayChoice | None, typer.Option(help="What writes it. [default: the board's usual way]", show_default=False)
    ] = None,
    drive: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where its drive is mounted. [default: looked for]", show_default=False),
    ] = None,
    port: Annotated[
        str | None,
        typer.Option(metavar="PORT", help="Serial port, for esptool. [default: looked for]", show_default=False),
    ] = None,
    json: shared_flags.Json = False,
) -> None:
    """Write firmware to a board.

    Copies a file to boards that show a drive; an ELF file is made what the board takes. ESP32 boards take esptool, and
    pyOCD writes by a debug probe: pip install 'nmpconv[flash]' has both.

    \b
    Examples:
      nmpconv device flash pico firmware.uf2
      nmpconv device build nucleo-f446re -o f.elf && nmpconv device flash nucleo-f446re f.elf
      nmpconv device flash esp32s3 merged.bin --port /dev/ttyACM0
    """
    from nmpconv.device import flashing  # not loaded for --help

    with console.progress() as progress:
        way = shared_flags.value(by)
        done = flashing.flash(board, image, by=way, drive=drive, port=port, progress=progress)
    if json:
        console.as_json({"board": done.board or None, "by": done.by, "place": done.place, "bytes": done.bytes})
        return
    console.facts(
        [
            ("board", done.board),
            ("written to", f"{done.place}, by {done.by}" if done.by != "drive" else done.place),
            ("firmware", f"{image}, {console.size(done.bytes)}"),
        ]
    )
