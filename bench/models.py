"""Exports published architectures, converts each at 16 and 8 bits, and measures it on samples not calibrated with.

models.txt lists them; models_export.py builds them with seeded weights, in an environment that has PyTorch
(--torch-python). Each conversion is a process of its own with limits of time and memory. A result is a line of JSON in
FOLDER/results.jsonl; what has one is not done again, unless --again asks for it.

  accepted   converted whole
  cut        refused, but what the refusal's hint left (--outputs) was converted
  refused    with a reason that nmpconv gives
  crashed    an error of nmpconv, or a limit was reached
  no export  the exporter failed
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import multiprocessing
import re
import resource
import select
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from textwrap import shorten

from models_list import Row, read

from nmpconv.conversion.pipeline import Options, convert, plan
from nmpconv.errors import ExitCode, NmpError, UnsupportedModel
from nmpconv.evaluation.accuracy import evaluate
from nmpconv.runtime.interpreter import load

BENCH = Path(__file__).parent
EXPORTERS = ("old", "new")
STEPS = ("16", "8")
EXPORT = "export"
IMPORT = "import"  # the step that takes no samples: convert --dry-run
ORDER = (EXPORT, IMPORT, *STEPS)
ENOUGH_DB = 45  # at 16 bits
ONE_RECIPE = {"equalize": "none", "rounding": "nearest"}  # the one that takes the least time
GIB = 1 << 30
REASON = 300  # characters of a reason that are kept


@dataclass(frozen=True)
class Result:
    """Result of one step of one model (of ORDER; EXPORT only where it failed).

    sqnr: dB by output, at the input of a final Softmax. equal: percent of the values that are the float model's, by
    output of integers, such as classes. costliest: the layer at which the cumulative SQNR falls most. seconds: of the
    processor, in all threads; by the clock where a limit was reached. mib: the most memory that the process had.
    recipe: what weights were rounded by.
    """

    model: str
    exporter: str
    step: str
    outcome: str
    reason: str = ""
    outputs: list[str] = field(default_factory=list)
    sqnr: dict[str, float] = field(default_factory=dict)
    equal: dict[str, float] = field(default_factory=dict)
    costliest: str = ""
    nodes: int = 0
    seconds: float = 0.0
    mib: int = 0
    recipe: str = ""

    @property
    def worst(self) -> float | None:
        return min(self.sqnr.values(), default=None)


@dataclass(frozen=True)
class Files:
    """keep: what the model is converted to is written beside it, NAME_EXPORTER.STEP.nmp."""

    model: Path
    calib: Path
    test: Path
    keep: bool = False


@dataclass(frozen=True)
class Limits:
    """Settings of one conversion. one_recipe: instead of trying some against each other."""

    seconds: float
    gib: float
    one_recipe: bool = False


def attempt(files: Files, step: str, blank: Result, one_recipe: bool, outputs: tuple[str, ...] = ()) -> Result:
    """One conversion; NmpError where it is refused."""
    blank = replace(blank, outcome="cut" if outputs else "accepted", outputs=list(outputs))
    if step == IMPORT:
        return replace(blank, nodes=plan(files.model, Options(outputs=outputs)).report.total_nodes)
    options = Options(bits=step, outputs=outputs, **(ONE_RECIPE if one_recipe else {}))
    done = convert(files.model, {"": files.calib}, options, lambda *_: None)
    if files.keep:
        files.model.with_suffix(f".{step}.nmp").write_bytes(done.data)
    evaluation = evaluate(load(done.data), {"": files.test}, reference=files.model)
    worst = done.report.steepest
    costliest = "" if worst is None else f"{worst.name} ({worst.op}, {worst.fall:.1f} dB)"
    recipe = str(done.report.recipe)
    blank = replace(blank, sqnr=dict(evaluation.sqnr), equal=dict(evaluation.equal))
    return replace(blank, costliest=costliest, nodes=done.report.total_nodes, recipe=recipe)


def judge(files: Files, step: str, blank: Result, one_recipe: bool = False) -> Result:
    """Every outcome but the limits."""
    try:
        return attempt(files, step, blank, one_recipe)
    except Exception as error:
        first = _failure(error, blank)
        hint = re.search(r"--outputs (\S+)", error.hint) if isinstance(error, NmpError) else None
    if hint is None:
        return first
    try:
        return replace(attempt(files, step, blank, one_recipe, tuple(hint[1].split(","))), reason=first.reason)
    except Exception as error:
        second = _failure(error, blank)
        return replace(second, reason=f"{second.reason}, with the --outputs of the hint; without: {first.reason}")


def _failure(error: Exception, blank: Result) -> Result:
    if isinstance(error, UnsupportedModel):
        causes = dict.fromkeys(f"{op}: {why}" for _, op, why, _ in error.rows)
        return replace(blank, outcome="refused", reason=shorten("; ".join(causes), REASON))
    short_of_memory = re.search("memory|bad.?alloc", str(error), re.IGNORECASE)  # so onnxruntime may refuse a model
    if isinstance(error, NmpError) and error.code != ExitCode.INTERNAL and not short_of_memory:
        return replace(blank, outcome="refused", reason=shorten(str(error), REASON))
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}"
    return replace(blank, outcome="crashed", reason=shorten(f"{where} {error}", REASON))


def _work(sender: Connection, files: Files, step: str, blank: Result, limits: Limits) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (int(limits.gib * GIB),) * 2)
    start = time.process_time()
    result = judge(files, step, blank, limits.one_recipe)
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    sender.send(replace(result, seconds=round(time.process_time() - start, 1), mib=mib))


def measure(files: Files, step: str, blank: Result, limits: Limits) -> Result:
    """`judge` in a process of its own."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["nmpconv.conversion.pipeline", "nmpconv.evaluation.accuracy"])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(sender, files, step, blank, limits))
    process.start()
    sender.close()
    try:
        if not receiver.poll(limits.seconds):
            process.kill()
            return replace(blank, outcome="crashed", reason="the time limit", seconds=limits.seconds)
        return receiver.recv()
    except EOFError:
        process.join()
        return replace(blank, outcome="crashed", reason=f"exit code {process.exitcode}")
    finally:
        process.join()
        receiver.close()


