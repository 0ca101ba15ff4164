"""The MLPerf Tiny nets on simulated microcontrollers, next to what CMSIS-NN and TFLM need for the same nets.

Instructions are exact: QEMU counts them (-icount). The nets are converted from the zoo ($NMP_ZOO, default
../shared/zoo) at three settings: strict (int8 throughout, as CMSIS-NN's figures are), 8 (the default widths) and 16.
For each net a firmware with the net's ops only is built, loaded over the simulated line, and its outputs are compared
with this machine's.

Flash is what the linker kept of the interpreter and the C library, without the model, the agent and the board. The
peers' figures: CMSIS-NN 99f736a and TFLM 90b983c, gcc 12 -O3, November 2026; int16 is CMSIS-NN's 16x8, ours 16x16.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from zoo import SETTINGS, split

from nmpconv.cli import show
from nmpconv.convert import Options, convert
from nmpconv.device.client import Device
from nmpconv.device.simulator import Simulator
from nmpconv.errors import DeviceError, MismatchError
from nmpconv.ondevice import Measured, cases, measure
from nmpconv.runtime import Net, load

ROOT = Path(__file__).resolve().parent.parent
NETS = {
    "AD": "mlperf_ad_autoencoder",
    "IC": "mlperf_ic_resnet8_nhwc",
    "KWS": "mlperf_kws_dscnn",
    "VWW": "mlperf_vww_mobilenet025_nchw",
}
BOARDS = {"mps2-an386": "M4", "mps2-an500": "M7", "mps3-an547": "M55", "rv32": "rv32"}

# Million instructions by board and net, as (int8, int16); TFLM's arena, and the lower bound of live int8 activations.
CMSIS_M4 = {"AD": (0.579, 0.74), "IC": (29.85, 32.5), "KWS": (7.70, 10.2), "VWW": (24.10, 32.0)}
CMSIS_M55 = {"AD": (0.062, 0.29), "IC": (4.57, 6.4), "KWS": (1.75, 3.1), "VWW": (6.25, 10.7)}
CMSIS_C = {"AD": (1.47, None), "IC": (65.3, None), "KWS": (16.2, None), "VWW": (48.6, None)}
PEERS = {"mps2-an386": CMSIS_M4, "mps2-an500": CMSIS_M4, "mps3-an547": CMSIS_M55, "rv32": CMSIS_C}
TFLM_ARENA = {"AD": 2580, "IC": 54996, "KWS": 22820, "VWW": 100708}
LOWER_BOUND = {"AD": 768, "IC": 49152, "KWS": 16000, "VWW": 55296}

ATTEMPTS = 3

# Objects of the firmware that are not the interpreter's.
RIM = re.compile(r"/(main|agent|frame|boards/\w[\w/-]*)\.o$")
PLACED = re.compile(r"^ (\.[\w.$-]+)\s+0x[0-9a-f]+\s+(0x[0-9a-f]+)\s+(\S+)$")


@dataclass(frozen=True)
class Row:
    """What one net needs on one board. peer_instructions is for int8 x int8 or int16 x int8."""

    net: str
    bits: str
    board: str
    instructions: int
    peer_instructions: int | None
    macs: int
    arena_bytes: int
    peer_arena_bytes: int
    lower_bound: int
    flash_bytes: int
    model_bytes: int


def converted(zoo: Path, net: str, setting: str, folder: Path, *, reuse: bool) -> Path:
    """The net's file in ``folder``, converted unless it is there and may be reused."""
    path = folder / f"{net}-{setting}.nmp"
    if not (reuse and path.is_file()):
        name = NETS[net]
        about = json.loads((zoo / "zoo.json").read_text())[name]
        bits, widths = SETTINGS[setting]
        with tempfile.TemporaryDirectory() as data:
            source = split(zoo, name, about, Path(data))
            options = Options(bits=bits, widths=widths, preprocess=source.preprocess)
            made = convert(
                zoo / "models" / f"{name}.onnx", {"": source.calib}, options, lambda stage, done, total: None
            )
        path.write_bytes(made.data)
    return path


def firmware(board: str, net: Net, out: Path) -> tuple[Path, Path]:
    """The firmware with the net's ops, and the linker's map of it."""
    ops = sorted({op.kind for op in net.model.ops})
    name = f"{board}-{'-'.join(ops)}"
    linked = out / f"{name}.map"
    command = ["make", "-s", "-C", ROOT / "interpreter" / "firmware", f"BOARD={board}", f"OUT={out}", f"NAME={name}"]
    subprocess.run([*command, f"OPS={' '.join(ops)}", f"MAP={linked}"], check=True, stdout=subprocess.DEVNULL)
    return out / f"{name}.elf", linked


