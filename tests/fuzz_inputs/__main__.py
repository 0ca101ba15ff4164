"""`make fuzz`: mutants of everything that nmpconv and its interpreter read.

    python -m fuzz_inputs --seconds 60                       all kinds, 60 seconds each, the least fuzzed so far first
    python -m fuzz_inputs --seconds 60 --only model onnx     these
    python -m fuzz_inputs --seconds 60 --record              and the counts into counts.csv and docs/results.md
    python -m fuzz_inputs --coverage                         branches and conditions that the corpora take
    python -m fuzz_inputs --minimise                         the corpora of the repository anew
    python -m fuzz_inputs --enough                           whether a release may be tagged, by the counts

Exit status 1 where anything failed, or is not enough; what failed lies in the folder.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections import Counter
from pathlib import Path

from fuzz_inputs import native
from fuzz_inputs.counts import counts, least_first, record, release_lacks
from fuzz_inputs.kinds import KINDS
from fuzz_inputs.loop import hunt
from fuzz_inputs.unreached import BRANCHES, CONDITIONS

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "results.md"


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz_inputs", description=(__doc__ or "").splitlines()[0])
    rows = counts()
    every = least_first([*native.TARGETS, *KINDS], rows)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each")
    parser.add_argument("--seed", type=int, help="of the kinds that Python reads; with --record a new one")
    parser.add_argument("--only", nargs="+", choices=every, default=every)
    parser.add_argument("--folder", type=Path, default=Path("build/fuzz"), help="for corpora and what fails")
    parser.add_argument("--record", action="store_true", help="add the counts to those of the repository")
    parser.add_argument("--coverage", action="store_true")
    parser.add_argument("--minimise", action="store_true")
    parser.add_argument("--enough", action="store_true", help="try nothing; say what a release lacks")
    asked = parser.parse_args()
    if asked.enough:
        print("\n".join(sentences := release_lacks(rows)) or "Enough was tried for a release.")
        return int(bool(sentences))
    if asked.seed is None:  # mutants that were counted count once
        asked.seed = len(rows) if asked.record else 0
    asked.folder.mkdir(parents=True, exist_ok=True)
    targets = [native.TARGETS[name] for name in asked.only if name in native.TARGETS]
    environment = {}
    if targets and not native.compiler():
        print(f"Left out: {' '.join(target.name for target in targets)}, which need clang.")
        targets = []
    elif targets:
        environment = {"NMP_MODELS": ":".join(map(str, native.models(asked.folder.absolute() / "models")))}
        if not asked.coverage:
            for name, flags in native.BUILDS.items():
                native.build(ROOT, asked.folder.absolute() / name, flags)
    failed = False
    for name in asked.only:
        if name in native.TARGETS:
            failed |= bool(targets) and not fuzz(native.TARGETS[name], asked, environment)
        elif asked.coverage or asked.minimise:
            continue
        elif missing := KINDS[name].missing and KINDS[name].missing():
            print(f"Left out: {name}, which needs {missing}.")
        else:
            failed |= not read(name, asked)
    if targets and asked.coverage:
        for name, file in native.coverage(ROOT, asked.folder.absolute(), environment).items():
            decided, conditions = file.conditions
            taken = file.branches - file.left.total()
            print(f"{name:22}{taken:5} of {file.branches:4} branches, {decided:4} of {conditions:4} conditions (MC/DC)")
            for branch, reason in BRANCHES.get(name, {}).items():
                print(f"    {branch}\n        {reason}")
            for branch in file.left - Counter(list(BRANCHES.get(name, ()))):
                failed = True
                print(f"    {branch}\n        NOT REACHED, and unreached.py has no reason")
            if name in CONDITIONS:
                print("    {} conditions: {}".format(*CONDITIONS[name]))
    return int(failed)


def fuzz(target: native.Target, asked: argparse.Namespace, environment: dict[str, str]) -> bool:
    folder = asked.folder.absolute()
    place = native.corpus(target, folder / target.name)
    if asked.coverage:
        return True
    if asked.minimise:
        program = folder / "sanitized" / f"fuzz_{target.name}"
        print(f"{target.name:9} {native.minimise(program, target, place, environment)} inputs kept", flush=True)
        return True
    failed = False
    for name in native.BUILDS:
        is_sanitized = name == "sanitized"
        seconds = asked.seconds * (native.SANITIZED if is_sanitized else 1 - native.SANITIZED)
        ran = native.run(folder / name / f"fuzz_{target.name}", target, place, seconds, environment)
        if asked.record and ran.runs:
            record(target.name, ran.runs, ran.seconds, bool(ran.failed), RESULTS, sanitized=is_sanitized)
        print(f"{ran.target:9} {ran.runs:9} runs in {ran.seconds:5} s, {name}, a corpus of {ran.corpus}{ran.failed}",
              flush=True)  # fmt: skip
        failed |= bool(ran.failed)
    return not failed


def read(name: str, asked: argparse.Namespace) -> bool:
    folder = asked.folder.absolute() / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    tally = hunt(KINDS[name], asked.seconds, asked.seed, folder)
    count = tally.read + tally.refused
    if asked.record:
        record(name, count, tally.seconds, len(tally.faults), RESULTS)
    print(f"{name:9} {count:9} files in {tally.seconds:5.0f} s, {tally.refused} of them refused", flush=True)
    for fault, number in tally.faults.items():
        print(f"          {fault} (seed {asked.seed}, mutant {number}, in {folder})")
    return not tally.faults


if __name__ == "__main__":
    sys.exit(main())
