"""No command leaves a file in HOME or the folder of temporary files, nor opens a socket of the internet."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from every_command import BOARD, COMMANDS, ON_A_BOARD

# What a library takes for a wish not to be counted: onnxruntime sends nothing where CI is set.
WISHES = ("CI", "GITHUB_ACTIONS", "TF_BUILD", "ORT_", "DO_NOT_TRACK", "XDG_", "NMP_CI")

RUN = """
import json, os, sys
from contextlib import redirect_stdout
from pathlib import Path
from nmpconv.cli import main
from nmpconv.device import simulator

simulator._folders = lambda: [Path.cwd()]
left = {}
for line in json.load(sys.stdin):
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        code = main(line)
    files = [str(p) for name in ("HOME", "TMPDIR") for p in Path(os.environ[name]).rglob("*")]
    left[" ".join(line)] = [int(code), *files]
json.dump(left, sys.stdout)
"""

# In front of libc's own: writes down each socket that is not one of this machine.
SPY = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int socket(int domain, int type, int protocol)
{
    int (*next)(int, int, int) = (int (*)(int, int, int))dlsym(RTLD_NEXT, "socket");
    const char *log = getenv("SOCKETS");
    int file = domain == AF_INET || domain == AF_INET6 ? open(log, O_WRONLY | O_APPEND) : -1;

    if (file >= 0) {
        (void)!write(file, "socket\\n", 7);
        close(file);
    }
    return next(domain, type, protocol);
}
"""


@pytest.mark.slow
def test_nothing_is_left(
    inputs: Path, tmp_path: Path, need_tool: Callable[..., str], firmware: Callable[[str], Path]
) -> None:
    spy, sockets = tmp_path / "spy.so", tmp_path / "sockets"
    (tmp_path / "spy.c").write_text(SPY)
    subprocess.run([need_tool("gcc"), "-shared", "-fPIC", "-o", spy, tmp_path / "spy.c", "-ldl"], check=True)
    shutil.copytree(inputs, tmp_path / "here")
    shutil.copy(firmware(BOARD), tmp_path / "here")
    sockets.touch()
    for name in ("home", "temporary"):
        (tmp_path / name).mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(WISHES)}
    environment |= {"HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "temporary")}
    environment |= {"LD_PRELOAD": str(spy), "SOCKETS": str(sockets)}

    def run(program: str, given: str = "") -> str:
        command = [sys.executable, "-c", program]
        ran = subprocess.run(
            command, input=given, env=environment, cwd=tmp_path / "here", capture_output=True, text=True, timeout=300
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    run("import socket; socket.socket(socket.AF_INET)")
    assert sockets.read_text() == "socket\n"  # it sees them
    lines = [*(line for several in COMMANDS.values() for line in several), ON_A_BOARD]
    left = json.loads(run(RUN, json.dumps(lines)))
    assert len(left) == len(lines)
    assert {line: found for line, (_, *found) in left.items() if found} == {}
    assert left["convert model.onnx --data images"] == [0]
    assert sockets.read_text() == "socket\n"
