"""Proves all statements, or those that are named.

make proofs
make proofs ARGS="quotient_is_floor --mutants"

--mutants: also a mutant of each line, which refutes the statement.
"""

from __future__ import annotations

import argparse
import sys

import proofs.statements  # noqa: F401
from proofs.execute import RefutedError, UndecidedError
from proofs.numbers import UnsupportedError
from proofs.statement import EFFORT_OF_MUTANT, STATEMENTS, Proof, is_beyond, mutants, outcome, prove


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a statement; default: all")
    parser.add_argument("--mutants", action="store_true", help="also one that refutes it, of each line")
    asked = parser.parse_args()
    unknown = [name for name in asked.names if name not in STATEMENTS]
    if unknown:
        parser.error(f"no statement is called {', '.join(unknown)}; there are: {', '.join(STATEMENTS)}")
    failed = 0
    seconds = 0.0
    for name in asked.names or STATEMENTS:
        statement = STATEMENTS[name]
        try:
            proof = prove(statement)
        except (RefutedError, UndecidedError, UnsupportedError) as error:
            failed += 1
            print(f"FAILED {name}: {error}", flush=True)
            continue
        seconds += proof.seconds
        lines = len({(node.coord.file, node.coord.line) for _, node in proof.nodes.values()})
        print(f"{proof.seconds:6.1f} s {lines:3} lines {proof.questions:5} questions  {name}", flush=True)
        if asked.mutants:
            failed += not show_mutants(proof)
    print(f"{seconds:6.1f} s of the processor; {failed} failed")
    return min(failed, 1)


def show_mutants(proof: Proof) -> bool:
    """Prints a mutant of each line that refutes the statement, or all that do not; true if each line has one."""
    by_line: dict[tuple[str, int], list] = {}
    for mutant in mutants(proof):
        by_line.setdefault(mutant.line, []).append(mutant)
    whole = True
    for line, group in sorted(by_line.items()):
        if is_beyond(proof.statement, line):
            continue
        outcomes = {}
        for mutant in group:
            outcomes[str(mutant)] = outcome(proof.statement, mutant, EFFORT_OF_MUTANT, proof.answers)
            if outcomes[str(mutant)] == "refuted":
                outcomes = {str(mutant): "refuted"}
                break
        whole = whole and "refuted" in outcomes.values()
        for text, verdict in outcomes.items():
            print(f"    {verdict:11} {text}", flush=True)
    return whole


if __name__ == "__main__":
    sys.exit(main())
