"""bench, run, compare and device on the agent of this machine, and on a board that QEMU simulates."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import lines
import nets
import numpy as np
import pytest

from nmpconv.base.progress import silent
from nmpconv.cli import main
from nmpconv.device import client, firmware, link, protocol, serial_ports, simulator, transport
from nmpconv.device.client import Device
from nmpconv.device.connect import opened
from nmpconv.device.link import RequestRefused
from nmpconv.device.transport import Program, Serial
from nmpconv.errors import ExitCode
from nmpconv.file.writer import to_bytes
from nmpconv.runtime import on_device

KEYS = {"device", "board", "counter", "latency_ms", "instructions", "ops", "arena_bytes", "verified"}
BOARDS = ("mps2-an386", "mps2-an500", "mps2-an505", "mps3-an547", "rv32", "lx60")


def test_bench(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "m.nmp", "--device", "sim:host", "--runs", "2"]) == ExitCode.OK
    out = capsys.readouterr().out
    assert "the same bytes as here" in out and "host" in out


def test_bench_on_given_inputs(here: Path, inputs: list[np.ndarray], capsys: pytest.CaptureFixture[str]) -> None:
    np.save("x.npy", np.concatenate([inputs[0], -inputs[0] // 2, inputs[0] // 3]).astype(np.float32))
    command = ["bench", "m.nmp", "--device", "sim:host", "--input", "x.npy", "--cpu", "portable", "--json"]
    assert main(command) == ExitCode.OK
    found = json.loads(capsys.readouterr().out)
    assert found["verified_inputs"] == 3 and found["ns"] > 0 and found["simulated"] is False


def test_where_there_is_no_clock_no_time_is_told(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A counter of instructions, on a board that nmpconv simulates or that says so itself."""
    command, hello = ["bench", "m.nmp", "--device", "sim:host"], protocol.hello
    assert main(command) == ExitCode.OK
    assert re.search(r"^latency +\d", capsys.readouterr().out, re.MULTILINE)
    monkeypatch.setattr(protocol, "hello", lambda answer: replace(hello(answer), counter="instructions"))
    assert main(command) == ExitCode.OK
    said = capsys.readouterr().out
    assert re.search(r"^instructions +\d+ \(min\)", said, re.MULTILINE)
    assert "latency" not in said and not re.search(r"\d (s|ms|us|ns)\b", said)
    assert main([*command, "--json"]) == ExitCode.OK
    found = json.loads(capsys.readouterr().out)
    assert found["latency_ms"] is None and found["simulated"] is True
    assert found["instructions"] > 0 and all(op["instructions"] > 0 for op in found["ops"])
    monkeypatch.setattr(protocol, "hello", hello)
    with opened("sim:host", silent) as device:
        assert on_device.counter(device.hello, "sim:host").seconds == 1e-9
        assert {on_device.counter(device.hello, f"sim:{board}").seconds for board in simulator.MACHINES} == {None}


