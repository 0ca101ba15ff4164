"""Other interpreters of a process: refused with a sentence, and the main one goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
run = getattr(interpreters, "exec", None) or interpreters.run_string
create = lambda: interpreters.create("legacy") if sys.version_info >= (3, 13) else interpreters.create(isolated=False)
USE = '''
try:
    import nmpconv
    nmpconv.load(b"")
except ImportError as error:
    print(error, flush=True)
'''
if sys.argv[1] == "after":
    import nmpconv
    from nmpconv.runtime.interpreter import cpus
run(create(), USE)
if sys.argv[1] == "after":
    print(len(cpus()) > 0)
"""


def printed(when: str, folder: Path) -> list[str]:
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, when]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=True)
    return ran.stdout.splitlines()


def test_refused_where_it_is_first(tmp_path: Path) -> None:
    """Runs waited for each other for ever."""
    assert printed("before", tmp_path) == ["nmpconv cannot be used in a subinterpreter; use threads or processes"]


def test_refused_beside_the_main_one(tmp_path: Path) -> None:
    """By numpy, which is loaded once."""
    refusal, main = printed("after", tmp_path)
    assert "subinterpreter" in refusal or "more than once per process" in refusal
    assert main == "True"
