"""The program: python -m nmpconv, and the command nmpconv. It can be interrupted while the rest is imported."""

from __future__ import annotations

import os
import sys

from nmpconv.errors import INTERRUPTED


def main() -> int:
    """Runs the command of the process's arguments and returns its exit code."""
    try:
        _open_streams()
        from nmpconv.cli import main as run

        return run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def _open_streams() -> None:
    """A stream that the shell has closed goes nowhere; else the next file that is opened would be that stream."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            while (found := os.open(os.devnull, os.O_RDWR)) < number:
                continue
            os.dup2(found, number)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", errors="replace", closefd=False))


if __name__ == "__main__":
    raise SystemExit(main())
