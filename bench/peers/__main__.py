"""Times other engines and ours on the same models, in interleaved rounds: `make bench`.

Every engine runs each model in a process of its own, with as many threads as the row says. int8: all of it int8, ours
converted with --strict, and beside it the default conversion; int16: ours, against the others at float32. An engine
that is not installed, or cannot run a model, is named and left out. What is prepared lies in --folder and is used
again; ours is converted anew where the converter has changed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from itertools import chain
from pathlib import Path
from typing import IO, Any

from peers import chart, models, table
from peers.engines import ours
from peers.job import MODULES, Job
from peers.rounds import DEFAULT, OURS, Footprint, Row, calmest, correlation, interleave
from peers.spinners import awake

BENCH = Path(__file__).resolve().parents[1]
RUNS = (("int8", 1), ("int8", 2), ("int16", 1))  # bits and threads
LEAST_CORRELATION = 0.9  # of outputs with float32's: below it, an engine computes something else
LOADS = 5  # fresh processes that load a model, of which the best counts
REST = 0.003  # seconds between turns of one thread
REST_OF_THREADS = 0.06  # of several: those of ONNX Runtime spin for 45 ms after their work, and take others' time


class Failed(Exception):
    """Names the reason for which an engine is left out of a row."""


class Worker:
    """A process that runs one engine with one model."""

    def __init__(self, python: str, job: Job, log: IO[str]) -> None:
        pipe = subprocess.PIPE
        command, environment = [python, "-m", "peers.worker"], _environment(job.threads)
        try:
            self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, text=True, env=environment)
        except OSError as error:
            raise Failed(f"{python} cannot be started ({error.strerror}): was its environment installed?") from error
        self._send(job.to_text())
        self.about: dict[str, Any] = self._receive()
        if "error" in self.about:
            raise Failed(str(self.about["error"]))

    def batch(self, calls: int) -> tuple[float, float]:
        self._send(str(calls))
        wall, cpu = self._receive()
        return float(wall), float(cpu)

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def _send(self, line: str) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failed(f"its process ended with status {self.process.wait()}") from None

    def _receive(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise Failed(f"its process ended with status {self.process.wait()}")
        return json.loads(line)


def _environment(threads: int) -> dict[str, str]:
    """For this process's Python and another: both find the benchmark's modules; OpenMP has as many threads."""
    path = [str(BENCH), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path)), "OMP_NUM_THREADS": str(threads)}


@contextmanager
def _worker(python: str, job: Job, log: IO[str]) -> Iterator[Worker]:
    worker = Worker(python, job, log)
    try:
        yield worker
    finally:
        worker.stop()


class Bench:
    def __init__(self, args: argparse.Namespace, log: IO[str]) -> None:
        self.args = args
        self.log = log
        self.versions: dict[str, str] = {}
        self._float: dict[str, list[list[float]]] = {}  # outputs by model

    def row(self, model: models.Model, bits: str, threads: int) -> Row:
        """One row: all engines loaded, checked, and timed in turns."""
        missing, correlations, kernels = {}, {}, {}
        with ExitStack() as stack, awake() if threads > 1 else nullcontext():
            workers = {}
            for name in self.args.engines:
                job = self._job(model, name, bits, threads)
                if job is None:
                    continue
                print(f"\r\x1b[K{model.name} {bits} {threads}t: {name}", end="", file=sys.stderr, flush=True)
                try:
                    worker = stack.enter_context(_worker(self._python(name), job, self.log))
                    correlations[name] = self._check(model, worker)
                    kernels[name] = self._kernels(worker, job)
                except Failed as error:
                    missing[name] = str(error)
                else:
                    workers[name] = worker
                    self.versions[name] = str(worker.about["version"])
            batches = {name: worker.batch for name, worker in workers.items()}
            rest = REST_OF_THREADS if threads > 1 else REST
            times = calmest(lambda: interleave(batches, self.args.rounds, self.args.seconds, lambda: time.sleep(rest)))
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        return Row(model.name, bits, threads, model.macs, times, missing, correlations, kernels)

    def footprint(self, row: Row, model: models.Model) -> Footprint:
        """Measures loading by each engine of a row: the least of several fresh processes."""
        engines: dict[str, tuple[float, int]] = {}
        for name in row.times:
            job = self._job(model, name, row.bits, row.threads)
            assert job is not None
            command = [self._python(name), "-m", "peers.footprint"]
            loads = []
            for _ in range(LOADS):
                done = subprocess.run(
                    command,
                    input=job.to_text() + "\n",
                    stdout=subprocess.PIPE,
                    stderr=self.log,
                    text=True,
                    env=_environment(row.threads),
                    check=False,
                )
                if done.returncode == 0:
                    loads.append(json.loads(done.stdout))
            if loads:
                engines[name] = min(load["seconds"] for load in loads), min(int(load["peak"]) for load in loads)
        return Footprint(row.model, engines)

    def _job(self, model: models.Model, name: str, bits: str, threads: int) -> Job | None:
        """None: this engine has nothing to do with such a row."""
        if name == DEFAULT:
            if bits != "int8":
                return None
            bits = "default"
        elif name != OURS and bits == "int16":
            bits = "float32"
        folder = model.path.parent / name
        return Job(name, str(model.path), str(model.samples), str(folder), bits, threads, model.seeded)

    def kinds(self, model: models.Model) -> list[tuple[str, float, int]]:
        """Times of our kinds of ops, of a row that was measured."""
        job = self._job(model, OURS, "int8", 1)
        assert job is not None
        return ours.kinds(job)

    def _python(self, name: str) -> str:
        return sys.executable if name in (OURS, DEFAULT) else str(self.args.peers_python)

    def _reference(self, model: models.Model) -> list[list[float]]:
        if model.name not in self._float:
            job = Job(
                "onnxruntime", str(model.path), str(model.samples), str(model.path.parent / "float"), "float32", 1
            )
            with _worker(sys.executable, job, self.log) as worker:
                self._float[model.name] = worker.about["outputs"]
        return self._float[model.name]

    def _check(self, model: models.Model, worker: Worker) -> float:
        """SQNR of the outputs for all samples against float32's."""
        correlated = correlation(list(chain(*worker.about["outputs"])), list(chain(*self._reference(model))))
        if not correlated >= LEAST_CORRELATION:
            raise Failed(f"outputs correlate with float32's by {correlated:.2f} only, {LEAST_CORRELATION} is wanted")
        return correlated

    def _kernels(self, worker: Worker, job: Job) -> tuple[int, int]:
        """As the engine says. One of an int8 row that computes most layers in floats is none."""
        narrow, layers = worker.about["kernels"]
        if layers == 0 or (job.bits == "int8" and 2 * narrow < layers):
            raise Failed(f"{narrow} of {layers} layers run on int8 kernels")
        return narrow, layers


