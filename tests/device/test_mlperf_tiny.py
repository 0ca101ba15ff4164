"""The MLPerf Tiny nets on every simulated board, on one that was started by hand, and over a bad line."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import lines
import numpy as np
import pytest
import uart
from c_core import Once
from zoo_quick import converted

import nmpconv
from nmpconv.cli import main
from nmpconv.device import simulator
from nmpconv.device.client import Device, Upload
from nmpconv.device.link import Link
from nmpconv.device.transport import Program, Serial, Transport, end
from nmpconv.errors import DeviceError, ExitCode
from nmpconv.exporters.c_sources import bundle
from nmpconv.runtime import on_device
from nmpconv.runtime.interpreter import load

pytestmark = [pytest.mark.slow, pytest.mark.zoo]

NETS = {
    "ic": "mlperf_ic_resnet8_nhwc",
    "kws": "mlperf_kws_dscnn",
    "vww": "mlperf_vww_mobilenet025_nchw",
    "ad": "mlperf_ad_autoencoder",
}
OTHERS = {"resnet20": "cifar10_resnet20", "se": "cifar10_se_mbv3_local"}  # of residual sums, and of products
# Started by hand, with the arguments that put the firmware's UART on a pty.
BY_HAND = {"mps2-an386": ("mps2-an386",), "nucleo-f446re": ("netduinoplus2", "-serial", "null")}
ESTIMATED = 0.05  # of the instructions: how far an estimate may be off, see docs/results.md
TARGETS = {
    "mps2-an500": "cortex-m4",
    "mps2-an505": "cortex-m4",
    **{board: target for target, board in simulator.COUNTED_ON.items()},
}
ALONE = simulator.COUNTED_ON.values()  # of two boards with the same kernels one
BAD = {"lost": 0.001, "flipped": 0.001}
LEAST = {"ic": (33792, 49152), "kws": (8640, 16000), "vww": (37248, 55296)}  # activations; without overlaps
Firmware = Callable[..., Path]
Model = Callable[[str, str], Path]


@pytest.fixture(scope="session")
def model(zoo: Path, once: Once) -> Model:
    """The file of a net at a width."""

    def find(net: str, bits: str) -> Path:
        def convert(folder: Path) -> None:
            (folder / "net.nmp").write_bytes(converted(zoo, {**NETS, **OTHERS}[net], bits, folder)[0].data)

        return once(f"zoo-{net}-{bits}", convert) / "net.nmp"

    return find


@pytest.fixture(scope="session")
def tight(zoo: Path, once: Once) -> Callable[[str], Path]:
    """The file of a net in the least memory without computing anything twice."""

    def find(net: str) -> Path:
        def convert(folder: Path) -> None:
            least, apart = LEAST[net]
            made, _ = converted(zoo, NETS[net], "8", folder, widths="strict", max_ram=least)
            assert made.report.banded_macs == 0 and made.report.arena_bytes <= least < apart * 0.7
            (folder / "net.nmp").write_bytes(made.data)

        return once(f"tight-{net}", convert) / "net.nmp"

    return find


@contextmanager
def by_hand(firmware: Path, board: str, monitor: str = "none") -> Iterator[tuple[str, subprocess.Popen]]:
    """QEMU as a user starts it, without -icount; the port that it announces."""
    options = [*BY_HAND[board], "-display", "none", "-monitor", monitor, "-serial", "pty", "-kernel", firmware]
    process = subprocess.Popen(
        ["qemu-system-arm", "-M", *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    try:
        said = b""
        while not (found := simulator.PTY.search(said)):
            piece = process.stdout.readline()
            assert piece, said
            said += piece
        yield found[1].decode(), process
    finally:
        end(process)
        process.stdin.close()
        process.stdout.close()


@pytest.mark.parametrize(
    ("board", "bits"), [*((board, "8") for board in TARGETS), *((b, "16") for b in sorted(set(ALONE)))]
)
@pytest.mark.parametrize("net", NETS)
def test_bench_on_simulated_boards(
    model: Model, firmware: Firmware, monkeypatch: pytest.MonkeyPatch, capsys, net: str, bits: str, board: str
) -> None:
    folder = firmware(board).parent
    monkeypatch.setattr(simulator, "_folders", lambda: [folder])
    command = ["bench", str(model(net, bits)), "--device", f"sim:{board}", "--runs", "1", "--json"]
    assert main(command) == ExitCode.OK
    found = json.loads(capsys.readouterr().out)
    assert found["verified"] is True and found["board"] == board
    assert found["latency_ms"] is None
    assert found["upload_resumed_at"] == model(net, bits).stat().st_size  # QEMU had it in the board's memory
    assert main(["inspect", str(model(net, bits)), "--target", TARGETS[board], "--json"]) == ExitCode.OK
    shown = json.loads(capsys.readouterr().out)
    (told,), (estimate,) = shown["ram"], shown["estimated_instructions"]
    assert told["arena"] == found["arena_bytes"]
    assert abs(estimate["total"] / found["instructions"] - 1) < ESTIMATED
    bundled = bundle({"model": model(net, bits).read_bytes()})["README.md"].decode()
    assert f"| on {TARGETS[board]} | {told['arena']} |" in bundled
    macs = sum(op["macs"] for op in found["ops"])
    assert macs / 16 < found["instructions"] < 100 * macs  # an instruction has 16 products at most
    assert abs(sum(op["instructions"] for op in found["ops"]) - found["instructions"]) <= len(found["ops"])


@pytest.mark.parametrize("target", simulator.COUNTED_ON)
@pytest.mark.parametrize(("net", "bits"), [*((net, "8") for net in OTHERS), ("se", "16")])
def test_estimates_of_other_nets(
    model: Model, firmware: Firmware, monkeypatch: pytest.MonkeyPatch, net: str, bits: str, target: str
) -> None:
    board, file = simulator.COUNTED_ON[target], model(net, bits)
    folder = firmware(board).parent
    monkeypatch.setattr(simulator, "_folders", lambda: [folder])
    found = nmpconv.bench(file, device=f"sim:{board}", runs=1)
    estimated = sum(nmpconv.inspect(file, target=target).instructions[target])
    assert abs(estimated / found.counter.count(found.least) - 1) < ESTIMATED


@pytest.mark.parametrize("board", simulator.MACHINES)
@pytest.mark.parametrize("net", ["ic", "kws", "vww"])
def test_results_over_their_own_inputs(
    tight: Callable[[str], Path], firmware: Firmware, monkeypatch: pytest.MonkeyPatch, capsys, net: str, board: str
) -> None:
    """The least memory without computing anything twice: the bytes of this machine."""
    model = tight(net)
    folder = firmware(board).parent
    monkeypatch.setattr(simulator, "_folders", lambda: [folder])
    assert main(["bench", str(model), "--device", f"sim:{board}", "--runs", "1", "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["verified"] is True


@pytest.mark.parametrize("board", BY_HAND)
def test_bench_and_compare_on_a_board_started_by_hand(
    root: Path, model: Model, firmware: Firmware, capsys, board: str
) -> None:
    """With the firmware whose bytes `make size` prints: it has just the ops of these nets."""
    kinds = {op.kind for net in NETS for bits in ("8", "16") for op in load(model(net, bits)).model.ops}
    listed = re.search(r"^MLPERF_TINY := (.*)$", (root / "Makefile").read_text(), re.MULTILINE)
    assert listed is not None and set(listed[1].split()) == kinds
    with by_hand(firmware(board, ops=listed[1]), board) as (port, _):
        ticks = baud = 0
        # Without -icount SysTick runs with the host's clock, and is late where the host is busy, as answers are.
        for _ in range(5):
            assert main(["bench", str(model("kws", "8")), "--device", port, "--json"]) == ExitCode.OK
            found = json.loads(capsys.readouterr().out)
            assert found["verified"] is True and found["device"] == port
            assert not found.keys() & {"instructions", "cycles"}
            ticks, baud = max(ticks, found["ticks"]), max(baud, found["baud"])
            if ticks > 0 and baud > uart.FIRST:
                break
        assert ticks > 0 and baud in (921600, 1000000)
        assert main(["compare", str(model("kws", "8")), "--device", port]) == ExitCode.OK
        fits = found["board"] == "mps2-an386"
        assert main(["bench", str(model("ic", "16")), "--device", port]) == (ExitCode.OK if fits else ExitCode.MODEL)
        assert fits or "bytes, has 53184" in capsys.readouterr().err


def test_resumes_after_a_reset_of_the_board(model: Model, firmware: Firmware, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine is reset as a button does it: its program starts anew, its RAM stays."""
    path = model("kws", "8")
    with by_hand(firmware("mps2-an386"), "mps2-an386", monitor="stdio") as (port, process):
        had = cut_off(Serial(port), path, 20_000, monkeypatch)
        process.stdin.write(b"system_reset\n")
        upload = use(Serial(port), path)
        assert 0 < had <= upload.resumed < 20_000  # a busy host sends pieces twice


