"""Cost of each count of `nmpconv.runtime.costs` on each target: instructions that QEMU counts, and a fit to them.

Of the models of cost_cases.py each op is counted alone, at every choice of widths, on the board that stands for the
target, by interpreter/firmware/measure.c with the whole interpreter. Figures are never negative and least in squares of
relative errors: a count whose figure would be negative, or comes to nothing, is left out. nmpconv/runtime/costs.json is
the table. Of some ops alone the models with them are counted, and other rows of the table stay.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path

import cost_cases
import numpy as np
import onnx
from mcu_run import FIRMWARE, ROOT, counts_of_ops

from nmpconv.base.progress import silent
from nmpconv.base.workers import Here
from nmpconv.cli import console
from nmpconv.conversion.context import Context
from nmpconv.conversion.options import Options
from nmpconv.conversion.pipeline import planned_without_data
from nmpconv.device.simulator import COUNTED_ON
from nmpconv.file.reader import read
from nmpconv.file.writer import to_bytes
from nmpconv.ir import Graph
from nmpconv.ops import OPS
from nmpconv.ops.custom import Custom
from nmpconv.passes.memory import plan_memory
from nmpconv.runtime.costs import TABLE, Counted, counted
from nmpconv.runtime.targets import MICROCONTROLLERS

OUT = ROOT / "build" / "costs"
LEAST = 0.01  # of an op's instructions, which a count has to make in one of them
SMOOTH = 1e-5  # of a figure that nothing tells: it is as small as it can be
# Widths of x, weights and results: bits, widths, and a recipe's table with a key for all names of a pattern.
SETTINGS: Mapping[str, tuple[str, str, str]] = {
    "8/8/8": ("8", "strict", ""),
    "8/8/16": ("8", "strict", '[tensors]\n"y*[0-9]" = { bits = 16 }\n'),
    "16/8/8": ("8", "strict", '[tensors]\n"x*" = { bits = 16 }\n'),
    "16/8/16": ("a16w8", "default", ""),
    "8/16/8": ("8", "strict", '[ops]\n"*" = { weight_bits = 16 }\n'),
    "16/16/16": ("16", "default", ""),
}
WITHOUT_WEIGHTS = ("8/8/8", "8/8/16", "16/8/8", "16/16/16")

Rows = dict[str, list[tuple[Counted, int]]]
Table = dict[str, dict[str, float]]


def files(reuse: bool, kinds: Set[str]) -> Iterator[tuple[str, bytes]]:
    """The models at all widths; their integers mean nothing, which instructions do not depend on.

    kinds: the ops to count. Models without them are left out where that is known beforehand.
    """
    if reuse:
        yield from ((path.stem, path.read_bytes()) for path in sorted(OUT.glob("*.nmp")))
        return
    graphs = (
        *map(cost_cases.pairs, cost_cases.COMBINED),
        cost_cases.chosen(),
        cost_cases.sums(),
        cost_cases.added(),
    )
    for graph in graphs:  # each of one op, which no other model has
        if graph.name in kinds:
            yield _written(graph.name, plan_memory.run(graph))
    if not kinds <= {graph.name for graph in graphs}:
        yield from imported()


def imported() -> Iterator[tuple[str, bytes]]:
    """Models of ONNX operators."""
    for name, make in (("weighted", cost_cases.weighted), ("others", cost_cases.others)):
        with tempfile.TemporaryDirectory() as folder:
            path, recipe = Path(folder) / "ops.onnx", Path(folder) / "recipe.toml"
            onnx.save(make(0).model(), path)
            for key, (bits, widths, recipe_text) in SETTINGS.items():
                if name == "weighted" or key in WITHOUT_WEIGHTS:
                    recipe.write_text(recipe_text)
                    options = Options(bits=bits, widths=widths, recipe=recipe if recipe_text else None)
                    context = Context.of(path, options, silent, Here())
                    yield _written(f"{name}-{key.replace('/', '-')}", planned_without_data(context))


def _written(name: str, graph: Graph) -> tuple[str, bytes]:
    data = to_bytes(graph, {})
    (OUT / f"{name}.nmp").write_bytes(data)
    return name, data


def firmware(target: str) -> Path:
    """The whole interpreter with measure.c, for the board of a target."""
    board = COUNTED_ON[target]
    make = ["make", "-s", "-C", str(FIRMWARE), "MAIN=measure.c", f"BOARD={board}", f"OUT={OUT}"]
    subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
    return OUT / f"{board}.elf"


def counts(target: str, name: str, data: bytes, reuse: bool) -> list[int]:
    """Instructions of each op of a file."""
    cache_file = OUT / f"{name}-{target}.json"
    if reuse and cache_file.is_file():
        return list(json.loads(cache_file.read_text()))
    memory = OUT / f"{name}.memory"
    memory.write_bytes(len(data).to_bytes(4, "little") + bytes(12) + data + bytes(-len(data) % 16))
    figures = counts_of_ops(COUNTED_ON[target], OUT / f"{COUNTED_ON[target]}.elf", memory)
    cache_file.write_text(json.dumps(figures))
    return figures


def fitted(rows: Sequence[tuple[Counted, int]]) -> tuple[dict[str, float], np.ndarray]:
    """Figures of one kernel, by count; relative errors of its rows."""
    names = list(rows[0][0].counts)
    wanted = np.array([instructions for _, instructions in rows], float)
    parts = np.array([[work.counts[name] for name in names] for work, _ in rows], float) / wanted[:, None]
    size = np.linalg.norm(parts, axis=0)
    columns = [i for i in range(len(names)) if size[i] > 0]
    while True:
        scaled = np.vstack([parts[:, columns] / size[columns], SMOOTH * np.eye(len(columns))])
        solution = np.linalg.lstsq(scaled, np.append(np.ones(len(rows)), np.zeros(len(columns))), rcond=None)[0]
        costs = solution / size[columns]
        least = int(np.argmin((parts[:, columns] * costs).max(axis=0)))
        if solution.min() < 0:
            del columns[int(np.argmin(solution))]
        elif len(columns) > 1 and (parts[:, columns[least]] * costs[least]).max() < LEAST:
            del columns[least]
        else:
            break
    figures = {names[i]: float(f"{x:.4g}") for i, x in zip(columns, costs, strict=True)}
    return figures, sum((parts[:, names.index(name)] * figure for name, figure in figures.items()), np.zeros(1)) - 1


def kernels(target: str, models: Sequence[tuple[str, bytes]], kinds: Set[str]) -> set[str]:
    """First words of the rows of ops of these kinds."""
    ops = [pair for _, data in models for pair in zip(read(data).ops, counted(data, target), strict=True)]
    if missing := sorted(kinds - {op.kind for op, _ in ops}):
        raise SystemExit(f"bench/cost_cases.py has no case of {', '.join(missing)}: add its shapes there")
    return {kernel_of(work) for op, work in ops if op.kind in kinds}


def kernel_of(work: Counted) -> str:
    return work.kernel.split(" ")[0]


def table(target: str, models: Sequence[tuple[str, bytes]], wanted: Set[str], reuse: bool) -> Table:
    """The rows of a target whose first word is wanted, and a line for each about its error."""
    firmware(target)
    rows: Rows = {}
    for name, data in models:
        works = counted(data, target)
        if wanted.isdisjoint(map(kernel_of, works)):
            continue
        for work, instructions in zip(works, counts(target, name, data, reuse), strict=True):
            if kernel_of(work) in wanted:
                rows.setdefault(work.kernel, []).append((work, instructions))
    figures = {}
    for kernel in sorted(rows):
        figures[kernel], errors = fitted(rows[kernel])
        worst, typical = 100 * np.abs(errors).max(), 100 * np.sqrt(np.mean(errors**2))
        console.say(f"{target:10} {kernel:30} {len(errors):4} counted, {typical:5.1f} % off, {worst:5.1f} % at most")
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kinds", nargs="*", metavar="OP", help="count these alone; other rows stay (default: all)")
    parser.add_argument("--output", type=Path, default=TABLE, help="the table (default: that of the package)")
    parser.add_argument("--reuse", action="store_true", help="take the models and counts of the run before")
    args = parser.parse_args()
    if unknown := sorted(set(args.kinds) - OPS.keys()):
        parser.error(f"no op is called {', '.join(unknown)}")
    kinds = set(args.kinds or OPS.keys() - {Custom.name})
    OUT.mkdir(parents=True, exist_ok=True)
    models = list(files(args.reuse, kinds))
    targets = json.loads(TABLE.read_text(encoding="utf-8"))["targets"] if args.kinds else {}
    for target in MICROCONTROLLERS:
        wanted = kernels(target, models, kinds)
        rows = {name: row for name, row in targets.get(target, {}).items() if name.split(" ")[0] not in wanted}
        targets[target] = dict(sorted({**rows, **table(target, models, wanted, args.reuse)}.items()))
    text = json.dumps({"about": "Made by `make costs`: see bench/costs.py.", "targets": targets})
    args.output.write_text(text.replace("}, ", "},\n").replace(": {", ": {\n", 1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