def flash(linked: Path) -> int:
    """Bytes of code and constants but for those of the rim."""
    text = linked.read_text().partition("Linker script and memory map")[2]
    text = re.sub(r"\n (\.\S+)\n +0x", r"\n \1 0x", text)  # a long name has a line of its own
    kept: Counter[str] = Counter()
    for line in text.splitlines():
        if (found := PLACED.match(line)) and found[1].startswith((".text", ".rodata", ".data", ".sdata")):
            kept[found[3]] += int(found[2], 16)
    return sum(size for name, size in kept.items() if not RIM.search(name))


def measured(board: str, elf: Path, path: Path, here: Net) -> Measured:
    """One run, whose outputs are this machine's. On a busy machine the line to a simulator may break: then again."""
    for attempt in range(ATTEMPTS):
        line = Simulator(board, elf)
        try:
            return measure(Device(line), here, path.read_bytes(), cases(here), runs=1)
        except MismatchError:
            raise
        except DeviceError:
            if attempt == ATTEMPTS - 1:
                raise
        finally:
            line.close()
    raise AssertionError


def rows(zoo: Path, nets: Sequence[str], settings: Sequence[str], boards: Sequence[str], reuse: bool) -> Iterator[Row]:
    out = ROOT / "build" / "mcu"
    out.mkdir(parents=True, exist_ok=True)
    for net in nets:
        for setting in settings:
            path = converted(zoo, net, setting, out, reuse=reuse)
            here = load(path)
            for board in boards:
                elf, linked = firmware(board, here, out)
                found = measured(board, elf, path, here)
                peer = PEERS[board][net][setting == "16"]
                wide = 2 if setting == "16" else 1
                yield Row(
                    net=net,
                    bits=setting,
                    board=board,
                    instructions=found.counter.count(found.least),
                    peer_instructions=None if peer is None else round(peer * 1e6),
                    macs=sum(op.macs for op in here.model.ops),
                    arena_bytes=found.loaded.arena_bytes,
                    peer_arena_bytes=TFLM_ARENA[net],
                    lower_bound=LOWER_BOUND[net] * wide,
                    flash_bytes=flash(linked),
                    model_bytes=path.stat().st_size,
                )


COLUMNS = ("net", "bits", "CPU", ">M insn", ">CMSIS-NN", ">ratio", ">insn/MAC", ">arena", ">bound", ">flash", ">model")


def cells(row: Row) -> list[str]:
    peer = row.peer_instructions
    return [
        row.net,
        row.bits,
        BOARDS[row.board],
        f"{row.instructions / 1e6:.3f}",
        f"{peer / 1e6:.3f}" if peer else show.NOTHING,
        f"{row.instructions / peer:.2f}" if peer else show.NOTHING,
        f"{row.instructions / row.macs:.2f}",
        str(row.arena_bytes),
        str(row.lower_bound),
        str(row.flash_bytes),
        str(row.model_bytes),
    ]


def _arguments() -> argparse.Namespace:
    default = os.environ.get("NMP_ZOO") or ROOT.parent / "shared" / "zoo"
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--zoo", type=Path, default=Path(default), help="the folder with zoo.json")
    parser.add_argument("--nets", nargs="+", choices=list(NETS), default=list(NETS))
    parser.add_argument("--bits", nargs="+", choices=["strict", "8", "16"], default=["strict", "8", "16"])
    parser.add_argument("--boards", nargs="+", choices=list(BOARDS), default=list(BOARDS))
    parser.add_argument("--reuse", action="store_true", help="take the converted nets of the run before")
    parser.add_argument("--json", action="store_true", help="the rows as JSON")
    return parser.parse_args()


def main() -> int:
    args = _arguments()
    if not (args.zoo / "zoo.json").is_file():
        print(f"no zoo.json in {args.zoo}: set NMP_ZOO to the folder of models and images", file=sys.stderr)
        return 1
    found = []
    for row in rows(args.zoo, args.nets, args.bits, args.boards, args.reuse):
        found.append(row)
        show.say(" ".join(cells(row)))
    if args.json:
        show.as_json({"rows": [asdict(row) for row in found]})
    else:
        show.table(COLUMNS, [cells(row) for row in found])
    return 0


if __name__ == "__main__":
    sys.exit(main())
