"""`make mutants`: which changes of the sources no quick test sees.

    python -m mutation --count 500                    so many of C and of Python; goes on where the last run ended
    python -m mutation --count 60 --trace             and find out before which tests call which functions, anew
    python -m mutation --count 60 --trace ops api     of these folders of tests
    python -m mutation --count 60 --again             the survivors once more
    python -m mutation --count 60 --record            and what is known then into judged.txt
    python -m mutation --count 60 --report            what is known

A mutant is judged by the quick tests that call its function, the cheapest of each test file first. Which do is in
FOLDER/touched, a file for each folder of tests; those that have none are traced first. Each of --jobs copies of the
checkout collects all tests once; a mutant is put into a fork of that process (`live`). What cannot be put in is tested
in a new one. Tests that compile the mutant's file themselves come after the first ones, and so does the folder of tests
that mirrors the file's where it is not traced, or where few tests call the function. A result is a line of
FOLDER/results.jsonl; `judged.txt` has those of all sessions, by a digest of the mutant, so that they add up. Mutants of
`equivalent.txt` compute the same, with the reason, and so do those whose compiled interpreter is the same; they count
neither as killed nor as survivors. Exit status 1 where fewer than 97 % are killed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path
from queue import SimpleQueue
from threading import Lock

from mutation.copy import Copy, folders
from mutation.draw import LANGUAGES, drawn, module
from mutation.sites import Mutant

ROOT = Path(__file__).resolve().parents[2]
EQUIVALENT = Path(__file__).with_name("equivalent.txt")
JUDGED = Path(__file__).with_name("judged.txt")
LEAST = 0.97
ALIVE = ("survived", "limit", "untouched")
SETTLED = ("killed", "same", "invalid")


def equivalent() -> dict[str, str]:
    """Reasons by mutant: a line with its key, and indented lines below."""
    reasons: dict[str, str] = {}
    key = ""
    for line in EQUIVALENT.read_text(encoding="utf-8").splitlines():
        if line.startswith("#") or not line:
            continue
        if line.startswith(" "):
            reasons[key] = f"{reasons[key]} {line.strip()}".strip()
        else:
            key = line
            reasons[key] = ""
    return reasons


def known(path: Path) -> dict[str, dict]:
    """Results by mutant; the last one counts. A line that was cut off is none."""
    results: dict[str, dict] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            result = json.loads(line)
        except ValueError:
            continue
        results[result["key"]] = result
    return results


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:12]


def judged() -> dict[str, str]:
    """Results of all sessions, by digest: a line of each."""
    lines = JUDGED.read_text(encoding="utf-8").splitlines() if JUDGED.exists() else []
    return dict(line.split() for line in lines)  # type: ignore[misc]


def record(results: dict[str, dict]) -> None:
    """Adds what is settled: who survives is tested again elsewhere. Those of mutants that are gone stay, for a line may
    come back."""
    settled = {digest(key): row["result"] for key, row in results.items() if row["result"] in SETTLED}
    known_by_now = judged() | settled
    JUDGED.write_text("".join(f"{key} {result}\n" for key, result in sorted(known_by_now.items())), encoding="utf-8")


def with_judged(chosen: list[Mutant], results: dict[str, dict]) -> dict[str, dict]:
    """Results of this folder, and of others where it has none that is settled."""
    before, all_results = judged(), dict(results)
    for mutant in chosen:
        if results.get(mutant.key, {}).get("result") not in SETTLED and digest(mutant.key) in before:
            all_results[mutant.key] = {"key": mutant.key, "line": mutant.line, "result": before[digest(mutant.key)]}
    return all_results


def main() -> int:
    parser = argparse.ArgumentParser(prog="mutation", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=500, help="of each language")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=LANGUAGES, nargs="+", default=LANGUAGES)
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no mutant after so many")
    parser.add_argument("--trace", nargs="*", metavar="FOLDER", help="trace these folders of tests, or all, anew")
    parser.add_argument("--limit", type=float, default=90.0, help="seconds of the processor for a mutant's tests")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="copies of the checkout that work at once")
    parser.add_argument("--again", action="store_true", help="test survivors once more, in new processes")
    parser.add_argument("--record", action="store_true", help="add the results to those of the repository")
    parser.add_argument("--report", action="store_true", help="test nothing")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "mutants")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    path = asked.folder.resolve() / "results.jsonl"
    by_language = [drawn(ROOT, language, asked.count, asked.seed) for language in asked.only]
    chosen = [mutant for row in zip_longest(*by_language) for mutant in row if mutant]
    if not asked.report:
        results = with_judged(chosen, known(path))
        done = {key for key, result in results.items() if not asked.again or result["result"] in SETTLED}
        run([mutant for mutant in chosen if mutant.key not in done | set(equivalent())], path, asked)
    results = known(path)
    if asked.record:
        record(results)
    return report(chosen, with_judged(chosen, results))


def run(mutants: list[Mutant], path: Path, asked: argparse.Namespace) -> None:
    """Appends the result of each to the file."""
    copies: SimpleQueue[Copy] = SimpleQueue()
    lock = Lock()
    touches = path.with_name("touched")
    traced = {file.stem for file in touches.glob("*.jsonl")} if asked.trace is None else set()
    missing = [name for name in asked.trace or folders(ROOT) if name not in traced]
    for job in range(min(asked.jobs, len(mutants)) or bool(asked.trace is not None)):
        copies.put(Copy(ROOT, path.parent / f"copy{job}", asked.limit, touches))

    def trace(folder: str) -> None:
        copy = copies.get()
        try:
            copy.trace(folder)
        finally:
            copies.put(copy)

    end = time.monotonic() + asked.seconds

    def judge(mutant: Mutant) -> None:
        if time.monotonic() > end:
            return
        copy = copies.get()
        try:
            verdict = copy.judge(mutant, cold=asked.again)
        finally:
            copies.put(copy)
        result = {"key": mutant.key, "line": mutant.line, **vars(verdict)}
        with lock, path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
            print(f"{verdict.result:9} {verdict.seconds:6.1f} s  {mutant.key}", flush=True)

    with ThreadPoolExecutor(asked.jobs) as pool:
        list(pool.map(trace, missing if copies.qsize() else ()))
        list(pool.map(judge, mutants))


def report(chosen: list[Mutant], results: dict[str, dict]) -> int:
    """Prints the score of each module and the survivors; 1 where the score is too low."""
    aside, counts, survivors = equivalent(), {}, []
    for mutant in chosen:
        result = "equivalent" if mutant.key in aside else results.get(mutant.key, {}).get("result", "not tested")
        counts.setdefault(module(mutant.file), Counter())[result] += 1
        if result in ALIVE:
            survivors.append(f"{result:9} line {results[mutant.key]['line']} of {mutant.key}")
    print(
        "| module | killed | of | equivalent | same code | do not compile | not tested |\n|---|---|---|---|---|---|---|"
    )
    total: Counter[str] = Counter()
    for name, count in sorted(counts.items()):
        total += count
        print(_row(name, count))
    print(_row("all", total))
    print("\n".join(survivors))
    return int(total["killed"] < LEAST * _tested(total))


def _tested(count: Counter[str]) -> int:
    return count["killed"] + sum(count[result] for result in ALIVE)


def _row(name: str, count: Counter[str]) -> str:
    aside = (count[result] for result in ("equivalent", "same", "invalid", "not tested"))
    cells = (name, count["killed"], _tested(count), *aside)
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    sys.exit(main())
