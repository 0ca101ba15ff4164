"""Lines to a device: a serial port, a TCP port, a simulated board, the agent as a program on this machine."""

from __future__ import annotations

import errno
import os
import select
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Protocol, cast

import serial

from nmpconv.device.serial_ports import port_named, serial_ports
from nmpconv.errors import DeviceError

BAUD = 115200
CONNECT_SECONDS = 5.0
WRITE_SECONDS = 5.0  # that a line may take no bytes
END_SECONDS = 2.0  # that a program gets to end by itself

# What a port that is pulled out raises; pyserial lets errors of termios through.
ENDED = "the program has ended"  # what reads and writes say of it, whichever is first
_PORT_ERRORS: tuple[type[Exception], ...] = (serial.SerialException, OSError)
with suppress(ImportError):  # Windows has none
    import termios

    _PORT_ERRORS += (termios.error,)
_OPEN_ERRORS: tuple[type[Exception], ...] = (*_PORT_ERRORS, ValueError, OverflowError)


class Transport(Protocol):
    """A line. Both methods raise LineGone when it is gone."""

    name: str

    def read(self, seconds: float) -> bytes:
        """Returns the bytes that have come, at once when there are any; b'' when none came in so many seconds."""

    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...


class LineGone(DeviceError):
    """A line that was there is none any more. again: opens it anew, or raises DeviceError; None: nothing can."""

    def __init__(self, name: str, reason: str, again: Callable[[], None] | None = None) -> None:
        hint = "plug it in and start again: an upload goes on where it was"
        super().__init__(f"the line is gone: {reason}", where=name, hint=hint)
        self.again = again


class Serial:
    """A serial port. patience: seconds that it may take no bytes. again: whether it may come back under its name.
    no_reset: DTR and RTS are not set while it is open; else that depends on the port (`SerialPort.control_lines`).
    """

    def __init__(
        self,
        port: str,
        baud: int = BAUD,
        patience: float | None = None,
        *,
        again: bool = True,
        no_reset: bool = False,
    ) -> None:
        self.name, self._path, self._baud, self._no_reset = port, port, baud, no_reset
        self._patience = WRITE_SECONDS if patience is None else patience
        self._again = self._reopen if again else None
        self._open()

    def _open(self) -> None:
        try:
            port = serial.Serial(baudrate=self._baud, timeout=0, write_timeout=self._patience, exclusive=True)
            port.port = self._path
            port.dtr = port.rts = not self._no_reset and port_named(self._path).control_lines
            port.open()
            self._port = port
        except _OPEN_ERRORS as error:
            raise DeviceError(
                f"cannot open the port: {_reason(error)}", where=self._path, hint=_port_hint(error)
            ) from None

    def _reopen(self) -> None:
        self.close()
        self._open()

    @property
    def first_rate(self) -> int:
        """Bits a second that it is opened with."""
        return self._baud

    @property
    def rate(self) -> int:
        return int(self._port.baudrate)

    @property
    def faster(self) -> bool:
        return self.rate != self._baud

    def set_rate(self, rate: int) -> None:
        """Raises DeviceError where the port has no such rate, and keeps the one it has."""
        before = self._port.baudrate
        try:
            self._port.baudrate = rate
        except _OPEN_ERRORS as error:
            with suppress(*_OPEN_ERRORS):
                self._port.baudrate = before
            raise DeviceError(f"the port has no {rate} baud: {_reason(error)}", where=self.name) from None

    def read(self, seconds: float) -> bytes:
        try:
            self._port.timeout = seconds
            first = self._port.read(1)
            return first + self._port.read(self._port.in_waiting) if first else b""
        except _PORT_ERRORS as error:
            raise LineGone(self.name, _reason(error), self._again) from None

    def write(self, data: bytes) -> None:
        try:
            self._port.write(data)
        except serial.SerialTimeoutException:
            raise _full(self.name, self._patience) from None
        except _PORT_ERRORS as error:
            raise LineGone(self.name, _reason(error), self._again) from None

    def close(self) -> None:
        with suppress(*_PORT_ERRORS):
            self._port.close()


