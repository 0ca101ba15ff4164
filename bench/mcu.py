"""The MLPerf Tiny nets on simulated microcontrollers, next to what CMSIS-NN and TFLM need for the same nets.

Measured is what `nmpconv bundle` writes for the net (mcu_run.py tells what is counted), and its outputs are compared
with this machine's. The nets are converted from the zoo ($NMP_ZOO, default ../shared/zoo) at three settings: strict
(int8 throughout, as CMSIS-NN's figures are), 8 (the default widths) and 16; max-ram is IC, strict, in bands of rows
that halve its arena.

The last column names the targets that there are for a row: instructions (insn), cycles, arena, flash; MISSED where one
is not met. The peers' figures: CMSIS-NN 99f736a and TFLM 90b983c, gcc 12 -O3, November 2026; int16 is CMSIS-NN's 16x8,
ours 16x16. ST's cycles are those that it published for X-CUBE-AI 9 on a Cortex-M4; ours are an estimate
(mcu_cycles.py).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from mcu_run import measured
from zoo import SETTINGS, split

from nmpconv.cli import console
from nmpconv.conversion.pipeline import Options, convert
from nmpconv.runtime.interpreter import load
from nmpconv.runtime.on_device import cases

ROOT = Path(__file__).resolve().parent.parent
NETS = {
    "AD": "mlperf_ad_autoencoder",
    "IC": "mlperf_ic_resnet8_nhwc",
    "KWS": "mlperf_kws_dscnn",
    "VWW": "mlperf_vww_mobilenet025_nchw",
}
BOARDS = {
    "mps2-an385-m0plus": "M0+",
    "mps2-an385": "M3",
    "mps2-an386": "M4",
    "mps2-an500": "M7",
    "mps2-an505": "M33",
    "mps3-an547": "M55",
    "rv32": "rv32",
}
WIDTHS = ("strict", "8", "16")
MAX_RAM = "max-ram"  # a setting of IC
MAX_RAM_BYTES = 24000

# Million instructions by CPU and net, as (int8, int16); TFLM's arena; the lower bound of live int8 activations.
CMSIS_M4 = {"AD": (0.579, 0.74), "IC": (29.85, 32.5), "KWS": (7.70, 10.2), "VWW": (24.10, 32.0)}
CMSIS_M55 = {"AD": (0.062, 0.29), "IC": (4.57, 6.4), "KWS": (1.75, 3.1), "VWW": (6.25, 10.7)}
CMSIS_C = {"AD": (1.47, None), "IC": (65.3, None), "KWS": (16.2, None), "VWW": (48.6, None)}
CMSIS_M3 = {"AD": (0.952, None), "IC": (41.75, None), "KWS": (10.54, None), "VWW": (32.08, None)}
NOBODY = dict.fromkeys(NETS, (None, None))
PEERS = {
    "M0+": NOBODY,
    "M3": CMSIS_M3,
    "M4": CMSIS_M4,
    "M7": CMSIS_M4,
    "M33": CMSIS_M4,
    "M55": CMSIS_M55,
    "rv32": CMSIS_C,
}
ST_M4_CYCLES = {"AD": 0.63, "IC": 19.8, "KWS": 5.18, "VWW": 10.7}  # million
TFLM_ARENA = {"AD": 2580, "IC": 54996, "KWS": 22820, "VWW": 100708}
TFLM_FLASH = {  # KB
    "M4": {"AD": 28.9, "IC": 51.8, "KWS": 54.1, "VWW": 54.1},
    "M55": {"AD": 20.9, "IC": 42.1, "KWS": 45.4, "VWW": 45.4},
}
LOWER_BOUND = {"AD": 768, "IC": 49152, "KWS": 16000, "VWW": 55296}

# Ours: at most so many instructions a MAC on M4, int8 (VWW: millions); a share of CMSIS-NN's; bytes.
M4_PER_MAC = {"AD": 1.8, "IC": 1.55, "KWS": 1.9}
M4_MILLIONS = {"VWW": 10.5}
M55_SHARE = 0.9
ARENA_MORE = 1024
FLASH = 20480


@dataclass(frozen=True)
class Row:
    """Costs of one net on one CPU. bits: the setting. cycles: an estimate; None where there is no model of the CPU.
    peer_instructions is for int8 x int8 or int16 x int8.
    """

    net: str
    bits: str
    cpu: str
    instructions: int
    cycles: int | None
    peer_instructions: int | None
    macs: int
    stack_bytes: int
    stack_create_bytes: int
    arena_bytes: int
    peer_arena_bytes: int
    lower_bound: int
    flash_bytes: int
    peer_flash_bytes: int | None
    model_bytes: int

    @property
    def targets(self) -> dict[str, bool]:
        """Lists the targets of this row, and says whether it reaches them."""
        found = {}
        int8, peer = self.bits != "16", self.peer_instructions
        if self.bits == MAX_RAM:
            return {"arena": self.arena_bytes <= LOWER_BOUND[self.net] / 2 + ARENA_MORE}
        if self.cpu == "M4" and self.bits == "strict" and self.net in M4_PER_MAC:
            found["insn"] = self.instructions <= M4_PER_MAC[self.net] * self.macs
        elif self.cpu == "M4" and self.bits == "strict":
            found["insn"] = self.instructions <= M4_MILLIONS[self.net] * 1e6
        elif self.cpu == "M3" and self.bits == "strict" and peer:
            found["insn"] = self.instructions < peer
        elif self.cpu == "M55" and self.bits == "strict" and peer:
            found["insn"] = self.instructions < M55_SHARE * peer
        elif not int8 and peer:
            found["insn"] = self.instructions < peer
        if self.cpu == "M4" and self.bits == "strict" and self.cycles is not None:
            found["cycles"] = self.cycles <= ST_M4_CYCLES[self.net] * 1e6
        if self.bits != "8":
            found["arena"] = self.arena_bytes <= self.lower_bound + ARENA_MORE
        if self.cpu == "M4" and self.bits == "strict":
            found["flash"] = self.flash_bytes < FLASH
        return found


def converted(
    zoo: Path, net: str, name: str, setting: str, folder: Path, *, reuse: bool, zero_points: bool = True
) -> Path:
    """The net's file in ``folder``, converted unless it is there and may be reused. name: in the zoo."""
    path = folder / f"{net}-{setting}{'' if zero_points else '-plain'}.nmp"
    if not (reuse and path.is_file()):
        about = json.loads((zoo / "zoo.json").read_text())[name]
        with tempfile.TemporaryDirectory() as data:
            source = split(zoo, name, about, Path(data))
            options = Options(
                **SETTINGS["strict" if setting == MAX_RAM else setting],
                preprocess=source.preprocess,
                zero_points=zero_points,
                max_ram=MAX_RAM_BYTES if setting == MAX_RAM else None,
            )
            made = convert(
                zoo / "models" / f"{name}.onnx", {"": source.calib}, options, lambda stage, done, total: None
            )
        path.write_bytes(made.data)
    return path


