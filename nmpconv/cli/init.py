"""nmpconv init: a project file to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nmpconv.cli import console, shared_flags
from nmpconv.errors import UsageError

NAME = "init"


def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="The float model.", show_default=False)],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The file to write; default: nmpconv.toml beside the model.")
    ] = None,
    json: shared_flags.Json = False,
) -> None:
    """Write a project file for `nmpconv build`.

    With comments, and with all that can be guessed from the model.

    \b
    Examples:
      nmpconv init model.onnx
      nmpconv init model.onnx -o -
    """
    path = output or model.parent / "nmpconv.toml"
    if path != shared_flags.STREAM and path.exists():
        raise UsageError("is there already", where=str(path), hint="give another -o, or remove it")

    import nmpconv  # not loaded for --help

    text = nmpconv.init(model, folder=None if path == shared_flags.STREAM else path.parent)
    shared_flags.write(path, text.encode())
    if json:
        console.as_json({"model": str(model), "output": str(path)})
    elif path != shared_flags.STREAM:
        console.line(f"{path}: see what it says, then run nmpconv build")
