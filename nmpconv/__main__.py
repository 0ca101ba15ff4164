"""The program: python -m nmpconv, and the command nmpconv. It can be interrupted while the rest is imported."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from importlib.machinery import ExtensionFileLoader
from types import FrameType

from nmpconv import __version__
from nmpconv.errors import INTERRUPTED

AGAIN_SECONDS = 0.02


def main() -> int:
    """Runs the command of the process's arguments and returns its exit code."""
    try:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _interrupt)
        _open_streams()
        if sys.argv[1:] == ["--version"] and _is_told():
            return 0
        from nmpconv.cli import main as run

        code = run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = INTERRUPTED
    if code == INTERRUPTED:
        _leave(code)
    return code


def _is_told() -> bool:
    """Prints the version without a library. Where that fails, the command does so once more, and says why: nothing is
    in the stream's buffer then."""
    try:
        os.write(sys.stdout.fileno(), f"nmpconv {__version__}{os.linesep}".encode())
    except OSError:
        return False
    return True


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Ctrl-C. The start of a library in C (onnx's, for one) may crash where an exception reaches it: then later."""
    while frame is not None:
        if isinstance(frame.f_locals.get("self"), ExtensionFileLoader):
            import threading

            again = threading.Timer(AGAIN_SECONDS, signal.raise_signal, (number,))
            again.daemon = True
            again.start()
            return
        frame = frame.f_back
    raise KeyboardInterrupt


def _leave(code: int) -> None:
    """Ends the process while threads may still compute: Python's own end would abort in the C++ that they run."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _open_streams() -> None:
    """A stream that the shell has closed goes nowhere; else the next file that is opened would be that stream."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            while (handle := os.open(os.devnull, os.O_RDWR)) < number:
                continue
            os.dup2(handle, number)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", errors="replace", closefd=False))


if __name__ == "__main__":
    raise SystemExit(main())