class Tcp:
    """A TCP port that a serial line, or a simulator, is behind."""

    def __init__(self, host: str, port: int) -> None:
        self.name, self._address = f"tcp:{host}:{port}", (host, port)
        self._open()

    def _open(self) -> None:
        try:
            self._socket = socket.create_connection(self._address, timeout=CONNECT_SECONDS)
        except OSError as error:
            raise DeviceError(f"cannot connect: {_reason(error)}", where=self.name) from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(WRITE_SECONDS)

    def _again(self) -> None:
        self.close()
        self._open()

    def read(self, seconds: float) -> bytes:
        try:
            if not select.select([self._socket], [], [], seconds)[0]:
                return b""
            data = self._socket.recv(65536)
        except OSError as error:
            raise LineGone(self.name, _reason(error), self._again) from None
        if not data:
            raise LineGone(self.name, "the other side closed the connection", self._again)
        return data

    def write(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except TimeoutError:
            raise _full(self.name, WRITE_SECONDS) from None
        except OSError as error:
            raise LineGone(self.name, _reason(error), self._again) from None

    def close(self) -> None:
        self._socket.close()


class Output:
    """Output of a program, read by a thread: no system but POSIX can wait for a pipe with a limit of time."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._pieces: SimpleQueue[bytes] = SimpleQueue()
        self._thread = threading.Thread(target=self._collect, daemon=True)
        self._thread.start()

    def _collect(self) -> None:
        piece = b"begin"
        while piece:
            try:
                piece = os.read(self._file.fileno(), 65536)
            except (OSError, ValueError):  # it was closed
                piece = b""
            self._pieces.put(piece)

    def read(self, seconds: float) -> bytes | None:
        """The next piece; b'' when nothing came in so many seconds, None when the program has closed it."""
        try:
            piece = self._pieces.get(timeout=seconds)
        except Empty:
            return b""
        if not piece:
            self._pieces.put(b"")  # for who asks again
        return piece or None

    def close(self) -> None:
        """After the program has ended."""
        self._thread.join(END_SECONDS)
        self._file.close()


class Program:
    """A program that is the device, over its stdin and stdout."""

    def __init__(self, command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> None:
        self.name = Path(command[0]).name
        variables = {**os.environ, **(environment or {})}
        try:
            self._process = subprocess.Popen(
                list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=variables
            )
        except OSError as error:
            raise DeviceError(f"cannot start: {error.strerror}", where=str(command[0])) from None
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = cast(FileIO, self._process.stdin), Output(self._process.stdout)

    def read(self, seconds: float) -> bytes:
        data = self._out.read(seconds)
        if data is None:
            raise LineGone(self.name, ENDED)
        return data

    def write(self, data: bytes) -> None:
        """By a thread, since a program that does not read would keep this one waiting."""
        failed: list[OSError | ValueError] = []
        writer = threading.Thread(target=self._write, args=(data, failed), daemon=True)
        writer.start()
        writer.join(WRITE_SECONDS)
        if writer.is_alive():
            raise _full(self.name, WRITE_SECONDS)
        if failed:
            ended = isinstance(failed[0], BrokenPipeError)
            raise LineGone(self.name, ENDED if ended else _reason(failed[0])) from None

    def _write(self, data: bytes, failed: list[OSError | ValueError]) -> None:
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[self._in.write(rest) :]
        except (OSError, ValueError) as error:
            failed.append(error)

    def close(self) -> None:
        end(self._process)
        with suppress(OSError):
            self._in.close()
        self._out.close()


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends a program that was started here, one that does not listen too."""
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _number(error: BaseException | None) -> int:
    """The errno of what the system refused; 0 where it is none. termios has it as its first argument."""
    first = getattr(error, "errno", None) or next(iter(getattr(error, "args", ())), None)
    return first if type(first) is int and first > 0 else 0  # where no name is found, it is negative


def _reason(error: Exception) -> str:
    """The system's words, once: pyserial repeats them, and the port's name, within its own."""
    number = _number(error) or _number(error.__context__)
    return os.strerror(number) if number else getattr(error, "strerror", None) or str(error)


def _port_hint(error: Exception) -> str:
    number = _number(error)
    if number in (errno.EAGAIN, errno.EBUSY):
        return "another program has it open: end that one, or use another port"
    if number in (errno.EACCES, errno.EPERM):
        return "you may not use it: on most systems members of the group dialout may"
    return f"ports found: {', '.join(port.device for port in serial_ports()) or 'none'}"


def _full(name: str, seconds: float) -> DeviceError:
    return DeviceError(
        f"the line took no bytes for {seconds:.0f} s",
        where=name,
        hint="reset the device and start again: an upload goes on where it was",
    )