def rows(
    zoo: Path, nets: Sequence[str], settings: Sequence[str], boards: Sequence[str], *, reuse: bool, zero_points: bool
) -> Iterator[Row]:
    out = ROOT / "build" / "mcu"
    out.mkdir(parents=True, exist_ok=True)
    for net, setting in ((net, setting) for net in nets for setting in settings if setting != MAX_RAM or net == "IC"):
        path = converted(zoo, net, NETS[net], setting, out, reuse=reuse, zero_points=zero_points)
        macs = sum(op.macs for op in load(path).model.ops)
        for board in boards:
            cpu = BOARDS[board]
            found = measured(board, path, out, cpu)
            peer, peer_flash = PEERS[cpu][net][setting == "16"], TFLM_FLASH.get(cpu, {}).get(net)
            yield Row(
                net=net,
                bits=setting,
                cpu=cpu,
                instructions=found.instructions,
                cycles=found.cycles,
                peer_instructions=None if peer is None else round(peer * 1e6),
                macs=macs,
                stack_bytes=found.stack,
                stack_create_bytes=found.stack_create,
                arena_bytes=found.arena,
                peer_arena_bytes=TFLM_ARENA[net],
                lower_bound=LOWER_BOUND[net] * (2 if setting == "16" else 1),
                flash_bytes=found.flash,
                peer_flash_bytes=None if peer_flash is None else round(peer_flash * 1000),
                model_bytes=path.stat().st_size,
            )


