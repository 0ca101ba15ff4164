"""Counts the modules that a command loads before it does anything, since seconds depend on the machine."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cli_files
import nets
import numpy as np
import onnx
import pytest
from PIL import Image
from typer.main import get_command

import nmpconv
from nmpconv.cli import BROKEN_PIPE, COMMANDS, MODULES, whole_app
from nmpconv.file.writer import to_bytes

CLI = Path(sys.modules["nmpconv.cli"].__file__ or "").parent
LISTED = "import sys; from nmpconv.cli import main; main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
ENGINES = {"onnx", "onnxruntime", "jinja2", "threadpoolctl", "flatbuffers", "serial", "torch", "tarfile", "h5py"}
RARE = {"tempfile", "statistics", "html", "hashlib"}  # of the standard library, needed for a file that is written, say


def modules(folder: Path, *arguments: str) -> set[str]:
    """Names of the modules that a command has loaded when it ends."""
    plain = {name: value for name, value in os.environ.items() if name != "FORCE_COLOR"}
    command = [sys.executable, "-c", LISTED, *arguments]
    ran = subprocess.run(command, cwd=folder, env=plain, capture_output=True, text=True, check=True)
    return set(ran.stderr.split())


def ours(found: set[str]) -> set[str]:
    return {name for name in found if name.split(".")[0] == "nmpconv"}


def test_the_version_loads_no_library(tmp_path: Path) -> None:
    listed = "import sys; from nmpconv.__main__ import main; main(); print(*sys.modules, file=sys.stderr)"
    command = [sys.executable, "-c", listed, "--version"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    found = set(ran.stderr.split())
    assert ran.stdout == f"nmpconv {nmpconv.__version__}\n"
    assert ours(found) == {"nmpconv", "nmpconv.__main__", "nmpconv.errors"}
    assert not found & {*ENGINES, "numpy", "PIL", "rich", "typer", "click", "pydantic", "threading.local", "logging"}


@pytest.mark.skipif(sys.platform != "linux", reason="needs a full device")
def test_a_version_that_nobody_reads(tmp_path: Path) -> None:
    """The end of a pipe, a full disk and a closed stream are those of any command."""
    command = [sys.executable, "-m", "nmpconv", "--version"]
    with open("/dev/full", "w") as full:
        ran = subprocess.run(command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (6, "error: stdout: No space left on device\n")
    reader, writer = os.pipe()
    os.close(reader)
    ran = subprocess.run(command, cwd=tmp_path, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (ran.returncode, ran.stderr) == (BROKEN_PIPE, "")


@pytest.mark.parametrize("flag", ["--version", "--help"])
def test_what_needs_no_command_loads_none(tmp_path: Path, flag: str) -> None:
    found = modules(tmp_path, flag)
    assert not found & {*ENGINES, "numpy", "PIL", "rich", "pydantic", "logging.handlers"}
    names = {
        "",
        ".errors",
        ".base",
        ".base.quantities",
        ".base.short_names",
        ".cli",
        ".cli.console",
        ".cli.flags",
        ".cli.plain_values",
        ".cli.verbosity",
    }
    assert ours(found) == {f"nmpconv{name}" for name in names}


def test_a_command_loads_what_it_does(tmp_path: Path) -> None:
    """Neither the ops nor the other commands, neither the converter nor what draws on terminals."""
    (tmp_path / "m.nmp").write_bytes(to_bytes(cli_files.nmp_graph(), {}, []))
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    for arguments, size in ((("inspect", "m.nmp"), 40), (("run", "m.nmp", "a.png"), 60)):
        found = modules(tmp_path, *arguments)
        assert not found & {*ENGINES, *RARE, "rich", "pydantic"}
        own = ours(found)
        options = ("nmpconv.conversion.option", "nmpconv.conversion.keywords")
        allowed = {name for name in own if name.startswith(options)} | {"nmpconv.conversion"}
        assert not {name for name in own - allowed if name.split(".")[1:2] in (["conversion"], ["ops"], ["calib"])}
        assert len(own) <= size, sorted(own)


def test_arrays_load_no_pillow(tmp_path: Path) -> None:
    """Nor does a bench here load what talks to devices, nor an evaluation without a reference an engine for floats."""
    net = nets.Net(6, nets.grid(8, -2))
    net.dense(net.input("x", 1, 24, quant=nets.grid(8, -3)), "y", 4)
    graph = replace(nets.placed(net.graph("y"), x=0, y=32), source_shapes={"x": (1, 8, 3), "y": (1, 4)})
    (tmp_path / "m.nmp").write_bytes(to_bytes(graph, {}, []))
    np.save(tmp_path / "a.npy", np.zeros((1, 8, 3), np.float32))
    (tmp_path / "a.csv").write_text("\n".join(["0,1,2"] * 8) + "\n")
    for arguments in (("run", "m.nmp", "a.npy"), ("run", "m.nmp", "a.csv"), ("bench", "m.nmp", "--runs", "1")):
        found = modules(tmp_path, *arguments)
        assert not found & {*ENGINES, "PIL", "rich", "pydantic"}
        assert not {name for name in ours(found) if name.startswith("nmpconv.device.")}, arguments
    found = modules(tmp_path, "eval", "m.nmp", "--data", "a.npy")
    assert not found & {"PIL", "onnxruntime", "onnx.reference", "rich", "pydantic", "torch"}


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads as Linux does")
@pytest.mark.parametrize("command", ["run", "inspect", "eval", "convert"])
def test_only_commands_that_multiply_start_threads_of_blas(tmp_path: Path, command: str) -> None:
    listed = "import os, sys; from nmpconv.cli import main; main(sys.argv[1:]); print(os.environ.get(BLAS))"
    plain = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    code = listed.replace("BLAS", "'OPENBLAS_NUM_THREADS'")
    words = [sys.executable, "-c", code, command, "no.nmp"]
    ran = subprocess.run(words, cwd=tmp_path, env=plain, capture_output=True, text=True, check=False)
    assert ran.stdout.split()[-1] == ("None" if command == "convert" else "1")


def test_the_list_of_commands_says_what_they_say_themselves() -> None:
    for name, summary in COMMANDS.items():
        path = CLI / f"{MODULES.get(name, name)}.py"
        [command] = [
            node
            for node in ast.parse(path.read_text(encoding="utf-8")).body
            if isinstance(node, ast.FunctionDef) and node.name == "command"
        ] or [None]
        if command is not None:
            assert (ast.get_docstring(command) or "").partition("\n")[0] == summary
    assert [known.name for known in whole_app().registered_commands] == [name for name in COMMANDS if name != "device"]


def test_unknown_commands_are_refused_as_ever(cli) -> None:
    onnx.save(cli_files.onnx_model(), "m.onnx")
    ran = cli("converts", "m.onnx")
    assert ran.code == 2
    assert "there is no command 'converts'" in ran.err and "convert" in ran.err


def every_flag() -> Iterator[tuple[Any, Any]]:
    """Each flag and argument of all commands, with its context."""
    group: Any = get_command(whole_app())
    pairs = [(group.name, group), *group.commands.items(), *group.commands["device"].commands.items()]
    for name, command in pairs:
        context = command.make_context(name, [], resilient_parsing=True)
        yield from ((flag, context) for flag in command.get_params(context))


def outcome(read: Callable[[], Any]) -> Any:
    try:
        found = read()
    except Exception as error:
        return type(error), str(error)
    return type(found), found


def test_values_are_those_that_typer_reads(tmp_path: Path) -> None:
    """Each flag has the same value for each text, or refuses it in the same words; most of them without typer."""
    pytest.importorskip("typer._adapters", reason="this typer reads values by itself")
    secret = tmp_path / "secret"
    secret.write_text("")
    secret.chmod(0)
    texts = ["a", "3", "-1", "2.5k", "", "no such", str(tmp_path), str(secret), "host", "Cortex-M4", "yolox", None]
    quick = plain = 0
    for flag, context in every_flag():
        for text in texts:
            several = flag.multiple or flag.nargs == -1
            value = (text, text) if several and text is not None else text
            reader = flag.get_runtime_param()
            theirs = reader._theirs()
            wanted = outcome(lambda: theirs.coerce(value, param=flag, ctx=context))  # noqa: B023
            with pytest.MonkeyPatch.context() as patch:
                asked: list[None] = []
                patch.setattr(reader, "_theirs", lambda: asked.append(None) or theirs)  # noqa: B023
                found = outcome(lambda: reader.coerce(value, param=flag, ctx=context))  # noqa: B023
            assert found == wanted, (flag.name, text)
            if issubclass(wanted[0], Exception) or flag.type_descriptor.annotation is bool:
                continue
            plain, quick = plain + 1, quick + (not asked)
    assert plain > 500
    assert quick > 0.8 * plain
