"""How much a command loads before it does anything: modules are counted, since seconds depend on the machine."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import cli_files
import onnx
import pytest
from PIL import Image

from nmpconv.cli import COMMANDS, MODULES, whole_app
from nmpconv.file.writer import to_bytes

CLI = Path(sys.modules["nmpconv.cli"].__file__ or "").parent
LISTED = "import sys; from nmpconv.cli import main; main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
ENGINES = {"onnx", "onnxruntime", "jinja2", "threadpoolctl", "flatbuffers", "serial", "torch", "tarfile", "h5py"}


def modules(folder: Path, *arguments: str) -> set[str]:
    """Names of the modules that a command has loaded when it ends."""
    plain = {name: value for name, value in os.environ.items() if name != "FORCE_COLOR"}
    command = [sys.executable, "-c", LISTED, *arguments]
    ran = subprocess.run(command, cwd=folder, env=plain, capture_output=True, text=True, check=True)
    return set(ran.stderr.split())


def ours(found: set[str]) -> set[str]:
    return {name for name in found if name.split(".")[0] == "nmpconv"}


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
        ".cli.verbosity",
    }
    assert ours(found) == {f"nmpconv{name}" for name in names}


def test_a_command_loads_what_it_does(tmp_path: Path) -> None:
    """Neither the ops nor the other commands, neither the converter nor what draws on terminals."""
    (tmp_path / "m.nmp").write_bytes(to_bytes(cli_files.nmp_graph(), {}, []))
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    for arguments, size in ((("inspect", "m.nmp"), 40), (("run", "m.nmp", "a.png"), 60)):
        found = modules(tmp_path, *arguments)
        assert not found & {*ENGINES, "rich"}
        own = ours(found)
        options = ("nmpconv.conversion.option", "nmpconv.conversion.keywords")
        allowed = {name for name in own if name.startswith(options)} | {"nmpconv.conversion"}
        assert not {name for name in own - allowed if name.split(".")[1:2] in (["conversion"], ["ops"], ["calib"])}
        assert len(own) <= size, sorted(own)


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