COLUMNS = (
    *("net", "bits", "CPU", ">M insn", ">CMSIS-NN", ">ratio", ">insn/MAC", ">M cycles", ">stack", ">create"),
    *(">arena", ">bound", ">TFLM", ">flash", ">TFLM flash", ">model", "targets"),
)


def cells(row: Row) -> list[str]:
    peer = row.peer_instructions
    return [
        row.net,
        row.bits,
        row.cpu,
        f"{row.instructions / 1e6:.4f}",
        f"{peer / 1e6:.3f}" if peer else console.NOTHING,
        f"{row.instructions / peer:.2f}" if peer else console.NOTHING,
        f"{row.instructions / row.macs:.2f}",
        console.NOTHING if row.cycles is None else f"{row.cycles / 1e6:.4f}",
        str(row.stack_bytes),
        str(row.stack_create_bytes),
        str(row.arena_bytes),
        str(row.lower_bound),
        str(row.peer_arena_bytes),
        str(row.flash_bytes),
        str(row.peer_flash_bytes or console.NOTHING),
        str(row.model_bytes),
        " ".join(name if met else f"{name} MISSED" for name, met in row.targets.items()) or console.NOTHING,
    ]


def parser_of(what: str | None, nets: Sequence[str], settings: Sequence[str]) -> argparse.ArgumentParser:
    """Flags of a benchmark of nets of the zoo, each converted at some settings. what: its docstring."""
    default = os.environ.get("NMP_ZOO") or ROOT.parent / "shared" / "zoo"
    parser = argparse.ArgumentParser(description=(what or "").splitlines()[0])
    parser.add_argument("--zoo", type=zoo_folder, default=str(default), help="the folder with zoo.json")
    parser.add_argument("--nets", nargs="+", choices=nets, default=nets)
    parser.add_argument("--bits", nargs="+", choices=settings, default=settings)
    parser.add_argument("--reuse", action="store_true", help="take the converted nets of the run before")
    return parser


def zoo_folder(path: str) -> Path:
    if not (Path(path) / "zoo.json").is_file():
        raise argparse.ArgumentTypeError(f"no zoo.json in {path}: set NMP_ZOO to the folder of models and images")
    return Path(path)


def main() -> int:
    parser = parser_of(__doc__, list(NETS), [*WIDTHS, MAX_RAM])
    parser.add_argument("--boards", nargs="+", choices=list(BOARDS), default=list(BOARDS))
    parser.add_argument("--no-zero-points", action="store_true", help="convert so, to see what they cost")
    parser.add_argument("--json", action="store_true", help="the rows as JSON")
    args = parser.parse_args()
    found = []
    for row in rows(args.zoo, args.nets, args.bits, args.boards, reuse=args.reuse, zero_points=not args.no_zero_points):
        found.append(row)
        console.say(" ".join(cells(row)))
    if args.json:
        console.as_json({"rows": [{**asdict(row), "targets": row.targets} for row in found]})
    else:
        console.table(COLUMNS, [cells(row) for row in found])
        banded(found)
    return 0


def outputs(path: Path) -> list[bytes]:
    here = load(path)
    return [y.tobytes() for y in here.run(*cases(here)[0])]


def banded(found: Sequence[Row]) -> None:
    """Measures the cost of half the arena; the outputs stay."""
    folder = ROOT / "build" / "mcu"
    for row in found:
        for plain in found:
            if row.bits == MAX_RAM and (plain.net, plain.cpu, plain.bits) == (row.net, row.cpu, "strict"):
                if outputs(folder / f"{row.net}-{MAX_RAM}.nmp") != outputs(folder / f"{row.net}-strict.nmp"):
                    raise RuntimeError(f"{row.net}: other outputs with --max-ram")
                more = (row.instructions / plain.instructions - 1) * 100
                console.say(
                    f"{row.net} on {row.cpu} with --max-ram {MAX_RAM_BYTES}: "
                    f"arena {row.arena_bytes} instead of {plain.arena_bytes} bytes, "
                    f"{row.instructions} instead of {plain.instructions} instructions ({more:+.1f} %), same outputs"
                )


if __name__ == "__main__":
    sys.exit(main())