class Exports:
    """The ONNX files of a folder; those that are missing are exported by a process that stays for the next ones."""

    def __init__(self, python: Path, folder: Path, limits: Limits, keep: bool = False) -> None:
        self._python, self._folder, self._limits, self._keep = python, folder, limits, keep
        self._process: subprocess.Popen[str] | None = None

    def files(self, row: Row, exporter: str) -> Files | str:
        """The files, or why there are none."""
        paths = (f"{row.name}_{exporter}.onnx", f"{row.name}.calib.npy", f"{row.name}.test.npy")
        files = Files(*(self._folder / path for path in paths), keep=self._keep)
        if not files.model.exists():
            error = self._export(row, exporter)
            if error is not None:
                return error
        return files

    def _export(self, row: Row, exporter: str) -> str | None:
        if self._process is None or self._process.poll() is not None:
            command = [self._python, BENCH / "models_export.py", self._folder, str(self._limits.gib)]
            with (self._folder / "export.log").open("a") as log:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, bufsize=1
                )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{exporter} {row.name}\n")
        ready, _, _ = select.select([self._process.stdout], [], [], self._limits.seconds)
        line = self._process.stdout.readline() if ready else ""
        if line:
            return json.loads(line)["error"]
        if not ready:
            self._process.kill()
        code = self._process.wait()
        return f"the exporter's process ended with {code}" if ready else "the time limit"

    def close(self) -> None:
        if self._process is not None:
            self._process.communicate()


def saved(path: Path) -> list[Result]:
    """By model, exporter and step. A step that was done again takes the later ones of the last time away."""
    lines = path.read_text().splitlines() if path.exists() else []
    models: dict[tuple[str, str], dict[str, Result]] = {}
    for result in (Result(**json.loads(line)) for line in lines):
        steps = models.setdefault((result.model, result.exporter), {})
        for step in ORDER[ORDER.index(result.step) :]:
            steps.pop(step, None)
        steps[result.step] = result
    return [steps[step] for _, steps in sorted(models.items()) for step in ORDER if step in steps]


def run(row: Row, exporter: str, steps: Sequence[str], exports: Exports, limits: Limits) -> Iterator[Result]:
    """Results of the steps, up to the first that fails."""
    blank = Result(row.name, exporter, EXPORT, "")
    files = exports.files(row, exporter)
    if isinstance(files, str):
        yield replace(blank, outcome="no export", reason=shorten(files, REASON))
        return
    for step in steps:
        result = measure(files, step, replace(blank, step=step), limits)
        yield result
        if result.outcome not in ("accepted", "cut"):
            return


