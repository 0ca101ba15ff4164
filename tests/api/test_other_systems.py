"""Imports the package and runs its commands in a process that lacks what Windows lacks.

Other packages are loaded before; on Windows they have their own ways. This does not show that nmpconv works there.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "cli"))

import cli_files
import onnx

BEGIN = """
import errno, os, pkgutil, select, signal, socket, stat, sys
import cobs, flatbuffers, jinja2, numpy, onnx, onnxruntime, PIL.Image, rich.table, rich.progress, serial, typer
import subprocess, tempfile, threadpoolctl, typer.main, serial.tools.list_ports

for name in ("fcntl", "grp", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty"):
    sys.modules[name] = None
for name in ("O_NONBLOCK", "fork", "forkpty", "getuid", "geteuid", "getpgid", "killpg", "mkfifo", "register_at_fork",
             "sched_getaffinity", "setsid", "sysconf", "uname"):
    delattr(os, name)
for name in ("SIGALRM", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "alarm", "setitimer"):
    delattr(signal, name)
posix_select, posix_open, posix_replace = select.select, os.open, os.replace

def only_sockets(*given):
    assert all(isinstance(one, socket.socket) for part in given[:3] for one in part), "select() of what is no socket"
    return posix_select(*given)

def no_folder(path, flags, *mode, **more):
    if os.path.isdir(path):
        raise PermissionError(errno.EACCES, "a folder cannot be opened", str(path))
    return posix_open(path, flags, *mode, **more)

def only_closed(source, target):
    held = {os.path.realpath(f"/proc/self/fd/{one}") for one in os.listdir("/proc/self/fd")}
    if os.path.realpath(source) in held or os.path.isdir(target):
        raise PermissionError(errno.EACCES, "it is open, or a folder is there", str(source))
    posix_replace(source, target)

select.select, os.open, os.replace = only_sockets, no_folder, only_closed
"""
IMPORTS = """
import nmpconv
sys.modules["torch"] = None  # it asks the system itself
names = [one.name for one in pkgutil.walk_packages(nmpconv.__path__, "nmpconv.")]
for name in names:
    if not name.startswith(("nmpconv.explorer", "nmpconv.torch")) and name != "nmpconv.__main__":
        __import__(name)
print(len(names))
"""
COMMANDS = """
convert model.onnx --data images --report r.html -o m.nmp
convert model.onnx --data images -o m.nmp
inspect m.nmp
run m.nmp images/00.png
eval m.nmp --data images/labels.csv --reference model.onnx
bench m.nmp --runs 2
bundle m.nmp -o empty
export m.nmp
report m.nmp -o again.html
device list
ops
"""


def run(program: str, folder: Path) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", BEGIN + program], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout[-1000:] + ran.stderr[-3000:]
    return ran.stdout


pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="looks into /proc")


def test_every_module_is_imported(tmp_path: Path) -> None:
    assert int(run(IMPORTS, tmp_path)) > 150


@pytest.mark.slow
def test_commands_run(tmp_path: Path) -> None:
    onnx.save(cli_files.onnx_model(), tmp_path / "model.onnx")
    cli_files.images(tmp_path / "images")
    (tmp_path / "empty").mkdir()
    program = "from nmpconv.cli import main\n"
    for command in COMMANDS.split("\n"):
        if command:
            program += f"print('%', {command!r}, flush=True)\nassert main({command.split()!r}) == 0\n"
    run(program, tmp_path)
    assert (tmp_path / "empty" / "CMakeLists.txt").is_file()
    assert not list(tmp_path.glob(".nmpconv-*"))
    assert b"<html" in (tmp_path / "r.html").read_bytes()


def test_a_program_is_a_device(tmp_path: Path) -> None:
    """Its pipes are waited for without select()."""
    program = """
from nmpconv.device.transport import Program
from nmpconv.errors import DeviceError
loop = "import os\\nwhile (piece := os.read(0, 9)) != b'end': os.write(1, piece)"
line = Program([sys.executable, "-c", loop])
assert line.read(0.01) == b""
for piece in (b"one", b"two"):
    line.write(piece)
    assert line.read(30) == piece
line.write(b"end")
for _ in range(2):
    try:
        assert line.read(30) is None
    except DeviceError as error:
        assert "has ended" in error.message
line.close()
"""
    run(program, tmp_path)


@pytest.mark.parametrize("harm", ["select.select([0], [], [], 0)", "import fcntl", "os.fork()", "os.open('.', 0)"])
def test_the_process_lacks_it(tmp_path: Path, harm: str) -> None:
    with pytest.raises(AssertionError, match=r"no socket|fcntl|fork|folder"):
        run(harm, tmp_path)