def cut_off(line: Transport, path: Path, after: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """An upload whose line is dead after so many bytes; what the device had, as the message says."""
    with monkeypatch.context() as short:
        short.setattr(Link, "quiet", 2)
        line = lines.Cut(line, after)
        with pytest.raises(DeviceError, match="stopped answering") as error:
            Device(line).load(path.read_bytes())
        line.close()
    found = re.search(r"(\d+) of \d+ bytes of the model had arrived", str(error.value))
    assert found is not None
    return int(found[1])


def use(line: Transport, path: Path) -> Upload:
    """Upload, run, and the same bytes as here."""
    net = load(path)
    try:
        device = Device(line)
        upload, _ = on_device.load(device, net, path.read_bytes())
        on_device.verify(device, net, *on_device.cases(net))
    finally:
        line.close()
    return upload


@pytest.mark.parametrize("seed", range(50))
def test_bad_line(agent: Path, model: Model, seed: int) -> None:
    line = lines.Faulty(Program([agent]), seed, **BAD)
    use(line, model("kws", "8"))
    assert line.faults > 40


@pytest.mark.parametrize("seed", range(5))
def test_resumes_on_a_bad_line(
    agent: Path, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Cut off in the middle of the upload, anywhere; the device is reset; what it had is not sent again."""
    path, memory = model("kws", "8"), {"NMP_AGENT_MEMORY": str(tmp_path / "memory")}
    after = int(np.random.default_rng(seed).integers(5_000, 30_000))
    had = cut_off(lines.Faulty(Program([agent], memory), seed, **BAD), path, after, monkeypatch)
    upload = use(lines.Faulty(Program([agent], memory), seed + 50, **BAD), path)
    assert 0 < had <= upload.resumed < after