def table(results: Sequence[Result]) -> str:
    """Markdown: a line for each model and exporter, then counts."""
    models: dict[tuple[str, str], dict[str, Result]] = {}
    for r in results:
        models.setdefault((r.model, r.exporter), {})[r.step] = r
    lines = ["| model | exporter | outcome | dB, 16 bits | dB, 8 bits | CPU s | MiB |", "|---|---|---|---|---|---|---|"]
    outcomes: dict[str, Counter[str]] = {}
    low = 0
    for (model, exporter), steps in models.items():
        last = list(steps.values())[-1]
        wide = steps["16"].worst if "16" in steps else None
        text = f"{last.outcome}: {last.reason}" if last.reason else last.outcome
        if wide is not None and not wide >= ENOUGH_DB:
            low += 1
            text += f"; most is lost at {steps['16'].costliest}"
        numbers = [_db(steps.get(step)) for step in STEPS]
        cost = (f"{sum(r.seconds for r in steps.values()):.0f}", str(max(r.mib for r in steps.values())))
        lines.append("| " + " | ".join([model, exporter, text.replace("|", "\\|"), *numbers, *cost]) + " |")
        outcomes.setdefault(exporter, Counter())[last.outcome] += 1
    counts = [f"{e}: {n.total()} models, " + ", ".join(f"{n[o]} {o}" for o in sorted(n)) for e, n in outcomes.items()]
    return "\n".join([*lines, "", *counts, f"{low} have less than {ENOUGH_DB} dB at 16 bits"])


def _db(result: Result | None) -> str:
    """Agreement in percent, in place of dB, of a model whose outputs are all integers."""
    if result is not None and result.worst is not None:
        return f"{result.worst:.1f}"
    return f"{min(result.equal.values()):.1f} %" if result is not None and result.equal else "-"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("patterns", nargs="*", help="of names such as timm.*vit*; default: all")
    parser.add_argument("--exporters", nargs="+", choices=EXPORTERS, default=EXPORTERS)
    parser.add_argument("--steps", nargs="+", choices=(IMPORT, *STEPS), default=STEPS)
    parser.add_argument("--only-import", action="store_const", const=(IMPORT,), dest="steps", help="as --steps import")
    parser.add_argument("--again", nargs="*", help="do those with these outcomes again, without any: all")
    parser.add_argument("--limit", type=int, help="at most so many models for each exporter")
    parser.add_argument("--seconds", type=float, default=300, help="for one export or conversion")
    parser.add_argument("--gib", type=float, default=6, help="of memory for one export or conversion")
    parser.add_argument("--one-recipe", action="store_true", help="as convert --equalize none --rounding nearest")
    parser.add_argument("--keep", action="store_true", help="keep what models are converted to, for models_cost.py")
    parser.add_argument("--folder", type=Path, default=BENCH.parent / "build" / "models")
    parser.add_argument("--torch-python", type=Path, default=BENCH.parent / "build" / "models-venv" / "bin" / "python")
    parser.add_argument("--markdown", type=Path, help="write the table of all results to this file")
    return parser.parse_args()


def main() -> int:
    args = _arguments()
    args.folder.mkdir(parents=True, exist_ok=True)
    rows = [r for r in read() if not args.patterns or any(fnmatch.fnmatch(r.name, p) for p in args.patterns)]
    log = args.folder / "results.jsonl"
    done = {
        (r.model, r.exporter, step)
        for r in saved(log)
        if args.again is None or (args.again and r.outcome not in args.again)
        for step in ((r.step,) if r.outcome in ("accepted", "cut") else (IMPORT, *STEPS))
    }
    limits = Limits(args.seconds, args.gib, args.one_recipe)
    exports = Exports(args.torch_python, args.folder, limits, args.keep)
    for exporter in args.exporters:
        for row in rows[: args.limit]:
            steps = [step for step in args.steps if (row.name, exporter, step) not in done]
            for result in run(row, exporter, steps, exports, limits) if steps else ():
                with log.open("a") as file:
                    file.write(json.dumps(asdict(result)) + "\n")
                print(
                    f"{row.name} {exporter} {result.step}: {result.outcome} {_db(result)} {result.reason}", flush=True
                )
    exports.close()
    text = table(saved(log))
    print("\n" + text)
    if args.markdown:
        args.markdown.write_text(text + "\n")
    return int(any(r.outcome == "crashed" for r in saved(log)))


if __name__ == "__main__":
    sys.exit(main())