def test_run_and_compare(here: Path, net, inputs: list[np.ndarray], capsys: pytest.CaptureFixture[str]) -> None:
    np.save("x.npy", inputs[0].astype(np.float32))
    assert main(["run", "m.nmp", "x.npy", "--device", "sim:host", "--raw", "-o", "y.npz"]) == ExitCode.OK
    assert np.array_equal(np.load("y.npz")["y"], net.run(*inputs)[0])
    capsys.readouterr()
    assert main(["compare", "m.nmp", "--device", "sim:host", "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["equal"] is True


def test_a_difference_is_exit_code_4(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A device whose first input byte is always another one."""
    honest = Device.set_inputs

    def wrong(device: Device, data: bytes) -> None:
        honest(device, bytes([data[0] ^ 0x40]) + data[1:])

    monkeypatch.setattr(Device, "set_inputs", wrong)
    assert main(["bench", "m.nmp", "--device", "sim:host"]) == ExitCode.MISMATCH
    assert "differs from the host's" in capsys.readouterr().err
    assert main(["compare", "m.nmp", "--device", "sim:host"]) == ExitCode.MISMATCH
    assert "op 0 'n_y'" in capsys.readouterr().err
    assert main(["compare", "m.nmp", "--device", "sim:host", "--json"]) == ExitCode.MISMATCH
    told = json.loads(capsys.readouterr().out)["error"]["difference"]
    assert told["short"] == told["name"] == "n_y"  # a name of this length stays whole


def test_what_the_device_cannot_hold(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("m.nmp").write_bytes(b"x" * 100)
    assert main(["bench", "m.nmp", "--device", "sim:host"]) == ExitCode.MODEL


def test_too_large_a_model_is_refused_with_numbers(agent: Path, line) -> None:
    with pytest.raises(RequestRefused, match=r"needs 20000000 bytes, has 167\d+; status 62") as refused:
        Device(line).load(bytes(20_000_000))
    assert refused.value.code == ExitCode.MODEL


def test_too_large_an_arena_is_refused_with_numbers(line) -> None:
    """The file is small, what it computes is not."""
    net = nets.Net(grid=nets.grid(8, 0))
    net.input("x", 1, 3_000_000)
    net.op("add", "x x", "y")
    graph = nets.placed(net.graph("y"))
    with pytest.raises(RequestRefused, match=r"needs 6\d+ bytes, has 4194304; status 21") as refused:
        Device(line).load(to_bytes(graph, {}))
    assert refused.value.code == ExitCode.MODEL


def test_a_file_that_the_device_does_not_know_is_refused(line, model: bytes) -> None:
    harmed = model[:4] + b"NOPE" + model[8:]
    with pytest.raises(RequestRefused, match=r"status 1\)") as refused:
        Device(line).load(harmed)
    assert refused.value.code == ExitCode.MODEL


@pytest.mark.slow
def test_an_op_that_was_not_built_is_refused(
    root: Path, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["make", "-s", "-C", root / "interpreter" / "firmware", "BOARD=host", f"OUT={here}", "OPS=add mul"]
    subprocess.run([*command, "DEFINES=-DNMP_FIXED_CPU=1 -O0"], check=True, capture_output=True)
    monkeypatch.setattr(simulator, "_folders", lambda: [here])
    assert main(["bench", "m.nmp", "--device", "sim:host"]) == ExitCode.MODEL
    assert "status 41" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("sim:nothing", ExitCode.USAGE, "there is no simulated board"),
        ("sim:mps2-an368", ExitCode.USAGE, "did you mean 'mps2-an386'?"),
        ("rv32", ExitCode.USAGE, "hint: sim:rv32"),
        ("sim:rv32", ExitCode.DEVICE, "nmpconv device build rv32"),
        ("tcp:here", ExitCode.USAGE, "is not tcp:host:port"),
        ("tcp:127.0.0.1:1", ExitCode.DEVICE, "cannot connect"),
        ("nowhere:115200", ExitCode.DEVICE, "cannot open the port"),
    ],
)
def test_no_such_device(
    here: Path, capsys: pytest.CaptureFixture[str], name: str, code: ExitCode, message: str
) -> None:
    assert main(["device", "info", name]) == code
    assert message in capsys.readouterr().err


def test_list_and_info(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["device", "list", "--json"]) == ExitCode.OK
    assert "sim:rv32" in {board["device"] for board in json.loads(capsys.readouterr().out)["simulated"]}
    assert main(["device", "info", "sim:host", "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["board"] == "host"


def test_usb_numbers_and_boards_are_listed(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usb = [("ttyACM1", "Board CDC", 0x2E8A, 0x000A), ("ttyACM0", "n/a", 0x1209, 0x0001), ("ttyS0", "n/a", None, None)]
    plug(monkeypatch, usb)
    assert main(["device", "list"]) == ExitCode.OK
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("tty")]
    assert rows == [
        ["ttyACM0", "1209:0001", "serial", "port"],
        ["ttyACM1", "2e8a:000a", "Raspberry", "Pi", "Pico"],
        ["ttyS0", "serial", "port"],
    ]
    assert main(["device", "list", "--json"]) == ExitCode.OK
    told = json.loads(capsys.readouterr().out)["ports"]
    assert [(port["usb"], port["board"]) for port in told][1:] == [("2e8a:000a", "Raspberry Pi Pico"), (None, None)]


def plug(monkeypatch: pytest.MonkeyPatch, usb: Sequence[tuple[str, str, int | None, int | None]]) -> None:
    """Ports of these names, descriptions and USB numbers."""
    ports = [SimpleNamespace(device=name, description=text, vid=vid, pid=pid) for name, text, vid, pid in usb]
    monkeypatch.setattr(serial_ports.list_ports, "comports", lambda: ports)


def test_auto_is_the_port_that_answers(
    here: Path, agent: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "HELLO_SECONDS", 0.5)
    plug(
        monkeypatch, [("ttyUSB0", "n/a", 0x10C4, 0xEA60), ("ttyACM0", "Board", 0x1209, 1), ("ttyS0", "n/a", None, None)]
    )
    with lines.Port(Path("ttyUSB0"), None), lines.Port(Path("ttyS0"), None):
        with lines.Port(Path("ttyACM0"), Program([agent])):
            assert main(["device", "info", "auto", "--json"]) == ExitCode.OK
            assert json.loads(capsys.readouterr().out)["board"] == "host"
        assert main(["device", "info", "auto", "--wait", "0"]) == ExitCode.DEVICE
    said = capsys.readouterr().err
    assert "no device answers" in said and "ttyUSB0 CP210x bridge (many ESP32 boards): no answer" in said
    assert "ttyS0" not in said
    plug(monkeypatch, [])
    assert main(["device", "info", "auto"]) == ExitCode.DEVICE
    assert "no USB port is here: is it plugged in" in capsys.readouterr().err


def test_auto_asks_where_two_answer(
    here: Path, agent: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plug(monkeypatch, [("ttyACM0", "Board", 0x1209, 1), ("ttyACM1", "Board", 0x1209, 1)])
    with lines.Port(Path("ttyACM0"), Program([agent])), lines.Port(Path("ttyACM1"), Program([agent])):
        assert main(["device", "info", "auto"]) == ExitCode.USAGE
    assert "2 devices answer: ttyACM0, ttyACM1" in capsys.readouterr().err


@pytest.mark.parametrize(("vid", "is_set"), [(0x10C4, False), (0x303A, False), (0x2E8A, True), (None, True)])
def test_control_lines_by_vendor(vid: int | None, is_set: bool, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bridges may have them on a board's reset pin; a processor's own port sends only while DTR is set."""
    opened = []

    class Recorded(transport.serial.Serial):
        def open(self) -> None:
            opened.append((self.dtr, self.rts))

    monkeypatch.setattr(transport.serial, "Serial", Recorded)
    plug(monkeypatch, [("ttyUSB0", "n/a", vid, 1 if vid else None)])
    Serial("ttyUSB0")
    Serial("ttyUSB0", no_reset=True)
    assert opened == [(is_set, is_set), (False, False)]


@pytest.mark.parametrize(
    "words",
    [
        ["device", "info"],
        ["bench", "m.nmp", "--runs", "1", "--device"],
        ["compare", "m.nmp", "--device"],
        ["run", "m.nmp", "x.npy", "--device"],
    ],
    ids=lambda words: words[0],
)
@pytest.mark.parametrize("name", ["ttyACM0", "auto"])
def test_no_reset(
    name: str, words: list[str], here: Path, agent: Path, inputs: list[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No command sets a line, at the port that is found, too."""
    np.save("x.npy", inputs[0])
    opened = []

    class Watched(transport.serial.Serial):
        def open(self) -> None:
            opened.append((self.dtr, self.rts))
            super().open()

    monkeypatch.setattr(transport.serial, "Serial", Watched)
    plug(monkeypatch, [("ttyACM0", "n/a", 0x2E8A, 0x000A)])
    with lines.Port(Path("ttyACM0"), Program([agent])):
        assert main([*words, name, "--no-reset"]) == ExitCode.OK
        assert set(opened) == {(False, False)}
        opened.clear()
        assert main([*words, name]) == ExitCode.OK
        assert set(opened) == {(True, True)}


def test_a_late_start_is_waited_for(
    here: Path, agent: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A board that boots longer than HELLO is asked without --wait."""
    monkeypatch.setattr(client, "HELLO_SECONDS", 0.3)

    class Booting(Program):
        """Loses what comes in its first second."""

        def __init__(self) -> None:
            super().__init__([agent])
            self._start = time.monotonic() + 1.0

        def write(self, data: bytes) -> None:
            if time.monotonic() > self._start:
                super().write(data)

    with lines.Port(Path("ttyUSB0"), Booting()):
        assert main(["device", "info", "ttyUSB0", "--wait", "0"]) == ExitCode.DEVICE
    with lines.Port(Path("ttyUSB0"), Booting()):
        assert main(["device", "info", "ttyUSB0", "--wait", "8", "--json"]) == ExitCode.OK
    assert "no answer" in capsys.readouterr().err


def test_a_missing_compiler_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], need_tool: Callable[..., str]
) -> None:
    for tool in ("make", "find", "mkdir", "sh"):
        (tmp_path / tool).symlink_to(need_tool(tool))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(firmware, "zig", lambda: None)
    assert main(["device", "build", "mps2-an386", "-o", str(tmp_path / "x.elf")]) == ExitCode.DEVICE
    said = capsys.readouterr().err
    assert "arm-none-eabi-gcc is missing" in said and "apt-get install gcc-arm-none-eabi" in said
    assert "or pip install ziglang" in said
    assert "is there already" not in said
    monkeypatch.setattr(firmware, "home", lambda: tmp_path)
    (tmp_path / "firmware").mkdir()
    (tmp_path / "firmware" / "mps2-an386.elf").touch()  # as it comes with a wheel
    assert main(["device", "build", "mps2-an386"]) == ExitCode.DEVICE
    assert "mps2-an386.elf is there already, and sim:mps2-an386 takes it" in capsys.readouterr().err
    (tmp_path / "make").unlink()
    assert main(["device", "build", "mps2-an386"]) == ExitCode.DEVICE
    assert "apt-get install make" in capsys.readouterr().err
    assert main(["device", "build", "nowhere"]) == ExitCode.USAGE
    assert "there are esp32c3, host, lx60, mps2-an385, mps2-an385-m0plus, mps2-an386" in capsys.readouterr().err


def test_unplugged_and_plugged_in_again(
    here: Path, agent: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device is lost with half of the model, and keeps that half; its port is another one, of the same name."""
    monkeypatch.setattr(link, "WAIT_MIN", 1.0)  # on a busy machine answers are late, and requests sent again count
    monkeypatch.setattr(link, "WAIT_FIRST", 1.0)
    memory = {"NMP_AGENT_MEMORY": "memory"}
    command = ["bench", "m.nmp", "--device", "ttyUSB0:9600", "--json"]
    with lines.Port(Path("ttyUSB0"), Program([agent], memory), pulled_after=15_000):
        assert main([*command, "--wait", "0"]) == ExitCode.DEVICE
    said = capsys.readouterr().err
    found = re.search(r"ttyUSB0: the line is gone: .*; (\d+) of \d+ bytes of the model had arrived", said)
    assert found and "start again: an upload goes on where it was" in said
    with lines.Port(Path("ttyUSB0"), Program([agent], memory)):
        assert main(command) == ExitCode.OK
    report = json.loads(capsys.readouterr().out)
    assert 10_000 < int(found[1]) <= report["upload_resumed_at"] < 15_000
    assert report["verified"] is True


def test_unplugged_before_it_is_asked(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with lines.Port(Path("ttyUSB0"), None, pulled_after=1):
        assert main(["device", "info", "ttyUSB0", "--wait", "0.3"]) == ExitCode.DEVICE
    assert "the line is gone" in capsys.readouterr().err
    assert main(["device", "info", "ttyUSB0"]) == ExitCode.DEVICE
    assert "cannot open the port" in capsys.readouterr().err


def test_nobody_at_the_port(here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "HELLO_SECONDS", 0.5)
    with lines.Port(Path("ttyUSB0"), None):
        assert main(["device", "info", "ttyUSB0", "--wait", "0"]) == ExitCode.DEVICE
    assert "ttyUSB0: no answer" in capsys.readouterr().err


def test_a_port_in_use(here: Path, agent: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with lines.Port(Path("ttyUSB0"), Program([agent])):
        other = Serial("ttyUSB0")
        assert main(["device", "info", "ttyUSB0"]) == ExitCode.DEVICE
        assert "another program has it open" in capsys.readouterr().err
        other.close()
        assert main(["device", "info", "ttyUSB0"]) == ExitCode.OK


def test_missing_qemu_is_named(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(simulator, "firmware", lambda board: Path("any.elf"))
    monkeypatch.setattr(simulator.shutil, "which", lambda name: None)
    monkeypatch.setattr(simulator, "find_spec", lambda name: None)
    assert main(["device", "info", "sim:mps2-an386"]) == ExitCode.DEVICE
    assert "apt-get install qemu-system-arm, or pip install unicorn" in capsys.readouterr().err
    monkeypatch.setattr(simulator, "find_spec", lambda name: name)
    assert main(["device", "info", "sim:mps3-an547"]) == ExitCode.DEVICE
    assert "apt-get install qemu-system-arm\n" in capsys.readouterr().err
    assert main(["device", "list", "--json"]) == ExitCode.OK
    found = {row["device"]: row["missing"] for row in json.loads(capsys.readouterr().out)["simulated"]}
    assert found["sim:mps2-an386"] is found["sim:mps2-an500"] is None
    assert found["sim:mps3-an547"] == "qemu-system-arm is missing: apt-get install qemu-system-arm"


@pytest.mark.slow
@pytest.mark.parametrize("board", BOARDS)
def test_simulated_board(here: Path, monkeypatch, capsys, firmware: Callable[..., Path], board: str) -> None:
    folder = firmware(board).parent
    monkeypatch.setattr(simulator, "_folders", lambda: [folder])
    found = []
    for _ in range(2):
        assert main(["bench", "m.nmp", "--device", f"sim:{board}", "--runs", "2", "--json"]) == ExitCode.OK
        found.append(json.loads(capsys.readouterr().out))
    assert found[0].keys() >= KEYS and found[0]["verified"] is True and found[0]["board"] == board
    assert found[0]["instructions"] == found[1]["instructions"] > 24_000 / 16  # 16 products an instruction at most
    assert found[0]["ops"] == found[1]["ops"] and found[0]["latency_ms"] is None
