"""nmpconv bundle: a model as C sources for a firmware project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nmpconv.cli import options, show

NAME = "bundle"


def command(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="A new or empty folder.")],
    model: Annotated[
        Path | None, typer.Argument(metavar="[MODEL.nmp]", help="The converted model; - is stdin.")
    ] = None,
    tensors: Annotated[
        bool, typer.Option("--tensors", help="In the header, scale, offset and range of all activations, too.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Write a folder to drop into a firmware project: interpreter, model as a C array, header, example, CMakeLists.txt.

    Without a model: the interpreter alone, with all ops, as a CMake, Arduino and PlatformIO library.

    \b
    Examples:
      nmpconv bundle model.nmp -o firmware/model
      cmake -S firmware/model -B build && cmake --build build && build/example
    """
    import nmpconv  # not loaded for --help

    sizes = {"model_bytes": 0, "arena_bytes": 0}
    source = None if model is None else options.given(model)
    files = nmpconv.bundle(source, output=output, tensors=tensors)
    if source is not None:
        from nmpconv.targets import most

        data = options.content(source)
        sizes = {"model_bytes": len(data), "arena_bytes": most(data)}
    if json:
        show.as_json({"folder": str(output), "files": sorted(files), **sizes})
        return
    show.facts(
        [
            ("folder", f"{output}, {len(files)} files"),
            ("model", show.size(sizes["model_bytes"]) if model else ""),
            ("arena", f"at most {show.size(sizes['arena_bytes'])}" if model else ""),
        ]
    )
