"""Opens the line that the name of a device means."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nmpconv.base.progress import Progress
from nmpconv.device import REOPEN_SECONDS, simulator
from nmpconv.device.client import Device
from nmpconv.device.serial_ports import serial_ports
from nmpconv.device.transport import Serial, Tcp, Transport
from nmpconv.errors import DeviceError, UsageError

AUTO = "auto"  # as the name of a device: the USB port that answers


@contextmanager
def opened(
    name: str,
    progress: Progress,
    wait: float = REOPEN_SECONDS,
    *,
    no_reset: bool = False,
    baud: int | None = None,
    model: bytes = b"",
) -> Iterator[Device]:
    """The device at a line, which is closed, and a simulator stopped, at the end. wait: seconds in which a port or a
    connection that is lost is opened again, and in which a device may start. no_reset: see `Serial`, baud: `Device`,
    model: `simulator.start`.
    """
    line = connect(answering(no_reset) if name.lower() == AUTO else name, no_reset, model)
    try:
        device = Device(line, progress, wait, baud)
        try:
            yield device
        finally:
            device.close()
    finally:
        line.close()


def answering(no_reset: bool) -> str:
    """The port of the only USB device that answers. Raises DeviceError where none does, UsageError for several."""
    ports, silent_ = [], []
    for port in serial_ports():
        if not port.usb:
            continue
        try:
            line = Serial(port.device, no_reset=no_reset)
            try:
                Device(line)
                ports.append(port.device)
            finally:
                line.close()
        except DeviceError as error:
            silent_.append(f"{port.device} {port.board or port.description or port.usb}: {error.args[0]}")
    if not ports:
        hint = "; ".join(silent_) or "no USB port is here: is it plugged in, with a cable that carries data?"
        raise DeviceError("no device answers", where=AUTO, hint=hint)
    if len(ports) > 1:
        raise UsageError(f"{len(ports)} devices answer: {', '.join(ports)}", where="--device", hint="name one of them")
    return ports[0]


def connect(name: str, no_reset: bool = False, model: bytes = b"") -> Transport:
    """The line of a --device: PORT[:baud], tcp:host:port or sim:BOARD. Raises UsageError, DeviceError."""
    kind, _, rest = name.partition(":")
    if kind.lower() == "sim":
        return simulator.start(rest.lower(), model)
    if kind.lower() == "tcp":
        host, _, port = rest.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise UsageError(f"{name!r} is not tcp:host:port", where="--device")
        return Tcp(host, int(port))
    if (board := name.lower()) in simulator.boards():
        raise UsageError(f"{name!r} is no port but a simulated board", where="--device", hint=f"sim:{board}")
    path, colon, baud = name.rpartition(":")
    if colon and baud.isdecimal() and int(baud) > 0 and path:
        return Serial(path, int(baud), no_reset=no_reset)
    return Serial(name, no_reset=no_reset)
