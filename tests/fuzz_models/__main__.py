"""`make fuzz-models`: random models through the converter, against onnxruntime on the original.

    python -m fuzz_models --seconds 600 --seed 1 --jobs 2 --folder build/fuzz-models
    python -m fuzz_models --replay build/fuzz-models/FILE.onnx

Exit status 1 where anything failed.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path

from fuzz_inputs.counts import record

from fuzz_models.case import load
from fuzz_models.checks import check
from fuzz_models.hunt import hunt, outcome_of
from fuzz_models.limits import limited

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results.md"


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz_models", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0, help="the first one; each graph has the next")
    parser.add_argument("--graphs", type=int, help="at most so many graphs")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--folder", type=Path, default=Path("build/fuzz-models"), help="for what fails")
    parser.add_argument("--record", action="store_true", help="add the counts to those of the repository")
    parser.add_argument("--replay", type=Path, help="check a file of that folder again")
    arguments = parser.parse_args()
    if arguments.replay:
        return replay(arguments.replay)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    seeds = itertools.count(arguments.seed)
    if arguments.graphs is not None:
        seeds = iter(range(arguments.seed, arguments.seed + arguments.graphs))
    result = hunt(seeds, arguments.seconds, arguments.jobs, arguments.folder, lambda text: print(text, flush=True))
    print(f"\n{result.summary()}")
    if arguments.record:
        record("graphs", result.graphs, result.seconds, len(result.groups), RESULTS)
    return 1 if result.groups else 0


def replay(path: Path) -> int:
    case, metadata = load(path)
    print(f"{case}\nit was: {metadata.get('kind', '?')}, {metadata.get('found', '')}")
    outcome = outcome_of(limited(lambda folder: check(case, folder)))
    for kind, text in outcome.failures.items():
        print(f"{kind}: {text}")
    for name, figure in outcome.figures.items():
        print(f"{name}: {figure:.1f} dB")
    print(f"refused: {outcome.refused}" if outcome.refused else outcome.invalid or f"{len(outcome.failures)} failures")
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    sys.exit(main())