def _peak(folder: Path) -> float | None:
    """Measured MAC/s of one core; None where the CPU or the compiler has no such instruction."""
    program = folder / "vnni_peak"
    source = BENCH / "peers" / "vnni_peak.c"
    compiler = os.environ.get("CC", "cc")
    try:
        subprocess.run([compiler, "-O2", str(source), "-o", str(program)], check=True, capture_output=True)
        return float(subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout)
    except (OSError, subprocess.CalledProcessError):
        return None


def _cpu() -> str:
    """The model of the CPU and what of its instructions int8 products can use."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    fields = {key.strip(): value.strip() for key, value in fields.items()}
    flags = fields.get("flags", "").split()
    useful = [flag for flag in ("avx2", "avx_vnni", "avx512_vnni", "amx_int8") if flag in flags]
    family = f"family {fields.get('cpu family', '?')} model {fields.get('model', '?')}"
    return f"{fields.get('model name', platform.machine())} ({family}; {', '.join(useful)}), {os.cpu_count()} cores"


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    root = BENCH.parent
    parser = argparse.ArgumentParser(prog="make bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--zoo", type=Path, default=os.environ.get("NMP_ZOO"), help="the folder with zoo.json")
    parser.add_argument("--folder", type=Path, default=root / "build" / "bench", help="what is prepared, and results")
    parser.add_argument("--peers-python", type=Path, default=root / "build" / "bench-venv" / "bin" / "python")
    parser.add_argument("--models-python", type=Path, default=root / "build" / "models-venv" / "bin" / "python")
    parser.add_argument("--only", nargs="+", default=models.NAMES, choices=models.NAMES, metavar="MODEL")
    parser.add_argument("--engines", nargs="+", default=list(MODULES), choices=list(MODULES), metavar="ENGINE")
    parser.add_argument("--rows", nargs="+", default=[f"{b}/{t}" for b, t in RUNS], help="such as int8/2: bits/threads")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=0.01, help="about how long one turn of an engine takes")
    parser.add_argument("--json", type=Path, help="default: results.json in --folder")
    return parser.parse_args(argv)


def main() -> int:
    args = arguments()
    args.folder.mkdir(parents=True, exist_ok=True)
    peak = _peak(args.folder)
    with (args.folder / "log.txt").open("w") as log:
        bench, rows, footprints = Bench(args, log), [], []
        kinds: dict[str, list[tuple[str, float, int]]] = {}
        for name in args.only:
            folder = args.folder / name.replace(" ", "-").lower()
            if name in models.ZOO and (args.zoo is None or not (args.zoo / "zoo.json").is_file()):
                print(f"{name} is left out: no zoo.json in {args.zoo}; set NMP_ZOO", file=sys.stderr)
                continue
            try:
                model = models.prepare(name, args.zoo, folder, str(args.models_python))
            except models.NotExported as error:
                print(f"{name} is left out: {error}", file=sys.stderr)
                continue
            for bits, threads in (row.split("/") for row in args.rows):
                rows.append(bench.row(model, bits, int(threads)))
                print(_line(rows[-1]), flush=True)
                if (bits, threads) == ("int8", "1"):
                    footprints.append(bench.footprint(rows[-1], model))
                    if OURS in rows[-1].times:
                        kinds[name] = bench.kinds(model)
    return _report(args, rows, footprints, kinds, bench.versions, peak)


def _line(row: Row) -> str:
    times = "  ".join(f"{name} {times.best * 1e3:.4g}/{times.median * 1e3:.4g}" for name, times in row.times.items())
    lost = "".join(f"\n  {name} is left out: {why}" for name, why in row.missing.items())
    ratio = "-" if row.ratio is None else f"{row.ratio:.2f}"
    disturbed = f"  disturbed: {', '.join(row.disturbed)}" if row.disturbed else ""
    return f"{row.model} {row.bits} {row.threads}t  x{ratio}  best/median ms: {times}{disturbed}{lost}"


def _report(
    args: argparse.Namespace,
    rows: list[Row],
    footprints: list[Footprint],
    kinds: Mapping[str, Sequence[tuple[str, float, int]]],
    versions: Mapping[str, str],
    peak: float | None,
) -> int:
    about = {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": _cpu(),
        "vnni_peak_macs_per_second": peak,
        "versions": dict(versions),
        "rounds": args.rounds,
        "loading": {footprint.model: footprint.engines for footprint in footprints},
        "kinds": dict(kinds),
        "empty_run_seconds": ours.empty_run(),
    }
    known = ", ".join(f"{table.TITLES[name]} {version}" for name, version in versions.items() if name != DEFAULT)
    peaks = "no VNNI" if peak is None else f"VNNI peak {peak / 1e9:.0f} GMAC/s a core"
    caption = f"{about['date']}, {about['cpu']}; {peaks}; {args.rounds} interleaved rounds. {known}."
    empty = f"- A graph of one Reshape takes ours {about['empty_run_seconds'] * 1e6:.2f} us, Python's call included."
    notes = [*(f"- {note}." for note in table.notes(rows)), empty, ""]
    tables = table.markdown(rows, peak), table.loading(footprints), table.kinds(kinds)
    text = "\n".join([caption, "", *tables, *notes])
    print("\n" + text)
    (args.folder / "results.md").write_text(text)
    (args.folder / "chart.svg").write_text(chart.measured(rows, f"Speed next to the best peer (1), {about['date']}"))
    (args.json or args.folder / "results.json").write_text(json.dumps(table.as_json(rows, about), indent=1) + "\n")
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
