"""Serial ports of this machine, the boards that their USB numbers tell of, and how their control lines are set."""

from __future__ import annotations

from dataclasses import dataclass

from serial.tools import list_ports

# Vendor and product to what has it, as its maker's list of USB numbers says.
BOARDS: dict[tuple[int, int], str] = {
    (0x2E8A, 0x0005): "Raspberry Pi Pico with MicroPython",
    (0x2E8A, 0x0009): "Raspberry Pi Pico 2",
    (0x2E8A, 0x000A): "Raspberry Pi Pico",
    (0x2E8A, 0x000C): "Raspberry Pi Debug Probe",
    (0x0483, 0x374B): "ST-LINK/V2-1 (Nucleo, Discovery)",
    (0x0483, 0x374E): "STLINK-V3 (Nucleo, Discovery)",
    (0x0483, 0x374F): "STLINK-V3 (Nucleo, Discovery)",
    (0x0D28, 0x0204): "DAPLink (micro:bit, Mbed)",
    (0x1366, 0x0105): "J-Link (nRF development kit)",
    (0x1366, 0x1015): "J-Link (nRF development kit)",
    (0x1366, 0x1051): "J-Link (nRF development kit)",
    (0x303A, 0x1001): "Espressif USB serial and JTAG (ESP32-C3, -S3)",
    (0x10C4, 0xEA60): "CP210x bridge (many ESP32 boards)",
    (0x1A86, 0x7523): "CH340 bridge (many ESP32 and Arduino boards)",
    (0x1A86, 0x55D4): "CH9102 bridge (many ESP32 boards)",
    (0x0403, 0x6001): "FT232R bridge",
    (0x0403, 0x6010): "FT2232 bridge",
    (0x0403, 0x6015): "FT231X bridge",
}
# Vendors of bridges between USB and a serial line, and of ports that reset as such do: DTR and RTS are often wired to
# reset and boot pins. A port that the board's own processor makes sends only while DTR is set.
RESETTING = {0x10C4: "Silicon Labs", 0x1A86: "WCH", 0x0403: "FTDI", 0x067B: "Prolific", 0x303A: "Espressif"}


@dataclass(frozen=True)
class SerialPort:
    """vid, pid: of USB; None: it is no USB device."""

    device: str
    description: str = ""
    vid: int | None = None
    pid: int | None = None

    @property
    def usb(self) -> str:
        """VID:PID in hexadecimal, '' for a port that is not USB's."""
        return "" if self.vid is None or self.pid is None else f"{self.vid:04x}:{self.pid:04x}"

    @property
    def board(self) -> str:
        """Board or bridge that has these numbers, '' where they are not known."""
        return "" if self.vid is None or self.pid is None else BOARDS.get((self.vid, self.pid), "")

    @property
    def control_lines(self) -> bool:
        """DTR and RTS while the port is open: not set where they may hold the board in reset."""
        return self.vid not in RESETTING


def serial_ports() -> list[SerialPort]:
    """Ports that are here, by name."""
    ports = [
        SerialPort(port.device, "" if port.description == "n/a" else port.description, port.vid, port.pid)
        for port in list_ports.comports()
    ]
    return sorted(ports, key=lambda port: port.device)


def port_named(device: str) -> SerialPort:
    """A port that is here, or one of this name about which nothing is known."""
    return next((port for port in serial_ports() if port.device == device), SerialPort(device))
