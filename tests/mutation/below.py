"""Appends functions of nmpconv to a file as a process calls them first: for the processes that a traced test starts.

A copy's Python imports it where $NMP_BELOW names the file and $NMP_PACKAGE the folder of sources. Nothing is lost where
a process is killed.
"""

from __future__ import annotations

import os
import sys
import threading
from types import CodeType, FrameType
from typing import Any

OPTIMIZED = 1  # inspect.CO_OPTIMIZED, without the import


def has_name(code: CodeType) -> bool:
    """Checks that a `def` of Python made the code, not a class, a comprehension, a lambda or a template."""
    is_function = bool(code.co_flags & OPTIMIZED)
    return is_function and code.co_filename.endswith(".py") and not code.co_name.startswith("<")


def follow(path: str, package: str) -> None:
    """Watches this process from here on."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    seen: set[CodeType] = set()

    def called(frame: FrameType, event: str, arg: Any) -> None:
        code = frame.f_code
        if code not in seen:
            seen.add(code)
            if code.co_filename.startswith(package) and has_name(code):
                os.write(file, f"{code.co_filename}:{code.co_firstlineno}\n".encode())

    threading.settrace(called)
    sys.settrace(called)


if "NMP_BELOW" in os.environ and __name__ == "mutation_below":
    follow(os.environ["NMP_BELOW"], os.environ["NMP_PACKAGE"])
